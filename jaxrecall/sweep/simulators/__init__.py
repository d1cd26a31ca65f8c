"""The interface between a simulator and the sweep engine.

`custom` contains the class `Simulator`: the simulators of users, and all that the sweep
engine asks of a simulator. `shipped` contains the simulator of this package, a
`Simulator` that estimates costs, merges programs, and has laws and theory. This module
defines what both exchange with the engine.

A point has the members `point_id` and `as_given()`. A program is the
static part of what is compiled: plain data that can be hashed and sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from ...model.columns import Row
from ...model.point import Run

Key = TypeVar("Key")
Member = TypeVar("Member")

AnyPoint = Any  # a Point, or a point of a user's simulator

Rows = Sequence[Row]
"""The finished rows of a run, one for each recorded step."""

Outcomes = list[Rows | Exception | None]
"""One entry per run of a batch: its rows, the exception that prevented them, or None if
the program rejected the run.
"""


class Program(Hashable, Protocol):
    """The static part of what is compiled. The text of a program contains its sizes.

    Attributes:
        label: a text that no other program has.
        fallback: the program that computes the runs that this program rejects. It is
            None if this program rejects no runs.
        compile_seconds: the number of seconds that the compilation of the program takes
            on a usual machine. The number is 0 if the time is unknown.
        kin: a sort key. Programs that compute similar runs have neighboring keys.
    """

    @property
    def label(self) -> str:
        return str(self)

    @property
    def fallback(self) -> Program | None:
        return None

    @property
    def compile_seconds(self) -> float:
        return 0.0

    @property
    def kin(self) -> tuple[Any, ...]:
        return ()

    def __lt__(self, other: Any) -> bool: ...


RISES = {"d": True, "m": True, "V": False, "L": False}
"""A dict from the sizes of our simulator to whether accuracy rises along them. `rises`
in a search overrides this.
"""

OF_THRESHOLDS = (
    "theta",
    "method",
    "axis",
    "critical",
    "N_star",
    "lo",
    "hi",
    "censored",
    "n_seeds",
    "n_levels",
    "warning",
    "N_below",
    "N_above",
    "record",
    "copy_of",
    "state",
)
"""The columns of a table of thresholds that follow its axes."""


class Cost(NamedTuple):
    """The time and memory that a run takes in a program."""

    seconds: float
    """The number of seconds that the run takes on one core of a usual machine."""

    flops: float
    bytes: int
    """The number of bytes of memory that each run takes while it is computed. The
    number is 0 if the memory is unknown.
    """


class Room(NamedTuple):
    """The resources that a process may use, and the settings with which the process
    computes runs.
    """

    precision: str
    limit: int
    """The number of bytes of memory that the process may use."""

    cores: int
    n_runs: int
    """The number of runs of all programs together."""

    batch: int | None
    """The number of runs that are vmapped on an accelerator. None means as many runs as
    take half a second.
    """

    seconds: float = 0.0
    """The estimated time of the runs of a program on one core. It is the mean of all
    programs.
    """

    n_started: int = 1
    """The number of runs of the program that start together."""


class Loaded(NamedTuple):
    """A program that is ready to run."""

    run: Callable[[Mapping[Run, float]], Outcomes]
    """Computes runs. The argument is a dict from each run to the share of the time that
    the run is expected to take. For each run, the returned list contains the rows, the
    exception that prevented the rows, or None. None means that the program rejects the
    run. The fallback then computes the run.
    """

    most: int
    """The largest number of runs in a batch."""

    threads: int
    """The number of batches that run at the same time. 0 means that one batch runs in
    the calling thread.
    """

    order: Callable[[Any], Any] | None = None
    """The sort key by which vmapped runs are assigned to batches, largest first.

    Vmapped runs share their loops, so runs with loops of equal length belong together.
    The time of a batch hardly depends on the number of its runs. Without this key, the
    runs are sorted by their expected time, which also limits the batches. If there are
    several threads, small batches keep all of them busy, as on a CPU.
    """


def grouped(
    members: Iterable[Member], key: Callable[[Member], Key]
) -> dict[Key, list[Member]]:
    """Returns a dict from each key to the list of its members."""
    groups: dict[Key, list[Member]] = {}
    for member in members:
        groups.setdefault(key(member), []).append(member)
    return groups
