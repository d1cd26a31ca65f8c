"""A grid file as records: its blocks, limits and search, read from plain data with all
mistakes.

Names that are unknown, unused, missing, misplaced or given twice are found in a file of
which some values may be wrong, so that these mistakes are reported together with those
of the values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property, partial
from typing import Literal

from ...errors import suggest
from ...model.point import MAX_SEED
from ..simulators import SimulatorLike, grouped
from .axes import Names
from .document import (
    WRONG,
    Checker,
    Document,
    Location,
    Plain,
    Schema,
    is_number,
    refuse,
)
from .expr import Expression, parse

SEARCH_MIN_SEEDS = 12
"""Seeds that a search uses before it trusts the width of an
interval: with fewer, it would stop where one is narrow by chance.
"""

PER_OCTAVE = 8
"""Levels of a search lie near 2^(k / 8), so that searches
of other width, theta or range meet on the same rows.
"""

RANGES = {
    "N": (64, 2**20),
    "d": (2, 1024),
    "m": (1, 4096),
    "V": (8, 4096),
    "L": (2, 4096),
}
"""Ranges that are searched unless others are given."""

FALLING = ("V", "L")
"""Fields along which accuracy falls, unless `rises` says otherwise."""

_UNITS = (
    {"B": 1}
    | {f"{p}B": 1000 ** (i + 1) for i, p in enumerate("kMGT")}
    | {f"{p}iB": 1024 ** (i + 1) for i, p in enumerate("KMGT")}
)


@dataclass(frozen=True)
class Block:
    """One block of points: the product of its axes over the base.

    Of a file with mistakes, values may be WRONG.
    """

    axes: dict[str, Plain] = field(default_factory=dict)
    derive: dict[str, Expression] = field(default_factory=dict)
    where: list[Expression] = field(default_factory=list)

    @cached_property
    def groups(self) -> list[tuple[Location, dict[str, Plain]]]:
        """The axes that move together, by name, and where in the block they are
        written.
        """
        found: list[tuple[Location, Plain]] = []
        for name, values in self.axes.items():
            if name != "zip":
                found.append((("axes",), {name: values}))
            elif isinstance(values, list):
                found += [(("axes", "zip", i), group) for i, group in enumerate(values)]
            else:
                found.append((("axes", "zip"), values))
        return [(path, group) for path, group in found if group is not WRONG]

    @cached_property
    def axis_names(self) -> list[str]:
        return [name for _, group in self.groups for name in group]

    def locations(self, at: Location) -> dict[str, Location]:
        """Where each name of axes and derive is written in a block at `at`."""
        axes = {
            name: (*at, *path, name) for path, group in self.groups for name in group
        }
        return axes | {name: (*at, "derive", name) for name in self.derive}

    def followers(self, axis: str) -> set[str]:
        """The names that are derived from an axis, directly or not."""
        found = {axis}
        for name, expression in self.derive.items():
            found |= {name} if found & expression.names else set()
        return found - {axis}


@dataclass(frozen=True)
class Limits:
    """A sweep beyond these is refused before anything runs."""

    max_runs: int
    max_bytes: int | None = None


Precision = Literal["highest", "high", "default"]


@dataclass(frozen=True)
class Settings:
    """How a plan is carried out, by any engine: the section `run` of a file, and
    --fail-fast.
    """

    precision: Precision = "highest"
    """Precision of matrix products, as JAX names it."""

    part_seconds: float = 5.0
    """Finished rows are saved this often: a kill loses
    little, and a day of work is still at most 17,000 files.
    """

    fail_fast: bool = False
    """Whether the first failed chunk stops the sweep."""


@dataclass(frozen=True)
class Search:
    """Find, for every cell, the value of a field at which the mean accuracy over seeds
    crosses theta.
    """

    axis: str
    theta: tuple[float, ...]
    from_: float
    to: float
    width: float
    max_runs: int
    rises: bool | None = None
    of: str | None = None
    """The column of fractions that crosses theta; None is the accuracy."""

    @property
    def rising(self) -> bool:
        """Whether accuracy is to rise along the axis."""
        return self.axis not in FALLING if self.rises is None else self.rises

    def lattice(self, names: Names) -> dict[int, float]:
        """k -> value of the levels: 2^(k / 8) where the axis is real, else the distinct
        whole numbers near it.
        """
        low, high = (PER_OCTAVE * math.log2(end) for end in (self.from_, self.to))
        exact = {
            k: 2 ** (k / PER_OCTAVE)
            for k in range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
        }
        if names.is_real(self.axis, self.from_, self.to):
            return exact
        near = grouped(exact, lambda k: round(exact[k]))
        return {
            min(ks, key=lambda k: abs(exact[k] - number)): number
            for number, ks in near.items()
            if number
        }


@dataclass(frozen=True)
class GridFile:
    """A grid of points of a simulator: a base, blocks of axes over it, and seeds."""

    name: str = ""
    root_seed: int = 0
    base: dict[str, Plain] = field(default_factory=dict)
    seeds: Sequence[int] = ()
    blocks: list[Block] = field(default_factory=list)
    keep: list[str] | None = None
    search: Search | None = None
    limits: Limits = Limits(0)
    run: dict[str, Plain] = field(default_factory=dict)

    @property
    def runs_each(self) -> int:
        """Runs of one point."""
        return (
            self.search.max_runs * len(self.search.theta)
            if self.search
            else len(self.seeds)
        )


def read_file(data: Plain, names: Names) -> tuple[GridFile, list[tuple[Location, str]]]:
    """The file that plain data describe, without what is wrong in them, and the
    mistakes.
    """
    schema = names.schema()
    checker = Checker(schema, names.converters() | _CONVERTERS)
    values = _right(checker.read(data, schema))
    values["blocks"] = [Block(**_right(block)) for block in values.get("blocks", ())]
    known = {f.name: values[f.name] for f in fields(GridFile) if f.name in values}
    file = GridFile(**known)
    if file.search and len(file.seeds) < SEARCH_MIN_SEEDS and not checker.mistakes:
        allowed = (
            f"allowed with search: at least {SEARCH_MIN_SEEDS}, better {{count: 200}}"
        )
        checker.mistakes.append((("seeds",), f"got {len(file.seeds)}; {allowed}"))
    return file, checker.mistakes


def plain(record: object) -> dict[str, Plain]:
    """A record as plain data, with the keys of the file; values that are not given are
    left out.
    """
    return {
        name.strip("_"): value
        for name, value in vars(record).items()
        if value is not None
    }


def json_schema(simulator: SimulatorLike | None = None) -> Schema:
    """The JSON Schema, draft 2020-12, of a grid file of a simulator, that of this
    package unless given.
    """
    return Names(simulator).schema()


def _right(values: Plain) -> dict[str, Plain]:
    return (
        {}
        if values is WRONG
        else {name: value for name, value in values.items() if value is not WRONG}
    )


def _search(given: dict[str, Plain]) -> Search:
    axis, theta = given["axis"], given["theta"]
    default = RANGES.get(axis, (None, None))
    low, high = (
        given.get(name, end) for name, end in zip(("from", "to"), default, strict=True)
    )
    for name, end in (("from", low), ("to", high)):
        if end is None:
            raise ValueError(
                f"got no {name}; needed with axis {axis}: from and to, the ends of the"
                " range"
            )
    low, high = (int(end) if end == int(end) else end for end in (low, high))
    if not low < high:
        raise ValueError(f"got from={low}, to={high}; allowed: from below to")
    theta = tuple(theta) if isinstance(theta, list) else (theta,)
    return Search(
        axis,
        theta,
        low,
        high,
        given["width"],
        given["max_runs"],
        given.get("rises"),
        given.get("of"),
    )


def _seeds(given: Plain) -> Sequence[int]:
    """Seeds; a range of very many takes no memory."""
    if isinstance(given, list):
        return tuple(given)
    start, count = (
        (given["start"], given["count"]) if isinstance(given, dict) else (0, given)
    )
    if start + count - 1 > MAX_SEED:
        raise ValueError(
            f"got start={start}, count={count}; allowed: seeds up to {MAX_SEED}"
        )
    return range(start, start + count)


def _bytes(value: object) -> int:
    match = (
        re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", value.strip())
        if isinstance(value, str)
        else None
    )
    if match and match[2] in _UNITS:
        value = int(Fraction(match[1]) * _UNITS[match[2]])
    if not is_number(value) or not 1 <= value < 2**63 or value != int(value):
        raise refuse(
            value,
            "bytes as a whole number, or text such as 8GiB or 500 MB with one of"
            f" {', '.join(_UNITS)}",
        )
    return int(value)


def _expression(derives: bool, text: object) -> Expression:
    """An expression of derive, which may be a number and may call functions, or of
    where.
    """
    if derives and is_number(text):
        text = repr(text)
    if not isinstance(text, str):
        raise refuse(
            text,
            "an expression in quotes, such as"
            f" {'round(alpha * d * L)' if derives else 'N >= d'}",
        )
    return parse(text, derives)


_CONVERTERS = {
    "Seeds": _seeds,
    "Search": _search,
    "Limits": lambda given: Limits(**given),
    "Bytes": _bytes,
    "Derived": partial(_expression, True),
    "Condition": partial(_expression, False),
}
"""What makes the values of definitions of the schema, besides those that concern fields
and axes.
"""


Found = Iterator[tuple[Location, str]]
"""Locations, and what is wrong there."""


class WrongNames:
    """Iterates over the wrong names of a file."""

    def __init__(self, document: Document, file: GridFile, names: Names):
        self.document, self.file, self.names = document, file, names
        self.given = {name for name, value in file.base.items() if value is not None}
        self.blocks: dict[Location, Block] = {
            ("blocks", i): block for i, block in enumerate(file.blocks)
        }
        if "blocks" not in document.data:
            self.blocks = {(): Block()}
        search = document.data.get("search")
        axis, of = (
            (search.get("axis"), search.get("of"))
            if isinstance(search, dict)
            else (None, None)
        )
        self.searched, self.of = (
            name if isinstance(name, str) else None for name in (axis, of)
        )

    def __iter__(self) -> Found:
        yield from self._misplaced(
            ("base",), {name: ("base", name) for name in self.given}
        )
        wrong_axis = [*self._in_search()] if "search" in self.document.data else []
        yield from wrong_axis
        yield from self._in_keep()
        for at, block in self.blocks.items():
            locations = block.locations(at)
            yield from self._in_axes(block, at)
            yield from self._misplaced(at, locations)
            yield from self._in_expressions(block, locations, at)
            yield from self._in_texts(block, at)
            yield from self._unused(block, locations)
        if not wrong_axis and (
            self.searched is not None or "search" not in self.document.data
        ):
            yield from self._missing()

    def _in_search(self) -> Found:
        columns = self.names.simulator.facts.columns
        if self.of is not None and self.of not in columns:
            yield (
                ("search", "of"),
                (
                    f"got {self.of!r}{suggest(self.of, columns)}; allowed: a column of"
                    " fractions"
                ),
            )
        if self.searched is None or self.names.is_number(self.searched):
            return
        derived = (
            (e.names for e in block.derive.values() if e is not WRONG)
            for block in self.blocks.values()
        )
        if self.searched in self.names or not all(
            any(self.searched in used for used in block) for block in derived
        ):
            numbers = self.names.numbers
            allowed = (
                f"allowed: {', '.join(numbers)}, or a helper that derive uses in every"
                " block"
            )
            yield (
                ("search", "axis"),
                f"got {self.searched!r}{suggest(self.searched, numbers)}; {allowed}",
            )

    def _in_keep(self) -> Found:
        columns = self.names.simulator.facts.columns
        given = {
            name for at, block in self.blocks.items() for name in block.locations(at)
        } | {self.searched or ""} - {""}
        helpers = sorted(
            name for name in given if name not in self.names and name not in columns
        )
        allowed = (
            ", ".join(helpers)
            or "helpers that axes or derive define, and there are none"
        )
        for i, name in enumerate(self.file.keep or ()):
            if name is not WRONG and name not in helpers:
                known = name in self.names or name in columns
                why = (
                    ", which is a column of every row"
                    if known
                    else suggest(name, helpers)
                )
                yield ("keep", i), f"got {name!r}{why}; allowed: {allowed}"

    def _missing(self) -> Found:
        for name in self.names.required:
            if name in self.file.base or name == self.searched:
                continue
            lacking = [
                at
                for at, block in self.blocks.items()
                if name not in block.locations(at)
            ]
            for location in [()] if len(lacking) == len(self.blocks) > 0 else lacking:
                legend = self.names.fields[name].metadata["legend"]
                yield (
                    location,
                    (
                        f"{name} is given nowhere ({legend}); give it in base, axes or"
                        " derive"
                    ),
                )

    def _misplaced(self, at: Location, locations: dict[str, Location]) -> Found:
        if self.names.other_rate and locations.keys() >= self.names.other_rate.keys():
            yield at, "got both kappa and gamma; give one, the other follows"
        if self.searched in locations:
            yield (
                locations[self.searched],
                (
                    "is given, and search varies it; leave it out here: search.from and"
                    " search.to bound it"
                ),
            )

    def _in_axes(self, block: Block, at: Location) -> Found:
        first: dict[str, Location] = {}
        for path, group in block.groups:
            lengths = {
                name: len(values)
                for name, values in group.items()
                if isinstance(values, tuple)
            }  # others are wrong
            if len(lengths) == len(group) and len(set(lengths.values())) != 1:
                got = (
                    ", ".join(f"{name}: {length}" for name, length in lengths.items())
                    or "of nothing"
                )
                yield (*at, *path), f"got lengths {got}; allowed: equal lengths"
            for name in group:
                here = (*at, *path, name)
                if first.setdefault(name, here) != here:
                    yield (
                        here,
                        (
                            "is an axis twice, also at"
                            f" {self.document.origin(first[name])}"
                        ),
                    )

    def _in_expressions(
        self, block: Block, locations: dict[str, Location], at: Location
    ) -> Found:
        known = {*self.names.defaults, *self.given, *block.axis_names, self.searched}
        for name, expression in block.derive.items():
            for used in (
                sorted(expression.names - known) if expression is not WRONG else ()
            ):
                later = "which has no value yet; derive works from top to bottom"
                why = (
                    later
                    if used in block.derive
                    else self._why_unknown(used, locations)
                )
                yield locations[name], f"uses {used}, {why}"
            known.add(name)
        for i, line in enumerate(block.where):
            for used in sorted(line.names - known) if line is not WRONG else ():
                if used not in self.names:
                    yield (
                        (*at, "where", i),
                        f"uses {used}, {self._why_unknown(used, locations)}",
                    )

    def _in_texts(self, block: Block, at: Location) -> Found:
        lists = [
            self.file.base.values(),
            *(
                values
                for _, group in block.groups
                for values in group.values()
                if values is not WRONG
            ),
        ]
        lists += [
            expression.strings
            for expression in block.derive.values()
            if expression is not WRONG
        ]
        texts = self.names.choices() | {
            value for values in lists for value in values if isinstance(value, str)
        }
        for i, line in enumerate(block.where):
            for text in sorted(line.strings - texts) if line is not WRONG else ():
                if not self.names.is_law(text):
                    yield (
                        (*at, "where", i),
                        (
                            f"holds {text!r}, which is no value of any field or"
                            f" helper{suggest(text, texts)}"
                        ),
                    )

    def _unused(self, block: Block, locations: dict[str, Location]) -> Found:
        expressions = [*block.derive.values(), *block.where]
        if WRONG in expressions:
            return
        used = {*(self.file.keep or ())}.union(
            *(expression.names for expression in expressions)
        )
        for name, location in locations.items():
            if name not in used and name not in self.names:
                kind = "axis" if name in block.axis_names else "derive"
                yield (
                    location,
                    (
                        f"{kind} {name!r} is no field, and no derive or where line uses"
                        f" it{suggest(name, self.names.fields)}"
                    ),
                )

    def _why_unknown(self, name: str, locations: dict[str, Location]) -> str:
        if name in self.names:
            return (
                "which has no value before the point is made; give it in base, axes or"
                " an earlier derive"
            )
        if name in self.names.choices():
            return f"which is a text; put it in quotes: '{name}'"
        return (
            "which is no field and no"
            f" helper{suggest(name, [*self.names.fields, *locations])}"
        )
