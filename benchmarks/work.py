"""The work of the measurements: the grids of work.yaml, by name."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from jaxrecall import Point
from jaxrecall.sweep.grid import as_grid

Document = dict[str, Any]
"""A grid as users write it."""

WRITTEN = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())

FORMS: dict[str, dict[str, Any]] = WRITTEN["forms"]
"""Points which together use every form of the three steps."""


class Work:
    """The grids of full or of tiny size."""

    def __init__(self, tiny: bool):
        self.tiny = tiny
        self.documents: dict[str, Document] = WRITTEN["tiny" if tiny else "full"]

    def grid(self, name: str, **fields: Any) -> Document:
        """Returns a grid, with some fields of its base changed."""
        given = self.documents[name]
        return {**given, "base": {**given.get("base", {}), **fields}}


@dataclass
class Bench:
    """What every measurement needs; `folder` is temporary."""

    work: Work
    rounds: int
    log: Callable[[str], None]
    folder: Path

    def new_folder(self) -> Path:
        """Returns an empty folder that no other measurement uses."""
        return Path(tempfile.mkdtemp(dir=self.folder))


def points(grid: Document | Point) -> list[Point]:
    """Returns the points of a grid."""
    return list(as_grid(grid).points)  # pyright: ignore[reportArgumentType]


def seeds(grid: Document | Point) -> list[int]:
    """Returns the seeds of a grid."""
    return list(as_grid(grid).seeds)  # pyright: ignore[reportArgumentType]


def runs(grid: Document | Point) -> list[tuple[Point, int]]:
    """Returns the runs of a grid, for the peers."""
    return list(itertools.product(points(grid), seeds(grid)))
