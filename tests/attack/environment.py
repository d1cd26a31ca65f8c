"""The environment of a command: settings of JAX, locales, encodings of grid files,
limits of the process, and metadata of parts.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
from helpers import ROOT
from test_any_folder import GRID, make_results

from attack import listed
from attack.commands import called
from attack.damage import RUN, compare
from attack.tries import Tries
from jaxrecall import load
from jaxrecall.errors import StoreError
from jaxrecall.sweep.store.table import read_facts, with_facts

SECONDS = 240
SAME = """ENABLE_X64=1 DEBUG_NANS=1 DEBUG_INFS=1 CHECK_TRACER_LEAKS=1
NUMPY_RANK_PROMOTION=raise NUMPY_DTYPE_PROMOTION=strict TRANSFER_GUARD=disallow
DEFAULT_PRNG_IMPL=rbg LOG_COMPILES=1 DEFAULT_MATMUL_PRECISION=bfloat16
COMPILATION_CACHE_DIR=/proc/no ENABLE_COMPILATION_CACHE=0 ENABLE_CUSTOM_PRNG=1
LEGACY_PRNG_KEY=error DEBUG_KEY_REUSE=1 USE_SHARDY_PARTITIONER=0
EXPLAIN_CACHE_MISSES=1 PLATFORMS=cpu,cuda"""
CLOSE = (
    "XLA_FLAGS=--xla_force_host_platform_device_count=4",
    "XLA_FLAGS=--xla_cpu_enable_fast_math=true",
)
REFUSED = (
    "PLATFORMS=cuda PLATFORMS=tpu PLATFORMS=wrong DISABLE_JIT=1"
    " THREEFRY_PARTITIONABLE=0 ENABLE_X64=maybe"
)
SETTINGS = [(f"JAX_{one}", "same") for one in SAME.split()] + [
    (one, "close") for one in CLOSE
]
SETTINGS += [(f"JAX_{one}", "refused") for one in REFUSED.split()]
"""Variables, and how the rows under them compare with those without."""

SWEEP = ["sweep", "--grid", "tiny.yaml", "--out"]
LOCALES = [{"LC_ALL": name} for name in ("C", "POSIX", "tr_TR.UTF-8", "none.such")]
LOCALES += [
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"PYTHONIOENCODING": "ascii"},
]
FOLDER = "r\u00e9sultats \u2603"
COMMANDS = {
    "sweep": [*SWEEP, FOLDER],
    "dry run": [*SWEEP, FOLDER, "--dry-run"],
    "status": ["status", FOLDER],
    "fit": ["fit", FOLDER, "--theta", "0.1", "--latex"],
    "report": ["report", FOLDER, "--format", "svg", "png"],
    "compact": ["compact", FOLDER],
}
ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "a byte-order mark": lambda text: text.encode("utf-8-sig"),
    "CRLF": lambda text: text.replace("\n", "\r\n").encode(),
    "CR": lambda text: text.replace("\n", "\r").encode(),
    "a Unicode name": (
        lambda text: text.replace("name: tiny", "name: \u00fc\u4e2d").encode()
    ),
    "UTF-16": lambda text: text.encode("utf-16"),
    "Latin-1": (
        lambda text: text.replace("name: tiny", "name: \u00fc").encode("latin-1")
    ),
    "tabs": lambda text: text.replace("seeds: 2", "\tseeds: 2").encode(),
    "NBSP": lambda text: text.replace("seeds: 2", "\u00a0seeds: 2").encode(),
}
LIMITS = """umask 777
umask 000
ulimit -f 0
ulimit -f 4
ulimit -n 20
ulimit -n 64
ulimit -v 1000000
ulimit -v 4000000
ulimit -u 50
ulimit -s 512
ulimit -c 0
HOME=
unset HOME
TMPDIR=/no/such
JAXRECALL_CACHE=/dev/null
mkdir -p gone && cd gone && rmdir ../gone
exec <&-
exec 2>&-
nice -n 19 true
MPLBACKEND=nosuch
MATPLOTLIBRC=/dev/null""".splitlines()
"""Lines of a shell before the command."""

EIO = (
    "cc -shared -fPIC -o eio.so $PYTHONPATH/tests/attack/eio.c -ldl"
    " && EIO_IN=$PWD/out/ LD_PRELOAD=$PWD/eio.so"
)
LIMITS += [EIO, f"{EIO} EIO_WRITES=1"]
"""And a disk with errors, if there is a C compiler."""

ENTRIES = listed("axes kept searched fixed simulator fields accuracy created xla_flags")
VALUES: tuple[Any, ...] = (
    None,
    5,
    "nope",
    "\x1b[2J<script>alert(1)</script>",
    True,
    [],
    ["nope"],
    [{}],
    [["a"]],
    {},
    {"a": {}},
    "planted:x",
)
READERS = (
    ["status", "results"],
    ["fit", "results"],
    ["report", "results"],
    ["compact", "results"],
)


def told(
    home: Path, words: Iterable[str], env: Mapping[str, str], before: str = "true"
) -> subprocess.CompletedProcess[bytes]:
    """A command in a process of its own, after a line of a shell."""
    found = {"PYTHONPATH": str(ROOT), "JAXRECALL_CACHE": str(home / "cache"), **env}
    line = f'set -a; {before}; exec "$@"'
    script = ["bash", "-c", line, "bash", sys.executable, "-m", "jaxrecall", *words]
    return subprocess.run(
        script,
        cwd=home,
        env={**os.environ, **found},
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )


def refused_in_a_line(
    done: subprocess.CompletedProcess[bytes], named: bytes = b""
) -> None:
    assert done.returncode == 2, (done.returncode, done.stderr[-1500:])
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr[-1500:]
    assert named in done.stderr, done.stderr[-1500:]


def in_turn(
    tries: Tries, attempt: Callable[..., None], ways: Iterable[tuple[Any, ...]]
) -> None:
    """Attempts each of the ways, in a random order, with a folder that holds a grid and
    its results.
    """
    home = tries.home
    make_results(home)
    for way in tries.each(ways):
        with tries.one(" ".join(map(repr, way))) as one:
            attempt(one, home, *way)


def settings(tries: Tries) -> None:
    def attempt(
        one: Any, home: Path, setting: str, expected: str, workers: list[str]
    ) -> None:
        name, _, value = setting.partition("=")
        out, undisturbed = home / "out", home / "undisturbed"
        shutil.rmtree(out, ignore_errors=True)
        if not undisturbed.exists():
            assert (
                told(home, [*SWEEP, "undisturbed"], {"JAXRECALL_CACHE": ""}).returncode
                == 0
            )
        done = told(
            home, [*SWEEP, "out", *workers], {"JAXRECALL_CACHE": "", name: value}
        )
        # workers are told whether it is on
        if expected == "refused" and not (workers and name == "JAX_ENABLE_X64"):
            refused_in_a_line(done, name.encode())
            assert not [*out.rglob("*.parquet")]
            assert workers or not out.exists()
            one.refused()
            return
        assert done.returncode == 0, done.stderr[-1500:]
        rows, whole = (
            load(folder).drop(columns="seconds") for folder in (out, undisturbed)
        )
        if expected != "close":
            compare(one, rows, whole)
        else:
            pd.testing.assert_frame_equal(rows, whole, rtol=1e-4)
            assert read_facts(pq.read_schema(next((out / "parts").iterdir())))[
                "xla_flags"
            ] == [value]

    in_turn(
        tries,
        attempt,
        [
            (*each, workers)
            for each in SETTINGS
            for workers in ([], ["--workers", "2"])
            if each[1] != "close" or not workers
        ],
    )


def locales(tries: Tries) -> None:
    def attempt(one: Any, home: Path, command: str, env: dict[str, str]) -> None:
        if not (home / FOLDER).exists():
            shutil.copytree(home / "tiny", home / FOLDER)
        done = told(home, COMMANDS[command], env)
        assert done.returncode == 0, done.stderr[-1500:]
        assert not done.stderr.count(b"Traceback")
        for path in (home / FOLDER).rglob("*.[hst][tve][mgx]*"):
            path.read_text("utf-8")

    in_turn(tries, attempt, itertools.product(COMMANDS, LOCALES))


def encodings(tries: Tries) -> None:
    def attempt(one: Any, home: Path, name: str) -> None:
        (home / "other.yaml").write_bytes(ENCODINGS[name](GRID))
        done = told(
            home,
            ["sweep", "--grid", "other.yaml", "--out", "tiny", "--dry-run"],
            {"LC_ALL": "C"},
        )
        if done.returncode:
            refused_in_a_line(done, b"other.yaml")
            one.refused()
        else:
            assert b"nothing to do: all 4 runs are in tiny" in done.stdout

    in_turn(tries, attempt, [(name,) for name in ENCODINGS])


def limits(tries: Tries) -> None:
    """A command ends well or with a message, no row is lost, and the sweep is finished
    without the limit.
    """

    def attempt(one: Any, home: Path, before: str, command: str) -> None:
        out = home / "out"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(home / "tiny", out)
        more = f"sweep --grid {home}/tiny.yaml --set seeds=3 --out {out}".split()
        words = more if command == "sweep" else [command, str(out)]
        done = told(home, words, {}, before)
        assert b"Traceback" not in done.stderr, done.stderr[-1500:]
        if done.returncode:
            one.refused()
        assert told(home, more, {}).returncode == 0
        rows = load(out).drop(columns="seconds")
        whole = load(home / "tiny").drop(columns="seconds")
        assert len(rows) == 6
        compare(one, rows.merge(whole[RUN]), whole)

    in_turn(tries, attempt, itertools.product(LIMITS, ("sweep", "fit", "report")))


def metadata(tries: Tries) -> None:
    """One part says something odd of itself: every command reads the others, and
    imports nothing.
    """

    def attempt(one: Any, home: Path, name: str, value: Any, words: list[str]) -> None:
        shutil.rmtree(home / "results", ignore_errors=True)
        shutil.copytree(home / "tiny", home / "results")
        (home / "planted.py").write_text("raise SystemExit('it ran')")
        path = min((home / "results/parts").iterdir())
        table = pq.read_table(path)
        pq.write_table(with_facts(table, {**read_facts(table), name: value}), path)
        code, err = called(words[0], words[1:])
        assert code in (0, 2), err
        assert code == 0 or err.count("\n") == 1, err
        assert "it ran" not in err
        assert "\x1b" not in err
        if code:
            one.refused()
        try:
            assert len(load(home / "results")) >= 2
        except StoreError:
            one.refused()

    in_turn(tries, attempt, itertools.product(ENTRIES, VALUES, READERS))
