"""Places of names beside markers, for any points: nothing overlaps, nothing leaves the frame."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from nscl.reporting.figures.names import Box, placed

inches = st.floats(0.2, 3.8)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(inches, inches), min_size=1, max_size=12), st.floats(0.1, 1.0))
def test_names_overlap_neither_names_nor_markers(
    points: list[tuple[float, float]], width: float
) -> None:
    frame, marker = Box(0.0, 0.0, 4.0, 4.0), 0.06
    obstacle = Box(1.9, 0.0, 2.1, 4.0)
    found = placed(points, [(width, 0.12)] * len(points), frame, marker, [obstacle])
    boxes = [box for box in found if box is not None]
    assert all(frame.holds(box) and not box.meets(obstacle) for box in boxes)
    assert not [pair for pair in combinations(boxes, 2) if pair[0].meets(pair[1])]
    for i, box in enumerate(found):
        others = [p for j, p in enumerate(points) if j != i]
        for x, y in others if box is not None else ():
            assert not box.meets(Box(x - marker, y - marker, x + marker, y + marker))


def test_a_name_alone_stands_to_the_right_of_its_marker() -> None:
    (box,) = placed([(1.0, 1.0)], [(0.5, 0.1)], Box(0.0, 0.0, 4.0, 4.0), 0.06)
    assert box is not None
    assert box.left > 1.06
    assert box.middle == 1.0
    assert placed([(1.0, 1.0)], [(9.0, 0.1)], Box(0.0, 0.0, 4.0, 4.0), 0.06) == [None]
