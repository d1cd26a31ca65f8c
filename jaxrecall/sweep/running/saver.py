"""Saves finished rows: a part every few seconds, kept and retried while the disk refuses."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ...errors import StoreError
from ..store.store import Store
from .progress import Progress
from .tally import Traces, duration

WAITS = (1.0, 2.0, 5.0, 10.0, 20.0, 40.0)
"""Seconds from one refused write to the next try; the last refusal gives up."""

MAX_UNSAVED = 10_000
"""Rows held while the disk refuses; with so many, simulating waits."""

POLL_SECONDS = 0.05


class Saver:
    """Takes the rows of runs as they are finished and writes them as parts, those of a run together.

    `rows` are those that are not saved yet, of `n_runs` runs.

    A refused write is reported immediately and retried at growing intervals while the sweep continues. After the last try
    `gave_up` is true, and `rows` are lost when the process ends. `stop` returns whether to stop waiting.
    """

    def __init__(self, store: Store, progress: Progress, part_seconds: float, stop: Callable[[], bool] = lambda: False):
        self.store, self.progress, self.part_seconds, self.stop = store, progress, part_seconds, stop
        self.rows: list[dict[str, Any]] = []
        self.n_runs = 0
        self.refused = 0  # writes in a row
        self.due = time.monotonic() + part_seconds

    @property
    def gave_up(self) -> bool:
        return self.refused > len(WAITS)

    def add(self, traces: Traces) -> None:
        """Takes the rows of finished runs; writes if a part is due, waits if too many are unsaved."""
        self.rows += [row for trace in traces for row in trace]
        self.n_runs += len(traces)
        if time.monotonic() >= self.due:
            self._write()
        if len(self.rows) >= MAX_UNSAVED:
            self.close()

    def end_part(self) -> None:
        """Writes the unsaved rows, unless the disk is refusing writes."""
        if not self.refused:
            self._write()

    def close(self) -> None:
        """Writes the unsaved rows; while the disk refuses, waits and retries as long as tries are left."""
        while self.rows and not self.gave_up:
            while self.refused and time.monotonic() < self.due and not self.stop():
                time.sleep(POLL_SECONDS)
            self._write()

    def _write(self) -> None:
        if not self.rows or self.gave_up:
            return
        try:
            path = self.store.write(self.rows)
        except StoreError as error:
            if not self.refused:
                self.progress.message(f"{error}. The sweep continues, and saving is retried for {duration(sum(WAITS))}")
            self.refused += 1
            if not self.gave_up:
                self.due = time.monotonic() + WAITS[self.refused - 1]
        else:
            if self.refused:
                self.progress.message(f"saving works again: {len(self.rows)} rows written")
            self.progress.saved(path, len(self.rows))
            self.rows, self.n_runs, self.refused = [], 0, 0
            self.due = time.monotonic() + self.part_seconds
