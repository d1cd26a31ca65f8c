"""The sections of a grid file. A new key is a new field of a section here; editors show its description."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from typing import Any

from ...model.point import MAX_SEED
from ..settings import Precision, Settings
from .axes import Names
from .expr import Expression, parse
from .schema import WRONG, Kind, Location, between, by_form, is_number, key, kind_of, leaf, many, mapping, one_of, refuse, section, whole

SEARCH_MIN_SEEDS = 12
"""Seeds that a search uses before it trusts the width of an interval: with fewer, it would stop where one is narrow by chance."""

_UNITS = {"B": 1} | {f"{p}B": 1000 ** (i + 1) for i, p in enumerate("kMGT")} | {f"{p}iB": 1024 ** (i + 1) for i, p in enumerate("KMGT")}
_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"


def _expression(calls: bool) -> Kind:
    def check(value: Any) -> Expression:
        if calls and is_number(value):
            value = repr(value)
        if not isinstance(value, str):
            raise refuse(value, "an expression in quotes, such as " + ("round(alpha * d * L)" if calls else "N >= d"))
        return parse(value, calls)

    return leaf(check, lambda defs: {"type": ["string", "number"] if calls else "string"})


def _bytes(value: Any) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", value.strip()) if isinstance(value, str) else None
    if match and match[2] in _UNITS:
        value = int(Fraction(match[1]) * _UNITS[match[2]])
    if not is_number(value) or not 1 <= value < 2**63 or value != int(value):
        raise refuse(value, f"bytes as a whole number, or text such as 8GiB or 500 MB with one of {', '.join(_UNITS)}")
    return int(value)


def _each_once(values: list[Any]) -> list[Any]:
    if repeated := sorted(value for value, count in Counter(values).items() if count > 1):
        more = f" and {len(repeated) - 10} others" if len(repeated) > 10 else ""
        raise ValueError(f"got {', '.join(map(str, repeated[:10]))}{more} more than once; allowed: each once")
    return values


DERIVED, WHERE = _expression(calls=True), _expression(calls=False)


@dataclass(frozen=True)
class Block:
    """One block of points: the product of its axes over the base."""

    axes: dict[str, Any] = key(None, "names to values; a name that is no field is a helper", dict)
    derive: dict[str, Expression] = key(
        mapping({}, DERIVED), "fields or helpers computed from others, in this order: {N: round(alpha * d * L)}", dict
    )
    where: list[Expression] = key(
        many(WHERE, 'where: ["N >= d"]', least=0),
        "conditions that all must hold, no function calls: ['N >= d']",
        list,
    )

    def groups(self) -> list[tuple[Location, dict[str, Any]]]:
        """The axes that move together, by name, and where in the block they are written."""
        found: list[tuple[Location, Any]] = []
        for name, values in self.axes.items():
            if name != "zip":
                found.append((("axes",), {name: values}))
            elif isinstance(values, list):
                found += [(("axes", "zip", i), group) for i, group in enumerate(values)]
            else:
                found.append((("axes", "zip"), values))
        return [(path, group) for path, group in found if group is not WRONG]

    def locations(self, at: Location) -> dict[str, Location]:
        """Where each name of axes and derive is written in a block at `at`."""
        axes = {name: (*at, *path, name) for path, group in self.groups() for name in group}
        return axes | {name: (*at, "derive", name) for name in self.derive}


@dataclass(frozen=True)
class SeedRange:
    """The seeds start, start + 1, ..., `count` of them."""

    count: int = key(whole(1, MAX_SEED + 1), "how many seeds")
    start: int = key(whole(0, MAX_SEED), "first seed", 0)

    def __post_init__(self) -> None:
        if self.start + self.count - 1 > MAX_SEED:
            raise ValueError(f"got start={self.start}, count={self.count}; allowed: seeds up to {MAX_SEED}")


_COUNT = whole(1, MAX_SEED + 1, "a count from 1, {start: 0, count: 64} or a list such as [0, 5, 7]")
SEEDS = by_form(
    _COUNT.then(range),
    many(whole(0, MAX_SEED), unique=True).then(_each_once).then(tuple),
    section(SeedRange).then(lambda seeds: range(seeds.start, seeds.start + seeds.count)),
)
"""Seeds: a range of very many takes no memory."""


@dataclass(frozen=True)
class Limits:
    """A sweep beyond these is refused before anything runs."""

    max_runs: int = key(whole(1, 2**53), "points times seeds; of a search cells x theta x its max_runs", 1_000_000)
    max_bytes: int | None = key(
        leaf(_bytes, lambda defs: {"type": ["integer", "string"]}), "peak memory of one program: bytes, or text such as 8GiB", None
    )


_FRACTION = kind_of(
    lambda value: is_number(value) and 0 < value < 1,
    "accuracies as fractions between 0 and 1, one or a list",
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
).then(float)
_THETA = by_form(_FRACTION.then(lambda theta: (theta,)), many(_FRACTION, unique=True).then(_each_once).then(tuple))


PER_OCTAVE = 8
"""Levels of a search lie near 2^(k / 8), so that searches of other width, theta or range meet on the same rows."""

RANGES = {"N": (64, 2**20), "d": (2, 1024), "m": (1, 4096), "V": (8, 4096), "L": (2, 4096)}
"""Ranges that are searched unless others are given."""

FALLING = ("V", "L")
"""Fields along which accuracy falls, unless `rises` says otherwise."""

_LEVEL = kind_of(lambda v: is_number(v) and 0 < v <= 1e308, "numbers greater than 0", {"type": "number", "exclusiveMinimum": 0})
_END = _LEVEL.then(lambda v: int(v) if v == int(v) else v)


@dataclass(frozen=True)
class Search:
    """Find, for every cell, the value of a field at which the mean accuracy over seeds crosses theta."""

    axis: str = key(
        kind_of(lambda value: isinstance(value, str), "the name of a number", {"type": "string"}),
        "a number that is searched over, such as N, d, m, V or L, or a helper that derive uses; it must not be in base, axes or derive",
    )
    theta: tuple[float, ...] = key(_THETA, "accuracy to cross, a fraction; or a list", (0.5,))
    from_: float | None = key(_END, "smallest value that is tried", None, alias="from")
    to: float | None = key(_END, "largest value that is tried; an N above 2^30 needs a pool", None)
    width: float = key(
        between(0.01, 5, "numbers from 0.01 to 5, widths in ln(axis)"),
        "ln(hi / lo) of the 95 % interval at which the search of a cell ends",
        0.3,
    )
    max_runs: int = key(whole(40, 10**6), "runs for one cell and theta, at most", 400)
    rises: bool | None = key(
        kind_of(lambda value: isinstance(value, bool), "true, false", {"type": "boolean"}),
        "whether accuracy rises along the axis; unless given it falls along V and L",
        None,
    )

    def __post_init__(self) -> None:
        low, high = RANGES.get(self.axis, (None, None))
        for name, value, default in (("from_", self.from_, low), ("to", self.to, high)):
            if value is None and default is None:
                raise ValueError(f"got no {name.strip('_')}; needed with axis {self.axis}: from and to, the ends of the range")
            object.__setattr__(self, name, default if value is None else value)
        if not self.from_ < self.to:  # type: ignore[operator]
            raise ValueError(f"got from={self.from_}, to={self.to}; allowed: from below to")

    @property
    def rising(self) -> bool:
        """Whether accuracy is to rise along the axis."""
        return self.axis not in FALLING if self.rises is None else self.rises

    def lattice(self, names: Names) -> dict[int, float]:
        """k -> value of the levels: 2^(k / 8) where the axis is real, else the distinct whole numbers near it."""
        ends = self.from_ or 1, self.to or 1  # __post_init__ has set both
        low, high = (PER_OCTAVE * math.log2(end) for end in ends)
        exact = {k: 2 ** (k / PER_OCTAVE) for k in range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)}
        if names.is_real(self.axis, *ends):
            return exact
        nearest: dict[int, int] = {}
        for k, value in exact.items():
            before = nearest.setdefault(round(value), k)
            if abs(value - round(value)) < abs(exact[before] - round(value)):
                nearest[round(value)] = k
        return {k: value for value, k in nearest.items() if value}


@dataclass(frozen=True)
class RunOptions:
    """How the points are run. Not part of a point."""

    precision: Precision = key(one_of("highest", "high", "default"), "precision of matrix products, as JAX names it", Settings.precision)
    part_seconds: float = key(
        between(0, 3600, "seconds from 0 (every batch) to 3600"),
        "seconds between saves of finished rows; a killed sweep loses at most these",
        Settings.part_seconds,
    )


NAME = kind_of(
    lambda value: isinstance(value, str) and re.fullmatch(_NAME, value),
    "text of 1 to 100 letters, digits, . _ -, the first a letter or digit (put a number in quotes); without a name the file gives it",
    {"type": "string", "pattern": f"^{_NAME}$"},
)
"""A grid's name, also the folder of its results."""


