"""The names that a grid may use, and their values: one value, a list or a spacing for an axis."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, Field
from fractions import Fraction
from typing import Any

from ...errors import Problem
from ...model.columns import COLUMNS
from ...model.laws import LAWS
from ...model.point import FIELDS, checked_field, law_parameters, make_point
from .expr import MAX_BITS
from .schema import FINITE, Kind, Mistakes, Schema, by_form, described, leaf, many, mapping, one_of, refuse, whole

MAX_AXIS = 1_000_000
"""Values of an axis, at most."""

_JSON_TYPES = {"int": "integer", "float": "number", "bool": "boolean"}


class RecallFields:
    """The simulator of this package."""

    name, fields, columns, make_point = "jaxrecall", FIELDS, COLUMNS, staticmethod(make_point)


class Names:
    """The fields of a simulator as a grid uses them."""

    def __init__(self, simulator: Any = None):
        self.simulator = simulator or RecallFields
        self.fields: dict[str, Field[Any]] = dict(self.simulator.fields)
        self.laws = {name for name, f in self.fields.items() if f.metadata.get("law")}
        self.required = [name for name, f in self.fields.items() if f.default is MISSING]
        self.defaults = {name: f.default for name, f in self.fields.items() if f.default is not MISSING and f.default is not None}
        self.kinds = {name: self._kind(name) for name in self.fields if name != "root_seed"}
        own = self.simulator.fields is FIELDS
        self.other_rate = {"kappa": "gamma", "gamma": "kappa"} if own else {}
        self.numbers = [name for name in self.fields if self.type(name) in ("int", "float") and name != "root_seed"]

    def __contains__(self, name: str) -> bool:
        """Whether it is a field, or a parameter of a law such as embedding.rho."""
        return name in self.fields or name.partition(".")[0] in self.laws

    def is_number(self, name: str) -> bool:
        """Whether it is a field of numbers, or a parameter of a law."""
        return name in self.numbers or (name in self and name not in self.fields)

    def kind(self, name: str) -> str:
        """How the simulator treats a field, "law" for a parameter of a law."""
        return self.fields[name].metadata.get("kind", "") if name in self.fields else "law"

    def is_real(self, name: str, *ends: float) -> bool:
        """Whether an axis between two ends takes real numbers; a helper does unless both ends are whole."""
        if name in self.fields or name in self:
            return self.type(name) == "float"
        return any(end != int(end) for end in ends)

    def value(self, point: Any, name: str) -> Any:
        """The value of a field, or of a parameter of a law, at a point; None for a law without this parameter."""
        return getattr(point, name) if name in self.fields else law_parameters(point).get(name)

    def type(self, name: str) -> str:
        """ "int", "float", "bool" or "str"; a parameter is "int" where it is one in every registered law that has it."""
        if name not in self.fields:
            field, _, parameter = name.partition(".")
            laws = LAWS[self.fields[field].metadata["law"]].values()
            kinds = {str(f.type) for law in laws for f in dataclasses.fields(law) if f.name == parameter}  # type: ignore[arg-type]
            return "int" if kinds == {"int"} else "float"
        declared: Any = self.fields[name].type
        return getattr(declared, "__name__", str(declared)).removesuffix(" | None")

    def choices(self) -> set[str]:
        """Every name that some field takes now: laws and activations may be registered at any time."""
        return {choice for f in self.fields.values() for choice in f.metadata.get("choices", tuple)()}

    def is_law(self, text: str) -> bool:
        """Whether the text is that of a law as points hold it, such as "equicorrelated(rho=0.3)"."""
        for name in self.laws:
            with suppress(ValueError):
                return self._checked(name, text) == text
        return False

    def _checked(self, name: str, value: Any) -> Any:
        """A value of a field, as a point holds it; raises ValueError."""
        problems: list[Problem] = []
        checked = checked_field(name, value, True, problems, self.fields)  # whether there is a pool is known when the point is made
        if problems:
            raise ValueError(problems[0].message.replace("got None", "got null"))
        return checked

    def _kind(self, name: str) -> Kind:
        """Literal values of a field; null passes where there is a default."""
        f, limits = self.fields[name], self.fields[name].metadata
        null = f.default is not MISSING

        def schema(defs: Schema) -> Schema:
            kind = _JSON_TYPES.get(self.type(name), "string")
            found: Schema = {"type": [kind, "null"] if null else kind}
            if names := list(limits.get("choices", tuple)()):
                one = {"enum": [*names, None] if null else names}
                found |= {"anyOf": [one, {"pattern": "[(:]"}]} if name in self.laws else one
            found["exclusiveMinimum" if limits.get("open_low") else "minimum"] = limits.get("low", -math.inf)
            found["maximum"] = limits.get("high_with_pool", limits.get("high", math.inf))
            return {name: value for name, value in found.items() if value not in (-math.inf, math.inf)}

        kind = leaf(lambda value: None if value is None and null else self._checked(name, value), schema)
        return described(kind, limits["legend"], self.defaults.get(name)).named(name)

    def base(self) -> Kind:
        """The kind of values that all points share."""
        laws = sorted(self.laws)
        title = "Fields that all points share, unless an axis or derive overrides them."
        known = mapping(self.kinds, SCALAR if laws else None, rf"^({'|'.join(laws)})\.", title=title)
        pattern = "|".join(["root_seed$", *(rf"{law}\." for law in laws)])  # `WrongNames` says that root_seed is not given here
        return Kind(mapping(self.kinds, SCALAR, f"^({pattern})").read, known.schema).named("Base")

    def axes(self) -> Kind:
        """The kind of the axes of a block."""
        kinds = {name: axis(kind).named(f"{name}-axis") for name, kind in self.kinds.items()}
        title = "Axes of equal length, which move together: the first value of each, then the second of each, and so on."
        zipped = mapping(kinds, axis(SCALAR), title=title).named("Zip")
        kinds["zip"] = described(by_form(zipped, many(zipped), zipped), "axes of equal length that move together; or a list of such groups")
        title = "The axes whose product makes the points, the last axis fastest."
        return mapping(kinds, axis(SCALAR), title=title).then(_not_empty).named("Axes")


def _check_scalar(value: Any) -> Any:
    if isinstance(value, (dict, list)) or (isinstance(value, float) and not math.isfinite(value)):
        raise refuse(value, "numbers, text, true, false, null")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise refuse(value, "numbers up to 1e308")
    return value


SCALAR = leaf(_check_scalar, lambda defs: {"type": ["number", "string", "boolean", "null"]})
"""A value of a helper, or of a parameter of a law."""


def axis(kind: Kind) -> Kind:
    """One value of a kind, a list or a spacing, which becomes the tuple of its checked values."""

    def spaced(values: list[float]) -> tuple[Any, ...]:
        mistakes: Mistakes = []
        checked = tuple(kind.read(value, (), mistakes) for value in values)
        for _, message in mistakes:
            hint = "; round: int makes them whole" if "whole numbers" in message else ""
            raise ValueError(f"one of its values is wrong: {message}{hint}")
        return checked

    return by_form(kind.then(lambda value: (value,)), many(kind, most=MAX_AXIS).then(tuple), SPACING.then(spaced))


def _not_empty(axes: dict[str, Any]) -> dict[str, Any]:
    if not axes:
        raise ValueError("got no axis; allowed: at least one, such as d: [32, 64]")
    return axes


def _linspace(first: float, last: float, num: int, round_to: str | None = None) -> list[float]:
    """The values without repeats, exact decimals where the ends are: 0.2 to 3 in 15 gives 0.4, not 0.39999999999999997."""
    start, step = _exact(first), (_exact(last) - _exact(first)) / (num - 1)
    return _rounded([first, *(_plain(start + i * step) for i in range(1, num - 1)), last], round_to)


def _geometric(first: float, last: float, num: int, round_to: str | None = None) -> list[float]:
    if first <= 0 or last <= 0:
        raise ValueError(f"got from={first!r}, to={last!r}; allowed: values above 0, the ends themselves and not exponents")
    shares = (i / (num - 1) for i in range(1, num - 1))
    between = (Fraction(f"{first ** (1 - share) * last**share:.15g}") for share in shares)
    return _rounded([first, *map(_plain, between), last], round_to)


def _range(first: float, last: float, step: float) -> list[float]:
    n_steps = (_exact(last) - _exact(first)) / _exact(step) if step else -1
    if not 0 <= n_steps < MAX_AXIS:
        raise ValueError(f"got from={first!r}, to={last!r}, step={step!r}; allowed: 1 to {MAX_AXIS} steps that lead to the end")
    start, by = _exact(first), _exact(step)
    return [_plain(start + i * by) for i in range(int(n_steps) + 1)]


def _rounded(values: list[float], round_to: str | None) -> list[float]:
    return list(dict.fromkeys(map(round, values) if round_to else values))


def _exact(value: float) -> Fraction:
    return Fraction(repr(value))


def _plain(value: Fraction) -> float:
    return int(value) if value.denominator == 1 else float(value)


_ENDS = {"from": described(FINITE, "first value, included"), "to": described(FINITE, "last value, included")}
_NUM = {
    "num": described(whole(2, MAX_AXIS), "how many values, both ends included; values that repeat after rounding are dropped"),
    "round": described(one_of("int", None), "int: round each value to a whole number"),
}
_STEP = {"step": described(FINITE, "from, from + step, ..., up to `to`, which is included when it is hit")}


def _spacing(function: Callable[..., list[float]], last: dict[str, Kind], title: str) -> Kind:
    kinds = _ENDS | last
    keys = mapping(kinds, required=list(kinds)[:3], title=title)
    return keys.then(lambda given: function(*(given.get(name) for name in kinds))).named(function.__name__.strip("_").title())


def _only(spacings: dict[str, list[float]]) -> list[float]:
    if len(spacings) != 1:
        got = ", ".join(sorted(spacings)) or "{}"
        raise ValueError(f"got {got}; allowed: exactly one of linspace, logspace, geom, range")
    return next(iter(spacings.values()))


_GEOMETRIC = _spacing(_geometric, _NUM, "Evenly spaced in the logarithm, between the ends themselves.")
_SPACINGS = {
    "linspace": _spacing(_linspace, _NUM, "Evenly spaced."),
    "logspace": _GEOMETRIC,
    "geom": _GEOMETRIC,
    "range": _spacing(_range, _STEP, "In steps."),
}
_ONE = mapping(_SPACINGS, title="Computed values: exactly one of the keys.").then(_only)
SPACING = Kind(_ONE.read, lambda defs: _ONE.schema(defs) | {"minProperties": 1, "maxProperties": 1}).named("Spacing")
