"""How many directions of each layer are free, as the authors' published run found them.

Source: the log of the official code's run ``rehearsal_without_avg`` on 10-split CIFAR-100 after
task 1, github.com/ShipengWang/Adam-NSCL at a2f39b4, ``our_results``: features of each convolution
and the rank of its null space. Names of layers are those of ``nscl.models.PreActResNet18``.
"""

# layer: (features, free directions)
FREE_DIRECTIONS: dict[str, tuple[int, int]] = {
    "conv": (27, 6),
    "blocks.0.conv1": (576, 85),
    "blocks.0.conv2": (576, 279),
    "blocks.1.conv1": (576, 253),
    "blocks.1.conv2": (576, 338),
    "blocks.2.conv1": (576, 325),
    "blocks.2.conv2": (1152, 899),
    "blocks.2.shortcut": (64, 49),
    "blocks.3.conv1": (1152, 893),
    "blocks.3.conv2": (1152, 874),
    "blocks.4.conv1": (1152, 885),
    "blocks.4.conv2": (2304, 1929),
    "blocks.4.shortcut": (128, 106),
    "blocks.5.conv1": (2304, 1878),
    "blocks.5.conv2": (2304, 1758),
    "blocks.6.conv1": (2304, 1734),
    "blocks.6.conv2": (4608, 3443),
    "blocks.6.shortcut": (256, 214),
    "blocks.7.conv1": (4608, 3286),
    "blocks.7.conv2": (4608, 1680),
}
