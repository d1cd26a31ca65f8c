"""Commands whose streams break or which a signal interrupts, and workers whose parent
is killed. Each is a process of its own.
"""

import gc
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from attack import permissions
from helpers import ROOT, combinations, process

from jaxrecall.cli.process import ENDING, Interrupts
from jaxrecall.status import survey
from jaxrecall.sweep.store import Store

GRID = """
name: tiny
base: {V: 20, L: 3, n_test: 200}
seeds: {count: 2}
blocks: [{axes: {d: [8, 12], N: [100, 600]}}]
"""
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}

needs_full = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="no /dev/full here"
)
needs_proc = pytest.mark.skipif(
    sys.platform != "linux", reason="the kernel ends orphans only on Linux"
)


@pytest.fixture
def grid(tmp_path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(GRID)
    Store(tmp_path / "out").prepare({"grid": {}, "code_version": 2})
    return path


def command(name: str, *words: object) -> list[str]:
    return [sys.executable, "-m", f"jaxrecall.{name}", *map(str, words)]


def shell(words: list[str], redirected: str) -> subprocess.CompletedProcess[str]:
    line = f"set -o pipefail; {shlex.join(words)} {redirected}"
    return subprocess.run(
        ["bash", "-c", line],
        env=ENV,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


LOST = "some output could not be written: No space left on device\n"
UNREAD = {">/dev/full": (3, LOST), "| true": (0, ""), ">&- 2>&- <&-": (0, "")}
"""Where the answer goes, the exit code, and what is said."""

OFTEN = {
    ("dry run", ">/dev/full"),
    ("examples", ">/dev/full"),
    ("help", "| true"),
    ("status", ">&- 2>&- <&-"),
}
"""Each answer, and each way to lose it."""


@needs_full
@pytest.mark.parametrize(
    ("name", "redirected"),
    combinations(
        ["status", "dry run", "examples", "help"],
        UNREAD,
        often=lambda *case: case in OFTEN,
    ),
)
def test_an_answer_that_nobody_can_read(grid, name, redirected):
    exit_code, err = UNREAD[redirected]
    words = {
        "status": command("status", grid.parent / "out"),
        "dry run": command("sweep", "--grid", grid, "--dry-run"),
        "examples": [sys.executable, "-m", "jaxrecall", "examples"],
        "help": [sys.executable, "-m", "jaxrecall"],
    }
    told = shell(words[name], redirected)
    assert (told.returncode, told.stderr, told.stdout) == (exit_code, err, "")


@needs_full
@pytest.mark.system
@pytest.mark.parametrize(
    ("redirected", "options"),
    [
        ("2>&-", ()),
        (">&- 2>&- <&-", ()),
        (">/dev/full", ()),
        (">/dev/full 2>&1", ()),
        ("| head -1", ()),
        ("| true", ("--json-log",)),
        (">&- 2>&- <&-", ("--workers", 2)),
        (">/dev/full 2>&1", ("--workers", 2)),
    ],
)
def test_a_sweep_whose_streams_break_saves_every_row(grid, redirected, options):
    told = shell(
        command("sweep", "--grid", grid, "--out", grid.parent / "out", *options),
        redirected,
    )
    assert told.returncode == 0, told.stderr
    assert "Traceback" not in told.stderr
    facts = survey(grid.parent / "out")
    assert (facts["done"], facts["todo"], facts["unreadable"]) == (8, 0, [])
    assert (grid.parent / "out" / "accuracy.png").exists()


SIGNALS = [
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
]
LOADING = [
    "sweep argparse",  # among the first that come after `start` has set its handlers
    "sweep jaxrecall.sweep.grid",
    "fit numpy",
    "sweep numpy",
    "sweep yaml",
    "report numpy",
]
PAIRED = [*zip(LOADING, SIGNALS, strict=False)][::2]


@pytest.mark.parametrize(
    ("loading", "number"),
    combinations(
        LOADING,
        SIGNALS,
        often=lambda *case: case in PAIRED,
    ),
)
def test_a_signal_while_modules_are_imported(grid, loading, number):
    name, module = loading.split()
    words = (
        command("sweep", "--grid", grid, "--dry-run")
        if name == "sweep"
        else command(name, grid.parent / "out")
    )
    with subprocess.Popen(
        [words[0], "-X", "importtime", *words[1:]],
        env=ENV,
        stdout=-1,
        stderr=-1,
        text=True,
    ) as sweep:
        assert sweep.stderr
        next(line for line in sweep.stderr if line.rstrip().endswith(f" {module}"))
        sweep.send_signal(number)
        rest = [line for line in sweep.stderr if not line.startswith("import time:")]
    assert (sweep.returncode, rest) == (130, ["interrupted\n"])


AT_ITS_END = """
import atexit, os, sys
from jaxrecall.cli.process import start

class Thread:
    def __del__(self, abort=os.abort):
        abort()

def main():
    atexit.register(print, "exit function")
    print("answer, XLA logs from level", os.environ.get("TF_CPP_MIN_LOG_LEVEL"))
    return 3

sys.modules["command"] = sys.modules["__main__"]
thread = Thread()
start("command")
"""


def test_a_command_ends_without_taking_modules_down(monkeypatch):
    """Arrow may abort in that. Exit functions run, and what was printed is written.

    XLA does not log its alarm about a slow compilation, which has level 2.
    """
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)  # JAX has set it here
    done = process("-c", AT_ITS_END, exit_code=3)
    told = "answer, XLA logs from level 3\nexit function\n"
    assert (done.stdout, done.stderr) == (told, "")


SHUT_OUT = """
import itertools, os, sys
from jaxrecall.__main__ import main

LEVELS = "below", "below/out", "below/out/parts"
READERS = "status", "fit", "sweep --grid tiny.yaml --dry-run --out"
for level, words in itertools.product(LEVELS, READERS):
    os.chmod(level, 0)
    print(main([*words.split(), "below/out"]), file=sys.stderr)
    os.chmod(level, 0o755)
"""


def test_a_folder_that_may_not_be_entered_is_refused(grid, tmp_path):
    """Each command at each level of the path."""
    if why := permissions.obstacle(tmp_path):
        pytest.skip(why)
    (tmp_path / "below").mkdir()
    (tmp_path / "out").rename(tmp_path / "below" / "out")
    told = permissions.called(tmp_path, "-c", SHUT_OUT)
    assert (told.returncode, told.stdout) == (0, ""), told.stderr
    lines = told.stderr.splitlines()
    assert lines[1::2] == ["2"] * 9
    assert all("Permission denied" in line for line in lines[::2])


@pytest.mark.parametrize("number", SIGNALS)
def test_ignored_signals_stay_ignored(number):
    """As under nohup."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(number)
            assert not interrupts.requested
    finally:
        signal.signal(number, before)


def test_a_function_leaves_the_signals_of_a_program_alone():
    got = []
    before = signal.signal(signal.SIGUSR1, lambda *_: got.append("program"))
    try:
        with Interrupts(ENDING) as interrupts:
            signal.raise_signal(signal.SIGUSR1)
            assert not interrupts.requested
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert got == ["program"]


def test_a_signal_waits_for_modules_that_are_being_loaded():
    loaded = []

    def load(n_signals: int) -> None:
        with Interrupts() as interrupts, interrupts.deferred():
            interrupts.message = pytest.fail
            for _ in range(n_signals):
                signal.raise_signal(signal.SIGTERM)
            loaded.append(n_signals)
        assert n_signals == 0, "a signal was lost"

    load(0)
    for n_signals in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            load(n_signals)
    assert loaded == [0, 1], "a second one does not wait"


def test_an_interrupt_in_a_callback_is_not_dropped():
    def interrupt(phase: str, info: dict) -> None:
        gc.callbacks.remove(interrupt)
        signal.raise_signal(signal.SIGINT)

    def collect() -> None:
        gc.callbacks.append(interrupt)
        gc.collect()
        time.sleep(10)

    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        collect()
    assert interrupts.requested


def children(pid: int) -> list[int]:
    return [
        int(child)
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ]


def runs(pid: int) -> bool:
    """Whether a process exists that is more than an entry in the process table."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            not in "ZX"
        )
    except (FileNotFoundError, ProcessLookupError):
        return False


@needs_proc
@pytest.mark.system
@pytest.mark.parametrize("seconds", [0, 0.05, 0.2, 0.5, 1, 2])
def test_workers_end_with_a_killed_parent_at_every_stage(grid, seconds):
    words = command(
        "sweep",
        "--grid",
        grid,
        "--out",
        grid.parent / "out",
        "--workers",
        2,
        "--set",
        "blocks.0.axes.N=[100000000]",
    )
    sweep = subprocess.Popen(
        words, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while len(workers := children(sweep.pid)) < 2:
        assert sweep.poll() is None
        time.sleep(0.005)
    time.sleep(seconds)
    sweep.kill()
    sweep.wait()
    end = time.monotonic() + 1
    while any(map(runs, workers)) and time.monotonic() < end:
        time.sleep(0.01)
    left = [pid for pid in workers if runs(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []
