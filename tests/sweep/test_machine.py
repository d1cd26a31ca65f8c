"""The limits of a container or a batch system, on trees of cgroups that are fake and,
where this machine allows, real.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from jaxrecall import Point, simulate
from jaxrecall.errors import PointError
from jaxrecall.sweep import machine, plan
from jaxrecall.sweep.__main__ import main as sweep

GIB = 2**30
OF_HOST = (64 * GIB, 48)
"""Memory and cores of the host of the fake containers."""

TREES = {
    "v2 in a container": (
        {
            "proc/self/cgroup": "0::/\n",
            "memory.max": 2 * GIB,
            "cpu.max": "200000 100000",
        },
        2 * GIB,
        2,
    ),
    "v2, the parent limits": (
        {
            "proc/self/cgroup": "0::/a/b\n",
            "a/b/memory.max": "max",
            "a/memory.max": 3 * GIB,
            "a/b/cpu.max": "max 100000",
            "a/cpu.max": "150000 100000",
        },
        3 * GIB,
        1.5,
    ),
    "v2, the path of the host": (
        {"proc/self/cgroup": "0::/../../user.slice\n", "memory.max": 2 * GIB},
        2 * GIB,
        48,
    ),
    "v1": (
        {
            "proc/self/cgroup": (
                "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n"
            ),
            "memory/memory.limit_in_bytes": 2 * GIB,
            "cpu,cpuacct/docker/abc/cpu.cfs_quota_us": 300000,
            "cpu,cpuacct/docker/abc/cpu.cfs_period_us": 100000,
        },
        2 * GIB,
        3,
    ),
    "v1 without limits": (
        {
            "proc/self/cgroup": "5:memory:/\n3:cpu:/\n",
            "memory/memory.limit_in_bytes": 2**63 - 4096,
            "cpu/cpu.cfs_quota_us": -1,
            "cpu/cpu.cfs_period_us": 100000,
        },
        *OF_HOST,
    ),
    "damaged": (
        {
            "proc/self/cgroup": "no\n0::/\n:::\n",
            "memory.max": "much",
            "cpu.max": "1 0",
            "cpu/cpu.cfs_quota_us": "5",
        },
        *OF_HOST,
    ),
    "none": ({}, *OF_HOST),
}


@pytest.fixture
def limits(monkeypatch, tmp_path):
    """Makes a tree of cgroups below a host of 64 GiB and 48 cores, without what limits
    this test.
    """
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setattr(
        os,
        "sysconf",
        lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": OF_HOST[0] // 4096}[name],
    )
    monkeypatch.setattr(os, "cpu_count", lambda: OF_HOST[1])
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(OF_HOST[1])))
    monkeypatch.setattr(
        resource,
        "getrlimit",
        lambda what: (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    )

    def make(files: dict[str, object]) -> None:
        for name, text in files.items():
            path = (
                tmp_path / ("" if name.startswith("proc") else "sys/fs/cgroup") / name
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n" if name != "proc/self/cgroup" else str(text))
        machine.memory.cache_clear()
        machine.processors.cache_clear()

    make({})
    yield make
    machine.memory.cache_clear()
    machine.processors.cache_clear()


@pytest.mark.parametrize("name", TREES)
def test_the_least_limit_of_its_cgroups_counts(limits, name):
    files, memory, cores = TREES[name]
    limits(files)
    assert (machine.memory()[0], machine.processors()[0]) == (memory, cores)
    assert machine.memory_limit() == int(0.8 * memory)
    assert machine.cores() == max(1, round(cores))


@pytest.mark.parametrize(
    ("given", "memory", "cores"),
    [
        ({"SLURM_MEM_PER_NODE": "4096", "SLURM_CPUS_PER_TASK": "3"}, 4 * GIB, 3),
        ({"SLURM_MEM_PER_CPU": "1024", "SLURM_CPUS_PER_TASK": "3"}, 3 * GIB, 3),
        ({"SLURM_MEM_PER_CPU": "1024", "SLURM_CPUS_ON_NODE": "5"}, 5 * GIB, 48),
        (
            {
                "SLURM_MEM_PER_NODE": "0",
                "SLURM_CPUS_PER_TASK": "two",
                "SLURM_MEM_PER_CPU": "-1",
            },
            *OF_HOST,
        ),
    ],
)
def test_what_slurm_was_asked_for_counts(limits, monkeypatch, given, memory, cores):
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    limits({})
    assert (machine.memory()[0], machine.processors()[0]) == (memory, cores)


def test_the_address_space_counts(limits, monkeypatch):
    monkeypatch.setattr(
        resource, "getrlimit", lambda what: (GIB, resource.RLIM_INFINITY)
    )
    limits({})
    assert machine.memory() == (GIB, "ulimit -v")


def test_a_plan_in_a_container_is_one_of_its_size(
    limits, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    grid = {
        "base": {"V": 1024, "L": 8, "d": 256, "N": 4096, "exact": "full"},
        "blocks": [{"axes": {"m": [64, 1024]}}],
        "seeds": 64,
    }
    Path("grid.yaml").write_text(json.dumps(grid))

    def planned() -> tuple[dict, str]:
        assert sweep(["--grid", "grid.yaml", "--dry-run", "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert sweep(["--grid", "grid.yaml", "--dry-run"]) == 0
        return facts, capsys.readouterr().out

    limits({})
    free, said = planned()
    assert (
        "limits: memory 52429 MiB, 80 % of the 65536 MiB of this machine; cores 48, of"
        " this machine\n" in said
    )
    limits(TREES["v2 in a container"][0])
    held, said = planned()
    assert (
        "limits: memory 1638 MiB, 80 % of the 2048 MiB of"
        f" {tmp_path}/sys/fs/cgroup/memory.max; cores 2, of {tmp_path}/sys/fs" in said
    )
    assert free["est_peak_bytes"] > 1.6 * GIB > held["est_peak_bytes"]
    assert held["est_seconds"] > 3 * free["est_seconds"]
    assert "on 2 cores" in said
    assert plan.memory_limit() == 0.8 * 2 * GIB // 1

    large = Point(V=16384, N=4096, d=4096, L=8)
    with pytest.raises(
        PointError,
        match=(
            r"^V: got V=16384, d=4096, m=0, which needs about \d+ MiB; allowed: 1638"
            r" MiB, 80 % of the 2048 MiB of"
        ),
    ):
        simulate(large, 0)
    Path("grid.yaml").write_text(
        json.dumps(grid | {"blocks": [{"axes": {"V": [16384], "d": [4096], "m": [0]}}]})
    )
    assert sweep(["--grid", "grid.yaml", "--dry-run"]) == 2
    told = capsys.readouterr()
    assert (told.out, len(told.err.splitlines())) == ("", 1)
    assert "limits.max_bytes: program 16384x4096" in told.err
    assert (
        "allowed: 1638 MiB, 80 % of the 2048 MiB of"
        f" {tmp_path}/sys/fs/cgroup/memory.max" in told.err
    )


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
def test_less_memory_than_jax_needs_is_refused(
    limits, tmp_path, monkeypatch, capsys, workers
):
    monkeypatch.chdir(tmp_path)
    Path("grid.yaml").write_text("base: {V: 8, L: 2, d: 4, N: 8}")
    limits({"proc/self/cgroup": "0::/\n", "memory.max": 300 * 2**20})
    assert sweep(["--grid", "grid.yaml", "--dry-run"]) == 0
    capsys.readouterr()
    assert sweep(["--grid", "grid.yaml", *workers]) == 2
    assert capsys.readouterr().err == (
        f"memory: got 300 MiB ({tmp_path}/sys/fs/cgroup/memory.max); allowed: at least"
        " 320 MiB, which Python and JAX need before any run\n"
    )
    assert not Path("results").exists()


IN_CGROUP = """
import os, sys
for folder in sys.argv[1:3]:
    open(f"{folder}/cgroup.procs", "w").write(str(os.getpid()))
