"""Measures the cost of the guard, over a design of sizes.

The cost is the time of a guarded run over the time of the same run in the full form.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from jaxrecall import Point
from jaxrecall.model.point import Run
from jaxrecall.simulator import program
from jaxrecall.simulator.program_shape import Shape

from .bench import Bench
from .clock import medians, timed
from .record import Measured

DESIGN: tuple[tuple[dict[str, Any], tuple[tuple[int, int, int], ...]], ...] = (
    (
        {},
        (
            (16, 16, 2),
            (16, 256, 512),
            (16, 2048, 32),
            (64, 16, 512),
            (64, 64, 8),
            (64, 256, 512),
            (64, 1024, 8),
            (256, 16, 2),
            (256, 64, 32),
            (256, 1024, 8),
            (1024, 16, 512),
            (1024, 256, 8),
            (1024, 2048, 2),
        ),
    ),
    (
        {"m": 512},
        ((16, 16, 2), (64, 64, 32), (64, 1024, 32), (256, 16, 512), (1024, 128, 8)),
    ),
    ({"pool": 64}, ((16, 16, 2), (64, 64, 512), (256, 256, 32), (1024, 64, 8))),
    ({"pool": 64, "m": 512}, ((64, 64, 32),)),
    ({"diagnose": True}, ((64, 64, 8), (256, 1024, 8))),
    ({"diagnose": True, "m": 512}, ((64, 64, 32),)),
    ({"decoders": True}, ((64, 64, 8), (64, 512, 32), (256, 32, 512))),
)
"""Extras, and the sizes (V, d, L) to measure with them.

Every size ranges from its least to its largest value. N is small, so that the guard has
the largest share of the time.
"""

TINY = (({}, ((16, 16, 4), (64, 16, 64))),)
N = 256


def points(tiny: bool) -> Iterator[Point]:
    for extras, sizes in TINY if tiny else DESIGN:
        for V, d, L in sizes:
            yield Point(V=V, d=d, L=L, N=N, **extras)


def worst(bench: Bench) -> dict[str, Measured]:
    """Measures the largest ratio, with a table of all ratios.

    If the guard rejects a run, the time of the full run that follows is added.
    """
    table = [against_full(bench, point) for point in points(bench.tiny)]
    largest = max(table, key=lambda entry: entry["guarded / full"])
    where = ", ".join(
        f"{name} {largest[name]}" for name in ("V", "d", "L", "m", "with")
    )
    return {
        "guard": Measured(
            [largest["guarded / full"]],
            note=f"worst of {len(table)} points: {where}",
            table=table,
        )
    }


def against_full(bench: Bench, point: Point) -> dict[str, Any]:
    """Measures one line of the table."""
    extras = [name for name in ("pool", "diagnose", "decoders") if getattr(point, name)]
    about = {
        "V": point.V,
        "d": point.d,
        "L": point.L,
        "m": point.m,
        "with": ", ".join(extras),
    }
    shape = Shape.tight(point)
    # nothing to measure: such a point is expected to be rejected, and runs in full
    if shape.fallback is None:
        return {
            **about,
            "form": shape.form,
            "guarded / full": 1.0,
            "turned away": "",
            "guarded, s": "",
            "full, s": "",
        }
    attempts = itertools.count(1)
    turned_away = []

    def attempt(call: int) -> None:
        (metrics,), _ = program.execute(guarded, [Run(point, next(attempts))])
        turned_away.append(metrics is None)

    guarded, full = program.compiled(shape), program.compiled(shape.fallback)
    engines = {
        "guarded": timed(attempt),
        "full": timed(
            lambda call: program.execute(full, [Run(point.replace(exact="full"), call)])
        ),
    }
    for engine in engines.values():
        engine(0)
    at = medians(bench.interleaved(engines))
    share = sum(turned_away) / len(turned_away)
    times = {"guarded, s": at["guarded"], "full, s": at["full"]}
    return {
        **about,
        "form": shape.form,
        "guarded / full": at["guarded"] / at["full"] + share,
        "turned away": share,
        **times,
    }
