"""Layers grouped by the pattern of their names: nothing is lost, the worst comes first."""

from hypothesis import given
from hypothesis import strategies as st

from nscl.core.report.layers import LayerReport, group_layers, sum_of
from nscl.core.report.names import pattern_of

kinds = st.sampled_from(["Linear", "Conv2d"])

hows = st.sampled_from(["null space", "ewc", "left free"])

names = st.sampled_from(["encoder.layer.{}.q", "encoder.layer.{}.fc1", "head", "{}", "layer1.{}.c"])


@st.composite
def layers(draw: st.DrawFn) -> LayerReport:
    name = draw(names).format(draw(st.integers(0, 200)))
    features = draw(st.integers(1, 50))
    free = draw(st.integers(0, features))
    return LayerReport(name, draw(kinds), features, free, 0.1, 2.0, draw(hows))


@given(st.lists(layers(), max_size=60))
def test_groups_are_a_partition_with_the_least_free_first(found: list[LayerReport]) -> None:
    groups = group_layers(found)
    assert sorted(map(repr, found)) == sorted(repr(one) for g in groups for one in g.layers)
    for group in groups:
        same = {(pattern_of(one.name), one.kind, one.protected_by) for one in group.layers}
        assert len(same) == 1
        assert all(group.least.free_share <= one.free_share for one in group.layers)
    held = [group.least.is_held for group in groups]
    assert held == sorted(held, reverse=True)
    shares = [group.least.free_share for group in groups if group.least.is_held]
    assert shares == sorted(shares)
    assert sum(g.sum.features for g in groups) == sum_of("", "", found).features


def test_a_layer_without_features_is_free() -> None:
    empty = LayerReport("a", "Linear", 0, 0, 0.0, 1.0, "null space")
    assert empty.free_share == 1.0