from jaxrecall.sweep import machine
print(*machine.memory(), *machine.processors())
from jaxrecall import Point, simulate
print(simulate(Point(V=16, N=32, d=8, L=4), 0)["status"])
"""


@pytest.mark.system  # half a core and 2 GiB; tests above read files like its own
def test_the_limits_of_a_real_cgroup_are_read():
    tops = [Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup/cpu")]
    made = [top / f"jaxrecall-{os.getpid()}" for top in tops]
    try:
        for folder, name, value in zip(
            made,
            ("memory.limit_in_bytes", "cpu.cfs_quota_us"),
            (2 * GIB, 50000),
            strict=True,
        ):
            if (
                not (folder.parent / name).exists()
                and not (folder.parent / "cgroup.procs").exists()
            ):
                pytest.skip("this machine has no cgroups of version 1")
            folder.mkdir()
            (folder / name).write_text(str(value))
    except OSError as error:
        pytest.skip(f"this machine lets nobody make a cgroup ({error})")
    try:
        done = subprocess.run(
            [sys.executable, "-c", IN_CGROUP, *map(str, made)],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [
            f"{2 * GIB}.0",
            f"{made[0]}/memory.limit_in_bytes",
            "0.5",
            f"{made[1]}/cpu.cfs_quota_us",
            "ok",
        ]
    finally:
        for folder in made:
            folder.rmdir()


@pytest.mark.parametrize(
    ("kib", "command", "answer"),
    [
        # SciPy's OpenBLAS allocates forever
        (400_000, ["status", "out"], "ulimit -v: got 400000; allowed: at least 614400"),
        # JAX crashes
        (1_500_000, ["sweep", "--grid", "tiny.yaml"], "memory: got 1465 MiB (ulimit"),
    ],
)
def test_too_little_address_space_is_refused(tmp_path, kib, command, answer):
    (tmp_path / "tiny.yaml").write_text(
        "base: {V: 8, N: 8, L: 2, n_test: 9}\nblocks: [{axes: {d: [4, 8]}}]"
    )
    limited = ["bash", "-c", f'ulimit -v {kib}; exec "$@"', "bash", sys.executable]
    done = subprocess.run(
        [*limited, "-m", "jaxrecall", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(answer)
    assert not (tmp_path / "results").exists()
