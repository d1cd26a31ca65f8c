"""Converts runs to the arguments of a program: the axes of a grid become arrays.

The arguments are NumPy arrays on the host, and `program.execute` copies them to the
device. Their types are float32, 32-bit integers and bool. They are padded to the shape
of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jax import Array, lax
from jax.tree_util import register_dataclass
from jaxtyping import Bool, Float32, Int32, UInt32

from ..model import task
from ..model.law_parameters import law_parameters
from ..model.laws.tokens import (
    alias_table,
    by_frequency,
    rare_and_frequent,
    token_probabilities,
)
from ..model.point import Point, Run
from ..model.reference.realization import run_keys
from .program_shape import Shape

if TYPE_CHECKING:
    Traced = Whole = Real = Flag = Array  # as a program sees them
else:
    Traced = np.ndarray | Array
    Whole = Int32[Traced, "*runs"]
    Real = Float32[Traced, "*runs"]
    Flag = Bool[Traced, "*runs"]


class TokenLaws(NamedTuple):
    """The law of informative tokens, and the law of noise tokens if the two differ."""

    tables: UInt32[Traced, "*runs laws 2 V"]
    """The alias table (`laws.tokens.alias_table`) of each law."""
    shares: Float32[Traced, "*runs laws V"]
    """The probabilities of the tokens under each law."""
    groups: Int32[Traced, "*runs 2 V"]
    """Two masks of tokens, with entries 0 and 1: the rarer half of the informative
    tokens, and the most frequent tenth (`laws.tokens.rare_and_frequent`).
    """
    by_frequency: Int32[Traced, "*runs V"]
    """The tokens, sorted by their probability of being informative. The most frequent
    token is first.
    """


class Sampling(NamedTuple):
    """The way in which some items are drawn: one by one, or as counts in the Gaussian
    limit.
    """

    n: Whole
    """The number of items that are drawn one by one, at most 2^31 - 1. It is 0 in the
    Gaussian limit.
    """
    in_the_limit: Flag

    def choose(self, gaussian: Callable[[], Any], one_by_one: Callable[[], Any]) -> Any:
        """Calls `gaussian` if the counts are Gaussian, else `one_by_one`, and returns
        the result.
        """
        return lax.cond(self.in_the_limit, gaussian, one_by_one)


@register_dataclass
@dataclass(frozen=True)
class Arguments:
    """The arguments of one run: keys, fields of the point, and numbers computed from
    its learning rates.

    Every field is traced. Products and ratios of learning rates are computed in
    float64, and limited to the range of float32.
    """

    streams: UInt32[Traced, "*runs 10 2"]
    """The keys of the named streams."""
    batches: UInt32[Traced, "*runs 3 2"]
    """The keys of the samples of the three gradient steps."""
    V: Whole
    d: Whole
    m: Whole
    L: Whole
    N: Whole
    """The field N, limited to 2^31 - 1."""
    samples: Real
    """The field N as a float, without the limit 2^31 - 1."""
    n_test: Whole
    first_steps: Whole
    steps: Whole
    batch: Whole
    """The batch size of further steps; 0 if every step reads all samples."""
    fresh_batches: Flag
    trigger_in_value: Flag
    label_noise: Real
    eta: Real
    attention_rate: Real
    """The product gamma eta, which is the scale factor of w = gamma eta w_hat."""
    scale: Real
    """The larger of eta and gamma2. V2 = scale (step1_weight G1 + step3_weight G2)."""
    step1_weight: Real
    """The ratio eta / scale."""
    step3_weight: Real
    """The ratio gamma2 / scale."""
    lr: Real
    lr_attention: Real
    drawn_samples: Sampling
    """The way in which samples are drawn. With a pool, a sample is a pair of a token
    and a sequence of the pool. If L = 1, a sample is a token.
    """
    drawn_noise: Sampling
    """The way in which the noise tokens of the pool's sequences are drawn."""
    drawn_test: Sampling
    """The way in which the noise tokens of test sequences are drawn."""
    parameters: dict[str, Real]
    """The float parameters of the program's laws, as a dict by dotted name."""
    token_laws: TokenLaws | None
    """The laws of the tokens; None if all tokens are uniform."""
    given: dict[str, Float32[Traced, "*runs V d"]]
    """The embedding tables that are made on the host (`task.on_host`), as a dict by
    stream name.
    """


MAX_INT, MAX_RATE = 2**31 - 1, 3e38

TYPES = {"b": np.bool_, "i": np.int32, "f": np.float32}

UNCHANGED = (
    "V",
    "d",
    "m",
    "L",
    "n_test",
    "first_steps",
    "steps",
    "fresh_batches",
    "trigger_in_value",
    "label_noise",
    "eta",
)
"""The fields of a point that are passed to the program unchanged."""


