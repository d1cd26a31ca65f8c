"""What the sweep engine knows of a simulator. This package's own simulator has the same interface as one of a user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, replace
from typing import Any

from ..model.columns import CODE_VERSION, COLUMNS
from ..model.laws.array import Content, contents_of
from ..model.point import FIELDS, Point, Run, make_point, problem_in_workers
from ..simulator.shape import Shape
from . import plan as planning
from .batches import BatchRunner
from .calibration import Calibration
from .cost import operations, work
from .custom import CustomRunner, Simulator
from .grid import Grid
from .plan import Plan, Terms
from .running.progress import Remarks
from .settings import Settings

Sizes = tuple[int, int, int]

Runner = BatchRunner | CustomRunner


class RecallSimulator:
    """The simulator of this package, and what the engine asks of any.

    Attributes:
        name: "jaxrecall", or module:name of a simulator of one's own.
        version: of its numbers; rows of two versions do not mix.
        fields: of its points, each with `type`, `default` and, as metadata, kind, symbol, legend and limits.
        columns: of its rows, in order: Arrow type and meaning.
        accuracy: the column that is drawn, fitted and searched, a fraction.
    """

    name: str = "jaxrecall"
    version: int = CODE_VERSION
    fields: Mapping[str, Field[Any]] = FIELDS
    columns: Mapping[str, tuple[str, str]] = COLUMNS
    accuracy: str = "accuracy"

    def make_point(self, values: Mapping[str, Any]) -> Point:
        """The point with these values of its fields; raises PointError."""
        return make_point(values)

    def about(self) -> dict[str, Any]:
        """What the metadata of its tables says of it."""
        return {}

    def plan(
        self,
        runs: Iterable[Run],
        settings: Settings,
        pad_to: Sizes | None = None,
        limit: int | None = None,
        calibration: Calibration | None = None,
    ) -> Plan:
        """The plan for runs.

        Args:
            runs: what is to be computed.
            settings: how it is carried out.
            pad_to: sizes of one program for all, if there is to be one.
            limit: bytes that a program may take.
            calibration: how fast this machine is, if not what it remembers.
        """
        return planning.make(runs, pad_to, calibration, limit, settings)

    def plan_round(self, runs: Sequence[Run], settings: Settings, limit: int | None, program: Callable[[Point], Shape], batch: int) -> Plan:
        """The plan for a round of a search: each run in the program of its point, in batches of one size."""
        groups: dict[Shape, list[Run]] = {}
        for run in runs:
            groups.setdefault(_for_point(program, run.point), []).append(run)
        known = Calibration.kept()
        sized = [((shape.V, shape.d, shape.m), shape.light, group) for shape, group in groups.items()]
        return planning.joined([planning.make(group, sizes, known, limit, settings, light) for sizes, light, group in sized], batch)

    def program(self, point: Point) -> Shape:
        """The program of a point on its own."""
        return Shape.tight(point)

    def seconds(self, point: Point, program: Shape) -> float:
        """What a run takes in a program on a usual machine."""
        return Calibration().rates.on_all_cores(operations(_for_point(lambda _: program, point), work(point)))

    def cost(self, runs: Sequence[tuple[Point, int]], program: Callable[[Point], Shape]) -> tuple[float, float]:
        """Seconds of wall time, and operations, of so many runs of each point."""
        known, shapes = Calibration.kept(), [_for_point(program, point) for point, _ in runs]
        amounts = [operations(shape, work(point, n)) for shape, (point, n) in zip(shapes, runs, strict=True)]
        programs = {*shapes, *(shape.fallback for shape in shapes if shape.fallback)}
        seconds = sum(map(known.seconds_to_get, programs)) + sum(map(known.rates.on_all_cores, amounts))
        return seconds, sum(a.flops for a in amounts)

    def runner(self, terms: Terms, remarks: Remarks) -> BatchRunner:
        """What runs the chunks of a plan with these terms in this process. Starts JAX.

        Its `rows(chunk)` yields runs of the chunk with their rows, or with the Failure of these alone; an exception is one of all that
        are left. Its `measured` and `compiled` are what it has learned for later plans.
        """
        return BatchRunner(terms, remarks)

    def problem_in_workers(self, points: Iterable[Point]) -> str | None:
        """Why other processes cannot run these points, in one line; None if they can."""
        one_each = {(point.embedding, point.embedding_out, point.activation, point.tokens, point.noise_tokens): point for point in points}
        return next(filter(None, map(problem_in_workers, one_each.values())), None)

    def contents(self, points: Iterable[Point]) -> Mapping[str, Content]:
        """What workers are sent for these points: contents of the files that their laws name, by hash."""
        return contents_of(dict.fromkeys(law for point in points for law in point.embedding_laws))


def _for_point(program: Callable[[Point], Shape], point: Point) -> Shape:
    """The program of a cell, as one of its points runs in it."""
    shape = program(point)
    return replace(Shape.sized(point, shape.V, shape.d, shape.m), light=shape.light)


RECALL = RecallSimulator()


def simulator_of(grid: Grid) -> RecallSimulator | Simulator:
    """The simulator of a grid."""
    return getattr(grid, "simulator", None) or RECALL


def runner_for(terms: Terms, remarks: Remarks) -> Runner:
    """What runs the chunks of a plan with these terms in this process. Starts JAX."""
    return getattr(terms, "simulator", RECALL).runner(terms, remarks)
