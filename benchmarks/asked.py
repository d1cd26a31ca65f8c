"""The figures that are asked for: each with its requirement and how it is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

TIMES = "{:.3g}x".format
NUMBER = "{:.2f}".format
COUNT = "{:.0f}".format
PERCENT = "{:.0f} %".format
SHORT = "{:.3g}".format


class Program(NamedTuple):
    """A program of programs.py, and the fields that are changed in its work."""

    name: str
    fields: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        changed = [f"{name}: {value}" for name, value in self.fields]
        return ", ".join([self.name, *changed])


def ours(**fields: Any) -> Program:
    return Program("jaxrecall", tuple(fields.items()))


OURS = ours()
FULL = ours(exact="full")
TORCH = Program("torch loop")
BAG = Program("torch loop, embedding_bag")
VMAP = Program("jit and vmap over seeds")
COLD = Program("jaxrecall, cold")
TWO = Program("two workers, two cores")
BOTH_CORES = ("one process, 2 threads", "two processes, 1 thread each")
"""The ways in which the torch loop uses two cores."""


def on_both_cores(loop: Program) -> tuple[Program, ...]:
    return tuple(Program(f"{loop.name}, {way}") for way in BOTH_CORES)


@dataclass(frozen=True)
class Ratio:
    """The time of a program over that of another, for a grid of work.yaml.

    Of several programs, the fastest counts. The ratio of `beside` is shown in a column
    of its own, and that of `also` in the remarks.
    """

    work: str
    over: tuple[Program, ...]
    under: Program = OURS
    beside: tuple[Program, ...] = ()
    also: tuple[Program, ...] = ()
    less_one: bool = False
    """Whether the figure is the ratio less one, in percent."""

    @property
    def programs(self) -> tuple[Program, ...]:
        return (*self.over, *self.beside, *self.also, self.under)


def against_torch(work: str, under: Program = OURS) -> Ratio:
    return Ratio(work, (TORCH,), under, (BAG,))


def ratio(work: str, over: Program, under: Program = OURS) -> Ratio:
    return Ratio(work, (over,), under)


@dataclass(frozen=True)
class Each:
    """The ratio at each point of a grid.

    The values are a summary of the ratios. The table shows some fields of the points.
    """

    ratio: Ratio
    fields: Sequence[str]
    summary: Callable[[list[float]], list[float]]


@dataclass(frozen=True)
class Slope:
    """The log-log slope of the time of a run against the only axis of a grid."""

    work: str
    axis: str


@dataclass(frozen=True)
class Peaks:
    """The peak memory at the last point of a grid over that at its first point."""

    work: str


class Asked(NamedTuple):
    """A figure, its required and desired values, its group, and what measures it.

    Some functions measure several figures at once. The text `how` is their name in
    `runner.OWN`.
    """

    key: str
    group: str
    figure: str
    how: Ratio | tuple[Ratio, ...] | Each | Slope | Peaks | str
    bar: str = ""
    aim: str = ""
    units: Sequence[Callable[[float], str]] = (TIMES,)
    at_most: bool = False


AT_1E4 = {"eta": 1e-4}
OPEN = {"eta": 1e-4, "kappa": 1}

ASKED = (
    Asked(
        "R1",
        "R1",
        "R1, torch loop / jaxrecall",
        against_torch("R1"),
        "80x",
        "200x",
    ),
    Asked(
        "R1-full",
        "R1",
        "R1 with `exact: full`, torch loop / jaxrecall",
        against_torch("R1", FULL),
        "20x",
        "35x",
    ),
    Asked(
        "R1-vmap",
        "R1",
        "R1, jit and vmap over seeds / jaxrecall",
        ratio("R1", VMAP),
    ),
    Asked(
        "R2",
        "R2",
        "R2, torch loop / jaxrecall",
        against_torch("R2"),
        "10x",
        "20x",
    ),
    Asked(
        "R1-floor",
        "R1",
        "R1, jaxrecall / floor of the words, lookups and scatters that its form needs",
        ratio("R1", OURS, Program("floor")),
        "2.0",
        "1.2",
        (NUMBER,),
        True,
    ),
    Asked(
        "S1-warm",
        "S1",
        "S1 warm, torch loop / jaxrecall",
        against_torch("S1"),
        "20x",
        "50x",
    ),
    Asked(
        "S1-vmap",
        "S1",
        "S1 warm, jit and vmap over seeds / jaxrecall",
        ratio("S1", VMAP),
    ),
    Asked(
        "S1-cold-torch",
        "cold",
        "S1 cold (empty compile cache, compile counted, import not),"
        " torch loop / jaxrecall",
        Ratio(
            "S1",
            (Program("torch loop, cold"),),
            COLD,
            (Program("torch loop, embedding_bag, cold"),),
        ),
        "5x",
        "9x",
    ),
    Asked(
        "S1-cold-jax",
        "cold",
        "S1 cold, jax loop / jaxrecall",
        ratio("S1", Program("jax loop, cold"), COLD),
        "40x",
        "100x",
    ),
    Asked(
        "S1-cold-vmap",
        "cold",
        "S1 cold, jit and vmap over seeds / jaxrecall",
        ratio("S1", Program(f"{VMAP}, cold"), COLD),
    ),
    Asked(
        "compiling",
        "cold",
        "S1's program, processor seconds to trace and compile it: light, thorough",
        "compiled",
        units=(SHORT, SHORT),
    ),
    Asked(
        "S2-warm",
        "S2",
        "S2 warm, runs per second over the torch loop's (a stated sample of its"
        " points)",
        Ratio(
            "S2-sample",
            (Program("torch loop, one seed"),),
            Program("jaxrecall, in the programs of S2"),
            (Program("torch loop, embedding_bag, one seed"),),
        ),
        "15x",
        "40x",
    ),
    Asked(
        "programs",
        "cold",
        "programs compiled: S1, S2",
        "compiled",
        "4, 8",
        "2, 4",
        (COUNT, COUNT),
        True,
    ),
    Asked(
        "second",
        "cold",
        "second process on the same grid with the persistent cache: programs compiled",
        "compiled",
        "0",
        "0",
        (COUNT,),
        True,
    ),
    Asked(
        "memory",
        "memory",
        "peak RSS, N = 1e7 over N = 1e5 (V 256, d 64, L 16)",
        Peaks("memory"),
        "1.10",
        "1.02",
        (NUMBER,),
        True,
    ),
    Asked(
        "slope",
        "memory",
        "log-log slope of time against N from 1e5 to 1e7",
        Slope("memory", "N"),
        "1.03",
        "1.00",
        (NUMBER,),
        True,
    ),
    Asked(
        "search",
        "search",
        "threshold search: samples simulated for the same CI width,"
        " dense grid / search",
        "searched",
        "4x",
        "10x",
    ),
    Asked(
        "pool",
        "pool",
        "exact run (measured at N = 8192, scaled) / pool run: V 256, d 128, L 4096,"
        " N 1e6, K 512",
        ratio("pool", Program("jaxrecall, without a pool")),
        "500x",
        "3000x",
    ),
    Asked(
        "pool-N",
        "pool",
        "log-log slope of a pool run's time against N from 1e4 to 1e12",
        Slope("pool-N", "N"),
        "0.05",
        "0.02",
        (NUMBER,),
        True,
    ),
    Asked(
        "pool-L",
        "pool",
        "log-log slope of a pool run's time against L from 64 to 65536",
        Slope("pool-L", "L"),
        "0.25",
        "0.1",
        (NUMBER,),
        True,
    ),
    Asked(
        "pool-memory",
        "pool",
        "peak RSS of a pool run, N 1e15 and L 1e9 over N 1e4 and L 64",
        Peaks("pool-memory"),
        "1.10",
        "1.02",
        (NUMBER,),
        True,
    ),
    Asked(
        "pool-floor",
        "pool",
        "1,000 pool runs (V 128, d 64, K 256) / floor of their products and draws",
        ratio("pool-seeds", OURS, Program("floor of pools")),
        "2.5",
        "1.5",
        (NUMBER,),
        True,
    ),
    Asked(
        "guard",
        "guard",
        "guarded / full, worst over V 16-1024, d 16-2048, L 2-512, m 0 and 512",
        "guarded",
        "1.1",
        "0.8",
        (NUMBER,),
        True,
    ),
    Asked(
        "estimates",
        "estimates",
        "estimate / measured, or its inverse, worst of twenty grids:"
        " at first, once more",
        "estimated",
        "2, 2",
        "1.3, 1.3",
        (NUMBER, NUMBER),
        True,
    ),
    Asked(
        "parts",
        "estimates",
        "V 64, d 64, 256 and 1024, 200 seeds in one grid / in three, summed:"
        " cold, warm",
        "in_parts",
        "1.3, 1.3",
        "1.1, 1.1",
        (NUMBER, NUMBER),
        True,
    ),
    Asked(
        "later",
        "later",
        "64 runs of 1000 steps (8 rates x 8 seeds; V 64, d 32, L 8, N 1024),"
        " torch loop on both cores / jaxrecall",
        Ratio(
            "later",
            on_both_cores(TORCH),
            OURS,
            on_both_cores(BAG),
            (Program("jax loop, some runs"),),
        ),
        "4x",
        "10x",
    ),
    Asked(
        "from-tokens",
        "locked",
        "further steps with locked attention, N = 16 V, from samples / from tokens:"
        " least of six runs, median",
        Each(
            ratio("locked", FULL),
            ("V", "d", "L", "m", "optimizer"),
            lambda ratios: [min(ratios), median(ratios)],
        ),
        "5x, 5x",
        "10x, 10x",
        (TIMES, TIMES),
    ),
    Asked(
        "zipf-full",
        "laws",
        "R1 with `exact: full`, zipf tokens / uniform ones",
        ratio("R1", ours(exact="full", tokens="zipf"), FULL),
        "1.3",
        "1.1",
        (NUMBER,),
        True,
    ),
    Asked(
        "zipf-guarded",
        "laws",
        "R1 with zipf tokens, guarded / full",
        ratio("R1", ours(tokens="zipf"), ours(exact="full", tokens="zipf")),
        "0.5",
        "0.2",
        (NUMBER,),
        True,
    ),
    Asked(
        "zipf-S1",
        "laws",
        "S1 warm, zipf tokens / uniform ones: as it is, at eta 1e-4, at eta 1e-4 with"
        " open attention in both",
        (
            ratio("S1", ours(tokens="zipf")),
            ratio("S1", ours(tokens="zipf", **AT_1E4), ours(**AT_1E4)),
            ratio("S1", ours(tokens="zipf", **OPEN), ours(**OPEN)),
        ),
        "1.3, 1.3, 1.3",
        "1.1, 1.1, 1.1",
        (NUMBER, NUMBER, NUMBER),
        True,
    ),
    Asked(
        "structured",
        "laws",
        "R1, structured embeddings / gaussian ones, worst of four laws",
        Each(
            ratio("structured", OURS, ours(embedding="gaussian")),
            ("embedding",),
            lambda ratios: [max(ratios)],
        ),
        "1.2",
        "1.05",
        (NUMBER,),
        True,
    ),
    Asked(
        "two-workers",
        "engines",
        "two workers on two cores / one worker on one, steady state",
        ratio("engines", Program("one worker, one core"), TWO),
        "1.7x",
        "1.9x",
    ),
    Asked(
        "ray",
        "engines",
        "Ray, two actors: time over that of two workers, less one",
        Ratio("engines", (Program("two Ray tasks, two cores"),), TWO, less_one=True),
        "15 %",
        "5 %",
        (PERCENT,),
        True,
    ),
    Asked(
        "fit",
        "fit",
        "fit of 10^6 rows: seconds; peak GiB",
        "fitted",
        "60; 4",
        "30; 1",
        (COUNT, NUMBER),
        True,
    ),
    Asked(
        "one-run",
        "vmapped",
        "one run vmapped on a CPU, in a program of 16 runs / in that of `simulate`",
        "places",
    ),
    Asked(
        "token-slots",
        "vmapped",
        "tokens of the runs of S1 / tokens that batches of 32 go through: sorted by"
        " cost, by N and L",
        "places",
        units=(PERCENT, PERCENT),
    ),
    Asked(
        "parts-written",
        "scale",
        "parts of 1000 rows written per second, each fsynced and read back",
        "stored",
        units=(SHORT,),
    ),
    Asked(
        "parts-read",
        "scale",
        "parts of 1000 rows listed and read per second, to know what is done",
        "stored",
        units=(SHORT,),
    ),
    Asked(
        "rows-compacted",
        "scale",
        "rows compacted per second",
        "stored",
        units=(SHORT,),
    ),
    Asked(
        "bytes",
        "scale",
        "bytes a row: in parts of 1000, in the compacted table",
        "stored",
        units=(SHORT, SHORT),
    ),
)
GROUPS = tuple(dict.fromkeys(row.group for row in ASKED))
