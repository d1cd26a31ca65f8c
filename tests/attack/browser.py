"""Reports of hostile folders and tables, opened in a real browser: no script runs, no
address is asked for, nothing in the page is markup but its own, and no file changes but
the page, its figures and the tables of a fit.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
from test_any_table import MORE, RUNS

from attack import Calls, hostile
from attack.hostile import TEXTS
from attack.tries import Tries
from jaxrecall import fit, report

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-proxy-server"
    " --disable-background-networking --enable-logging=stderr"
    " --virtual-time-budget=2000 --dump-dom"
)
MARKUP = (
    "html head meta title style body h1 h2 p nav ol li a figure figcaption span div"
    " pre details summary table thead tbody tr th td svg metadata defs g path use"
    " clippath rect image pattern"
)
"""The elements of a page, with those of the SVG of matplotlib."""

ADDRESSES = ("href", "xlink:href", "src", "action", "formaction", "data", "srcset")
PLAIN = re.compile("[A-Za-z0-9_-][A-Za-z0-9._-]*")
CALLS = Calls("browser")


def reports(tries: Tries) -> None:
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if not program:
        tries.skip("no Chromium here")
        return
    first = tries.chance.randrange(len(TEXTS))
    with served() as server:
        for i in itertools.count():
            if not tries.more():
                break
            home = tries.home / str(i)
            home.mkdir()
            if i % 4 == 3:
                _of_a_table(tries, home, program, server)
            else:
                _of_a_folder(tries, home, first + i, program, server)


def _of_a_folder(
    tries: Tries, home: Path, i: int, program: str, server: Server
) -> None:
    """A report and a fit of a folder whose texts are hostile. Where a trap makes the
    report refuse its usual place, it is made at another one.
    """
    text, trap = hostile.texts(i), tries.chance.choice(hostile.TRAPS)
    with tries.one(f"{trap}: {text!r}"):
        folder, page = hostile.write(home, text, trap)
        before = hostile.content(home)
        refused = trap in ("links", "linked folder", "a page")
        for out in [page, folder / "again.html"] if refused else [page]:
            words = [str(folder), "--out", str(out), "--format", "png"]
            code = CALLS("report", report.main, words)
            assert code == (2 if refused and out == page else 0), code
        fitted = CALLS("fit", fit.main, [str(folder), "--latex"])
        assert fitted == 0, fitted
        figures = out.with_name(f"{out.stem}-figures")

        def made(path: Path) -> bool:
            if path.parent == figures:
                return PLAIN.fullmatch(path.name) is not None
            tables = ("thresholds", "exponents", "diagnostics")
            return path == out or (path.parent == folder and path.stem in tables)

        hostile.check_files(before, home, made)
        for path in folder.glob("*.tex"):
            assert "\\input" not in path.read_text()
        check(program, out, server)


def _of_a_table(tries: Tries, home: Path, program: str, server: Server) -> None:
    """A report of a Parquet file with hostile texts in the columns of a sweep."""
    frame, name = table(tries.chance)
    path = home / f"{name}.parquet"
    with tries.one(f"{name!r}: {frame.to_dict('list')!r}") as one:
        frame.to_parquet(path)
        before = hostile.content(home)
        code = CALLS("report", report.main, [str(path), "--format", "png"])
        assert code in (0, 2), code
        page = home / f"{name}-report.html"
        figures = home / f"{name}-report-figures"

        def made(path: Path) -> bool:
            plain = PLAIN.fullmatch(path.name) is not None
            return path == page or (path.parent == figures and plain)

        hostile.check_files(before, home, made)
        if code:
            one.refused()
        else:
            check(program, page, server)


def table(chance: Any) -> tuple[pd.DataFrame, str]:
    """Runs with hostile text as names and values of columns and in the name of the
    file.
    """
    frame = pd.DataFrame([row | MORE for row in RUNS])
    for _ in range(chance.randint(1, 3)):
        text, other = chance.sample(TEXTS, 2)
        kind = chance.choice(["column", "column", "values", "embedding", "precision"])
        if kind == "column":
            frame[text] = chance.choice(
                [other, 1.5, [i % 2 for i in range(len(frame))]]
            )
        elif kind == "values":
            frame["note"] = [text if i % 2 else other for i in range(len(frame))]
        else:
            frame[kind] = text
    name = chance.choice(["table", hostile.file_name(chance.choice(TEXTS))])
    return frame, name


class Server(ThreadingHTTPServer):
    """What a hostile page would ask; it remembers the paths that were asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.asked: list[str] = []


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        self.server.asked.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


class Elements(HTMLParser):
    """What is wrong with the elements of a page, and its title and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.ids: list[str] = []
        self.inside, self.title, self.style = "", "", ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag
        if tag not in MARKUP.split():
            self.wrong.append(f"element {tag}")
        for name, value in attrs:
            value = value or ""
            if name.startswith("on"):
                self.wrong.append(f"attribute {name}={value}")
            if name in ADDRESSES and not value.startswith(("#", "data:image/png;")):
                self.wrong.append(f"address {value}")
            if name == "id":
                self.ids.append(value)
            if name in ("style", "clip-path", "fill"):
                self.style += value
            if (name, value) == ("http-equiv", "refresh"):
                self.wrong.append("a refresh")

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "title":
            self.title += data
        elif self.inside == "style":
            self.style += data


def check(program: str, page: Path, server: Server) -> None:
    """Opens a page; raises AssertionError if a script ran, an address was asked for,
    the browser complained, or the page contains what a report does not.
    """
    server.asked.clear()
    with tempfile.TemporaryDirectory() as profile:
        hosts = f"MAP owned.test 127.0.0.1:{server.server_port}, MAP * ~NOTFOUND"
        command = [
            program,
            *OPTIONS.split(),
            f"--host-resolver-rules={hosts}, EXCLUDE 127.0.0.1",
            f"--user-data-dir={profile}",
            page.absolute().as_uri(),
        ]
        told = subprocess.run(
            command,
            capture_output=True,
            timeout=240,
            check=False,
            env={**os.environ, "HOME": profile},
        )
    shown = told.stdout.decode(errors="replace")
    err = told.stderr.decode(errors="replace")
    assert "<body" in shown, f"the browser shows nothing: {err[-1000:]}"
    found = Elements(shown)
    assert found.title != "owned", "a script ran"
    assert not server.asked, f"asked for: {server.asked}"
    assert not found.wrong, found.wrong
    odd = [name for name in found.ids if not PLAIN.fullmatch(name)]
    assert not odd, f"ids: {odd}"
    assert len(found.ids) == len(set(found.ids)), "an id occurs twice"
    assert not re.search(r"@import|url\((?!#)", found.style), found.style
    assert "how critical" in found.title, found.title
    assert "1337" not in found.title, "a template was filled in"
    complaints = [line for line in err.splitlines() if "CONSOLE" in line]
    assert not complaints, complaints
