"""Single runs without a results folder: `jaxrecall.simulate`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from ..errors import MAX_LIST, PointError, Problem, as_list, expect
from ..model.point import MAX_SEED, Point, Run, checked_seed
from ..simulator.shape import Shape
from .cost import memory_limit, peak_bytes

if TYPE_CHECKING:
    from ..simulator.rows import Metrics

Row = dict[str, Any]

SEEDS = f"a whole number from 0 to {MAX_SEED}, or a list of up to {MAX_LIST}"


@overload
def simulate(point: Point, seed: int, *, trace: Literal[False] = False) -> Row: ...
@overload
def simulate(point: Point, seed: Iterable[int], *, trace: Literal[False] = False) -> list[Row]: ...
@overload
def simulate(point: Point, seed: int | Iterable[int], *, trace: Literal[True]) -> list[Row]: ...
@overload
def simulate(point: Point, seed: int | Iterable[int], *, trace: bool) -> Row | list[Row]: ...
def simulate(point: Point, seed: int | Iterable[int], *, trace: bool = False) -> Row | list[Row]:
    """The row that a sweep writes for (point, seed), without `seconds` and `bucket`: a dict of the columns in table order.

    For a list of seeds it returns a list of rows. Of a run that trains on, it is the row of the last step; with `trace` it returns
    a list of the rows of all recorded steps, in order of step, seed by seed. The first call for a shape compiles its program, which
    takes seconds; points of similar sizes share it, and the compiled program is kept for later processes. Raises PointError for what
    is no point, for seeds out of range or too many, and for a point that needs more than 80 % of this machine's memory.

        >>> from jaxrecall import Point, simulate
        >>> point = Point(V=64, N=1024, d=32, L=8)
        >>> row = simulate(point, seed=0)
        >>> rows = simulate(point, seed=range(8))
        >>> losses = [row["loss"] for row in simulate(point.replace(steps=100, lr=0.1), seed=0, trace=True)]
    """
    from ..simulator import program  # starts JAX

    expect("point", point, Point, "a jaxrecall.Point", PointError)
    several = isinstance(seed, Iterable) and not isinstance(seed, str)
    seeds = as_list("seed", seed, SEEDS, PointError) if several else [seed]
    wanted = [Run(point, checked_seed(one)) for one in seeds]
    _check_memory(point)
    program.start()
    runs = _rows(point, wanted)
    if trace:
        return [row for rows in runs for row in rows]
    last = [rows[-1] for rows in runs]
    return last if several else last[0]


def _check_memory(point: Point) -> None:
    """Raises PointError for a point whose program needs more memory than there is."""
    need, limit = peak_bytes(Shape.rounded(point)), memory_limit()
    if need > limit:
        name = max(("V", "d", "m"), key=lambda size: getattr(point, size))
        sizes = ", ".join(f"{size}={getattr(point, size)}" for size in ("V", "d", "m"))
        message = f"got {sizes}, which needs about {need / 2**20:.0f} MiB; allowed: {limit / 2**20:.0f} MiB, 80 % of this machine's memory"
        raise PointError([Problem(name, message)])


def _rows(point: Point, runs: Sequence[Run]) -> list[list[Row]]:
    """The rows of runs of one point, in their order. Those that a bound rejects run once more, in the exact form."""
    from ..simulator import program

    found: dict[Run, list[Metrics]] = {}
    shape = Shape.rounded(point)
    while shape and (left := [run for run in runs if run not in found]):
        compiled = program.compiled(shape)
        for i in range(0, len(left), compiled.batch):
            batch = left[i : i + compiled.batch]
            found |= {run: metrics for run, metrics in zip(batch, program.execute(compiled, batch)[0], strict=True) if metrics}
        shape = shape.fallback
    whole = (program.rows(run, found[run], Shape.rounded(point), "highest", None) for run in runs)
    return [[{name: value for name, value in row.items() if name not in ("seconds", "bucket")} for row in of_run] for of_run in whole]
