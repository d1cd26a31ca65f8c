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
    parts = sorted((folder / "parts").glob("*.parquet"))  # others are being copied
    if not parts:
        return 0
    table = jaxrecall.load(parts)
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
    """How many runs were computed, the lost ones too, none of them at home."""
    assert not (cloud.folder / "ran-here").exists()
    return sum(path.stat().st_size for path in cloud.folder.glob("ran-*"))


def kept(cloud: Cloud) -> Path:
    """The results in the bucket."""
    return cloud.bucket / "b/mine"


def check_continued(cloud: Cloud) -> None:
    """The same line computes what is missing, and nothing twice."""
    cloud.trouble.unlink(missing_ok=True)
    code, told = run(cloud)
    assert code == 0, told
    check_whole(cloud)


def check_whole(cloud: Cloud) -> None:
    assert rows(cloud.home / "results/mine") == RUNS
    assert ran(cloud) == RUNS


def check_waiting(cloud: Cloud, n: int) -> None:
    """So many rows of every host come to the bucket."""
    wait_for(lambda: rows(kept(cloud)) == n * HOSTS)


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
    check_continued(cloud)
    results = cloud.home / "results/mine"
    assert rows(kept(cloud)) == RUNS
    assert (results / "accuracy.png").exists()
    assert {*jaxrecall.load(results).chips} == {3}
    # each host has the right share and a manifest of its own
    names = {f"host-{i}/manifest.json" for i in range(HOSTS)}
    for i in range(HOSTS):
        names.add(f"host-{i}/share.txt")
        share = (kept(cloud) / f"host-{i}/share.txt").read_text()
        assert share == f"share {i}/{HOSTS}\n"
    files = {path for path in kept(cloud).rglob("*") if path.is_file()}
    files -= {*(kept(cloud) / "parts").iterdir()}
    assert {str(path.relative_to(kept(cloud))) for path in files} == names
    # once more: nothing is made, installed or run again
    before = cloud.called()
    assert sorted(before) == ["create", *(f"install {i}" for i in range(HOSTS))]
    check_continued(cloud)
    assert cloud.called() == before


@pytest.mark.system
def test_an_interrupted_call_is_continued(cloud):
    cloud.trouble.write_text("all wait at 3")
    process = start(cloud)
    check_waiting(cloud, 3)
    cut(cloud, process)
    # the hosts go on
    cloud.trouble.write_text("all wait at 6")
    check_waiting(cloud, 6)
    # the next call ends what they do
    before = [(cloud.host(i) / "jaxrecall/pids").read_text() for i in range(HOSTS)]
    process = start(cloud)
    wait_for(lambda: not any(map(alive, " ".join(before).split())))
    cloud.trouble.unlink()
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 0, told
    check_whole(cloud)
    assert cloud.called().count("create") == 1


@pytest.mark.system
def test_a_host_that_hangs_keeps_no_rows_from_the_bucket(cloud):
    cloud.trouble.write_text("1 hangs")
    process = start(cloud)
    wait_for(lambda: rows(kept(cloud)) == RUNS * (HOSTS - 1) // HOSTS)
    assert process.poll() is None
    cut(cloud, process)
    check_continued(cloud)


@pytest.mark.system
def test_a_machine_that_was_taken_away_is_made_anew(cloud):
    cloud.trouble.write_text("all wait at 3")
    process = start(cloud)
    check_waiting(cloud, 3)
    cloud.stop()
    told, _ = process.communicate(timeout=300)
    assert process.returncode != 0, told
    assert rows(cloud.home / "results/mine") == 3 * HOSTS
    cloud.state.write_text("PREEMPTED")
    check_continued(cloud)
    calls = cloud.called()
    assert (calls.count("create"), calls.count("delete")) == (2, 1)


@pytest.mark.system
@pytest.mark.parametrize(
    ("state", "told"),
    [("", "RESOURCE_EXHAUSTED"), ("CREATING", "try again when")],
)
def test_without_a_machine_nothing_runs(cloud, state, told):
    cloud.refusal.write_text("RESOURCE_EXHAUSTED: no v4-32 in this zone")
    if state:
        cloud.state.write_text(state)
    code, said = run(cloud)
    assert code == 1
    assert told in said
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
    launch = yaml.safe_load((ROOT / "sweeps/launch/skypilot.yaml").read_text())

    def share(index: int) -> int:
        """Runs a share on a machine of its own, with a new disk."""
        folder = f"machine-{len(list(cloud.home.glob('machine-*')))}"
        (cloud.home / folder).mkdir()
        for name in ("mine.yaml", "troubled.py"):
            shutil.copy(cloud.home / name, cloud.home / folder)
        variables = {"SHARE": f"{index}/2", "HOST": str(index), "GRID": "mine.yaml"}
        variables["BUCKET"] = "s3://b/mine"
        process = cloud.start("bash", "-c", launch["run"], folder=folder, **variables)
        process.communicate(timeout=300)
        return process.returncode

    cloud.trouble.write_text("1 fails")
    assert [share(0), share(1)] == [0, 3]
    assert rows(kept(cloud)) == RUNS // 2 + 3
    cloud.trouble.unlink()
    assert [share(0), share(1)] == [0, 0]
    assert rows(kept(cloud)) == ran(cloud) == RUNS
    names = {path.name for path in kept(cloud).glob("share-*/*")}
    assert names == {"manifest.json", "share.txt"}
