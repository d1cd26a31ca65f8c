"""Measures whether a plan can be trusted, and the cost of sharing programs.

Estimated times are compared with measured times on grids of all kinds.
"""

from __future__ import annotations

import tempfile
from typing import Any

from . import clock
from .bench import Bench
from .record import Measured


def against_measured(bench: Bench) -> dict[str, Measured]:
    """Compares the estimate of each grid with its time to the last row.

    The grids run one after the other, in fresh processes that share a cache, and then
    all again.
    """
    cache = tempfile.mkdtemp(dir=bench.folder)
    grids: dict[str, Any] = bench.work.documents["estimates"]
    table: list[dict[str, Any]] = [{"grid": name} for name in grids]
    worst = []
    for turn in ("", "again: "):
        ratios = []
        for line, (name, grid) in zip(table, grids.items(), strict=True):
            workers = ["--workers", "2"] if name == "two workers" else []
            answer = clock.fresh(
                "sweep", cache, grid=grid, arguments=workers, estimated=True
            )
            estimate, seconds = answer["estimate"], answer["seconds"]
            ratio = estimate / seconds
            line |= {
                "runs": answer["rows"],
                f"{turn}estimate, s": estimate,
                f"{turn}measured, s": seconds,
                f"{turn}ratio": ratio,
            }
            bench.log(f"{turn}{name}: estimate {estimate:.3g} s, took {seconds:.3g} s")
            ratios.append(max(ratio, 1 / ratio))
        worst.append(max(ratios))
    note = f"{len(table)} grids, one after the other, with one cache; then all again"
    return {"estimates": Measured(worst, note=note, table=table)}


def in_parts(bench: Bench) -> dict[str, Measured]:
    """Measures a grid of three widths against three grids of one width each.

    Each grid runs in a fresh process and has its own cache.
    """
    whole = bench.work.grid("parts")
    grids = {"all": whole}
    for d in whole["blocks"][0]["axes"]["d"]:
        grids[f"d = {d}"] = whole | {"blocks": [{"axes": {"d": [d]}}]}
    caches = {name: tempfile.mkdtemp(dir=bench.folder) for name in grids}
    row = Measured(note=f"{whole['seeds']} seeds, {whole['base']}")
    for turn, rounds in (("cold", 1), ("warm", bench.rounds)):
        seconds = {
            f"{name}, {turn}": [
                clock.fresh("sweep", caches[name], grid=grid)["seconds"]
                for _ in range(rounds)
            ]
            for name, grid in grids.items()
        }
        together, *apart = clock.medians(seconds).values()
        bench.log(f"{turn}: {together:.3g} s in one grid, {sum(apart):.3g} s in parts")
        row.values.append(together / sum(apart))
        row.seconds |= seconds
    return {"parts": row}
