"""Where each row of METHODS §19 is tested, and that those tests are there; row 5 is here."""

import ast
from pathlib import Path

import pytest
import torch
from torch import nn

import nscl

TESTS = Path(__file__).parents[1]

ROWS: dict[int, tuple[str, ...]] = {  # a file and its tests
    1: ("core/test_spectrum.py", "test_row_1_of_the_sanity_table"),
    2: ("core/test_spectrum.py", "test_row_2_of_the_sanity_table"),
    3: ("core/test_spectrum.py", "test_row_3_of_the_sanity_table"),
    4: ("core/test_patches.py", "test_row_4_of_the_sanity_table"),
    5: ("methods/test_sanity_table.py", "test_row_5_old_outputs_stay_with_a_bias_too"),
    6: ("methods/test_fisher.py", "test_logistic_regression_at_ln_3"),
    7: ("methods/test_sample_gradients.py", "test_gradients_1_and_3"),
    8: ("methods/test_ewc.py", "test_two_quadratics_meet_at_1"),
    9: ("methods/test_ewc.py", "test_separate_and_online_rest_in_different_places"),
    10: ("methods/test_mas.py", "test_one_weight_two_samples"),
    11: ("methods/test_muc_mas.py", "test_the_values_of_row_11"),
    12: ("methods/test_si.py", "test_path_and_importance_of_a_parabola"),
    13: ("methods/test_distillation.py", "test_the_gradients_of_row_13"),
    14: ("methods/test_qp.py", "test_values_of_the_specification"),
    15: ("methods/test_qp.py", "test_values_of_the_specification"),
    16: ("methods/test_a_gem.py", "test_values_of_the_specification"),
    17: ("methods/test_a_gem.py", "test_values_of_the_specification"),
    18: ("methods/test_mega.py", "test_mega_one_weighs_by_the_ratio_of_losses"),
    19: ("methods/test_mega.py", "test_mega_two_values_of_the_specification"),
    20: ("methods/test_recursive.py", "test_row_20"),
    21: ("methods/test_bases.py", "test_row_21_the_definition_and_the_release"),
    22: ("methods/test_bases.py", "test_row_22_importances"),
    23: ("methods/test_null_spaces.py", "test_row_23"),
    24: ("methods/test_global_distillation.py", "test_the_values_of_rows_24_and_25"),
    25: ("methods/test_global_distillation.py", "test_the_values_of_rows_24_and_25"),
    26: (
        "methods/test_controller.py",
        "test_bounded_probabilities",
        "test_reward_of_sixteen_of_thirty_two_active",
    ),
    27: ("metrics/test_accuracy.py", "test_sanity_row_27"),
    28: ("metrics/test_accuracy.py", "test_sanity_row_28"),
}


def test_no_row_is_left_out() -> None:
    assert set(ROWS) == set(range(1, 29))


@pytest.mark.parametrize("row", ROWS)
def test_the_test_of_a_row_is_there(row: int) -> None:
    file, *names = ROWS[row]
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert names
    assert there >= set(names)


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
