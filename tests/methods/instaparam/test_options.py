"""InstAParam's options: kernels that have a middle, and limits."""

import pytest
from pydantic import ValidationError

from nscl.methods.instaparam.options import InstAParamOptions


@pytest.mark.parametrize("kernels", [(4, 3), (3, 3), (-1, 3), ()])
def test_kernels_must_be_odd_and_different(kernels: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError, match="kernels must be different odd sizes"):
        InstAParamOptions(kernels=kernels)


@pytest.mark.parametrize(
    ("name", "value"),
    [("controller_width", 3), ("mu", 1.1), ("alpha", 0.4), ("reuse", 1.0), ("regime", "both")],
)
def test_values_outside_their_limits_are_refused(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        InstAParamOptions.model_validate({name: value})


def test_without_a_choice_the_numbers_are_those_of_the_release() -> None:
    found = InstAParamOptions()
    assert (found.kernels, found.groups, found.mu, found.alpha) == ((7, 5, 3, 1), 4, 0.5, 0.8)
    assert (found.beta, found.gain, found.reuse, found.ewc) == (0.8, 30.0, 0.1, 0.0)
