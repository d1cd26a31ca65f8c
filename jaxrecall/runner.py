"""Runs the chunks of a plan through compiled programs and stores their rows; one batch is always in flight."""

from __future__ import annotations

import socket
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from . import program
from .bucket import Bucket
from .errors import StoreError
from .grid.file import PART_SECONDS
from .interrupts import Interrupts
from .plan import Chunk, Plan, RunId, Work
from .progress import Outcome, Progress
from .saver import Saver
from .store import Store

BATCH_SECONDS = 0.5
MAX_BATCH = 64
POLL_SECONDS = 0.002

Rows = list[dict[str, Any]]


@dataclass
class _Pace:
    """Runs of a batch on each device, and whether the next batch is launched before the last is collected."""

    size: int
    ahead: bool = True


def execute(
    plan: Plan,
    store: Store,
    precision: str,
    tell: Progress,
    interrupts: Interrupts,
    repeat: str,
    fail_fast: bool = False,
    part_seconds: float = PART_SECONDS,
) -> Outcome:
    """Runs every chunk of the plan; finished rows are saved every `part_seconds` and at the end of each chunk.

    A chunk that fails is reported with `repeat`, the command that tries it again.
    """
    program.keep_compiled()
    outcome = Outcome()
    saver = Saver(store, tell, part_seconds, lambda: interrupts.asked)
    paces = {bucket: _Pace(_per_device(plan.seconds_per_run(bucket), part_seconds)) for bucket in plan.buckets}
    with interrupts.patient():
        for chunk in plan.chunks:
            if interrupts.asked or saver.gave_up or (fail_fast and outcome.failed):
                break
            batches, left = _rows(chunk, paces[chunk.bucket], precision, tell), chunk.runs
            while left and not (interrupts.asked or saver.gave_up):
                try:
                    with interrupts.droppable():
                        rows = next(batches)
                except KeyboardInterrupt:
                    break
                except Exception as error:
                    outcome.failed += 1
                    line, details = _record(chunk.bucket, left, error, store, repeat)
                    tell.failed(line, chunk.seconds * len(left) / len(chunk.runs), len(left), details)
                    break
                left = left[len(rows) :]
                outcome.runs += len(rows)
                tell.advanced(rows, chunk.seconds * len(rows) / len(chunk.runs))
                saver.add(rows)
            saver.end_part()
        saver.close()
    outcome.unsaved, outcome.interrupted = len(saver.rows), interrupts.asked
    return outcome


def _rows(chunk: Chunk, pace: _Pace, precision: str, tell: Progress) -> Iterator[Rows]:
    """Rows of the chunk, a batch at a time. Where memory does not suffice, the pace of its program is lowered for good."""
    left, bucket = chunk.runs, chunk.bucket
    while left:
        try:
            for rows in _batches(bucket, left, pace, precision, tell):
                left = left[len(rows) :]
                yield rows
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error) or (pace.size == 1 and not pace.ahead):
                raise
            tried, pace.size, pace.ahead = pace.size, max(1, pace.size // 2), False
            tell.say(f"program {bucket}: out of memory with batches of {tried} runs; going on with {pace.size}, one batch at a time")


def _batches(bucket: Bucket, runs: tuple[RunId, ...], pace: _Pace, precision: str, tell: Progress) -> Iterator[Rows]:
    """Rows of the runs, a batch at a time; batch k + 1 is launched before batch k is collected, memory permitting."""
    tell.compiling(str(bucket))
    start = time.perf_counter()
    compiled = program.compiled(bucket, pace.size, precision)
    tell.compiled(str(bucket), time.perf_counter() - start)
    batches = [runs[i : i + compiled.batch] for i in range(0, len(runs), compiled.batch)]
    last = time.perf_counter()
    ahead: Any = None
    for batch, following in zip(batches, [*batches[1:], None], strict=True):
        launched = ahead or program.launch(compiled, batch)
        ahead = program.launch(compiled, following) if following and pace.ahead else None
        while not launched["finite"].is_ready():  # polled, so that signals are heard
            time.sleep(POLL_SECONDS)
        metrics = program.collect(launched, batch)
        now = time.perf_counter()
        seconds, last = now - last, now
        costs = [Work.of(point).seconds(bucket) for point, _ in batch]
        yield [
            program.row(point, seed, m, bucket, precision, seconds * cost / sum(costs))
            for (point, seed), m, cost in zip(batch, metrics, costs, strict=True)
        ]


def _per_device(seconds_per_run: float, part_seconds: float) -> int:
    """Runs a batch and device: half a second's work, or one part's if that is less, a power of two."""
    wanted = min(MAX_BATCH, min(BATCH_SECONDS, part_seconds) / seconds_per_run)
    return 1 << max(0, int(wanted).bit_length() - 1)


def _record(bucket: Bucket, runs: tuple[RunId, ...], error: Exception, store: Store, repeat: str) -> tuple[str, Path | None]:
    """Writes the failure of these runs down; returns the line that tells it, and the file."""
    (first, first_seed), (last, last_seed) = runs[0], runs[-1]
    record = {
        "error": f"{type(error).__name__}: {error}",
        "traceback": traceback.format_exc(),
        "host": socket.gethostname(),
        "jax_version": jax.__version__,
        "bucket": str(bucket),
        "runs": [[point.point_id, seed] for point, seed in runs],
        "repeat": repeat,
    }
    try:
        path = store.record_failure(f"{first.point_id}-{first_seed}-{len(runs)}", record)
        details = f"details: {path}"
    except StoreError as refused:
        path, details = None, f"details could not be written: {refused}"
    return (
        f"failed: {len(runs)} runs of program {bucket}, {first.point_id} seed {first_seed} to {last.point_id} seed {last_seed}: "
        f"{str(error).splitlines()[0] if str(error) else type(error).__name__} ({details}; to try again: {repeat})"
    ), path
