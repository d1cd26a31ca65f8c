"""The same grid through every engine gives the same rows; workers that die cost
nothing; what always fails is told.

Which worker gets what is tested on workers that follow a script. The other sweeps here
are processes of their own: one whose worker is killed is part of every run, the rest
takes seconds of JAX's start for each process and is marked `system`.
"""

import importlib
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from helpers import NO_FIGURE, ROOT, assert_same_metrics, python
from test_crash import SMALL, Sweeps, quiet, same
from test_store import rows

from jaxrecall import Point, load
from jaxrecall.cli.process import Interrupts
from jaxrecall.errors import plural
from jaxrecall.model.columns import CODE_VERSION
from jaxrecall.model.point import Run, RunId
from jaxrecall.simulator import program
from jaxrecall.status import survey
from jaxrecall.sweep import plan
from jaxrecall.sweep.__main__ import main
from jaxrecall.sweep.grid import read_grid
from jaxrecall.sweep.grid.file import Settings
from jaxrecall.sweep.machine import cores
from jaxrecall.sweep.plan import Chunk
from jaxrecall.sweep.running import workers as processes
from jaxrecall.sweep.running.call import Call
from jaxrecall.sweep.running.job import carry_out, prepare
from jaxrecall.sweep.running.progress import Failure, Shown
from jaxrecall.sweep.running.workers import (
    MAX_FAILED_STARTS,
    MOST_SECONDS,
    TRIES,
    Event,
    Place,
    Setup,
    Worker,
    Workers,
)
from jaxrecall.sweep.store import MemoryStore

ALL = ("--set", "seeds.count=125", "--set", "run.part_seconds=0.3")


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder with the grid, where compiled programs are kept."""
    folder = tmp_path_factory.mktemp("engines")
    (folder / "small.yaml").write_text(SMALL)
    return folder


@pytest.fixture(scope="module")
def sweeps(home) -> Sweeps:
    """With the programs that other tests compiled."""
    return in_cache(Sweeps(home, "small"), os.environ["JAX_COMPILATION_CACHE_DIR"])


def in_cache(sweeps: Sweeps, folder: str) -> Sweeps:
    sweeps.env["JAX_COMPILATION_CACHE_DIR"] = folder
    return sweeps


@pytest.fixture(scope="module")
def with_own_cache(home) -> Sweeps:
    """Their programs alone are in a folder, and compiled."""
    sweeps = in_cache(Sweeps(home, "small"), str(home / "programs"))
    assert sweeps.run(home / "compile", "--set", "seeds.count=1")["exit_code"] == 0
    return sweeps


def by_one_process(home: Path, out: Path, *more: str) -> Path:
    """The folder of the grid's runs by this process."""
    assert (
        main(
            [
                "--grid",
                str(home / "small.yaml"),
                "--bucket",
                "20x12",
                "--out",
                str(out),
                *NO_FIGURE,
                *more,
            ]
        )
        == 0
    )
    return out


@pytest.fixture(scope="module")
def alone(home) -> Path:
    """Of 500 runs."""
    folder = by_one_process(home, home / "alone", *ALL)
    assert len(load(folder)) == 500
    return folder


def programs(home: Path) -> set[str]:
    return {
        path.name
        for path in (home / "programs").iterdir()
        if path.name.endswith("-cache")
    }


def assert_same_rows(a: Path, b: Path, seeds: int = 125) -> None:
    """No run of so many seeds missing or twice, equal draws, metrics within float
    tolerance.
    """
    a, b = quiet(a), quiet(b)
    b = b[b["seed"] < seeds].reset_index(drop=True)
    assert a[["point_id", "seed", "draw_check", "status"]].equals(
        b[["point_id", "seed", "draw_check", "status"]]
    )
    for x, y in zip(a.to_dict("records"), b.to_dict("records"), strict=True):
        assert_same_metrics(x, y)


def children(pid: int) -> list[int]:
    return [
        int(child)
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ]


