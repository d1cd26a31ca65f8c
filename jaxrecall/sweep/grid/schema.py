"""Checks plain data against a JSON Schema, and notes every mistake with where it is.

Of JSON Schema, draft 2020-12, `Checker` knows the keywords that schema.json uses.
`errorMessage` says what is allowed, where limits alone do not.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from ...errors import shown, suggest

Location = tuple[str | int, ...]
"""The path of a value in a document: keys of mappings and indices of lists, from the top."""

Plain = Any  # data as YAML gives them: null, true, a number, text, a list or a mapping of such
Schema = dict[str, Plain]

WRONG: Plain = object()
"""In place of a value that is wrong, so that the rest of the file is still checked."""

_REFERENCE = "#/$defs/"


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is an int or a float; true is neither."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def show(value: Plain) -> str:
    """`value` as YAML writes it, cut when long."""
    text = {None: "null", True: "true", False: "false"}.get(value) if isinstance(value, (bool, type(None))) else None
    return text or shown(value, 60)


def refuse(value: object, allowed: str) -> ValueError:
    """The error for a wrong value, with the value received and the values allowed."""
    return ValueError(f"got {show(value)}; allowed: {allowed}")


class Checker:
    """Reads data that a schema describes.

    `mistakes` are the locations of wrong values, and what is wrong there.

    Args:
        schema: a JSON Schema with its $defs.
        convert: by the name of a definition, what makes the value of the checked one.
            It may raise ValueError. Of a definition that is neither a list nor a
            mapping it makes all checks.
    """

    def __init__(self, schema: Schema, convert: Mapping[str, Callable[[Plain], object]]):
        self.schema, self.convert = schema, convert
        self.mistakes: list[tuple[Location, str]] = []

    def read(self, value: Plain, schema: Schema, at: Location = ()) -> Plain:
        """The value, with the defaults of keys that are not given; WRONG if it is not allowed.

        A schema with nothing but a description allows anything.
        """
        n_before = len(self.mistakes)
        convert = self.convert.get(schema.get("$ref", "").removeprefix(_REFERENCE))
        schema = self._definition(schema)
        try:
            if schema.get("type") == "object":
                value = self._mapping(value, schema, at)
            elif schema.get("type") == "array":
                value = self._list(value, schema, at)
            elif "type" not in schema and "anyOf" in schema:
                value = self.read(value, self._alternative(value, schema["anyOf"]), at)
            elif not convert and schema.keys() - {"description"}:
                value = _scalar(value, schema)
            return convert(value) if convert and len(self.mistakes) == n_before else value
        except ValueError as error:
            self.mistakes.append((at, str(error)))
            return WRONG

    def _definition(self, schema: Schema) -> Schema:
        reference = schema.get("$ref")
        return self.schema["$defs"][reference.removeprefix(_REFERENCE)] if reference else schema

    def _alternative(self, value: object, schemas: list[Schema]) -> Schema:
        """That of lists for a list, of mappings for a mapping, the first one for all else."""
        form = {list: "array", dict: "object"}.get(type(value))
        return next((each for each in schemas if self._definition(each).get("type") == form), schemas[0])

    def _mapping(self, values: object, schema: Schema, at: Location) -> dict[str, Plain]:
        if not isinstance(values, dict):
            raise refuse(values, "a mapping")
        if not schema.get("minProperties", 0) <= len(values) <= schema.get("maxProperties", len(values)):
            raise ValueError(f"got {', '.join(sorted(values)) or '{}'}; allowed: {schema['errorMessage']}")
        known, found = schema.get("properties", {}), {}
        for name, value in values.items():
            if kind := known.get(name) or _other(schema, name):
                found[name] = self.read(value, kind, (*at, name))
            else:
                self.mistakes.append(((*at, name), f"is no known key{suggest(name, known)}; allowed: {', '.join(known)}"))
        for name in schema.get("required", ()):
            if name not in values:
                self.mistakes.append(((*at, name), "is missing; give it"))
        for name, kind in known.items():
            if name not in values and "default" in kind:
                found[name] = self.read(copy.deepcopy(kind["default"]), kind, (*at, name))
        return found

    def _list(self, values: object, schema: Schema, at: Location) -> list[Plain]:
        if not isinstance(values, list):
            raise refuse(values, schema.get("errorMessage", "a list"))
        if not values and schema.get("minItems"):
            raise ValueError("got an empty list; allowed: at least one entry")
        if len(values) > (most := schema.get("maxItems", len(values))):
            raise ValueError(f"got {len(values)} entries; allowed: 1 to {most}")
        n_before = len(self.mistakes)
        found = [self.read(value, schema["items"], (*at, i)) for i, value in enumerate(values)]
        if schema.get("uniqueItems") and len(self.mistakes) == n_before:
            _check_unique(found)
        return found


def _other(schema: Schema, name: str) -> Plain:
    """The schema of a key that is not listed; false for none."""
    matching = (kind for pattern, kind in schema.get("patternProperties", {}).items() if re.search(pattern, name))
    return next(matching, schema.get("additionalProperties"))


def _check_unique(values: list[Plain]) -> None:
    if repeated := sorted(value for value, count in Counter(values).items() if count > 1):
        more = f" and {len(repeated) - 10} others" if len(repeated) > 10 else ""
        raise ValueError(f"got {', '.join(map(str, repeated[:10]))}{more} more than once; allowed: each once")


def _scalar(value: Plain, schema: Schema) -> Plain:
    """A value that is no list and no mapping; 1e5 is a whole number, true is none."""
    if "not" in schema:
        raise ValueError(schema["errorMessage"])
    kind = schema.get("type")
    low = schema.get("minimum", schema.get("exclusiveMinimum", -1e308))
    high = schema.get("maximum", schema.get("exclusiveMaximum", 1e308))
    if "enum" in schema:
        right = any(type(value) is type(each) and value == each for each in schema["enum"])
        allowed = ", ".join(map(show, schema["enum"])).replace("'", "")
    elif kind == "string":
        right = isinstance(value, str) and re.fullmatch(schema.get("pattern", "(?s).*"), value)
        allowed = "text"
    elif kind == "boolean":
        right, allowed = isinstance(value, bool), "true, false"
    else:
        open_ends = (schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum"))
        right = is_number(value) and low <= value <= high and value not in open_ends
        right = right and (kind == "number" or value == int(value))
        allowed = f"whole numbers from {low} to {high}" if kind == "integer" else "finite numbers"
    if not right:
        raise refuse(value, schema.get("errorMessage", allowed))
    return int(value) if kind == "integer" else value
