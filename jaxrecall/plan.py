"""From missing runs to programs and chunks, with what they cost. No JAX here.

A program is compiled per bucket: padded sizes, activation and form. Points start in a bucket of their own size; two buckets
become one where the padding costs less than the compilation saved. A chunk is a list of runs of one program: one part file.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from .bucket import MAX_COUNTED_V, Bucket, form_of
from .errors import GridError
from .point import BLOCK, Point

RunId = tuple[Point, int]

COMPILE_SECONDS = 4.0
CHUNK_SECONDS = 20.0
CHUNK_RUNS = 4096
USUAL_CHUNK = 4 * BLOCK


@dataclass(frozen=True)
class Rates:
    """Operations per second of the primitives; leads from a 2-core x86-64 machine with AVX-512, good for choosing and ETAs."""

    matmul_flops: float = 4.0e11
    exponentials: float = 4.0e9
    activations: float = 2.5e9  # hidden units evaluated
    row_floats: float = 1.7e10  # floats gathered or accumulated row-wise
    words: float = 8.0e8  # random words
    scatters: float = 6.0e8
    overhead: float = 4.0e-3  # seconds a run


@dataclass(frozen=True)
class Work:
    """What runs ask for besides padded sizes; sums of it cost the sum."""

    runs: int = 0
    samples: int = 0  # N, here as below rounded up to whole chunks
    evaluated: int = 0  # test and train sequences that are measured
    drawn: int = 0  # tokens that the full form draws, gathering an embedding row for each
    scattered: int = 0  # N L: tokens of a batch

    @staticmethod
    def of(point: Point, runs: int = 1) -> Work:
        samples = _whole_chunks(point.N)
        evaluated = _whole_chunks(point.n_test) + _whole_chunks(min(point.N, point.n_test))
        passes = 4 * samples + evaluated  # steps 1 and 3 read each sample once, step 2 twice
        return Work(runs, runs * samples, runs * evaluated, runs * passes * point.L, runs * samples * point.L)

    def __add__(self, other: Work) -> Work:
        return Work(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def flops(self, bucket: Bucket) -> float:
        """Matmul operations in a bucket; a guarded run is taken to have locked attention and uniform predictions."""
        V, d, m = bucket.V, bucket.d, bucket.m
        p, hidden = m or d, 2 * m * d
        per_sequence = 2 * V * p + hidden
        vocabulary = self.runs * 2 * V * per_sequence
        if bucket.exact == "full":
            return float(self.samples * (4 * d * p + 6 * V * p + 2 * V * d + 4 * hidden) + self.evaluated * per_sequence + vocabulary)
        return float(self.samples * (2 * d * p + 3 * hidden if m else 2 * d) + vocabulary + self.runs * 4 * V * V * (d + p))

    def seconds(self, bucket: Bucket, rates: Rates = Rates()) -> float:
        """Estimated seconds in a bucket, on one device, compilation not counted."""
        full = bucket.exact == "full"
        exponentials = (2 * self.samples + self.evaluated) * bucket.V if full else 0
        activated = (3 * self.samples + self.evaluated if full else 2 * self.samples) * bucket.m
        words = self.drawn if full else 2 * self.scattered
        rows = words if full or bucket.m else self.scattered
        return (
            self.flops(bucket) / rates.matmul_flops
            + exponentials / rates.exponentials
            + activated / rates.activations
            + words / rates.words
            + rows * bucket.d / rates.row_floats
            + self.scattered / rates.scatters
            + self.runs * rates.overhead
        )


@dataclass(frozen=True)
class Chunk:
    """Runs of one program that end in one part file."""

    bucket: Bucket
    runs: tuple[RunId, ...]
    seconds: float


@dataclass(frozen=True)
class Plan:
    chunks: tuple[Chunk, ...]
    flops: float
    seconds: float  # compilation counted
    peak_bytes: int  # of the largest program, one run at a time
    batch: int | None = None  # runs a batch and device; None: as many as half a second takes

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        return tuple(dict.fromkeys(chunk.bucket for chunk in self.chunks))

    @property
    def n_runs(self) -> int:
        return sum(len(chunk.runs) for chunk in self.chunks)

    def seconds_per_run(self, bucket: Bucket) -> float:
        chunks = [chunk for chunk in self.chunks if chunk.bucket == bucket]
        return sum(chunk.seconds for chunk in chunks) / sum(len(chunk.runs) for chunk in chunks)

    def describe(self) -> list[dict[str, Any]]:
        """One entry a program: its bucket, activation, members and cost."""
        return [
            {
                "bucket": str(bucket),
                "activation": bucket.activation,
                "exact": bucket.exact,
                "points": len({point.point_id for c in mine for point, _ in c.runs}),
                "runs": sum(len(c.runs) for c in mine),
                "chunks": len(mine),
                "est_seconds": sum(c.seconds for c in mine),
                "est_peak_bytes": peak_bytes(bucket),
            }
            for bucket in self.buckets
            for mine in [[c for c in self.chunks if c.bucket == bucket]]
        ]


def make(runs: Sequence[RunId], forced: tuple[int, int, int] | None = None) -> Plan:
    """The plan for `runs`. With `forced` = (V, d, m) every point runs in that bucket; raises GridError where one does not fit."""
    by_point: dict[Point, list[int]] = {}
    for point, seed in runs:
        by_point.setdefault(point, []).append(seed)
    groups = _forced(by_point, forced) if forced else _merged(by_point)
    chunks = [chunk for bucket in sorted(groups) for chunk in _chunks(bucket, groups[bucket], by_point)]
    return Plan(
        chunks=tuple(chunks),
        flops=sum(_work(points, by_point).flops(bucket) for bucket, points in groups.items()),
        seconds=sum(chunk.seconds for chunk in chunks) + COMPILE_SECONDS * len(groups),
        peak_bytes=max(map(peak_bytes, groups), default=0),
    )


def peak_bytes(bucket: Bucket) -> int:
    """Estimated peak memory of a program, one run at a time: tables, and what a chunk of samples holds at once."""
    V, d, m = bucket.V, bucket.d, bucket.m
    p = m or d
    tables = 10 * V * d + 4 * V * p + 2 * m * d + 6 * d * p
    if bucket.exact == "guarded":
        tables += 4 * V * p + (3 * m * m if m else 5 * V * V if V <= MAX_COUNTED_V else 0)
    return 4 * (tables + bucket.chunk * (4 * V + 4 * d + 4 * m))


def memory_limit() -> int:
    """80 % of this machine's memory, bytes."""
    return int(0.8 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _forced(points: Iterable[Point], sizes: tuple[int, int, int]) -> dict[Bucket, list[Point]]:
    groups: dict[Bucket, list[Point]] = {}
    V, d, m = sizes
    misfits = []
    for point in points:
        bucket = Bucket(V, d, m if point.m else 0, point.activation, form_of(point))
        groups.setdefault(bucket, []).append(point)
        if not bucket.fits(point):
            misfits.append(point)
    if misfits:
        need = "x".join(str(max(getattr(p, size) for p in misfits)) for size in ("V", "d", "m"))
        given = "x".join(map(str, sizes))
        raise GridError(f"--bucket: got {given}, too small for {len(misfits)} points; allowed: at least {need.removesuffix('x0')}")
    return groups


def _merged(by_point: dict[Point, list[int]]) -> dict[Bucket, list[Point]]:
    groups: dict[Bucket, list[Point]] = {}
    for point in by_point:
        groups.setdefault(Bucket.of(point), []).append(point)

    work = {bucket: _work(points, by_point) for bucket, points in groups.items()}
    while True:
        best = None
        for a, b in itertools.combinations(sorted(groups), 2):
            if (a.activation, a.exact) == (b.activation, b.exact):
                both = replace(a, V=max(a.V, b.V), d=max(a.d, b.d), m=max(a.m, b.m))
                waste = (work[a] + work[b]).seconds(both) - work[a].seconds(a) - work[b].seconds(b)
                if waste < COMPILE_SECONDS and (best is None or waste < best[0]):
                    best = (waste, a, b, both)
        if best is None:
            return groups
        _, a, b, both = best
        points, total = groups.pop(a) + groups.pop(b), work.pop(a) + work.pop(b)
        groups[both] = groups.get(both, []) + points
        work[both] = work.get(both, Work()) + total


def _whole_chunks(n: int) -> int:
    return -(-n // USUAL_CHUNK) * USUAL_CHUNK


def _work(points: Iterable[Point], by_point: dict[Point, list[int]]) -> Work:
    total = Work()
    for point in points:
        total += Work.of(point, len(by_point[point]))
    return total


def _chunks(bucket: Bucket, points: list[Point], by_point: dict[Point, list[int]]) -> Iterable[Chunk]:
    runs: list[RunId] = []
    total = 0.0
    for point in points:
        each = Work.of(point).seconds(bucket)
        for seed in by_point[point]:
            if runs and (total + each > CHUNK_SECONDS or len(runs) == CHUNK_RUNS):
                yield Chunk(bucket, tuple(runs), total)
                runs, total = [], 0.0
            runs.append((point, seed))
            total += each
    if runs:
        yield Chunk(bucket, tuple(runs), total)
