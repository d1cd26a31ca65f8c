"""The blocks of a checked file to points, each point once.

A point that cannot be simulated refuses the grid, unless a where line excludes it. Each
kind of fault is reported once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import NamedTuple, TypedDict

from ...errors import GridError, PointError, Problem, plural
from .axes import AnyPoint, Names
from .document import Document, Location, Plain, show
from .expr import Expression
from .file import Block, GridFile

BETWEEN = 10_000  # points from one report of progress to the next

OnProgress = Callable[[int, int], None]
"""Called with the points expanded so far, and all of them."""

Values = dict[str, Plain]
"""Values of fields and helpers by name; None is not given."""

_RESOLVED = {
    "activation",
    "embedding",
    "embedding_out",
    "tokens",
    "noise_tokens",
    "kappa",
    "gamma",
    "gamma2",
}
"""Fields that may change, or appear, when the point is made."""


class Levels(Mapping[float, AnyPoint]):
    """The points of a cell by level of the searched axis; each is made when it is asked
    for.
    """

    def __init__(self, levels: Iterable[float], make: Callable[[float], AnyPoint]):
        self.levels, self.make = dict.fromkeys(levels), cache(make)

    def __getitem__(self, level: float) -> AnyPoint:
        if level not in self.levels:
            raise KeyError(level)
        return self.make(level)

    def __iter__(self) -> Iterator[float]:
        return iter(self.levels)

    def __len__(self) -> int:
        return len(self.levels)


class Line(NamedTuple):
    """The points of a cell along the searched axis.

    `levels` are those that are valid, in ascending order; `bounded` says what makes
    others of the range invalid, empty if all are valid; `names` tell the cell from
    others, beside its fields.
    """

    levels: Mapping[float, AnyPoint]
    bounded: str
    names: Values

    @property
    def identity(self) -> tuple[Plain, ...]:
        """The same for lines of the same points and names."""
        levels = (
            [*self.levels]
            if isinstance(self.levels, dict)
            else [min(self.levels), max(self.levels)]
        )
        return (
            *self.names.items(),
            len(self.levels),
            *((level, self.levels[level].point_id) for level in levels),
        )


class Expansion(TypedDict):
    """What a `Grid` has of its points."""

    points: tuple[AnyPoint, ...]
    lines: tuple[Line, ...]
    kept: dict[str, Values]
    n_duplicates: int
    n_excluded: int


def expand(
    document: Document, file: GridFile, names: Names, on_progress: OnProgress
) -> Expansion:
    """The points of the grid in order, and the rest that a `Grid` has of them.

    Counts how many repeated another one, and how many a where line excluded. Of a
    search there is one point of each line; it makes some points later, and their
    helpers to keep. Lines of the same points are two cells if they have different
    names.

    Raises GridError with a line for each kind of invalid point, or if no point or too
    many are left.
    """
    kept: dict[str, Values] = {}
    blocks = [
        _Expanded(names, file, i, block, kept)
        for i, block in enumerate(file.blocks or [Block()])
    ]
    n_raw, most = (
        sum(block.n_raw for block in blocks),
        file.limits.max_runs // file.runs_each,
    )
    if most == 0 or n_raw > 20 * max(file.limits.max_runs, 1_000_000):
        raise _too_many(document, file, n_raw)
    found: dict[Plain, AnyPoint] = {}  # points, or lines of a search
    n_found, faults = 0, _Faults()
    for n_done, (block, row) in enumerate(
        (each, row) for each in blocks for row in each.rows()
    ):
        if n_done % BETWEEN == 0:
            on_progress(n_done, n_raw)
        values = block.values(row)
        try:
            one: AnyPoint = block.line(values) if file.search else block.point(values)
        except PointError as error:
            faults.add(block, error, row, values)
            continue
        if one is not None:
            found.setdefault(one.identity if file.search else one.point_id, one)
            n_found += 1
        if len(found) > most:
            raise _too_many(document, file, n_raw)
    if faults:
        raise GridError(
            [document.line(place, message) for place, message in faults.lines(n_raw)]
        )
    if not found:
        empty = (
            "excludes all of {}, no block has any left; allowed: conditions that some"
            " meet"
        )
        raise GridError(
            [
                document.line(
                    (*block.location, "where"),
                    empty.format(plural(block.n_raw, "point")),
                )
                for block in blocks
            ]
        )
    lines = tuple(found.values()) if file.search else ()
    absent = {name: None for line in lines for name in line.names}
    lines = tuple(line._replace(names=absent | line.names) for line in lines)
    points = tuple(next(iter(line.levels.values())) for line in lines) or tuple(
        found.values()
    )
    counts = {"n_duplicates": n_found - len(found), "n_excluded": n_raw - n_found}
    return Expansion(points=points, lines=lines, kept=kept, **counts)


class _Faults(dict[tuple[Location, str, str], list[Plain]]):
    """How many points are invalid for each reason, and what is said of the first of
    them.
    """

    def add(
        self, block: _Expanded, error: PointError, row: Values, values: Values
    ) -> None:
        for problem in error.problems:
            remedy = (
                problem.where
                or problem.message.rpartition("; allowed: ")[2].split(", at ")[0]
            )
            kind = block.location_of(problem.argument), problem.argument, remedy
            if kind not in self:
                self[kind] = [0, block.about(problem, row, values)]
            self[kind][0] += 1

    def lines(self, n_raw: int) -> Iterator[tuple[Location, str]]:
        for (place, *_), (count, about) in self.items():
            yield (
                place,
                f"{count} of {plural(n_raw, 'point')} cannot be simulated{about}",
            )


def _too_many(document: Document, file: GridFile, n_raw: int) -> GridError:
    about = " before where," if any(block.where for block in file.blocks) else ""
    each = f"{file.runs_each} " + (
        "runs that a search may take" if file.search else "seeds"
    )
    got = (
        f"got {plural(n_raw, 'point')}{about} times {each} = {n_raw * file.runs_each}"
        " runs"
    )
    allowed = (
        f"allowed: {file.limits.max_runs} runs; raise limits.max_runs or make the grid"
        " smaller"
    )
    return GridError(document.line(("limits", "max_runs"), f"{got}; {allowed}"))


class _Expanded:
    """A block of the file: rows of values, and the point at each.

    `locations` says where each of its names is written.

    `kept` takes the helpers to keep of every point that is made; of a point that
    several blocks have, those of the first.
    """

    def __init__(
        self,
        names: Names,
        file: GridFile,
        i: int,
        block: Block,
        kept: dict[str, Values],
    ):
        self.names, self.block, self.base = names, block, file.base
        self.keep, self.kept = file.keep or (), kept
        self.start = names.defaults | {
            name: value for name, value in file.base.items() if value is not None
        }
        self.start["root_seed"] = file.root_seed
        self.location: Location = ("blocks", i) if file.blocks else ()
        self.locations = block.locations(self.location) | {
            f"where.{j}": (*self.location, "where", j) for j in range(len(block.where))
        }
        self.factors = [
            list(zip(*group.values(), strict=True)) for _, group in block.groups
        ]
        self.n_raw = math.prod(map(len, self.factors))
        self.rate = next(
            (name for name in names.other_rate if name in self.locations), None
        )
        if search := file.search:
            self.searched, self.levels = search.axis, [*search.lattice(names).values()]
            self.start[search.axis], self.locations[search.axis] = (
                search.from_,
                ("search",),
            )
            self.followers = block.followers(search.axis)
            joined = self.followers or any(
                search.axis in line.names for line in block.where
            )
            self.separate = not joined and names.kind(search.axis) not in (
                "size",
                "law",
            )
        self.arguments = [
            name
            for name in {**self.start, **self.locations}
            if name in names or name == "root_seed"
        ]

    def rows(self) -> Iterator[Values]:
        """The values of the axes at each point, the last axis fastest."""
        for combination in itertools.product(*self.factors):
            yield dict(
                zip(
                    self.block.axis_names,
                    itertools.chain.from_iterable(combination),
                    strict=True,
                )
            )

    def values(self, row: Values) -> Values:
        """`row` over the base; null in a row means that the default of the field
        holds.
        """
        defaults = self.names.defaults
        return self.start | {
            name: defaults.get(name) if value is None else value
            for name, value in row.items()
        }

    def line(self, values: Values) -> Line | None:
        """The points at these values of base and axes along the searched axis.

        None if where lines exclude all.

        Of levels with the same point the first counts. An m of 0 that follows the axis
        is no level. Where nothing joins the axis with other fields, levels between two
        valid ones are valid, and their points are not made yet. Raises PointError if
        none is valid.
        """
        levels = Levels(
            self.levels, lambda level: self.point(values | {self.searched: level})
        )
        if self.separate and len(levels) > 1:
            with suppress(PointError):
                if None not in (levels[min(levels)], levels[max(levels)]):
                    return Line(levels, "", self._names(values))
        found: dict[str, tuple[float, AnyPoint]] = {}
        problems: list[list[Problem]] = []
        bounds: dict[str, None] = {}
        for level in levels:
            try:
                point = levels[level]
            except PointError as error:
                problems.append(error.problems)
                bounds[error.problems[0].argument] = None
                continue
            if point is None or ("m" in self.followers and point.m == 0):
                bounds["where" if point is None else "m"] = None
            else:
                found.setdefault(point.point_id, (level, point))
        if found:
            return Line(dict(found.values()), ", ".join(bounds), self._names(values))
        if bounds.keys() == {"where"}:
            return None
        if problems and all(problem == problems[0] for problem in problems):
            raise PointError(problems[0])
        last = f", the largest fails as {problems[-1][0]}" if problems else ""
        raise PointError(
            [
                Problem(
                    self.searched,
                    f"no level between search.from and search.to is valid{last}",
                )
            ]
        )

    def _names(self, values: Values) -> Values:
        """What tells a cell from others, beside its fields.

        The helpers that are the same at all levels: those to keep and, where fields
        follow the axis, all axes.
        """
        values = dict(values)
        for name, expression in self.block.derive.items():
            values[name] = (
                None
                if name in self.followers
                else _evaluated(expression, values, name, [])
            )
        mine = [*self.keep, *(self.block.axis_names if self.followers else ())]
        return {
            name: values.get(name)
            for name in mine
            if name not in self.names and name not in (*self.followers, self.searched)
        }

    def point(self, values: Values) -> AnyPoint:
        """The point at these values of base and axes, or None if a where line excludes
        it; raises PointError.

        Adds the derived values to `values`. A where line sees the fields as the point
        resolves them. Where the point cannot be made, a line that needs only given and
        derived values may still exclude it.
        """
        problems: list[Problem] = []
        for name, expression in self.block.derive.items():
            values[name] = _evaluated(expression, values, name, problems)
            del problems[1:]  # what fails after it fails because of it
        # made by the first line that needs it, since to exclude a point without making
        # it is faster
        point = None
        for i, line in enumerate(self.block.where):
            known = None not in map(values.get, line.names)
            if (
                point is None
                and not problems
                and not (known and line.names.isdisjoint(_RESOLVED))
            ):
                point = self._make(values, problems)
            if point is not None:
                used = {
                    name: (
                        self.names.value(point, name)
                        if name in self.names
                        else values[name]
                    )
                    for name in line.names
                }
            elif known:
                used = values
            else:
                continue
            holds = _evaluated(line, used, f"where.{i}", problems)
            if holds is False:
                return None
            if holds not in (True, None):
                problems.append(
                    Problem(
                        f"where.{i}",
                        f"{line.text!r}: gives {show(holds)}; allowed: true or false",
                    )
                )
        if point is None and not problems:
            point = self._make(values, problems)
        if point is None or problems:
            raise PointError(problems)
        if self.keep:
            self.kept.setdefault(
                point.point_id, {name: values.get(name) for name in self.keep}
            )
        return point

    def location_of(self, name: str) -> Location:
        """Where the value of a name is written."""
        return self.locations.get(
            name, ("base", name) if name in self.base else self.location
        )

    def about(self, problem: Problem, row: Values, values: Values) -> str:
        """A problem, the values of the axes where it is, and what would mend it."""
        name, at = (
            problem.argument,
            ", ".join(f"{axis}={show(value)}" for axis, value in row.items()),
        )
        about = (f", the first at {at}" if at else "") + f": {problem}"
        value = values.get(name) if name in self.block.derive else None
        if (
            isinstance(value, float)
            and value % 1
            and "whole numbers" in problem.message
        ):
            about += f'; write {name}: "round({self.block.derive[name].text})"'
        if problem.where and self.location and self.locations.get(name) != ("search",):
            about += f'; where: ["{problem.where}"] would exclude them'
        return about

    def _make(self, values: Values, problems: list[Problem]) -> Plain:
        """The point, or None and its problems added to `problems`."""
        arguments = {
            name: values[name]
            for name in self.arguments
            if values.get(name) is not None
        }
        if self.rate in arguments:
            arguments.pop(self.names.other_rate[self.rate], None)
        try:
            return self.names.simulator.point(arguments)
        except PointError as error:
            problems += error.problems


def _evaluated(
    expression: Expression, values: Values, name: str, problems: list[Problem]
) -> Plain:
    """The value of an expression; or None, and a problem with `name`."""
    try:
        return expression.evaluate(values)
    except ValueError as error:
        problems.append(Problem(name, str(error)))
