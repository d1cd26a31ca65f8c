"""A document as a checked grid file, or a line for everything that is wrong with its keys and literal values."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError

from ...errors import suggest
from .document import Document, Location
from .file import Base, Block, GridFile, Limits, RunOptions, Search, SeedRange
from .spacing import MAX_AXIS, Geometric, Range, Spaced, Spacing
from .values import show

_SECTIONS: dict[Location, type[BaseModel]] = {
    (): GridFile, ("base",): Base, ("seeds",): SeedRange, ("blocks", "*"): Block, ("search",): Search, ("limits",): Limits,
    ("run",): RunOptions,
}  # fmt: skip
_SPACINGS: dict[str | int, type[BaseModel]] = {"linspace": Spaced, "logspace": Geometric, "geom": Geometric, "range": Range}
_EXPECTED = {"model_type": "a mapping", "dict_type": "a mapping", "list_type": "a list"}


def check_file(document: Document) -> tuple[GridFile | None, list[str]]:
    """The checked file, or None and the lines of its errors."""
    try:
        return GridFile.model_validate(document.data), []
    except ValidationError as error:
        lines = []
        for entry in error.errors(include_url=False):
            location = _location(document.data, entry)
            lines.append(document.line(location, _message(location, entry)))
        return None, list(dict.fromkeys(lines))


def _location(data: Any, entry: Any) -> Location:
    """Where the error that pydantic reports as `entry` is: its `loc` without the names of the alternatives of a union."""
    location: Location = ()
    for part in entry["loc"]:
        if (isinstance(data, dict) and part in data) or (isinstance(data, list) and isinstance(part, int)):
            data, location = data[part], (*location, part)
    return (*location, entry["loc"][-1]) if entry["type"] == "missing" else location


def _message(location: Location, entry: Any) -> str:
    kind, value = entry["type"], entry["input"]
    if kind == "value_error":
        return str(entry["ctx"]["error"])
    if kind == "missing":
        return "is missing; give it"
    if kind == "extra_forbidden":
        return _unknown_key(location)
    if kind in ("too_short", "too_long"):
        return f"got {len(value)} entries; allowed: 1 to {MAX_AXIS}" if value else "got an empty list; allowed: at least one entry"
    if kind == "literal_error":
        return f"got {show(value)}; allowed: {entry['ctx']['expected']}"
    if kind == "list_type" and location[-1:] == ("where",):
        return f'got {show(value)}; allowed: a list, such as where: ["N >= d"]'
    return f"got {show(value)}; " + (f"allowed: {_EXPECTED[kind]}" if kind in _EXPECTED else entry["msg"])


def _unknown_key(location: Location) -> str:
    if location == ("base", "root_seed"):
        return "is not given here; allowed: one root_seed at the top of the file"
    around = tuple("*" if isinstance(part, int) else part for part in location[:-1])
    model = _SECTIONS.get(around) or _SPACINGS.get(around[-1], Spacing)
    allowed = [f.alias or name for name, f in model.model_fields.items()]
    return f"is no known key{suggest(str(location[-1]), allowed)}; allowed: {', '.join(allowed)}"
