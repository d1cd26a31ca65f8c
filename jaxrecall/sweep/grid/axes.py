"""The names that a grid may use, and the values of an axis: one value, a list or a
spacing.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, Field
from fractions import Fraction
from functools import partial
from operator import itemgetter
from pathlib import Path

from ...model.law_parameters import law_parameters
from ...model.laws import LAWS
from ...model.laws.law import plain
from ...model.point import checked_field
from ...model.values import plain_type
from ..simulators import AnyPoint
from ..simulators.custom import Simulator
from ..simulators.shipped import RECALL
from .document import NamedValues, Plain, Schema, refuse
from .expr import is_too_large

MAX_AXIS = 1_000_000
"""The largest number of values of an axis."""

SCHEMA = Path(__file__).with_name("schema.json")
"""The path of the schema of grid files. The schema lacks the fields of a simulator,
which `Names.schema` adds. Every new key of grid files must be added to the schema.
"""

_JSON_TYPES = {"int": "integer", "float": "number", "bool": "boolean"}


class Names:
    """The names that a grid may use with a simulator, and the checks of their
    values.
    """

    def __init__(self, simulator: Simulator | None = None):
        self.simulator = simulator or RECALL
        self.fields: dict[str, Field[object]] = dict(self.simulator.fields)
        self.laws = set[str]()
        self.required = list[str]()
        self.in_base = list[str]()
        self.numbers = list[str]()
        self.defaults: NamedValues = {}
        for name, declared in self.fields.items():
            if declared.metadata.get("law"):
                self.laws.add(name)
            if declared.default is MISSING:
                self.required.append(name)
            elif declared.default is not None:
                self.defaults[name] = plain(declared.default)
            if name != "root_seed":
                self.in_base.append(name)
                if self.type(name) in ("int", "float"):
                    self.numbers.append(name)

    def __contains__(self, name: str) -> bool:
        """Whether the name is a field, or a parameter of a law such as
        embedding.rho.
        """
        return name in self.fields or name.partition(".")[0] in self.laws

    def is_number(self, name: str) -> bool:
        """Whether the name is a field of numbers, or a parameter of a law."""
        return name in self.numbers or (name in self and name not in self.fields)

    def is_real(self, name: str, low: float, high: float) -> bool:
        """Whether an axis from `low` to `high` has real values instead of whole
        numbers.

        The values of a helper are real unless both ends are whole.
        """
        if name in self:
            return self.type(name) == "float"
        return low % 1 != 0 or high % 1 != 0

    def value(self, point: AnyPoint, name: str) -> Plain:
        """Returns the value that a field or a law's parameter has at a point. Returns
        None if the point's law does not have the parameter.
        """
        if name in self.fields:
            return plain(getattr(point, name))
        return law_parameters(point).get(name)

    def type(self, name: str) -> str:
        """Returns the type of a field or of a law's parameter: "int", "float", "bool"
        or "str".
        """
        if name not in self.fields:
            return self._type_of_parameter(*name.split(".", 1))
        return plain_type(self.fields[name])

    def _type_of_parameter(self, field: str, parameter: str) -> str:
        """Returns "int" if the parameter is an int in every registered law that has
        it, and "float" otherwise.
        """
        kinds = set[str]()
        for law in LAWS[self.fields[field].metadata["law"].field].values():
            for declared in dataclasses.fields(law):
                if declared.name == parameter:
                    kinds.add(str(declared.type))
        return "int" if kinds == {"int"} else "float"

    def choices(self) -> set[str]:
        """Returns the names of laws, activations and other choices that fields accept
        now. More laws and activations may be registered at any time.
        """
        return set[str]().union(*map(_choices, self.fields.values()))

    def checked(self, name: str, value: Plain) -> Plain:
        """Returns the value of a field, converted to the form that points use. None is
        allowed if the field has a default.

        Raises ValueError.
        """
        if value is None and name not in self.required:
            return None
        problems = []
        # whether there is a pool is known only when the point is made
        checked = checked_field(name, value, True, problems, self.fields)
        if problems:
            got = "got null" if value is None else problems[0].got
            raise ValueError(dataclasses.replace(problems[0], got=got).message)
        return plain(checked)

    def schema(self) -> Schema:
        """Returns the JSON Schema of a grid file for this simulator."""
        schema = json.loads(SCHEMA.read_text("utf-8"))
        definitions = schema["$defs"]
        base, zipped, axes = itemgetter("Base", "Zip", "Axes")(definitions)
        elsewhere = _reference("Elsewhere")

        base["properties"], base["patternProperties"] = {}, {}
        for name in self.in_base:
            definitions[name] = self._field(name)
            base["properties"][name] = _reference(name)
        if self.laws:
            parameter = rf"^({'|'.join(sorted(self.laws))})\."
            base["patternProperties"][parameter] = _reference("Scalar")
        base["patternProperties"]["^root_seed$"] = elsewhere

        along = {}
        for name in (*self.in_base, "Scalar"):
            definitions[_axis(name)] = _axis_of(name)
            along[name] = _reference(_axis(name))
        helper = along.pop("Scalar")
        for group in (zipped, axes):
            group |= {"type": "object", "additionalProperties": helper}
        zipped["properties"] = along | {"root_seed": elsewhere}
        axes["properties"] = along | axes["properties"] | {"root_seed": elsewhere}
        return schema

    def _field(self, name: str) -> Schema:
        """Returns the schema of the values of a field."""
        limits = self.fields[name].metadata
        schema: Schema = {"type": _JSON_TYPES.get(self.type(name), "string")}
        choices: list[Plain] = list(_choices(self.fields[name]))
        if name not in self.required:
            schema["type"] = [schema["type"], "null"]
            if choices:
                choices.append(None)
        if choices and name in self.laws:
            schema["anyOf"] = [{"enum": choices}, {"pattern": "[(:]"}]
        elif choices:
            schema["enum"] = choices
        minimum = "exclusiveMinimum" if limits.get("open_low") else "minimum"
        schema[minimum] = limits.get("low")
        schema["maximum"] = limits.get("high_with_pool", limits.get("high"))
        schema["description"] = limits["legend"]
        schema["default"] = self.defaults.get(name)
        absent = (-math.inf, math.inf, None)
        return {key: value for key, value in schema.items() if value not in absent}

    def converters(self) -> dict[str, Callable[[Plain], object]]:
        """Returns a dict of the functions that convert checked values of fields and
        axes. The keys are the names of definitions in the schema.
        """
        checks: dict[str, Callable[[Plain], Plain]] = {"Scalar": _checked_scalar}
        for name in self.in_base:
            checks[name] = partial(self.checked, name)
        converters = _SPACINGS | checks
        for name, check in checks.items():
            converters[_axis(name)] = partial(self._as_axis, name, check)
        return converters

    def _as_axis(
        self, name: str, check: Callable[[Plain], Plain], value: Plain
    ) -> tuple[Plain, ...]:
        """Returns the values of an axis as a tuple. The values of a spacing are checked
        here.
        """
        if isinstance(value, list):
            return tuple(value)
        if not isinstance(value, tuple):
            return (value,)
        checked = []
        for each in value:
            try:
                checked.append(check(each))
            except ValueError as error:
                raise ValueError(f"one of its values is wrong: {error}") from None
        return tuple(checked)


def _choices(declared: Field[object]) -> Sequence[str]:
    return declared.metadata.get("choices", tuple)()


def _axis(name: str) -> str:
    """Returns the name of the definition that describes an axis of a field."""
    return f"{name}-axis"


def _reference(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _axis_of(name: str) -> Schema:
    one = _reference(name)
    many = {"type": "array", "items": one, "minItems": 1, "maxItems": MAX_AXIS}
    return {"anyOf": [one, many, _reference("Spacing")]}


def _checked_scalar(value: Plain) -> Plain:
    """Returns the value of a helper or of a law's parameter. Raises ValueError if the
    value is not allowed.
    """
    too_large = is_too_large(value)
    if too_large and isinstance(value, int):
        raise refuse(value, "numbers up to 1e308")
    if too_large or isinstance(value, (dict, list)):
        raise refuse(value, "numbers, text, true, false, null")
    return value


def _linspace(given: NamedValues) -> list[float]:
    """Returns evenly spaced values. The values are exact decimals if the ends are exact
    decimals. If the values are rounded, repeats are dropped.

    For example, 15 values from 0.2 to 3 include 0.4 instead of 0.39999999999999997.
    """
    start, n_steps = _exact(given["from"]), given["num"] - 1
    step = (_exact(given["to"]) - start) / n_steps
    return _between(given, [start + i * step for i in range(1, n_steps)])


def _geometric(given: NamedValues) -> list[float]:
    first, last, n_steps = given["from"], given["to"], given["num"] - 1
    if first <= 0 or last <= 0:
        raise ValueError(
            f"got from={first!r}, to={last!r}; allowed: values above 0, the ends"
            " themselves and not exponents"
        )
    inner = []
    for i in range(1, n_steps):
        share = i / n_steps
        inner.append(Fraction(f"{first ** (1 - share) * last**share:.15g}"))
    return _between(given, inner)


def _range(given: NamedValues) -> list[float]:
    start, stop, step = map(_exact, itemgetter("from", "to", "step")(given))
    n_steps = (stop - start) / step if step else -1
    if not 0 <= n_steps < MAX_AXIS:
        raise ValueError(
            f"got from={given['from']!r}, to={given['to']!r}, step={given['step']!r};"
            f" allowed: 1 to {MAX_AXIS} steps that lead to the end"
        )
    return [_plain(start + i * step) for i in range(int(n_steps) + 1)]


def _between(given: NamedValues, inner: Iterable[Fraction]) -> list[float]:
    """Returns a list of the first value, the inner values and the last value. If
    `round` is given, the values are rounded and repeats are dropped.
    """
    values = [given["from"], *map(_plain, inner), given["to"]]
    if given.get("round"):
        return list(dict.fromkeys(map(round, values)))
    return values


def _exact(value: float) -> Fraction:
    return Fraction(repr(value))


def _plain(value: Fraction) -> float:
    return int(value) if value.denominator == 1 else float(value)


_SPACINGS: dict[str, Callable[[Plain], object]] = {
    "Linspace": _linspace,
    "Geometric": _geometric,
    "Range": _range,
    "Spacing": lambda given: tuple(*given.values()),
}
