"""The names that a grid file gives and uses; finds those that are unknown, unused, missing or given twice.

Works on the plain data, past values of a wrong type, so that these errors are reported together with those of the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...errors import suggest
from ...model.point import FIELDS
from .axes import axis_locations
from .document import Document, Location
from .expr import Expression, parse
from .fields import DEFAULTS, OTHER_RATE, REQUIRED, choice_names
from .values import is_number


def check_names(document: Document) -> list[str]:
    """A line for each wrong name."""
    base = _mapping(document.data.get("base"))
    given = {name for name, value in base.items() if value is not None}
    lines = _two_rates(document, ("base",), given)
    blocks = document.data.get("blocks", [{}])
    searched = "N" if "search" in document.data else None
    lines += [_searched(document, ("base", name)) for name in given if name == searched]
    missing: dict[str, list[Location]] = {name: [] for name in REQUIRED if name not in base and name != searched}
    for i, data in enumerate(blocks if isinstance(blocks, list) else []):
        if isinstance(data, dict):
            names = _BlockNames(document, ("blocks", i), data, searched)
            lines += names.lines(given, _texts([base]))
            for name, locations in missing.items():
                if name not in names.axes and name not in names.derive:
                    locations.append(names.location)
    for name, locations in missing.items():
        everywhere = isinstance(blocks, list) and len(locations) == len(blocks)
        for location in [()] if everywhere and locations else locations:
            legend = FIELDS[name].metadata["legend"]
            lines.append(document.line(location, f"{name} is given nowhere ({legend}); give it in base, axes or derive"))
    return lines


class _BlockNames:
    """The names that one grid block gives and uses."""

    def __init__(self, document: Document, location: Location, data: dict[str, Any], searched: str | None):
        self.document, self.location, self.data, self.searched = document, location, data, searched
        self.axis_list = list(axis_locations(data.get("axes"), (*location, "axes")))
        self.axes = dict(self.axis_list)
        self.derive = {name: _parsed(text, calls=True) for name, text in _mapping(data.get("derive")).items()}
        where = data.get("where")
        self.where = [_parsed(text, calls=False) for text in where] if isinstance(where, list) else []

    def lines(self, base: set[str], texts: set[str]) -> list[str]:
        """All errors; `base` are the names with a value in the base, `texts` the texts there."""
        return [*self._wrongly_given(), *self._unknown_in_derive(base), *self._unknown_in_where(texts), *self._unused()]

    def _wrongly_given(self) -> Iterator[str]:
        for i, (name, location) in enumerate(self.axis_list):
            if name in dict(self.axis_list[:i]):
                yield self.document.line(location, f"is an axis twice, also at {self.document.origin(self.axes[name])}")
        yield from _two_rates(self.document, self.location, {*self.axes, *self.derive})
        for name, location in [*self.axis_list, *((name, self._derive_at(name)) for name in self.derive)]:
            if name == "root_seed":
                yield self.document.line(location, "is not given here; allowed: one root_seed at the top of the file")
            if name == self.searched:
                yield _searched(self.document, location)

    def _unknown_in_derive(self, base: set[str]) -> Iterator[str]:
        known = {*DEFAULTS, *base, *self.axes} - {self.searched}
        for i, (name, expression) in enumerate(self.derive.items()):
            for used in sorted(expression.names - known) if expression else ():
                yield self.document.line(self._derive_at(name), f"uses {used}, {self._why_unknown(used, list(self.derive)[i:])}")
            known.add(name)

    def _unknown_in_where(self, texts: set[str]) -> Iterator[str]:
        known = {*FIELDS, *self.axes, *self.derive} - {self.searched}
        texts = texts | choice_names() | _texts([self.data.get("axes")]) | {t for e in self.derive.values() if e for t in e.strings}
        for i, line in enumerate(self.where):
            if line:
                location = (*self.location, "where", i)
                for used in sorted(line.names - known):
                    yield self.document.line(location, f"uses {used}, {self._why_unknown(used, [])}")
                for text in sorted(line.strings - texts):
                    yield self.document.line(location, f"holds {text!r}, which is no value of any field or helper{suggest(text, texts)}")

    def _why_unknown(self, name: str, later: list[str]) -> str:
        if name == self.searched:
            return "which search varies: a cell has none; allowed: the other fields"
        if name in later:
            return "which has no value yet; derive works from top to bottom"
        if name in FIELDS:
            return "which has no value before the point is made; give it in base, axes or an earlier derive"
        if name in choice_names():
            return f"which is a text; put it in quotes: '{name}'"
        return f"which is no field and no helper{suggest(name, [*FIELDS, *self.axes, *self.derive])}"

    def _unused(self) -> Iterator[str]:
        if None in self.derive.values() or None in self.where:
            return
        used = {name for e in [*self.where, *self.derive.values()] if e for name in e.names}
        own = [("axis", name, location) for name, location in self.axes.items()]
        own += [("derive", name, self._derive_at(name)) for name in self.derive]
        for kind, name, location in own:
            if name not in used and name not in FIELDS:
                message = f"{kind} {name!r} is no field, and no derive or where line uses it{suggest(name, FIELDS)}"
                yield self.document.line(location, message)

    def _derive_at(self, name: str) -> Location:
        return (*self.location, "derive", name)


def _searched(document: Document, location: Location) -> str:
    return document.line(location, "is given, and search varies it; leave it out here: search.from and search.to bound it")


def _two_rates(document: Document, location: Location, names: set[str]) -> list[str]:
    if not names >= OTHER_RATE.keys():
        return []
    return [document.line(location, "got both kappa and gamma; give one, the other follows")]


def _parsed(text: Any, calls: bool) -> Expression | None:
    """The expression, or None for one that is wrong: `check_file` reports it."""
    text = repr(text) if calls and is_number(text) else text
    try:
        return parse(text, calls) if isinstance(text, str) else None
    except ValueError:
        return None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(values: Iterable[Any]) -> set[str]:
    """Every text in nested lists and mappings."""
    found: set[str] = set()
    for value in values:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        found |= _texts(inner) | ({value} if isinstance(value, str) else set())
    return found
