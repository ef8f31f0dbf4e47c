"""What the laboratory promises on the embedded digits."""

from statistics import mean

from tests.quick_runs import QuickRuns


def test_adam_nscl_forgets_five_times_less_at_equal_or_better_accuracy(
    quick_runs: QuickRuns,
) -> None:
    """``split-digits-5``, preset quick, seeds 0–4."""
    results = {
        method: [quick_runs(method, seed) for seed in range(5)]
        for method in ("finetune", "adam-nscl")
    }
    forgetting = {name: mean(r.forgetting for r in found) for name, found in results.items()}
    accuracy = {name: mean(r.acc for r in found) for name, found in results.items()}
    assert forgetting["finetune"] > 5
    assert forgetting["adam-nscl"] <= forgetting["finetune"] / 5
    assert accuracy["adam-nscl"] >= accuracy["finetune"] + 2
    assert sum(r.seconds for found in results.values() for r in found) / 5 < 60