@pytest.mark.system
def test_two_devices(sweeps, alone, tmp_path):
    sweeps.env = {**sweeps.env, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = sweeps.run(tmp_path, *ALL)
    del sweeps.env["XLA_FLAGS"]
    assert (done["exit_code"], done["runs_executed"]) == (0, 500), done["err"]
    assert_same_rows(tmp_path, alone)


@pytest.mark.system
def test_runs_turned_away_by_a_guard_side_by_side_as_on_an_accelerator(
    sweeps, tmp_path
):
    body = "from jaxrecall.simulator import program; program.on_cpu = lambda: False"
    # whose errors are not foreseen
    mlp = (
        "--set",
        "base.m=8",
        "--set",
        "base.activation=identity",
        "--bucket",
        "20x12x8",
    )
    done = sweeps.run(tmp_path, "--set", "seeds.count=1", *mlp, body=body)
    assert (done["exit_code"], done["runs_executed"], done["failed"]) == (
        0,
        4,
        0,
    ), done["err"]
    assert set(quiet(tmp_path)["form"]) == {"full"}


@pytest.mark.system
def test_four_shards_in_sequence(sweeps, alone, tmp_path):
    counts = [
        sweeps.run(tmp_path, *ALL, "--shard", f"{i}/4")["runs_executed"]
        for i in range(4)
    ]
    assert sum(counts) == 500
    assert all(100 <= n <= 160 for n in counts)
    assert_same_rows(tmp_path, alone)


@pytest.mark.system
def test_two_workers_compile_nothing_that_is_kept(
    with_own_cache, home, alone, tmp_path
):
    sweeps = with_own_cache
    before = programs(home)
    body = (  # the parent needs none
        "import atexit, os\natexit.register(lambda: 'jax' in sys.modules and"
        " os._exit(9))"
    )
    done = sweeps.run(tmp_path, *ALL, "--workers", "2", body=body)
    assert (done["exit_code"], done["runs_executed"], done["failed"]) == (
        0,
        500,
        0,
    ), done["err"]
    assert before
    assert programs(home) == before
    assert_same_rows(tmp_path, alone)
    assert (
        sum(event["rows"] for event in done["events"] if event["event"] == "batch")
        == 500
    )
    again = sweeps.run(tmp_path, *ALL, "--workers", "2")
    assert [event["event"] for event in again["events"]] == ["start", "picture", "done"]


def test_a_worker_compiles_a_program_once_whatever_chunks_it_gets():
    points = [Point(V=20, N=100, d=d, L=3, n_test=64, exact="full") for d in (8, 12)]
    settings = Settings(part_seconds=0.0)
    whole = plan.make_plan(
        [Run(point, seed) for point in points for seed in range(30)],
        (20, 12, 0),
        settings=settings,
    )
    events: list[Event] = []
    program.forget()
    worker = Worker(Setup(), events.append)
    (chunk,) = whole.chunks
    for i in range(0, 60, 10):
        part = replace(chunk, runs=chunk.runs[i : i + 10])
        events += worker.rows(pickle.dumps((part, replace(whole, chunks=()))))
    assert sum(len(traces) for name, *_, traces in events if name == "took") == 60
    assert program.n_compiled() == 1


class ScriptedWorkers(Workers):
    """Workers that answer at once: `script(workers, runs)` gives the events after a
    chunk, `starts` whether a worker gets ready.
    """

    def __init__(
        self,
        script: Callable[..., list[Event]],
        starts: Callable[[int], bool] = lambda worker: True,
    ):
        self.script, self.starts = script, starts
        self.queue: list[tuple[Place, Event]] = []
        self.chunks: list[tuple[int, Chunk]] = []
        self.started: list[int] = []
        self.ended: list[int] = []
        super().__init__(2, cores() / 2)

    def start(self, place: Place) -> None:
        self.started.append(place.number)
        self.queue.append(
            (place, ("ready",) if self.starts(place.number) else lost("exit code 1"))
        )

    def end(self, place: Place) -> None:
        self.ended.append(place.number)
        self.queue = [
            (other, event) for other, event in self.queue if other is not place
        ]

    def give(self, place: Place, message: bytes) -> None:
        chunk, _ = pickle.loads(message)
        self.chunks.append((place.number, chunk))
        self.queue += [(place, event) for event in self.script(self, chunk.runs)]

    def events(self, seconds: float) -> list[tuple[Place, Event]]:
        assert self.queue, "waits for ever"
        return [self.queue.pop(0)]

    def close(self) -> None: ...

    def ids(self) -> list[list[RunId]]:
        """The runs of the chunks that were sent."""
        return [[run.id for run in chunk.runs] for _, chunk in self.chunks]


def lost(how: str) -> Event:
    return "lost", Failure(f"lost: {how}", "", "box")


def finished(runs: Sequence[Run]) -> Event:
    made_up = rows(*range(len(runs)), code_version=CODE_VERSION)
    return (
        "took",
        [run.id for run in runs],
        [[row | run.id._asdict()] for row, run in zip(made_up, runs, strict=True)],
    )


def whole(workers: ScriptedWorkers, runs: Sequence[Run]) -> list[Event]:
    return [finished(runs), ("ended",)]


def test_chunks_are_fair_and_keep_to_programs():
    """Large ones first, small ones at the end; a free worker stays at its program, else
    goes where the fewest are.
    """
    points = [
        Point(V=64, N=N, d=d, L=8) for d in (16, 4000) for N in (10**6, 4 * 10**6)
    ]
    both = plan.make_plan([Run(point, seed) for point in points for seed in range(200)])
    assert len(both.peaks) == 2
    workers = ScriptedWorkers(lambda *_: [("ended",)])
    workers.execute(both, Call(MemoryStore()))
    chunks = [chunk for _, chunk in workers.chunks]
    assert chunks[0].program != chunks[1].program
    assert sorted((p.point_id, s) for chunk in chunks for p, s in chunk.runs) == sorted(
        (p.point_id, s) for p in points for s in range(200)
    )
    assert sum(chunk.seconds for chunk in chunks) == pytest.approx(
        sum(chunk.seconds for chunk in both.chunks)
    )
    longest = max(
        both.seconds_of(Run(point, 0), shape)
        for point in points
        for shape in both.peaks
    )
    assert all(chunk.seconds <= MOST_SECONDS / 2 + longest for chunk in chunks)
    assert chunks[-1].seconds < chunks[0].seconds / 2
    for worker in (0, 1):
        shapes = [chunk.program for other, chunk in workers.chunks if other == worker]
        changes = sum(a != b for a, b in itertools.pairwise(shapes))
        assert changes <= 1, "it has left its program while some of it was left"


def scripted(
    tmp_path: Path, workers: ScriptedWorkers, interrupts: Interrupts | None = None
) -> tuple[Call, list[str], dict[str, Any]]:
    """What became of 96 runs by the workers, what was said, and what the folder
    holds.
    """
    (tmp_path / "small.yaml").write_text(SMALL)
    job = prepare(read_grid(tmp_path / "small.yaml"), tmp_path / "out")
    said: list[Shown] = []
    call = carry_out(job, workers.execute, said.append, interrupts or Interrupts())
    return (
        call,
        [shown.line for shown in said if shown.event in ("message", "failed")],
        survey(tmp_path / "out"),
    )


def test_what_is_left_of_a_lost_worker_s_chunk_goes_to_another(tmp_path):
    def script(workers: ScriptedWorkers, runs: Sequence[Run]) -> list[Event]:
        return (
            [finished(runs[:2]), lost("killed by SIGKILL")]
            if len(workers.chunks) == 1
            else whole(workers, runs)
        )

    workers = ScriptedWorkers(script)
    call, messages, folder = scripted(tmp_path, workers)
    first, *others = workers.ids()
    assert (call.runs, call.exit_code, folder["todo"]) == (96, 0, 0)
    assert messages == [
        f"worker 0: killed by SIGKILL; another one takes its {len(first) - 2} runs"
    ]
    assert sorted(workers.started) == [0, 0, 1], "another is started in its place"
    given = [run for runs in (first, *others) for run in runs]
    assert sorted(given) == sorted([*call.accuracy, *first[2:]]), (
        "nothing else is run twice"
    )


@pytest.mark.parametrize("how", ["fails", "dies"])
def test_runs_that_cost_too_many_workers_are_reported_and_the_rest_is_run(
    tmp_path, how
):
    culprits = []
    event = (
        ("lost", Failure("ValueError: no good", "", "box"))
        if how == "fails"
        else lost("exit code 1")
    )

    def script(workers: ScriptedWorkers, runs: Sequence[Run]) -> list[Event]:
        culprits[:] = culprits or [runs[0]]
        return [event] if culprits[0] in runs else whole(workers, runs)

    workers = ScriptedWorkers(script)
    call, messages, folder = scripted(tmp_path, workers)
    chunks = workers.ids()
    tried = [runs for runs in chunks if culprits[0].id in runs]
    gone = set(chunks[0]).intersection(*tried)
    assert len(tried) == TRIES
    assert (call.runs, len(call.failures), call.exit_code) == (
        96 - len(gone),
        1,
        3,
    )
    assert (folder["done"], folder["todo"]) == (96 - len(gone), len(gone))
    assert sum("; another one takes its " in line for line in messages) >= TRIES - 1
    assert [
        line.partition(" of program")[0] for line in messages if "of program" in line
    ] == [f"failed: {plural(len(gone), 'run')}"]
    (failure,) = folder["failures"]
    assert failure["error"] == (
        "ValueError: no good" if how == "fails" else "lost: exit code 1"
    )


def test_a_worker_that_never_starts_is_left_out(tmp_path):
    workers = ScriptedWorkers(whole, starts=lambda worker: worker == 1)
    call, _, folder = scripted(tmp_path, workers)
    assert (call.runs, call.exit_code, folder["todo"]) == (96, 0, 0)
    assert 1 < workers.started.count(0) <= 1 + MAX_FAILED_STARTS
    assert {worker for worker, _ in workers.chunks} == {1}


def test_without_any_worker_that_starts_every_run_has_failed(tmp_path):
    workers = ScriptedWorkers(whole, starts=lambda worker: False)
    call, messages, folder = scripted(tmp_path, workers)
    assert (call.runs, call.exit_code, folder["done"], folder["todo"]) == (
        0,
        3,
        0,
        96,
    )
    assert workers.chunks == []
    assert [workers.started.count(worker) for worker in (0, 1)] == [
        1 + MAX_FAILED_STARTS
    ] * 2
    assert messages[-1].startswith("failed: 96 runs of program ")
    (failure,) = folder["failures"]
    assert (failure["runs"], failure["error"]) == (96, "no worker starts: exit code 1")


@pytest.mark.parametrize("signals", [1, 2])
def test_a_signal_stops_the_workers_and_a_second_one_drops_their_batches(
    tmp_path, signals
):
    interrupts = Interrupts()

    class Signalled(ScriptedWorkers):
        def end(self, place: Place) -> None:
            super().end(place)
            if signals == 2:
                interrupts._handle(signal.SIGINT, None)

    def script(workers: ScriptedWorkers, runs: Sequence[Run]) -> list[Event]:
        if len(workers.chunks) == 2:
            interrupts._handle(signal.SIGTERM, None)
        return [finished(runs[:1]), finished(runs[1:2])]

    workers = Signalled(script)
    call, messages, folder = scripted(tmp_path, workers, interrupts)
    assert len(workers.chunks) == 2, "nothing more is started"
    assert workers.ended == [0, 1][: 3 - signals], "each with its batch"
    assert (call.exit_code, call.failures) == (130, {})
    assert call.runs == folder["done"] == (2 if signals == 1 else 1), (
        "one was handed in before"
    )
    assert [line.partition(";")[0] for line in messages] == [
        "stopping when the running batch is finished"
    ]


@pytest.mark.system  # scripted workers are lost in the fast run, above
def test_a_killed_worker_loses_nothing(sweeps, home, tmp_path):
    def kill(sweep: subprocess.Popen[str], n: int) -> None:
        if n == 1:
            os.kill(children(sweep.pid)[0], signal.SIGKILL)

    seeds = ("--set", "seeds.count=16")
    done = sweeps.run(
        tmp_path / "killed", *seeds, *NO_FIGURE, "--workers", "2", act=kill
    )
    assert (done["exit_code"], done["runs_executed"], done["failed"]) == (
        0,
        64,
        0,
    ), done["err"]
    told = [event["text"] for event in done["events"] if event["event"] == "message"]
    assert [
        text.startswith("worker 0: killed by SIGKILL; another one takes its ")
        for text in told
    ] == [True], told
    assert_same_rows(
        tmp_path / "killed", by_one_process(home, tmp_path / "alone", *seeds), seeds=16
    )


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_all_processes_keeps_what_is_finished(
    sweeps, alone, tmp_path, number
):
    """A terminal and Slurm send their signals to parent and workers alike."""

    def end(sweep: subprocess.Popen[str], n: int) -> None:
        if n == 1:
            for pid in (*children(sweep.pid), sweep.pid):
                os.kill(pid, number)

    stopped = sweeps.run(
        tmp_path, *ALL, "--set", "run.part_seconds=0", "--workers", "2", act=end
    )
    assert (stopped["returncode"], stopped["interrupted"]) == (130, True), stopped[
        "err"
    ]
    told = [event["text"] for event in stopped["events"] if event["event"] == "message"]
    assert [text.partition(";")[0] for text in told] == [
        "stopping when the running batch is finished"
    ], "no worker was lost"
    left = survey(tmp_path)["todo"]
    assert 0 < left < 500
    assert left == 500 - stopped["runs_executed"]
    done = sweeps.run(tmp_path, *ALL, "--workers", "2")
    assert (done["exit_code"], done["runs_executed"]) == (0, left)
    assert_same_rows(tmp_path, alone)


@contextmanager
def ended_at_last(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()


@contextmanager
def killed_at_last(sweep: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        sweep.kill()


# a run takes hours
ENDLESS = (
    "--set",
    "blocks.0.axes.N=[1000000000]",
    "--workers",
    "2",
)


@pytest.mark.system
def test_a_second_signal_drops_the_batches_and_the_workers(sweeps, alone, tmp_path):
    with sweeps.start(tmp_path, *ENDLESS) as sweep, killed_at_last(sweep):
        assert any('"compiled"' in line for line in sweep.stdout)
        workers = children(sweep.pid)
        sweep.send_signal(signal.SIGTERM)
        assert any("A second signal drops it" in line for line in sweep.stdout)
        sweep.send_signal(signal.SIGINT)
        assert sweep.wait(timeout=60) == 130
    assert len(workers) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


FAILING = """
name: failing
limits: {max_bytes: 1000TiB}
base: {V: 20, N: 100, L: 2, n_test: 10, exact: full}
blocks:
  - axes: {d: [8, 12]}
  - axes: {d: [60000], m: [1000000], V: [60000]}   # tables that no machine holds
"""


def failing(
    home: Path, tmp_path: Path, *more: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    (tmp_path / "failing.yaml").write_text(FAILING)
    call = [
        sys.executable,
        "-m",
        "jaxrecall.sweep",
        "--grid",
        str(tmp_path / "failing.yaml"),
        "--out",
        str(tmp_path / "out"),
        *more,
    ]
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JAXRECALL_CACHE": str(home / "cache"),
    }
    done = subprocess.run(call, env=env, capture_output=True, text=True, timeout=300)
    return done, survey(tmp_path / "out")


def check_failing(
    done: subprocess.CompletedProcess[str], facts: dict[str, Any]
) -> None:
    assert done.returncode == 3, done.stderr
    assert (facts["done"], facts["todo"]) == (2, 1)
    assert (
        len([line for line in done.stderr.splitlines() if line.startswith("failed: ")])
        == 1
    ), done.stderr
    assert "another one takes" not in done.stderr, (
        "a run that no memory holds costs no worker"
    )
    (record,) = facts["failures"]
    assert "memory" in record["error"]
    assert "--grid" in record["repeat"]


@pytest.mark.system
def test_a_chunk_that_always_fails_is_told_and_the_rest_goes_on(home, tmp_path):
    check_failing(*failing(home, tmp_path, "--workers", "2"))


SEARCH = """
name: search
base: {V: 16, d: 16, L: 3, n_test: 200, exact: full}
seeds: {count: 12}
search: {axis: N, theta: 0.5, to: 4096, max_runs: 60}
"""


@pytest.mark.system
def test_a_search_by_workers_requests_the_same_runs(home, tmp_path):
    grid = tmp_path / "search.yaml"
    grid.write_text(SEARCH)
    for name, more in (("one", ()), ("two", ("--workers", "2"))):
        call = [
            sys.executable,
            "-m",
            "jaxrecall.sweep",
            "--grid",
            str(grid),
            "--out",
            str(tmp_path / name),
            *more,
        ]
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "JAXRECALL_CACHE": str(home / "cache"),
        }
        done = subprocess.run(
            call, env=env, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
    same(quiet(tmp_path / "one"), quiet(tmp_path / "two"))
    assert (tmp_path / "one/search.json").read_text() == (
        tmp_path / "two/search.json"
    ).read_text()


MINE = """
from jaxrecall.sweep.plan import Plan
class Mine(Plan):
    pass
"""


def check_import_paths(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start: Callable[[Setup], Workers],
    cause: str = "",
) -> None:
    """Workers find a module in a folder that they are given; without it they say what
    is missing in one line.
    """
    name = f"mine_{tmp_path.parent.name.replace('-', '_')}"
    (tmp_path / "laws").mkdir()
    (tmp_path / f"laws/{name}.py").write_text(MINE)
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.syspath_prepend(tmp_path / "laws")
    mine = importlib.import_module(name).Mine
    for folders in ((str(tmp_path / "laws"),), ()):
        job = prepare(
            read_grid(tmp_path / "small.yaml", ["seeds.count=2"]),
            tmp_path / f"out{len(folders)}",
        )
        job.plan = mine(**vars(job.plan))
        said: list[Shown] = []
        with closing(start(Setup(folders))) as workers:
            call = carry_out(job, workers.execute, said.append, Interrupts())
        messages = [
            shown.line for shown in said if shown.event in ("message", "failed")
        ]
        if folders:
            assert (call.runs, messages) == (8, [])
        else:
            assert (call.runs, len(call.failures)) == (0, 1)
            assert (
                messages[:2]
                == [f"worker 0: No module named '{name}'; another one takes its 8 runs"]
                * 2
            )
            assert "8 runs of program" in messages[2]
            assert f"No module named '{name}'; details: " in messages[2]


@pytest.mark.system
def test_workers_find_modules_in_the_folders_they_are_given(tmp_path, monkeypatch):
    check_import_paths(
        tmp_path, monkeypatch, lambda setup: processes.LocalWorkers(1, setup)
    )


def test_cores_and_devices_are_shared_out(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 4, 5, 6, 9})
    assert processes.shares_of_cores(1) == [[3, 4, 5, 6, 9]]
    assert processes.shares_of_cores(2) == [[3, 4], [5, 6, 9]]
    assert sorted(core for share in processes.shares_of_cores(5) for core in share) == [
        3,
        4,
        5,
        6,
        9,
    ]
    assert all(len(share) == 1 for share in processes.shares_of_cores(7))
    assert (
        processes.accelerators({"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "0,1"})
        == []
    )
    assert processes.accelerators({"CUDA_VISIBLE_DEVICES": "2,GPU-7"}) == ["2", "GPU-7"]
    assert processes.accelerators({"CUDA_VISIBLE_DEVICES": "-1"}) == []
    two = processes.environments(2, {}, ["0", "1"])
    assert [env["CUDA_VISIBLE_DEVICES"] for env in two] == ["0", "1"]
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in two[0]
    assert (
        processes.with_package({"PYTHONPATH": "here"})["PYTHONPATH"]
        == f"{ROOT}{os.pathsep}here"
    )
    shared = processes.environments(3, {}, ["0", "1"])
    assert [env["CUDA_VISIBLE_DEVICES"] for env in shared] == ["0", "1", "0"]
    assert {env["XLA_PYTHON_CLIENT_MEM_FRACTION"] for env in shared} == {"0.450"}


@pytest.mark.parametrize(
    "given", ["0", "-1", "two", "1.5", "1001", "10000000000000000000"]
)
def test_a_wrong_number_of_workers_is_one_line(tmp_path, capsys, given):
    (tmp_path / "small.yaml").write_text(SMALL)
    assert (
        main(
            [
                "--grid",
                str(tmp_path / "small.yaml"),
                "--workers",
                given,
                "--out",
                str(tmp_path / "out"),
            ]
        )
        == 2
    )
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        f"--workers: got {given}; allowed: whole numbers from 1 to 1000\n",
    )
    assert not (tmp_path / "out").exists()


# --- Ray

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="needs ray: pip install '.[ray]'"
)
RAY = ("--engine", "ray", "--workers", "2")


ENDLESS_AFTER_SOME = ("--set", "blocks.0.axes.N=[100,1000000000]")


def below(pid: int, name: str) -> list[int]:
    """Processes below a process, at any depth, whose command line has the name in its
    first word.
    """
    all_below = [pid]
    for one in all_below:
        with suppress(OSError):  # it may end at any time
            all_below += children(one)
    found = []
    for one in all_below:
        with suppress(OSError):
            found += [one] * (
                name in Path(f"/proc/{one}/cmdline").read_text().split("\0")[0]
            )
    return found


def wait_for(sweep: subprocess.Popen[str], name: str) -> int:
    """The first process of that name below the sweep, once there is one."""
    while not (found := below(sweep.pid, name)):
        assert sweep.poll() is None, sweep.communicate()
        time.sleep(0.05)
    return found[0]


@pytest.mark.system
@needs_ray
def test_two_ray_actors_that_are_killed(with_own_cache, home, alone, tmp_path):
    sweeps = with_own_cache
    before = programs(home)

    def kill(sweep: subprocess.Popen[str], n: int) -> None:
        if n == 1:
            # one alone may have nothing to do at this moment
            for pid in below(sweep.pid, "run_chunk"):
                os.kill(pid, signal.SIGKILL)

    more = ("--set", "run.part_seconds=0")
    done = sweeps.run(tmp_path / "killed", *ALL, *more, *RAY, act=kill)
    assert (done["exit_code"], done["runs_executed"], done["failed"]) == (
        0,
        500,
        0,
    ), done["err"]
    told = [event["text"] for event in done["events"] if event["event"] == "message"]
    assert any("another one takes its " in text for text in told), told
    assert_same_rows(tmp_path / "killed", alone)
    done = sweeps.run(tmp_path / "whole", *ALL, *RAY)
    assert (done["exit_code"], done["runs_executed"], done["failed"]) == (
        0,
        500,
        0,
    ), done["err"]
    assert [event for event in done["events"] if event["event"] == "message"] == []
    assert programs(home) == before
    assert_same_rows(tmp_path / "whole", alone)


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
            cluster.remove_node(HEAD_OR_NODE, allow_graceful=False)
            nodes = []
    code = sweep.wait()
finally:
    sweep.kill()
    cluster.shutdown()
sys.exit(code)
"""  # noqa: E501


def on_two_nodes(
    sweeps: Sweeps, lost: str, out: Path, *more: str
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """A sweep on a cluster of a head without CPUs and two nodes, one of which is lost
    at the first part, and the sweep's events.
    """
    command = sweeps.command(
        out, *ALL, "--set", "run.part_seconds=0", "--engine", "ray", *more
    )
    code = NODES.replace("HEAD_OR_NODE", lost)
    done = subprocess.run(
        [sys.executable, "-c", code, *command],
        env=sweeps.env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done, [
        json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")
    ]


@pytest.mark.system
@needs_ray
def test_a_ray_node_that_goes_away_costs_nothing(sweeps, alone, tmp_path):
    done, events = on_two_nodes(sweeps, "nodes[0]", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (events[-1]["runs_executed"], events[-1]["failed"]) == (500, 0)
    assert any(
        "another one takes its " in event["text"]
        for event in events
        if event["event"] == "message"
    ), done.stdout[-2000:]
    assert_same_rows(tmp_path, alone)


@pytest.mark.system
@needs_ray
def test_a_cluster_that_asks_for_a_token(sweeps, tmp_path):
    ray = str(Path(sys.executable).with_name("ray"))
    env = {**sweeps.env, "HOME": str(tmp_path)}
    token = env | {"RAY_AUTH_MODE": "token"}
    env.pop("RAY_AUTH_MODE", None)
    subprocess.run(
        [ray, "get-auth-token", "--generate"], env=env, check=True, capture_output=True
    )
    with TemporaryDirectory(prefix="ray") as logs:  # short: it holds sockets
        command = [
            ray,
            "start",
            "--head",
            "--port=0",
            "--num-cpus=1",
            "--include-dashboard=false",
            f"--temp-dir={logs}",
            "--block",
        ]
        with (
            subprocess.Popen(
                command,
                env=token,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as head,
            ended_at_last(head),
        ):
            address = next(
                line.split("'")[1]
                for line in head.stdout
                if "ray start --address=" in line
            )
            call = [
                *sweeps.command(
                    tmp_path / "out", "--engine", "ray", "--ray-address", address
                ),
                "--set",
                "seeds.count=1",
            ]
            without = subprocess.run(
                call, env=env, capture_output=True, text=True, timeout=300
            )
            assert (without.returncode, without.stdout) == (2, "")
            told = (
                f"--ray-address: no Ray at {address} (it asks for a token:"
                " RAY_AUTH_MODE=token must be set here"
            )
            assert without.stderr.splitlines()[-1].startswith(told), without.stderr
            wrong = subprocess.run(
                call,
                env=token | {"RAY_AUTH_TOKEN": "0" * 32},
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert (wrong.returncode, wrong.stdout) == (2, "")
            assert wrong.stderr.splitlines()[-1].startswith(told), wrong.stderr
            given = subprocess.run(
                call, env=token, capture_output=True, text=True, timeout=300
            )
            assert given.returncode == 0, given.stderr
    assert len(load(tmp_path / "out")) == 4


@pytest.mark.system
@needs_ray
def test_a_ray_of_the_sweep_listens_on_loopback_and_asks_for_a_token(sweeps, tmp_path):
    """Its other processes are those of Ray, which serve the cluster."""
    psutil = pytest.importorskip("psutil")
    sweeps.env = {**sweeps.env, "HOME": str(tmp_path)}
    with sweeps.start(tmp_path / "out", *ALL, *RAY) as sweep, killed_at_last(sweep):
        wait_for(sweep, "run_chunk")
        found = [
            psutil.Process(pid)
            for name in ("gcs_server", "raylet", "run_chunk")
            for pid in below(sweep.pid, name)
        ]
        hosts = {
            one.laddr.ip.removeprefix("::ffff:")
            for process in found
            for one in process.net_connections()
            if one.status == "LISTEN"
        }
        assert hosts == {"127.0.0.1"}
        assert all(
            process.environ().get("RAY_AUTH_MODE") == "token" for process in found
        )
        token = tmp_path / ".ray/auth_token"
        assert token.read_text()
        assert token.stat().st_mode & 0o777 == 0o600
        assert token.parent.stat().st_mode & 0o777 == 0o700
        sweep.send_signal(signal.SIGTERM)
        sweep.communicate(timeout=100)


@pytest.mark.system
@needs_ray
def test_a_chunk_that_always_fails_on_ray_is_told_and_the_rest_goes_on(home, tmp_path):
    check_failing(*failing(home, tmp_path, *RAY))


@pytest.mark.system
@needs_ray
# JAX runs in the process of the tests, but not in that of a sweep
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_ray_workers_find_modules_in_the_folders_they_are_given(tmp_path, monkeypatch):
    from jaxrecall.sweep.running.ray import RayWorkers

    check_import_paths(
        tmp_path, monkeypatch, lambda setup: RayWorkers(setup, None, 1, 1, {"CPU": 1.0})
    )


@pytest.mark.system
@needs_ray
def test_a_ray_sweep_is_interrupted_like_any_other(sweeps, alone, tmp_path):
    def end(sweep: subprocess.Popen[str], n: int) -> None:
        if n == 1:
            sweep.send_signal(signal.SIGTERM)

    stopped = sweeps.run(tmp_path, *ALL, "--set", "run.part_seconds=0", *RAY, act=end)
    assert (stopped["returncode"], stopped["interrupted"]) == (130, True), stopped[
        "err"
    ]
    assert 0 < survey(tmp_path)["todo"] == 500 - stopped["runs_executed"]


def check_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], told: str
) -> None:
    """The call is refused in one line, which begins so, and makes nothing."""
    (tmp_path / "small.yaml").write_text(SMALL)
    assert (
        main(
            [
                "--grid",
                str(tmp_path / "small.yaml"),
                "--out",
                str(tmp_path / "out"),
                *argv,
            ]
        )
        == 2
    )
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1), err
    assert err.startswith(told)
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


@needs_ray
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "ray://127.0.0.1:1"])
def test_an_address_without_ray_is_one_line_and_leaves_nothing(
    tmp_path, capsys, address
):
    check_refused(
        tmp_path,
        capsys,
        ["--engine", "ray", "--ray-address", address],
        f"--ray-address: no Ray at {address} (",
    )


@pytest.mark.parametrize("more", [[], ["--dry-run"]], ids=["sweep", "dry run"])
@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (
            ["--engine", "ray", "--worker-resource", "GPU"],
            "--worker-resource: got GPU; allowed: NAME=X",
        ),
        (
            ["--engine", "ray", "--worker-resource", f"CPU={'9' * 20}"],
            f"--worker-resource: got CPU={'9' * 20}; allowed: NAME=X",
        ),
        (
            ["--engine", "ray", "--worker-resource", "GPU=1.5"],
            "--worker-resource: got GPU=1.5; allowed: NAME=X",
        ),
        (
            ["--engine", "ray", "--worker-resource", "CPU=0.00001"],
            "--worker-resource: got CPU=0.00001; allowed: NAME=X",
        ),
        (
            ["--workers", "5000"],
            "--workers: got 5000; allowed: whole numbers from 1 to 1000",
        ),
        (
            ["--workers", "1" + "0" * 19],
            (
                "--workers: got 10000000000000000000; allowed: whole numbers from 1 to"
                " 1000"
            ),
        ),
        (
            ["--ray-address", "auto"],
            "--ray-address: goes with --engine ray, got --engine local",
        ),
    ],
)
def test_an_engine_that_cannot_be_had_is_one_line_and_leaves_nothing(
    tmp_path, capsys, monkeypatch, argv, told, more
):
    monkeypatch.setenv("PATH", str(tmp_path))
    check_refused(tmp_path, capsys, [*argv, *more], told)


@pytest.mark.parametrize(
    ("argv", "told", "facts"),
    [
        (
            [],
            "runs in this process",
            {"engine": "local", "workers": None, "requests": {}},
        ),
        (
            ["--workers", "3"],
            "runs in 3 workers of this machine",
            {"engine": "local", "workers": 3},
        ),
        (
            ["--workers", "1000"],
            "runs in 96 workers of this machine",
            {"engine": "local", "workers": 96},
        ),
        (
            ["--engine", "ray", "--workers", "1000", "--worker-resource", "GPU=0.5"],
            (
                "runs in 96 workers of a Ray that is started on this machine, each with"
                " CPU=1, GPU=0.5"
            ),
            {"engine": "ray", "workers": 96, "requests": {"CPU": 1.0, "GPU": 0.5}},
        ),
    ],
)
def test_a_dry_run_says_what_would_run_it(tmp_path, capsys, argv, told, facts):
    """No more workers than there are runs."""
    if "ray" in argv and find_spec("ray") is None:
        pytest.skip("needs ray: pip install '.[ray]'")
    (tmp_path / "small.yaml").write_text(SMALL)
    call = [
        "--grid",
        str(tmp_path / "small.yaml"),
        "--out",
        str(tmp_path / "out"),
        "--dry-run",
        *argv,
    ]
    assert main(call) == 0
    assert capsys.readouterr().out.splitlines()[-1] == told
    assert main([*call, "--json"]) == 0
    assert facts.items() <= json.loads(capsys.readouterr().out).items()


def test_a_missing_extra_is_named(tmp_path, capsys, monkeypatch):
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert (
        main(
            [
                "--grid",
                str(tmp_path / "small.yaml"),
                "--engine",
                "ray",
                "--workers",
                "2",
            ]
        )
        == 2
    )
    assert (
        capsys.readouterr().err
        == "--engine ray: ray is not installed; to install it: pip install"
        ' "jaxrecall[ray]"\n'
    )


def test_importing_what_carries_plans_out_starts_no_jax():
    """Nor does it import Ray; and jobs and their status import no worker."""
    modules = [
        path
        for path in (ROOT / "jaxrecall/sweep/running").rglob("*.py")
        if path.stem != "__init__"
    ]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in modules]
    assert len(names) >= 7
    workers = {
        f"jaxrecall.sweep.running.{name}" for name in ("engine", "workers", "ray")
    }
    assert workers < {*names}
    code = f"""
import importlib, sys
for name in {[*{*names} - workers]}:
    importlib.import_module(name)
assert not {workers} & {{*sys.modules}}
for name in {[*workers]}:
    importlib.import_module(name)
assert not {{'jax', 'ray'}} & {{*sys.modules}}
"""
    done = python(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("ValueError: bad\nworse", "bad"),
        ("ValueError: ", "ValueError"),
        ("no worker starts: exit code 1", "no worker starts: exit code 1"),
    ],
)
def test_a_failure_is_reported_in_one_line_without_the_name_of_its_class(error, line):
    assert Failure(error, "", "").line == line
