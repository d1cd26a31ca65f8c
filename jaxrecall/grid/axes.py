"""The axes of a grid file: a value, a list or a spacing for each, checked against the fields of Point. No JAX here.

A literal value of a field is checked by Point itself, so that the limits stand in one place.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, create_model, model_validator
from pydantic_core import core_schema

from ..errors import PointError
from ..point import FIELDS, Point, choices

MAX_AXIS = 1_000_000
REQUIRED = tuple(name for name, f in FIELDS.items() if f.default is MISSING)
AXIS_FIELDS = tuple(name for name in FIELDS if name != "root_seed")

_PLAIN = {"V": 2, "N": 1, "d": 4, "L": 1}  # a point that any one valid value leaves valid


def absent() -> Any:
    """Default of a key that is not given."""
    return None


def suggest(name: str, allowed: Iterable[str]) -> str:
    """ "; did you mean V?" for a name that is close to an allowed one, else nothing."""
    folded = {a.lower(): a for a in allowed}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[close[0]]}?" if close else ""


def show(value: Any) -> str:
    """`value` as the file would say it, cut when long."""
    text = {None: "null", True: "true", False: "false"}.get(value) if isinstance(value, (bool, type(None))) else None
    text = text or repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def refuse(value: Any, allowed: str) -> ValueError:
    return ValueError(f"got {show(value)}; allowed: {allowed}")


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e308 <= value <= 1e308:
        raise refuse(value, "finite numbers")
    return value


@dataclass(frozen=True, eq=False)
class Checked:
    """For `Annotated[Any, Checked(check, schema)]`: `check` returns the value or raises ValueError, `schema` is its JSON Schema."""

    check: Callable[[Any], Any]
    schema: dict[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return self.schema


def whole(low: int, high: int) -> Checked:
    """Whole numbers from low to high; 1e5 is one, true is none."""

    def check(value: Any) -> int:
        number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
        if not low <= number <= high or number != int(number):
            raise refuse(value, f"whole numbers from {low} to {high}")
        return int(number)

    return Checked(check, {"type": "integer", "minimum": low, "maximum": high})


def field_check(name: str) -> Callable[[Any], Any]:
    """A function that returns a literal value of the field as Point holds it; null, not given, passes where Point has a default."""

    def check(value: Any) -> Any:
        if value is None and name in AXIS_FIELDS and name not in REQUIRED:
            return None
        try:
            point = Point(**{**_PLAIN, name: value})
        except PointError as error:
            for problem in error.problems:
                if problem.argument == name:
                    raise ValueError(problem.message.replace("got None", "got null")) from None
            return value
        return value if isinstance(value, str) else getattr(point, name)

    return check


def field_schema(name: str) -> dict[str, Any]:
    f, limits = FIELDS[name], FIELDS[name].metadata
    kind = {"int": "integer", "float": "number", "bool": "boolean"}.get(str(f.type), "string")
    null = name not in REQUIRED and name in AXIS_FIELDS
    schema: dict[str, Any] = {"type": [kind, "null"] if null else kind}
    if names := choices(name):
        schema["enum"] = [*names, None] if null else list(names)
    if "low" in limits:
        schema["exclusiveMinimum" if limits.get("open_low") else "minimum"] = limits["low"]
    if "high" in limits:
        schema["maximum"] = limits["high"]
    return schema


def field_value(name: str) -> Any:
    return Annotated[Any, Checked(field_check(name), field_schema(name))]


def described(name: str) -> Any:
    default = FIELDS[name].default
    extra: dict[str, Any] = {"title": name} if default in (MISSING, None) else {"title": name, "default": default}
    return Field(default_factory=absent, description=FIELDS[name].metadata["legend"], json_schema_extra=extra)


class Keys(BaseModel):
    """A mapping whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Number = Annotated[Any, Checked(_number, {"type": "number"})]


class Ends(Keys):
    from_: Number = Field(alias="from", description="first value, included")
    to: Number = Field(description="last value, included")


class Spaced(Ends):
    num: Annotated[Any, whole(2, MAX_AXIS)] = Field(
        description="how many values, both ends included; values that repeat after rounding are dropped"
    )
    round: Literal["int"] | None = Field(default=None, description="int: round each value to a whole number")


class Geometric(Spaced):
    @model_validator(mode="after")
    def _positive(self) -> Geometric:
        if self.from_ <= 0 or self.to <= 0:
            got = f"got from={self.from_!r}, to={self.to!r}"
            raise ValueError(f"{got}; allowed: values above 0, the ends themselves and not exponents")
        return self


class Range(Ends):
    step: Number = Field(description="from, from + step, ..., up to `to`, which is included when it is hit")

    @model_validator(mode="after")
    def _reaches(self) -> Range:
        count = (_exact(self.to) - _exact(self.from_)) / _exact(self.step) + 1 if self.step else 0
        if not 1 <= count < MAX_AXIS + 1:
            got = f"got from={self.from_!r}, to={self.to!r}, step={self.step!r}"
            raise ValueError(f"{got}; allowed: 1 to {MAX_AXIS} steps that lead to the end")
        return self


