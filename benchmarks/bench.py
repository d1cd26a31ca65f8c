"""The objects that every group of measurements needs.

These are the work, a temporary folder, progress messages, and the engines to compare.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jaxrecall
from jaxrecall import Point

from . import clock
from .clock import Engine, medians, timed
from .record import Measured
from .work import Work

TORCH = "torch loop"
BAG = "torch loop, embedding_bag"
OURS = "jaxrecall"
FULL = "jaxrecall, exact: full"
NO_TORCH = "torch is not installed: pip install '.[bench]'"


@dataclass
class Bench:
    """The context of a measurement; `folder` is temporary."""

    work: Work
    tiny: bool
    rounds: int
    log: Callable[[str], None]
    folder: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def new_folder(self) -> Path:
        return self.folder / str(next(self.numbers))

    def interleaved(
        self, engines: Mapping[str, Engine], rounds: int | None = None
    ) -> dict[str, list[float]]:
        return clock.interleaved(engines, rounds or self.rounds, self.log)


def torch_engines(
    runs: Callable[[int], Sequence[tuple[Point, int]]],
) -> dict[str, Engine]:
    """Returns both forms of the torch loop over the runs of a call, after a first call.

    The dict is empty if torch is not installed.
    """
    try:
        from . import torch_loop
    except ModuleNotFoundError:
        return {}

    def engine(form: str) -> Engine:
        # starts the threads of torch
        torch_loop.run(Point(V=16, N=64, d=16, L=4, n_test=64), 0, form)
        return timed(
            lambda call: [
                torch_loop.run(point, seed, form) for point, seed in runs(call)
            ]
        )

    return {TORCH: engine("keys"), BAG: engine("bag")}


def against_torch(
    seconds: Mapping[str, list[float]],
    ours: str = OURS,
    scale: float = 1.0,
    note: str = "",
) -> Measured:
    """Returns the row torch loop / ours, or a note if torch is not installed.

    `scale` corrects for unequal work.
    """
    at = medians(seconds)
    if TORCH not in at:
        return Measured(note=f"not run: {NO_TORCH}", seconds={ours: seconds[ours]})
    shown = {name: seconds[name] for name in (TORCH, BAG, ours)}
    return Measured(
        [scale * at[TORCH] / at[ours]],
        f"{scale * at[BAG] / at[ours]:.3g}x",
        note,
        shown,
    )


def simulator(point: Point) -> Engine:
    """Returns an engine that calls `jaxrecall.simulate` with another seed each time.

    The program is already compiled.
    """
    jaxrecall.simulate(point, 0)
    return timed(lambda call: jaxrecall.simulate(point, call))
