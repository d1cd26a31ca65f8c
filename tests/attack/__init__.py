"""What attacks share: how many examples, values that do not belong where they are put,
and what a call costs.
"""

from __future__ import annotations

import contextlib
import copy
import io
import math
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

full_counts = False
"""Whether --slow asks for the full number of examples; set before the tests are
imported.
"""

MAX_BYTES = 2**30
HANG_SECONDS = 600


def examples(few: int, full: int) -> settings:
    """`few` examples, the same in every session; under --slow `full` others in each."""
    unhurried = settings(deadline=None, suppress_health_check=list(HealthCheck))
    return (
        settings(unhurried, max_examples=full)
        if full_counts
        else settings(unhurried, max_examples=few, derandomize=True)
    )


class Calls:
    """Makes calls, each within MAX_BYTES of new memory, and remembers how many there
    were, their outcomes and the longest.
    """

    def __init__(self, name: str):
        self.name, self.outcomes = name, {}
        self.seconds, self.cpu_seconds, self.longest, self.largest = (
            0.0,
            0.0,
            (0.0, ""),
            (0, ""),
        )

    def __call__(
        self,
        what: str,
        function: Callable[..., Any],
        *arguments: Any,
        refused: type[Exception] | tuple[()] = (),
    ) -> Any:
        """What the call returns, None if it raised `refused`; any other exception is a
        defect, and so is a call that hangs.
        """
        before, start, cpu = _reset_peak(), time.perf_counter(), time.process_time()
        try:
            with within(HANG_SECONDS, what), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # remarks on the rows
                result = function(*arguments)
        except refused as error:
            result = None
            if not str(error):
                raise
        cpu_seconds, grown = time.process_time() - cpu, _peak() - before
        outcome = (
            f"{what}:"
            f" {'refused' if result is None else result if isinstance(result, int) else 'a result'}"  # noqa: E501
        )
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.seconds, self.cpu_seconds = (
            self.seconds + time.perf_counter() - start,
            self.cpu_seconds + cpu_seconds,
        )
        self.longest, self.largest = (
            max(self.longest, (cpu_seconds, what)),
            max(self.largest, (grown, what)),
        )
        assert grown < MAX_BYTES, f"{what}: {grown / 2**20:.0f} MiB"
        return result

    def report(self) -> str:
        lines = [
            f"{self.name}: {sum(self.outcomes.values())} calls, {self.seconds:.0f} s,"
            f" {self.cpu_seconds:.0f} s of CPU"
        ]
        lines += [f"the longest {self.longest[0]:.2f} s of CPU ({self.longest[1]})"]
        lines += [f"the largest {self.largest[0] / 2**20:.0f} MiB ({self.largest[1]})"]
        return "\n" + "; ".join(
            [
                *lines,
                *(f"{n} {outcome}" for outcome, n in sorted(self.outcomes.items())),
            ]
        )


def reported(calls: Calls) -> Any:
    """A fixture of a module that prints its calls at the end."""

    @pytest.fixture(scope="module", autouse=True)
    def report():
        yield
        print(calls.report())

    return report


@contextlib.contextmanager
def captured() -> Iterator[io.StringIO]:
    """Takes what is written on stdout and stderr; gives that on stderr."""
    err = io.StringIO()
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield err


def _peak() -> int:
    """The most memory that this process held since `_reset_peak`, in bytes; 0 where the
    system does not tell.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def _reset_peak() -> int:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


@contextlib.contextmanager
def within(seconds: int, what: str = "a call") -> Iterator[None]:
    """Ends a call that waits forever, as one that opens a pipe does."""
    told = f"{what}: no answer after {seconds} s"
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail(told))
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


listed = str.split

NAMES = listed(
    """V N d L m seed pool kappa gamma eta n_test root_seed embedding alpha $x_{"""
)
NAMES += ["", "\ud800"]
WORDS = [*NAMES, "lambda x: x"]
WORDS += listed("""0 1 -1 1e3 0.5 ** // / % * + - ( ) [ ] , and or not in is < <= == !=
sqrt log round max 'a' if else __import__('os') V.real 9e999 ~""")

expressions = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)
texts = (
    st.text(max_size=12)
    | expressions
    | st.sampled_from(
        [*NAMES, "gaussian", "8GiB", "sphere", "null", "1e400", "../x", "\x00"]
    )
    | st.just(3000).map("a".__mul__)
)
integers = (
    st.integers(-3, 70)
    | st.sampled_from([31, 32, 53, 63, 64, 1100, 14000]).map(lambda bits: 2**bits)
    | st.just(-(2**63))
)
floats = st.floats() | st.sampled_from(
    [math.nan, math.inf, -math.inf, 5e-324, 1e308, -0.0, 0.1]
)
scalars = st.none() | st.booleans() | integers | floats | texts
spacings = st.fixed_dictionaries(
    {},
    optional={
        kind: st.dictionaries(
            st.sampled_from(["from", "to", "num", "step", "round"]),
            scalars | st.just("int"),
            max_size=5,
        )
        for kind in ("linspace", "logspace", "geom", "range")
    },
)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4)
    ),
    max_leaves=12,
)
_odd = scalars | trees | spacings


@st.composite
def odd(draw: Any) -> Any:
    """Plain data of any kind. A function, as its repr would be long."""
    return draw(_odd)


def nested(depth: int) -> Any:
    """Lists inside each other."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@st.composite
def mutated(draw: Any, documents: Any, values: Any) -> Any:
    """One of the documents, up to three of its entries replaced, removed, renamed,
    added, moved or changed a little.
    """
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, 3]))):
        places = list(_places(document))
        inside, key = draw(st.sampled_from(places))
        kind = draw(
            st.sampled_from(
                ["replace", "vary", "vary", "remove", "rename", "add", "move", "nest"]
            )
        )
        if kind == "replace":
            inside[key] = draw(values)
        elif kind == "vary":
            inside[key] = draw(_near(inside[key]))
        elif kind == "remove":
            del inside[key]
        elif kind == "rename" and isinstance(inside, dict):
            inside[draw(texts)] = inside.pop(key)
        elif kind == "add" and isinstance(inside, dict):
            inside[draw(texts)] = draw(values)
        elif kind == "add":
            inside.insert(key, draw(values))
        elif kind == "move":
            other, there = draw(st.sampled_from(places))
            inside[key] = copy.deepcopy(other[there])
        else:
            inside[key] = (
                nested(draw(st.sampled_from([1, 2, 90, 300])))
                if draw(st.booleans())
                else [inside[key]]
            )
        if not document:
            break
    return document


def _near(value: Any) -> Any:
    """Values of the same type."""
    if isinstance(value, bool) or value is None:
        return st.sampled_from([True, False, None])
    if isinstance(value, str):
        return expressions | st.sampled_from(
            [
                value + " ",
                value[::-1],
                value.upper(),
                f"{value} and {value}",
                f"({value})",
                f"-{value}",
            ]
        )
    if isinstance(value, (int, float)):
        return st.sampled_from([value + 1, -value, value * 2, 0.5]) | st.integers(1, 40)
    return st.just(copy.deepcopy(value)) | st.sampled_from([[], {}])


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each list or mapping in the value with each of its keys."""
    for key in (
        list(value)
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    ):
        yield value, key
        yield from _places(value[key])