@dataclass(frozen=True)
class GridFile:
    """A grid of points of a simulator: a base, blocks of axes over it, and seeds."""

    version: int = key(one_of(1), "version of this file format", 1, alias="schema")
    name: str = key(NAME, "name of the grid and of its results folder; the file's stem unless given", "")
    simulator: str | None = key(
        kind_of(lambda value: isinstance(value, str), "module:name", {"type": "string"}),
        "a simulator of your own, as module:name; that of this package unless given",
        None,
    )
    root_seed: int = key(whole(0, MAX_SEED), "root of every random number", 0)
    base: dict[str, Any] = key(None, "fields that all points share", dict)
    seeds: Sequence[int] = key(SEEDS, "a count such as 64, {start: 0, count: 64} or a list", lambda: range(1))
    blocks: list[Block] = key(None, "the union of these; without blocks, the base alone is the one point", list)
    keep: list[str] | None = key(
        many(kind_of(lambda value: isinstance(value, str), "names", {"type": "string"}), "[alpha]", unique=True).then(_each_once),
        "helpers of axes and derive that become columns of the rows; the ids of points do not depend on them",
        None,
    )
    search: Search | None = key(None, "find where accuracy crosses theta along an axis, instead of running given values of it", None)
    limits: Limits = key(section(Limits), "a sweep beyond these limits is refused", Limits)
    run: RunOptions = key(section(RunOptions), "how the points are run", RunOptions)

    @property
    def runs_each(self) -> int:
        """Runs of one point."""
        return self.search.max_runs * len(self.search.theta) if self.search else len(self.seeds)


def grid_file(names: Names) -> Kind:
    """The kind of a whole grid file, for the simulator with these names."""
    blocks = many(section(Block, axes=names.axes()))
    return section(GridFile, base=names.base(), blocks=blocks, search=section(Search))


def plain(part: Any) -> dict[str, Any]:
    """A section as plain data, with the keys of the file; values that are not given are left out."""
    values = {f.metadata["alias"] or f.name: getattr(part, f.name) for f in fields(part)}
    return {name: plain(value) if is_dataclass(value) else value for name, value in values.items() if value is not None}


def json_schema(simulator: Any = None) -> dict[str, Any]:
    """The JSON Schema, draft 2020-12, of a grid file of a simulator, that of this package unless given."""
    defs: dict[str, Any] = {}
    grid_file(Names(simulator)).schema(defs)
    top = defs.pop("GridFile")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "jaxrecall grid", **top, "$defs": defs}
