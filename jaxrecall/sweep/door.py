"""The door between the sweep engine and a simulator: all that the engine knows of one. Ours comes through it like any other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import UsageError
from ..model import laws
from ..model.columns import CODE_VERSION, COLUMNS
from ..model.point import FIELDS, Point, Run
from ..simulator.shape import Shape
from ..simulator.work import Work
from . import plan as planning
from .cost import Calibration
from .plan import Chunk, Plan, Terms
from .settings import Settings

if TYPE_CHECKING:
    from .grid import Grid
    from .running.progress import Remarks, Traces
    from .running.recorder import Failure

Program = Any
"""What is compiled for a group of points: hashable, and shown in messages by its text."""

Sizes = tuple[int, int, int]


class Runner(Protocol):
    """Runs chunks in one process.

    Attributes:
        measured: what the runs of each program took, for later plans.
        compiled: seconds that each program took to compile.
    """

    measured: dict[Any, Any]
    compiled: dict[Any, float | None]

    def rows(self, chunk: Chunk) -> Iterator[tuple[list[Run], Traces | Failure]]:
        """Runs of the chunk and their rows, or how they failed, batch by batch; an exception is a failure of all that are left."""
        ...


class Door(Protocol):
    """A simulator, as the engine sees it.

    Attributes:
        name: "jaxrecall", or module:name of a simulator of one's own.
        version: of its numbers; rows of two versions do not mix.
        fields: of its points, each with `type`, `default` and, as metadata, kind, symbol, legend and limits.
        columns: of its rows, in order: Arrow type and meaning.
        accuracy: the column that is drawn, fitted and searched, a fraction.
    """

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def fields(self) -> Mapping[str, Field[Any]]: ...
    @property
    def columns(self) -> Mapping[str, tuple[str, str]]: ...
    @property
    def accuracy(self) -> str: ...

    def make_point(self, values: Mapping[str, Any]) -> Any:
        """The point with these values of its fields; raises PointError."""

    def about(self) -> dict[str, Any]:
        """What the metadata of its tables says of it."""
        ...

    def plan(
        self,
        runs: Iterable[Run],
        pad_to: Sizes | None = None,
        calibration: Calibration | None = None,
        limit: int | None = None,
        settings: Settings | None = None,
    ) -> Plan:
        """The plan for runs; `calibration` says how fast this machine is, if not what it remembers."""
        ...

    def plan_round(
        self, runs: Sequence[Run], program: Callable[[Any], Program], batch: int, limit: int | None, settings: Settings | None
    ) -> Plan:
        """The plan for a round of a search: each run in the program of its point, in batches of one size."""
        ...

    def cost(self, runs: Sequence[tuple[Any, int]], program: Callable[[Any], Program]) -> tuple[float, float]:
        """Seconds of wall time, and operations, of so many runs of each point."""
        ...

    def runner(self, terms: Terms, remarks: Remarks) -> Runner:
        """What runs the chunks of a plan with these terms in this process. Starts JAX."""
        ...

    def problem_in_workers(self, points: Iterable[Any]) -> str | None:
        """Why other processes cannot run these points, in one line; None if they can."""
        ...


class Recall:
    """The simulator of this package."""

    name, version, accuracy, fields, columns = "jaxrecall", CODE_VERSION, "accuracy", FIELDS, COLUMNS

    def make_point(self, values: Mapping[str, Any]) -> Point:
        return Point(**values)

    def about(self) -> dict[str, Any]:
        return {}

    def plan(
        self,
        runs: Iterable[Run],
        pad_to: Sizes | None = None,
        calibration: Calibration | None = None,
        limit: int | None = None,
        settings: Settings | None = None,
    ) -> Plan:
        return planning.make(runs, pad_to, calibration, limit, settings)

    def plan_round(
        self, runs: Sequence[Run], program: Callable[[Point], Shape], batch: int, limit: int | None, settings: Settings | None
    ) -> Plan:
        groups: dict[Shape, list[Run]] = {}
        for run in runs:
            groups.setdefault(_for_point(program, run.point), []).append(run)
        known = Calibration.kept()
        plans = [planning.make(group, (shape.V, shape.d, shape.m), known, limit, settings, shape.quick) for shape, group in groups.items()]
        return planning.joined(plans, batch)

    def cost(self, runs: Sequence[tuple[Point, int]], program: Callable[[Point], Shape]) -> tuple[float, float]:
        known, shapes = Calibration.kept(), [_for_point(program, point) for point, _ in runs]
        amounts = [shape.amounts(Work.of(point, n)) for shape, (point, n) in zip(shapes, runs, strict=True)]
        programs = {*shapes, *(shape.fallback for shape in shapes if shape.fallback)}
        seconds = sum(map(known.seconds_to_get, programs)) + sum(map(known.rates.on_all_cores, amounts))
        return seconds, sum(a.flops for a in amounts)

    def runner(self, terms: Terms, remarks: Remarks) -> Runner:
        from .running.runner import BatchRunner

        return BatchRunner(terms, remarks)

    def problem_in_workers(self, points: Iterable[Point]) -> str | None:
        problem = getattr(laws, "problem_in_workers", lambda point: None)
        one_each = {(point.embedding, point.activation, getattr(point, "tokens", "")): point for point in points}
        return next(filter(None, map(problem, one_each.values())), None)


def _for_point(program: Callable[[Point], Shape], point: Point) -> Shape:
    """The program of a cell, as one of its points runs in it."""
    shape = program(point)
    return replace(Shape.sized(point, shape.V, shape.d, shape.m), quick=shape.quick)


RECALL = Recall()


def simulator_of(grid: Grid) -> Door:
    """The simulator of a grid."""
    return getattr(grid, "simulator", None) or RECALL


def named(name: str) -> Door:
    """The simulator that a grid file names as module:name; raises UsageError."""
    from .own import Simulator

    module, _, attribute = name.partition(":")
    allowed = "allowed: module:name of a jaxrecall.Simulator, such as perceptron:simulator"
    if not attribute or not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise UsageError(f"simulator: got {name!r}; {allowed}")
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:  # whatever the module of a user raises
        raise UsageError(f"simulator: {name} cannot be imported ({type(error).__name__}: {error}); {allowed}") from error
    if not isinstance(found, Simulator):
        raise UsageError(f"simulator: {name} is of type {type(found).__name__}; {allowed}")
    return found


def add_to_path(folders: Iterable[str]) -> None:
    """Makes modules in the folders importable, after everything that is importable already."""
    sys.path += [folder for folder in folders if folder not in sys.path]
