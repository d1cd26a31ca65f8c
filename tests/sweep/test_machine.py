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
import yaml

from jaxrecall import Point, simulate
from jaxrecall.errors import PointError
from jaxrecall.sweep import machine
from jaxrecall.sweep.__main__ import main as sweep

GIB = 2**30
OF_HOST = (64, 48)
"""GiB and cores of the host of the fake containers."""

TREES = yaml.safe_load(f"""
v2 in a container:
    files:
        proc/self/cgroup: "0::/\\n"
        memory.max: {2 * GIB}
        cpu.max: 200000 100000
    memory: 2
    cores: 2
v2, the parent limits:
    files:
        proc/self/cgroup: "0::/a/b\\n"
        a/b/memory.max: max
        a/memory.max: {3 * GIB}
        a/b/cpu.max: max 100000
        a/cpu.max: 150000 100000
    memory: 3
    cores: 1.5
v2, the path of the host:
    files: {{proc/self/cgroup: "0::/../../user.slice\\n", memory.max: {2 * GIB}}}
    memory: 2
    cores: 48
v1:
    files:
        proc/self/cgroup: "5:memory:/docker/abc\\n3:cpu,cpuacct:/docker/abc\\n0::/\\n"
        memory/memory.limit_in_bytes: {2 * GIB}
        cpu,cpuacct/docker/abc/cpu.cfs_quota_us: 300000
        cpu,cpuacct/docker/abc/cpu.cfs_period_us: 100000
    memory: 2
    cores: 3
v1 without limits:
    files:
        proc/self/cgroup: "5:memory:/\\n3:cpu:/\\n"
        memory/memory.limit_in_bytes: {2**63 - 4096}
        cpu/cpu.cfs_quota_us: -1
        cpu/cpu.cfs_period_us: 100000
    memory: 64
    cores: 48
damaged:
    files:
        proc/self/cgroup: "no\\n0::/\\n:::\\n"
        memory.max: much
        cpu.max: 1 0
        cpu/cpu.cfs_quota_us: 5
    memory: 64
    cores: 48
none:
    files: {{}}
    memory: 64
    cores: 48
""")


@pytest.fixture
def limits(monkeypatch, tmp_path):
    """Makes a tree of cgroups below a host of 64 GiB and 48 cores, without what limits
    this test.
    """
    gib, cores = OF_HOST
    facts = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": gib * GIB // 4096}
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setattr(os, "sysconf", facts.get)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {*range(cores)})
    limit_address_space(monkeypatch, resource.RLIM_INFINITY)

    def make(files: dict[str, object]) -> None:
        for name, text in files.items():
            above = "" if name.startswith("proc") else "sys/fs/cgroup"
            path = tmp_path / above / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(text))
        machine.memory.cache_clear()
        machine.processors.cache_clear()

    make({})
    yield make
    make({})


def limit_address_space(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    both = (size, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda what: both)


def check(gib: float, cores: float) -> None:
    assert (machine.memory()[0], machine.processors()[0]) == (gib * GIB, cores)


@pytest.mark.parametrize("name", TREES)
def test_the_least_limit_of_its_cgroups_counts(limits, name):
    tree = TREES[name]
    limits(tree["files"])
    check(tree["memory"], tree["cores"])
    assert machine.memory_limit() == int(0.8 * tree["memory"] * GIB)
    assert machine.cores() == max(1, round(tree["cores"]))


SLURM = """
MEM_PER_NODE=4096 CPUS_PER_TASK=3               4 3
MEM_PER_CPU=1024 CPUS_PER_TASK=3                3 3
MEM_PER_CPU=1024 CPUS_ON_NODE=5                 5 48
MEM_PER_NODE=0 CPUS_PER_TASK=two MEM_PER_CPU=-1 64 48
"""


@pytest.mark.parametrize("line", SLURM.strip().splitlines())
def test_what_slurm_was_asked_for_counts(limits, monkeypatch, line):
    *given, gib, cores = line.split()
    for each in given:
        name, _, value = each.partition("=")
        monkeypatch.setenv(f"SLURM_{name}", value)
    limits({})
    check(int(gib), int(cores))


def test_the_address_space_counts(limits, monkeypatch):
    limit_address_space(monkeypatch, GIB)
    limits({})
    assert machine.memory() == (GIB, "ulimit -v")


WIDE = """
base: {V: 1024, L: 8, d: 256, N: 4096, exact: full}
blocks: [{axes: {m: [64, 1024]}}]
seeds: 128
"""


def test_a_plan_in_a_container_is_one_of_its_size(limits, cwd, capsys):
    Path("grid.yaml").write_text(WIDE)
    large = {"V": 16384, "d": 4096}
    base = yaml.safe_load(WIDE)["base"] | large
    Path("large.yaml").write_text(json.dumps({"base": base}))

    def planned() -> tuple[dict, str]:
        assert sweep(["--grid", "grid.yaml", "--dry-run", "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert sweep(["--grid", "grid.yaml", "--dry-run"]) == 0
        return facts, capsys.readouterr().out

    limits({})
    free, said = planned()
    of_host = "memory 52429 MiB, 80 % of the 65536 MiB of this machine; cores 48, of"
    assert f"limits: {of_host} this machine\n" in said
    limits(TREES["v2 in a container"]["files"])
    held, said = planned()
    room = f"1638 MiB, 80 % of the 2048 MiB of {cwd}/sys/fs/cgroup/memory.max"
    assert f"limits: memory {room}; cores 2, of {cwd}/sys/fs" in said
    assert free["est_peak_bytes"] > 1.6 * GIB > held["est_peak_bytes"]
    assert held["est_seconds"] > 3 * free["est_seconds"]
    assert "on 2 cores" in said
    with pytest.raises(PointError, match=r"^V: got V=16384, d=4096, m=0") as refused:
        simulate(Point(N=4096, L=8, **large), 0)
    assert f"allowed: {room}" in str(refused.value)
    assert sweep(["--grid", "large.yaml", "--dry-run"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "limits.max_bytes: program 16384x4096" in err
    assert f"allowed: {room}. Lower V, d or m.\n" in err


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
def test_less_memory_than_jax_needs_is_refused(limits, cwd, capsys, workers):
    Path("grid.yaml").write_text("base: {V: 8, L: 2, d: 4, N: 8}")
    limits({"proc/self/cgroup": "0::/\n", "memory.max": 300 * 2**20})
    assert sweep(["--grid", "grid.yaml", "--dry-run"]) == 0
    capsys.readouterr()
    assert sweep(["--grid", "grid.yaml", *workers]) == 2
    told = f"memory: got 300 MiB ({cwd}/sys/fs/cgroup/memory.max); allowed: at "
    assert capsys.readouterr().err.startswith(told)
    assert not Path("results").exists()


@pytest.mark.parametrize(
    ("kib", "command", "answer"),
    [
        # SciPy's OpenBLAS allocates forever
        (400_000, "status out", "ulimit -v: got 400000; allowed: at least 614400"),
        # JAX crashes
        (1_500_000, "sweep --grid tiny.yaml", "memory: got 1465 MiB (ulimit"),
    ],
)
def test_too_little_address_space_is_refused(tmp_path, kib, command, answer):
    (tmp_path / "tiny.yaml").write_text("base: {V: 8, N: 8, L: 2, d: 4}")
    limited = f"ulimit -v {kib}; {sys.executable} -m jaxrecall {command}"
    done = subprocess.run(
        ["bash", "-c", limited], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(answer)
    assert os.listdir(tmp_path) == ["tiny.yaml"]
