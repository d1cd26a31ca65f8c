"""The blocks of a checked grid file as points: axes over the base, then derive, then where. No JAX here.

A point that cannot be simulated refuses the grid unless a where line excludes it; each kind of fault is told once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field
from typing import Any

from ..errors import GridError, PointError, Problem
from ..point import FIELDS, Point
from .axes import show
from .document import Document, Key
from .expr import Expression
from .file import GridFile, n_seeds

DEFAULTS = {name: f.default for name, f in FIELDS.items() if f.default is not MISSING and f.default is not None}
OTHER_RATE = {"kappa": "gamma", "gamma": "kappa"}
MAX_KEPT = 200_000  # points that are kept only to tell how far a grid is past max_runs
_RESOLVED = frozenset({"activation", "kappa", "gamma", "gamma2"})  # these may change, or appear, when the point is made

Values = dict[str, Any]


@dataclass(frozen=True)
class Expansion:
    """The points in order, how many repeated another one, and how many a where line excluded."""

    points: tuple[Point, ...]
    n_duplicates: int
    n_excluded: int


@dataclass
class _Block:
    """One block made ready: each factor of the product as names and rows of values; `keys` says where a name is written."""

    key: Key
    keys: dict[str, Key]
    factors: list[tuple[tuple[str, ...], list[tuple[Any, ...]]]]
    derive: dict[str, Expression]
    where: list[Expression]
    n_raw: int = field(init=False)
    rate: str | None = field(init=False)

    def __post_init__(self) -> None:
        self.n_raw = math.prod(len(rows) for _, rows in self.factors)
        self.rate = next((name for name in OTHER_RATE if name in self.keys), None)

    def rows(self) -> Iterator[Values]:
        for combination in itertools.product(*(rows for _, rows in self.factors)):
            pairs = zip(self.factors, combination, strict=True)
            yield {name: value for (names, _), row in pairs for name, value in zip(names, row, strict=True)}

    def point(self, values: Values) -> Point | None:
        """The point at these values of base and axes, or None where a where line excludes it; raises PointError."""
        problems = self._derive_into(values)
        point = None
        for i, line in enumerate(self.where):
            if point is None and not problems and not (line.names <= values.keys() and line.names.isdisjoint(_RESOLVED)):
                point = self._make(values, problems)
            if point is None and not line.names <= values.keys():
                continue
            scope = values if point is None else {n: getattr(point, n) if n in FIELDS else values[n] for n in line.names}
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

    def _derive_into(self, values: Values) -> list[Problem]:
        for i, (name, expression) in enumerate(self.derive.items()):
            try:
                values[name] = expression.evaluate(values)
            except ValueError as error:
                for unknown in list(self.derive)[i:]:
                    values.pop(unknown, None)
                return [Problem(name, str(error))]
        return []

    def _make(self, values: Values, problems: list[Problem]) -> Point | None:
        arguments = {name: values[name] for name in FIELDS if values.get(name) is not None}
        if self.rate in arguments:
            arguments.pop(OTHER_RATE[self.rate], None)
        try:
            return Point(**arguments)
        except PointError as error:
            problems += error.problems
            return None


@dataclass
class _Fault:
    """One kind of problem at one place: how often, in which blocks, and the first of them."""

    problem: Problem
    first: str
    hint: str
    count: int = 0
    blocks: dict[Key, int] = field(default_factory=dict)


def axis_keys(axes: Any, key: Key) -> Iterator[tuple[str, Key]]:
    """Each axis name of a block's `axes` in file order, with the key where it is written; zip groups are opened."""
    for name, value in axes.items() if isinstance(axes, dict) else ():
        if name == "zip":
            groups = [((*key, name, i), group) for i, group in enumerate(value)] if isinstance(value, list) else [((*key, name), value)]
            for group_key, group in groups:
                yield from ((inner, (*group_key, inner)) for inner in (group if isinstance(group, dict) else ()))
        else:
            yield name, (*key, name)


