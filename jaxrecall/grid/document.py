"""A YAML file as plain data that remembers where each value came from: a line of the file, or a `--set`. No JAX here.

Numbers may come as 1e5, 1E-3 and 1_000 (YAML 1.1 reads the first two as text), yes and no stay text, a repeated key is
an error, tags that would build objects are refused, and anchors cannot unfold without bound.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..errors import GridError

Key = tuple[str | int, ...]

MAX_FILE_BYTES, MAX_VALUES = 16 * 2**20, 500_000

_TAG = "tag:yaml.org,2002:"
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

_SCALARS = {
    "null": lambda text: None,
    "bool": lambda text: text.lower() == "true",
    "int": lambda text: int(text, 16 if "x" in text else 10),
    "float": lambda text: float(text.replace(".inf", "inf").replace(".nan", "nan")),
    "str": str,
}


@dataclass
class Document:
    """`data` is what the file says with the `--set` values in place; `lines` holds the errors so far."""

    path: str
    data: dict[str, Any]
    origins: dict[Key, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def origin(self, key: Key) -> str:
        """ "grid.yaml:7" or "--set base.V=-3": where `key`, or the nearest key around it, was written."""
        while key and key not in self.origins:
            key = key[:-1]
        return self.origins[key] if key else self.path

    def line(self, key: Key, message: str) -> str:
        """One line of a GridError: where, which key, what is wrong with it."""
        return ": ".join(part for part in (self.origin(key), ".".join(map(str, key)), message) if part)


def read_document(path: Any, sets: Sequence[str] = ()) -> Document:
    """The mapping in the YAML file `path`, with each `--set` text ("base.V=512", later ones win) in place.

    Raises GridError: unreadable, no YAML, no mapping at the top. A repeated key, or a `--set` that has no place, is a line
    in `lines`, so that other errors can be told with it.
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
            _put(document, text)
        except GridError as error:
            document.lines += error.lines
    return document


def _text(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise GridError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise GridError(f"{path}: is no UTF-8 text; allowed: a YAML file") from None
    except ValueError as error:
        raise GridError(f"{path!r}: cannot be read: {error}") from None
    if len(content) > MAX_FILE_BYTES:
        raise GridError(f"{path}: is too large; allowed: up to {MAX_FILE_BYTES} bytes")
    return text


class _Reader:
    """Composes nodes and builds plain data from them, noting the origin of each key."""

    def __init__(self, document: Document, origin: Any):
        self.document, self.origin, self.count = document, origin, 0

    def read(self, text: str, key: Key) -> Any:
        try:
            loader = _Loader(text)
            try:
                node = loader.get_single_node()
            finally:
                loader.dispose()
            return None if node is None else self._build(node, key, ())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            about = ", ".join(part for part in (error.context, error.problem) if part)
            raise GridError(f"{self.origin(mark) if mark else self.document.path}: is no YAML: {about}") from None
        except yaml.YAMLError as error:
            raise GridError(f"{self.document.path}: is no YAML: {' '.join(str(error).split())}") from None
        except RecursionError:
            raise GridError(f"{self.document.path}: is nested too deeply") from None

    def _build(self, node: yaml.Node, key: Key, parents: tuple[int, ...]) -> Any:
        self.count += 1
        if self.count > MAX_VALUES:
            raise GridError(f"{self.origin(node.start_mark)}: holds more than {MAX_VALUES} values with its anchors unfolded")
        if id(node) in parents:
            raise GridError(f"{self.origin(node.start_mark)}: is an anchor that holds itself")
        parents = (*parents, id(node))
        tag = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and tag == "map":
            return self._mapping(node, key, parents)
        if isinstance(node, yaml.SequenceNode) and tag == "seq":
            items = []
            for i, item in enumerate(node.value):
                self.document.origins[(*key, i)] = self.origin(item.start_mark)
                items.append(self._build(item, (*key, i), parents))
            return items
        try:
            return _SCALARS[tag](node.value)
        except (KeyError, ValueError):
            shown = f"{node.value[:40]!r} as {tag}" if tag in _SCALARS else f"the tag {node.tag}"
            raise GridError(f"{self.origin(node.start_mark)}: got {shown}; allowed: plain numbers, text, lists, mappings") from None

    def _mapping(self, node: yaml.MappingNode, key: Key, parents: tuple[int, ...]) -> dict[str, Any]:
        data: dict[str, Any] = {}
        first: dict[str, str] = {}
        own: list[tuple[yaml.Node, yaml.Node]] = []
        for name_node, value_node in node.value:
            if name_node.tag != _TAG + "merge":
                own.append((name_node, value_node))
                continue
            for other in value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]:
                extra = self._build(other, key, parents)
                if not isinstance(extra, dict):
                    raise GridError(f"{self.origin(other.start_mark)}: got {extra!r} after <<; allowed: mappings")
                data = {**extra, **data}
        for name_node, value_node in own:
            where = self.origin(name_node.start_mark)
            if not isinstance(name_node, yaml.ScalarNode):
                raise GridError(f"{where}: got a list or mapping as a key; allowed: names")
            name = name_node.value
            if name in first:
                dotted = ".".join(map(str, (*key, name)))
                self.document.lines.append(f"{where}: {dotted}: is given twice, first at {first[name]}")
                continue
            first[name] = where
            self.document.origins[(*key, name)] = where
            data[name] = self._build(value_node, (*key, name), parents)
        return data


def _put(document: Document, text: str) -> None:
    """Writes one `--set` text, "blocks.0.axes.d=[8, 16]", into the data; raises GridError."""
    shown = f"--set {text if len(text) <= 80 else text[:77] + '...'}"
    dotted, equals, value = text.partition("=")
    parts = [part.strip() for part in dotted.split(".")]
    if not equals or not all(parts):
        raise GridError(f"{shown}: is malformed; allowed: KEY=VALUE such as base.V=512 or blocks.0.axes.d=[8,16]")
    inside: Any = document.data
    key: Key = ()
    for i, part in enumerate(parts):
        about = ".".join(map(str, key)) or "the file"
        if isinstance(inside, list):
            if not part.isdecimal() or int(part) >= len(inside):
                allowed = f"0 to {len(inside) - 1}" if inside else "none, the list is empty"
                raise GridError(f"{shown}: got {part!r} in {about}, a list; allowed: {allowed}, or the whole of {about} at once")
            step: Any = int(part)
        elif isinstance(inside, dict):
            step = part
        else:
            raise GridError(f"{shown}: {about} is {inside!r}, not a mapping; allowed: {about}=VALUE")
        key = (*key, step)
        if i + 1 < len(parts):
            present = inside[step] if isinstance(inside, list) else inside.get(step)
            if present is None:
                document.origins[key] = shown
                present = inside[step] = [{}] if key == ("blocks",) and parts[i + 1] == "0" else {}
            inside = present
        else:
            for stale in [k for k in document.origins if k[: len(key)] == key]:
                del document.origins[stale]
            inside[step] = _Reader(document, lambda mark: shown).read(value, key)
            document.origins[key] = shown
