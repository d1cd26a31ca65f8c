"""The names that a grid file gives and uses; finds those that are unknown, unused, missing, misplaced or given twice.

Works on the plain data, past values of a wrong type, so that these errors are reported together with those of the values.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

from ...errors import suggest
from .axes import Names, axis_locations
from .document import Document
from .expr import Expression
from .file import DERIVED, WHERE
from .schema import Kind, Location

Mistakes = Iterator[tuple[Location, str]]
"""Locations, and what is wrong there."""


def check_names(document: Document, names: Names) -> list[str]:
    """A line for each wrong name."""
    return [document.line(location, message) for location, message in _Check(document, names).mistakes()]


class _Check:
    def __init__(self, document: Document, names: Names):
        self.document, self.names = document, names
        self.base = _mapping(document.data.get("base"))
        self.given = {name for name, value in self.base.items() if value is not None}
        blocks = document.data.get("blocks", [{}])
        self.blocks = [_mapping(block) for block in blocks] if isinstance(blocks, list) else []
        axis = _mapping(document.data.get("search")).get("axis")
        self.searched = axis if isinstance(axis, str) else None

    def mistakes(self) -> Mistakes:
        wrong_axis = "search" in self.document.data and self.searched is None
        yield from self._misplaced(("base",), {name: ("base", name) for name in self.given | {*self.base} & {"root_seed"}})
        if self.searched and not self.names.is_number(self.searched):
            texts = [_mapping(block.get("derive")).values() for block in self.blocks]
            used = [any(self.searched in e.names for text in mine if (e := _parsed(DERIVED, text))) for mine in texts]
            if wrong_axis := self.searched in self.names or not all(used):
                allowed = f"allowed: {', '.join(self.names.numbers)}, or a helper that derive uses in every block"
                yield ("search", "axis"), f"got {self.searched!r}{suggest(self.searched, self.names.numbers)}; {allowed}"
        required = [] if wrong_axis else [name for name in self.names.required if name not in self.base and name != self.searched]
        lacking: dict[str, list[Location]] = {name: [] for name in required}
        for i, block in enumerate(self.blocks):
            locations = yield from self._block(block, ("blocks", i))
            for name in lacking.keys() - locations:
                lacking[name].append(("blocks", i))
        for name, places in lacking.items():
            for location in [()] if len(places) == len(self.blocks) > 0 else places:
                legend = self.names.fields[name].metadata["legend"]
                yield location, f"{name} is given nowhere ({legend}); give it in base, axes or derive"

    def _block(self, data: dict[str, Any], at: Location) -> Generator[tuple[Location, str], None, set[str]]:
        """The mistakes of a block; returns the names that it gives."""
        axes: dict[str, Location] = {}
        for name, location in axis_locations(data.get("axes"), (*at, "axes")):
            if axes.setdefault(name, location) != location:
                yield location, f"is an axis twice, also at {self.document.origin(axes[name])}"
        derive = {name: _parsed(DERIVED, text) for name, text in _mapping(data.get("derive")).items()}
        lines = data.get("where")
        where = [_parsed(WHERE, text) for text in lines] if isinstance(lines, list) else []
        locations = axes | {name: (*at, "derive", name) for name in derive}
        yield from self._misplaced(at, locations)
        known = {*self.names.defaults, *self.given, *axes, self.searched}
        for i, (name, expression) in enumerate(derive.items()):
            for used in sorted(expression.names - known) if expression else ():
                yield locations[name], f"uses {used}, {self._why_unknown(used, locations, list(derive)[i:])}"
            known.add(name)
        for i, line in enumerate(where):
            for message in self._wrong_in_where(line, locations, [data.get("axes"), *derive.values()]) if line else ():
                yield (*at, "where", i), message
        if None not in (*derive.values(), *where):
            used_names = {name for expression in (*derive.values(), *where) if expression for name in expression.names}
            for name, location in locations.items():
                if name not in used_names and name not in self.names:
                    kind = "axis" if name in axes else "derive"
                    yield location, f"{kind} {name!r} is no field, and no derive or where line uses it{suggest(name, self.names.fields)}"
        return {*locations}

    def _misplaced(self, at: Location, locations: dict[str, Location]) -> Mistakes:
        if self.names.other_rate and locations.keys() >= self.names.other_rate.keys():
            yield at, "got both kappa and gamma; give one, the other follows"
        for name, location in locations.items():
            if name == "root_seed":
                yield location, "is not given here; allowed: one root_seed at the top of the file"
            if name == self.searched:
                yield location, "is given, and search varies it; leave it out here: search.from and search.to bound it"

    def _wrong_in_where(self, line: Expression, locations: dict[str, Location], sources: list[Any]) -> Iterator[str]:
        for used in sorted(line.names):
            if not (used in locations or used in self.names or used == self.searched):
                yield f"uses {used}, {self._why_unknown(used, locations)}"
        if line.strings:
            texts = self.names.choices() | _texts([self.base, *sources])
            for text in sorted(line.strings - texts):
                if not self.names.is_law(text):
                    yield f"holds {text!r}, which is no value of any field or helper{suggest(text, texts)}"

    def _why_unknown(self, name: str, locations: dict[str, Location], later: Sequence[str] = ()) -> str:
        if name in later:
            return "which has no value yet; derive works from top to bottom"
        if name in self.names:
            return "which has no value before the point is made; give it in base, axes or an earlier derive"
        if name in self.names.choices():
            return f"which is a text; put it in quotes: '{name}'"
        return f"which is no field and no helper{suggest(name, [*self.names.fields, *locations])}"


def _parsed(kind: Kind, text: Any) -> Expression | None:
    """The expression, or None for one that is wrong, which the check of its value reports."""
    try:
        return kind.check(text)
    except ValueError:
        return None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(values: Iterable[Any]) -> set[str]:
    """Every text in nested lists, mappings and expressions."""
    found: set[str] = set()
    for value in values:
        if isinstance(value, str):
            found.add(value)
        elif isinstance(value, Expression):
            found |= value.strings
        elif isinstance(value, (dict, list)):
            found |= _texts(value.values() if isinstance(value, dict) else value)
    return found
