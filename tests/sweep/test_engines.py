"""The same grid through every engine gives the same rows; workers that die cost
nothing; what always fails is told.

The fast tests have workers whose runs kill or stop them. The other sweeps here are
processes of their own and take seconds of JAX's start for each: they are marked
`system`.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from helpers import METRICS, NO_FIGURE
from pandas.testing import assert_frame_equal
from test_crash import SMALL, Sweeps, check_done
from test_process import children
from tolerances import assert_same_columns

import jaxrecall
from jaxrecall import load
from jaxrecall.status import survey
from jaxrecall.sweep import machine
from jaxrecall.sweep.__main__ import main
from jaxrecall.sweep.running import workers as processes

# --- workers that are in trouble

TROUBLED = '''
"""A simulator whose runs of x = 2 do what the file `trouble` says."""

import os
import signal
import time
from pathlib import Path

import jaxrecall


def fn(point, key):
    if point.x == 9:
        raise RuntimeError("no nine")
    trouble = Path("trouble")
    if point.x == 2 and trouble.exists():
        Path("worker").write_text(str(os.getpid()))
        exec(trouble.read_text())
    return {"accuracy": point.x / 5}


simulator = jaxrecall.Simulator(
    fn,
    fields={"x": (int, None, 1, 9, "traced")},
    columns={"accuracy": (float, "a fraction")},
    accuracy="accuracy",
    jit=False,
)
'''


def troubled(*x: int, seeds: int = 12) -> dict[str, Any]:
    return {
        "simulator": "troubled:simulator",
        "seeds": seeds,
        "run": {"part_seconds": 0},
        "blocks": [{"axes": {"x": [*x]}}],
    }


@pytest.fixture
def trouble(cwd, monkeypatch) -> Path:
    """Beside the module of the simulator, in the current folder."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("troubled.py").write_text(TROUBLED)
    return Path("trouble")


KILL = "os.kill(os.getpid(), signal.SIGKILL)"


def assert_worker_is_gone() -> None:
    pid = Path("worker").read_text()
    assert int(pid) != os.getpid()
    assert not Path("/proc", pid).exists()


def test_a_killed_worker_loses_nothing_and_runs_that_fail_are_told(trouble, capsys):
    def rows(**options: Any) -> Any:
        with pytest.raises(jaxrecall.RunFailed, match="no nine") as failed:
            jaxrecall.run(troubled(1, 2, 3, 9), **options)
        return failed.value.rows.drop(columns="seconds")

    alone = rows(progress=False)
    assert len(alone) == 36
    trouble.write_text(f"trouble.unlink(); {KILL}")
    assert_frame_equal(rows(workers=2), alone)
    told = capsys.readouterr().err
    assert told.count(": killed by SIGKILL; the rest of its runs (") == 1
    assert "36/48 runs" in told
    assert "12 failed" in told
    assert_worker_is_gone()


@pytest.mark.system  # three workers start
def test_a_run_that_costs_three_workers_is_reported_and_the_rest_is_run(
    trouble, capsys
):
    trouble.write_text(KILL)
    Path("mine.json").write_text(json.dumps(troubled(1, 2, seeds=1)))
    assert main(["--grid", "mine.json", "--out", "out", "--workers", "1"]) == 3
    told = capsys.readouterr()
    assert (told.out + told.err).count("(1 run) is given out again") == 2
    facts = survey("out")
    assert (facts["done"], facts["todo"]) == (1, 1)
    (failure,) = facts["failures"]
    assert failure["error"] == "lost: killed by SIGKILL"


def test_without_any_worker_that_starts_every_run_has_failed(trouble, monkeypatch):
    monkeypatch.setattr(processes, "START", "import sys; sys.exit(1)")
    told = "\n4 runs failed, .*no worker starts: exit code 1"
    with pytest.raises(jaxrecall.RunFailed, match=told) as failed:
        jaxrecall.run(troubled(1, 2, seeds=2), workers=2, progress=False)
    assert len(failed.value.rows) == 0


SIGNAL = """
while len([*Path("out/parts").iterdir()]) < 12:  # the other batches are saved
    time.sleep(0.1)
time.sleep(0.3)
os.kill(os.getppid(), signal.SIGTERM)
"""
STOPPING = "stopping when the running batch is finished"


