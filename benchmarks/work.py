"""The reference work, and a small version of it so that a test can run everything.

R1  one attention-only run           S1  144 small runs
R2  one run with an MLP              S2  a lab's sweep of 15,360 runs, of which a sample
is run
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from jaxrecall import Point

Axes = Mapping[str, Sequence[Any]]
Cell = tuple[int, int, int]  # V, d, L


@dataclass(frozen=True)
class Sweep:
    """A product of axes, or of the cells (V, d, L) with the axis N."""

    name: str
    seeds: int
    axes: Axes
    cells: Sequence[Cell] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def grid(self) -> str:
        """Returns the text of the grid file."""
        blocks = [{"axes": dict(self.axes)}]
        if self.cells:
            V, d, L = (list(column) for column in zip(*self.cells, strict=True))
            blocks = [{"axes": {"zip": {"V": V, "d": d, "L": L}, "N": self.axes["N"]}}]
        base = {"m": 0, **self.fixed}
        return yaml.safe_dump(
            {
                "schema": 1,
                "name": self.name,
                "base": base,
                "seeds": {"count": self.seeds},
                "blocks": blocks,
            }
        )

    def points(self) -> list[Point]:
        """Returns the points of the grid file, for the peers."""
        if self.cells:
            return [
                Point(V=V, d=d, L=L, N=N, **self.fixed)
                for (V, d, L), N in itertools.product(self.cells, self.axes["N"])
            ]
        return [
            Point(**dict(zip(self.axes, values, strict=True)), **self.fixed)
            for values in itertools.product(*self.axes.values())
        ]

    def runs(self) -> Iterator[tuple[Point, int]]:
        return itertools.product(self.points(), range(self.seeds))

    def sample(self, cells: Sequence[Cell]) -> Sweep:
        """Returns the sweep restricted to some cells (V, d, L), with every N."""
        return Sweep(
            f"{self.name}-sample", self.seeds, {"N": self.axes["N"]}, cells, self.fixed
        )


@dataclass(frozen=True)
class Work:
    R1: Point
    R2: Point
    S1: Sweep
    S2: Sweep
    S2_cells: Sequence[Cell]
    memory: Point
    memory_N: Sequence[int]
    search: Sweep  # the dense grid that is compared with a search over the same N
    pool: Point  # one run with a pool
    pool_exact_N: int  # the N of the exact run, without a pool
    pool_N: Sequence[int]
    pool_L: Sequence[int]
    pool_many: Point  # a run that is swept over many seeds
    pool_seeds: int
    later: Sweep  # runs with further steps
    later_peers: int  # the number of these runs that each peer makes


_S2 = {
    "V": [64, 128, 256, 512],
    "d": [16, 24, 32, 48, 64, 96, 128, 192],
    "L": [4, 8, 16, 32, 64],
    "N": [round(2 ** (9 + 7 * k / 11)) for k in range(12)],
}

FULL = Work(
    R1=Point(V=1000, N=131072, d=128, L=64),
    R2=Point(V=1000, N=65536, d=64, L=32, m=1024),
    S1=Sweep(
        "S1",
        2,
        {
            "V": [64, 128, 256],
            "d": [16, 32, 64, 128],
            "L": [8, 32],
            "N": [1024, 4096, 16384],
        },
    ),
    S2=Sweep("S2", 8, _S2),
    # each d once, each V twice, every L; the means of L d, V d and L differ by at most
    # 2 % from those of the whole sweep
    S2_cells=[
        (512, 16, 16),
        (64, 24, 8),
        (256, 32, 8),
        (64, 48, 64),
        (128, 64, 32),
        (256, 96, 4),
        (512, 128, 64),
        (128, 192, 4),
    ],
    memory=Point(V=256, N=1, d=64, L=16),
    memory_N=(100_000, 1_000_000, 10_000_000),
    search=Sweep(
        "dense",
        16,
        {"N": [round(2 ** (6 + k / 2)) for k in range(19)]},
        [(32, 64, 8), (64, 64, 8), (64, 128, 32), (128, 128, 8)],
    ),
    pool=Point(V=256, N=10**6, d=128, L=4096, pool=512),
    pool_exact_N=8192,
    pool_N=[10**k for k in range(4, 13)],
    pool_L=[64, 256, 1024, 4096, 16384, 65536],
    pool_many=Point(V=128, N=2 * 10**6, d=64, L=4096, pool=256),
    pool_seeds=1000,
    later=Sweep(
        "later",
        8,
        {"lr": [0.5 * 2**k for k in range(8)]},
        fixed={"V": 64, "N": 1024, "d": 32, "L": 8, "steps": 1000, "gamma2": 64},
    ),
    later_peers=8,
)

_SMALL: dict[str, Any] = {"n_test": 128}
TINY = Work(
    R1=Point(V=16, N=1024, d=16, L=4, **_SMALL),
    R2=Point(V=16, N=512, d=16, L=4, m=16, **_SMALL),
    S1=Sweep(
        "S1-tiny", 2, {"V": [16], "d": [16], "L": [4, 6], "N": [512]}, fixed=_SMALL
    ),
    S2=Sweep(
        "S2-tiny",
        2,
        {"V": [12, 16], "d": [8, 16], "L": [4], "N": [512, 1024]},
        fixed=_SMALL,
    ),
    S2_cells=[(12, 16, 4), (16, 8, 4)],
    memory=Point(V=16, N=1, d=16, L=4, **_SMALL),
    memory_N=(512, 2048),
    search=Sweep("dense-tiny", 6, {"N": [32, 64, 128, 256, 512]}, [(8, 32, 4)], _SMALL),
    pool=Point(V=16, N=2048, d=16, L=64, pool=32, **_SMALL),
    pool_exact_N=512,
    pool_N=(10**3, 10**9),
    pool_L=(8, 4096),
    pool_many=Point(V=16, N=1024, d=16, L=64, pool=32, **_SMALL),
    pool_seeds=4,
    later=Sweep(
        "later-tiny",
        2,
        {"lr": [1.0, 2.0]},
        fixed={"V": 16, "N": 512, "d": 16, "L": 4, "steps": 20, "gamma2": 16, **_SMALL},
    ),
    later_peers=2,
)
