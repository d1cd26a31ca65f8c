"""Determines how much memory and how many cores this process may use, and divides cores
and devices among workers.

Containers and batch systems set several limits: in the process's cgroups and their
parents, by `ulimit -v`, and by the Slurm request. The least limit applies. A limit that
cannot be read is ignored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path

from ..errors import UsageError

OF_PROCESS = "ulimit -v"

SHARE = 0.8
"""The share of the memory that programs may use. Python and the rows need the rest."""

LEAST_BYTES = 320 * 2**20
"""The least memory with which a sweep starts. With the smallest run and a stored
program, a process of JAX 0.10 holds 435 MiB, of which the system can take back the 186
MiB of program files. Slurm ended one that requested 300 MiB.
"""

LEAST_ADDRESS_SPACE = 1900 * 2**20
"""The least `ulimit -v`, in bytes, with which a sweep starts. It counts mapped files
and the stacks of threads. With 1,500,000 KiB JAX 0.10 crashed on 2 cores.
"""

ROOT = Path("/")
"""The folder that contains proc and sys."""

FILES = {
    "memory": (["memory.max"], ["memory.limit_in_bytes"]),
    "cpu": (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]),
}
"""The names of the files with each limit, for cgroups version 2 and version 1.

A memory limit is one number. The number of cores is a dividend and a divisor.
"""


def memory_limit() -> int:
    """Returns the number of bytes that programs may use, 80 % of the memory limit."""
    amount, _ = memory()
    return int(SHARE * amount)


def check_memory() -> None:
    """Raises UsageError if this process may use less memory than JAX needs."""
    amount, source = memory()
    least = LEAST_ADDRESS_SPACE if source == OF_PROCESS else LEAST_BYTES
    if amount < least:
        raise UsageError(
            f"memory: got {amount / 2**20:.0f} MiB ({source}); allowed: at least"
            f" {least / 2**20:.0f} MiB, which Python and JAX need before any run"
        )


def cores() -> int:
    """Returns the whole number of cores that this process may use, at least one."""
    amount, _ = processors()
    return max(1, round(amount))


@cache
def memory() -> tuple[float, str]:
    """Returns the number of bytes that this process may use, and the source of the
    limit.
    """
    import resource

    n_cpus = _of_slurm("SLURM_CPUS_ON_NODE") or _of_slurm("SLURM_CPUS_PER_TASK")
    slurm = _of_slurm("SLURM_MEM_PER_NODE") or n_cpus * _of_slurm("SLURM_MEM_PER_CPU")
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    limits = {
        "this machine": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        OF_PROCESS: soft,
        "this Slurm job": 2**20 * slurm,
    }
    return _least(limits | _of_cgroups("memory"))


@cache
def processors() -> tuple[float, str]:
    """Returns the number of cores that this process may use, and the source of the
    limit.

    The number need not be whole, because a quota may be a fraction of a core.
    """
    limits = {"this machine": os.cpu_count() or 1}
    if hasattr(os, "sched_getaffinity"):
        limits["the affinity of this process"] = len(os.sched_getaffinity(0))
    limits["this Slurm job"] = _of_slurm("SLURM_CPUS_PER_TASK")
    return _least(limits | _of_cgroups("cpu"))


def _least(limits: Mapping[str, float]) -> tuple[float, str]:
    """Returns the least limit that is above 0, and its source."""
    set_limits = {source: amount for source, amount in limits.items() if amount > 0}
    least = min(set_limits, key=set_limits.__getitem__)
    return limits[least], least


def memory_described() -> str:
    """Returns a text with the memory limit and its source."""
    total, source = memory()
    return (
        f"{memory_limit() / 2**20:.0f} MiB, {SHARE * 100:.0f} % of the"
        f" {total / 2**20:.0f} MiB of {source}"
    )


def described() -> str:
    """Returns a text with both limits and their sources."""
    _, source = processors()
    return f"limits: memory {memory_described()}; cores {cores()}, of {source}"


def _of_slurm(name: str) -> int:
    """Returns the number in an environment variable, or 0 if there is none.

    A memory request of 0 also means that there is no limit.
    """
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 0


def _of_cgroups(controller: str) -> dict[str, float]:
    """Returns a dict from each cgroup file of this process to the limit in the file.

    The files of parent cgroups are included. In a container, the path of a cgroup may
    not exist. Then the container's own cgroup is at the root of the path.
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
            with suppress(
                OSError, ValueError, ArithmeticError
            ):  # the text may be "max"
                text = " ".join(path.read_text("utf-8") for path in paths)
                amount, per, *_ = map(int, [*text.split(), "1"])
                limits[str(paths[0])] = amount / per
    return limits


def cores_of_worker(number: int, size: int) -> list[int]:
    """Returns the cores of worker `number`, from 0, of `size` workers.

    The cores of this process are divided equally, with at least one core per worker.
    The list is empty if cores cannot be assigned.
    """
    if not hasattr(os, "sched_getaffinity"):
        return []
    usable = sorted(os.sched_getaffinity(0))
    n = len(usable)
    return usable[number * n // size : (number + 1) * n // size] or [usable[number % n]]


def accelerators(environment: Mapping[str, str]) -> list[str]:
    """Returns the ids of the NVIDIA devices that JAX would use, as in
    CUDA_VISIBLE_DEVICES.
    """
    platforms = environment.get("JAX_PLATFORMS", "")
    if platforms and not {"cuda", "gpu"} & set(platforms.split(",")):
        return []
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name not in ("", "-1")]
    paths = Path("/dev").glob("nvidia[0-9]*")
    return sorted((path.name.removeprefix("nvidia") for path in paths), key=int)


def environment_of_worker(
    number: int, size: int, environment: Mapping[str, str]
) -> dict[str, str]:
    """Returns the environment of worker `number`, from 0, of `size` workers. JAX uses
    one device in it.

    Workers on the same device have equal shares of its memory.
    """
    devices = accelerators(environment)
    if not devices:
        return dict(environment)
    device = devices[number % len(devices)]
    share = share_of_memory(1 / -(-size // len(devices)))
    return {**share, **environment, "CUDA_VISIBLE_DEVICES": device}


def share_of_memory(devices: float) -> dict[str, str]:
    """Returns a dict with the environment variable that limits JAX to a share of a
    device's memory.

    The dict is empty if the worker has a whole device.
    """
    if devices >= 1:
        return {}
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 * devices:.3f}"}
