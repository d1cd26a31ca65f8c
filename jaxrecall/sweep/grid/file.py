"""The contents of a grid file: its sections and their types as pydantic models, and its JSON Schema.

A new key is a new field of a model here. Editors show its description.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, create_model, model_validator

from ...model.point import MAX_SEED
from ...model.pool import MAX_SAMPLES
from ..settings import Precision, Settings
from .axes import Axes
from .expr import Expression, parse
from .fields import AXIS_FIELDS, described, field_check, field_schema, field_value
from .values import Checked, StrictModel, absent, between, is_number, refuse, whole

SEARCH_MIN_SEEDS = 12
"""Seeds that a search uses before it trusts the width of an interval: with fewer, it would stop where one is narrow by chance."""


_UNITS = {"B": 1} | {f"{p}B": 1000 ** (i + 1) for i, p in enumerate("kMGT")} | {f"{p}iB": 1024 ** (i + 1) for i, p in enumerate("KMGT")}


def _expression(calls: bool) -> Callable[[Any], Expression]:
    def check(value: Any) -> Expression:
        if calls and is_number(value):
            value = repr(value)
        if not isinstance(value, str):
            raise refuse(value, "an expression in quotes, such as " + ("round(alpha * d * L)" if calls else "N >= d"))
        return parse(value, calls)

    return check


Derived = Annotated[Expression, Checked(_expression(calls=True), {"type": ["string", "number"]})]
Where = Annotated[Expression, Checked(_expression(calls=False), {"type": "string"})]


class Block(StrictModel):
    """One block of points: the product of its axes over the base."""

    axes: Axes = Field(default_factory=absent, description="names to values; a name that is no field is a helper")
    derive: dict[str, Derived] = Field(
        default={}, description="fields or helpers computed from others, in this order: {N: round(alpha * d * L)}"
    )
    where: list[Where] = Field(default=[], description="conditions that all must hold, no function calls: ['N >= d']")


def _seed_shape(value: Any) -> str:
    return "list" if isinstance(value, list) else "start and count"


def _count_in_full(value: Any) -> Any:
    """`seeds: 64` as `seeds: {count: 64}`."""
    if isinstance(value, (list, dict)):
        return value
    if not is_number(value) or not 1 <= value <= MAX_SEED + 1 or value != int(value):
        raise refuse(value, "a count from 1, {start: 0, count: 64} or a list such as [0, 5, 7]")
    return {"count": int(value)}


def _no_repeats(seeds: list[int]) -> list[int]:
    repeated = [seed for seed, count in Counter(seeds).items() if count > 1]
    if repeated:
        more = f" and {len(repeated) - 10} others" if len(repeated) > 10 else ""
        raise ValueError(f"got {', '.join(map(str, sorted(repeated)[:10]))}{more} more than once; allowed: each seed once")
    return seeds


class SeedRange(StrictModel):
    """The seeds start, start + 1, ..., `count` of them."""

    start: Annotated[int, whole(0, MAX_SEED)] = Field(default=0, description="first seed")
    count: Annotated[int, whole(1, MAX_SEED + 1)] = Field(description="how many seeds")

    @model_validator(mode="after")
    def _in_range(self) -> SeedRange:
        if self.start + self.count - 1 > MAX_SEED:
            raise ValueError(f"got start={self.start}, count={self.count}; allowed: seeds up to {MAX_SEED}")
        return self


_SeedCount = Annotated[int, whole(1, MAX_SEED + 1)]
_SeedList = Annotated[list[Annotated[int, whole(0, MAX_SEED)]], Field(min_length=1), AfterValidator(_no_repeats), Tag("list")]
Seeds = Annotated[
    _SeedList | Annotated[SeedRange, Tag("start and count")],
    Discriminator(_seed_shape),
    BeforeValidator(_count_in_full, json_schema_input_type=_SeedCount | _SeedList | SeedRange),
]


def _bytes(value: Any) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", value.strip()) if isinstance(value, str) else None
    if match and match[2] in _UNITS:
        value = int(Fraction(match[1]) * _UNITS[match[2]])
    if not is_number(value) or not 1 <= value < 2**63 or value != int(value):
        raise refuse(value, f"bytes as a whole number, or text such as 8GiB or 500 MB with one of {', '.join(_UNITS)}")
    return int(value)


class Limits(StrictModel):
    """A sweep beyond these is refused before anything runs."""

    max_runs: Annotated[int, whole(1, 2**53)] = Field(
        default=1_000_000, description="points times seeds; of a search cells x theta x its max_runs"
    )
    max_bytes: Annotated[int | None, Checked(_bytes, {"type": ["integer", "string"]})] = Field(
        default_factory=absent, description="peak memory of one program: bytes, or text such as 8GiB"
    )


def _thetas(value: Any) -> tuple[float, ...]:
    thetas = value if isinstance(value, (list, tuple)) else [value]
    for theta in thetas:
        if not is_number(theta) or not 0 < theta < 1:
            raise refuse(theta, "accuracies as fractions between 0 and 1, one or a list")
    if not thetas or len(set(thetas)) < len(thetas):
        raise refuse(value, "at least one accuracy, each once")
    return tuple(map(float, thetas))


_FRACTION = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
_THETA_SCHEMA = {"anyOf": [_FRACTION, {"type": "array", "items": _FRACTION, "minItems": 1, "uniqueItems": True}]}


class Search(StrictModel):
    """Find, for every cell of the axes, the N at which the mean accuracy over seeds crosses theta."""

    axis: Literal["N"] = Field(description="the field that is searched over; it must not be in base, axes or derive")
    theta: Annotated[tuple[float, ...], Checked(_thetas, _THETA_SCHEMA)] = Field(
        default=(0.5,), description="accuracy to cross, a fraction; or a list"
    )
    from_: Annotated[int, whole(16, MAX_SAMPLES)] = Field(default=64, alias="from", description="smallest N that is tried")
    to: Annotated[int, whole(16, MAX_SAMPLES)] = Field(
        default=2**20, description="largest N that is tried; above 2^30 every point needs a pool"
    )
    width: Annotated[float, between(0.01, 5, "numbers from 0.01 to 5, widths in ln N")] = Field(
        default=0.3, description="ln(hi / lo) of the 95 % interval at which the search of a cell ends"
    )
    max_runs: Annotated[int, whole(40, 10**6)] = Field(default=400, description="runs for one cell and theta, at most")

    @model_validator(mode="after")
    def _room(self) -> Search:
        if self.to < 4 * self.from_:
            raise ValueError(f"got from={self.from_}, to={self.to}; allowed: to at least 4 times from")
        return self


class RunOptions(StrictModel):
    """How the points are run. Not part of a point."""

    precision: Precision = Field(default=Settings.precision, description="precision of matrix products, as JAX names it")
    part_seconds: Annotated[float, between(0, 3600, "seconds from 0 (every batch) to 3600")] = Field(
        default=Settings.part_seconds, description="seconds between saves of finished rows; a killed sweep loses at most these"
    )


class Base(create_model("BaseFields", __base__=StrictModel, **{name: (field_value(name), described(name)) for name in AXIS_FIELDS})):  # pyright: ignore
    """Fields that all points share, unless an axis or derive overrides them."""


def checked_name(value: Any) -> str:
    """A grid's name, also the folder of its results; raises ValueError."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value):
        raise refuse(value, "text of 1 to 100 letters, digits, . _ -, the first a letter or digit (put a number in quotes)")
    return value


