"""The launch files for TPU slices and SkyPilot, with a cloud on this machine: no row
is lost, whatever fails, and the same line continues.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from cloud import HOSTS, Cloud
from helpers import ROOT

import jaxrecall

POD = ROOT / "sweeps/launch/tpu-pod.sh"
RUNS = 48

GRID = """
simulator: troubled:simulator
seeds: 12
run: {part_seconds: 0}
blocks: [{axes: {x: [1, 2, 3, 4]}}]
"""

TROUBLED = '''
"""A simulator that fails on a host of choice, or waits until it is told otherwise."""

import os
import time
from pathlib import Path

import jaxrecall


def fn(point, key):
    folder = Path(os.environ["CLOUD"])
    host = os.environ.get("HOST", "here")
    ran = folder / f"ran-{host}"
    done = ran.stat().st_size if ran.exists() else 0

    def told():
        trouble = folder / "trouble"
        return trouble.read_text() if trouble.exists() else ""

    if told() == f"{host} fails" and done == 3:
        raise RuntimeError("this host fails")
    while told() in (f"{host} hangs", f"all wait at {done}"):
        time.sleep(0.1)
    ran.open("a").write("1")
    chips = os.environ.get("TPU_VISIBLE_CHIPS", "").count(",")
    return {"accuracy": point.x / 5, "chips": chips}


simulator = jaxrecall.Simulator(
    fn,
    fields={"x": (int, None, 1, 9, "traced")},
    columns={"accuracy": (float, "a fraction"), "chips": (int, "chips, less one")},
    accuracy="accuracy",
    jit=False,
)
'''

SWEEP = """#!/bin/bash
# stands in for the sweep: writes a part for each share
while [ $# -gt 0 ]; do
    case $1 in --dry-run) exit ;; --out) out=$2 ;; esac
    shift
