"""The records that represent a grid file: its blocks, limits and search. `read_file`
makes the records from plain data, and collects all mistakes.

`WrongNames` finds names that are unknown, unused, missing, misplaced or given twice. It
also accepts a file with wrong values, so mistakes in names and in values are reported
together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Literal

from ...errors import closest, shown, suggest
from ...model.point import MAX_SEED
from ..simulators import grouped
from ..simulators.custom import ACCURACY
from ..summary import ALLOWED, parsed
from .axes import Names
from .document import (
    WRONG,
    Checker,
    Document,
    Location,
    Mistake,
    NamedValues,
    Plain,
    Schema,
    is_number,
    refuse,
    without,
)
from .expr import Expression, names_in, parse

SEARCH_MIN_SEEDS = 12
"""The number of seeds that a search uses before it trusts the width of an interval.
With fewer seeds, the search could stop because an interval is narrow by chance.
"""

PER_OCTAVE = 8
"""The number of levels of a search per factor of 2. Levels are near 2^(k / 8) in every
search, so searches with different widths, thetas or ranges share rows.
"""

RANGES = {
    "N": (64, 2**20),
    "d": (2, 1024),
    "m": (1, 4096),
    "V": (8, 4096),
    "L": (2, 4096),
}
"""The default range of a search along each of these fields."""


@dataclass(frozen=True)
class Block:
    """One block of a grid. Its points are the product of its axes, combined with the
    base.

    `location` is the location of the block in the file. A value is WRONG if the file
    has a mistake there.
    """

    location: Location = ()
    axes: NamedValues = field(default_factory=dict)
    derive: dict[str, Expression] = field(default_factory=dict)
    where: list[Expression] = field(default_factory=list)

    @cached_property
    def groups(self) -> list[tuple[Location, NamedValues]]:
        """The groups of axes that vary together: a list of pairs. A pair contains the
        location of a group, and a dict from the names of its axes to their values.
        """
        groups, here = [], (*self.location, "axes")
        for name, values in self.axes.items():
            if name != "zip":
                groups.append((here, {name: values}))
            elif isinstance(values, list):
                for i, axes in enumerate(values):
                    groups.append(((*here, "zip", i), axes))
            else:
                groups.append(((*here, "zip"), values))
        return [(location, axes) for location, axes in groups if axes is not WRONG]

    @cached_property
    def axis_names(self) -> list[str]:
        return [name for _, axes in self.groups for name in axes]

    @cached_property
    def locations(self) -> dict[str, Location]:
        """A dict with the location of each name in axes and derive."""
        locations: dict[str, Location] = {}
        for location, axes in self.groups:
            for name in axes:
                locations[name] = (*location, name)
        for name in self.derive:
            locations[name] = (*self.location, "derive", name)
        return locations

    @cached_property
    def conditions(self) -> dict[Location, Expression]:
        """A dict from locations to the where lines that are not WRONG."""
        lines = enumerate(self.where)
        at = (*self.location, "where")
        return {(*at, i): line for i, line in lines if line is not WRONG}

    def followers(self, axis: str) -> set[str]:
        """Returns the names that are derived from an axis, directly or indirectly."""
        found = {axis}
        for name, expression in self.derive.items():
            if found & expression.names:
                found.add(name)
        return found - {axis}


@dataclass(frozen=True)
class Limits:
    """The limits of a sweep. A sweep that exceeds a limit is refused before anything
    runs.
    """

    max_runs: int
    max_bytes: int | None = None


Precision = Literal["highest", "high", "default"]


@dataclass(frozen=True)
class Settings:
    """The settings with which any engine runs a plan. They come from the section `run`
    of a file, from --fail-fast and from --keep-going.
    """

    precision: Precision = "highest"
    """The precision of matrix products, as JAX names it."""

    part_seconds: float = 5.0
    """The number of seconds between saves of finished rows. The number is small, so a
    killed process loses little. A day of work still writes at most 17,000 files.
    """

    fail_fast: bool = False
    """Whether the first failed chunk stops the sweep."""

    keep_going: bool = False
    """Whether the sweep goes on even if its first 100 runs fail alike."""


USUAL = Settings()


@dataclass(frozen=True)
class Search:
    """A search that finds, in every cell, the value of a field at which a summary over
    seeds of the accuracy crosses theta.
    """

    axis: str
    theta: tuple[float, ...]
    from_: float
    to: float
    width: float
    max_runs: int
    rises: bool | None = None
    of: str | None = None
    """The column that crosses theta. None means the accuracy."""

    summary: str = "mean"
    """The summary over seeds that crosses theta, as `summary.parsed` reads it."""

    def lattice(self, names: Names) -> dict[int, float]:
        """Returns a dict from whole numbers k to levels. If the axis is real, the level
        is 2^(k / 8). Otherwise the levels are the distinct whole numbers near 2^(k /
        8).
        """
        first = math.ceil(PER_OCTAVE * math.log2(self.from_) - 1e-9)
        last = math.floor(PER_OCTAVE * math.log2(self.to) + 1e-9)
        exact = {k: 2 ** (k / PER_OCTAVE) for k in range(first, last + 1)}
        if names.is_real(self.axis, self.from_, self.to):
            return exact
        levels = {}
        for number, near in grouped(exact, lambda k: round(exact[k])).items():
            if number:
                nearest = min(near, key=lambda k: abs(exact[k] - number))
                levels[nearest] = number
        return levels


@dataclass(frozen=True)
class GridFile:
    """The contents of a grid file: a base, blocks of axes, seeds, and settings."""

    name: str = ""
    root_seed: int = 0
    base: NamedValues = field(default_factory=dict)
    seeds: Sequence[int] = ()
    blocks: list[Block] = field(default_factory=list)
    keep: list[str] | None = None
    search: Search | None = None
    limits: Limits = Limits(0)
    run: NamedValues = field(default_factory=dict)

    @property
    def given(self) -> NamedValues:
        """The values of the base that are not null."""
        return without(None, self.base)

    @property
    def written(self) -> dict[str, None]:
        """The names in axes and derive, in the order of the file."""
        blocks = (block.locations for block in self.blocks)
        return dict.fromkeys(itertools.chain.from_iterable(blocks))

    @property
    def runs_each(self) -> int:
        """The number of runs of one point. If there is a search, this is the largest
        number of runs of one cell.
        """
        if self.search:
            return self.search.max_runs * len(self.search.theta)
        return len(self.seeds)


def read_file(data: Plain, names: Names) -> tuple[GridFile, list[Mistake]]:
    """Returns the file that plain data describe, and a list of the mistakes in the
    data. Wrong values are left out of the file.
    """
    schema = names.schema()
    checker = Checker(schema, names.converters() | _CONVERTERS)
    values = _right(checker.read(data, schema))
    blocks = [] if "blocks" in data else [Block()]
    for i, block in enumerate(values.get("blocks", ())):
        blocks.append(Block(("blocks", i), **_right(block)))
    values["blocks"] = blocks
    known = {f.name: values[f.name] for f in fields(GridFile) if f.name in values}
    file = GridFile(**known)
    if file.search and len(file.seeds) < SEARCH_MIN_SEEDS and not checker.mistakes:
        got = f"got {len(file.seeds)}; allowed with search: at least {SEARCH_MIN_SEEDS}"
        checker.mistakes.append((("seeds",), f"{got}, better {{count: 200}}"))
    return file, checker.mistakes


def as_dict(record: object) -> NamedValues:
    """Returns a record as a dict of plain data with the keys of a grid file. Values
    that are None are left out.
    """
    values = without(None, vars(record))
    return {name.strip("_"): value for name, value in values.items()}


def json_schema() -> Schema:
    """Returns the JSON Schema (draft 2020-12) of grid files.

    The schema leaves the fields of files that name another simulator unchecked, as an
    editor knows nothing of it.
    """
    schema, own = Names().schema(), {}
    for name, kind in (("base", "object"), ("blocks", "array")):
        own[name] = schema["properties"][name]
        schema["properties"][name] = {"type": kind}
    return schema | {"if": {"required": ["simulator"]}, "else": {"properties": own}}


def _right(values: Plain) -> NamedValues:
    """Returns the values of a mapping that are not WRONG. The dict is empty if the
    mapping is WRONG.
    """
    return {} if values is WRONG else without(WRONG, values)


def _search(given: NamedValues) -> Search:
    axis, theta = given["axis"], given["theta"]
    usual = zip(("from", "to"), RANGES.get(axis, ()), strict=False)
    given = dict(usual) | given
    for name in ("from", "to"):
        if name not in given:
            raise ValueError(
                f"got no {name}; needed with axis {axis}: from and to, the ends of the"
                " range"
            )
    low, high = (_whole(given.pop(name)) for name in ("from", "to"))
    if not low < high:
        raise ValueError(f"got from={low}, to={high}; allowed: from below to")
    if parsed(given["summary"]) is None:
        got = shown(given["summary"])
        raise ValueError(f"got the summary {got}; allowed: {ALLOWED}")
    thetas = tuple(theta) if isinstance(theta, list) else (theta,)
    return Search(**given | {"theta": thetas, "from_": low, "to": high})


def _whole(end: float) -> float:
    """Returns the same number, converted to an int if it is whole."""
    return int(end) if end == int(end) else end


def _seeds(given: Plain) -> Sequence[int]:
    """Returns the seeds as a tuple or a range. A long range needs no memory."""
    if isinstance(given, list):
        return tuple(given)
    if not isinstance(given, dict):
        given = {"start": 0, "count": given}
    start, count = given["start"], given["count"]
    if start + count - 1 > MAX_SEED:
        raise ValueError(
            f"got start={start}, count={count}; allowed: seeds up to {MAX_SEED}"
        )
    return range(start, start + count)


def _derived(given: object) -> Expression:
    """Returns the expression that a line of derive contains. The line may be a number,
    and may call functions.
    """
    text = repr(given) if is_number(given) else given
    if not isinstance(text, str):
        raise refuse(text, "an expression in quotes, such as round(alpha * d * L)")
    return parse(text, calls=True)


def _condition(text: object) -> Expression:
    """Returns the expression that a where line contains."""
    if not isinstance(text, str):
        raise refuse(text, "an expression in quotes, such as N >= d")
    return parse(text, calls=False)


_CONVERTERS = {
    "Seeds": _seeds,
    "Search": _search,
    "Limits": lambda given: Limits(**given),
    "Derived": _derived,
    "Condition": _condition,
}
"""The functions that convert checked values. The keys are the names of definitions in
the schema. The definitions of fields and axes are not included.
"""


class WrongNames:
    """An iterable of the mistakes in the names of a file."""

    def __init__(
        self,
        document: Document,
        file: GridFile,
        names: Names,
        others: Sequence[Mistake],
    ):
        self.document, self.file, self.names = document, file, names
        self.wrong = [location for location, _ in others]
        self.columns = names.simulator.row_columns
        search = document.data.get("search")
        self.search = search if isinstance(search, dict) else {}
        self.searched = _text(self.search.get("axis"))
        self.of = _text(self.search.get("of"))

    def __iter__(self) -> Iterator[Mistake]:
        base: dict[str, Location] = {name: ("base", name) for name in self.file.given}
        yield from self._misplaced(("base",), base)
        wrong_axis = list(self._in_search())
        yield from wrong_axis
        yield from self._in_keep()
        for block in self.file.blocks:
            yield from self._in_axes(block)
            yield from self._misplaced(block.location, block.locations)
            yield from self._in_expressions(block)
            unused = list(self._unused(block))
            yield from unused
            self.wrong += [location for location, _ in unused]
        searches = "search" in self.document.data
        if not wrong_axis and (self.searched is not None or not searches):
            yield from self._missing()

    def _in_search(self) -> Iterator[Mistake]:
        has_columns = self.names.simulator.has_columns
        if self.of is not None and self.of not in self.columns and has_columns:
            hint = suggest(self.of, self.columns)
            yield (
                ("search", "of"),
                f"got {self.of!r}{hint}; allowed: a measured column",
            )
        elif (self.of or self.names.simulator.accuracy) == ACCURACY:
            yield from self._no_accuracies()
        axis = self.searched
        if axis is None or self.names.is_number(axis):
            return
        uses = (
            names_in(without(WRONG, block.derive).values())
            for block in self.file.blocks
        )
        if axis in self.names or not set.intersection({axis}, *uses):
            numbers = self.names.numbers
            yield (
                ("search", "axis"),
                f"got {axis!r}{suggest(axis, numbers)}; allowed: {', '.join(numbers)},"
                " or a variable that derive uses in every block",
            )

    def _no_accuracies(self) -> Iterator[Mistake]:
        """Yields a mistake for each theta that no accuracy can have."""
        given = self.search.get("theta")
        for theta in given if isinstance(given, list) else [given]:
            if is_number(theta) and not 0 < theta < 1:
                yield (
                    ("search", "theta"),
                    f"got {shown(theta)}; allowed: accuracies as fractions between 0"
                    " and 1, one or a list",
                )

    def _in_keep(self) -> Iterator[Mistake]:
        helpers = []
        for name in sorted(filter(None, {self.searched, *self.file.written})):
            if name not in self.names and name not in self.columns:
                helpers.append(name)
        allowed = (
            ", ".join(helpers)
            or "variables that axes or derive define, and there are none"
        )
        for i, name in enumerate(self.file.keep or ()):
            if name is WRONG or name in helpers:
                continue
            why = suggest(name, helpers)
            if name in self.names or name in self.columns:
                why = ", which is a column of every row"
            yield ("keep", i), f"got {name!r}{why}; allowed: {allowed}"

    def _missing(self) -> Iterator[Mistake]:
        """Yields a mistake for each field without a value, unless a wrong name stands
        for it.
        """
        wrong = {str(name) for location in self.wrong for name in location[-1:]}
        meant = {closest(name, self.names.fields) for name in wrong}
        blocks = self.file.blocks
        for name in self.names.required:
            if name in self.file.base or name in {self.searched, *meant}:
                continue
            lacking = [
                block.location for block in blocks if name not in block.locations
            ]
            if lacking and len(lacking) == len(blocks):
                lacking = [()]
            legend = self.names.fields[name].metadata["legend"]
            message = (
                f"{name} is given nowhere ({legend}); give it in base, axes or derive"
            )
            for location in lacking:
                yield location, message

    def _misplaced(
        self, at: Location, locations: dict[str, Location]
    ) -> Iterator[Mistake]:
        rates = self.names.simulator.other_rate
        if rates and locations.keys() >= rates.keys():
            yield at, "got both kappa and gamma; give one, the other follows"
        if self.searched in locations:
            yield (
                locations[self.searched],
                "is given, and search varies it; leave it out here: search.from and"
                " search.to bound it",
            )

    def _in_axes(self, block: Block) -> Iterator[Mistake]:
        first = {}
        for location, axes in block.groups:
            right = without(WRONG, axes)
            lengths = dict(zip(right, map(len, right.values()), strict=True))
            if len(right) == len(axes) and len(set(lengths.values())) != 1:
                each = (f"{name}: {length}" for name, length in lengths.items())
                got = ", ".join(each) or "of nothing"
                yield location, f"got lengths {got}; allowed: equal lengths"
            for name in axes:
                here = (*location, name)
                if first.setdefault(name, here) != here:
                    other = self.document.origin(first[name])
                    yield here, f"is an axis twice, also at {other}"

    def _in_expressions(self, block: Block) -> Iterator[Mistake]:
        known = {
            *self.names.defaults,
            *self.file.given,
            *block.axis_names,
            self.searched,
        }
        for name, expression in block.derive.items():
            if expression is not WRONG:
                for unknown in sorted(expression.names - known):
                    why = self._why_unknown(unknown, block)
                    if unknown in block.derive:
                        why = "which has no value yet; derive works from top to bottom"
                    yield block.locations[name], f"uses {unknown}, {why}"
            known.add(name)
        for location, line in block.conditions.items():
            for unknown in sorted(line.names - known):
                if unknown not in self.names:
                    why = self._why_unknown(unknown, block)
                    yield location, f"uses {unknown}, {why}"

    def _unused(self, block: Block) -> Iterator[Mistake]:
        expressions = [*block.derive.values(), *block.where]
        if WRONG in expressions:
            return
        used = names_in(expressions).union(self.file.keep or ())
        for name, location in block.locations.items():
            if name not in used and name not in self.names:
                kind = "axis" if name in block.axis_names else "derive"
                hint = suggest(name, self.names.fields)
                yield (
                    location,
                    f"{kind} {name!r} is no field, and no derive or where line uses"
                    f" it{hint}",
                )

    def _why_unknown(self, name: str, block: Block) -> str:
        if name in self.names:
            return (
                "which has no value before the point is made; give it in base, axes or"
                " an earlier derive"
            )
        if name in self.names.choices():
            return f"which is a text; put it in quotes: '{name}'"
        hint = suggest(name, [*self.names.fields, *block.locations])
        return f"which is no field and no variable{hint}"


def _text(value: Plain) -> str | None:
    """Returns the value if it is text, and None otherwise."""
    return value if isinstance(value, str) else None
