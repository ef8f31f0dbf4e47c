"""What is published: the sdist is the repository, the wheel works in an empty environment.

``make dist`` builds both, and has them tested here; without it they are built for these tests.
"""

import os
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

import nscl

ROOT = Path(__file__).parents[1]
NAME = f"nscl-{nscl.__version__}"


def command(*words: str | Path, cwd: Path) -> str:
    """Run a command that knows nothing of this repository; returns its output."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=plain, capture_output=True, text=True,
        check=False, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of wheel and sdist."""
    if "NSCL_DIST" in os.environ:
        return Path(os.environ["NSCL_DIST"])
    pytest.importorskip("build", reason="make dist installs it")
    folder = tmp_path_factory.mktemp("dist")
    command(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def sdist(dist: Path) -> Path:
    return dist / f"{NAME}.tar.gz"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return dist / f"{NAME}-py3-none-any.whl"


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return message_from_bytes(archive.read(f"{NAME}.dist-info/METADATA"))


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the list of files that git has")
def test_the_sdist_has_the_files_of_the_repository(sdist: Path) -> None:
    tracked = command("git", "ls-files", cwd=ROOT).splitlines()
    with tarfile.open(sdist) as archive:
        packed = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    assert len(tracked) > 500
    left_out = {name for name in tracked if name.endswith("/spectra.npz")}
    assert set(tracked) - packed == left_out
    assert packed - set(tracked) == {"PKG-INFO"}


@pytest.mark.slow
def test_tests_of_documents_pass_in_the_unpacked_sdist(sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    tests = ("tests/test_repository.py", "tests/test_site.py", "tests/test_notebooks.py")
    command(
        sys.executable, "-m", "pytest", "-q", "-m", "not slow", *tests,
        "tests/test_docs.py::test_links_lead_somewhere", "tests/golden",
        cwd=tmp_path / NAME,
    )  # fmt: skip


@pytest.mark.slow
def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.partition("/")[0] for name in names} == {"nscl", f"{NAME}.dist-info"}
    here = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*")
            if path.is_file() and "__pycache__" not in path.parts}  # fmt: skip
    assert {name for name in names if name.startswith("nscl/")} == here
    assert {"nscl/py.typed", "nscl/methods/presets/ewc.toml"} <= names


@pytest.mark.slow
def test_the_package_index_can_show_it(wheel: Path) -> None:
    found = metadata(wheel)
    assert found["Description-Content-Type"] == "text/markdown"
    assert found["License-Expression"] == "MIT"
    assert set(found.get_all("Provides-Extra", [])) >= {"lab", "ray", "tensorboard", "wandb"}
    assert str(found.get_payload()).startswith("# nscl\n")


@pytest.mark.slow
def test_the_wheel_runs_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    command(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    programs = tmp_path / "env" / "bin"
    command(
        programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "-c", ROOT / "constraints.txt", f"{wheel}[lab]", cwd=tmp_path,
    )  # fmt: skip
    command(programs / "python", "-m", "pip", "check", cwd=tmp_path)
    where = command(programs / "python", "-c", "import nscl; print(nscl.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path / "env")
    output = command(programs / "nscl", "run", "split-digits-5", cwd=tmp_path)
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"result: runs/{folder.name}" in output
    assert (folder / "result.json").exists()
    command(programs / "nscl", "report", "runs", "--out", "report", "--quiet", cwd=tmp_path)
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "split-digits-5" in page
