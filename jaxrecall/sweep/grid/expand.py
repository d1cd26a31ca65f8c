"""All grid blocks to points, each point once.

A point that cannot be simulated refuses the grid, unless a where line excludes it. Each kind of fault is reported once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ...errors import GridError, PointError, Problem
from ...model.point import FIELDS, Point
from .block import GridBlock, Values, grid_blocks
from .document import Document, Location
from .fields import DEFAULTS
from .file import GridFile
from .values import show

MAX_KEPT = 200_000  # points that are kept only to report how far a grid is past max_runs
BETWEEN = 10_000  # points from one report of progress to the next

OnProgress = Callable[[int, int], None]
"""Called with the points expanded so far, and all of them."""


@dataclass(frozen=True)
class Expansion:
    """The points in order, how many repeated another one, and how many a where line excluded."""

    points: tuple[Point, ...]
    n_duplicates: int
    n_excluded: int


def expand(document: Document, file: GridFile, on_progress: OnProgress = lambda done, of: None) -> Expansion:
    """All points of the grid; raises GridError with a line per kind of invalid point, or if no point or too many are left."""
    blocks = grid_blocks(document, file)
    searched = {file.search.axis: file.search.from_} if file.search else {}
    base = {name: value for name, value in file.base.model_dump(exclude_unset=True).items() if value is not None}
    start = {**DEFAULTS, "root_seed": file.root_seed, **searched, **base}
    budget = _Budget(document, file)
    n_raw = sum(block.n_raw for block in blocks)
    budget.check_product(n_raw)
    points: dict[str, Point] = {}
    faults = _Faults(document)
    n_duplicates = n_excluded = n_done = 0
    for block in blocks:
        for row in block.rows():
            if n_done % BETWEEN == 0:
                on_progress(n_done, n_raw)
            n_done += 1
            values = _values(start, row)
            try:
                point = block.point(values)
            except PointError as error:
                for problem in error.problems:
                    faults.add(block, problem, row, values)
                continue
            if point is None:
                n_excluded += 1
            elif points.setdefault(point.point_id, point) is not point:
                n_duplicates += 1
            budget.check_kept(len(points), n_raw)
    if faults.found:
        raise GridError(faults.lines())
    if not points:
        empty = "excludes all of {}, no block has any left; allowed: conditions that some meet"
        raise GridError([document.line((*block.location, "where"), empty.format(_points(block.n_raw))) for block in blocks])
    budget.check_points(len(points))
    if file.search:
        _check_search(document, file.search.to, points.values())
    return Expansion(tuple(points.values()), n_duplicates, n_excluded)


def _check_search(document: Document, to: int, points: Iterable[Point]) -> None:
    """Raises GridError if the range of a search includes an N that some of its points cannot have."""
    most = FIELDS["N"].metadata["high"]
    if to > most and (without := sum(point.pool is None for point in points)):
        message = f"got {to} with {_points(without)} without a pool; allowed: up to {most}, or give every point a pool"
        raise GridError(document.line(("search", "to"), message))


def _values(start: Values, row: Values) -> Values:
    """`row` over `start`; null in a row means not given, so that the default of the field holds."""
    values = {**start, **row}
    for name in [name for name, value in row.items() if value is None]:
        del values[name]
        values.update({name: DEFAULTS[name]} if name in DEFAULTS else {})
    return values


class _Budget:
    """limits.max_runs, checked against the points as early as possible; each check raises GridError."""

    def __init__(self, document: Document, file: GridFile):
        self.document, self.max_runs = document, file.limits.max_runs
        self.runs_each = file.search.max_runs * len(file.search.theta) if file.search else file.n_seeds
        self.each = f"{self.runs_each} " + ("runs that a search may take" if file.search else "seeds")

    def check_product(self, n_raw: int) -> None:
        """Before any point is made: refuses a product that would take long, or too many runs of a single point."""
        if n_raw > 20 * max(self.max_runs, 1_000_000) or self.runs_each > self.max_runs:
            raise self._error(f"{_points(n_raw)} before where, times {self.each}")

    def check_kept(self, n_points: int, n_raw: int) -> None:
        """While points are made: refuses the grid soon after the limit is passed."""
        if n_points > max(MAX_KEPT, self.max_runs // self.runs_each):
            raise self._error(f"more than {n_points - 1} of {n_raw} points, times {self.each}")

    def check_points(self, n_points: int) -> None:
        if n_points * self.runs_each > self.max_runs:
            raise self._error(f"{_points(n_points)} times {self.each} = {n_points * self.runs_each} runs")

    def _error(self, got: str) -> GridError:
        message = f"got {got}; allowed: {self.max_runs} runs; raise limits.max_runs or make the grid smaller"
        return GridError(self.document.line(("limits", "max_runs"), message))


@dataclass
class _Fault:
    """One kind of problem at one location: how often, in which grid blocks, and the first of them."""

    problem: Problem
    first: str
    hint: str
    count: int = 0
    blocks: dict[Location, int] = field(default_factory=dict)


class _Faults:
    """The problems of invalid points by kind: the location, the argument and the remedy, without the numbers of the point."""

    def __init__(self, document: Document):
        self.document = document
        self.found: dict[tuple[Location, str, str], _Fault] = {}

    def add(self, block: GridBlock, problem: Problem, row: Values, values: Values) -> None:
        """Counts a problem of the point that `row` of the axes gives, which makes these `values`."""
        name = problem.argument
        location = block.locations.get(name, block.location)
        if name not in block.locations and name in self.document.data.get("base", {}):
            location = ("base", name)
        kind = location, name, problem.where or problem.message.rpartition("; allowed: ")[2].split(", at ")[0]
        if kind not in self.found:
            value, hint = values.get(name), ""
            if name in block.derive and isinstance(value, float) and not value.is_integer() and FIELDS[name].type == "int":
                hint = f'; write {name}: "round({block.derive[name].text})"'
            self.found[kind] = _Fault(problem, ", ".join(f"{axis}={show(value)}" for axis, value in row.items()), hint)
        self.found[kind].count += 1
        self.found[kind].blocks[block.location] = block.n_raw

    def lines(self) -> list[str]:
        return [self._line(location, fault) for (location, _, _), fault in self.found.items()]

    def _line(self, location: Location, fault: _Fault) -> str:
        total, problem = sum(fault.blocks.values()), fault.problem
        first = f", the first at {fault.first}" if fault.first else ""
        remedy = ""
        if problem.where and self.document.data.get("blocks"):
            remedy = f'; where: ["{problem.where}"] would exclude ' + ("them" if fault.count < total else "them, and leave none")
        return self.document.line(location, f"{fault.count} of {_points(total)} cannot be simulated{first}: {problem}{fault.hint}{remedy}")


def _points(count: int) -> str:
    return f"{count} point" + ("" if count == 1 else "s")
