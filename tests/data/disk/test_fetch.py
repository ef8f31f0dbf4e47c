import dataclasses
import hashlib
import io
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nscl.data.catalogue import open_stream
from nscl.data.disk.canonical import DATASETS, Download, Form
from nscl.data.disk.fetch import check, fetch
from nscl.data.errors import DataError, FetchError, UnknownBenchmarkError

if TYPE_CHECKING:
    from conftest import Server


@pytest.fixture
def published(cifar10_folder: Path, server: "Server", monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A small CIFAR-10 whose archive lies on the server and whose MD5 is known."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        tar.add(cifar10_folder, cifar10_folder.name)
    content = file.getvalue()
    md5 = hashlib.md5(content).hexdigest()
    name = "cifar-10-python.tar.gz"
    small = dataclasses.replace(
        DATASETS["cifar10"],
        forms=(*DATASETS["cifar10"].forms[:1], Form(name, md5)),
        downloads=(Download(f"{server.url}/{name}", name, md5, len(content)),),
    )
    monkeypatch.setitem(DATASETS, "cifar10", small)
    server.files[name] = server.files[f"mirror/{name}"] = content
    return content


def test_the_embedded_need_nothing(server: "Server") -> None:
    for name in ("split-digits-5", "permuted-digits", "digits"):
        assert (check(name).state, fetch(name).ready) == ("embedded", True)
    assert server.ranges == []


def test_missing_fetched_verified_opened(
    published: bytes, tmp_path: Path, server: "Server", private_cache: Path
) -> None:
    data = tmp_path / "data"
    before = check("split-cifar10-5", data)
    assert (before.state, before.path, before.ready) == ("missing", None, False)
    assert before.looked_in == (str(data), str(private_cache))
    assert before.download_bytes == len(published)
    assert [file.state for file in before.files] == ["missing"]
    calls = []
    after = fetch("split-cifar10-5", data, progress=lambda *call: calls.append(call))
    assert after == dataclasses.replace(check("split-cifar10-5", data), looked_in=after.looked_in)
    assert (after.state, after.path) == ("verified", str(data / "cifar-10-python.tar.gz"))
    assert calls[-1][1:] == (len(published), len(published))
    assert len(open_stream("split-cifar10-5", data_dir=data)) == 5
    fetch("split-cifar10-5", data)
    assert len(server.ranges) == 1, "what is there is not fetched again"


def test_where_it_goes(
    published: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private_cache: Path
) -> None:
    assert fetch("cifar10").path == str(private_cache / "cifar-10-python.tar.gz")
    monkeypatch.setenv("NSCL_DATA", str(tmp_path / "env"))
    assert fetch("cifar10").path == str(private_cache / "cifar-10-python.tar.gz")
    (private_cache / "cifar-10-python.tar.gz").unlink()
    assert fetch("cifar10").path == str(tmp_path / "env" / "cifar-10-python.tar.gz")
    asked = tmp_path / "asked"
    assert fetch("cifar10", asked).path == str(asked / "cifar-10-python.tar.gz")


def test_a_corrupt_file_is_noticed_and_repaired(published: bytes, tmp_path: Path) -> None:
    path = tmp_path / "data" / "cifar-10-python.tar.gz"
    path.parent.mkdir()
    path.write_bytes(published[:-10])
    assert check("cifar10", path.parent).state == "corrupt"
    assert fetch("cifar10", path.parent).state == "verified"
    assert path.read_bytes() == published


def test_a_liar_mends_nothing(published: bytes, tmp_path: Path, server: "Server") -> None:
    server.lie = True
    path = tmp_path / "data" / "cifar-10-python.tar.gz"
    with pytest.raises(FetchError, match="nothing was saved"):
        fetch("cifar10", path.parent)
    assert check("cifar10", path.parent).state == "missing"
    assert not path.exists()


def test_a_mirror(published: bytes, tmp_path: Path, server: "Server") -> None:
    del server.files["cifar-10-python.tar.gz"]
    assert fetch("cifar10", tmp_path / "data", mirror=f"{server.url}/mirror/").ready


def test_a_corrupt_folder_before_the_fetched_archive_is_named(
    published: bytes, cifar10_folder: Path
) -> None:
    # The small files do not have the published MD5s, so this folder counts as corrupt.
    with pytest.raises(DataError, match=r"was fetched, but .*data_batch_1.* delete that"):
        fetch("cifar10", cifar10_folder.parent)


def test_a_folder_where_a_file_should_be(tmp_path: Path) -> None:
    for name in ("train", "test", "meta"):
        (tmp_path / "cifar-100-python" / name).mkdir(parents=True)
    assert check("cifar100", tmp_path).state == "corrupt"
    with pytest.raises(DataError, match=r"train cannot be read \(Is a directory\)"):
        open_stream("split-cifar100-10", data_dir=tmp_path)


def test_half_a_folder_is_a_hint(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    (folder / "train").touch()
    (hint,) = check("split-cifar100-10", tmp_path).hints
    assert hint == f"{folder} lacks test, meta"


def test_names_that_cannot_be_fetched() -> None:
    with pytest.raises(DataError, match="your own folder"):
        fetch("folder:somewhere")
    with pytest.raises(UnknownBenchmarkError, match="did you mean"):
        check("split-cifar100-11")


def test_the_real_files_are_verified(real_data: Path) -> None:
    cifar = check("split-cifar100-10", real_data)
    assert (cifar.state, cifar.path) == ("verified", str(real_data / "cifar-100-python"))
    tiny = check("split-tinyimagenet-25", real_data)
    assert (tiny.state, Path(str(tiny.path)).name) == ("found", "tiny-imagenet-200.tar.xz")
