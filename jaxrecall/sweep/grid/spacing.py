"""The computed values of an axis: linspace, logspace, geom, range."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from .values import Number, StrictModel, absent, whole

MAX_AXIS = 1_000_000


class Ends(StrictModel):
    from_: Number = Field(alias="from", description="first value, included")
    to: Number = Field(description="last value, included")


class Spaced(Ends):
    num: Annotated[int, whole(2, MAX_AXIS)] = Field(
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


class Spacing(StrictModel):
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
