"""The simulator of this package as the sweep engine sees it, and single runs of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, Literal, overload

from threadpoolctl import threadpool_limits

from ...errors import MAX_LIST, PointError, Problem, UsageError, as_list, expect
from ...model.columns import CODE_VERSION, COLUMNS, OwnColumn, Row
from ...model.law_parameters import make_point, problem_in_workers
from ...model.laws import Law
from ...model.laws.law import class_name, source_digest
from ...model.point import FIELDS, LAW_FIELDS, MAX_SEED, Point, Run, checked_seed
from ...simulator.shape import Shape
from ..machine import memory_described, memory_limit
from . import OURS, Cost, Facts, Loaded, Room, Rows, Sizes, grouped
from .cost import amount, merged, padded, peak_bytes, work

MAX_VMAPPED = 1024
"""Most vmapped runs on an accelerator."""

SEEDS = f"a whole number from 0 to {MAX_SEED}, or a list of up to {MAX_LIST}"


@dataclass(frozen=True)
class RecallSimulator:
    """The simulator of this package, with columns of the user's own.

    On a CPU the runs of a batch run one after the other, and several threads run one
    batch each. On an accelerator the runs of a batch are vmapped, while another batch
    waits.
    """

    columns: tuple[OwnColumn, ...] = ()

    @property
    def facts(self) -> Facts:
        return _facts(self.columns)

    def point(self, values: Mapping[str, Any]) -> Point:
        return make_point(values)

    def sources(self, points: Iterable[Point]) -> dict[str, str]:
        used: set[type[Law]] = set()
        for point in points:
            used.update(map(type, point.laws.values()))
        named = {class_name(law): law for law in used}
        return {
            name: source_digest(law.source())
            for name, law in named.items()
            if ":" in name
        }

    def programs(
        self,
        points: Mapping[Point, int],
        sizes: Sizes | Shape | Literal["own"] | None = None,
    ) -> dict[Shape, list[Point]]:
        if self.columns:
            if isinstance(sizes, tuple):
                raise UsageError(
                    "--bucket: got with columns of your own, which are computed without"
                    " padding; allowed: without it"
                )
            return grouped(
                points, lambda point: Shape.with_columns(point, self.columns)
            )
        if isinstance(sizes, Shape):
            return grouped(
                points,
                lambda point: replace(
                    Shape.sized(point, sizes.V, sizes.d, sizes.m), light=sizes.light
                ),
            )
        if sizes == "own":
            return grouped(points, Shape.tight)
        return grouped(points, padded(points, sizes)) if sizes else merged(points)

    def cost(self, program: Shape, point: Point) -> Cost:
        takes = amount(program, work(point))
        return Cost(takes.seconds, takes.flops, peak_bytes(program))

    def width(self, program: Shape, seconds: float, room: Room) -> int:
        from ...simulator.program import memory_of_device, on_cpu, start

        start()
        if on_cpu():
            return max(
                1, min(room.cores, room.n_runs, room.limit // peak_bytes(program))
            )
        memory, wanted = (
            memory_of_device() or memory_limit(),
            int(min(MAX_VMAPPED, room.n_runs, room.batch or 0.5 / seconds)),
        )
        width = 1 << max(0, wanted.bit_length() - 1)
        while (
            width > 1 and 2 * width * peak_bytes(program.vmapped(width)) > memory
        ):  # the batch that waits takes as much
            width //= 2
        return width

    def run(self, program: Shape, width: int, room: Room) -> Loaded:
        from ...simulator.program import compiled, on_cpu

        loaded = compiled(program, width, room.precision)
        return Loaded(
            partial(_batch, loaded, room.precision),
            loaded.batch,
            width if on_cpu() else min(width, 2),
            on_cpu(),
        )

    def problem_in_workers(self, points: Iterable[Point]) -> str | None:
        one_each = {attrgetter(*LAW_FIELDS)(point): point for point in points}
        main = (
            f"columns.{column.name}: got {column.path}, which other processes cannot"
            " import; put it into a module"
            for column in self.columns
            if column.path.startswith("__main__:")
        )
        return next(
            filter(None, (*main, *map(problem_in_workers, one_each.values()))), None
        )


RECALL = RecallSimulator()


@lru_cache(8)
def _facts(own: tuple[OwnColumn, ...]) -> Facts:
    columns = (
        COLUMNS | {column.name: column.declared for column in own} if own else COLUMNS
    )
    return Facts(
        OURS,
        FIELDS,
        columns,
        CODE_VERSION,
        own_columns={column.name: f"{column.path}#{column.digest}" for column in own},
    )


def _batch(
    compiled: Any, precision: str, runs: Mapping[Run, float]
) -> list[Rows | Exception | None]:
    """The rows of runs, each with its share of the seconds that they took."""
    from ...simulator import program

    metrics, seconds = program.execute(compiled, list(runs))
    total = sum(runs.values())
    return [
        of_run
        and program.rows(
            run, of_run, compiled.shape, precision, seconds * share / total
        )
        for (run, share), of_run in zip(runs.items(), metrics, strict=True)
    ]


@overload
def simulate(point: Point, seed: int, *, trace: Literal[False] = False) -> Row: ...
@overload
def simulate(
    point: Point, seed: Iterable[int], *, trace: Literal[False] = False
) -> list[Row]: ...
@overload
def simulate(
    point: Point, seed: int | Iterable[int], *, trace: Literal[True]
) -> list[Row]: ...
@overload
def simulate(
    point: Point, seed: int | Iterable[int], *, trace: bool
) -> Row | list[Row]: ...
def simulate(
    point: Point, seed: int | Iterable[int], *, trace: bool = False
) -> Row | list[Row]:
    """The row that a sweep writes for (point, seed), a dict of the columns in table
    order.

    It lacks `seconds` and `bucket`.

    For a list of seeds it returns a list of rows. Of a run that trains on, it is the
    row of the last step; with `trace` it returns a list of the rows of all recorded
    steps, in order of step, seed by seed. The first call for a shape compiles its
    program, which takes seconds; points of similar sizes share it, and the compiled
    program is kept for later processes. Raises PointError for what is no point, for
    seeds out of range or too many, and for a point that needs more than 80 % of this
    machine's memory.

        >>> from jaxrecall import Point, simulate
        >>> point = Point(V=64, N=1024, d=32, L=8)
        >>> row = simulate(point, seed=0)
        >>> rows = simulate(point, seed=range(8))
        >>> losses = [row["loss"] for row in simulate(point.replace(steps=100, lr=0.1),
            seed=0, trace=True)]
    """
    from ...simulator import program  # starts JAX

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
        message = (
            f"got {sizes}, which needs about {need / 2**20:.0f} MiB; allowed:"
            f" {memory_described()}"
        )
        raise PointError([Problem(name, message)])


def _rows(point: Point, runs: Sequence[Run]) -> list[list[Row]]:
    """The rows of runs of one point, in their order.

    Those that a bound rejects run once more, in the exact form.
    """
    from ...simulator import program

    found: dict[Run, list[Row]] = {}
    shape: Shape | None = Shape.rounded(point)
    while shape and (left := [run for run in runs if run not in found]):
        compiled = program.compiled(shape)
        for i in range(0, len(left), compiled.batch):
            batch = left[i : i + compiled.batch]
            decomposes = point.optimizer and point.optimizer.attention == "column"
            with (
                threadpool_limits(1, user_api="blas") if decomposes else nullcontext()
            ):  # its threads wait busily for each other
                metrics = program.execute(compiled, batch)[0]
            found |= {
                run: rows for run, rows in zip(batch, metrics, strict=True) if rows
            }
        shape = shape.fallback
    whole = (
        program.rows(run, found[run], Shape.rounded(point), "highest", None)
        for run in runs
    )
    return [
        [
            {
                name: value
                for name, value in row.items()
                if name not in ("seconds", "bucket")
            }
            for row in of_run
        ]
        for of_run in whole
    ]
