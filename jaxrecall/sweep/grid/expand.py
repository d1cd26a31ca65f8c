"""The blocks of a checked file to points, each point once.

A point that cannot be simulated refuses the grid, unless a where line excludes it. Each kind of fault is reported once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...errors import GridError, PointError, Problem
from .axes import Names, axis_locations
from .document import Document
from .file import Block, GridFile
from .schema import Location, show

MAX_KEPT = 200_000  # points that are kept only to report how far a grid is past max_runs
BETWEEN = 10_000  # points from one report of progress to the next

OnProgress = Callable[[int, int], None]
"""Called with the points expanded so far, and all of them."""

Values = dict[str, Any]
"""Values of fields and helpers by name."""

_RESOLVED = {"activation", "kappa", "gamma", "gamma2"}  # fields that may change, or appear, when the point is made


@dataclass(frozen=True)
class Expansion:
    """The points in order, how many repeated another one, and how many a where line excluded."""

    points: tuple[Any, ...]
    n_duplicates: int
    n_excluded: int


def expand(document: Document, file: GridFile, names: Names, on_progress: OnProgress = lambda done, of: None) -> Expansion:
    """All points of the grid; raises GridError with a line per kind of invalid point, or if no point or too many are left."""
    start = names.defaults | {"root_seed": file.root_seed}
    start |= {file.search.axis: file.search.from_} if file.search else {}
    start |= {name: value for name, value in file.base.items() if value is not None}
    blocks = [_Expanded(names, document, file, i, block, start) for i, block in enumerate(file.blocks or [Block()])]
    budget = _Budget(document, file)
    n_raw = sum(block.n_raw for block in blocks)
    budget.check_product(n_raw)
    points: dict[str, Any] = {}
    faults = _Faults(document, names)
    n_duplicates = n_excluded = n_done = 0
    for block in blocks:
        for row in block.rows():
            if n_done % BETWEEN == 0:
                on_progress(n_done, n_raw)
            n_done += 1
            values = block.values(row)
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
    return Expansion(tuple(points.values()), n_duplicates, n_excluded)


class _Expanded:
    """A block of the file: rows of values, and the point at each. `locations` says where each of its names is written."""

    def __init__(self, names: Names, document: Document, file: GridFile, i: int, block: Block, start: Values):
        self.names, self.start = names, start
        self.axes, self.derive, self.where = block.axes, block.derive, block.where
        self.location: Location = ("blocks", i) if "blocks" in document.data else ()
        written = document.data["blocks"][i].get("axes") if self.location else None
        self.locations = dict(axis_locations(written, (*self.location, "axes")))
        self.locations |= {name: (*self.location, "derive", name) for name in self.derive}
        self.locations |= {f"where.{j}": (*self.location, "where", j) for j in range(len(self.where))}
        self.n_raw = math.prod(len(rows) for _, rows in self.axes)
        self.arguments = [name for name in {**start, **self.locations} if name in names or name == "root_seed"]
        self.rate = next((name for name in names.other_rate if name in self.locations), None)
        self.farthest = {}
        if search := file.search:
            self.locations[search.axis] = ("search",)
            self.farthest = {search.axis: search.to} if search.to > names.fields[search.axis].metadata.get("high", math.inf) else {}

    def rows(self) -> Iterator[Values]:
        """The values of the axes at each point, the last axis fastest."""
        for combination in itertools.product(*(rows for _, rows in self.axes)):
            pairs = zip(self.axes, combination, strict=True)
            yield {name: value for (names, _), row in pairs for name, value in zip(names, row, strict=True)}

    def values(self, row: Values) -> Values:
        """`row` over the base; null in a row means not given, so that the default of the field holds."""
        values = {**self.start, **row}
        for name in [name for name, value in row.items() if value is None]:
            del values[name]
            values.update({name: self.names.defaults[name]} if name in self.names.defaults else {})
        return values

    def point(self, values: Values) -> Any:
        """The point at these values of base and axes, or None if a where line excludes it; raises PointError.

        Adds the derived values to `values`. A where line sees the fields as the point resolves them. Where the point cannot be
        made, a line that needs only given and derived values may still exclude it.
        """
        problems = self._derive_into(values)
        point = None  # made by the first line that needs it, since to exclude a point without making it is faster
        for i, line in enumerate(self.where):
            known = line.names <= values.keys()
            if point is None and not problems and not (known and line.names.isdisjoint(_RESOLVED)):
                point = self._make(values, problems)
            if point is None and not known:
                continue
            scope = (
                values
                if point is None
                else {name: self.names.value(point, name) if name in self.names else values[name] for name in line.names}
            )
            try:
                holds = line.evaluate(scope)
            except ValueError as error:
                problems.append(Problem(f"where.{i}", str(error)))
                continue
            if holds is False:
                return None
            if holds is not True:
                problems.append(Problem(f"where.{i}", f"{line.text!r}: gives {show(holds)}; allowed: true or false"))
        if point is None and not problems:
            point = self._make(values, problems)
        if problems:
            raise PointError(problems)
        return point

    def _scope(self, used: Iterable[str], point: Any, values: Values) -> Values:
        """The values of names: of fields as the point has them, of helpers as they are."""
        return {name: self.names.value(point, name) if name in self.names else values[name] for name in used}

    def _derive_into(self, values: Values) -> list[Problem]:
        """Adds the derived values; the first that fails is a problem, and leaves it and the later ones out."""
        for i, (name, expression) in enumerate(self.derive.items()):
            try:
                values[name] = expression.evaluate(values)
            except ValueError as error:
                for unknown in list(self.derive)[i:]:
                    values.pop(unknown, None)
                return [Problem(name, str(error))]
        return []

    def _make(self, values: Values, problems: list[Problem]) -> Any:
        """The point, or None and its problems added to `problems`."""
        arguments = {name: values[name] for name in self.arguments if values.get(name) is not None}
        if self.rate in arguments:
            arguments.pop(self.names.other_rate[self.rate], None)
        try:
            if self.farthest:
                self.names.simulator.make_point(arguments | self.farthest)
            return self.names.simulator.make_point(arguments)
        except PointError as error:
            problems += error.problems
            return None


class _Budget:
    """limits.max_runs, checked against the points as early as possible; each check raises GridError."""

    def __init__(self, document: Document, file: GridFile):
        self.document, self.max_runs = document, file.limits.max_runs
        self.runs_each = file.search.max_runs * len(file.search.theta) if file.search else len(file.seeds)
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
        """At the end."""
        if n_points * self.runs_each > self.max_runs:
            raise self._error(f"{_points(n_points)} times {self.each} = {n_points * self.runs_each} runs")

    def _error(self, got: str) -> GridError:
        message = f"got {got}; allowed: {self.max_runs} runs; raise limits.max_runs or make the grid smaller"
        return GridError(self.document.line(("limits", "max_runs"), message))


@dataclass
class _Fault:
    """One kind of problem at one location: how often, in which blocks, and the first of them."""

    problem: Problem
    first: str
    hint: str
    count: int = 0
    blocks: dict[Location, int] = field(default_factory=dict)


class _Faults:
    """The problems of invalid points by kind: the location, the argument and the remedy, without the numbers of the point."""

    def __init__(self, document: Document, names: Names):
        self.document, self.names = document, names
        self.found: dict[tuple[Location, str, str], _Fault] = {}

    def add(self, block: _Expanded, problem: Problem, row: Values, values: Values) -> None:
        """Counts a problem of the point that `row` of the axes gives, which makes these `values`."""
        name = problem.argument
        written = ("base", name) if name in self.document.data.get("base", {}) else block.location
        location = block.locations.get(name, written)
        kind = location, name, problem.where or problem.message.rpartition("; allowed: ")[2].split(", at ")[0]
        if kind not in self.found:
            value, hint = values.get(name), ""
            if name in block.derive and isinstance(value, float) and not value.is_integer() and self.names.type(name) == "int":
                hint = f'; write {name}: "round({block.derive[name].text})"'
            self.found[kind] = _Fault(problem, ", ".join(f"{axis}={show(value)}" for axis, value in row.items()), hint)
        self.found[kind].count += 1
        self.found[kind].blocks[block.location] = block.n_raw

    def lines(self) -> list[str]:
        """A line for each kind."""
        return [self._line(location, fault) for (location, _, _), fault in self.found.items()]

    def _line(self, location: Location, fault: _Fault) -> str:
        total, problem = sum(fault.blocks.values()), fault.problem
        first = f", the first at {fault.first}" if fault.first else ""
        remedy = ""
        if problem.where and self.document.data.get("blocks") and location != ("search",):
            remedy = f'; where: ["{problem.where}"] would exclude ' + ("them" if fault.count < total else "them, and leave none")
        return self.document.line(location, f"{fault.count} of {_points(total)} cannot be simulated{first}: {problem}{fault.hint}{remedy}")


def _points(count: int) -> str:
    return f"{count} point" + ("" if count == 1 else "s")
