"""Measures the cost of the guard, over a design of sizes.

The cost is the time of a guarded run over the time of the same run in the full form.
"""

from __future__ import annotations

import itertools
from typing import Any

from jaxrecall import Point
from jaxrecall.model.point import Run
from jaxrecall.simulator import program
from jaxrecall.simulator.program_shape import Shape

from .bench import Bench
from .clock import medians, timed
from .record import Measured
from .work import points


def worst(bench: Bench) -> dict[str, Measured]:
    """Measures the largest ratio, with a table of all ratios.

    If the guard rejects a run, the time of the full run that follows is added.
    """
    table = [against_full(bench, point) for point in points(bench.work.grid("guard"))]
    largest = max(table, key=lambda entry: entry["guarded / full"])
    where = ", ".join(
        f"{name} {largest[name]}" for name in ("V", "d", "L", "m", "with")
    )
    note = f"worst of {len(table)} points: {where}"
    return {"guard": Measured([largest["guarded / full"]], note=note, table=table)}


def against_full(bench: Bench, point: Point) -> dict[str, Any]:
    """Measures one line of the table."""
    extras = [name for name in ("pool", "diagnose", "decoders") if getattr(point, name)]
    shape = Shape.tight(point)
    line = {name: getattr(point, name) for name in ("V", "d", "L", "m")}
    line |= {"with": ", ".join(extras), "form": shape.form}
    # nothing to measure: such a point is expected to be rejected, and runs in full
    if shape.fallback is None:
        unmeasured = dict.fromkeys(("turned away", "guarded, s", "full, s"), "")
        return line | {"guarded / full": 1.0} | unmeasured
    seeds = itertools.count(1)
    turned_away = []
    guarded, full = program.compiled(shape), program.compiled(shape.fallback)

    def attempt(call: int) -> None:
        (metrics,), _ = program.execute(guarded, [Run(point, next(seeds))])
        turned_away.append(metrics is None)

    def in_full(call: int) -> None:
        program.execute(full, [Run(point.replace(exact="full"), call)])

    attempt(0)
    in_full(0)
    at = medians(bench.interleaved({"guarded": timed(attempt), "full": timed(in_full)}))
    share = sum(turned_away) / len(turned_away)
    return line | {
        "guarded / full": at["guarded"] / at["full"] + share,
        "turned away": share,
        "guarded, s": at["guarded"],
        "full, s": at["full"],
    }
