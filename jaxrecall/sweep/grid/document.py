"""A grid file as plain data: YAML with the place where each value was written, and its
check by a JSON Schema.

A place is a line of the file, or a `--set`. Numbers may be written as 1e5, 1E-3 and
1_000 (YAML 1.1 reads the first two as text). yes and no stay text. A repeated key is an
error. Tags that would build objects are refused. Anchors cannot unfold without bound.

Of JSON Schema, draft 2020-12, `Checker` knows the keywords that schema.json uses.
`errorMessage` says what is allowed, where limits alone do not. Every mistake is noted
with where it is.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import yaml

from ...errors import GridError, shown, suggest
from ...model.point import LAW_FIELDS

Location = tuple[str | int, ...]
"""The path of a value in a document: keys of mappings and indices of lists, from the
top.
"""

# data as YAML gives them: null, true, a number, text, a list or a mapping of such
Plain = Any
Schema = dict[str, Plain]

MAX_FILE_BYTES, MAX_VALUES, MAX_DEPTH = 16 * 2**20, 500_000, 100

_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_DIGITS = "[0-9]+(?:_[0-9]+)*"
_OF_LAW = re.compile(rf"\b({'|'.join(LAW_FIELDS)})\.(?=[^.\d])")
"""In the path of a `--set`: the name of a law and that of its parameter, as in
embedding.rho, are one key.
"""

_INTEGER = re.compile(rf"[-+]?(?:{_DIGITS}|0x[0-9a-fA-F]+)")
_FLOAT = re.compile(
    rf"[-+]?(?:(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][-+]?[0-9]+)?|\.inf|\.nan)"
)


def _scalar(text: str) -> Plain:
    """The value of text without quotes; raises ValueError for a number with more digits
    than Python reads.
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
        """No tag for what is written without one."""
        return ""