@pytest.mark.parametrize(
    ("then", "told"),
    [
        ("time.sleep(1)", STOPPING),
        (SIGNAL + "time.sleep(1000)", STOPPING),
        ("os.kill(os.getpid(), signal.SIGSTOP)", "no sign of life"),
    ],
    ids=["a batch is finished", "a second signal drops it", "a silent worker is ended"],
)
def test_one_signal_ends_a_sweep_and_keeps_what_is_finished(
    trouble, monkeypatch, capsys, then, told
):
    if told != STOPPING:
        monkeypatch.setattr(processes, "SILENT_SECONDS", 0.5)
    trouble.write_text(f"trouble.unlink()\n{SIGNAL}{then}")
    Path("mine.json").write_text(json.dumps(troubled(1, 2, 3)))
    call = "--grid mine.json --out out --workers 1"
    assert main(call.split()) == 130
    out, err = capsys.readouterr()
    assert told in out + err
    facts = survey("out")
    assert facts["done"] + facts["todo"] == 36
    assert facts["todo"] > 0
    assert (2 in {*load("out").x}) == (then == "time.sleep(1)"), "its batch"
    assert f"To resume: {facts['command']}" in err
    assert_worker_is_gone()


# --- whole sweeps

ALL = ("--set", "seeds.count=125", "--set", "run.part_seconds=0.3")
AT_ONCE = (*ALL, "--set", "run.part_seconds=0")
WORKERS = ("--workers", "2")
RAY = ("--engine", "ray", *WORKERS)
needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="needs ray: pip install '.[ray]'"
)
ENGINES = [WORKERS, pytest.param(RAY, marks=needs_ray)]

PROGRAMS = os.environ["JAX_COMPILATION_CACHE_DIR"]
"""Those that other tests compiled."""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture
def sweeps(home) -> Sweeps:
    return Sweeps(home, "small", SMALL, PROGRAMS)


@pytest.fixture(scope="module")
def alone(home) -> Path:
    """The folder of 500 runs by this process."""
    out = home / "alone"
    words = Sweeps(home, "small", SMALL).command(out, *NO_FIGURE, *ALL)
    assert main(words[3:]) == 0
    return out


def assert_same_rows(a: Path, b: Path) -> None:
    """No run missing or twice, equal draws, metrics within float tolerance."""
    exact = ("point_id", "seed", "draw_check", "status")
    assert_same_columns(load(a), load(b), [*exact, *METRICS])


@pytest.mark.system
def test_runs_turned_away_by_a_guard_side_by_side_as_on_an_accelerator(
    sweeps, tmp_path
):
    body = "from jaxrecall.simulator import program; program.on_cpu = lambda: False"
    # whose errors are not foreseen
    mlp = "--set base.m=8 --set base.activation=identity"
    one = ("--set", "seeds.count=1")
    check_done(sweeps.run(tmp_path, *one, *mlp.split(), body=body), 4)
    assert {*load(tmp_path)["form"]} == {"full"}


@pytest.mark.system
@pytest.mark.parametrize("workers", ENGINES)
def test_two_workers_compile_nothing_that_is_kept(workers, alone, tmp_path):
    cache = tmp_path / "programs"
    sweeps = Sweeps(tmp_path, "small", SMALL, str(cache))
    sweeps.run(tmp_path / "compile", *ALL, *workers)
    before = {*cache.glob("*.program")}
    assert before
    body = (  # the parent needs none
        "import atexit, os\natexit.register(lambda: 'jax' in sys.modules and"
        " os._exit(9))"
    )
    ended = sweeps.run(tmp_path / "out", *ALL, *workers, body=body)
    check_done(ended, 500)
    assert ended["told"] == []
    assert {*cache.glob("*.program")} == before
    assert_same_rows(tmp_path / "out", alone)
    batches = [event for event in ended["events"] if event["event"] == "batch"]
    assert sum(batch["rows"] for batch in batches) == 500
    again = sweeps.run(tmp_path / "out", *ALL, *workers)
    assert [event["event"] for event in again["events"]] == ["start", "picture", "done"]


FAILING = """
name: failing
limits: {max_bytes: 1e15}
base: {V: 20, N: 100, L: 2, n_test: 10, exact: full}
blocks:
  - axes: {d: [8, 12]}
  - axes: {d: [60000], m: [1000000], V: [60000]}   # tables that no machine holds
"""


@pytest.mark.system
@pytest.mark.parametrize("engine", [(), *ENGINES], ids=str)
def test_a_chunk_that_always_fails_is_told_and_the_rest_goes_on(
    sweeps, tmp_path, engine
):
    grid, out = tmp_path / "failing.yaml", tmp_path / "out"
    grid.write_text(FAILING)
    words = ["-m", "jaxrecall.sweep", "--grid", str(grid), "--out", str(out), *engine]
    ended = subprocess.run(
        [sys.executable, *words], env=sweeps.env, capture_output=True, text=True
    )
    facts = survey(out)
    assert (ended.returncode, facts["done"], facts["todo"]) == (3, 2, 1), ended.stderr
    assert ended.stderr.count("failed: 1 run of program 6") == 1, ended.stderr
    assert "given out again" not in ended.stderr, "it costs no worker"
    (record,) = facts["failures"]
    assert "memory" in record["error"]
    assert "--grid" in record["repeat"]


