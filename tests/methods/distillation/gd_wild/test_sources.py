"""GD-WILD's other images: a coreset within its budget, and external ones."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nscl.data.images.augment import normalise
from nscl.errors import NsclError
from nscl.methods.distillation.gd_wild.method import GDWild
from nscl.methods.distillation.gd_wild.sources import SourceOptions, Sources
from nscl.methods.external_images import ExternalImages
from nscl.training.config.build import build_config
from nscl.training.process.device import Ranks
from nscl.training.setup import Setup
from tests.methods.distillation.gd_wild.gd_wild_setup import OPTIONS, at_task, gd
from tests.methods.labs import lab, stream
from tests.runs import small


def test_the_coreset_keeps_its_budget_equal_per_class(tmp_path: Path) -> None:
    """All of it: what is left over goes to the newest classes."""
    _, method = gd(tmp_path, options={"budget": 32})
    for task, each in enumerate(([16, 16], [8, 8, 8, 8], [5, 5, 5, 5, 6, 6])):
        method.sources.keep(task)
        coreset = method.sources.coreset
        assert coreset is not None
        kept = [torch.bincount(coreset.task(index).labels) for index in range(task + 1)]
        assert torch.cat(kept).tolist() == each
        assert len(coreset) == 32
    with pytest.raises(NsclError, match="5 images cannot hold one of each of 6 classes"):
        gd(tmp_path, options={"budget": 5})


@given(budget=st.integers(12, 60), widths=st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_a_shrinking_coreset_fills_every_budget(budget: int, widths: list[int]) -> None:
    """With images enough, not one place is left empty and no image comes back."""
    small_lab = lab(widths)
    small_lab.stream = stream(widths, images=200)
    sources = Sources(small_lab, SourceOptions(pool="none", budget=budget))
    before: set[bytes] = set()
    for task in range(len(widths)):
        sources.keep(task)
        assert sources.coreset is not None
        kept = [pixels(sources.coreset.task(i).images) for i in range(task + 1)]
        assert sum(map(len, kept)) == budget
        counts = [torch.bincount(sources.coreset.task(i).labels) for i in range(task + 1)]
        assert torch.cat(counts).tolist() == slow_shares(budget, sum(widths[: task + 1]))
        assert set().union(*kept[:-1]) <= before
        before = set().union(*kept)


def slow_shares(budget: int, classes: int) -> list[int]:
    """One image after the other, round by round, the newest class first."""
    found = [0] * classes
    for number in range(budget):
        found[classes - 1 - number % classes] += 1
    return found


def pixels(images: torch.Tensor) -> set[bytes]:
    return {image.numpy().tobytes() for image in images}


@pytest.mark.parametrize(("name", "value"), [("random_share", 0.5), ("rank_by", "probability")])
def test_choices_among_no_external_images_are_refused(name: str, value: object) -> None:
    with pytest.raises(NsclError, match=f"{name}' = {value} .* belongs to pool not none"):
        without_pool({name: value})
    without_pool({"random_share": 0.7, "rank_by": "logit"})


def without_pool(options: dict[str, object]) -> None:
    settings = {"method": "gd-wild", "options": {"pool": "none", **options}}
    build_config("split-digits-5", settings)


@pytest.mark.parametrize("rank_by", ["logit", "probability"])
def test_the_previous_network_picks_its_share_of_this_tasks_pool(
    rank_by: str, tmp_path: Path
) -> None:
    """Every image of the pool asked one by one: the best three of each old class are taken."""
    options = {**OPTIONS, "budget": 10, "random_share": 0.5, "rank_by": rank_by}
    tiny = stream([2, 3, 2], images=20)
    setup = Setup.build(small("gd-wild", tmp_path, options=options), Ranks(), stream=tiny)
    method = setup.method
    assert isinstance(method, GDWild)
    for old in range(2):
        method.sources.keep(old)
    method.start_task(2)
    choices = SourceOptions(**options)
    pools = [ExternalImages(method.lab, choices).of_task(task).images for task in (0, 2)]
    scores = []
    with torch.no_grad():
        for image in pools[1]:
            seen = normalise(image[None], tiny.mean, tiny.std)
            logits = torch.cat([method.previous(seen, task) for task in range(2)], 1)[0]
            scores.append(logits if rank_by == "logit" else logits.softmax(0))
    best = torch.stack(scores).topk(3, dim=0).indices.flatten().unique()
    chosen = pixels(method.sources.external)
    assert len(method.sources.external) == 20 + 10
    assert pixels(pools[1][best]) <= chosen <= pixels(pools[1])
    assert not chosen & pixels(pools[0])


@pytest.mark.parametrize("rank_by", ["logit", "probability"])
def test_external_images_are_as_many_as_labelled_ones(rank_by: str, tmp_path: Path) -> None:
    setup, method = at_task(1, tmp_path, options={"rank_by": rank_by})
    external = method.sources.external
    assert external is not None
    assert len(external) == len(setup.stream[1].train) + 30
    assert external.dtype == torch.uint8
