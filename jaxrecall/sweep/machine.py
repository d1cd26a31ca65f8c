"""What a process may use of this machine: the least of all limits.

Containers and batch systems limit a process by cgroups, its own and their parents, by
`ulimit -v`, and by the request to Slurm. A limit that cannot be read counts as
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
"""The share of the memory for programs: Python and the rows take some, too."""

ROOT = Path("/")
"""Where proc and sys are."""

FILES = {
    "memory": (["memory.max"], ["memory.limit_in_bytes"]),
    "cpu": (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]),
}
"""The files of a limit in cgroups of version 2 and 1. The limit of cores is the
quotient of two numbers; any other is one number.
"""


def memory_limit() -> int:
    """80 % of the memory that this process may use, bytes."""
    amount, _ = memory()
    return int(SHARE * amount)


def cores() -> int:
    """Cores that this process may use, rounded; at least one."""
    amount, _ = processors()
    return max(1, round(amount))


@cache
def memory() -> tuple[float, str]:
    """The memory that this process may use, bytes, and what limits it."""
    import resource

    n_cpus = _of_slurm("SLURM_CPUS_ON_NODE") or _of_slurm("SLURM_CPUS_PER_TASK")
    slurm = _of_slurm("SLURM_MEM_PER_NODE") or n_cpus * _of_slurm("SLURM_MEM_PER_CPU")
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    limits = {
        "this machine": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "ulimit -v": soft,
        "this Slurm job": 2**20 * slurm,
    }
    return _least(limits | _of_cgroups("memory"))


@cache
def processors() -> tuple[float, str]:
    """The cores that this process may use, and what limits them.

    A quota may be a part of a core.
    """
    limits = {"this machine": os.cpu_count() or 1}
    if hasattr(os, "sched_getaffinity"):
        limits["the affinity of this process"] = len(os.sched_getaffinity(0))
    limits["this Slurm job"] = _of_slurm("SLURM_CPUS_PER_TASK")
    return _least(limits | _of_cgroups("cpu"))


def _least(limits: Mapping[str, float]) -> tuple[float, str]:
    """The least limit, and where it comes from; 0 and less are none."""
    set_limits = {source: amount for source, amount in limits.items() if amount > 0}
    least = min(set_limits, key=set_limits.__getitem__)
    return limits[least], least


def memory_described() -> str:
    """The limit of memory, and where it comes from."""
    total, source = memory()
    return (
        f"{memory_limit() / 2**20:.0f} MiB, {SHARE * 100:.0f} % of the"
        f" {total / 2**20:.0f} MiB of {source}"
    )


def described() -> str:
    """Both limits, and where they come from."""
    _, source = processors()
    return f"limits: memory {memory_described()}; cores {cores()}, of {source}"


def _of_slurm(name: str) -> int:
    """The number in a variable, 0 if there is none; for memory 0 is all of it."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 0


def _of_cgroups(controller: str) -> dict[str, float]:
    """The limits of a controller for the cgroups of this process, by file.

    Their parents count, too. In a container the path of a cgroup may not be there; then
    the root of the path is the container's own.
    """
    limits: dict[str, float] = {}
    lines: list[str] = []
    with suppress(OSError, UnicodeError):
        lines = (ROOT / "proc/self/cgroup").read_text("utf-8").splitlines()
    for line in lines:
        if line.count(":") < 2:
            continue
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        mounts = (names, controller) if names else ("", "unified")
        group = Path(path.strip("/"))
        groups = group, *group.parents
        for mount, folder, files in product(mounts, groups, FILES[controller]):
            paths = [ROOT / "sys/fs/cgroup" / mount / folder / file for file in files]
            with suppress(OSError, ValueError, ArithmeticError):  # such as the word max
                text = " ".join(path.read_text("utf-8") for path in paths)
                amount, per, *_ = map(int, [*text.split(), "1"])
                limits[str(paths[0])] = amount / per
    return limits
