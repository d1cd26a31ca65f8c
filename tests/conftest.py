"""Strict types and ranks, arrays held to their annotations, and which tests run.

Compiled programs are kept from one session of tests to the next, for all processes that
they start.
"""

import functools
import gc
import math
import os
import signal
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["JAXRECALL_CACHE"] = ""  # leaves the user's cache alone
os.environ["PYTHONDONTWRITEBYTECODE"] = (
    ""  # a hundred processes start, and each would compile every module that it imports
)
os.environ["OPENBLAS_NUM_THREADS"] = (
    "1"  # it counts cores when it is loaded, before a worker keeps to one
)

import attack
import jax
import pytest
import tolerances
from helpers import OPTIMISED, UNOPTIMISED, hold_to_annotations
from jax.stages import Compiled, Lowered

from jaxrecall.model.reference.realization import Realization
from jaxrecall.model.task import Embeddings
from jaxrecall.simulator import device, program, stored_programs
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.simulator.world import Arguments, Trained, World
from jaxrecall.sweep import __main__ as sweep
from jaxrecall.sweep import plan, speed
from jaxrecall.sweep.running import progress

gc.disable()  # until tests run: what their modules import stays

# a line of slow progress would appear on a slow machine only
progress.COUNT_EVERY_SECONDS = math.inf

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

for number, usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    # under nohup or in the background; the processes under test would inherit it
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)

for record in (Realization, Embeddings, Arguments, World, Trained):
    hold_to_annotations(record)

FIGURE = sweep.FIGURE
"""As users have it: fast tests replace it."""

ON_REQUEST = {
    "slow": "takes minutes; --slow runs it",
    "system": "starts, kills or starves whole processes; --slow runs it",
}

PROGRAMS = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxrecall-tests"
)
"""Programs that tests compiled. JAX finds one again by its code, its options and the
version of JAX.
"""

MAX_BYTES = 2**29  # some five thousand programs


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow",
        action="store_true",
        help="run everything: also the tests marked slow or system",
    )
    parser.addoption(
        "--margins",
        action="store_true",
        help="fail if a difference exceeds half of its tolerance",
    )
    parser.addoption(
        "--kills",
        type=int,
        default=4,
        metavar="N",
        help="kills of each test of test_kills.py (default: 4)",
    )


def pytest_configure(config: pytest.Config) -> None:
    for marker, reason in ON_REQUEST.items():
        config.addinivalue_line("markers", f"{marker}: {reason}")
    if hasattr(config, "workerinput"):
        keep_to_a_core(int(config.workerinput["workerid"].removeprefix("gw")))
    else:
        forget_oldest(PROGRAMS)
    attack.full_counts = config.getoption("--slow")
    # tests replace parts of programs, which are found untraced
    stored_programs.MAX_BYTES = 0
    settings = {
        "jax_compilation_cache_dir": PROGRAMS,
        "jax_persistent_cache_min_compile_time_secs": 0.1,
        "jax_traceback_in_locations_limit": 0,  # places in the code, a tenth of a trace
    }
    if not attack.full_counts:
        sweep.FIGURE = "undrawn"
        program._compiled = with_few_programs(COMPILED)
        plan.MAX_LOADING = 1  # programs that have the same code are compiled once
        speed.FILE = os.devnull
        if not hasattr(config, "workerinput"):
            compile_quickly()
    for name, value in settings.items():
        os.environ[name.upper()] = str(value)
        jax.config.update(name, str(value) if isinstance(value, Path) else value)


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are compiled as users compile them."""

    def compile(lowered: Lowered, options: dict[str, Any]) -> Compiled:
        both = device.supported(OPTIMISED | options)
        return lowered.compile(compiler_options=both)

    monkeypatch.setattr(program, "compile", compile)
    monkeypatch.setattr(program, "_compiled", COMPILED)


@pytest.fixture
def compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are compiled anew; other tests keep those that they have."""
    fresh = functools.lru_cache(COMPILED.__wrapped__)
    monkeypatch.setattr(program, "_compiled", with_few_programs(fresh))


