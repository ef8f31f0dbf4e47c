"""What the data tests share: a private cache, real files where there are some, small fake ones."""

import os
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

_REAL_DATA = os.environ.get("NSCL_DATA")


@pytest.fixture(autouse=True)
def private_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """No test may see or touch the user's own cache or data."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.delenv("NSCL_DATA", raising=False)
    return cache / "nscl"


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared-cache")


@pytest.fixture
def real_data(private_cache: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the real data sets; TinyImageNet is decoded once for all tests."""
    if not _REAL_DATA:
        pytest.skip("NSCL_DATA is not set: no real data sets on this machine")
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))
    return Path(_REAL_DATA)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def picture(path: Path, seed: int, size: tuple[int, int] = (64, 64), mode: str = "RGB") -> None:
    """Write a smooth random picture, so that JPEG keeps it nearly as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize(size, Image.Resampling.BILINEAR).convert(mode).save(path)


@pytest.fixture
def make_picture() -> Callable[..., None]:
    return picture


@pytest.fixture
def picture_folder(tmp_path: Path) -> Path:
    """Four classes of pictures of different sizes, 6 to train and 3 to test on."""
    root = tmp_path / "pictures"
    for label, name in enumerate(["ant", "bee", "cat", "dog"]):
        for part, count in (("train", 6), ("test", 3)):
            for index in range(count):
                seed = 1000 * label + 10 * index + (part == "test")
                path = root / part / name / f"{index}.png"
                picture(path, seed, size=(20 + index, 30))
    return root


@pytest.fixture
def tiny_tree(tmp_path: Path) -> Path:
    """TinyImageNet's layout with three classes; the annotations are not in any order."""
    root = tmp_path / "tiny-imagenet-200"
    wnids = ["n03", "n01", "n02"]
    for place, wnid in enumerate(wnids):
        for index in range(4):
            name = f"{wnid}_{index}.JPEG"
            picture(root / "train" / wnid / "images" / name, 10 * place + index)
    lines = []
    for index in range(6):
        picture(root / "val" / "images" / f"val_{index}.JPEG", 100 + index)
        lines.append(f"val_{index}.JPEG\t{wnids[index % 3]}\t0\t0\t10\t10")
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    (root / "wnids.txt").write_text("\n".join(wnids))
    (root / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\tbullfrog\n")
    return root


def python2_batch(data: np.ndarray, labels: list[int], key: bytes) -> bytes:
    """Pickle a batch opcode by opcode as Python 2 wrote the published CIFAR files."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    minus_one = b"J\xff\xff\xff\xff"
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + text(b"|") + b"NNN" + minus_one + minus_one + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b")
    array += b"\x87R(K\x01J" + struct.pack("<i", data.shape[0])
    array += b"J" + struct.pack("<i", data.shape[1]) + b"\x86" + dtype
    array += b"\x89T" + struct.pack("<i", data.nbytes) + data.tobytes() + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(key) + numbers + b"u."


def python2_names(key: bytes, names: list[bytes]) -> bytes:
    items = b"".join(b"U" + bytes([len(name)]) + name for name in names)
    return b"\x80\x02}U" + bytes([len(key)]) + key + b"](" + items + b"es."


@pytest.fixture
def cifar10_folder(tmp_path: Path) -> Path:
    """CIFAR-10's files with 20 images each."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    random = np.random.default_rng(0)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        data = random.integers(0, 256, (20, 3072), dtype=np.uint8)
        labels = [*range(10), *range(10)]
        (folder / name).write_bytes(python2_batch(data, labels, b"labels"))
    names = [f"class{i}".encode() for i in range(10)]
    (folder / "batches.meta").write_bytes(python2_names(b"label_names", names))
    return folder


@dataclass
class Server:
    """A real HTTP server on this machine whose manners can be chosen.

    ``knows_range`` answers 206; ``break_after`` closes the connection after that many bytes of a
    body, ``breaks`` times; ``lie`` sends other bytes of the same length.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    knows_range: bool = True
    break_after: int = 0
    breaks: int = 0
    lie: bool = False
    ranges: list[str | None] = field(default_factory=list)
    url: str = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers.get("Range")
        self.ranges.append(wanted)
        content = self.files.get(request.path.lstrip("/"))
        if content is None:
            request.send_error(404)
            return
        content = bytes(255 - byte for byte in content) if self.lie else content
        start = int(wanted[6:-1]) if wanted and self.knows_range else 0
        if start >= len(content):
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(content)}")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        body = content[start:]
        request.send_response(206 if wanted and self.knows_range else 200)
        request.send_header("Content-Length", str(len(body)))
        if wanted and self.knows_range:
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            request.send_header("Content-Range", span)
        request.end_headers()
        if self.breaks > 0:
            self.breaks -= 1
            body = body[: self.break_after]
        request.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        state.url = f"http://127.0.0.1:{http.server_address[1]}"
        yield state
        http.shutdown()
        thread.join()
