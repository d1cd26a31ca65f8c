"""The names that a grid may use, and their values: one value, a list or a spacing for
an axis.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import MISSING, Field
from fractions import Fraction
from functools import partial
from pathlib import Path

from ...errors import Problem
from ...model.law_parameters import law_parameters
from ...model.laws import LAWS
from ...model.laws.law import plain
from ...model.point import checked_field
from ...model.values import plain_type
from ..simulators import AnyPoint, SimulatorLike
from ..simulators.recall import RECALL
from .document import Plain, Schema, refuse
from .expr import MAX_BITS

MAX_AXIS = 1_000_000
"""Values of an axis, at most."""

SCHEMA = Path(__file__).with_name("schema.json")
"""The schema of a grid file but for the names of fields: a new key of the file is an
entry there.
"""

_JSON_TYPES = {"int": "integer", "float": "number", "bool": "boolean"}


class Names:
    """The fields of a simulator as a grid uses them."""

    def __init__(self, simulator: SimulatorLike | None = None):
        self.simulator = simulator or RECALL
        self.fields: dict[str, Field[object]] = dict(self.simulator.facts.fields)
        self.laws = {name for name, f in self.fields.items() if f.metadata.get("law")}
        self.required = [
            name for name, f in self.fields.items() if f.default is MISSING
        ]
        self.defaults = {
            name: f.default
            for name, f in self.fields.items()
            if f.default is not MISSING and f.default is not None
        }
        self.other_rate = (
            {"kappa": "gamma", "gamma": "kappa"} if self.simulator.facts.is_ours else {}
        )
        self.numbers = [
            name
            for name in self.fields
            if self.type(name) in ("int", "float") and name != "root_seed"
        ]

    def __contains__(self, name: str) -> bool:
        """Whether it is a field, or a parameter of a law such as embedding.rho."""
        return name in self.fields or name.partition(".")[0] in self.laws

    def is_number(self, name: str) -> bool:
        """Whether it is a field of numbers, or a parameter of a law."""
        return name in self.numbers or (name in self and name not in self.fields)

    def kind(self, name: str) -> str:
        """How the simulator treats a field, "law" for a parameter of a law."""
        return (
            self.fields[name].metadata.get("kind", "") if name in self.fields else "law"
        )

    def is_real(self, name: str, *ends: float) -> bool:
        """Whether an axis between two ends takes real numbers; a helper does unless
        both ends are whole.
        """
        if name in self:
            return self.type(name) == "float"
        return any(end != int(end) for end in ends)

    def value(self, point: AnyPoint, name: str) -> Plain:
        """The value of a field, or of a parameter of a law, at a point; None for a law
        without this parameter.
        """
        return (
            plain(getattr(point, name))
            if name in self.fields
            else law_parameters(point).get(name)
        )

    def type(self, name: str) -> str:
        """ "int", "float", "bool" or "str".

        A parameter is "int" where it is one in every registered law that has it.
        """
        if name not in self.fields:
            field, _, parameter = name.partition(".")
            laws = LAWS[self.fields[field].metadata["law"].field].values()
            kinds = {
                str(f.type)
                for law in laws
                for f in dataclasses.fields(law)
                if f.name == parameter
            }
            return "int" if kinds == {"int"} else "float"
        return plain_type(self.fields[name])

    def choices(self) -> set[str]:
        """Every name that some field takes now: laws and activations may be registered
        at any time.
        """
        return {
            choice
            for f in self.fields.values()
            for choice in f.metadata.get("choices", tuple)()
        }

    def is_law(self, text: str) -> bool:
        """Whether the text is that of a law as points hold it, such as
        "equicorrelated(rho=0.3)".
        """
        for name in self.laws:
            with suppress(ValueError):
                return self.checked(name, text) == text
        return False

    def checked(self, name: str, value: Plain) -> Plain:
        """A value of a field, as a point holds it; null passes where there is a
        default. Raises ValueError.
        """
        if value is None and name not in self.required:
            return None
        problems: list[Problem] = []
        checked = checked_field(
            name, value, True, problems, self.fields
        )  # whether there is a pool is known when the point is made
        if problems:
            raise ValueError(problems[0].message.replace("got None", "got null"))
        return plain(checked)

    def schema(self) -> Schema:
        """The JSON Schema of a grid file."""
        schema = json.loads(SCHEMA.read_text("utf-8"))
        fields = {
            name: self._field(name) for name in self.fields if name != "root_seed"
        }
        axes = {f"{name}-axis": _axis_of(name) for name in (*fields, "Scalar")}
        along = {name: {"$ref": f"#/$defs/{name}-axis"} for name in fields}
        group = {
            "type": "object",
            "additionalProperties": {"$ref": "#/$defs/Scalar-axis"},
        }
        base = {name: {"$ref": f"#/$defs/{name}"} for name in fields}
        parameters = (
            {rf"^({'|'.join(sorted(self.laws))})\.": {"$ref": "#/$defs/Scalar"}}
            if self.laws
            else {}
        )
        elsewhere = {"$ref": "#/$defs/Elsewhere"}
        schema["$defs"]["Base"] |= {
            "properties": base,
            "patternProperties": parameters | {"^root_seed$": elsewhere},
        }
        schema["$defs"]["Zip"] |= group | {
            "properties": along | {"root_seed": elsewhere}
        }
        schema["$defs"]["Axes"] |= group | {
            "properties": (
                along | schema["$defs"]["Axes"]["properties"] | {"root_seed": elsewhere}
            )
        }
        schema["$defs"] |= fields | axes
        return schema

    def _field(self, name: str) -> Schema:
        """The schema of the values of a field."""
        limits = self.fields[name].metadata
        null = name not in self.required
        kind = _JSON_TYPES.get(self.type(name), "string")
        found: Schema = {"type": [kind, "null"] if null else kind}
        if names := list(limits.get("choices", tuple)()):
            one = {"enum": [*names, None] if null else names}
            found |= {"anyOf": [one, {"pattern": "[(:]"}]} if name in self.laws else one
        found["exclusiveMinimum" if limits.get("open_low") else "minimum"] = limits.get(
            "low", -math.inf
        )
        found["maximum"] = limits.get("high_with_pool", limits.get("high", math.inf))
        found |= {"description": limits["legend"], "default": self.defaults.get(name)}
        return {
            key: value
            for key, value in found.items()
            if value not in (-math.inf, math.inf, None)
        }

    def converters(self) -> dict[str, Callable[[Plain], object]]:
        """What makes values of the definitions of the schema that concern fields and
        axes.
        """
        checks = {
            name: partial(self.checked, name)
            for name in self.fields
            if name != "root_seed"
        } | {"Scalar": _checked_scalar}
        axes = {
            f"{name}-axis": partial(_as_axis, check) for name, check in checks.items()
        }
        return {**checks, **axes, **_SPACINGS}


def _axis_of(name: str) -> Schema:
    one = {"$ref": f"#/$defs/{name}"}
    many = {"type": "array", "items": one, "minItems": 1, "maxItems": MAX_AXIS}
    return {"anyOf": [one, many, {"$ref": "#/$defs/Spacing"}]}


def _as_axis(check: Callable[[Plain], Plain], value: Plain) -> tuple[Plain, ...]:
    """The values of an axis, of which those of a spacing have not been checked."""
    if not isinstance(value, tuple):
        return tuple(value) if isinstance(value, list) else (value,)
    try:
        return tuple(map(check, value))
    except ValueError as error:
        hint = "; round: int makes them whole" if "whole numbers" in str(error) else ""
        raise ValueError(f"one of its values is wrong: {error}{hint}") from None


def _checked_scalar(value: Plain) -> Plain:
    """A value of a helper, or of a parameter of a law; raises ValueError."""
    if isinstance(value, (dict, list)) or (
        isinstance(value, float) and not math.isfinite(value)
    ):
        raise refuse(value, "numbers, text, true, false, null")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise refuse(value, "numbers up to 1e308")
    return value


def _linspace(given: dict[str, Plain]) -> list[float]:
    """The values without repeats, exact decimals where the ends are.

    0.2 to 3 in 15 gives 0.4, not 0.39999999999999997.
    """
    start, n_steps = _exact(given["from"]), given["num"] - 1
    step = (_exact(given["to"]) - start) / n_steps
    return _between(given, (start + i * step for i in range(1, n_steps)))


def _geometric(given: dict[str, Plain]) -> list[float]:
    first, last = given["from"], given["to"]
    if first <= 0 or last <= 0:
        raise ValueError(
            f"got from={first!r}, to={last!r}; allowed: values above 0, the ends"
            " themselves and not exponents"
        )
    shares = (i / (given["num"] - 1) for i in range(1, given["num"] - 1))
    return _between(
        given,
        (Fraction(f"{first ** (1 - share) * last**share:.15g}") for share in shares),
    )


def _range(given: dict[str, Plain]) -> list[float]:
    start, stop, step = (_exact(given[name]) for name in ("from", "to", "step"))
    n_steps = (stop - start) / step if step else -1
    if not 0 <= n_steps < MAX_AXIS:
        got = ", ".join(f"{name}={given[name]!r}" for name in ("from", "to", "step"))
        raise ValueError(
            f"got {got}; allowed: 1 to {MAX_AXIS} steps that lead to the end"
        )
    return [_plain(start + i * step) for i in range(int(n_steps) + 1)]


def _between(given: dict[str, Plain], inner: Iterable[Fraction]) -> list[float]:
    """The first value, those in between and the last one, without repeats if they are
    rounded.
    """
    values = [given["from"], *map(_plain, inner), given["to"]]
    return list(dict.fromkeys(map(round, values))) if given.get("round") else values


def _exact(value: float) -> Fraction:
    return Fraction(repr(value))


def _plain(value: Fraction) -> float:
    return int(value) if value.denominator == 1 else float(value)


_SPACINGS = {
    "Linspace": _linspace,
    "Geometric": _geometric,
    "Range": _range,
    "Spacing": lambda given: tuple(*given.values()),
}
