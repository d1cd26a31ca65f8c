"""The groups of measurements: name -> the function that measures its rows."""

from __future__ import annotations

from collections.abc import Callable

from . import engines, estimates, gpu, guard, later, laws, pool, runs, scale, search
from .bench import Bench
from .record import Measured

MEASURE: dict[str, Callable[[Bench], dict[str, Measured]]] = {
    "R1": runs.r1,
    "R2": runs.r2,
    "S1": runs.s1,
    "cold": runs.cold,
    "S2": runs.s2,
    "memory": runs.memory,
    "search": search.against_dense,
    "pool": pool.figures,
    "guard": guard.worst,
    "estimates": estimates.figures,
    "later": later.against_peers,
    "locked": later.from_tokens,
    "laws": laws.figures,
    "gpu": gpu.batched_and_matmul,
    "engines": engines.side_by_side,
    "fit": runs.fit,
    "scale": scale.figures,
}
