"""Settings of precision that are kept out, and come back as they were."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch

from nscl.core.projection.precision import full_precision

CUDA, MKLDNN = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul


def settings() -> dict[str, Any]:
    try:
        common = torch.get_float32_matmul_precision()
    except RuntimeError:
        common = "unknown"
    each = {"cuda": CUDA.fp32_precision, "mkldnn": MKLDNN.fp32_precision}
    return {"common": common, "all": torch.backends.fp32_precision, **each}


@pytest.fixture(autouse=True)
def _as_torch_begins() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.fp32_precision = "none"
    for backend in (CUDA, MKLDNN):
        backend.fp32_precision = "none"
    assert settings() == {"common": "highest", "all": "none", "cuda": "none", "mkldnn": "none"}


CHOICES = {
    "none": lambda: None,
    "high": lambda: torch.set_float32_matmul_precision("high"),
    "medium": lambda: torch.set_float32_matmul_precision("medium"),
    "highest": lambda: torch.set_float32_matmul_precision("highest"),
    "allow_tf32": lambda: setattr(CUDA, "allow_tf32", True),
    "cuda": lambda: setattr(CUDA, "fp32_precision", "tf32"),
    "mkldnn": lambda: setattr(MKLDNN, "fp32_precision", "bf16"),
    "all": lambda: setattr(torch.backends, "fp32_precision", "tf32"),
}


@pytest.mark.parametrize("chosen", CHOICES)
def test_products_are_whole_inside_and_settings_come_back(chosen: str) -> None:
    CHOICES[chosen]()
    before = settings()
    with suppress(ValueError), full_precision("cpu"):
        inside = settings()
        assert {inside["cuda"], inside["mkldnn"]} <= {"none", "ieee"}
        assert inside["common"] == "highest"
        assert not CUDA.allow_tf32  # the older way of asking still has an answer
        raise ValueError
    assert settings() == before


def test_what_follows_the_common_setting_goes_on_to() -> None:
    torch.backends.fp32_precision = "tf32"
    with full_precision("cpu"):
        assert CUDA.fp32_precision == "ieee"
    torch.backends.fp32_precision = "ieee"
    assert CUDA.fp32_precision == "ieee"


@pytest.mark.parametrize("kinds", [("cpu",), ("meta", "cpu")])
def test_autocast_is_off_inside_and_on_again(kinds: tuple[str, ...]) -> None:
    x = torch.randn(3, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with full_precision(*kinds):
            assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.bfloat16
