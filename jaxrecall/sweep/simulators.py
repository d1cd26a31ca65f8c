"""The simulator of this package, with the same interface to the sweep engine as one of a user, and single runs of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field
from typing import TYPE_CHECKING, Any, Literal, overload

from ..errors import MAX_LIST, PointError, Problem, as_list, expect
from ..model.columns import CODE_VERSION, COLUMNS
from ..model.laws.array import Content, contents_of
from ..model.point import FIELDS, MAX_SEED, Point, Run, checked_seed, make_point, problem_in_workers
from ..simulator.shape import Shape
from .cost import memory_limit, peak_bytes
from .custom import Simulator
from .plan import Terms
from .runners import BatchRunner, CustomRunner

if TYPE_CHECKING:
    from ..simulator.rows import Metrics
    from .grid import Grid
    from .running.progress import Remarks

Runner = BatchRunner | CustomRunner
Row = dict[str, Any]

SEEDS = f"a whole number from 0 to {MAX_SEED}, or a list of up to {MAX_LIST}"

GAP = 0.03
"""Largest part of the attention that a locked cell may lose to noise tokens."""


class RecallSimulator:
    """The simulator of this package, and what the engine asks of any.

    Attributes:
        name: "jaxrecall", or module:name of a simulator of one's own.
        version: of its numbers; rows of two versions do not mix.
        fields: of its points, each with `type`, `default` and, as metadata, kind, symbol, legend
            and limits.
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

    def program(self, point: Point) -> Shape:
        """The program of a point on its own."""
        return Shape.tight(point)

    def problem_in_workers(self, points: Iterable[Point]) -> str | None:
        """Why other processes cannot run these points, in one line; None if they can."""
        one_each = {(point.embedding, point.embedding_out, point.activation, point.tokens, point.noise_tokens): point for point in points}
        return next(filter(None, map(problem_in_workers, one_each.values())), None)

    def contents(self, points: Iterable[Point]) -> Mapping[str, Content]:
        """What workers are sent for these points: contents of the files that their laws name, by hash."""
        return contents_of(dict.fromkeys(law for point in points for law in point.embedding_laws))


RECALL = RecallSimulator()


def simulator_of(grid: Grid) -> RecallSimulator | Simulator:
    """The simulator of a grid."""
    return getattr(grid, "simulator", None) or RECALL


def runner_for(terms: Terms, remarks: Remarks) -> Runner:
    """What runs the chunks of a plan with these terms in this process. Starts JAX.

    Its `rows(chunk)` yields runs of the chunk with their rows, or with the Failure of these alone;
    an exception is one of all that are left. Its `measured` and `compiled` are what it has learned
    for later plans.
    """
    return CustomRunner(terms, remarks) if terms.simulator else BatchRunner(terms, remarks)


@overload
def simulate(point: Point, seed: int, *, trace: Literal[False] = False) -> Row: ...
@overload
def simulate(point: Point, seed: Iterable[int], *, trace: Literal[False] = False) -> list[Row]: ...
@overload
def simulate(point: Point, seed: int | Iterable[int], *, trace: Literal[True]) -> list[Row]: ...
@overload
def simulate(point: Point, seed: int | Iterable[int], *, trace: bool) -> Row | list[Row]: ...
def simulate(point: Point, seed: int | Iterable[int], *, trace: bool = False) -> Row | list[Row]:
    """The row that a sweep writes for (point, seed), without `seconds` and `bucket`: a dict of the
    columns in table order.

    For a list of seeds it returns a list of rows. Of a run that trains on, it is the row of the
    last step; with `trace` it returns a list of the rows of all recorded steps, in order of step,
    seed by seed. The first call for a shape compiles its program, which takes seconds; points of
    similar sizes share it, and the compiled program is kept for later processes. Raises PointError
    for what is no point, for seeds out of range or too many, and for a point that needs more than
    80 % of this machine's memory.

        >>> from jaxrecall import Point, simulate
        >>> point = Point(V=64, N=1024, d=32, L=8)
        >>> row = simulate(point, seed=0)
        >>> rows = simulate(point, seed=range(8))
        >>> losses = [row["loss"] for row in simulate(point.replace(steps=100, lr=0.1), seed=0, trace=True)]
    """
    from ..simulator import program  # starts JAX

    expect("point", point, Point, "a jaxrecall.Point", PointError)
    several = isinstance(seed, Iterable) and not isinstance(seed, str)
    seeds = as_list("seed", seed, SEEDS, PointError) if several else [seed]
    wanted = [Run(point, checked_seed(one)) for one in seeds]
    _check_memory(point)
    program.start()
    runs = _rows(point, wanted)
    if trace:
        return [row for rows in runs for row in rows]
    last = [rows[-1] for rows in runs]
    return last if several else last[0]