def arguments(runs: Sequence[Run], shape: Shape) -> Arguments:
    """Returns the arguments for n runs in the program of `shape`. Each array has a
    leading axis n.
    """
    streams, batches = run_keys(runs)
    points = [point for point, _ in runs]
    numbers = [_numbers(point) for point in points]
    of_fields = {
        name: as_array([of_point[name] for of_point in numbers]) for name in numbers[0]
    }
    return Arguments(
        streams,  # type: ignore[arg-type]
        batches,  # type: ignore[arg-type]
        **of_fields,
        drawn_samples=_draws(points, "samples", lambda point: point.N),
        drawn_noise=_draws(points, "noise", lambda point: point.L - 1),
        drawn_test=_draws(points, "test", lambda point: point.L - 1),
        parameters=_law_parameters(points, shape),
        token_laws=token_laws(points, shape),
        given=given_tables(points, streams, shape),
    )


def as_array(values: Sequence[float]) -> Any:
    """Returns one value per run, as an array of a 32-bit type or bool."""
    every = np.array(values)
    with np.errstate(over="ignore"):
        return every.astype(TYPES[every.dtype.kind])


def _numbers(point: Point) -> dict[str, float]:
    """A dict of the numeric arguments of a run. Each number has the type of its
    argument.
    """
    scale = max(point.eta, point.gamma2)
    numbers: dict[str, float] = {name: getattr(point, name) for name in UNCHANGED}
    numbers["N"] = min(point.N, MAX_INT)
    numbers["samples"] = float(point.N)
    numbers["batch"] = point.batch or 0
    numbers["attention_rate"] = min(point.gamma * point.eta, MAX_RATE)
    numbers["scale"] = min(scale, MAX_RATE)
    numbers["step1_weight"] = point.eta / scale
    numbers["step3_weight"] = point.gamma2 / scale
    numbers["lr"] = min(point.lr or 0.0, MAX_RATE)
    numbers["lr_attention"] = min(point.lr_attention or 0.0, MAX_RATE)
    return numbers


def _draws(
    points: Sequence[Point], what: str, number: Callable[[Point], int]
) -> Sampling:
    limit = [what in point.in_the_limit for point in points]
    n = [min(number(point), MAX_INT) for point in points]
    return Sampling(as_array(np.where(limit, 0, n).tolist()), as_array(limit))


def _law_parameters(points: Sequence[Point], shape: Shape) -> dict[str, Any]:
    """A dict of the float parameters of a program's laws. If a point has none, the
    default is used.
    """
    parameters = {}
    by_point = [law_parameters(point) for point in points]
    for field, law in shape.laws.items():
        for name, default in law.traced(field).items():
            numbers = [of_point.get(name, default) for of_point in by_point]
            parameters[name] = as_array(numbers)  # type: ignore[arg-type]
    return parameters


def given_tables(
    points: Sequence[Point], streams: np.ndarray, shape: Shape
) -> dict[str, Any]:
    """Returns a dict from stream name to padded (n, V, d) float32 tables.

    Only embedding laws that are made on the host have a table.
    """
    size = len(points), shape.V, shape.d
    tables = {name: np.zeros(size, np.float32) for name in shape.given_tables}
    for i, point in enumerate(points):
        rows_of = task.on_host(point.embedding_laws, streams[i], point.V, point.d)
        for name, rows in rows_of.items():
            tables[name][i, : point.V, : point.d] = rows
    return tables


def token_laws(points: Sequence[Point], shape: Shape) -> TokenLaws | None:
    """The padded token laws of all points. None if all tokens are uniform."""
    if shape.tokens == "uniform":
        return None
    n, V, n_laws = len(points), shape.V, 2 if shape.noise_tokens else 1
    tables = np.zeros((n, n_laws, 2, V), np.uint32)
    shares = np.zeros((n, n_laws, V), np.float32)
    groups = np.zeros((n, 2, V), np.int32)
    order = np.zeros((n, V), np.int32)
    for i, point in enumerate(points):
        laws, size = point.token_laws[:n_laws], point.V
        for k, law in enumerate(laws):
            tables[i, k, :, :size] = alias_table(law, size)
            shares[i, k, :size] = token_probabilities(law, size)
        groups[i, :, :size] = rare_and_frequent(laws[0], size)
        order[i, :size] = by_frequency(laws[0], size)
    return TokenLaws(tables, shares, groups, order)  # type: ignore[arg-type]


IDLE = Run(Point(V=2, N=1, d=1, L=1, n_test=1), 0)
"""A run with almost no work, which fills the unused places of a batch."""
