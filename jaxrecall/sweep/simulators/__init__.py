"""The interface of a simulator to the sweep engine.

`recall` has that of this package, and `custom` those of users. A simulator has

    facts                      a record: its name, version, fields and columns
    point(values)              a point with these values; raises PointError
    programs(points, sizes)    the points that share each program, which has sizes
    cost(program, point)       time and memory of a run of a point in a program
    width(program, ...)        how many runs a program takes at a time
    run(program, width, room)  the compiled program, which turns runs into rows
    problem_in_workers(points) why other processes cannot run these points

A point has `point_id`, `recorded_steps` and `as_given()`. A program is the static part
of what is compiled: plain data, hashable and ordered.
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
    """The static part of what is compiled. Its text has its sizes.

    Attributes:
        label: a text that no other program has.
        fallback: the program for runs that it rejects; None if it rejects none.
        compile_seconds: the time to compile it on a usual machine; 0 if unknown.
        kin: a key that is close for programs of similar runs.
        choices: what the label says, as plain data, for a dry run.
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
    """What is known of a simulator before anything runs."""

    name: str
    """jaxrecall, or module:name of a user's simulator."""

    fields: Mapping[str, Field[object]]
    """The fields of its points, each with type, default and, as metadata, kind, symbol,
    legend and limits.
    """

    columns: Mapping[str, tuple[str, ...]]
    """The columns of its rows, in order: Arrow type and meaning."""

    version: int = 1
    """The version of its numbers; rows of two versions do not mix."""

    accuracy: str = "accuracy"
    """The column that is drawn, fitted and searched, a fraction."""

    own_columns: Mapping[str, str] = field(default_factory=dict)
    """The columns that functions of the user return; for this package's simulator with
    import path and digest of the source.
    """

    x64: bool = False
    """Whether its numbers have 64 bits because jax_enable_x64 is on."""

    @property
    def is_ours(self) -> bool:
        """Whether it is the simulator of this package, whose costs are known before a
        run.
        """
        return self.name == OURS

    def precision(self, asked: str) -> str:
        """The precision in rows; rows of two precisions do not mix."""
        return f"{asked}, x64" if self.x64 else asked

    def about(self) -> dict[str, Any]:
        """Its part of the metadata of tables."""
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
    """What a run takes in a program."""

    seconds: float
    """The time on one core of a usual machine."""

    flops: float
    bytes: int
    """The memory of each run that is computed at a time; 0 if unknown."""


class Room(NamedTuple):
    """What a process may use, and how it computes."""

    precision: str
    limit: int
    """Bytes of memory."""

    cores: int
    n_runs: int
    """The runs of all programs."""

    batch: int | None
    """How many runs are vmapped on an accelerator; None: half a second's work."""


class Loaded(NamedTuple):
    """A program that is ready to run."""

    run: Callable[[Mapping[Run, float]], list[Rows | Exception | None]]
    """A function of runs, each with its expected share of the time. For each run it
    returns rows, the reason why there are none, or None if the program rejects the run,
    which the fallback then takes."""

    most: int
    """How many runs a batch has at most."""

    threads: int
    """How many batches run at a time; 0 stands for one, in the calling thread."""

    in_turn: bool = False
    """Whether the runs of a batch are computed one after the other, as on a CPU. Small
    batches then cost nothing.
    """


class SimulatorLike(Protocol):
    """A simulator, as the engine sees it."""

    @property
    def facts(self) -> Facts: ...

    def point(self, values: Mapping[str, object]) -> AnyPoint:
        """The point with these values of its fields; raises PointError."""

    def law_sources(self, points: Iterable[AnyPoint]) -> dict[str, str]:
        """The user's own laws of these points, by name, with a hash of their source."""
        ...

    def programs(
        self, points: Mapping[AnyPoint, int], sizes: Any = None
    ) -> dict[Any, list[AnyPoint]]:
        """The points of each program.

        Args:
            points: the points, and how many runs each has.
            sizes: "own" for the program of each point itself, with little padding; a
                program, whose sizes all points have; V, d and m; or None for the sizes
                that save time.
        """
        ...

    def cost(self, program: Any, point: AnyPoint) -> Cost: ...

    def width(self, program: Any, seconds: float, room: Room) -> int:
        """How many runs of so many seconds share the memory. Starts JAX."""
        ...

    def run(self, program: Any, width: int, room: Room) -> Loaded:
        """The program, compiled if need be. Starts JAX; raises OutOfMemory."""
        ...

    def problem_in_workers(self, points: Iterable[AnyPoint]) -> str | None:
        """Why other processes cannot run these points, in one line; None if they
        can.
        """
        ...


def program_of(
    simulator: SimulatorLike, point: AnyPoint, sizes: Any = "own"
) -> Program:
    """The program of one point, of its own or of other sizes."""
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