def _check_memory(point: Point) -> None:
    """Raises PointError for a point whose program needs more memory than there is."""
    need, limit = peak_bytes(Shape.rounded(point)), memory_limit()
    if need > limit:
        name = max(("V", "d", "m"), key=lambda size: getattr(point, size))
        sizes = ", ".join(f"{size}={getattr(point, size)}" for size in ("V", "d", "m"))
        message = f"got {sizes}, which needs about {need / 2**20:.0f} MiB; allowed: {limit / 2**20:.0f} MiB, 80 % of this machine's memory"
        raise PointError([Problem(name, message)])


def _rows(point: Point, runs: Sequence[Run]) -> list[list[Row]]:
    """The rows of runs of one point, in their order. Those that a bound rejects run once more, in the exact form."""
    from ..simulator import program

    found: dict[Run, list[Metrics]] = {}
    shape = Shape.rounded(point)
    while shape and (left := [run for run in runs if run not in found]):
        compiled = program.compiled(shape)
        for i in range(0, len(left), compiled.batch):
            batch = left[i : i + compiled.batch]
            found |= {run: metrics for run, metrics in zip(batch, program.execute(compiled, batch)[0], strict=True) if metrics}
        shape = shape.fallback
    whole = (program.rows(run, found[run], Shape.rounded(point), "highest", None) for run in runs)
    return [[{name: value for name, value in row.items() if name not in ("seconds", "bucket")} for row in of_run] for of_run in whole]


def limited_by_kappa(rows: Any, axes: Iterable[str], along: str = "N") -> str:
    """A line about the cells in which a larger kappa would raise recall, empty if there are none.

    `attention_top1` is the part of the sequences in which the informative token has the largest
    score, and `attention_mass` the attention that it gets. Where scores are right but too small,
    the first exceeds the second. Runs that train on are left out: they find attention by
    themselves.

    Args:
        rows: one row per run, as `load` returns them.
        axes: what varies between points.
        along: the axis whose values make up a cell; its largest value is judged.
    """
    columns = ["attention_top1", "attention_mass"]
    if not {along, "kappa", "steps", *columns} <= {*rows}:
        return ""
    rows = rows[rows["steps"] == 3]
    cell = [axis for axis in axes if axis in rows and axis != along and rows[axis].nunique(dropna=False) > 1]
    means = rows.groupby([*cell, along], dropna=False)[columns].mean().reset_index().sort_values(along, kind="stable")
    last = means.groupby(cell, dropna=False).tail(1) if cell else means.tail(1)
    gaps = last["attention_top1"] - last["attention_mass"]
    if not (open_ := gaps > GAP).any():
        return ""
    worst = last.loc[gaps.idxmax()]
    at = ", ".join(f"{axis} = {worst[axis] if isinstance(worst[axis], str) else format(worst[axis], 'g')}" for axis in [*cell, along])
    top1, mass = (worst[column] for column in columns)
    return (
        f"attention is limited by kappa in {open_.sum()} of {len(last)} cells, at {at} most: there attention_top1 is {top1:.2f} and "
        f"attention_mass {mass:.2f}, so recall is understated. Raise kappa until the two agree"
    )
