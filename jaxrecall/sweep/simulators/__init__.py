"""What the sweep engine asks of a simulator, ours or one of a user, and nothing else.

Ours is `recall`, one of a user `custom`:

    facts                      one record: its name, version, fields and columns
    point(values)              a point, from values of its fields; raises PointError
    programs(points, sizes)    which points share a program, and at which sizes
    cost(program, point)       what a run of a point takes in a program, and the memory
        of the program
    run(program, width, room)  the program, ready to run batches of runs and to return
        their rows
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

AnyPoint = Any  # a Point, or what `point` of a simulator of one's own returns

Rows = Sequence[Row]
"""Finished rows of a run, one for each recorded step, as the results folder takes them.
"""

Sizes = tuple[int, int, int]
"""V, d and m."""


class Program(Hashable, Protocol):
    """The static part of what is compiled; its text has its sizes.

    Attributes:
        label: all that tells it from others.
        fallback: the program for runs that it rejects; None if it rejects none.
        compile_seconds: to compile it on a usual machine; 0 where nobody knows.
        kin: what is close for programs of similar runs.
        choices: all that tells it from others, as plain data, for a dry run.
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
    """What is to know of a simulator before anything runs."""

    name: str
    """jaxrecall, or module:name of a simulator of one's own."""

    fields: Mapping[str, Field[object]]
    """Of its points, each with type, default and, as metadata, kind, symbol, legend and
    limits.
    """

    columns: Mapping[str, tuple[str, ...]]
    """Of its rows, in order: Arrow type and meaning."""

    version: int = 1
    """Of its numbers; rows of two versions do not mix."""

    accuracy: str = "accuracy"
    """The main column, which is drawn, fitted and searched: a fraction."""

    own_columns: Mapping[str, str] = field(default_factory=dict)
    """Columns that functions of the user return; those of our simulator with import
    path and digest of the source.
    """

    x64: bool = False
    """Whether its numbers are of 64 bits because jax_enable_x64 is on."""

    @property
    def is_ours(self) -> bool:
        """Whether it is the simulator of this package, whose costs are known before a
        run.
        """
        return self.name == OURS

    def precision(self, asked: str) -> str:
        """What rows say of their precision; rows of two do not mix."""
        return f"{asked}, x64" if self.x64 else asked

    def about(self) -> dict[str, Any]:
        """What the metadata of its tables says of it."""
        if not self.is_ours:
            return {
                "simulator": self.name,
                "fields": list(self.fields),
                "accuracy": self.accuracy,
            }
        return {"columns": dict(self.own_columns)} if self.own_columns else {}


OURS = "jaxrecall"


class Cost(NamedTuple):
    """What a run takes in a program."""

    seconds: float
    """Of one core of a usual machine."""

    flops: float
    bytes: int
    """Of memory that each run at a time takes; 0 where nobody knows."""


class Room(NamedTuple):
    """What a process may use, and how it computes."""

    precision: str
    limit: int
    """Bytes of memory."""

    cores: int
    n_runs: int
    """Of all programs."""

    batch: int | None
    """Vmapped runs on an accelerator; None: half a second's work."""


class Loaded(NamedTuple):
    """A program that is ready to run."""

    run: Callable[[Mapping[Run, float]], list[Rows | Exception | None]]
    """Rows of runs, each with the share of the time that it is expected to take; or why
    there are none; None: the program rejects the run, which is for the fallback."""

    most: int
    """Runs of a batch, at most."""

    threads: int
    """Batches at a time; 0 is one, in the calling thread."""

    in_turn: bool = False
    """Whether the runs of a batch take turns, as on a CPU. Small batches then cost
    nothing.
    """


class SimulatorLike(Protocol):
    """A simulator, as the engine sees it."""

    @property
    def facts(self) -> Facts: ...

    def point(self, values: Mapping[str, object]) -> AnyPoint:
        """The point with these values of its fields; raises PointError."""

    def sources(self, points: Iterable[AnyPoint]) -> dict[str, str]:
        """The laws of the user's own of these points, by name, with a hash of their
        source.
        """
        ...

    def programs(
        self, points: Mapping[AnyPoint, int], sizes: Any = None
    ) -> dict[Any, list[AnyPoint]]:
        """The points of each program.

        Args:
            points: the points, and how many runs each has.
            sizes: "own": each point has the program of its own, with little padding; a
                program: its sizes for all; V, d and m; None: those that save time.
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
    return next(iter(simulator.programs({point: 1}, sizes)))


def grouped(
    members: Iterable[Member], key: Callable[[Member], Key]
) -> dict[Key, list[Member]]:
    """The members of each key."""
    groups: dict[Key, list[Member]] = {}
    for member in members:
        groups.setdefault(key(member), []).append(member)
    return groups
