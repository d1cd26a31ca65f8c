"""Expands the blocks of a checked file to points. Each point occurs once.

A row contains the values of the axes. The values of all fields and helpers are computed
from the row. A point is made from these values unless a where line excludes it. If
several rows give the same point, the point is recorded once. The grid is refused if it
has a point that cannot be simulated and that no where line excludes. Each kind of fault
is reported once.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from ...errors import GridError, PointError, Problem, plural
from .axes import AnyPoint, Names
from .document import Document, Location, Mistake, NamedValues, Plain, show
from .expr import Expression, names_in
from .file import Block, GridFile, Search

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
"""The fields whose values may be changed or filled in when the point is made."""


class Levels(UserDict[float, AnyPoint]):
    """A dict from each level of the searched axis to the point of a cell at that level.
    Each point is made when it is first used.
    """

    def __init__(self, levels: Iterable[float], make: Callable[[float], AnyPoint]):
        super().__init__(dict.fromkeys(levels))
        self.make = make

    def __getitem__(self, level: float) -> AnyPoint:
        if self.data[level] is None:
            self.data[level] = self.make(level)
        return self.data[level]


class SearchLine(NamedTuple):
    """The points of a cell along the searched axis.

    `levels` contains the points at the valid levels, in ascending order. `bounded` is a
    text that lists the names that make other levels invalid. The text is empty if all
    levels are valid. `helpers` contains the values that distinguish the cell from other
    cells with the same fields.
    """

    levels: Mapping[float, AnyPoint]
    bounded: str
    helpers: NamedValues

    @property
    def identity(self) -> tuple[Plain, ...]:
        """A tuple that is equal for lines with the same points and helpers."""
        levels = list(self.levels)
        if isinstance(self.levels, Levels):  # other levels are not made here
            levels = [min(levels), max(levels)]
        ids = [(level, self.levels[level].point_id) for level in levels]
        return (*self.helpers.items(), len(self.levels), *ids)


def expand(document: Document, file: GridFile, names: Names) -> dict[str, Any]:
    """Returns the points of the grid in order, and the other fields of a `Grid` that
    describe its points.

    If there is a search, `points` contains one point of each line. The other points of
    a line are made later. The helpers of a point are added to `kept` when the point is
    made. Two lines with the same points count as two cells if they have different
    helpers.

    Raises GridError with a line for each kind of invalid point. Also raises GridError
    if no point is left, or if there are too many.
    """
    counted = _Counted()
    kind = _SearchedBlock if file.search else _ExpandedBlock
    blocks = [kind(names, file, block, counted.kept) for block in file.blocks]
    n_raw = sum(block.n_raw for block in blocks)
    most = file.limits.max_runs // file.runs_each
    if most == 0 or n_raw > 20 * max(file.limits.max_runs, 1_000_000):
        raise _too_many(document, file, n_raw)
    for block in blocks:
        for row in block.rows():
            try:
                counted.add(block.made(block.values(row)))
            except PointError as error:
                counted.add_faults(block, row, error)
            if len(counted.found) > most:
                raise _too_many(document, file, n_raw)
    if counted.faults:
        raise document.refused(counted.mistakes(n_raw))
    if not counted.found:
        raise document.refused(map(_excludes_all, blocks))
    points = tuple(counted.found.values())
    lines = ()
    if file.search:
        lines = _with_equal_helpers(points)
        points = tuple(next(iter(line.levels.values())) for line in lines)
    return dict(  # noqa: C408
        points=points,
        lines=lines,
        kept=counted.kept,
        n_duplicates=counted.n_found - len(points),
        n_excluded=n_raw - counted.n_found,
    )


@dataclass
class _Counted:
    """The results from the rows that have been expanded so far.

    `found` is a dict from identities to points, or to the lines of a search. `faults`
    and `n_faulty` are dicts with keys (location, name, remedy): the description of the
    first point that is invalid for this reason, and the number of such points. `kept`
    is a dict from the id of a point to the helpers to keep.
    """

    n_found: int = 0
    found: dict[Plain, AnyPoint] = field(default_factory=dict)
    faults: dict[tuple[Location, str, str], str] = field(default_factory=dict)
    n_faulty: Counter[tuple[Location, str, str]] = field(default_factory=Counter)
    kept: dict[str, NamedValues] = field(default_factory=dict)

    def add(self, made: AnyPoint) -> None:
        """Counts the point or line that was made from a row. If where lines excluded
        the point, `made` is None.
        """
        if made is not None:
            is_line = isinstance(made, SearchLine)
            self.found.setdefault(made.identity if is_line else made.point_id, made)
            self.n_found += 1

    def add_faults(
        self, block: _ExpandedBlock, row: NamedValues, error: PointError
    ) -> None:
        for problem in error.problems:
            remedy = problem.where or problem.allowed or problem.got.split(", at ")[0]
            kind = block.location_of(problem.argument), problem.argument, remedy
            if kind not in self.faults:
                self.faults[kind] = block.about(problem, row)
            self.n_faulty[kind] += 1

    def mistakes(self, n_raw: int) -> Iterator[Mistake]:
        of_all = f"of {plural(n_raw, 'point')} cannot be simulated"
        for kind, about in self.faults.items():
            location, *_ = kind
            yield location, f"{self.n_faulty[kind]} {of_all}{about}"


def _too_many(document: Document, file: GridFile, n_raw: int) -> GridError:
    before = " before where," if any(block.where for block in file.blocks) else ""
    what = "runs that a search may take" if file.search else "seeds"
    message = (
        f"got {plural(n_raw, 'point')}{before} times {file.runs_each} {what} ="
        f" {n_raw * file.runs_each} runs; allowed: {file.limits.max_runs} runs; raise"
        " limits.max_runs or make the grid smaller"
    )
    return document.refused([(("limits", "max_runs"), message)])


def _excludes_all(block: _ExpandedBlock) -> Mistake:
    return (
        (*block.block.location, "where"),
        f"excludes all of {plural(block.n_raw, 'point')}, no block has any left;"
        " allowed: conditions that some meet",
    )


def _with_equal_helpers(lines: Iterable[SearchLine]) -> tuple[SearchLine, ...]:
    """Returns the lines after giving all of them the same helpers. If a line lacks a
    helper, the helper is set to None.
    """
    absent = {}
    for line in lines:
        absent |= dict.fromkeys(line.helpers)
    return tuple(line._replace(helpers=absent | line.helpers) for line in lines)


@dataclass
class _Candidate:
    """Values from which a point may be made, and the problems with these values.
    `point` is the point, or None if it has not been made.
    """

    values: NamedValues
    problems: list[Problem]
    point: AnyPoint = None


@dataclass(frozen=True)
class _ExpandedBlock:
    """A block of the file, which can list its rows and make the point of each row.

    Whenever a point is made, its helpers to keep are added to `kept`. If several blocks
    contain the point, the helpers from the first block are kept.
    """

    names: Names
    file: GridFile
    block: Block
    kept: dict[str, NamedValues]

    @cached_property
    def factors(self) -> list[list[tuple[Plain, ...]]]:
        """For each group of axes: a list of tuples. A tuple contains the values that
        the axes of the group have at the same time.
        """
        groups = self.block.groups
        return [list(zip(*axes.values(), strict=True)) for _, axes in groups]

    @property
    def n_raw(self) -> int:
        """The number of rows, including the rows that where lines exclude."""
        return math.prod(map(len, self.factors))

    def rows(self) -> Iterator[NamedValues]:
        """Yields each row: a dict with a value for every axis. The last axis varies
        fastest.
        """
        for combination in itertools.product(*self.factors):
            values = itertools.chain.from_iterable(combination)
            yield dict(zip(self.block.axis_names, values, strict=True))

    @cached_property
    def start(self) -> NamedValues:
        """The values that apply unless an axis or derive gives another value."""
        root_seed = {"root_seed": self.file.root_seed}
        return self.names.defaults | self.file.given | root_seed

    @cached_property
    def arguments(self) -> list[str]:
        """The names of the arguments from which points are made. An argument of the
        base is left out if it is at its default.
        """
        given, usual = self.start | self.locations, self.names.defaults
        off = [name for name in given if given[name] is not usual.get(name)]
        return [name for name in off if name in self.names]

    def values(self, row: NamedValues) -> NamedValues:
        """Returns the values of the base, updated with the values of `row`. None in a
        row stands for the default of the field.
        """
        values = self.start | row
        for name, value in row.items():
            if value is None:
                values[name] = self.names.defaults.get(name)
        return values

    def made(self, values: NamedValues) -> AnyPoint:
        """Returns the point with these values from base and axes, or None if a where
        line excludes the point.

        Raises PointError if the point is invalid.
        """
        candidate = self.candidate(values)
        if self._excludes(candidate):
            return None
        self._make(candidate)
        if candidate.problems:
            raise PointError(candidate.problems)
        if self.file.keep:
            helpers = {name: candidate.values.get(name) for name in self.file.keep}
            self.kept.setdefault(candidate.point.point_id, helpers)
        return candidate.point

    def candidate(self, values: NamedValues) -> _Candidate:
        """Returns a candidate with the given values and the derived values. A derived
        value is None if its expression fails.

        Only the first problem is recorded, because it may cause later expressions to
        fail.
        """
        problems = []
        for name, expression in self.block.derive.items():
            values = values | {name: _evaluated(expression, values, name, problems)}
        return _Candidate(values, problems[:1])

    def _excludes(self, candidate: _Candidate) -> bool:
        """Whether a where line excludes the point.

        A where line uses the values that the fields have after the point is made.
        Making a point takes time, so the point is made only when a line needs it. If
        the point cannot be made, a line that needs only given and derived values may
        still exclude it.
        """
        for i, line in enumerate(self.block.where):
            used = self._used(line, candidate)
            if used is None:
                continue
            name = f"where.{i}"
            holds = _evaluated(line, used, name, candidate.problems)
            if holds is False:
                return True
            if holds not in (True, None):
                got = f"{line.text!r}: gives {show(holds)}"
                problem = Problem(name, got, allowed="true or false")
                candidate.problems.append(problem)
        return False

    def _used(self, line: Expression, candidate: _Candidate) -> NamedValues | None:
        """Returns a dict that contains the values that a where line uses, or None if
        one of these values is unknown.
        """
        known = None not in map(candidate.values.get, line.names)
        if not known or line.names & _RESOLVED:
            self._make(candidate)
        if candidate.point is None:
            return candidate.values if known else None
        values = dict(candidate.values)
        for name in line.names:
            if name in self.names:
                values[name] = self.names.value(candidate.point, name)
        return values

    def _make(self, candidate: _Candidate) -> None:
        """Makes the point. Does nothing if the point exists or if the candidate has
        problems.
        """
        if candidate.point is not None or candidate.problems:
            return
        arguments = {name: candidate.values[name] for name in self.arguments}
        for rate, other in self.names.simulator.other_rate.items():
            if rate in self.locations and arguments[rate] is not None:
                arguments.pop(other, None)
        try:
            candidate.point = self.names.simulator.point(arguments)
        except PointError as error:
            candidate.problems += error.problems

    @cached_property
    def locations(self) -> dict[str, Location]:
        """A dict with the location of each name in axes and derive, and of each where
        line.
        """
        locations = dict(self.block.locations)
        for i, location in enumerate(self.block.conditions):
            locations[f"where.{i}"] = location
        return locations

    def location_of(self, name: str) -> Location:
        """The location of the value of a name."""
        if name in self.locations:
            return self.locations[name]
        return ("base", name) if name in self.file.base else self.block.location

    def about(self, problem: Problem, row: NamedValues) -> str:
        """Returns a text that states a problem, the values of the axes at which the
        problem occurs, and, if known, a remedy.
        """
        at = ", ".join(f"{axis}={show(value)}" for axis, value in row.items())
        about = f", the first at {at}: {problem}" if row else f": {problem}"
        is_searched = self.location_of(problem.argument) == ("search",)
        if problem.where and self.block.location and not is_searched:
            about += f'; where: ["{problem.where}"] would exclude them'
        return about


@dataclass(frozen=True)
class _SearchedBlock(_ExpandedBlock):
    """A block of a file with a search. The block makes a line of points from each
    row.
    """

    @property
    def search(self) -> Search:
        assert self.file.search
        return self.file.search

    @cached_property
    def start(self) -> NamedValues:
        return super().start | {self.search.axis: self.search.from_}

    @cached_property
    def locations(self) -> dict[str, Location]:
        return super().locations | {self.search.axis: ("search",)}

    @cached_property
    def levels(self) -> list[float]:
        return list(self.search.lattice(self.names).values())

    @cached_property
    def followers(self) -> set[str]:
        """The names that are derived from the searched axis."""
        return self.block.followers(self.search.axis)

    @cached_property
    def _ends_decide(self) -> bool:
        """Whether all levels between two valid levels must be valid, because nothing
        relates the axis to other fields.
        """
        axis, fields = self.search.axis, self.names.fields
        joined = self.followers or axis in names_in(self.block.where)
        if joined or axis not in fields:
            return False
        return fields[axis].metadata.get("kind") != "size"

    def made(self, values: NamedValues) -> SearchLine | None:
        """Returns the points along the searched axis for these values from base and
        axes.

        Returns None if where lines exclude all points. If several levels give the same
        point, only the first level is kept. A level is left out if m is derived from
        the level and equals 0. Raises PointError if no level is valid.
        """
        point_at = super().made
        levels = Levels(
            self.levels, lambda level: point_at(values | {self.search.axis: level})
        )
        if self._ends_decide and len(levels) > 1:
            with suppress(PointError):
                if None not in (levels[min(levels)], levels[max(levels)]):
                    return SearchLine(levels, "", self._helpers(values))
        found, bounds, problems = {}, {}, []
        for level in levels:
            try:
                point = levels[level]
            except PointError as error:
                problems.append(error.problems)
                bounds[error.problems[0].argument] = None
                continue
            if point is None:
                bounds["where"] = None
            elif "m" in self.followers and point.m == 0:
                bounds["m"] = None
            else:
                found.setdefault(point.point_id, (level, point))
        if found:
            valid = dict(found.values())
            return SearchLine(valid, ", ".join(bounds), self._helpers(values))
        if bounds.keys() == {"where"}:
            return None
        raise PointError(self._no_level(problems))

    def _no_level(self, problems: list[list[Problem]]) -> list[Problem]:
        """Returns the problems to report if no level is valid. The argument lists the
        problems of each level.
        """
        message = "no level between search.from and search.to is valid"
        if problems:
            if problems.count(problems[0]) == len(problems):
                return problems[0]
            message += f", the largest fails as {problems[-1][0]}"
        return [Problem(self.search.axis, message)]

    def _helpers(self, values: NamedValues) -> NamedValues:
        """Returns a dict with the helpers that distinguish a cell from other cells with
        the same fields.

        The dict contains the helpers to keep. If fields are derived from the searched
        axis, the dict also contains all helpers among the axes. Helpers that depend on
        the searched axis are left out.
        """
        values = self.candidate(values).values
        helpers = list(self.file.keep or ())
        if self.followers:
            helpers += self.block.axis_names
        varying = {*self.followers, self.search.axis}
        same = {}
        for name in helpers:
            if name not in self.names and name not in varying:
                same[name] = values.get(name)
        return same


def _evaluated(
    expression: Expression, values: NamedValues, name: str, problems: list[Problem]
) -> Plain:
    """Returns the value of an expression. If the expression fails, returns None and
    adds a problem that names `name` to `problems`.
    """
    try:
        return expression.evaluate(values)
    except ValueError as error:
        problems.append(Problem(name, str(error)))
        return None
