"""InstAParam: a controller that chooses parameters for every image.

``method`` is the method; ``super_kernels`` the network, ``controller`` the controller. The
controller learns by ``policy_gradient`` (or ``straight_through``) with its ``auxiliary_optimizer``.
``policy_fisher`` has the importances for the optional EWC penalty.
"""
