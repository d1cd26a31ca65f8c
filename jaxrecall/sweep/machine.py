"""What of this machine a process may use: the least of what the machine has and of every limit that is set.

Containers and batch systems limit a process by cgroups, its own and their parents, by
`ulimit -v`, and by what Slurm was asked for. A limit that cannot be read counts as none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

SHARE = 0.8
"""Of the memory, for programs: Python and the rows take some, too."""

ROOT = Path("/")
"""Where proc and sys are."""

FILES = {"memory": ("memory.max", "memory.limit_in_bytes"), "cpu": ("cpu.max", "cpu.cfs_quota_us")}
"""The limits of a controller, in cgroups of version 2 and 1."""


class Limit(NamedTuple):
    """An amount, and what sets it."""

    amount: float
    source: str


def memory_limit() -> int:
    """80 % of the memory that this process may use, bytes."""
    return int(SHARE * memory().amount)


def cores() -> int:
    """Cores that this process may use, rounded; at least one."""
    return max(1, round(processors().amount))


@cache
def memory() -> Limit:
    """The memory that this process may use, bytes."""
    import resource

    limits = [Limit(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "this machine"), *_of_cgroups("memory")]
    if (soft := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
        limits.append(Limit(soft, "ulimit -v"))
    per_cpu = _of_slurm("SLURM_MEM_PER_CPU") * (_of_slurm("SLURM_CPUS_ON_NODE") or _of_slurm("SLURM_CPUS_PER_TASK"))
    if mib := _of_slurm("SLURM_MEM_PER_NODE") or per_cpu:
        limits.append(Limit(mib * 2**20, "this Slurm job"))
    return min(limits)


@cache
def processors() -> Limit:
    """The cores that this process may use; a quota may be a part of one."""
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [Limit(n, "this machine" if n == os.cpu_count() else "the affinity of this process"), *_of_cgroups("cpu")]
    if asked := _of_slurm("SLURM_CPUS_PER_TASK"):
        limits.append(Limit(asked, "this Slurm job"))
    return min(limits)


def memory_described() -> str:
    """The limit of memory, and where it comes from."""
    total, source = memory()
    return f"{memory_limit() / 2**20:.0f} MiB, {SHARE * 100:.0f} % of the {total / 2**20:.0f} MiB of {source}"


def described() -> str:
    """Both limits, and where they come from."""
    return f"limits: memory {memory_described()}; cores {cores()}, of {processors().source}"


def _of_slurm(name: str) -> int:
    """The number in a variable, 0 if there is none; 0 for memory stands for all of it."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 0


def _of_cgroups(controller: str) -> Iterator[Limit]:
    """The limits of a controller for the cgroups of this process and their parents.

    In a container the path that the kernel tells may not be there; then its root is the
    container's own.
    """
    lines = list[str]()
    with suppress(OSError, UnicodeError):
        lines = (ROOT / "proc/self/cgroup").read_text("utf-8").splitlines()
    for _, names, path in (line.split(":", 2) for line in lines if line.count(":") > 1):
        parts = [part for part in path.split("/") if part]
        mounts = ("", "unified") if not names else (names, controller) if controller in names.split(",") else ()
        inner = [Path(mount, *parts[:n]) for mount in mounts for n in range(len(parts) + 1) if ".." not in parts[:n]]
        for file in (ROOT / "sys/fs/cgroup" / folder / name for folder in inner for name in FILES[controller]):
            with suppress(OSError, ValueError, ZeroDivisionError):  # such as the word max
                words = file.read_text("utf-8").split()
                words += file.with_name("cpu.cfs_period_us").read_text("utf-8").split() if "quota" in file.name else ["1"]
                if (amount := int(words[0]) / int(words[1])) > 0:  # -1 stands for none
                    yield Limit(amount, str(file))
