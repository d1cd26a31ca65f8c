"""Measures whether a plan can be trusted, and the cost of sharing programs.

Estimated times are compared with measured times on grids of all kinds.
"""

from __future__ import annotations

import tempfile
from typing import Any

import yaml

from . import clock
from .bench import Bench
from .record import Measured


def grid(seeds: int, axes: dict[str, Any], **base: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": "estimated",
        "base": base,
        "seeds": seeds,
        "blocks": [{"axes": axes}],
    }


def search(axes: dict[str, Any], to: int, **base: Any) -> dict[str, Any]:
    asked = {"axis": "N", "theta": 0.5, "from": 64, "to": to}
    return {
        "schema": 1,
        "name": "estimated",
        "base": base,
        "seeds": 200,
        "search": asked,
        "blocks": [{"axes": axes}],
    }


GRIDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "small runs": (
        grid(
            32,
            {"d": [16, 32, 64, 128], "N": [256, 512, 1024, 2048, 4096, 8192, 16384]},
            V=64,
            L=8,
        ),
        [],
    ),
    "wide d": (grid(160, {"N": [256, 1024, 4096]}, V=64, d=1024, L=8), []),
    "wider d": (grid(48, {"N": [256, 4096]}, V=128, d=2048, L=8), []),
    "several d": (grid(200, {"d": [64, 256, 1024]}, V=64, N=256, L=8), []),
    "wide V": (grid(120, {"N": [4096, 65536]}, V=1024, d=64, L=8), []),
    "wider V": (grid(60, {"N": [16384]}, V=4096, d=64, L=8), []),
    "several V": (grid(60, {"V": [64, 256, 1024], "N": [1024, 16384]}, d=64, L=16), []),
    "long L": (grid(16, {"N": [4096, 16384]}, V=64, d=64, L=1024), []),
    "large N": (grid(24, {"N": [10**6]}, V=256, d=64, L=16), []),
    "full form": (grid(128, {"N": [4096, 16384]}, V=256, d=64, L=32, exact="full"), []),
    "MLP": (grid(200, {"N": [1024, 8192]}, V=128, d=64, L=16, m=256), []),
    "MLP of several m": (
        grid(
            40,
            {"m": [32, 128, 512], "N": [1024, 8192]},
            V=128,
            d=64,
            L=16,
            activation="gelu",
        ),
        [],
    ),
    "pool": (grid(400, {"N": [10**6]}, V=128, d=64, L=4096, pool=256), []),
    "pool with an MLP": (
        grid(400, {"N": [10**6]}, V=64, d=32, L=256, pool=128, m=128),
        [],
    ),
    "search": (search({"V": [64, 128], "d": [48, 64, 96, 128]}, 32768, L=8), []),
    "diagnose": (grid(800, {"N": [1024, 8192]}, V=128, d=64, L=16, diagnose=True), []),
    "diagnose with an MLP": (
        grid(100, {"N": [1024, 4096]}, V=64, d=32, L=16, m=128, diagnose=True),
        [],
    ),
    "decoders": (grid(300, {"N": [1024, 8192]}, V=128, d=64, L=16, decoders=True), []),
    "many seeds": (grid(2500, {"N": [512]}, V=64, d=32, L=16), []),
    "two workers": (
        grid(64, {"V": [64, 128], "d": [32, 64], "N": [4096, 16384, 65536]}, L=16),
        ["--workers", "2"],
    ),
}
"""Twenty kinds of grid with their arguments; each takes a few seconds on two cores."""

TINY = {
    "small runs": (grid(2, {"N": [64, 128]}, V=16, d=16, L=4, n_test=128), []),
    "search": (search({"d": [32]}, 512, V=8, L=4, n_test=128), []),
}


def figures(bench: Bench) -> dict[str, Measured]:
    return against_measured(bench) | parts(bench)


def against_measured(bench: Bench) -> dict[str, Measured]:
    """Measures every grid twice, each time in a fresh process.

    In the first turn, an estimate can use only what earlier grids have taught. The
    second turn repeats all grids. The estimate is that of a dry run, right before the
    sweep. Estimate and measurement both cover the time from after the imports to the
    last row.
    """
    cache = tempfile.mkdtemp(dir=bench.folder)
    grids = TINY if bench.tiny else GRIDS
    table: list[dict[str, Any]] = [{"grid": name} for name in grids]
    largest = []
    for turn in ("first", "again"):
        for entry, (asked, arguments) in zip(table, grids.values(), strict=True):
            answer = clock.fresh(
                "estimated", cache, grid=yaml.safe_dump(asked), arguments=arguments
            )
            estimate, seconds = answer["estimate"], answer["seconds"]
            of = f"{turn}: " if turn == "again" else ""
            entry |= {
                "runs": answer["rows"],
                f"{of}estimate, s": estimate,
                f"{of}measured, s": seconds,
                f"{of}ratio": estimate / seconds,
            }
            bench.log(
                f"{turn}, {entry['grid']}: estimate {estimate:.3g} s, measured"
                f" {seconds:.3g} s"
            )
        ratios = [
            entry["ratio" if turn == "first" else "again: ratio"] for entry in table
        ]
        largest.append(max(max(ratio, 1 / ratio) for ratio in ratios))
    note = f"{len(table)} grids, one after the other, with one cache; then all again"
    return {"estimates": Measured(largest, note=note, table=table)}


def parts(bench: Bench) -> dict[str, Measured]:
    """Measures a grid of three widths against three grids of one width each.

    Each grid runs in a fresh process and has its own cache.
    """
    widths, seeds, base = (
        ((8, 24), 4, {"V": 16, "N": 64, "L": 4})
        if bench.tiny
        else ((64, 256, 1024), 200, {"V": 64, "N": 256, "L": 8})
    )
    asked = {"all": list(widths), **{f"d = {d}": [d] for d in widths}}
    caches = {name: tempfile.mkdtemp(dir=bench.folder) for name in asked}
    found, seconds = [], {}
    for turn, rounds in (("cold", 1), ("warm", bench.rounds)):
        engines = {
            f"{name}, {turn}": _sweep(caches[name], grid(seeds, {"d": d}, **base))
            for name, d in asked.items()
        }
        times = {
            name: [engine() for _ in range(rounds)] for name, engine in engines.items()
        }
        at = clock.medians(times)
        bench.log(
            f"{turn}: " + ", ".join(f"{name} {s:.3g} s" for name, s in at.items())
        )
        found.append(
            at[f"all, {turn}"]
            / sum(s for name, s in at.items() if not name.startswith("all"))
        )
        seconds |= times
    return {"parts": Measured(found, note=f"{seeds} seeds, {base}", seconds=seconds)}


def _sweep(cache: str, asked: dict[str, Any]) -> Any:
    return lambda: clock.fresh(
        "estimated", cache, grid=yaml.safe_dump(asked), arguments=[]
    )["seconds"]
