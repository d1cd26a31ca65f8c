"""Kinds of values of a grid file. A kind is declared once: its check, its messages and its JSON Schema follow.

A section of the file is a dataclass whose fields are made by `key`; `section` is its kind.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, field, fields
from typing import Any, NamedTuple, TypeGuard

from ...errors import shown, suggest

Location = tuple[str | int, ...]
"""The path of a value in a document: keys of mappings and indices of lists, from the top."""

Schema = dict[str, Any]


class Kind(NamedTuple):
    """`check` returns a value as the grid uses it, or raises ValueError; `schema` is given the $defs and returns the JSON Schema."""

    check: Callable[[Any], Any]
    schema: Callable[[Schema], Schema]

    def then(self, convert: Callable[[Any], Any]) -> Kind:
        """This kind, with its checked values passed through `convert`, which may raise ValueError."""
        return Kind(lambda value: convert(self.check(value)), self.schema)

    def named(self, name: str) -> Kind:
        """This kind, with its schema written once, under $defs."""

        def schema(defs: Schema) -> Schema:
            if name not in defs:
                defs[name] = {}  # holds the place, so that the order is that of the file
                defs[name] |= self.schema(defs)
            return {"$ref": f"#/$defs/{name}"}

        return Kind(self.check, schema)


class Wrong(ValueError):
    """What is wrong with a value: each message with its location inside the value."""

    def __init__(self, found: list[tuple[Location, str]]):
        self.found = found


def messages(error: ValueError) -> list[tuple[Location, str]]:
    """What a check has found."""
    return error.found if isinstance(error, Wrong) else [((), str(error))]


def check_each(items: Iterable[tuple[str | int, Kind, Any]]) -> dict[Any, Any]:
    """The checked values by key or index; raises Wrong with the mistakes of all of them."""
    values, found = {}, []
    for name, kind, value in items:
        try:
            values[name] = kind.check(value)
        except ValueError as error:
            found += [((name, *location), message) for location, message in messages(error)]
    if found:
        raise Wrong(found)
    return values


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether it is an int or a float; true is neither."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def show(value: Any) -> str:
    """`value` as YAML writes it, cut when long."""
    text = {None: "null", True: "true", False: "false"}.get(value) if isinstance(value, (bool, type(None))) else None
    return text or shown(value, 60)


def refuse(value: Any, allowed: str) -> ValueError:
    """The error for a wrong value, with the value received and the values allowed."""
    return ValueError(f"got {show(value)}; allowed: {allowed}")


def kind_of(test: Callable[[Any], Any], allowed: str, schema: Schema) -> Kind:
    """Values for which `test` is true, as they are."""

    def check(value: Any) -> Any:
        if not test(value):
            raise refuse(value, allowed)
        return value

    return Kind(check, lambda defs: dict(schema))


def whole(low: int, high: int) -> Kind:
    """Whole numbers from low to high; 1e5 is one, true is not."""
    schema = {"type": "integer", "minimum": low, "maximum": high}
    return kind_of(lambda v: is_number(v) and low <= v <= high and v == int(v), f"whole numbers from {low} to {high}", schema).then(int)


def between(low: float, high: float, allowed: str) -> Kind:
    """Numbers from low to high; a refusal shows `allowed`, such as "seconds from 0 to 3600"."""
    schema = {"type": "number", "minimum": low, "maximum": high}
    return kind_of(lambda v: is_number(v) and low <= v <= high, allowed, schema).then(float)


FINITE = kind_of(lambda v: is_number(v) and -1e308 <= v <= 1e308, "finite numbers", {"type": "number"})
"""A finite number; whole numbers stay ints."""


def one_of(*values: Any) -> Kind:
    """One of these values."""

    def test(value: Any) -> bool:
        return any(type(value) is type(each) and value == each for each in values)

    return kind_of(test, ", ".join(map(str, values)), {"enum": list(values)} if len(values) > 1 else {"const": next(iter(values))})


def many(kind: Kind, example: str = "", least: int = 1, most: float = math.inf, unique: bool = False) -> Kind:
    """A list of `least` to `most` values of a kind."""

    def check(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise refuse(value, "a list" + (f", such as {example}" if example else ""))
        if not least <= len(value) <= most:
            got = f"got {len(value)} entries; allowed: 1 to {most}" if value else "got an empty list; allowed: at least one entry"
            raise ValueError(got)
        return list(check_each((i, kind, item) for i, item in enumerate(value)).values())

    def schema(defs: Schema) -> Schema:
        limits = ({"maxItems": most} if most < math.inf else {}) | ({"uniqueItems": True} if unique else {})
        return {"type": "array", "items": kind.schema(defs), "minItems": least, **limits}

    return Kind(check, schema)


def by_form(value: Kind, items: Kind | None = None, mapping: Kind | None = None) -> Kind:
    """`items` for a list, `mapping` for a mapping, `value` for anything else."""

    def check(given: Any) -> Any:
        kind = items if isinstance(given, list) else mapping if isinstance(given, dict) else None
        return (kind or value).check(given)

    return Kind(check, lambda defs: {"anyOf": [kind.schema(defs) for kind in (value, items, mapping) if kind]})


def mapping(kinds: Mapping[str, Kind], other: Kind | None = None, pattern: str = "", required: Iterable[str] = (), title: str = "") -> Kind:
    """A mapping of known keys, each of its kind. Further keys are of the kind `other`: all that match `pattern`, none without `other`.

    Its check raises Wrong with all unknown and missing keys and all wrong values.
    """

    def never(message: str) -> Kind:
        def check(value: Any) -> Any:
            raise ValueError(message)

        return Kind(check, dict)

    def kind(name: str) -> Kind:
        if name in kinds:
            return kinds[name]
        if other and re.search(pattern, name):
            return other
        return never(f"is no known key{suggest(name, kinds)}; allowed: {', '.join(kinds)}")

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise refuse(value, "a mapping")
        absent = [(name, never("is missing; give it"), None) for name in required if name not in value]
        return check_each([(name, kind(name), item) for name, item in value.items()] + absent)

    def schema(defs: Schema) -> Schema:
        properties = {name: kind.schema(defs) for name, kind in kinds.items()}
        found = {"description": title} if title else {}
        found |= {"type": "object", "properties": properties, "additionalProperties": other.schema(defs) if other else False}
        if other and pattern:
            found |= {"patternProperties": {pattern: found["additionalProperties"]}, "additionalProperties": False}
        return found | ({"required": list(required)} if required else {})

    return Kind(check, schema)


def described(kind: Kind, description: str, default: Any = None) -> Kind:
    """The kind, with a description and a default in its schema."""
    about = {"description": description} | ({} if default is None else {"default": default})
    return Kind(kind.check, lambda defs: kind.schema(defs) | about)


def key(kind: Kind | None, description: str, default: Any = MISSING, alias: str | None = None) -> Any:
    """A field of a section; `alias` is its key in the file where that is no name of a field. A key without default must be given."""
    metadata = {"kind": kind, "description": description, "alias": alias}
    return field(default_factory=default, metadata=metadata) if callable(default) else field(default=default, metadata=metadata)


def section(cls: type, **kinds: Kind) -> Kind:
    """A mapping with a key for every field of the dataclass `cls`, of which it becomes an instance.

    `kinds` are those of fields that were declared without one. What __post_init__ raises is a mistake of the whole section.
    """
    declared = {f.metadata["alias"] or f.name: f for f in fields(cls)}

    def kind(f: Any) -> Kind:
        default = f.default if isinstance(f.default, (bool, int, float, str)) else None
        return described(kinds.get(f.name) or f.metadata["kind"], f.metadata["description"], default)

    required = [name for name, f in declared.items() if f.default is MISSING and f.default_factory is MISSING]
    title = (cls.__doc__ or "").partition("\n")[0]
    keys = mapping({name: kind(f) for name, f in declared.items()}, required=required, title=title)
    return keys.then(lambda values: cls(**{declared[name].name: value for name, value in values.items()})).named(cls.__name__)
