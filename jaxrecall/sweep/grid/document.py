"""Reads a grid file as plain data, records where each value was written, and checks the
data with a JSON Schema.

A value is written in a line of the file or in a `--set`. Numbers may be written as 1e5,
1E-3 and 1_000 (YAML 1.1 would read the first two as text). yes and no are text. A
repeated key is an error. Tags are refused. The limit on the number of values applies
after anchors are expanded.

`Checker` implements the keywords of JSON Schema (draft 2020-12) that schema.json uses.
The keyword `errorMessage` describes the allowed values where the limits do not describe
them fully. Every mistake is recorded with its location.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import yaml

from ...errors import GridError, shown, suggest
from ...model.point import LAW_FIELDS

Location = tuple[str | int, ...]
"""The path of a value in a document: the keys of mappings and the indices of lists that
lead from the top to the value.
"""

# data as in YAML: null, a bool, a number, text, a list or a mapping of such data
Plain = Any
NamedValues = dict[str, Plain]
"""A dict from the names of fields, helpers or keys of a grid file to values. None means
that a value is not given.
"""

Schema = NamedValues
"""A JSON Schema."""

MAX_FILE_BYTES, MAX_VALUES, MAX_DEPTH = 16 * 2**20, 500_000, 100
MAX_SIGNS = 100_000
"""The largest number of signs that end or begin a key or a value in a file. PyYAML
takes seconds to read as many.
"""


_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_DIGITS = "[0-9]+(?:_[0-9]+)*"
_OF_LAW = re.compile(rf"\b({'|'.join(LAW_FIELDS)})\.(?=[^.\d])")
"""A pattern that finds laws in the path of a `--set`. The name of a law and the name of
its parameter, as in embedding.rho, form one key.
"""

_INTEGER = re.compile(rf"[-+]?(?:{_DIGITS}|0x[0-9a-fA-F]+)")
_FLOAT = re.compile(
    rf"[-+]?(?:(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][-+]?[0-9]+)?|\.inf|\.nan)"
)


def scalar(text: str) -> Plain:
    """Returns the value of text that is written without quotes. Raises ValueError for a
    number that has more digits than Python accepts.
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text, 16 if "x" in text else 10)
    if _FLOAT.fullmatch(text):
        return float(text.replace(".inf", "inf").replace(".nan", "nan"))
    return text


class _Loader(yaml.BaseLoader):
    def resolve(self, kind: object, value: object, implicit: object) -> str:
        """Returns no tag for values that are written without a tag."""
        return ""


Mistake = tuple[Location, str]
"""The location of a mistake, and a message that describes it."""


