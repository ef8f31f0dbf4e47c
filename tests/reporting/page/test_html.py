"""The page is self-contained, escapes what it is given, and holds the commands and figures."""

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from nscl.reporting import Written, gather, sections
from nscl.reporting.page.commands import command
from nscl.reporting.page.html import render
from tests.reporting.making import make_run

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def tags(page: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(page)
    return parser.found


def data(page: str) -> Any:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match
    return json.loads(match[1])


def test_nothing_is_fetched(written: Written) -> None:
    page = written.page.read_text()
    for tag, attributes in tags(page):
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    assert "@import" not in page
    assert "url(http" not in page
    assert "default-src &#39;none&#39;" in page


def test_names_cannot_become_markup(tmp_path: Path) -> None:
    make_run(tmp_path, f"mine:{EVIL}", benchmark=f"folder:{EVIL}", layers={EVIL: 5}, note=EVIL)
    make_run(tmp_path, f"mine:{EVIL}", benchmark=f"folder:{EVIL}", note="other")
    page = render(sections(gather([tmp_path]).runs))
    found = tags(page)
    assert [tag for tag, _ in found].count("script") == 3
    assert "img" not in [tag for tag, _ in found]
    assert not any(name.startswith("on") for _, attributes in found for name in attributes)
    (section,) = data(page)["sections"]
    assert any(EVIL in row["series"] for row in section["acc"]["datasets"]["rows"])


def test_a_script_must_be_ours(written: Written) -> None:
    import base64
    import hashlib

    page = written.page.read_text()
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 2  # Vega, and the page's own
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"sha256-{digest}" in html.unescape(page)
    assert "unsafe-eval" not in page[: page.index("<body>")]


def test_commands_are_there_word_for_word(lab: Path, written: Written) -> None:
    shown = re.findall(r"<code>(.*?)</code>", written.page.read_text(), re.DOTALL)
    truth = sorted(command(run) for run in gather([lab]).runs)
    assert sorted(map(html.unescape, shown)) == truth


def test_every_run_says_which_method_it_is_of(tmp_path: Path) -> None:
    made = {make_run(tmp_path, "adam-nscl", a=a).name: f"adam-nscl (a={a})" for a in (1, 2)}
    made[make_run(tmp_path, "gem", label="memories").name] = "memories"
    page = render(sections(gather([tmp_path]).runs))
    runs = page[page.index('<table class="runs">') :]
    names = re.findall(r'<tr>\s*<td class="name"><span[^>]*>(.*?)</span>', runs)
    folders = re.findall(r'<th scope="row" class="name mono">(.*?)</th>', runs)
    assert dict(zip(folders, names, strict=True)) == made


def test_the_sentence_and_where_numbers_come_from_stand_above_the_table(tmp_path: Path) -> None:
    recorded = {"date": "2026-01-31T10:00Z", "commit": "0123456789ab", "processor": "A <processor>"}
    make_run(tmp_path, "ewc", environment=recorded)
    make_run(tmp_path, "gem", stores="data", environment=recorded)
    page = render(sections(gather([tmp_path]).runs))
    above = html.unescape(page[: page.index('<table class="results">')])
    assert "Of 2 methods, best without old data: ewc with ACC " in above
    assert "seed 0 · 2026-01-31 · A <processor> · commit 0123456789ab" in " ".join(above.split())
    assert page.count('class="group"') == 2


def test_seconds_of_a_busy_machine_are_marked_as_rough(tmp_path: Path) -> None:
    quiet = {"cpus": 2, "load": 0.0, "load_while_running": 1.0}
    make_run(tmp_path, "ewc", environment=quiet)
    assert "Seconds ≈" not in render(sections(gather([tmp_path]).runs))
    make_run(tmp_path, "gem", environment=quiet | {"load": 3.0})
    page = render(sections(gather([tmp_path]).runs))
    assert "Seconds ≈" in page
    assert "1 of 2 runs shared their machine (up to 3.0 processors were at other work)" in page


def test_figures_left_out_are_listed(tmp_path: Path) -> None:
    run = make_run(tmp_path, tasks=1)
    page = render(sections(gather([run.result_path]).runs))
    assert "figures left out" in page
    assert "--track-old-losses 3" in page


def test_an_unfinished_run_is_marked(tmp_path: Path) -> None:
    make_run(tmp_path, finished=False, tasks=2)
    page = render(sections(gather([tmp_path]).runs))
    assert "No run is finished yet" in page
    assert "2 tasks so far" in page
    assert (
        data(page)["sections"][0]["acc"]["datasets"]["rows"][0]["series"] == "finetune (unfinished)"
    )
