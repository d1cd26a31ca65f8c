"""The interface between a simulator and the sweep engine.

`shipped` contains the simulator of this package, and `custom` contains simulators of
users. A simulator has these members:

    facts                      a record: its name, version, fields and columns
    point(values)              a point with these values; raises PointError
    law_sources(points)        the user's own laws of points, with source hashes
    programs(points, sizes)    the points that share each program
    cost(program, point)       the time and memory of a run of a point in a program
    width(program, ...)        the number of runs that a program computes at a time
    run(program, width, room)  the compiled program, which turns runs into rows
    problem_in_workers(points) the reason why other processes cannot run these points

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
        fallback: the program for runs that this program rejects. None if it rejects
            none.
        compile_seconds: the time to compile the program on a usual machine. 0 if
            unknown.
        kin: a sort key. Programs of similar runs have neighboring keys.
        choices: the content of the label as plain data, for a dry run.
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
    """The name: jaxrecall, or module:name for a user's simulator."""

    fields: Mapping[str, Field[object]]
    """The fields of the simulator's points. Each has a type, a default and, as
    metadata, kind, symbol, legend and limits.
    """

    columns: Mapping[str, tuple[str, ...]]
    """The columns of the simulator's rows in order, each with Arrow type and
    meaning.
    """

    version: int = 1
    """The version of the simulator's numbers. Rows of two versions do not mix."""

    accuracy: str = "accuracy"
    """The column that is drawn, fitted and searched. Its values are fractions."""

    own_columns: Mapping[str, str] = field(default_factory=dict)
    """The columns that functions of the user return. For this package's simulator, the
    value of a column is the import path of its function and a digest of the source.
    """

    x64: bool = False
    """Whether the simulator's numbers have 64 bits because jax_enable_x64 is on."""

    @property
    def is_ours(self) -> bool:
        """Whether this is the simulator of this package. Only its costs are known
        before a run.
        """
        return self.name == OURS

    def precision(self, asked: str) -> str:
        """The precision that rows record. Rows of two precisions do not mix."""
        return f"{asked}, x64" if self.x64 else asked

    def about(self) -> dict[str, Any]:
        """The entries about the simulator in the metadata of tables."""
        if not self.is_ours:
            return {
                "simulator": self.name,
                "fields": list(self.fields),
                "accuracy": self.accuracy,
            }
        if not self.own_columns:
            return {}
        return {"columns": dict(self.own_columns)}


OURS = "jaxrecall"


class Cost(NamedTuple):
    """The time and memory of a run in a program."""

    seconds: float
    """The time on one core of a usual machine."""

    flops: float
    bytes: int
    """The memory of each run that is computed at a time. 0 if unknown."""


class Room(NamedTuple):
    """The resources that a process may use, and the settings with which it computes."""

    precision: str
    limit: int
    """The number of bytes of memory."""

    cores: int
    n_runs: int
    """The number of runs of all programs."""

    batch: int | None
    """The number of runs that are vmapped on an accelerator. None means the number that
    takes half a second.
    """


class Loaded(NamedTuple):
    """A program that is ready to run."""

    run: Callable[[Mapping[Run, float]], list[Rows | Exception | None]]
    """Computes runs. The argument is a dict from runs to their expected shares of the
    time. For each run, the result is its rows, the exception that prevented them, or
    None. None means that the program rejects the run; the fallback then computes it.
    """

    most: int
    """The largest number of runs in a batch."""

    threads: int
    """The number of batches that run at a time. 0 means one batch, in the calling
    thread.
    """

    in_turn: bool = False
    """Whether the runs of a batch are computed one after the other, as on a CPU. Small
    batches then have no disadvantage.
    """


class SimulatorLike(Protocol):
    """A simulator as the sweep engine uses it."""

    @property
    def facts(self) -> Facts: ...

    def point(self, values: Mapping[str, object]) -> AnyPoint:
        """The point with these values of its fields. Raises PointError."""

    def law_sources(self, points: Iterable[AnyPoint]) -> dict[str, str]:
        """The user's own laws of these points: a dict from names to hashes of their
        source.
        """
        ...

    def programs(
        self, points: Mapping[AnyPoint, int], sizes: Any = None
    ) -> dict[Any, list[AnyPoint]]:
        """The points of each program.

        Args:
            points: a dict from points to their numbers of runs.
            sizes: the sizes of the programs, in one of four forms. "own": each point
                has a program of its own sizes, with little padding. A program: all
                points have the sizes of that program. V, d and m: all points have these
                sizes. None: the sizes are chosen to save time.
        """
        ...

    def cost(self, program: Any, point: AnyPoint) -> Cost: ...

    def width(self, program: Any, seconds: float, room: Room) -> int:
        """The number of runs that are computed at a time in the available memory, if a
        run takes `seconds`. Starts JAX.
        """
        ...

    def run(self, program: Any, width: int, room: Room) -> Loaded:
        """The program, which is compiled if necessary. Starts JAX. Raises
        OutOfMemory.
        """
        ...

    def problem_in_workers(self, points: Iterable[AnyPoint]) -> str | None:
        """A line with the reason why other processes cannot run these points. None if
        they can.
        """
        ...


def program_of(
    simulator: SimulatorLike, point: AnyPoint, sizes: Any = "own"
) -> Program:
    """The program of one point, with the point's own sizes or with other sizes."""
    [program] = simulator.programs({point: 1}, sizes)
    return program


def grouped(
    members: Iterable[Member], key: Callable[[Member], Key]
) -> dict[Key, list[Member]]:
    """The members of each key."""
    groups: dict[Key, list[Member]] = {}
    for member in members:
        groups.setdefault(key(member), []).append(member)
    return groups