@dataclass
class Document:
    """The contents of a grid file.

    `data` is the content of the file after the `--set` values are applied. `origins`
    contains the place of each value in the text. `errors` contains one line for each
    error found so far.
    """

    path: str
    data: NamedValues
    origins: dict[Location, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def origin(self, location: Location) -> str:
        """Returns the place of `location` in the text, such as "grid.yaml:7" or "--set
        base.V=-3". If the place is unknown, returns that of the nearest enclosing
        location.
        """
        while location and location not in self.origins:
            location = location[:-1]
        return self.origins.get(location, self.path)

    def forget(self, location: Location) -> None:
        """Drops the origins of `location` and of everything in it."""
        for inside in list(self.origins):
            if inside[: len(location)] == location:
                del self.origins[inside]

    def line(self, location: Location, message: str) -> str:
        """Returns one line of a GridError: the place in the text, the dotted location,
        and the message.
        """
        parts = (self.origin(location), dotted(location), message)
        return ": ".join(filter(None, parts))

    def refused(self, mistakes: Iterable[Mistake]) -> GridError:
        """Returns a GridError that lists the errors found so far and then these
        mistakes.
        """
        return GridError([*self.errors, *itertools.starmap(self.line, mistakes)])


def dotted(location: Location) -> str:
    """Returns the location as text, such as "blocks.0.axes.d"."""
    return ".".join(map(str, location))


def read_document(path: str | Path, sets: Sequence[str] = ()) -> Document:
    """Returns the document in the YAML file `path`, after each `--set` text is applied.
    An example of a `--set` text is "base.V=512". A later text overrides an earlier one.

    In a `--set`, the name of a law and the name of its parameter form one key, as in
    base.embedding.rho. If a key is repeated, or if a `--set` does not match the file, a
    line is added to `errors`. These errors are therefore reported together with later
    errors.

    Raises:
        GridError: the file cannot be read, is not YAML, or has no mapping at the top.
    """
    document = Document(os.path.expanduser(path), {})
    reader = _YamlReader(document, lambda mark: f"{document.path}:{mark.line + 1}")
    data = reader.read(_text(document.path), ())
    if not isinstance(data, dict):
        what = {type(None): "an empty file", list: "a list"}
        raise GridError(
            f"{document.path}: got {what.get(type(data), 'a single value')}; allowed: a"
            " mapping such as base: {V: 512, N: 4096, d: 64, L: 16}"
        )
    document.data = data
    for text in sets:
        try:
            _set(document, text)
        except GridError as error:
            document.errors += error.lines
    return document


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    # a path with a null character raises a ValueError
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise GridError(f"{path}: cannot be read: {why}") from None
    if len(content) > MAX_FILE_BYTES:
        raise GridError(f"{path}: is too large; allowed: up to {MAX_FILE_BYTES} bytes")
    n_signs = sum(map(content.count, (b",", b":", b"[", b"{", b"\n")))
    if n_signs > MAX_SIGNS:
        raise GridError(
            f"{path}: got {n_signs} lines and signs , : [ {{; allowed: up to"
            f" {MAX_SIGNS}, as with seeds: {{start: 0, count: 64}}"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise GridError(f"{path}: is not UTF-8 text; allowed: a YAML file") from None


class _YamlReader:
    """Parses YAML text into plain data, and records the origin of each value.

    The content of an anchor is read again wherever the anchor is used.
    """

    def __init__(self, document: Document, origin: Callable[[yaml.Mark], str]):
        self.document = document
        self.origin = origin
        self.n_values = 0

    def read(self, text: str, location: Location) -> Plain:
        """Returns the data in `text`, which is the value at `location`. Raises
        GridError.
        """
        try:
            node = yaml.compose(text, _Loader)
            if node is None:
                return None
            return self._value(node, location)
        except yaml.YAMLError as error:
            raise self._not_yaml(error) from None
        except RecursionError:
            raise GridError(f"{self.document.path}: is nested too deeply") from None

    def _not_yaml(self, error: yaml.YAMLError) -> GridError:
        known = vars(error)
        mark = known.get("problem_mark") or known.get("context_mark")
        place = self.origin(mark) if mark else self.document.path
        said = filter(None, (known.get("context"), known.get("problem")))
        about = ", ".join(said) or " ".join(str(error).split())
        return GridError(f"{place}: is not valid YAML: {about}")

    def _value(self, node: yaml.Node, location: Location) -> Plain:
        self.n_values += 1
        if self.n_values > MAX_VALUES or len(location) > MAX_DEPTH:
            raise GridError(
                f"{self.document.origin(location[:1])}: is too large with its anchors"
                f" unfolded; allowed: up to {MAX_VALUES} values, nested up to"
                f" {MAX_DEPTH} deep"
            )
        place = self.origin(node.start_mark)
        if node.tag:
            raise GridError(
                f"{place}: got the tag {node.tag}; allowed: plain numbers, text, lists,"
                " mappings"
            )
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            return self._list(node, location)
        if isinstance(node, yaml.ScalarNode) and node.style is not None:
            return node.value  # in quotes
        try:
            return scalar(node.value)
        except ValueError:
            raise GridError(
                f"{place}: got {shown(node.value, 40)}; allowed: numbers of up to 4300"
                " digits"
            ) from None

    def _list(self, node: yaml.SequenceNode, location: Location) -> list[Plain]:
        values = []
        for i, item in enumerate(node.value):
            here = (*location, i)
            self.document.origins[here] = self.origin(item.start_mark)
            values.append(self._value(item, here))
        return values

    def _mapping(self, node: yaml.MappingNode, location: Location) -> NamedValues:
        values = {}
        for key, value in node.value:
            origin = self.origin(key.start_mark)
            if not isinstance(key, yaml.ScalarNode):
                raise GridError(
                    f"{origin}: got a list or mapping as a key; allowed: names"
                )
            if key.value == "<<" and not key.style:
                raise GridError(
                    f"{origin}: got a merge key (<<); allowed: each key with its value,"
                    " which may be an alias, as in V: *v"
                )
            here = (*location, key.value)
            if key.value in values:
                self.document.errors.append(
                    f"{origin}: {dotted(here)}: is given twice, first at"
                    f" {self.document.origins[here]}"
                )
            else:
                self.document.origins[here] = origin
                values[key.value] = self._value(value, here)
        return values


def _set(document: Document, text: str) -> None:
    """Writes one `--set` text, such as "blocks.0.axes.d=[8,16]", into the data. Raises
    GridError.
    """
    origin = f"--set {text}"
    path, equals, value = text.partition("=")
    whole = _OF_LAW.sub("\\1\0", path)
    keys = [key.strip().replace("\0", ".") for key in whole.split(".")]
    # a shell variable that is not set leaves no value
    if not (equals and value.strip() and all(keys)):
        raise GridError(
            f"{origin}: is malformed; allowed: KEY=VALUE such as base.V=512,"
            " base.gamma=null or 'blocks.0.axes.d=[8,16]'"
        )
    if keys[0].startswith("x-"):
        raise GridError(
            f"{origin}: anchors are read before --set; allowed: the keys that have an"
            " alias of the anchor"
        )
    inside: Plain = document.data
    location: Location = ()
    for key, after in itertools.pairwise(keys):
        step: Plain = _step(inside, key, location, origin)
        location = (*location, step)
        if isinstance(inside, dict):
            inside.setdefault(step, None)
        if inside[step] is None:
            inside[step] = {}
            if location == ("blocks",) and after == "0":
                inside[step] = [{}]
            document.origins[location] = origin
        inside = inside[step]
    step = _step(inside, keys[-1], location, origin)
    location = (*location, step)
    document.forget(location)
    inside[step] = _YamlReader(document, lambda mark: origin).read(value, location)
    document.origins[location] = origin


def _step(inside: object, key: str, location: Location, origin: str) -> str | int:
    """Returns `key`, converted to an index if the value at `location` is a list. Raises
    GridError if the value cannot contain such a key or index.
    """
    if isinstance(inside, dict):
        return key
    around = dotted(location) or "the file"
    if not isinstance(inside, list):
        raise GridError(
            f"{origin}: {around} is {shown(inside)}, not a mapping; allowed:"
            f" {around}=VALUE"
        )
    if not key.isdecimal() or len(key) > 9 or int(key) >= len(inside):
        allowed = f"0 to {len(inside) - 1}" if inside else "none, the list is empty"
        raise GridError(
            f"{origin}: got {key!r} in {around}, a list; allowed: {allowed}, or the"
            f" whole of {around} at once"
        )
    return int(key)


WRONG: Plain = object()
"""A marker that replaces a wrong value, so that the rest of the file can still be
checked.
"""


def without(absent: Plain, values: Mapping[str, Plain]) -> NamedValues:
    """Returns the values that are not `absent`. `absent` is None or WRONG."""
    return {name: value for name, value in values.items() if value is not absent}


_REFERENCE = "#/$defs/"


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether the value is an int or a float. A bool does not count as an int."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def show(value: Plain) -> str:
    """Returns `value` as text in the notation of YAML. A long text is shortened."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return shown(value, 60)


def refuse(value: object, allowed: str) -> ValueError:
    """Returns the error for a wrong value. The message shows the wrong value and
    describes the allowed values.
    """
    return ValueError(f"got {show(value)}; allowed: {allowed}")


MANY = 12
"""The largest number of known keys that a message lists beside its suggestion."""


class Checker:
    """Reads data that a schema describes, and collects the mistakes in the data.

    Args:
        schema: a JSON Schema that includes its $defs.
        convert: a dict from the names of definitions to functions. Each function
            converts a checked value of its definition, and may raise ValueError. If the
            definition describes neither a list nor a mapping, the function also does
            all the checks.
    """

    def __init__(
        self, schema: Schema, convert: Mapping[str, Callable[[Plain], object]]
    ):
        self.schema, self.convert = schema, convert
        self.mistakes: list[Mistake] = []

    def read(self, value: Plain, schema: Schema, at: Location = ()) -> Plain:
        """Returns the value, in which missing keys have their defaults. Returns WRONG
        if the value is not allowed.

        A schema that contains only a description allows any value.
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
                value = _checked(value, schema)
            if convert and len(self.mistakes) == n_before:
                value = convert(value)
        except ValueError as error:
            self.mistakes.append((at, str(error)))
            return WRONG
        return value

    def _definition(self, schema: Schema) -> Schema:
        if "$ref" not in schema:
            return schema
        return self.schema["$defs"][schema["$ref"].removeprefix(_REFERENCE)]

    def _alternative(self, value: object, schemas: list[Schema]) -> Schema:
        """Returns the schema for lists if the value is a list, the schema for mappings
        if the value is a mapping, and otherwise the first schema.
        """
        form = {list: "array", dict: "object"}.get(type(value))
        for schema in schemas:
            if self._definition(schema).get("type") == form:
                return schema
        return schemas[0]

    def _mapping(self, values: object, schema: Schema, at: Location) -> NamedValues:
        if not isinstance(values, dict):
            raise refuse(values, "a mapping")
        fewest = schema.get("minProperties", 0)
        most = schema.get("maxProperties", len(values))
        if not fewest <= len(values) <= most:
            got = ", ".join(sorted(values)) or "{}"
            raise ValueError(f"got {got}; allowed: {schema['errorMessage']}")
        known, read = schema.get("properties", {}), {}
        for name, value in values.items():
            here = (*at, name)
            kind = known.get(name) or _other(schema, name)
            if kind:
                read[name] = self.read(value, kind, here)
            else:
                why = suggest(name, known)
                if name in self.schema["properties"]:
                    why = " here; it belongs beside blocks"
                if not why or len(known) <= MANY:
                    why += f"; allowed: {', '.join(known)}"
                self.mistakes.append((here, f"is no known key{why}"))
        for name in schema.get("required", ()):
            if name not in values:
                self.mistakes.append(((*at, name), "is missing; give it"))
        for name, kind in known.items():
            if name not in values and "default" in kind:
                read[name] = self.read(kind["default"], kind, (*at, name))
        return read

    def _list(self, values: object, schema: Schema, at: Location) -> list[Plain]:
        if not isinstance(values, list):
            raise refuse(values, schema.get("errorMessage", "a list"))
        if not values and schema.get("minItems"):
            raise ValueError("got an empty list; allowed: at least one entry")
        most = schema.get("maxItems", len(values))
        if len(values) > most:
            raise ValueError(f"got {len(values)} entries; allowed: 1 to {most}")
        n_before, items = len(self.mistakes), schema["items"]
        read = [self.read(value, items, (*at, i)) for i, value in enumerate(values)]
        if schema.get("uniqueItems") and len(self.mistakes) == n_before:
            _check_unique(read)
        return read


def _other(schema: Schema, name: str) -> Plain:
    """Returns the schema of a key that `properties` does not list. The result is False
    or None if such a key is not allowed.
    """
    for pattern, kind in schema.get("patternProperties", {}).items():
        if re.search(pattern, name):
            return kind
    return schema.get("additionalProperties")


def _check_unique(values: list[Plain]) -> None:
    counts = Counter(values)
    repeated = sorted(value for value in counts if counts[value] > 1)
    if repeated:
        got = ", ".join(map(str, repeated))
        raise ValueError(f"got {got} more than once; allowed: each once")


def _checked(value: Plain, schema: Schema) -> Plain:
    """Returns a value that is neither a list nor a mapping, after checking it.

    1e5 counts as a whole number, but true does not.
    """
    if "not" in schema:
        raise ValueError(schema["errorMessage"])
    kind = schema.get("type")
    if "enum" in schema:
        right = any(type(value) is type(one) and value == one for one in schema["enum"])
        allowed = ", ".join(map(show, schema["enum"])).replace("'", "")
    elif kind == "string":
        pattern = schema.get("pattern", "(?s).*")
        right = isinstance(value, str) and re.fullmatch(pattern, value)
        allowed = "text"
    elif kind == "boolean":
        right, allowed = isinstance(value, bool), "true, false"
    else:
        right, allowed = _is_in_range(value, schema)
    if not right:
        raise refuse(value, schema.get("errorMessage", allowed))
    return int(value) if kind == "integer" else value


def _is_in_range(value: Plain, schema: Schema) -> tuple[bool, str]:
    """Returns two values: whether the value is a number that the schema allows, and a
    text that describes the allowed numbers.
    """
    low = schema.get("minimum", schema.get("exclusiveMinimum", -1e308))
    high = schema.get("maximum", 1e308)
    is_open_end = value == schema.get("exclusiveMinimum")
    right = is_number(value) and low <= value <= high and not is_open_end
    if schema.get("type") == "number":
        return right, "finite numbers"
    return right and value == int(value), f"whole numbers from {low} to {high}"
