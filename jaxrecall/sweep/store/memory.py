"""A store whose rows stay in memory: a results folder for one call, under the same code as one on disk."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Any

import pyarrow as pa

from .store import Store
from .table import Unreadable


class MemoryStore(Store):
    """Holds what a results folder would hold, by the path that each file would have. No file or folder is made."""

    def __init__(self) -> None:
        super().__init__("memory")
        self.held: dict[Path, pa.Table] = {}
        self.notes: dict[str, dict[str, Any]] = {}

    def check(self) -> None:
        """Nothing can be in the way."""

    def prepare(self, manifest: dict[str, Any], n_rows: int = 0) -> None:
        self.notes["manifest"] = manifest

    def read_manifest(self) -> dict[str, Any] | None:
        return self.notes.get("manifest")

    def tables(self, columns: list[str] | None = None) -> tuple[dict[Path, pa.Table], Unreadable]:
        return {path: table.select(columns) if columns else table for path, table in self.held.items()}, []

    def note(self, name: str, record: dict[str, Any]) -> Path:
        self.notes[name] = record
        return self.folder / f"{name}.json"

    def record_failure(self, name: str, record: dict[str, Any]) -> None:
        """The caller raises what was reported; there is no file to read."""

    def clear_failures(self, runs: Set[tuple[str, int]]) -> None:
        """There are none."""

    def put_table(self, target: Path, table: pa.Table) -> Path:
        self.held[target] = table
        return target
