"""Seconds per operation: measured once, and scaled by the size of a matrix."""

import pytest

from nscl.core.checks.speed import Speed, measured_speed


def test_the_machine_is_timed_once() -> None:
    first = measured_speed()
    assert first is measured_speed()
    assert min(first.eigh, first.precise, first.single) > 0


def test_seconds_grow_with_the_cube_of_a_matrix_and_with_the_width_of_a_sketch() -> None:
    speed = Speed(eigh=1e-9, precise=1e-10, single=0.0)
    assert speed.decompose(200) == pytest.approx(8 * speed.decompose(100))
    # A QR decomposition of 3 · width · rank² products, and two small decompositions.
    expected = 3e-10 * 1000 * 10**2 + 2 * speed.decompose(10)
    assert speed.decompose_sketch(1000, 10) == pytest.approx(expected)