def test_cores_and_devices_are_shared_out(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 4, 5, 6, 9})
    for size, cores in ((1, [5]), (2, [2, 3]), (5, [1] * 5), (7, [1] * 7)):
        shares = [machine.cores_of_worker(i, size) for i in range(size)]
        assert [*map(len, shares)] == cores
        assert {core for share in shares for core in share} == {3, 4, 5, 6, 9}
    visible = {"CUDA_VISIBLE_DEVICES": "2,GPU-7"}
    for other in (visible | {"JAX_PLATFORMS": "cpu"}, {"CUDA_VISIBLE_DEVICES": "-1"}):
        assert machine.environment_of_worker(1, 2, other) == other
    memory = "XLA_PYTHON_CLIENT_MEM_FRACTION"
    for size, share in ((2, {}), (3, {memory: "0.450"})):
        for i, device in enumerate(["2", "GPU-7", "2"][:size]):
            env = machine.environment_of_worker(i, size, visible)
            assert env == share | {"CUDA_VISIBLE_DEVICES": device}


# --- Ray


def below(pid: int, name: str) -> list[int]:
    """Processes below a process, at any depth, whose command line has the name in its
    first word.
    """
    all_below, found = [pid], []
    for one in all_below:
        with suppress(OSError):  # it may end at any time
            all_below += children(one)
            words = Path(f"/proc/{one}/cmdline").read_text().split("\0")
            found += [one] * (name in words[0])
    return found


def wait_for(sweep: subprocess.Popen[str], name: str) -> int:
    """The first process of that name below the sweep, once there is one."""
    while not (found := below(sweep.pid, name)):
        assert sweep.poll() is None, sweep.communicate()
        time.sleep(0.05)
    return found[0]


@contextmanager
def ended_at_last(
    process: subprocess.Popen[str], number: int = signal.SIGKILL
) -> Iterator[None]:
    try:
        yield
    finally:
        process.send_signal(number)


NODES = """
import os, subprocess, sys, json, time
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1, include_dashboard=False) for _ in range(2)]
sweep = subprocess.Popen([*sys.argv[1:], "--ray-address", cluster.address], stdout=subprocess.PIPE, text=True)
try:
    parts = 0
    for line in sweep.stdout:
        print(line, end="", flush=True)
        parts += json.loads(line)["event"] == "part"
        if parts == 1 and nodes:
            cluster.remove_node(nodes[0], allow_graceful=False)
            nodes = []
    code = sweep.wait()
finally:
    sweep.kill()
    cluster.shutdown()
sys.exit(code)
"""  # noqa: E501


