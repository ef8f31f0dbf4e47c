"""Values worked out by hand, the sanity table: every row has its test; that of row 5 is here."""

import ast
from pathlib import Path

import torch
from torch import nn

import nscl

TESTS = Path(__file__).parents[1]

ROWS: dict[int, tuple[str, ...]] = {  # a row and its tests, wherever they are
    1: ("test_row_1_of_the_sanity_table",),
    2: ("test_row_2_of_the_sanity_table",),
    3: ("test_row_3_of_the_sanity_table",),
    4: ("test_row_4_of_the_sanity_table",),
    5: ("test_row_5_old_outputs_stay_with_a_bias_too",),
    6: ("test_logistic_regression_at_ln_3",),
    7: ("test_gradients_1_and_3",),
    8: ("test_two_quadratics_meet_at_1",),
    9: ("test_separate_and_online_rest_in_different_places",),
    10: ("test_one_weight_two_samples",),
    11: ("test_the_values_of_row_11",),
    12: ("test_path_and_importance_of_a_parabola",),
    13: ("test_the_gradients_of_row_13",),
    14: ("test_values_of_the_specification",),
    15: ("test_values_of_the_specification",),
    16: ("test_values_of_the_specification",),
    17: ("test_values_of_the_specification",),
    18: ("test_mega_one_weighs_by_the_ratio_of_losses",),
    19: ("test_mega_two_values_of_the_specification",),
    20: ("test_row_20",),
    21: ("test_row_21_the_definition_and_the_release",),
    22: ("test_row_22_importances",),
    23: ("test_row_23",),
    24: ("test_the_values_of_rows_24_and_25",),
    25: ("test_the_values_of_rows_24_and_25",),
    26: (
        "test_bounded_probabilities",
        "test_reward_of_sixteen_of_thirty_two_active",
    ),
    27: ("test_sanity_row_27",),
    28: ("test_sanity_row_28",),
}


def test_every_row_has_its_test() -> None:
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in TESTS.rglob("test_*.py"))
    there = {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert set(ROWS) == set(range(1, 29))
    assert not {name for names in ROWS.values() for name in names} - there


def test_row_5_old_outputs_stay_with_a_bias_too() -> None:
    """Bias = one more feature that is always 1: weight and bias move, ΔW x + Δb does not."""
    torch.manual_seed(0)
    model = nn.Linear(6, 4).double()
    # A plane beside the origin: a bias may move if the weights make up for it.
    old = torch.randn(6).double() + torch.randn(40, 2).double() @ torch.randn(2, 6).double()
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-9))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    with memory.protect(optimizer):
        memory.remember([old])
        for _ in range(5):
            optimizer.zero_grad()
            (model(torch.randn(20, 6).double()) - 1).square().sum().backward()
            optimizer.step()
    moved_weight, moved_bias = model.weight.detach() - weight, model.bias.detach() - bias
    assert moved_weight.abs().max() > 1e-3
    assert moved_bias.abs().max() > 1e-3
    assert (old @ moved_weight.mT + moved_bias).abs().max() < 1e-12
