"""What of this machine a process may use: the least of what the machine has and of
every limit that is set.

Containers and batch systems limit a process by cgroups, its own and their parents, by
`ulimit -v`, and by what Slurm was asked for. A limit that cannot be read counts as
none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path

SHARE = 0.8
"""Of the memory, for programs: Python and the rows take some, too."""

ROOT = Path("/")
"""Where proc and sys are."""

FILES = {
    "memory": (["memory.max"], ["memory.limit_in_bytes"]),
    "cpu": (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]),
}
"""The files of a limit in cgroups of version 2 and 1: an amount, of cores the dividend
and the divisor.
"""


def memory_limit() -> int:
    """80 % of the memory that this process may use, bytes."""
    return int(SHARE * memory()[0])


def cores() -> int:
    """Cores that this process may use, rounded; at least one."""
    return max(1, round(processors()[0]))


@cache
def memory() -> tuple[float, str]:
    """The memory that this process may use, bytes, and what limits it."""
    import resource

    per_cpu = _of_slurm("SLURM_MEM_PER_CPU") * (
        _of_slurm("SLURM_CPUS_ON_NODE") or _of_slurm("SLURM_CPUS_PER_TASK")
    )
    slurm = 2**20 * (_of_slurm("SLURM_MEM_PER_NODE") or per_cpu)
    physical, soft = (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        resource.getrlimit(resource.RLIMIT_AS)[0],
    )
    return _least(
        {
            "this machine": physical,
            "ulimit -v": soft,
            "this Slurm job": slurm,
            **_of_cgroups("memory"),
        }
    )


@cache
def processors() -> tuple[float, str]:
    """The cores that this process may use, of which a quota may be a part of one, and
    what limits them.
    """
    affinity, slurm = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        _of_slurm("SLURM_CPUS_PER_TASK"),
    )
    here = {
        "this machine": os.cpu_count() or 1,
        "the affinity of this process": affinity,
    }
    return _least({**here, "this Slurm job": slurm, **_of_cgroups("cpu")})


def _least(limits: Mapping[str, float]) -> tuple[float, str]:
    """The least limit, and where it comes from; 0 and less stand for none."""
    return min(
        ((amount, source) for source, amount in limits.items() if amount > 0),
        key=lambda limit: limit[0],
    )


def memory_described() -> str:
    """The limit of memory, and where it comes from."""
    total, source = memory()
    return (
        f"{memory_limit() / 2**20:.0f} MiB, {SHARE * 100:.0f} % of the"
        f" {total / 2**20:.0f} MiB of {source}"
    )


def described() -> str:
    """Both limits, and where they come from."""
    return f"limits: memory {memory_described()}; cores {cores()}, of {processors()[1]}"


def _of_slurm(name: str) -> int:
    """The number in a variable, 0 if there is none; 0 for memory stands for all of
    it.
    """
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 0


def _of_cgroups(controller: str) -> dict[str, float]:
    """The limits of a controller for the cgroups of this process and their parents, by
    file.

    In a container the path that the kernel tells may not be there; then its root is the
    container's own.
    """
    found, lines = dict[str, float](), list[str]()
    with suppress(OSError, UnicodeError):
        lines = (ROOT / "proc/self/cgroup").read_text("utf-8").splitlines()
    for _, names, path in (line.split(":", 2) for line in lines if line.count(":") > 1):
        group, mounts = (
            Path(path.strip("/")),
            (names, controller) if names else ("", "unified"),
        )
        of_us = (
            product(mounts, (group, *group.parents), FILES[controller])
            if not names or controller in names.split(",")
            else ()
        )
        for mount, folder, files in of_us:
            paths = [ROOT / "sys/fs/cgroup" / mount / folder / file for file in files]
            with suppress(OSError, ValueError, ArithmeticError):  # such as the word max
                amount, per, *_ = map(
                    int,
                    [*" ".join(path.read_text("utf-8") for path in paths).split(), 1],
                )
                found[str(paths[0])] = amount / per
    return found
