"""The interface between a simulator and the sweep engine.

`shipped` contains the simulator of this package, and `custom` contains simulators of
users. A simulator has these members:

    facts                      a record with its name, version, fields and columns
    point(values)              returns a point with these values; raises PointError
    sources(points)            returns hashes of the source of the user's own code
    programs(points, sizes)    returns the points that share each program
    reason(points, sizes)      returns why the points share these programs
    cost(program, point)       returns the time and memory that one run takes
    width(program, ...)        returns the number of runs to compute at the same time
    run(program, width, room)  returns the compiled program, which computes rows
    problem_in_workers(points) returns why other processes cannot run these points

A point has the members `point_id`, `recorded_steps` and `as_given()`. A program is the
static part of what is compiled: plain data that can be hashed and sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from ...model.columns import Row
from ...model.point import Run

Key = TypeVar("Key")
Member = TypeVar("Member")

AnyPoint = Any  # a Point, or a point of a user's simulator

Rows = Sequence[Row]
"""The finished rows of a run, one for each recorded step."""

Sizes = tuple[int, int, int]
"""V, d and m."""


class Program(Hashable, Protocol):
    """The static part of what is compiled. The text of a program contains its sizes.

    Attributes:
        label: a text that no other program has.
        fallback: the program that computes the runs that this program rejects. It is
            None if this program rejects no runs.
        compile_seconds: the number of seconds that the compilation of the program takes
            on a usual machine. The number is 0 if the time is unknown.
        kin: a sort key. Programs that compute similar runs have neighboring keys.
        choices: the contents of the label as plain data. A dry run lists them.
    """

    @property
    def label(self) -> str: ...
    @property
    def fallback(self) -> Program | None: ...
    @property
    def compile_seconds(self) -> float: ...
    @property
    def kin(self) -> tuple[Any, ...]: ...
    @property
    def choices(self) -> Mapping[str, object]: ...

    def __lt__(self, other: Any) -> bool: ...


@dataclass(frozen=True)
class Facts:
    """The properties of a simulator that are known before anything runs."""

    name: str
    """The name of the simulator: jaxrecall, or module:name for a user's simulator."""

    fields: Mapping[str, Field[object]]
    """The fields of the simulator's points. Each field has a type and a default. The
    metadata of a field contain its kind, symbol, legend and limits.
    """

    columns: Mapping[str, tuple[str, ...]]
    """A dict from each column of the simulator's rows, in order, to its Arrow type and
    its meaning.
    """

    version: int = 1
    """The version of the simulator. It increases when the numbers change, because rows
    of two versions must not be mixed.
    """

    accuracy: str = "accuracy"
    """The column that figures, fits and searches use. Its values are fractions."""

    own_columns: Mapping[str, str] = field(default_factory=dict)
    """A dict whose keys are the columns that functions of the user return. For the
    simulator of this package, each value is a text with the import path of the function
    and a digest of its source. For other simulators, the values are empty.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    """A dict from fields and columns to the meanings that a user gave them."""

    rises: Mapping[str, bool] = field(default_factory=dict)
    """A dict from fields to whether the accuracy rises along the field."""

    costs_known: bool = False
    """Whether the time and memory of a run are estimated before it runs."""

    x64: bool = False
    """Whether the simulator computes with 64-bit numbers because jax_enable_x64 is
    on.
    """

    @property
    def is_ours(self) -> bool:
        """Whether the facts describe the simulator of this package."""
        return self.name == OURS

    def precision(self, asked: str) -> str:
        """Returns the precision that rows record. Rows of two precisions must not be
        mixed.
        """
        return f"{asked}, x64" if self.x64 else asked

    def about(self) -> dict[str, Any]:
        """Returns the entries that describe the simulator in the metadata of tables."""
        if not self.is_ours:
            return {
                "simulator": self.name,
                "fields": list(self.fields),
                "accuracy": self.accuracy,
                "labels": dict(self.labels),
                "rises": dict(self.rises),
            }
        if not self.own_columns:
            return {}
        return {"columns": dict(self.own_columns)}


OURS = "jaxrecall"

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

    n_started: int = 1
    """The number of runs of the program that start together."""


class Loaded(NamedTuple):
    """A program that is ready to run."""

    run: Callable[[Mapping[Run, float]], list[Rows | Exception | None]]
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

    in_turn: bool = False
    """Whether the runs of a batch are computed one after the other, as on a CPU. Small
    batches are then as efficient as large ones.
    """

    order: Callable[[Any], Any] | None = None
    """The sort key by which vmapped runs are assigned to batches, largest first.

    Vmapped runs share their loops, so runs with loops of equal length belong together.
    The time of a batch hardly depends on the number of its runs. Without this key, the
    runs are sorted by their expected time, which also limits the batches.
    """


class SimulatorLike(Protocol):
    """A simulator as the sweep engine uses it."""

    @property
    def facts(self) -> Facts: ...

    def point(self, values: Mapping[str, object]) -> AnyPoint:
        """Returns the point whose fields have these values. Raises PointError if the
        values are not allowed.
        """

    def sources(self, points: Iterable[AnyPoint]) -> dict[str, str]:
        """Returns a dict of the user's own code that computes these points: laws, or
        the function of a simulator. The keys are names, and the values are hashes of
        the source.
        """
        ...

    def programs(
        self, points: Mapping[AnyPoint, int], sizes: Any = "few"
    ) -> dict[Any, list[AnyPoint]]:
        """Returns a dict from each program to the list of its points.

        Args:
            points: a dict from points to their numbers of runs.
            sizes: the sizes of the programs, in one of four forms. "own": the sizes are
                those of each point, with little padding. A program: all points use the
                sizes of this program. A tuple (V, d, m): all points use these sizes.
                "few" or "many": the sizes are chosen to save time, if the sweep runs
                once or many times.
        """
        ...

    def reason(self, points: Mapping[AnyPoint, int], sizes: Any) -> str:
        """Returns a short text that explains the choice of `programs`."""
        ...

    def cost(self, program: Any, point: AnyPoint) -> Cost: ...

    def width(self, program: Any, seconds: float, room: Room) -> int:
        """Returns the number of runs to compute at the same time, if a run takes
        `seconds`. The number is limited by the available memory. Starts JAX.
        """
        ...

    def run(self, program: Any, width: int, room: Room) -> Loaded:
        """Returns the program ready to run, after compiling it if necessary. Starts
        JAX. Raises OutOfMemory if the memory does not suffice.
        """
        ...

    def problem_in_workers(self, points: Iterable[AnyPoint]) -> str | None:
        """Returns a line that explains why other processes cannot run these points.
        Returns None if they can.
        """
        ...


def program_of(
    simulator: SimulatorLike, point: AnyPoint, sizes: Any = "own"
) -> Program:
    """Returns the program of one point. By default, it has the point's own sizes."""
    [program] = simulator.programs({point: 1}, sizes)
    return program


def programs_of(
    simulator: SimulatorLike, points: Mapping[AnyPoint, int], sizes: Any
) -> dict[AnyPoint, Program]:
    """Returns a dict from each point to its program. The arguments are those of
    `SimulatorLike.programs`.
    """
    found = {}
    for program, of_program in simulator.programs(points, sizes).items():
        found |= dict.fromkeys(of_program, program)
    return found


def grouped(
    members: Iterable[Member], key: Callable[[Member], Key]
) -> dict[Key, list[Member]]:
    """Returns a dict from each key to the list of its members."""
    groups: dict[Key, list[Member]] = {}
    for member in members:
        groups.setdefault(key(member), []).append(member)
    return groups
