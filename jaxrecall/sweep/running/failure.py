"""A failed chunk: what went wrong, and the record of it in the results folder."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from ...errors import StoreError
from ...model.point import Run
from ...simulator.shape import Shape
from ..store.store import Store
from .tally import plural


class Failure(NamedTuple):
    """What went wrong, and where."""

    error: str
    traceback: str
    host: str

    @staticmethod
    def of(error: Exception) -> Failure:
        """The exception being handled."""
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc(), socket.gethostname())

    @property
    def line(self) -> str:
        """The error in one line, without the name of its class where there is a message."""
        kind, _, text = self.error.partition(": ")
        message = text if text and kind.isidentifier() else self.error.removesuffix(": ")
        return message.splitlines()[0]

    def recorded(self, shape: Shape, runs: Sequence[Run], store: Store, resume_command: str) -> tuple[str, Path | None]:
        """Writes a record of it, with the runs and the command that tries them again; returns a line of text, and the file."""
        first, last = runs[0].id, runs[-1].id
        record = {
            **self._asdict(),
            "jax_version": version("jax"),
            "bucket": str(shape),
            "runs": [run.id for run in runs],
            "repeat": resume_command,
        }
        try:
            path = store.record_failure(f"{first.point_id}-{first.seed}-{len(runs)}", record)
            details = f"details: {path}; " if path else ""
        except StoreError as refused:
            path, details = None, f"details could not be written: {refused}; "
        return (
            f"failed: {plural(len(runs), 'run')} of program {shape}, {first.point_id} seed {first.seed} to {last.point_id} seed "
            f"{last.seed}: {self.line} ({details}to try again: {resume_command})"
        ), path
