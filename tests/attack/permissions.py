"""Results folders in which something may not be read, written, listed or entered, for a
process that has no way around it.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from helpers import process
from test_any_folder import GRID, make_results

from attack.damage import compare
from attack.tries import Tries
from jaxrecall import compact, load
from jaxrecall.sweep.__main__ import main as sweep

LEVELS = [
    "above",
    "above/tiny",
    "above/tiny/parts",
    "above/tiny/failures",
    "above/tiny/_staging",
    "above/tiny/manifest.json",
]
LEVELS += [
    "above/tiny/failures/a.json",
    "above/tiny/search.json",
    "above/tiny/table.parquet",
    "above/tiny/parts/*.parquet",
    "tiny.yaml",
]
MODES = [0o000, 0o111, 0o222, 0o333, 0o444, 0o555]
COMMANDS = {
    "status": ["status", "above/tiny"],
    "fit": ["fit", "above/tiny"],
    "report": ["report", "above/tiny"],
    "compact": ["compact", "above/tiny", "--prune"],
    "dry run": ["sweep", "--grid", "tiny.yaml", "--out", "above/tiny", "--dry-run"],
    "sweep": ["sweep", "--grid", "more.yaml", "--out", "above/tiny"],
    "sweep below": ["sweep", "--grid", "tiny.yaml", "--out", "above/new/results"],
}
ANOTHER = 65534
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


HEED = f"""
import ctypes, os, sys
for capability in ({CAP_DAC_OVERRIDE}, {CAP_DAC_READ_SEARCH}):
    ctypes.CDLL(None).prctl({PR_CAPBSET_DROP}, capability, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes permissions count for root too, in the program that it becomes. A fork of a
process with JAX's threads could not.
"""


def called(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    heeding = "-c", HEED, sys.executable, *words
    cache = str(home / "cache")
    return process(*heeding, folder=home, exit_code=None, JAXRECALL_CACHE=cache)


def obstacle(home: Path) -> str | None:
    """Why `called` shows nothing of permissions on this machine, or None; makes a
    folder in `home`.
    """
    (home / "shut").mkdir(mode=0)
    reached = called(home, "-c", "import os, jaxrecall.sweep.api; os.listdir('shut')")
    if reached.returncode == 0:
        return "permissions do not apply to processes here"
    *_, why = reached.stderr.splitlines()
    if why.endswith("'shut'"):
        return None
    return f"a process without the rights of root cannot import the package: {why}"


def every_level(tries: Tries) -> None:
    home = tries.home
    make_results(home)
    (home / "more.yaml").write_text(GRID.replace("seeds: 2", "seeds: 3"))
    compact.main([str(home / "tiny")])
    if why := obstacle(home):
        tries.skip(why)
    ways = [
        *itertools.product(
            COMMANDS, LEVELS, [*MODES, None] if os.geteuid() == 0 else MODES
        )
    ]
    while tries.more():
        attempt(tries, home, *tries.chance.choice(ways))


def attempt(
    tries: Tries, home: Path, command: str, level: str, mode: int | None
) -> None:
    """A command with one level shut, by its mode or by its owner; then everything is
    open again, and the sweep is finished.
    """
    shutil.rmtree(home / "above", ignore_errors=True)
    shutil.copytree(home / "tiny", home / "above" / "tiny")
    whole = load(home / "tiny").drop(columns="seconds")
    paths = [path for path in home.glob(level) if path.exists()]
    if not paths:
        return
    before = {path: path.stat().st_mode for path in paths}
    with tries.one(
        f"{command} with {level}"
        f" {'of another owner' if mode is None else f'{mode:03o}'}"
    ) as one:
        for path in paths:
            path.chmod(0o700 if mode is None else mode)
            if mode is None:
                os.chown(path, ANOTHER, ANOTHER)
        try:
            told = called(
                home, "-m", f"jaxrecall.{COMMANDS[command][0]}", *COMMANDS[command][1:]
            )
        finally:
            for path in filter(Path.exists, paths):  # the command may have removed it
                path.chmod(before[path])
                os.chown(path, os.geteuid(), os.getegid())
        assert "Traceback" not in told.stderr, told.stderr
        assert told.returncode in (0, 2, 3), (told.returncode, told.stderr)
        assert told.returncode == 0 or told.stderr, "no message"
        assert (
            sweep(
                ["--grid", str(home / "tiny.yaml"), "--out", str(home / "above/tiny")]
            )
            == 0
        )
        rows = load(home / "above/tiny").drop(columns="seconds")
        compare(one, rows[rows["seed"] < 2].reset_index(drop=True), whole)
        if told.returncode:
            one.refused()