@pytest.fixture
def with_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps draw their figures as users see them."""
    monkeypatch.setattr(sweep, "FIGURE", FIGURE)


MAX_MAPS = 35_000
"""Memory maps of a test process beyond which its programs are forgotten. Each takes
tens; Linux allows 65,530, and then JAX crashes.
"""


def _how_often(
    fixture_name: str, config: pytest.Config
) -> Literal["function", "module"]:
    """Slow tests of one file compile more than a process may hold."""
    return "function" if config.getoption("--slow") else "module"


@pytest.fixture(scope=_how_often, autouse=True)
def _forget_programs():
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and len(maps.read_text().splitlines()) > MAX_MAPS:
        program._compiled.cache_clear()
        jax.clear_caches()


def compile_quickly() -> None:
    """All that this process and those that it starts compile is not optimised: tests
    run a program for moments and wait long for its compilation.
    """
    flags = [f"--{name}={value}".lower() for name, value in UNOPTIMISED.items()]
    # read when JAX starts
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags])


COMPILED = program._compiled
"""As users have it."""


LEAST = 32
"""The least padded V and d of programs, so that points of many sizes share one."""


def with_few_programs(compile: Any) -> Any:
    """Small sizes are padded more, and light and quick programs have the code of
    others: what tests compile is not optimised anyway.
    """

    @functools.wraps(compile)
    def compiled(shape: Shape, *others: Any) -> program.Executable:
        alike = replace(shape, light=False, quick=False)
        if not shape.exact_sizes:
            alike = replace(alike, V=max(shape.V, LEAST), d=max(shape.d, LEAST))
        return compile(alike, *others)

    compiled.cache_info = compile.cache_info
    compiled.cache_clear = compile.cache_clear
    return compiled


def keep_to_a_core(worker: int) -> None:
    """A worker of pytest has a core of its own: the threads of two that share two cores
    wait for each other.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[worker % len(cores)]})


def forget_oldest(folder: Path) -> None:
    """Removes what was read last the longest ago, if the folder is too large."""
    files = sorted(
        (
            (path.stat().st_atime, path.stat().st_size, path)
            for path in folder.glob("*")
        ),
        reverse=True,
    )
    kept = list(accumulate(size for _, size, _ in files))
    if kept and kept[-1] > MAX_BYTES:
        for total, (_, _, path) in zip(kept, files, strict=True):
            if total > MAX_BYTES // 2:
                path.unlink(missing_ok=True)


def pytest_collection_finish() -> None:
    """What imports and the collection of tests made stays, and is not looked through
    again by each collection of garbage. These are rare: most of what tests make and
    drop is in no cycle.
    """
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    gc.enable()


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        for marker, reason in ON_REQUEST.items():
            # not item.keywords, which hold the names of folders too
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=f"{marker}: {reason}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """The process of pytest that prints the summary receives the margins, too."""
    report = yield
    if call.when == "call" and item.nodeid in tolerances.used:
        report.user_properties.append(("used", tolerances.used.pop(item.nodeid)))
    return report


def tightest(reporter: pytest.TerminalReporter) -> list[tuple[float, str]]:
    """How much of its tolerance each test uses, and the test, the largest first."""
    by_test = [
        (ratio, report.nodeid)
        for report in reporter.getreports("passed")
        for name, ratio in report.user_properties
        if name == "used"
    ]
    return sorted(by_test, reverse=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    by_test = tightest(terminalreporter)
    if by_test:
        terminalreporter.section("largest difference / tolerance")
    for ratio, test in by_test[:3]:
        terminalreporter.line(f"{ratio:.2f} {test}")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With --margins a session fails over a difference that another processor could
    take past its tolerance.
    """
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not session.config.getoption("--margins"):
        return
    by_test = tightest(reporter)
    if by_test and by_test[0][0] > tolerances.MOST_USED and not session.exitstatus:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
