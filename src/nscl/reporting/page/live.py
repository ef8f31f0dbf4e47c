"""The live report: a small server for this machine only that reads the runs on each request."""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from nscl.errors import NsclError
from nscl.reporting.errors import ReportError
from nscl.reporting.gather import gather
from nscl.reporting.page.html import render
from nscl.reporting.series import sections
from nscl.results import find_runs

HOST = "127.0.0.1"


class ReportServer(ThreadingHTTPServer):
    """Serves the report of ``paths`` at ``/`` and its version at ``/version``."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, paths: Sequence[Path], port: int) -> None:
        self.paths = tuple(paths)
        super().__init__((HOST, port), _Handler)

    @property
    def url(self) -> str:
        """Where the report is."""
        return f"http://{HOST}:{self.server_address[1]}/"

    def version(self) -> str:
        """A digest of names, sizes and times of all files that a report reads."""
        digest = hashlib.sha256()
        for path in self.paths:
            for file in _files(path):
                try:
                    status = file.stat()
                except FileNotFoundError:
                    continue  # renamed between listing and looking
                digest.update(f"{file}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
        return digest.hexdigest()[:16]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report every error except a reader who left before the answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def page(self) -> str:
        """The report as it is now."""
        version = self.version()
        found = gather(self.paths)
        return render(sections(found.runs), skipped=found.skipped, live=version)


@contextmanager
def serving(paths: Sequence[Path], *, port: int = 0) -> Iterator[ReportServer]:
    """Open a server for ``paths``; port 0 takes a free one. A port in use is an error."""
    gather(paths)  # a path that does not exist is an error now, not in the browser
    try:
        server = ReportServer(paths, port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ReportError(
            f"cannot serve on {HOST}:{port}: {reason}; choose another --port or leave it out"
        ) from error
    with server:
        yield server


_READ = ("config.json", "metrics.jsonl", "spectra.npz", "result.json")


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        return sorted(file for name in _READ for file in path.rglob(name))
    # A pattern: the runs that match it now.
    found = find_runs([path])
    places = [*(run.path for run in found.runs), *(place for place, _ in found.skipped)]
    return [file for place in places if place.exists() for file in _files(place)]


class _Handler(BaseHTTPRequestHandler):
    """Two addresses, for this machine only."""

    server: ReportServer
    server_version = "nscl"

    def do_GET(self) -> None:
        """Answer with the page or its version."""
        # A page of another site must not read the report through a name that leads here.
        if self.headers.get("Host", "").rsplit(":", 1)[0] not in (HOST, "localhost"):
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", "for this machine only\n")
            return
        path = self.path.split("?", 1)[0]
        try:
            if path == "/version":
                self._answer(HTTPStatus.OK, "text/plain", self.server.version())
            elif path in ("/", "/report.html"):
                self._answer(HTTPStatus.OK, "text/html", self.server.page())
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", "there is only /\n")
        except NsclError as problem:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", f"{problem}\n")

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Write nothing: one line per poll is noise."""

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)