def expand(document: Document, file: GridFile) -> Expansion:
    """All points of the grid; raises GridError with a line per kind of invalid point, or when nothing is left or too much."""
    blocks = _blocks(document, file)
    base = file.base.model_dump(exclude_unset=True)
    searched = {file.search.axis: file.search.from_} if file.search else {}
    start = {**DEFAULTS, "root_seed": file.root_seed, **searched, **{name: value for name, value in base.items() if value is not None}}
    n_raw, n_each, most = sum(block.n_raw for block in blocks), _n_each(file), file.limits.max_runs
    each = f"{n_each} runs that a search may take" if file.search else f"{n_each} seeds"
    if n_raw > 20 * max(most, 1_000_000) or n_each > most:
        raise GridError(_too_many(document, f"{_points(n_raw)} before where, times {each}", most))
    points: dict[str, Point] = {}
    faults: dict[Any, _Fault] = {}
    n_duplicates = n_excluded = 0
    for block in blocks:
        for row in block.rows():
            values = {**start, **row}
            for name in [name for name, value in row.items() if value is None]:
                values.pop(name)
                values.update({name: DEFAULTS[name]} if name in DEFAULTS else {})
            try:
                point = block.point(values)
            except PointError as error:
                for problem in error.problems:
                    _note(faults, document, block, problem, row, values)
                continue
            if point is None:
                n_excluded += 1
            elif points.setdefault(point.point_id, point) is not point:
                n_duplicates += 1
            if len(points) > max(MAX_KEPT, most // n_each):
                raise GridError(_too_many(document, f"more than {len(points) - 1} of {n_raw} points, times {each}", most))
    if faults:
        raise GridError([_fault_line(document, key, fault) for (key, *_), fault in faults.items()])
    if not points:
        raise GridError(
            [
                document.line(
                    (*block.key, "where"),
                    f"excludes all of {_points(block.n_raw)}, no block has any left; allowed: conditions that some meet",
                )
                for block in blocks
            ]
        )
    if len(points) * n_each > most:
        raise GridError(_too_many(document, f"{_points(len(points))} times {each} = {len(points) * n_each} runs", most))
    return Expansion(tuple(points.values()), n_duplicates, n_excluded)


def _n_each(file: GridFile) -> int:
    """Runs of one point, in a search at most."""
    if file.search:
        return file.search.max_runs * len(file.search.theta)
    return n_seeds(file)


def _too_many(document: Document, got: str, most: int) -> str:
    return document.line(("limits", "max_runs"), f"got {got}; allowed: {most} runs; raise limits.max_runs or make the grid smaller")


def _blocks(document: Document, file: GridFile) -> list[_Block]:
    if not file.blocks:
        return [_Block((), {}, [], {}, [])]
    blocks = []
    for i, block in enumerate(file.blocks):
        key: Key = ("blocks", i)
        factors = []
        raw = document.data["blocks"][i].get("axes", {})
        columns = block.axes.columns() if block.axes else {}
        for name in raw:
            groups = [{name: columns[name]}]
            if name == "zip":
                zipped: Any = columns[name]
                groups = [group.columns() for group in (zipped if isinstance(zipped, list) else [zipped])]
            factors += [(tuple(group), list(zip(*group.values(), strict=True))) for group in groups]
        keys = dict(axis_keys(raw, (*key, "axes"))) | {name: (*key, "derive", name) for name in block.derive}
        keys |= {f"where.{j}": (*key, "where", j) for j in range(len(block.where))}
        blocks.append(_Block(key, keys, factors, block.derive, block.where))
    return blocks


def _note(faults: dict[Any, _Fault], document: Document, block: _Block, problem: Problem, row: Values, values: Values) -> None:
    """Counts a problem under its kind: the place, the argument, and the cure, without the numbers of the point."""
    name = problem.argument
    key = block.keys.get(name, block.key)
    if name not in block.keys and name in document.data.get("base", {}):
        key = ("base", name)
    kind = problem.where or problem.message.rpartition("; allowed: ")[2].split(", at ")[0]
    if (fault := faults.get((key, name, kind))) is None:
        value, hint = values.get(name), ""
        if name in block.derive and isinstance(value, float) and not value.is_integer() and FIELDS[name].type == "int":
            hint = f'; write {name}: "round({block.derive[name].text})"'
        first = ", ".join(f"{axis}={show(value)}" for axis, value in row.items())
        fault = faults[(key, name, kind)] = _Fault(problem, first, hint)
    fault.count += 1
    fault.blocks[block.key] = block.n_raw


def _fault_line(document: Document, key: Key, fault: _Fault) -> str:
    total = sum(fault.blocks.values())
    first = f", the first at {fault.first}" if fault.first else ""
    mend = ""
    if fault.problem.where and document.data.get("blocks"):
        mend = f'; where: ["{fault.problem.where}"] would exclude ' + ("them" if fault.count < total else "them, and leave none")
    return document.line(key, f"{fault.count} of {_points(total)} cannot be simulated{first}: {fault.problem}{fault.hint}{mend}")


def _points(count: int) -> str:
    return f"{count} point" + ("" if count == 1 else "s")
