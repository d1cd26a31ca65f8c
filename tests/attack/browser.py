"""Reports of hostile tables, opened in a real browser without network: no script runs,
and nothing is missing or refused.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
from test_any_table import MORE, RUNS

from attack import Calls
from attack.tries import Tries
from jaxrecall import report

MARK = "data-owned"
SCRIPT = f"document.documentElement.setAttribute('{MARK}','1')"
HOSTILE = [
    f"<script>{SCRIPT}</script>",
    f'"><img src=x onerror="{SCRIPT}">',
    f"<svg onload={SCRIPT}>",
    f"</title></style><script>{SCRIPT}</script>",
    f"javascript:{SCRIPT}",
    f"--><script>{SCRIPT}</script><!--",
    f"&lt;script&gt;{SCRIPT}&lt;/script&gt;",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "<link rel=stylesheet href=http://127.0.0.1:9/x.css>",
    "<iframe src=http://127.0.0.1:9/></iframe>",
    "{{7*7}} ${7*7} $x_{ \\frac{",
    "\u202e\u0000\u0007\x1b[31m",
    "=cmd|' /C calc'!A0",
]
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage"
    " --enable-logging=stderr --virtual-time-budget=2000 --dump-dom"
)
OFFLINE = (
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=127.0.0.1:9",
    "--disable-background-networking",
)
CALLS = Calls("browser")


def reports(tries: Tries) -> None:
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if not program:
        tries.skip("no Chromium here")
        return
    with tempfile.TemporaryDirectory() as temporary:
        for i in itertools.count():
            if not tries.more():
                break
            frame, name = table(tries.chance)
            path = Path(temporary) / str(i) / f"{name}.parquet"
            path.parent.mkdir()
            with tries.one(f"{name!r}: {frame.to_dict('list')!r}") as one:
                frame.to_parquet(path)
                code = CALLS(
                    "report",
                    report.main,
                    [str(path), "--resamples", "100", "--surrogate", "0"],
                )
                assert code in (0, 2), code
                for page in path.parent.glob("*.html"):
                    check(program, page)
                if code:
                    one.refused()


def table(chance: Any) -> tuple[pd.DataFrame, str]:
    """Runs with hostile text as names and values of columns and in the name of the
    file.
    """
    frame = pd.DataFrame([row | MORE for row in RUNS])
    for _ in range(chance.randint(1, 3)):
        text, other = chance.sample(HOSTILE, 2)
        kind = chance.choice(["column", "column", "values", "embedding", "precision"])
        if kind == "column":
            frame[text] = chance.choice(
                [other, 1.5, [i % 2 for i in range(len(frame))]]
            )
        elif kind == "values":
            frame["note"] = [text if i % 2 else other for i in range(len(frame))]
        else:
            frame[kind] = text
    name = chance.choice(
        ["table", chance.choice(HOSTILE).replace("/", "_").replace("\0", "")[:60]]
    )
    return frame, name


def check(program: str, page: Path) -> None:
    """Opens a page; raises AssertionError if a script ran or the browser complained."""
    with tempfile.TemporaryDirectory() as profile:
        command = [
            program,
            *OPTIONS.split(),
            *OFFLINE,
            f"--user-data-dir={profile}",
            page.absolute().as_uri(),
        ]
        told = subprocess.run(
            command,
            capture_output=True,
            timeout=120,
            check=False,
            env={**os.environ, "HOME": profile},
        )
    shown = told.stdout.decode(errors="replace")
    err = told.stderr.decode(errors="replace")
    assert "<body" in shown, f"the browser shows nothing: {err[-1000:]}"
    assert (
        MARK
        not in shown[: shown.index("<body")].partition(">")[0]
        + shown.partition("<html")[2].partition(">")[0]
    ), "a script ran"
    complaints = [line for line in err.splitlines() if "CONSOLE" in line]
    assert not complaints, complaints
