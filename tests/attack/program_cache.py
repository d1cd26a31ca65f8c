"""The folder of compiled programs: sweeps that are killed while they fill it, damaged
files in it, and folders that somebody else could write.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from helpers import ROOT

from attack.damage import RUN, compare
from attack.tries import Tries
from jaxrecall import load

GRIDS = {
    "ours": """
name: ours
base: {V: 8, N: 8, d: 4, L: 2, n_test: 16}
seeds: 4
blocks: [{axes: {d: [4, 8]}}]
run: {part_seconds: 0}
""",
    "own": """
name: own
simulator: own:product
seeds: 4
blocks: [{axes: {d: [11, 12, 13, 14]}}]
run: {part_seconds: 0}
""",
}
"""One program of this package, and four programs of a user's simulator, which are
traced much faster.
"""

OWN = """
import jax, jax.numpy as jnp, jaxrecall

def product(point, key):
    x = jax.random.normal(key, (point.d,))
    for i in range(point.d):
        x = jnp.sort(jnp.sin(jnp.roll(x, i)))
    return {"accuracy": jnp.clip(jnp.abs(x[0]), 0, 1)}

product = jaxrecall.Simulator(
    product,
    {"d": (int, 11, 1, 99, "static")},
    {"accuracy": (float, "a number")},
    accuracy="accuracy",
)
"""

STRANGER = 65534
WORKERS = [], ["--workers", "2"]
MISSED = re.compile(
    rb"Compiling jit\(looped\)|PERSISTENT COMPILATION CACHE MISS for 'jit_one'"
)
"""Matches what JAX says of a program that is not in the folder: of one of this package,
which is not even traced if it is there, and of one of a user.
"""

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "a flipped bit": lambda data: data[:99] + bytes([data[99] ^ 4]) + data[100:],
    "text": lambda data: b"no program\n",
}


class Cold:
    """A folder with a grid, and sweeps of it."""

    def __init__(self, home: Path, grid: str = "ours"):
        self.home, self.cache, self.grid = home, home / "cache", f"{grid}.yaml"
        (home / self.grid).write_text(GRIDS[grid])
        (home / "own.py").write_text(OWN)

    def start(self, out: str, *more: str, **env: str) -> subprocess.Popen[bytes]:
        found = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "JAXRECALL_CACHE": str(self.cache),
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
            "JAX_EXPLAIN_CACHE_MISSES": "1",
            "JAX_LOG_COMPILES": "1",
            "MPLBACKEND": "none",  # a figure takes long
            **env,
        }
        for name in [name for name, value in found.items() if value == "unset"]:
            del found[name]
        words = ["-m", "jaxrecall.sweep", "--grid", self.grid, "--out", out, *more]
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=self.home,
            env=found,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def run(self, out: str, *more: str, **env: str) -> bytes:
        """Sweeps to the end. Returns what the sweep said on stderr."""
        sweep = self.start(out, *more, **env)
        _, err = sweep.communicate()
        assert sweep.returncode == 0, err[-1500:]
        assert b"Warning" not in err, err[-1500:]
        return err

    def rows(self, out: str) -> pd.DataFrame:
        return load(self.home / out).drop(columns="seconds")

    def entries(self) -> list[Path]:
        """The programs of this package, and those of a user, which JAX keeps."""
        return sorted([*self.cache.glob("*.program"), *self.cache.glob("*-cache")])

    def damaged(self) -> list[str]:
        return [path.name for path in self.entries() if not is_whole(path)]


def is_whole(path: Path) -> bool:
    try:
        zlib.decompress(path.read_bytes())
    except zlib.error:
        return False
    return True


def killed(tries: Tries) -> None:
    """Sweeps with an empty folder, killed at a random moment or when a file of a
    program appears.
    """
    n_damaged = 0
    cold = Cold(tries.home, "own")
    start = time.monotonic()
    cold.run("whole")
    span, whole, n = time.monotonic() - start, cold.rows("whole"), 0
    n_programs = len(cold.entries())
    assert n_programs == 4
    while tries.more():
        n += 1
        file = tries.chance.choice([None, 1, 2, 3, 4])
        delay = tries.chance.uniform(0.3, 1) * span
        how = f"at file {file}" if file else f"after {delay:.1f} s"
        with tries.one(f"killed {how}; {n_damaged} damaged so far") as one:
            left = kill(cold, f"out{n}", file, delay)
            n_damaged += left
            cold.run(f"out{n}")
            assert not cold.damaged()
            rows = cold.rows(f"out{n}")
            compare(one, rows.merge(whole[RUN]), whole)
            if left or not n % 5:
                assert not MISSED.search(cold.run(f"again{n}"))
        print(f"{n} kills left {n_damaged} damaged files", file=sys.stderr)


def kill(cold: Cold, out: str, file: int | None, delay: float) -> int:
    """Kills a sweep with an empty folder. Returns the number of damaged files that it
    leaves.
    """
    shutil.rmtree(cold.cache, ignore_errors=True)
    sweep = cold.start(out)
    if file:
        while sweep.poll() is None and _n_files(cold.cache) < file:
            pass
    else:
        timer = threading.Timer(delay, sweep.kill)
        timer.start()
        sweep.wait()
        timer.cancel()
    sweep.kill()
    sweep.communicate()
    return len(cold.damaged())


def _n_files(folder: Path) -> int:
    try:
        return len(os.listdir(folder))
    except FileNotFoundError:
        return 0


def damaged(tries: Tries) -> None:
    """Files of programs that are damaged: the next sweep is quiet and writes them
    again.
    """
    cold = Cold(tries.home)
    cold.run("whole")
    whole = cold.rows("whole")
    ways = itertools.product(DAMAGE, WORKERS)
    for n, (kind, workers) in enumerate(tries.each(ways)):
        with tries.one(f"{kind} {workers}") as one:
            # a worker, which has fewer cores, has programs of its own
            shutil.rmtree(cold.cache)
            cold.run(f"cold{n}", *workers)
            for path in cold.entries():
                path.write_bytes(DAMAGE[kind](path.read_bytes()))
            cold.run(f"out{n}", *workers)
            assert not cold.damaged()
            compare(one, cold.rows(f"out{n}"), whole)
            assert not MISSED.search(cold.run(f"again{n}", *workers))


def by_owner(folder: Path) -> None:
    os.chown(folder, STRANGER, STRANGER)


def by_owner_of_parent(folder: Path) -> None:
    os.chown(folder.parent, STRANGER, STRANGER)


def by_mode(folder: Path) -> None:
    folder.chmod(0o777)


def by_group(folder: Path) -> None:
    os.chown(folder, os.geteuid(), STRANGER)
    folder.chmod(0o770)


def by_sticky_mode(folder: Path) -> None:
    folder.chmod(0o1777)


def by_mode_of_parent(folder: Path) -> None:
    folder.parent.chmod(0o777)


def by_link(folder: Path) -> None:
    folder.rmdir()
    (folder.parent / "stranger").mkdir()
    os.chown(folder.parent / "stranger", STRANGER, STRANGER)
    folder.symlink_to(folder.parent / "stranger")


ACCESS_LIST = "system.posix_acl_access"
NOBODY = 2**32 - 1


def access_list(user: int) -> bytes:
    """An access control list of Linux that lets another user read and write."""
    entries = (1, 7, NOBODY), (2, 7, user), (4, 0, NOBODY), (16, 7, NOBODY)
    each = [struct.pack("<HHI", *entry) for entry in (*entries, (32, 0, NOBODY))]
    return struct.pack("<I", 2) + b"".join(each)


def by_access_list(path: Path) -> None:
    os.setxattr(path, ACCESS_LIST, access_list(STRANGER))


def by_file_of_another(folder: Path) -> None:
    (folder / "old.program").write_bytes(b"hostile")
    os.chown(folder / "old.program", STRANGER, STRANGER)


def by_mode_of_file(folder: Path) -> None:
    (folder / "old-cache").write_bytes(b"hostile")
    (folder / "old-cache").chmod(0o666)


def by_access_list_of_file(folder: Path) -> None:
    (folder / "old-cache").write_bytes(b"hostile")
    by_access_list(folder / "old-cache")


def by_other_name(folder: Path) -> None:
    (folder.parent / "hostile").write_bytes(b"hostile")
    os.link(folder.parent / "hostile", folder / "old.program")


def by_link_to_file(folder: Path) -> None:
    (folder.parent / "hostile").write_bytes(b"hostile")
    (folder / "old.program").symlink_to(folder.parent / "hostile")


OF_FILES = (
    by_file_of_another,
    by_mode_of_file,
    by_access_list_of_file,
    by_other_name,
    by_link_to_file,
)
HOSTILE = (
    by_owner,
    by_owner_of_parent,
    by_mode,
    by_group,
    by_sticky_mode,
    by_mode_of_parent,
    by_link,
    by_access_list,
    *OF_FILES,
)
VARIABLES = {
    "JAXRECALL_CACHE": "",
    "XDG_CACHE_HOME": "jaxrecall",
    "JAX_COMPILATION_CACHE_DIR": "",
}
"""The variables that set the folder, and the folder below the one that they name."""


def hostile(tries: Tries) -> None:
    """Folders that somebody else could write: nothing in them is read or changed, and a
    line says so, once.
    """
    if os.geteuid():
        tries.skip("only root can give a folder to another user")
        return
    cold = Cold(tries.home)
    cold.run("whole")
    whole = cold.rows("whole")
    ways = itertools.product(HOSTILE, VARIABLES, WORKERS)
    for n, (make, variable, workers) in enumerate(tries.each(ways)):
        with tries.one(f"{make.__name__} {variable} {workers}") as one:
            check(one, cold, str(n), make, variable, workers, whole)


def check(
    one: Any,
    cold: Cold,
    name: str,
    make: Callable[[Path], None],
    variable: str,
    workers: list[str],
    whole: pd.DataFrame,
) -> None:
    above = cold.home / f"above{name}"
    folder = above / "cache" / VARIABLES[variable]
    folder.mkdir(parents=True)
    make(folder)
    for path in cold.entries():
        # were it read, it would be removed
        (folder / path.name).write_bytes(b"hostile")
    env = {**dict.fromkeys(VARIABLES, "unset"), variable: str(above / "cache")}
    err = cold.run(f"out{name}", *workers, **env)
    said = [line for line in err.splitlines() if b"neither kept there" in line]
    assert len(said) == 1, err[-1500:]
    assert bytes(above) in said[0]
    left = {path.name for path in folder.iterdir()}
    assert left >= {path.name for path in cold.entries()}
    assert {path.read_bytes() for path in folder.iterdir()} == {b"hostile"}
    compare(one, cold.rows(f"out{name}"), whole)
