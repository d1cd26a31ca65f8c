"""The names that a grid file gives and uses.

Finds those that are unknown, unused, missing, misplaced or given twice.

Works on a file of which some values may be wrong, so that these mistakes are reported
together with those of the values.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import suggest
from .axes import Names
from .document import Document
from .file import Block, GridFile
from .schema import WRONG, Location

Found = Iterator[tuple[Location, str]]
"""Locations, and what is wrong there."""


class WrongNames:
    """Iterates over the wrong names of a file."""

    def __init__(self, document: Document, file: GridFile, names: Names):
        self.document, self.file, self.names = document, file, names
        self.given = {name for name, value in file.base.items() if value is not None}
        self.blocks: dict[Location, Block] = {("blocks", i): block for i, block in enumerate(file.blocks)}
        if "blocks" not in document.data:
            self.blocks = {(): Block()}
        search = document.data.get("search")
        axis, of = (search.get("axis"), search.get("of")) if isinstance(search, dict) else (None, None)
        self.searched, self.of = (name if isinstance(name, str) else None for name in (axis, of))

    def __iter__(self) -> Found:
        yield from self._misplaced(("base",), {name: ("base", name) for name in self.given})
        wrong_axis = [*self._in_search()] if "search" in self.document.data else []
        yield from wrong_axis
        yield from self._in_keep()
        for at, block in self.blocks.items():
            locations = block.locations(at)
            yield from self._in_axes(block, at)
            yield from self._misplaced(at, locations)
            yield from self._in_expressions(block, locations, at)
            yield from self._in_texts(block, at)
            yield from self._unused(block, locations)
        if not wrong_axis and (self.searched is not None or "search" not in self.document.data):
            yield from self._missing()

    def _in_search(self) -> Found:
        columns = self.names.simulator.facts.columns
        if self.of is not None and self.of not in columns:
            yield ("search", "of"), f"got {self.of!r}{suggest(self.of, columns)}; allowed: a column of fractions"
        if self.searched is None or self.names.is_number(self.searched):
            return
        derived = ((e.names for e in block.derive.values() if e is not WRONG) for block in self.blocks.values())
        if self.searched in self.names or not all(any(self.searched in used for used in block) for block in derived):
            numbers = self.names.numbers
            allowed = f"allowed: {', '.join(numbers)}, or a helper that derive uses in every block"
            yield ("search", "axis"), f"got {self.searched!r}{suggest(self.searched, numbers)}; {allowed}"

    def _in_keep(self) -> Found:
        columns = self.names.simulator.facts.columns
        given = {name for at, block in self.blocks.items() for name in block.locations(at)} | {self.searched or ""} - {""}
        helpers = sorted(name for name in given if name not in self.names and name not in columns)
        allowed = ", ".join(helpers) or "helpers that axes or derive define, and there are none"
        for i, name in enumerate(self.file.keep or ()):
            if name is not WRONG and name not in helpers:
                known = name in self.names or name in columns
                why = ", which is a column of every row" if known else suggest(name, helpers)
                yield ("keep", i), f"got {name!r}{why}; allowed: {allowed}"

    def _missing(self) -> Found:
        for name in self.names.required:
            if name in self.file.base or name == self.searched:
                continue
            lacking = [at for at, block in self.blocks.items() if name not in block.locations(at)]
            for location in [()] if len(lacking) == len(self.blocks) > 0 else lacking:
                legend = self.names.fields[name].metadata["legend"]
                yield location, f"{name} is given nowhere ({legend}); give it in base, axes or derive"

    def _misplaced(self, at: Location, locations: dict[str, Location]) -> Found:
        if self.names.other_rate and locations.keys() >= self.names.other_rate.keys():
            yield at, "got both kappa and gamma; give one, the other follows"
        if self.searched in locations:
            yield locations[self.searched], "is given, and search varies it; leave it out here: search.from and search.to bound it"

    def _in_axes(self, block: Block, at: Location) -> Found:
        first: dict[str, Location] = {}
        for path, group in block.groups:
            lengths = {name: len(values) for name, values in group.items() if isinstance(values, tuple)}  # others are wrong
            if len(lengths) == len(group) and len(set(lengths.values())) != 1:
                got = ", ".join(f"{name}: {length}" for name, length in lengths.items()) or "of nothing"
                yield (*at, *path), f"got lengths {got}; allowed: equal lengths"
            for name in group:
                here = (*at, *path, name)
                if first.setdefault(name, here) != here:
                    yield here, f"is an axis twice, also at {self.document.origin(first[name])}"

    def _in_expressions(self, block: Block, locations: dict[str, Location], at: Location) -> Found:
        known = {*self.names.defaults, *self.given, *block.axis_names, self.searched}
        for name, expression in block.derive.items():
            for used in sorted(expression.names - known) if expression is not WRONG else ():
                later = "which has no value yet; derive works from top to bottom"
                why = later if used in block.derive else self._why_unknown(used, locations)
                yield locations[name], f"uses {used}, {why}"
            known.add(name)
        for i, line in enumerate(block.where):
            for used in sorted(line.names - known) if line is not WRONG else ():
                if used not in self.names:
                    yield (*at, "where", i), f"uses {used}, {self._why_unknown(used, locations)}"

    def _in_texts(self, block: Block, at: Location) -> Found:
        lists = [self.file.base.values(), *(values for _, group in block.groups for values in group.values() if values is not WRONG)]
        lists += [expression.strings for expression in block.derive.values() if expression is not WRONG]
        texts = self.names.choices() | {value for values in lists for value in values if isinstance(value, str)}
        for i, line in enumerate(block.where):
            for text in sorted(line.strings - texts) if line is not WRONG else ():
                if not self.names.is_law(text):
                    yield (*at, "where", i), f"holds {text!r}, which is no value of any field or helper{suggest(text, texts)}"

    def _unused(self, block: Block, locations: dict[str, Location]) -> Found:
        expressions = [*block.derive.values(), *block.where]
        if WRONG in expressions:
            return
        used = {*(self.file.keep or ())}.union(*(expression.names for expression in expressions))
        for name, location in locations.items():
            if name not in used and name not in self.names:
                kind = "axis" if name in block.axis_names else "derive"
                yield location, f"{kind} {name!r} is no field, and no derive or where line uses it{suggest(name, self.names.fields)}"

    def _why_unknown(self, name: str, locations: dict[str, Location]) -> str:
        if name in self.names:
            return "which has no value before the point is made; give it in base, axes or an earlier derive"
        if name in self.names.choices():
            return f"which is a text; put it in quotes: '{name}'"
        return f"which is no field and no helper{suggest(name, [*self.names.fields, *locations])}"