done
mkdir -p "$out/parts"
touch "$out/parts/${HOST:-here}" "$out/manifest.json"
[ "$HOST" != 2 ] || exit 3
"""

pytestmark = pytest.mark.skipif(
    not (shutil.which("flock") and Path("/proc").is_dir()),
    reason="needs flock and /proc",
)


@pytest.fixture
def cloud(tmp_path):
    made = Cloud(tmp_path)
    made.build()
    (made.home / "mine.yaml").write_text(GRID)
    (made.home / "troubled.py").write_text(TROUBLED)
    yield made
    made.stop()


def start(cloud: Cloud):
    return cloud.start(
        "bash",
        str(POD),
        "mine.yaml",
        BUCKET="gs://b",
        EVERY="0.2",
        PATIENCE="3",
    )


def run(cloud: Cloud) -> tuple[int, str]:
    process = start(cloud)
    told, _ = process.communicate(timeout=300)
    return process.returncode, told


def rows(folder: Path) -> int:
    """The rows of a folder, each of another run."""
    if not any((folder / "parts").glob("*")):
        return 0
    table = jaxrecall.load(folder)
    assert not table.duplicated(["point_id", "seed"]).any()
    return len(table)


def wait_for(happened: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.1)


def cut(cloud: Cloud, process) -> None:
    """Ends the call as Ctrl-C and a lost connection do: the hosts do not notice."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def alive(pid: str) -> bool:
    """Whether a process runs, and is not merely waited for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


def ran(cloud: Cloud) -> int:
    """How many runs were computed, the lost ones too."""
    return sum(path.stat().st_size for path in cloud.folder.glob("ran-*"))


def test_parts_of_all_hosts_come_back_when_one_fails(tmp_path):
    sweep = tmp_path / "sweep"
    sweep.write_text(SWEEP)
    sweep.chmod(0o755)
    cloud = Cloud(tmp_path)
    cloud.build(str(sweep))
    (cloud.home / "mine.yaml").write_text(GRID)
    try:
        code, told = run(cloud)
    finally:
        cloud.stop()
    assert code == 3, told
    assert "a host did not finish (exit code 3)" in told
    for folder in (cloud.bucket / "b/mine/parts", cloud.home / "results/mine/parts"):
        assert {path.name for path in folder.iterdir()} == {"0", "1", "2", "3"}


@pytest.mark.system
def test_undisturbed(cloud):
    code, told = run(cloud)
    assert code == 0, told
    assert rows(cloud.bucket / "b/mine") == RUNS
    assert rows(cloud.home / "results/mine") == RUNS
    assert ran(cloud) == RUNS
    assert not (cloud.folder / "ran-here").exists()
    assert (cloud.home / "results/mine/accuracy.png").exists()
    table = jaxrecall.load(cloud.home / "results/mine")
    assert set(table.chips) == {3}
    # each host has the right share and a manifest of its own
    kept = {
        path.relative_to(cloud.bucket / "b/mine").as_posix()
        for path in (cloud.bucket / "b/mine").rglob("*")
        if path.is_file() and path.parent.name != "parts"
    }
    assert kept == {
        f"host-{i}/{name}"
        for i in range(HOSTS)
        for name in ("manifest.json", "share.txt")
    }
    for i in range(HOSTS):
        share = (cloud.bucket / f"b/mine/host-{i}/share.txt").read_text()
        assert share == f"share {i}/{HOSTS}\n"
    # once more: nothing is made, installed or run again
    before = cloud.called()
    assert sorted(before) == ["create", *(f"install {i}" for i in range(HOSTS))]
    assert run(cloud)[0] == 0
    assert (cloud.called(), ran(cloud)) == (before, RUNS)


@pytest.mark.system
def test_a_host_that_fails_keeps_no_rows_from_the_bucket(cloud):
    cloud.trouble.write_text("2 fails")
    code, told = run(cloud)
    assert code == 3, told
    lost = RUNS // HOSTS - 3
    assert rows(cloud.bucket / "b/mine") == RUNS - lost
    assert rows(cloud.home / "results/mine") == RUNS - lost
    assert not (cloud.folder / "ran-here").exists()
    cloud.trouble.unlink()
    code, told = run(cloud)
    assert code == 0, told
    assert rows(cloud.home / "results/mine") == RUNS
    assert ran(cloud) == RUNS
    assert cloud.called().count("create") == 1


@pytest.mark.system
def test_an_interrupted_call_is_continued(cloud):
    cloud.trouble.write_text("all wait at 3")
    process = start(cloud)
    wait_for(lambda: rows(cloud.bucket / "b/mine") == 3 * HOSTS)
    cut(cloud, process)
    # the hosts go on
    cloud.trouble.write_text("all wait at 6")
    wait_for(lambda: rows(cloud.bucket / "b/mine") == 6 * HOSTS)
    # the next call ends what they do
    before = [(cloud.host(i) / "jaxrecall/pids").read_text() for i in range(HOSTS)]
    process = start(cloud)
    wait_for(lambda: not any(map(alive, " ".join(before).split())))
    cloud.trouble.unlink()
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 0, told
    assert rows(cloud.home / "results/mine") == RUNS
    assert ran(cloud) == RUNS
    assert cloud.called().count("create") == 1
    assert not (cloud.folder / "ran-here").exists()


@pytest.mark.system
def test_a_host_that_hangs_keeps_no_rows_from_the_bucket(cloud):
    cloud.trouble.write_text("1 hangs")
    process = start(cloud)
    wait_for(lambda: rows(cloud.bucket / "b/mine") == RUNS * (HOSTS - 1) // HOSTS)
    assert process.poll() is None
    cut(cloud, process)
    cloud.trouble.unlink()
    code, told = run(cloud)
    assert code == 0, told
    assert rows(cloud.home / "results/mine") == RUNS
    assert ran(cloud) == RUNS


@pytest.mark.system
def test_a_machine_that_was_taken_away_is_made_anew(cloud):
    cloud.trouble.write_text("all wait at 3")
    process = start(cloud)
    wait_for(lambda: rows(cloud.bucket / "b/mine") == 3 * HOSTS)
    cloud.stop()
    told, _ = process.communicate(timeout=300)
    assert process.returncode != 0, told
    assert rows(cloud.home / "results/mine") == 3 * HOSTS
    cloud.state.write_text("PREEMPTED")
    cloud.trouble.unlink()
    code, told = run(cloud)
    assert code == 0, told
    assert "jaxrecall is PREEMPTED: it is deleted and made anew" in told
    assert cloud.called().count("create") == 2
    assert cloud.called().count("delete") == 1
    assert rows(cloud.home / "results/mine") == RUNS
    assert ran(cloud) == RUNS


@pytest.mark.system
@pytest.mark.parametrize("state", ["", "CREATING"])
def test_without_a_machine_nothing_runs(cloud, state):
    cloud.refusal.write_text("RESOURCE_EXHAUSTED: no v4-32 in this zone")
    if state:
        cloud.state.write_text(state)
    code, told = run(cloud)
    assert code == 1
    expected = cloud.refusal.read_text()
    if state:
        expected = "jaxrecall is CREATING; try again when it is READY"
    assert expected in told
    assert ran(cloud) == 0
    assert list(cloud.bucket.iterdir()) == []


@pytest.mark.system
def test_a_grid_that_is_refused_costs_no_machine(cloud):
    (cloud.home / "mine.yaml").write_text("seeds: none")
    code, told = run(cloud)
    assert code == 2, told
    assert cloud.called() == []


@pytest.mark.system
def test_shares_on_skypilot(cloud):
    told = yaml.safe_load((ROOT / "sweeps/launch/skypilot.yaml").read_text())

    def share(index: int) -> int:
        """Runs a share on a machine of its own, with a new disk."""
        machines = list(cloud.home.glob("machine-*"))
        folder = cloud.home / f"machine-{len(machines)}"
        folder.mkdir()
        for name in ("mine.yaml", "troubled.py"):
            shutil.copy(cloud.home / name, folder)
        variables = {"SHARE": f"{index}/2", "HOST": str(index), "GRID": "mine.yaml"}
        command = ("bash", "-c", told["run"])
        process = cloud.start(
            *command, folder=folder.name, BUCKET="s3://b/mine", **variables
        )
        process.communicate(timeout=300)
        return process.returncode

    cloud.trouble.write_text("1 fails")
    assert [share(0), share(1)] == [0, 3]
    assert rows(cloud.bucket / "b/mine") == RUNS // 2 + 3
    cloud.trouble.unlink()
    assert [share(0), share(1)] == [0, 0]
    assert rows(cloud.bucket / "b/mine") == ran(cloud) == RUNS
    names = {path.name for path in (cloud.bucket / "b/mine").glob("share-*/*")}
    assert names == {"manifest.json", "share.txt"}
