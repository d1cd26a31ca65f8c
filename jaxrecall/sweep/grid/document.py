"""A YAML file as plain data, with the place where each value was written: a line of the file, or a `--set`.

Numbers may be written as 1e5, 1E-3 and 1_000 (YAML 1.1 reads the first two as text). yes and no stay text. A repeated key is
an error. Tags that would build objects are refused. Anchors cannot unfold without bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ...errors import GridError

Location = tuple[str | int, ...]
"""The path of a value in a document: keys of mappings and indices of lists, from the top."""

MAX_FILE_BYTES, MAX_VALUES, MAX_DIGITS = 16 * 2**20, 500_000, 400

_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
_DIGITS = r"[0-9]+(?:_[0-9]+)*"


class _Loader(yaml.SafeLoader):
    pass


_Loader.yaml_implicit_resolvers = {}
for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", rf"[-+]?(?:{_DIGITS}|0x[0-9a-fA-F]+)", "-+0123456789"),
    ("float", rf"[-+]?(?:(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][-+]?[0-9]+)?|\.inf|\.nan)", "-+.0123456789"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"^(?:{_pattern})$"), list(_first))


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"more than {MAX_DIGITS} digits")
    return int(text, 16 if "x" in text else 10)


_SCALARS = {
    "null": lambda text: None,
    "bool": lambda text: text.lower() == "true",
    "int": _whole,
    "float": lambda text: float(text.replace(".inf", "inf").replace(".nan", "nan")),
    "str": str,
}


@dataclass
class Document:
    """`data` is what the file says with the `--set` values in place; `errors` holds the lines of the errors found so far."""

    path: str
    data: dict[str, Any]
    origins: dict[Location, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def origin(self, location: Location) -> str:
        """ "grid.yaml:7" or "--set base.V=-3": where `location`, or the nearest one around it, was written."""
        while location and location not in self.origins:
            location = location[:-1]
        return self.origins[location] if location else self.path

    def line(self, location: Location, message: str) -> str:
        """One line of a GridError: where it was written, the dotted location, what is wrong."""
        return ": ".join(part for part in (self.origin(location), dotted(location), message) if part)


def dotted(location: Location) -> str:
    """ "blocks.0.axes.d"."""
    return ".".join(map(str, location))


def read_document(path: str | Path, sets: Sequence[str] = ()) -> Document:
    """The mapping in the YAML file `path`, with each `--set` text ("base.V=512", later ones win) in place.

    Raises GridError: unreadable, not YAML, no mapping at the top. A repeated key, or a `--set` that fits nowhere, becomes a
    line in `errors`, so that it is reported together with later errors.
    """
    document = Document(str(path), {})
    reader = _Reader(document, lambda mark: f"{document.path}:{mark.line + 1}")
    data = reader.read(_text(document.path), ())
    if not isinstance(data, dict):
        what = "an empty file" if data is None else f"a {'list' if isinstance(data, list) else 'single value'}"
        raise GridError(f"{document.path}: got {what}; allowed: a mapping such as base: {{V: 512, N: 4096, d: 64, L: 16}}")
    document.data = data
    for text in sets:
        try:
            _set(document, text)
        except GridError as error:
            document.errors += error.lines
    return document


def _text(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise GridError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise GridError(f"{path}: is not UTF-8 text; allowed: a YAML file") from None
    except ValueError as error:
        raise GridError(f"{path!r}: cannot be read: {error}") from None
    if len(content) > MAX_FILE_BYTES:
        raise GridError(f"{path}: is too large; allowed: up to {MAX_FILE_BYTES} bytes")
    return text


class _Reader:
    """Parses YAML text into plain data, and notes the origin of each value."""

    def __init__(self, document: Document, origin: Callable[[yaml.Mark], str]):
        self.document, self.origin = document, origin

    def read(self, text: str, location: Location) -> Any:
        try:
            loader = _Loader(text)
            try:
                node = loader.get_single_node()
            finally:
                loader.dispose()
            if node is None:
                return None
            self._count(node, {})
            return self._build(node, location)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            about = ", ".join(part for part in (error.context, error.problem) if part)
            raise GridError(f"{self.origin(mark) if mark else self.document.path}: is not valid YAML: {about}") from None
        except yaml.YAMLError as error:
            raise GridError(f"{self.document.path}: is not valid YAML: {' '.join(str(error).split())}") from None
        except RecursionError:
            raise GridError(f"{self.document.path}: is nested too deeply") from None

    def _count(self, node: yaml.Node, counts: dict[yaml.Node, int]) -> int:
        """Values in `node` with its anchors unfolded; `counts` holds those of finished nodes, and 0 for open ones."""
        if node not in counts:
            counts[node] = 0
            counts[node] = 1 + sum(self._count(child, counts) for child in _children(node))
            if counts[node] > MAX_VALUES:
                raise GridError(f"{self.origin(node.start_mark)}: holds more than {MAX_VALUES} values with its anchors unfolded")
        elif counts[node] == 0:
            raise GridError(f"{self.origin(node.start_mark)}: is an anchor that holds itself")
        return counts[node]

    def _build(self, node: yaml.Node, location: Location) -> Any:
        tag = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and tag == "map":
            return self._mapping(node, location)
        if isinstance(node, yaml.SequenceNode) and tag == "seq":
            items = []
            for i, item in enumerate(node.value):
                self.document.origins[(*location, i)] = self.origin(item.start_mark)
                items.append(self._build(item, (*location, i)))
            return items
        try:
            return _SCALARS[tag](node.value)
        except (KeyError, ValueError):
            shown = f"{node.value[:40]!r} as {tag}" if tag in _SCALARS else f"the tag {node.tag}"
            raise GridError(f"{self.origin(node.start_mark)}: got {shown}; allowed: plain numbers, text, lists, mappings") from None

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                data = {**self._merged(value, location), **data}
        first: dict[str, str] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                continue
            origin = self.origin(key.start_mark)
            if not isinstance(key, yaml.ScalarNode):
                raise GridError(f"{origin}: got a list or mapping as a key; allowed: names")
            name = key.value
            if name in first:
                self.document.errors.append(f"{origin}: {dotted((*location, name))}: is given twice, first at {first[name]}")
                continue
            first[name] = self.document.origins[(*location, name)] = origin
            data[name] = self._build(value, (*location, name))
        return data

    def _merged(self, node: yaml.Node, location: Location) -> dict[str, Any]:
        """What `<<: *a` or `<<: [*a, *b]` brings; earlier mappings win."""
        data: dict[str, Any] = {}
        for other in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            extra = self._build(other, location)
            if not isinstance(extra, dict):
                raise GridError(f"{self.origin(other.start_mark)}: got {extra!r} after <<; allowed: mappings")
            data = {**extra, **data}
        return data


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        yield from (value for _, value in node.value)
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _set(document: Document, text: str) -> None:
    """Writes one `--set` text, "blocks.0.axes.d=[8, 16]", into the data; raises GridError."""
    shown = f"--set {text if len(text) <= 80 else text[:77] + '...'}"
    path, equals, value = text.partition("=")
    parts = [part.strip() for part in path.split(".")]
    if not equals or not all(parts):
        raise GridError(f"{shown}: is malformed; allowed: KEY=VALUE such as base.V=512 or blocks.0.axes.d=[8,16]")
    inside: Any = document.data
    location: Location = ()
    for i, part in enumerate(parts):
        about = dotted(location) or "the file"
        if isinstance(inside, list):
            if not part.isdecimal() or len(part) > 9 or int(part) >= len(inside):
                allowed = f"0 to {len(inside) - 1}" if inside else "none, the list is empty"
                raise GridError(f"{shown}: got {part[:40]!r} in {about}, a list; allowed: {allowed}, or the whole of {about} at once")
            step: Any = int(part)
        elif isinstance(inside, dict):
            step = part
        else:
            raise GridError(f"{shown}: {about} is {inside!r}, not a mapping; allowed: {about}=VALUE")
        location = (*location, step)
        if i + 1 < len(parts):
            present = inside[step] if isinstance(inside, list) else inside.get(step)
            if present is None:
                document.origins[location] = shown
                present = inside[step] = [{}] if location == ("blocks",) and parts[i + 1] == "0" else {}
            inside = present
        else:
            for stale in [other for other in document.origins if other[: len(location)] == location]:
                del document.origins[stale]
            inside[step] = _Reader(document, lambda mark: shown).read(value, location)
            document.origins[location] = shown
