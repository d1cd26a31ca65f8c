"""The figures that are no ratio of times: each function measures some of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import jaxrecall
from jaxrecall import Point
from jaxrecall.compact import compact
from jaxrecall.fit import fit
from jaxrecall.model.columns import COLUMNS
from jaxrecall.sweep.store import Store

from . import clock
from .record import Measured
from .work import Bench, Document, points

THETA = 0.5
MOST_SEEDS = 400  # that a search may use
CELL = ["V", "d", "L"]
ROWS = 1000  # rows in a part: a core computes these in a few seconds


def fitted(bench: Bench) -> dict[str, Measured]:
    """Measures the fit of a large table, or of a small one with --tiny."""
    done = clock.fresh("fit", seeds=8 if bench.work.tiny else 521)
    values = [done["seconds"], done["peak_bytes"] / 2**30]
    return {"fit": Measured(values, note=f"{done['rows']} rows, 120 cells, 16 levels")}


def estimated(bench: Bench) -> dict[str, Measured]:
    """Compares the estimate of each grid with its time to the last row.

    The grids run one after the other, in fresh processes that share a cache, and then
    all again.
    """
    cache, grids = bench.new_folder(), bench.work.documents["estimates"]
    table: dict[str, dict[str, Any]] = {name: {"grid": name} for name in grids}
    worst = []
    for turn in ("", "again: "):
        ratio = f"{turn}ratio"
        for name, grid in grids.items():
            about = {"workers": 2 if name == "two workers" else 1, "estimated": True}
            done = clock.fresh("sweep", cache, grid=grid, **about)
            bench.log(f"{turn}{name}: {done}")
            line = table[name]
            line["runs"] = done["rows"]
            line[f"{turn}estimate, s"] = done["estimate"]
            line[f"{turn}measured, s"] = done["seconds"]
            line[ratio] = done["estimate"] / done["seconds"]
        ratios = [line[ratio] for line in table.values()]
        worst.append(max(*ratios, 1 / min(ratios)))
    note = f"{len(table)} grids, one after the other, with one cache; then all again"
    return {"estimates": Measured(worst, note=note, table=list(table.values()))}


def searched(bench: Bench) -> dict[str, Measured]:
    """Compares a threshold search with a dense grid on the same cells.

    The requested width of the search is the median width that the dense grid reached.
    """
    grid = bench.work.grid("dense")
    dense = cells(jaxrecall.run(grid, progress=False))
    width = float(dense["width"].median())
    search = cells(jaxrecall.run(search_grid(grid, width), progress=False))
    both = dense.join(search, lsuffix=", dense", rsuffix=", search").reset_index()
    ratio = samples_needed(dense, search).sum() / search["samples"].sum()
    row = Measured([float(ratio)], note=f"N for {THETA}")
    row.table = both.to_dict("records")
    return {"search": row}


def search_grid(dense: Document, width: float) -> Document:
    """Returns the cells of a dense grid as the grid of a search over the same N."""
    N = [point.N for point in points(dense)]
    ends = {"from": min(N), "to": max(N), "width": min(round(width, 3), 5.0)}
    blocks = [{"axes": {"zip": dense["blocks"][0]["axes"]["zip"]}}]
    search = {"axis": "N", "theta": THETA, **ends}
    return dense | {"seeds": MOST_SEEDS, "blocks": blocks, "search": search}


def cells(table: Any) -> Any:
    """Returns the samples of each cell, its threshold and the width of the interval."""
    found = fit(table, THETA).thresholds.set_index(CELL).sort_index()
    width = np.log(found["hi"] / found["lo"])
    samples = table.groupby(CELL)["N"].sum()
    return found[["N_star"]].assign(width=width, samples=samples)


def samples_needed(dense: Any, search: Any) -> Any:
    """Returns the samples of a dense design for the widths of a search, by cell.

    The width of an interval is inverse to the square root of the number of seeds, so
    the samples of a design are proportional to width^-2.
    """
    return dense["samples"] * (dense["width"] / search["width"]) ** 2


def stored(bench: Bench) -> dict[str, Measured]:
    """Measures the results folder: parts written, parts read and rows compacted per
    second, and bytes a row. Every round has a new folder on the disk of the temporary
    folder.
    """
    n_parts = 3 if bench.work.tiny else 200
    n_rows = n_parts * ROWS
    parts = written_parts(n_parts)
    turns: list[dict[str, list[float]]] = []
    for _ in range(bench.rounds):
        store = Store(bench.new_folder())
        store.prepare({})
        written = clock.timed(lambda call, s=store: [s.write(part) for part in parts])
        read = clock.timed(lambda call, s=store: s.last_values())
        compacted = clock.timed(lambda call, s=store: compact(s.folder))
        turns.append(
            {
                "parts-written": [n_parts / written(0)],
                "parts-read": [n_parts / read(0)],
                "rows-compacted": [n_rows / compacted(0)],
                "bytes": [
                    sum(path.stat().st_size for path in store.parts.iterdir()) / n_rows,
                    store.table.stat().st_size / n_rows,
                ],
            }
        )
    note = f"{n_parts} parts of {ROWS} rows"
    return {
        key: Measured(np.median([turn[key] for turn in turns], 0).tolist(), note=note)
        for key in turns[0]
    }


def written_parts(n: int) -> list[list[dict[str, Any]]]:
    """Returns the rows of `n` parts, like those of a sweep.

    Every metric is random, so that none compresses better than real metrics.
    """
    rng = np.random.default_rng(0)
    row = jaxrecall.simulate(Point(V=16, N=64, d=16, L=4, n_test=64), 0)
    parts = []
    for i in range(n):
        table = pd.DataFrame([row] * ROWS).assign(seconds=0.1, bucket="512x128")
        for name, (kind, _) in COLUMNS.items():
            if kind == "float64":
                table[name] = rng.random(ROWS, np.float32)
            elif kind == "int64":
                table[name] = rng.integers(0, 2048, ROWS)
        table["draw_check"] = rng.integers(0, 2**32, ROWS)
        fields = Point(V=512, N=1024 + i, d=128, L=16).values()
        parts.append(table.assign(**fields, seed=range(ROWS)).to_dict("records"))
    return parts


FIGURES = {
    function.__name__: function for function in (fitted, estimated, searched, stored)
}
