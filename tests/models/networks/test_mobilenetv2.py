"""The published network: its size, torchvision's weights, and files that are not them."""

import hashlib
import os
from pathlib import Path

import pytest
import torch

from nscl.data import normalise, open_stream
from nscl.models import ModelError, build_model
from nscl.models.networks.mobilenetv2 import MobileNetV2, load_weights, mobilenetv2
from nscl.models.networks.resized import Resized

FILE = "mobilenet_v2-b0353104.pth"
SHA = "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889"


@pytest.fixture(scope="module")
def published() -> Path:
    path = Path(os.environ.get("NSCL_DATA", ""), "weights", FILE)
    if not path.is_file():
        pytest.skip("the weights that torchvision publishes are not on this machine")
    return path


def test_it_has_the_published_number_of_parameters() -> None:
    assert sum(p.numel() for p in MobileNetV2(classes=1000).parameters()) == 3_504_872
    backbone = mobilenetv2((3, 96, 96))
    assert backbone.out_features == 1280
    assert sum(p.numel() for p in backbone.parameters()) == 3_504_872 - 1280 * 1000 - 1000


def test_it_halves_a_picture_five_times() -> None:
    network = MobileNetV2().eval()
    with torch.no_grad():
        assert network.features(torch.zeros(1, 3, 96, 96)).shape == (1, 1280, 3, 3)


def test_the_published_weights_fit_and_mean_something(published: Path) -> None:
    assert hashlib.sha256(published.read_bytes()).hexdigest() == SHA
    whole = MobileNetV2(classes=1000)
    load_weights(whole, published)  # strict: names and shapes are torchvision's
    backbone = mobilenetv2((3, 96, 96), weights=str(published))
    for name, tensor in backbone.state_dict().items():
        assert torch.equal(tensor, whole.state_dict()[name])
    images = torch.randn(4, 3, 96, 96)
    whole.eval(), backbone.eval()
    with torch.no_grad():
        features = backbone(images)
        answers = whole.classifier[1](features)
        torch.testing.assert_close(whole(images), answers)
        torch.testing.assert_close(backbone(images[2:]), features[2:], rtol=1e-4, atol=1e-4)
    assert bool(torch.isfinite(answers).all())


def test_the_published_weights_know_an_orange(published: Path) -> None:
    """Wrong strides or activations would load as well, and answer nonsense."""
    folder = published.parents[1]
    if not (folder / "cifar-100-python" / "test").is_file():
        pytest.skip("CIFAR-100 is not on this machine")
    fruit = open_stream("split-cifar100-10", data_dir=folder)[5]
    rows = torch.where(fruit.test.labels == fruit.class_names.index("orange"))[0][:20]
    images = normalise(fruit.test.gather(rows), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    network = MobileNetV2(classes=1000)
    load_weights(network, published)
    with torch.no_grad():
        answers = Resized(network.eval(), 160)(images).argmax(1)
    # 950 and 951 of ImageNet's thousand classes are orange and lemon; seven of twenty, measured.
    assert sum(int(answer) in (950, 951) for answer in answers) >= 5


def test_weights_of_another_network(tmp_path: Path) -> None:
    path = tmp_path / "other.pth"
    torch.save({"features.0.0.weight": torch.zeros(1)}, path)
    with pytest.raises(ModelError, match=r"other\.pth is not of MobileNetV2") as found:
        mobilenetv2((3, 96, 96), weights=str(path))
    assert "\n" not in str(found.value)
    torch.save([1], path)
    with pytest.raises(ModelError, match="has a list, not a state dict"):
        mobilenetv2((3, 96, 96), weights=str(path))
    path.write_bytes(b"nothing")
    with pytest.raises(ModelError, match="is no file of weights"):
        mobilenetv2((3, 96, 96), weights=str(path))
    path.rename(tmp_path / FILE)
    with pytest.raises(ModelError, match="is corrupt: its SHA-256 does not begin as its name"):
        mobilenetv2((3, 96, 96), weights=str(tmp_path / FILE))
    with pytest.raises(ModelError, match="cannot be read"):
        mobilenetv2((3, 96, 96), weights=str(tmp_path / "none.pth"))


def test_small_or_grey_pictures_are_refused_and_resized_ones_are_not() -> None:
    with pytest.raises(ModelError, match=r"not 1 x 28 x 28: resize them with --model\.size"):
        build_model("mobilenetv2", image_shape=(1, 28, 28), classes_per_task=[2])
    model = build_model("mobilenetv2", image_shape=(3, 8, 8), size=32, classes_per_task=[2])
    assert model(torch.zeros(2, 3, 8, 8), 0).shape == (2, 2)
    with pytest.raises(ModelError, match="'mlp' has no option 'weights'"):
        build_model(
            "mlp", image_shape=(3, 8, 8), classes_per_task=[2], options={"weights": "x.pth"}
        )
