"""The controller's own Adam: torch's, taken up again bit for bit, the same on all ranks."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from nscl.methods.lessons import Lessons
from tests.methods.lessons_worker import everything


def learn(pupil: nn.Module, lessons: Lessons, seed: int) -> None:
    torch.manual_seed(seed)
    lessons.clear()
    pupil(torch.randn(4, 3)).square().sum().backward()
    lessons.step(4)


def weights(pupil: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in pupil.parameters()])


def test_steps_are_adams() -> None:
    pupil = nn.Linear(3, 2)
    other = copy.deepcopy(pupil)
    lessons, adam = Lessons(pupil, rate=0.02), torch.optim.Adam(other.parameters(), lr=0.02)
    for step in range(3):
        learn(pupil, lessons, step)
        torch.manual_seed(step)
        adam.zero_grad()
        other(torch.randn(4, 3)).square().sum().backward()
        adam.step()
    assert torch.equal(weights(pupil), weights(other))


def test_without_a_gradient_nothing_moves() -> None:
    pupil = nn.Linear(3, 2)
    lessons = Lessons(pupil, rate=0.02)
    learn(pupil, lessons, 0)
    before = weights(pupil)
    lessons.clear()
    lessons.step(4)
    assert torch.equal(weights(pupil), before)


def test_taken_up_again_it_goes_on_as_it_would_have() -> None:
    pupil = nn.Linear(3, 2)
    lessons = Lessons(pupil, rate=0.02)
    learn(pupil, lessons, 0)
    twin = copy.deepcopy(pupil)
    resumed, anew = Lessons(twin, rate=0.02), copy.deepcopy(pupil)
    resumed.load_state_dict(copy.deepcopy(lessons.state_dict()))
    for each, its in ((pupil, lessons), (twin, resumed), (anew, Lessons(anew, rate=0.02))):
        learn(each, its, 1)
    assert torch.equal(weights(pupil), weights(twin))
    assert not torch.equal(weights(pupil), weights(anew))


def test_two_ranks_learn_as_one(tmp_path: Path) -> None:
    """Real gloo processes with unequal parts of each batch; also of the Fisher information."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.methods.lessons_worker", str(tmp_path)]
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    ranks = [
        subprocess.Popen([*command, rank], cwd=root, env=environment, stderr=subprocess.PIPE)
        for rank in ("0", "1")
    ]
    for process in ranks:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    for rank in ("0", "1"):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for name, expected in everything(rank=0, ranks=1).items():
            torch.testing.assert_close(found[name], expected, rtol=1e-8, atol=1e-12)