Name = Annotated[str | None, Checked(checked_name, {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"})]


class GridFile(StrictModel):
    """A grid of points of the simulator: a base, blocks of axes over it, and seeds."""

    version: Literal[1] = Field(default=1, alias="schema", description="version of this file format")
    name: Name = Field(default_factory=absent, description="name of the grid and of its results folder; the file's stem unless given")
    root_seed: Annotated[int, Checked(field_check("root_seed"), field_schema("root_seed"))] = Field(
        default=0, description="root of every random number"
    )
    base: Base = Field(default_factory=Base, description="fields that all points share")
    seeds: Seeds = Field(default_factory=lambda: SeedRange(count=1), description="a count such as 64, {start: 0, count: 64} or a list")
    blocks: Annotated[list[Block], Field(min_length=1)] = Field(
        default_factory=absent, description="the union of these; without blocks, the base alone is the one point"
    )
    search: Search = Field(
        default_factory=absent, description="find the N at which accuracy crosses theta, instead of running given values of N"
    )
    limits: Limits = Field(default_factory=Limits, description="a sweep beyond these limits is refused")
    run: RunOptions = Field(default_factory=RunOptions, description="how the points are run")

    @property
    def n_seeds(self) -> int:
        return len(self.seeds) if isinstance(self.seeds, list) else self.seeds.count


def json_schema() -> dict[str, Any]:
    """The JSON Schema, draft 2020-12, of a grid file."""
    schema = GridFile.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "jaxrecall grid"}
