"""Runs the chunks of a plan through compiled programs and stores their rows; one batch is always in flight."""

from __future__ import annotations

import socket
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax

from . import program
from .interrupts import Interrupts
from .plan import Chunk, Plan, RunId, Work
from .progress import Progress
from .store import Store

BATCH_SECONDS = 0.5
MAX_BATCH = 64
POLL_SECONDS = 0.002


@dataclass
class Outcome:
    """What became of a plan."""

    runs: int = 0
    failed: int = 0
    interrupted: bool = False


def execute(
    plan: Plan, store: Store, precision: str, tell: Progress, interrupts: Interrupts, repeat: str, fail_fast: bool = False
) -> Outcome:
    """Runs every chunk of the plan. A chunk that fails is reported with `repeat`, the command that tries it again."""
    program.keep_compiled()
    outcome = Outcome()
    for chunk in plan.chunks:
        if interrupts.asked or (fail_fast and outcome.failed):
            break
        rows: list[dict[str, Any]] = []
        try:
            for batch in _batches(chunk, plan, precision, tell):
                rows += batch
                tell.advanced(batch, chunk.seconds * len(batch) / len(chunk.runs))
                if interrupts.asked:
                    break
        except KeyboardInterrupt:  # the second signal
            pass
        except Exception as error:
            outcome.failed += 1
            tell.failed(_record(chunk, error, store, repeat), chunk.seconds * (1 - len(rows) / len(chunk.runs)))
        if rows:
            store.write(rows)
            outcome.runs += len(rows)
    outcome.interrupted = interrupts.asked
    return outcome


def _batches(chunk: Chunk, plan: Plan, precision: str, tell: Progress) -> Iterator[list[dict[str, Any]]]:
    """Rows of the chunk, a batch at a time; batch k + 1 is launched before batch k is collected."""
    tell.compiling(str(chunk.bucket))
    start = time.perf_counter()
    compiled = program.compiled(chunk.bucket, _per_device(plan, chunk), precision)
    tell.compiled(str(chunk.bucket), time.perf_counter() - start)
    batches = [chunk.runs[i : i + compiled.batch] for i in range(0, len(chunk.runs), compiled.batch)]
    last = time.perf_counter()
    ahead: Any = program.launch(compiled, batches[0])
    for runs, following in zip(batches, [*batches[1:], None], strict=True):
        launched = ahead
        ahead = program.launch(compiled, following) if following else None
        while not launched["finite"].is_ready():  # polled, so that signals are heard
            time.sleep(POLL_SECONDS)
        metrics = program.collect(launched, runs)
        now = time.perf_counter()
        seconds, last = now - last, now
        costs = [Work.of(point).seconds(chunk.bucket) for point, _ in runs]
        yield [
            program.row(point, seed, m, chunk.bucket, precision, seconds * cost / sum(costs))
            for (point, seed), m, cost in zip(runs, metrics, costs, strict=True)
        ]


def _per_device(plan: Plan, chunk: Chunk) -> int:
    """Runs a batch and device: what the plan says or half a second's work, a power of two."""
    wanted = plan.batch or min(MAX_BATCH, BATCH_SECONDS / plan.seconds_per_run(chunk.bucket))
    return 1 << max(0, int(wanted).bit_length() - 1)


def _record(chunk: Chunk, error: Exception, store: Store, repeat: str) -> str:
    """Writes the failure down; returns the line that tells it."""
    first, last = chunk.runs[0], chunk.runs[-1]
    record = {
        "error": f"{type(error).__name__}: {error}",
        "traceback": traceback.format_exc(),
        "host": socket.gethostname(),
        "jax_version": jax.__version__,
        "bucket": str(chunk.bucket),
        "runs": [[point.point_id, seed] for point, seed in chunk.runs],
        "repeat": repeat,
    }
    path = store.record_failure(_name(chunk.runs), record)
    return (
        f"failed: {len(chunk.runs)} runs of program {chunk.bucket}, {first[0].point_id} seed {first[1]} to {last[0].point_id} seed "
        f"{last[1]}: {str(error).splitlines()[0] if str(error) else type(error).__name__} (details: {path}; to try again: {repeat})"
    )


def _name(runs: tuple[RunId, ...]) -> str:
    return f"{runs[0][0].point_id}-{runs[0][1]}-{len(runs)}"
