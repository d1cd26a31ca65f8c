"""A grid: the points and seeds that a YAML file describes.

`read_grid` reads the file, checks its keys and literal values, then its names, then makes the points. All errors
are raised together, as one GridError with a line for each.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import GridError
from ...model.point import FIELDS, Point
from ..settings import Precision, Settings
from .axes import axis_locations
from .document import Document, read_document
from .expand import OnProgress, expand
from .file import SEARCH_MIN_SEEDS, GridFile, Limits, Search, checked_name
from .names import check_names
from .validation import check_file


@dataclass(frozen=True)
class Grid:
    """Points times seeds, with what the file says about how to run them.

    `axes` names the fields in the file that take more than one value over the points. `resolved` is the grid as plain data:
    read as a grid file, it gives the same grid. With a `search` the points are cells, and their N has no meaning.
    """

    name: str
    root_seed: int
    seeds: Sequence[int]  # a range where the file gives a count, which may be very large in a search
    points: tuple[Point, ...]
    n_duplicates: int
    n_excluded: int
    axes: tuple[str, ...]
    limits: Limits
    settings: Settings
    search: Search | None
    resolved: dict[str, Any]

    @property
    def n_runs(self) -> int:
        return len(self.points) * len(self.seeds)

    @property
    def precision(self) -> Precision:
        return self.settings.precision

    @property
    def part_seconds(self) -> float:
        return self.settings.part_seconds


def read_grid(path: str | Path, sets: Sequence[str] = (), on_progress: OnProgress = lambda done, of: None) -> Grid:
    """The grid in the YAML file `path`, with each of `sets`, such as "base.V=512", put over it; later ones win.

    Raises GridError, with a line for each error: "grid.yaml:7: base.V: got -3; allowed: ...". Points are made once keys,
    literal values and names are right; `on_progress(done, of)` is called with how many are expanded.
    """
    return from_document(read_document(path, sets), on_progress)


def rebuilt(resolved: dict[str, Any]) -> Grid:
    """The grid that `Grid.resolved` was taken from; raises GridError if this version reads it otherwise."""
    return from_document(Document("manifest.json", copy.deepcopy(resolved)))


def from_document(document: Document, on_progress: OnProgress = lambda done, of: None) -> Grid:
    """The grid that a document describes; raises GridError with a line for each error."""
    file, lines = check_file(document)
    lines = document.errors + lines + check_names(document)
    stem = Path(document.path).stem
    if "name" not in document.data:
        try:
            checked_name(stem)
        except ValueError as error:
            lines.append(document.line(("name",), f"is missing, and the name of the file cannot be used instead; give name: {error}"))
    if file and file.search and file.n_seeds < SEARCH_MIN_SEEDS:
        allowed = f"allowed with search: at least {SEARCH_MIN_SEEDS}, better {{count: 200}}"
        lines.append(document.line(("seeds",), f"got {file.n_seeds}; {allowed}"))
    if file is None or lines:
        raise GridError(lines)
    expansion = expand(document, file, on_progress)
    return Grid(
        name=file.name or stem,
        root_seed=file.root_seed,
        seeds=tuple(file.seeds) if isinstance(file.seeds, list) else range(file.seeds.start, file.seeds.start + file.seeds.count),
        points=expansion.points,
        n_duplicates=expansion.n_duplicates,
        n_excluded=expansion.n_excluded,
        axes=_varying(document, expansion.points),
        limits=file.limits,
        settings=Settings(precision=file.run.precision, part_seconds=file.run.part_seconds),
        search=file.search,
        resolved=_resolved(document, file, file.name or stem),
    )


def _resolved(document: Document, file: GridFile, name: str) -> dict[str, Any]:
    dumped = file.model_dump(by_alias=True, include={"version", "root_seed", "search", "limits", "run"}, exclude_none=True)
    seeds = file.seeds if isinstance(file.seeds, list) else file.seeds.model_dump()
    resolved = {**dumped, "name": name, "base": file.base.model_dump(exclude_unset=True), "seeds": seeds}
    return resolved | ({"blocks": document.data["blocks"]} if file.blocks else {})


def _varying(document: Document, points: tuple[Point, ...]) -> tuple[str, ...]:
    """The fields in axes and derive that take more than one value over the points, in the order of the file."""

    def written() -> Iterator[str]:
        for block in document.data.get("blocks", ()):
            for part, names in block.items():
                if part == "axes":
                    yield from (name for name, _ in axis_locations(names, ()))
                elif part == "derive":
                    yield from names

    varying = [name for name in dict.fromkeys(written()) if name in FIELDS and len({getattr(point, name) for point in points}) > 1]
    return (*varying, "N") if "search" in document.data else tuple(varying)
