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


Mistakes = list[tuple[Location, str]]
"""Locations, and what is wrong there."""

WRONG: Any = object()
"""In place of a value that is wrong, so that the rest of the file is still checked."""


class Kind(NamedTuple):
    """`read` is given a value, its location and the mistakes found so far, to which it adds, and returns the value as the grid uses it.

    `schema` is given the $defs and returns the JSON Schema.
    """

    read: Callable[[Any, Location, Mistakes], Any]
    schema: Callable[[Schema], Schema]

    def then(self, convert: Callable[[Any], Any]) -> Kind:
        """This kind, with its right values passed through `convert`, whose ValueError is a mistake."""

        def read(value: Any, at: Location, mistakes: Mistakes) -> Any:
            n_before = len(mistakes)
            value = self.read(value, at, mistakes)
            if len(mistakes) > n_before:
                return value
            try:
                return convert(value)
            except ValueError as error:
                mistakes.append((at, str(error)))
                return WRONG

        return Kind(read, self.schema)

    def named(self, name: str) -> Kind:
        """This kind, with its schema written once, under $defs."""

        def schema(defs: Schema) -> Schema:
            if name not in defs:
                defs[name] = {}  # holds the place, so that the order is that of the file
                defs[name] |= self.schema(defs)
            return {"$ref": f"#/$defs/{name}"}

        return Kind(self.read, schema)


def leaf(convert: Callable[[Any], Any], schema: Callable[[Schema], Schema]) -> Kind:
    """The values that `convert` takes, as it returns them."""
    return Kind(lambda value, at, mistakes: value, schema).then(convert)


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

    return leaf(check, lambda defs: dict(schema))


def whole(low: int, high: int, allowed: str = "") -> Kind:
    """Whole numbers from low to high; 1e5 is one, true is not. A refusal shows `allowed`, or the limits."""
    schema = {"type": "integer", "minimum": low, "maximum": high}
    allowed = allowed or f"whole numbers from {low} to {high}"
    return kind_of(lambda v: is_number(v) and low <= v <= high and v == int(v), allowed, schema).then(int)


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

    def read(value: Any, at: Location, mistakes: Mistakes) -> Any:
        if not isinstance(value, list):
            message = str(refuse(value, "a list" + (f", such as {example}" if example else "")))
        elif not least <= len(value) <= most:
            message = f"got {len(value)} entries; allowed: 1 to {most}" if value else "got an empty list; allowed: at least one entry"
        else:
            return [kind.read(item, (*at, i), mistakes) for i, item in enumerate(value)]
        mistakes.append((at, message))
        return WRONG

    def schema(defs: Schema) -> Schema:
        limits = ({"maxItems": most} if most < math.inf else {}) | ({"uniqueItems": True} if unique else {})
        return {"type": "array", "items": kind.schema(defs), "minItems": least, **limits}

    return Kind(read, schema)


def by_form(value: Kind, items: Kind | None = None, mapping: Kind | None = None) -> Kind:
    """`items` for a list, `mapping` for a mapping, `value` for anything else."""

    def read(given: Any, at: Location, mistakes: Mistakes) -> Any:
        kind = items if isinstance(given, list) else mapping if isinstance(given, dict) else None
        return (kind or value).read(given, at, mistakes)

    return Kind(read, lambda defs: {"anyOf": [kind.schema(defs) for kind in (value, items, mapping) if kind]})


def mapping(kinds: Mapping[str, Kind], other: Kind | None = None, pattern: str = "", required: Iterable[str] = (), title: str = "") -> Kind:
    """A mapping of known keys, each of its kind. Further keys are of the kind `other`: all that match `pattern`, none without `other`.

    Where a value is wrong, the others are still read.
    """

    def read(value: Any, at: Location, mistakes: Mistakes) -> Any:
        if not isinstance(value, dict):
            mistakes.append((at, str(refuse(value, "a mapping"))))
            return WRONG
        values = {}
        for name, item in value.items():
            if kind := kinds.get(name) or (other if re.search(pattern, name) else None):
                values[name] = kind.read(item, (*at, name), mistakes)
            else:
                mistakes.append(((*at, name), f"is no known key{suggest(name, kinds)}; allowed: {', '.join(kinds)}"))
        mistakes += [((*at, name), "is missing; give it") for name in required if name not in value]
        return values

    def schema(defs: Schema) -> Schema:
        properties = {name: kind.schema(defs) for name, kind in kinds.items()}
        found = {"description": title} if title else {}
        found |= {"type": "object", "properties": properties, "additionalProperties": other.schema(defs) if other else False}
        if other and pattern:
            found |= {"patternProperties": {pattern: found["additionalProperties"]}, "additionalProperties": False}
        return found | ({"required": list(required)} if required else {})

    return Kind(read, schema)


def described(kind: Kind, description: str, default: Any = None) -> Kind:
    """The kind, with a description and a default in its schema."""
    about = {"description": description} | ({} if default is None else {"default": default})
    return Kind(kind.read, lambda defs: kind.schema(defs) | about)


def key(kind: Kind | None, description: str, default: Any = MISSING, alias: str | None = None) -> Any:
    """A field of a section; `alias` is its key in the file where that is no name of a field. A key without default must be given."""
    metadata = {"kind": kind, "description": description, "alias": alias}
    return field(default_factory=default, metadata=metadata) if callable(default) else field(default=default, metadata=metadata)


def section(cls: type, **kinds: Kind) -> Kind:
    """A mapping with a key for every field of the dataclass `cls`, of which it becomes an instance.

    `kinds` are those of fields that were declared without one. Wrong values are replaced by the defaults of their fields. What
    __post_init__ raises is a mistake of the whole section.
    """
    declared = {f.metadata["alias"] or f.name: f for f in fields(cls)}

    def kind(f: Any) -> Kind:
        default = f.default if isinstance(f.default, (bool, int, float, str)) else None
        return described(kinds.get(f.name) or f.metadata["kind"], f.metadata["description"], default)

    required = [name for name, f in declared.items() if f.default is MISSING and f.default_factory is MISSING]
    title = (cls.__doc__ or "").partition("\n")[0]
    keys = mapping({name: kind(f) for name, f in declared.items()}, required=required, title=title)

    def read(value: Any, at: Location, mistakes: Mistakes) -> Any:
        n_before = len(mistakes)
        values = keys.read(value, at, mistakes)
        given = {} if values is WRONG else {name: each for name, each in values.items() if each is not WRONG}
        if any(name not in given for name in required):
            return WRONG
        try:
            return cls(**{declared[name].name: each for name, each in given.items()})
        except ValueError as error:
            mistakes += [(at, str(error))] if len(mistakes) == n_before else []
            return WRONG

    return Kind(read, keys.schema).named(cls.__name__)
