"""Measures on a CPU how an accelerator's programs use their places.

The runs of a batch are vmapped, as on an accelerator. Each of them goes through the
longest loops among them, and a place without a run takes the time of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxrecall import Point
from jaxrecall.model.point import Run
from jaxrecall.simulator import program
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.sweep.simulators import shipped

from .bench import Bench
from .clock import Engine, medians, timed
from .record import Measured
from .work import points, runs

WIDTHS = (16, 32, 64, 128)
SHOWN_WIDTH = 32


def places(bench: Bench) -> dict[str, Measured]:
    """Measures a single run at two widths, and the useful share of places in S1."""
    return {"one-run": one_run(bench), "token-slots": token_slots(bench)}


def one_run(bench: Bench) -> Measured:
    """Measures a run alone in the largest program, over the same run in the program of
    `simulate`.
    """
    (point,) = points(bench.work.grid("one-run"))
    engines = {
        f"width {width}": at_width(point, width)
        for width in (program.LOOPED, program.width_for(1))
    }
    seconds = bench.interleaved(engines)
    wide, narrow = medians(seconds).values()
    return Measured([wide / narrow], seconds=seconds)


def at_width(point: Point, width: int) -> Engine:
    """Prepares a single run in a program that vmaps `width` runs."""
    executable = program.compiled(Shape.tight(point), width, vmapped=True)
    engine = timed(lambda call: program.execute(executable, [Run(point, call)]))
    engine(0)
    return engine


def token_slots(bench: Bench) -> Measured:
    """Computes which share of the tokens that vmapped runs of S1 go through is theirs.

    The batches are those of runs that are sorted by their cost, and those of runs in
    the order of the sweep engine.
    """
    every = [Run(*run) for run in runs(bench.work.grid("S1"))]
    (shape,) = shipped.RECALL.programs(dict.fromkeys([run.point for run in every], 1))

    def cost(run: Run) -> float:
        return shipped.RECALL.cost(shape, run.point).seconds

    table = []
    for width in WIDTHS:
        by_cost = useful_share(every, cost, width)
        as_sorted = useful_share(every, shipped._loop_lengths, width)
        table.append({"width": width, "by cost": by_cost, "by N and L": as_sorted})
    shown = next(row for row in table if row["width"] == SHOWN_WIDTH)
    return Measured(
        [100 * shown["by cost"], 100 * shown["by N and L"]],
        note="computed from the points",
        table=table,
    )


def useful_share(every: list[Run], order: Callable[[Run], Any], width: int) -> float:
    """Returns the tokens of all runs over the tokens that all places go through."""
    in_order = sorted(every, key=order, reverse=True)
    useful = sum(run.point.N * run.point.L for run in every)
    slots = 0
    for first in range(0, len(in_order), width):
        of_batch = [run.point for run in in_order[first : first + width]]
        longest_N = max(point.N for point in of_batch)
        longest_L = max(point.L for point in of_batch)
        slots += width * longest_N * longest_L
    return useful / slots