@dataclass
class Document:
    """`data` is what the file says with the `--set` values in place.

    `errors` holds the lines of the errors found so far.
    """

    path: str
    data: dict[str, Plain]
    origins: dict[Location, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def origin(self, location: Location) -> str:
        """Where `location`, or the nearest one around it, was written.

        That is "grid.yaml:7" or "--set base.V=-3".
        """
        while location and location not in self.origins:
            location = location[:-1]
        return self.origins[location] if location else self.path

    def line(self, location: Location, message: str) -> str:
        """One line of a GridError: where it was written, the dotted location, what is
        wrong.
        """
        return ": ".join(
            part for part in (self.origin(location), dotted(location), message) if part
        )


def dotted(location: Location) -> str:
    """ "blocks.0.axes.d"."""
    return ".".join(map(str, location))


def read_document(path: str | Path, sets: Sequence[str] = ()) -> Document:
    """The mapping in the YAML file `path`, with each `--set` text ("base.V=512", later
    ones win) in place.

    In a `--set`, the name of a law and that of its parameter are one key, as in
    base.embedding.rho. Raises GridError: unreadable, not YAML, no mapping at the top. A
    repeated key, or a `--set` that fits nowhere, becomes a line in `errors`, so that it
    is reported together with later errors.
    """
    document = Document(str(path), {})
    reader = _Reader(document, lambda mark: f"{document.path}:{mark.line + 1}")
    data = reader.read(_text(document.path), ())
    if not isinstance(data, dict):
        what = (
            "an empty file"
            if data is None
            else f"a {'list' if isinstance(data, list) else 'single value'}"
        )
        raise GridError(
            f"{document.path}: got {what}; allowed: a mapping such as base: {{V: 512,"
            " N: 4096, d: 64, L: 16}"
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
    except (
        OSError,
        ValueError,
    ) as error:  # a path that holds a null character is a ValueError
        raise GridError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    if len(content) > MAX_FILE_BYTES:
        raise GridError(f"{path}: is too large; allowed: up to {MAX_FILE_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise GridError(f"{path}: is not UTF-8 text; allowed: a YAML file") from None


class _Reader:
    """Parses YAML text into plain data, and notes the origin of each value.

    An anchor is read again wherever it is used.
    """

    def __init__(self, document: Document, origin: Callable[[yaml.Mark], str]):
        self.document, self.origin, self.n_values = document, origin, 0

    def read(self, text: str, location: Location) -> Plain:
        """The data in `text`, which stands at `location`; raises GridError."""
        try:
            node = yaml.compose(text, _Loader)
            return None if node is None else self._build(node, location)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None) or getattr(
                error, "context_mark", None
            )
            about = ", ".join(
                said
                for name in ("context", "problem")
                if (said := getattr(error, name, None))
            )
            place = self.origin(mark) if mark else self.document.path
            raise GridError(
                f"{place}: is not valid YAML: {about or ' '.join(str(error).split())}"
            ) from None
        except RecursionError:
            raise GridError(f"{self.document.path}: is nested too deeply") from None

    def _build(self, node: yaml.Node, location: Location) -> Plain:
        self.n_values += 1
        if self.n_values > MAX_VALUES or len(location) > MAX_DEPTH:
            allowed = f"up to {MAX_VALUES} values, nested up to {MAX_DEPTH} deep"
            raise GridError(
                f"{self.document.origin(location[:1])}: is too large with its anchors"
                f" unfolded; allowed: {allowed}"
            )
        if node.tag:
            raise GridError(
                f"{self.origin(node.start_mark)}: got the tag {node.tag}; allowed:"
                " plain numbers, text, lists, mappings"
            )
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for i, item in enumerate(node.value):
                self.document.origins[(*location, i)] = self.origin(item.start_mark)
                items.append(self._build(item, (*location, i)))
            return items
        try:
            return (
                _scalar(node.value)
                if isinstance(node, yaml.ScalarNode) and node.style is None
                else node.value
            )
        except ValueError:
            got = shown(node.value, 40)
            raise GridError(
                f"{self.origin(node.start_mark)}: got {got}; allowed: numbers of up to"
                " 4300 digits"
            ) from None

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Plain]:
        values: dict[str, Plain] = {}
        for key, value in node.value:
            origin, here = self.origin(key.start_mark), (*location, key.value)
            if not isinstance(key, yaml.ScalarNode):
                raise GridError(
                    f"{origin}: got a list or mapping as a key; allowed: names"
                )
            if key.value in values:
                self.document.errors.append(
                    f"{origin}: {dotted(here)}: is given twice, first at"
                    f" {self.document.origins[here]}"
                )
            else:
                self.document.origins[here] = origin
                values[key.value] = self._build(value, here)
        return values


def _set(document: Document, text: str) -> None:
    """Writes one `--set` text, "blocks.0.axes.d=[8, 16]", into the data; raises
    GridError.
    """
    about_set = f"--set {text}"
    path, equals, value = text.partition("=")
    keys = [
        key.strip().replace("\0", ".") for key in _OF_LAW.sub("\\1\0", path).split(".")
    ]
    if not equals or not all(keys):
        raise GridError(
            f"{about_set}: is malformed; allowed: KEY=VALUE such as base.V=512 or"
            " blocks.0.axes.d=[8,16]"
        )
    inside: Plain = document.data
    location: Location = ()
    for i, key in enumerate(keys):
        try:
            step: Plain = _step(inside, key, dotted(location) or "the file")
        except ValueError as error:
            raise GridError(f"{about_set}: {error}") from None
        location = (*location, step)
        if i == len(keys) - 1:
            document.origins = {
                place: line
                for place, line in document.origins.items()
                if place[: len(location)] != location
            }
            inside[step] = _Reader(document, lambda mark: about_set).read(
                value, location
            )
            document.origins[location] = about_set
        elif (inside[step] if isinstance(inside, list) else inside.get(step)) is None:
            inside[step] = (
                [{}] if location == ("blocks",) and keys[i + 1] == "0" else {}
            )
            document.origins[location] = about_set
        inside = inside[step]


def _step(inside: object, key: str, around: str) -> str | int:
    """The key or index in data that are a mapping or a list; raises ValueError."""
    if isinstance(inside, dict):
        return key
    if not isinstance(inside, list):
        raise ValueError(
            f"{around} is {shown(inside)}, not a mapping; allowed: {around}=VALUE"
        )
    if not key.isdecimal() or len(key) > 9 or int(key) >= len(inside):
        allowed = f"0 to {len(inside) - 1}" if inside else "none, the list is empty"
        raise ValueError(
            f"got {key!r} in {around}, a list; allowed: {allowed}, or the whole of"
            f" {around} at once"
        )
    return int(key)


WRONG: Plain = object()
"""In place of a value that is wrong, so that the rest of the file is still checked."""

_REFERENCE = "#/$defs/"


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is an int or a float; true is neither."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def show(value: Plain) -> str:
    """`value` as YAML writes it, cut when long."""
    text = (
        {None: "null", True: "true", False: "false"}.get(value)
        if isinstance(value, (bool, type(None)))
        else None
    )
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

    def __init__(
        self, schema: Schema, convert: Mapping[str, Callable[[Plain], object]]
    ):
        self.schema, self.convert = schema, convert
        self.mistakes: list[tuple[Location, str]] = []

    def read(self, value: Plain, schema: Schema, at: Location = ()) -> Plain:
        """The value, with the defaults of keys that are not given; WRONG if it is not
        allowed.

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
                value = _checked_scalar(value, schema)
            return (
                convert(value) if convert and len(self.mistakes) == n_before else value
            )
        except ValueError as error:
            self.mistakes.append((at, str(error)))
            return WRONG

    def _definition(self, schema: Schema) -> Schema:
        reference = schema.get("$ref")
        return (
            self.schema["$defs"][reference.removeprefix(_REFERENCE)]
            if reference
            else schema
        )

    def _alternative(self, value: object, schemas: list[Schema]) -> Schema:
        """That of lists for a list, of mappings for a mapping, the first one for all
        else.
        """
        form = {list: "array", dict: "object"}.get(type(value))
        return next(
            (each for each in schemas if self._definition(each).get("type") == form),
            schemas[0],
        )

    def _mapping(
        self, values: object, schema: Schema, at: Location
    ) -> dict[str, Plain]:
        if not isinstance(values, dict):
            raise refuse(values, "a mapping")
        if (
            not schema.get("minProperties", 0)
            <= len(values)
            <= schema.get("maxProperties", len(values))
        ):
            raise ValueError(
                f"got {', '.join(sorted(values)) or '{}'}; allowed:"
                f" {schema['errorMessage']}"
            )
        known, found = schema.get("properties", {}), {}
        for name, value in values.items():
            if kind := known.get(name) or _other(schema, name):
                found[name] = self.read(value, kind, (*at, name))
            else:
                self.mistakes.append(
                    (
                        (*at, name),
                        (
                            f"is no known key{suggest(name, known)}; allowed:"
                            f" {', '.join(known)}"
                        ),
                    )
                )
        for name in schema.get("required", ()):
            if name not in values:
                self.mistakes.append(((*at, name), "is missing; give it"))
        for name, kind in known.items():
            if name not in values and "default" in kind:
                found[name] = self.read(
                    copy.deepcopy(kind["default"]), kind, (*at, name)
                )
        return found

    def _list(self, values: object, schema: Schema, at: Location) -> list[Plain]:
        if not isinstance(values, list):
            raise refuse(values, schema.get("errorMessage", "a list"))
        if not values and schema.get("minItems"):
            raise ValueError("got an empty list; allowed: at least one entry")
        if len(values) > (most := schema.get("maxItems", len(values))):
            raise ValueError(f"got {len(values)} entries; allowed: 1 to {most}")
        n_before = len(self.mistakes)
        found = [
            self.read(value, schema["items"], (*at, i))
            for i, value in enumerate(values)
        ]
        if schema.get("uniqueItems") and len(self.mistakes) == n_before:
            _check_unique(found)
        return found


def _other(schema: Schema, name: str) -> Plain:
    """The schema of a key that is not listed; false for none."""
    matching = (
        kind
        for pattern, kind in schema.get("patternProperties", {}).items()
        if re.search(pattern, name)
    )
    return next(matching, schema.get("additionalProperties"))


def _check_unique(values: list[Plain]) -> None:
    if repeated := sorted(
        value for value, count in Counter(values).items() if count > 1
    ):
        more = f" and {len(repeated) - 10} others" if len(repeated) > 10 else ""
        raise ValueError(
            f"got {', '.join(map(str, repeated[:10]))}{more} more than once; allowed:"
            " each once"
        )


def _checked_scalar(value: Plain, schema: Schema) -> Plain:
    """A value that is no list and no mapping; 1e5 is a whole number, true is none."""
    if "not" in schema:
        raise ValueError(schema["errorMessage"])
    kind = schema.get("type")
    low = schema.get("minimum", schema.get("exclusiveMinimum", -1e308))
    high = schema.get("maximum", schema.get("exclusiveMaximum", 1e308))
    if "enum" in schema:
        right = any(
            type(value) is type(each) and value == each for each in schema["enum"]
        )
        allowed = ", ".join(map(show, schema["enum"])).replace("'", "")
    elif kind == "string":
        right = isinstance(value, str) and re.fullmatch(
            schema.get("pattern", "(?s).*"), value
        )
        allowed = "text"
    elif kind == "boolean":
        right, allowed = isinstance(value, bool), "true, false"
    else:
        open_ends = (schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum"))
        right = is_number(value) and low <= value <= high and value not in open_ends
        right = right and (kind == "number" or value == int(value))
        allowed = (
            f"whole numbers from {low} to {high}"
            if kind == "integer"
            else "finite numbers"
        )
    if not right:
        raise refuse(value, schema.get("errorMessage", allowed))
    return int(value) if kind == "integer" else value
