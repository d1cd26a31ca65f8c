"""What of this machine a process may use: the least of what the machine has and of every limit that is set.

Containers and batch systems limit a process by cgroups, of which it sees its own and
their parents, by `ulimit -v`, and by what Slurm was asked for. A limit that cannot be
read counts as none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

SHARE = 0.8
"""Of the memory, for programs: Python and the rows take some, too."""

ROOT = Path("/")
"""Where proc and sys are."""


class Limit(NamedTuple):
    """An amount, and what sets it."""

    amount: float
    source: str


def memory_limit() -> int:
    """80 % of the memory that this process may use, bytes."""
    return int(SHARE * memory().amount)


def cores() -> int:
    """Cores that this process may use, of a part of one all of it."""
    return max(1, round(processors().amount))


@cache
def memory() -> Limit:
    """The memory that this process may use, bytes."""
    return min(_memory_limits())


@cache
def processors() -> Limit:
    """The cores that this process may use; a quota may be a part of one."""
    return min(_core_limits())


def memory_described() -> str:
    """The limit of memory, and where it comes from."""
    total, source = memory()
    return f"{memory_limit() / 2**20:.0f} MiB, {SHARE * 100:.0f} % of the {total / 2**20:.0f} MiB of {source}"


def described() -> str:
    """Both limits, and where they come from."""
    return f"limits: memory {memory_described()}; cores {cores()}, of {processors().source}"


def _memory_limits() -> Iterator[Limit]:
    if hasattr(os, "sysconf"):
        yield Limit(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "this machine")
    with suppress(ImportError):  # not on Windows
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            yield Limit(soft, "ulimit -v")
    for folder, is_v2 in _cgroups("memory"):
        yield from _number(folder / ("memory.max" if is_v2 else "memory.limit_in_bytes"), int)
    with suppress(KeyError, ValueError):
        if mib := int(os.environ["SLURM_MEM_PER_NODE"]):  # 0 stands for all memory
            yield Limit(mib * 2**20, "SLURM_MEM_PER_NODE")
    with suppress(KeyError, ValueError):
        n = int(os.environ.get("SLURM_CPUS_ON_NODE") or os.environ["SLURM_CPUS_PER_TASK"])
        if mib := n * int(os.environ["SLURM_MEM_PER_CPU"]):
            yield Limit(mib * 2**20, "SLURM_MEM_PER_CPU")


def _core_limits() -> Iterator[Limit]:
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Limit(n, "the affinity of this process" if n < (os.cpu_count() or 1) else "this machine")
    for folder, is_v2 in _cgroups("cpu"):
        if is_v2:
            yield from _number(folder / "cpu.max", lambda text: int(text.split()[0]) / int(text.split()[1]))
        else:
            with suppress(OSError, ValueError, ZeroDivisionError):
                period = int((folder / "cpu.cfs_period_us").read_text(encoding="ascii"))
                yield from _number(folder / "cpu.cfs_quota_us", lambda text, period=period: int(text) / period)
    with suppress(KeyError, ValueError):
        if n := int(os.environ["SLURM_CPUS_PER_TASK"]):
            yield Limit(n, "SLURM_CPUS_PER_TASK")


def _number(path: Path, read: Callable[[str], float]) -> Iterator[Limit]:
    """The amount in a file of a cgroup; none where it says `max`, or -1."""
    with suppress(OSError, ValueError, IndexError, ZeroDivisionError):
        if (amount := read(path.read_text(encoding="ascii"))) > 0:
            yield Limit(amount, f"{path}")


def _cgroups(controller: str) -> Iterator[tuple[Path, bool]]:
    """The cgroups of this process that a controller may limit, with their parents, and whether they are of version 2.

    In a container the path that the kernel tells may not be there; then its root is the
    container's own.
    """
    lines = list[str]()
    with suppress(OSError, UnicodeError):
        lines = (ROOT / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    for _, names, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if names and controller not in names.split(","):
            continue
        for mount in [names, controller] if names else ["", "unified"]:
            top = ROOT / "sys/fs/cgroup" / mount
            inner = [top / part for part in (Path(path.lstrip("/")), *Path(path.lstrip("/")).parents)]
            yield from ((folder, not names) for folder in dict.fromkeys([*inner, top]) if ".." not in folder.parts)