class Spacing(Keys):
    """Computed values: exactly one of the keys."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    linspace: Spaced = Field(default_factory=absent, description="evenly spaced")
    logspace: Geometric = Field(default_factory=absent, description="evenly spaced in the logarithm, between the ends themselves")
    geom: Geometric = Field(default_factory=absent, description="the same as logspace")
    range: Range = Field(default_factory=absent, description="in steps")

    @model_validator(mode="after")
    def _one(self) -> Spacing:
        if len(self.model_fields_set) != 1:
            got = ", ".join(sorted(self.model_fields_set)) or "{}"
            raise ValueError(f"got {got}; allowed: exactly one of linspace, logspace, geom, range")
        return self

    def values(self) -> list[float]:
        """The values without repeats, exact decimals where the ends are: 0.2 to 3 in 15 gives 0.4, not 0.39999999999999997."""
        if self.range:
            start, step = _exact(self.range.from_), _exact(self.range.step)
            return [_plain(start + i * step) for i in range(int((_exact(self.range.to) - start) / step) + 1)]
        spaced = self.linspace or self.logspace or self.geom
        if spaced is None:
            return []
        first, last, steps = spaced.from_, spaced.to, spaced.num - 1
        if self.linspace:
            start, step = _exact(first), (_exact(last) - _exact(first)) / steps
            inner = [_plain(start + i * step) for i in range(1, steps)]
        else:
            powers = (first ** (1 - i / steps) * last ** (i / steps) for i in range(1, steps))
            inner = [_plain(Fraction(f"{power:.15g}")) for power in powers]
        values = [first, *inner, last]
        return list(dict.fromkeys(map(round, values) if spaced.round else values))


def _exact(value: float) -> Fraction:
    return Fraction(repr(value))


def _plain(value: Fraction) -> float:
    return int(value) if value.denominator == 1 else float(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, (dict, list)) or (isinstance(value, float) and not math.isfinite(value)):
        raise refuse(value, "numbers, text, true, false, null")
    return value


def _shape(value: Any) -> str:
    return "spacing" if isinstance(value, dict) else "list" if isinstance(value, list) else "value"


def _axis_of(value_type: Any, check: Callable[[Any], Any]) -> Any:
    """One value, a list or a spacing, which becomes the tuple of its checked values."""

    def values(axis: Any) -> tuple[Any, ...]:
        if not isinstance(axis, Spacing):
            return tuple(axis) if isinstance(axis, list) else (axis,)
        try:
            return tuple(check(value) for value in axis.values())
        except ValueError as error:
            hint = "; round: int makes them whole" if "whole numbers" in str(error) else ""
            raise ValueError(f"one of its values is wrong: {error}{hint}") from None

    one: Any = Annotated[value_type, Tag("value")]
    many: Any = Annotated[list[value_type], Field(min_length=1, max_length=MAX_AXIS), Tag("list")]
    return Annotated[one | many | Annotated[Spacing, Tag("spacing")], Discriminator(_shape), AfterValidator(values)]


_HELPER_SCHEMA = {"type": ["number", "string", "boolean", "null"]}
_HelperAxis = _axis_of(Annotated[Any, Checked(_scalar, _HELPER_SCHEMA)], _scalar)


class _Named(BaseModel):
    """Axes by name: fields of Point, and helpers."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, _HelperAxis]  # pyright: ignore

    def columns(self) -> dict[str, tuple[Any, ...]]:
        """The values of each axis that the file gives."""
        everything = {**vars(self), **(self.model_extra or {})}
        return {name: everything[name] for name in everything if name in self.model_fields_set}


_AXES: dict[str, Any] = {name: (_axis_of(field_value(name), field_check(name)), described(name)) for name in AXIS_FIELDS}


class Zip(create_model("ZipFields", __base__=_Named, **_AXES)):
    """Axes that move together: the first value of each, then the second of each, and so on."""

    @model_validator(mode="after")
    def _equal(self) -> Zip:
        lengths = {name: len(values) for name, values in self.columns().items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"got lengths {', '.join(f'{n}: {k}' for n, k in lengths.items()) or 'of nothing'}; allowed: equal lengths")
        return self


_one_zip: Any = Annotated[Zip, Tag("zip")]
_many_zips: Any = Annotated[list[Zip], Field(min_length=1), Tag("zips")]
_AXES["zip"] = (
    Annotated[_one_zip | _many_zips, Discriminator(lambda value: "zips" if isinstance(value, list) else "zip")],
    Field(default_factory=absent, description="axes of equal length that move together; or a list of such groups"),
)


class Axes(create_model("AxesFields", __base__=_Named, **_AXES)):
    """The axes whose product makes the points, the last axis fastest."""

    @model_validator(mode="after")
    def _some(self) -> Axes:
        if not self.model_fields_set:
            raise ValueError("got no axis; allowed: at least one, such as d: [32, 64]")
        return self