@pytest.mark.system
@needs_ray
def test_a_ray_node_that_goes_away_costs_nothing(sweeps, alone, tmp_path):
    """Of a cluster of a head without CPUs and two nodes; it goes at the first part."""
    sweep = sweeps.command(tmp_path, *AT_ONCE, "--engine", "ray")
    call = [sys.executable, "-c", NODES, *sweep]
    ended = subprocess.run(
        call, env=sweeps.env, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    done = json.loads(lines[-1])
    assert (done["runs_executed"], done["failed"]) == (500, 0)
    assert "is given out again" in ended.stdout
    assert_same_rows(tmp_path, alone)


@contextmanager
def cluster(
    env: dict[str, str], cpus: int = 1
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a Ray cluster of its own, and the process that started it."""
    ray = str(Path(sys.executable).with_name("ray"))
    words = "start --head --port=0 --include-dashboard=false --block"
    with TemporaryDirectory(prefix="ray") as logs:  # short: it holds sockets
        more = [f"--num-cpus={cpus}", f"--temp-dir={logs}"]
        command = [ray, *words.split(), *more]
        with (
            subprocess.Popen(command, env=env, stdout=-1, stderr=-2, text=True) as head,
            ended_at_last(head, signal.SIGTERM),
        ):
            lines = (line for line in head.stdout if "ray start --address=" in line)
            yield next(lines).split("'")[1], head


@pytest.mark.system
@needs_ray
def test_a_cluster_that_asks_for_a_token(sweeps, tmp_path):
    env = {**sweeps.env, "HOME": str(tmp_path)}
    token = env | {"RAY_AUTH_MODE": "token"}
    env.pop("RAY_AUTH_MODE", None)
    make = [Path(sys.executable).with_name("ray"), "get-auth-token", "--generate"]
    subprocess.run(make, env=env, check=True, capture_output=True)
    with cluster(token) as (address, _):
        join = ("--engine", "ray", "--ray-address", address, "--set", "seeds.count=1")
        call = sweeps.command(tmp_path / "out", *join)

        def called(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                call, env=env, capture_output=True, text=True, timeout=300
            )

        for other in (env, token | {"RAY_AUTH_TOKEN": "0" * 32}):
            refused = called(other)
            assert (refused.returncode, refused.stdout) == (2, "")
            last = refused.stderr.splitlines()[-1]
            assert last.startswith(f"--ray-address: no Ray at {address} (it asks for a")
            assert "RAY_AUTH_MODE=token must be set here" in last
        given = called(token)
        assert given.returncode == 0, given.stderr
    assert len(load(tmp_path / "out")) == 4


@pytest.mark.system
@needs_ray
def test_a_ray_of_the_sweep_listens_on_loopback_and_asks_for_a_token(sweeps, tmp_path):
    """Its other processes are those of Ray, which serve the cluster."""
    psutil = pytest.importorskip("psutil")
    sweeps.env["HOME"] = str(tmp_path)
    with sweeps.start(tmp_path / "out", *ALL, *RAY) as sweep, ended_at_last(sweep):
        wait_for(sweep, "compute_share")
        names = ("gcs_server", "raylet", "compute_share")
        pids = [pid for name in names for pid in below(sweep.pid, name)]
        hosts, modes = set(), set()
        for process in map(psutil.Process, pids):
            modes.add(process.environ().get("RAY_AUTH_MODE"))
            for one in process.net_connections():
                if one.status == "LISTEN":
                    hosts.add(one.laddr.ip.removeprefix("::ffff:"))
        assert (hosts, modes) == ({"127.0.0.1"}, {"token"})
        token = tmp_path / ".ray/auth_token"
        assert token.read_text()
        paths = (token, token.parent)
        assert [path.stat().st_mode & 0o777 for path in paths] == [0o600, 0o700]
        sweep.send_signal(signal.SIGTERM)
        sweep.communicate(timeout=100)


@pytest.mark.system
@needs_ray
def test_ray_workers_find_modules_in_the_current_folder(trouble, sweeps):
    Path("mine.yaml").write_text(json.dumps(troubled(1, 2)))
    words = ["-m", "jaxrecall.sweep", "--grid", "mine.yaml", "--out", "out", *RAY]
    subprocess.run([sys.executable, *words], env=sweeps.env, check=True)
    assert len(load("out")) == 24


# --- what the command line says


@pytest.fixture
def small(cwd) -> Callable[..., int]:
    """Calls the command in a folder with the grid."""
    Path("small.yaml").write_text(SMALL)
    return lambda *words: main(["--grid", "small.yaml", *words])


@needs_ray
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "ray://127.0.0.1:1"])
def test_an_address_without_ray_is_one_line_and_leaves_nothing(small, capsys, address):
    assert small("--engine", "ray", "--ray-address", address) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"--ray-address: no Ray at {address} (")
    assert os.listdir() == ["small.yaml"]


@pytest.mark.parametrize(
    ("words", "told", "workers", "requests"),
    [
        ("", "runs in this process", None, {}),
        ("--workers 3", "runs in 3 workers of this machine", 3, {}),
        ("--workers 1000", "runs in 96 workers of this machine", 96, {}),
        pytest.param(
            "--engine ray --workers 1000 --worker-resource GPU=0.5",
            "runs in 96 workers of a Ray that is started on this machine, each with"
            " CPU=1, GPU=0.5",
            96,
            {"CPU": 1.0, "GPU": 0.5},
            marks=needs_ray,
        ),
    ],
)
def test_a_dry_run_says_what_would_run_it(
    small, capsys, words, told, workers, requests
):
    """No more workers than there are runs."""
    assert small("--dry-run", *words.split()) == 0
    assert capsys.readouterr().out.splitlines()[-1] == told
    assert small("--dry-run", "--json", *words.split()) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["workers"], facts["requests"]) == (workers, requests)
    assert facts["engine"] == ("ray" if "ray" in words else "local")


def test_a_missing_extra_is_named(small, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert small("--engine", "ray", "--workers", "2") == 2
    assert 'pip install "jaxrecall[ray]"' in capsys.readouterr().err
