"""A grid: the points and seeds that a YAML file asks for. No JAX here.

`read_grid` reads the file, checks its keys and literal values, then its names, then makes the points; whatever is wrong
comes as one GridError with a line for each error.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import GridError
from ..point import FIELDS, Point, choices
from .axes import REQUIRED, suggest
from .document import Document, Key, read_document
from .expand import DEFAULTS, OTHER_RATE, axis_keys, expand
from .expr import Expression, parse
from .file import MIN_SEEDS, GridFile, Limits, Search, check_file, checked_name, json_schema, n_seeds

__all__ = ["Grid", "Limits", "Search", "json_schema", "read_grid", "rebuilt"]

_CHOICES = {choice for name in FIELDS for choice in choices(name)}


@dataclass(frozen=True)
class Grid:
    """Points times seeds, with what the file says about how to run them.

    `axes` names the fields in the file that take more than one value over the points; `resolved` is the grid as plain
    data, which read as a grid file gives the same grid. With a `search` the points are cells, whose N says nothing.
    """

    name: str
    root_seed: int
    seeds: tuple[int, ...]
    points: tuple[Point, ...]
    n_duplicates: int
    n_excluded: int
    axes: tuple[str, ...]
    limits: Limits
    precision: str
    part_seconds: float
    search: Search | None
    resolved: dict[str, Any]

    @property
    def n_runs(self) -> int:
        return len(self.points) * len(self.seeds)


def read_grid(path: Any, sets: Sequence[str] = ()) -> Grid:
    """The grid in the YAML file `path`, with each of `sets`, such as "base.V=512", put over it; later ones win.

    Raises GridError, with a line for each error: "grid.yaml:7: base.V: got -3; allowed: ...". Points are made once keys,
    literal values and names are right.
    """
    return _grid(read_document(path, sets))


def rebuilt(resolved: dict[str, Any]) -> Grid:
    """The grid that `Grid.resolved` was taken from; raises GridError where this version reads it otherwise."""
    return _grid(Document("manifest.json", copy.deepcopy(resolved)))


def _grid(document: Document) -> Grid:
    file, lines = check_file(document)
    lines = document.lines + lines + _name_lines(document)
    stem = Path(document.path).stem
    if "name" not in document.data:
        try:
            checked_name(stem)
        except ValueError as error:
            lines.append(document.line(("name",), f"the file's own name is none for a grid, give name: {error}"))
    if file and file.search and n_seeds(file) < MIN_SEEDS:
        lines.append(document.line(("seeds",), f"got {n_seeds(file)}; allowed with search: at least {MIN_SEEDS}, better {{count: 200}}"))
    if file is None or lines:
        raise GridError(lines)
    expansion = expand(document, file)
    seeds = tuple(file.seeds if isinstance(file.seeds, list) else range(file.seeds.start, file.seeds.start + file.seeds.count))
    return Grid(
        name=file.name or stem,
        root_seed=file.root_seed,
        seeds=seeds,
        points=expansion.points,
        n_duplicates=expansion.n_duplicates,
        n_excluded=expansion.n_excluded,
        axes=_varying(document, expansion.points),
        limits=file.limits,
        precision=file.run.precision,
        part_seconds=file.run.part_seconds,
        search=file.search,
        resolved=_resolved(document, file, file.name or stem),
    )


def _resolved(document: Document, file: GridFile, name: str) -> dict[str, Any]:
    dumped = file.model_dump(by_alias=True, include={"version", "root_seed", "search", "limits", "run"}, exclude_none=True)
    seeds = file.seeds if isinstance(file.seeds, list) else file.seeds.model_dump()
    resolved = {**dumped, "name": name, "base": file.base.model_dump(exclude_unset=True), "seeds": seeds}
    return resolved | ({"blocks": document.data["blocks"]} if file.blocks else {})


def _varying(document: Document, points: tuple[Point, ...]) -> tuple[str, ...]:
    def written() -> Iterator[str]:
        for block in document.data.get("blocks", ()):
            for part, names in block.items():
                if part == "axes":
                    yield from (name for name, _ in axis_keys(names, ()))
                elif part == "derive":
                    yield from names

    varying = [name for name in dict.fromkeys(written()) if name in FIELDS and len({getattr(point, name) for point in points}) > 1]
    return (*varying, "N") if "search" in document.data else tuple(varying)


def _name_lines(document: Document) -> list[str]:
    """A line for each name that is unknown, unused, missing or given twice; looks past keys of a wrong type."""
    base = _mapping(document.data.get("base"))
    given = {name for name, value in base.items() if value is not None}
    lines = _two_rates(document, ("base",), given)
    blocks = document.data.get("blocks", [{}])
    searched = "N" if "search" in document.data else None
    lines += [_searched(document, ("base", name)) for name in given if name == searched]
    missing: dict[str, list[Key]] = {name: [] for name in REQUIRED if name not in base and name != searched}
    for i, data in enumerate(blocks if isinstance(blocks, list) else []):
        if isinstance(data, dict):
            names = _Names(document, ("blocks", i), data, searched)
            lines += names.lines(given, _texts([base]))
            for name, keys in missing.items():
                if name not in names.axes and name not in names.derive:
                    keys.append(names.key)
    for name, keys in missing.items():
        everywhere = len(keys) == len(blocks) if isinstance(blocks, list) else False
        for key in [()] if everywhere and keys else keys:
            legend = FIELDS[name].metadata["legend"]
            lines.append(document.line(key, f"{name} is given nowhere ({legend}); give it in base, axes or derive"))
    return lines


class _Names:
    """The names that one block gives and uses."""

    def __init__(self, document: Document, key: Key, data: dict[str, Any], searched: str | None):
        self.document, self.key, self.data, self.searched = document, key, data, searched
        self.axis_list = list(axis_keys(data.get("axes"), (*key, "axes")))
        self.axes = dict(self.axis_list)
        where = data.get("where")
        self.derive = {name: _quiet(text, True) for name, text in _mapping(data.get("derive")).items()}
        self.where = [_quiet(text, False) for text in where] if isinstance(where, list) else []

    def lines(self, base: set[str], texts: set[str]) -> list[str]:
        """All errors; `base` are the names with a value in the base, `texts` the quoted texts there."""
        twice = [(name, key) for i, (name, key) in enumerate(self.axis_list) if name in dict(self.axis_list[:i])]
        lines = [self.document.line(key, f"is an axis twice, also at {self.document.origin(self.axes[name])}") for name, key in twice]
        lines += _two_rates(self.document, self.key, {*self.axes, *self.derive})
        for name, key in [*self.axis_list, *((n, (*self.key, "derive", n)) for n in self.derive)]:
            if name == "root_seed":
                lines.append(self.document.line(key, "is not given here; allowed: one root_seed at the top of the file"))
            if name == self.searched:
                lines.append(_searched(self.document, key))
        known = {*DEFAULTS, *base, *self.axes} - {self.searched}
        for i, (name, expression) in enumerate(self.derive.items()):
            for used in sorted(expression.names - known) if expression else ():
                lines.append(self.document.line((*self.key, "derive", name), f"uses {used}, {self._unknown(used, list(self.derive)[i:])}"))
            known.add(name)
        texts = texts | _CHOICES | _texts([self.data.get("axes")]) | {t for e in self.derive.values() if e for t in e.strings}
        for i, line in enumerate(self.where):
            if line:
                key = (*self.key, "where", i)
                unknown = sorted(line.names - ({*FIELDS, *self.axes, *self.derive} - {self.searched}))
                lines += [self.document.line(key, f"uses {used}, {self._unknown(used, [])}") for used in unknown]
                for text in sorted(line.strings - texts):
                    lines.append(self.document.line(key, f"holds {text!r}, a text that nothing takes{suggest(text, texts)}"))
        return [*lines, *self._unused()]

    def _unknown(self, name: str, later: list[str]) -> str:
        if name == self.searched:
            return "which search varies: a cell has none; allowed: the other fields"
        if name in later:
            return "which has no value yet; derive works from top to bottom"
        if name in FIELDS:
            return "which has no value before the point is made; give it in base, axes or an earlier derive"
        if name in _CHOICES:
            return f"which is a text; put it in quotes: '{name}'"
        return f"which is no field and no helper{suggest(name, [*FIELDS, *self.axes, *self.derive])}"

    def _unused(self) -> Iterable[str]:
        if None in self.derive.values() or None in self.where:
            return
        used = {name for e in [*self.where, *self.derive.values()] if e for name in e.names}
        own = [("axis", name, key) for name, key in self.axes.items()] + [("derive", n, (*self.key, "derive", n)) for n in self.derive]
        for kind, name, key in own:
            if name not in used and name not in FIELDS:
                yield self.document.line(key, f"{kind} {name!r} is no field, and no derive or where line uses it{suggest(name, FIELDS)}")


def _searched(document: Document, key: Key) -> str:
    return document.line(key, "is given, and search varies it; leave it out here: search.from and search.to bound it")


def _two_rates(document: Document, key: Key, names: set[str]) -> list[str]:
    if not names >= OTHER_RATE.keys():
        return []
    return [document.line(key, "got both kappa and gamma; give one, the other follows")]


def _quiet(text: Any, calls: bool) -> Expression | None:
    try:
        return parse(repr(text) if calls and isinstance(text, (int, float)) else text, calls) if text is not None else None
    except (ValueError, TypeError, AttributeError):  # told by the check of the keys
        return None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(values: Iterable[Any]) -> set[str]:
    found: set[str] = set()
    for value in values:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        found |= _texts(inner) | ({value} if isinstance(value, str) else set())
    return found
