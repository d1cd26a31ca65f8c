"""Measures the results folder: parts written, parts read and rows compacted per second.

The module also measures bytes per row. `python -m benchmarks.scale [FILE.json]`
extrapolates the saved figures, for docs/scaling.md.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from jaxrecall import Point
from jaxrecall.compact import compact
from jaxrecall.model.columns import CODE_VERSION, COLUMNS
from jaxrecall.sweep.running.progress import duration
from jaxrecall.sweep.store import Store

from .bench import Bench
from .record import Measured

ROWS = 1000  # rows in a part: a core computes these in a few seconds


def rows(n: int) -> Iterator[dict[str, Any]]:
    """Yields rows like those of a sweep, with 64 seeds per point.

    Metrics are random, so that they do not compress better than real metrics.
    """
    rng = np.random.default_rng(0)
    text = {
        "status": "ok",
        "form": "counts+locked",
        "jax_version": "0.10.2",
        "device_kind": "cpu",
        "dtype": "float32",
    }
    text |= {"precision": "highest", "bucket": "512x128"}
    for i in range(n):
        if i % 64 == 0:
            point = Point(V=512, N=1024 + i // 64, d=128, L=16)
            fields = {
                "point_id": point.point_id,
                **point.values(),
            }
        drawn = {
            "int64": int(rng.integers(0, 2048)),
            "float64": float(rng.random(dtype=np.float32)),
        }
        metrics = {
            name: (
                int(rng.integers(0, 2**32)) if name == "draw_check" else drawn.get(kind)
            )
            for name, (kind, _) in COLUMNS.items()
        }
        yield {
            **metrics,
            **fields,
            **text,
            "seed": i % 64,
            "code_version": CODE_VERSION,
        }


def figures(bench: Bench) -> dict[str, Measured]:
    """Measures each figure `rounds` times, each time in a new folder.

    The folders are on the disk of the temporary folder.
    """
    parts = 3 if bench.work.tiny else 200
    per_second: dict[str, list[float]] = {
        "parts-written": [],
        "parts-read": [],
        "rows-compacted": [],
    }
    bytes_a_row = []
    made = rows(parts * ROWS)
    batches = [list(islice(made, ROWS)) for _ in range(parts)]
    for turn in range(bench.rounds):
        store = Store(bench.new_folder())
        store.prepare({})
        for name, work, count in (
            (
                "parts-written",
                lambda store=store: [store.write(batch) for batch in batches],
                parts,
            ),
            (
                "parts-read",
                lambda store=store: store.done(CODE_VERSION, "highest"),
                parts,
            ),
            ("rows-compacted", lambda store=store: compact(store.folder), parts * ROWS),
        ):
            start = time.perf_counter()
            work()
            per_second[name].append(count / (time.perf_counter() - start))
        sizes = [
            sum(path.stat().st_size for path in paths) / (parts * ROWS)
            for paths in (store.parts.iterdir(), [store.table])
        ]
        bytes_a_row.append(sizes)
        bench.log(
            f"round {turn + 1} of {bench.rounds}: "
            + ", ".join(
                f"{name} {found[-1]:.3g}/s" for name, found in per_second.items()
            )
        )
    in_parts, in_table = np.median(bytes_a_row, axis=0)
    note = f"{parts} parts of {ROWS} rows"
    measured = {
        name: Measured([float(np.median(found))], note=note)
        for name, found in per_second.items()
    }
    return measured | {"bytes": Measured([float(in_parts), float(in_table)], note=note)}


def plan(saved: Mapping[str, Any]) -> list[str]:
    """Returns a table of the time and space that numbers of rows need at the saved
    rates.

    It assumes one process, one disk, and parts of `ROWS` rows.
    """
    written, read, compacted = (
        saved[name]["values"][0]
        for name in ("parts-written", "parts-read", "rows-compacted")
    )
    in_parts, in_table = saved["bytes"]["values"]
    lines = [
        (
            "| rows | parts | on disk, parts | on disk, table | to write all parts | to"
            " know what is done | to compact |"
        ),
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for exponent in (6, 7, 9):
        n = 10**exponent
        parts = n // ROWS
        sizes = [
            (
                f"{n * each / 1e9:.3g} GB"
                if n * each >= 1e9
                else f"{n * each / 1e6:.3g} MB"
            )
            for each in (in_parts, in_table)
        ]
        times = [
            duration(seconds)
            for seconds in (parts / written, parts / read, n / compacted)
        ]
        lines.append(
            "| " + " | ".join([f"10^{exponent}", f"{parts:,}", *sizes, *times]) + " |"
        )
    return lines


if __name__ == "__main__":
    file = Path(sys.argv[1] if len(sys.argv) > 1 else "results/benchmarks.json")
    print("\n".join(plan(json.loads(file.read_text())["rows"])))
