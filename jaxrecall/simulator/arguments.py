"""Runs as the arguments of a program: axes of a grid become arrays.

The arguments are NumPy arrays on the host; `program.execute` puts them on the device.
They are float32, 32-bit integers or bool, and are padded to the shape of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike
from jaxtyping import Bool, Float32, Int32, UInt32

from ..model import task
from ..model.law_parameters import law_parameters
from ..model.laws import TOGETHER
from ..model.laws.tokens import alias_table, by_frequency, rare_and_frequent, shares
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


class TokenLaws(eqx.Module):
    """The laws of informative tokens, and of noise tokens if theirs differ."""

    tables: UInt32[Traced, "*runs laws 2 V"]
    """The `laws.tokens.alias_table` of each law."""
    shares: Float32[Traced, "*runs laws V"]
    """The probability of each token under each law."""
    groups: Int32[Traced, "*runs 2 V"]
    """Two masks of tokens, 1 inside and 0 outside: the rarer half of the informative
    tokens, and the most frequent tenth (`laws.tokens.rare_and_frequent`).
    """
    by_frequency: Int32[Traced, "*runs V"]
    """The tokens, sorted by how often they are informative, the most frequent first."""


class Sampling(eqx.Module):
    """How some items are drawn: one by one, or as counts in their Gaussian limit."""

    n: Whole
    """The number of items drawn one by one, at most 2^31 - 1; 0 in the limit."""
    in_the_limit: Flag

    def choose(self, gaussian: Callable[[], Any], one_by_one: Callable[[], Any]) -> Any:
        """Calls the function for the way in which the items are drawn; returns its
        result.
        """
        return lax.cond(self.in_the_limit, gaussian, one_by_one)


class Arguments(eqx.Module):
    """One run: keys, fields of the point, and numbers derived from its rates.

    Every field is traced. Products and ratios of rates are computed in float64 and
    limited to the range of float32.
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
    """The field N, at most 2^31 - 1."""
    samples: Real
    """The field N as a float, without that limit."""
    n_test: Whole
    steps: Whole
    batch: Whole
    """The batch size of further steps; 0 if every step reads all samples."""
    embedding: Whole
    """The index of the embedding law in TOGETHER."""
    fresh_batches: Flag
    trigger_in_value: Flag
    label_noise: Real
    eta: Real
    attention_rate: Real
    """gamma eta, the factor of w: w = gamma eta w_hat."""
    scale: Real
    """max(eta, gamma2): V2 = scale (step1_weight G1 + step3_weight G2)."""
    step1_weight: Real
    """eta / scale."""
    step3_weight: Real
    """gamma2 / scale."""
    lr: Real
    lr_attention: Real
    drawn_samples: Sampling
    """How samples are drawn: as pairs of a token and a sequence of the pool, or as
    tokens at L = 1.
    """
    drawn_noise: Sampling
    """How the noise tokens of the pool's sequences are drawn."""
    drawn_test: Sampling
    """How the noise tokens of test sequences are drawn."""
    parameters: dict[str, Real]
    """The float parameters of the laws of the program, by dotted name."""
    token_laws: TokenLaws | None = None
    """The laws of the tokens; None if all tokens are uniform."""
    given: dict[str, Float32[Traced, "*runs V d"]] = eqx.field(default_factory=dict)
    """Embedding tables made on the host (`task.on_host`), by stream."""


MAX_INT, MAX_RATE = 2**31 - 1, 3e38

TYPES = {"b": np.bool_, "i": np.int32, "f": np.float32}

UNCHANGED = (
    "V",
    "d",
    "m",
    "L",
    "n_test",
    "steps",
    "fresh_batches",
    "trigger_in_value",
    "label_noise",
    "eta",
)
"""The fields of a point that are arguments without any change."""


def arguments(runs: Sequence[Run], shape: Shape) -> Arguments:
    """The arguments of the program of `shape` for n runs, with leading axis n."""
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
    """The values of the runs, one each, as an array of a 32-bit type or bool."""
    every = np.array(values)
    with np.errstate(over="ignore"):
        return every.astype(TYPES[every.dtype.kind])


def _numbers(point: Point) -> dict[str, float]:
    """The numeric arguments of a run; each has the type of its argument."""
    scale, law = max(point.eta, point.gamma2), point.embedding
    numbers: dict[str, float] = {name: getattr(point, name) for name in UNCHANGED}
    numbers["N"] = min(point.N, MAX_INT)
    numbers["samples"] = float(point.N)
    numbers["batch"] = point.batch or 0
    numbers["embedding"] = TOGETHER.index(law) if law in TOGETHER else 0
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
    """The float parameters of a program's laws; defaults where a point has none."""
    found = {}
    own = [law_parameters(point) for point in points]
    for field, law in shape.laws.items():
        for name, default in law.traced(field).items():
            numbers = [of_point.get(name, default) for of_point in own]
            found[name] = as_array(numbers)  # type: ignore[arg-type]
    return found


def given_tables(
    points: Sequence[Point], streams: np.ndarray, shape: Shape
) -> dict[str, Any]:
    """Returns a dict from stream name to padded (n, V, d) float32 tables.

    Only embedding laws that make their rows on the host have a table.
    """
    size = len(points), shape.V, shape.d
    tables = {name: np.zeros(size, np.float32) for name in shape.given_tables}
    if not tables:
        return {}
    for i, point in enumerate(points):
        made = task.on_host(point.embedding_laws, streams[i], point.V, point.d)
        for name, rows in made.items():
            tables[name][i, : point.V, : point.d] = rows
    return tables


def token_laws(points: Sequence[Point], shape: Shape) -> TokenLaws | None:
    """The padded token laws of all points; None if all tokens are uniform."""
    if shape.tokens == "uniform":
        return None
    n_laws = 2 if shape.noise_tokens else 1

    def padded(
        make: Callable[[Point], np.ndarray], rows: tuple[int, ...], dtype: DTypeLike
    ) -> Any:
        every = np.zeros((len(points), *rows, shape.V), dtype)
        for one, point in zip(every, points, strict=True):
            one[..., : point.V] = make(point)
        return every

    def tables(point: Point) -> np.ndarray:
        laws = point.token_laws[:n_laws]
        return np.stack([alias_table(law, point.V) for law in laws])

    def probabilities(point: Point) -> np.ndarray:
        return np.stack([shares(law, point.V) for law in point.token_laws[:n_laws]])

    def groups(point: Point) -> np.ndarray:
        return rare_and_frequent(point.token_laws[0], point.V)

    def order(point: Point) -> np.ndarray:
        return by_frequency(point.token_laws[0], point.V)

    return TokenLaws(
        tables=padded(tables, (n_laws, 2), np.uint32),
        shares=padded(probabilities, (n_laws,), np.float32),
        groups=padded(groups, (2,), np.int32),
        by_frequency=padded(order, (), np.int32),
    )


IDLE = Run(Point(V=2, N=1, d=1, L=1, n_test=1), 0)
"""A run of next to no work, which fills up a batch."""
