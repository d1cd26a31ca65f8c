"""One run on the device: its arguments, what it draws from them, what training makes of
it.

All is float32, padded to a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Bool, Float32, Int32, UInt32

from ..model import keys, task
from ..model.law_parameters import law_parameters
from ..model.laws import TOGETHER
from ..model.laws.tokens import alias_table, by_frequency, rare_and_frequent, shares
from ..model.point import Point, Run
from ..model.reference.realization import run_keys
from ..model.task import Embeddings
from .shape import Shape

f32, i32 = jnp.float32, jnp.int32

if TYPE_CHECKING:
    Numbers = Whole = Real = Flag = Array  # as a program sees them
else:
    Numbers = np.ndarray | Array
    Whole, Real, Flag = (
        Int32[Numbers, "*runs"],
        Float32[Numbers, "*runs"],
        Bool[Numbers, "*runs"],
    )


class TokenLaws(eqx.Module):
    """The laws of the informative tokens of a run, and of the noise where it is another
    one.
    """

    tables: UInt32[Numbers, "*runs laws 2 V"]
    """`laws.tokens.alias_table` of each."""
    shares: Float32[Numbers, "*runs laws V"]
    """Probabilities."""
    groups: Int32[Numbers, "*runs 2 V"]
    """1 for informative tokens of the rarer half, and of the
    most frequent tenth: `laws.tokens.rare_and_frequent`.
    """
    by_frequency: Int32[Numbers, "*runs V"]
    """Tokens, the most often informative first."""


class Arguments(eqx.Module):
    """One run as the arguments of a program: keys, fields of the point, what rates
    give.

    Every one is traced.

    Products and ratios of rates are formed in float64 and held to the range of float32.
    """

    streams: UInt32[Numbers, "*runs 10 2"]
    """Keys of the named streams."""
    batches: UInt32[Numbers, "*runs 3 2"]
    """Keys of the samples of the three gradient steps."""
    V: Whole
    d: Whole
    m: Whole
    L: Whole
    N: Whole
    """At most 2^31 - 1."""
    samples: Real
    """N."""
    n_test: Whole
    steps: Whole
    batch: Whole
    """0 for none."""
    embedding: Whole
    """Place of the law in TOGETHER."""
    fresh_batches: Flag
    trigger_in_value: Flag
    label_noise: Real
    eta: Real
    attention_rate: Real
    """gamma eta: w = gamma eta w_hat."""
    scale: Real
    """max(eta, gamma2): V2 = scale (step1_weight G1 + step3_weight G2)."""
    step1_weight: Real
    """eta / scale."""
    step3_weight: Real
    """gamma2 / scale."""
    lr: Real
    lr_attention: Real
    drawn_samples: Whole
    """With a pool, how many pairs of a token and a noise sequence are drawn one by one;
    -1 if their counts are Gaussian. Of an associative memory, how many tokens.
    """
    drawn_noise: Whole
    """The same of the tokens of a noise sequence."""
    drawn_test: Whole
    """The same of the noise tokens of a test sequence."""
    parameters: dict[str, Real]
    """Float parameters of the laws of the program by dotted name."""
    token_laws: TokenLaws | None = None
    """None if all tokens are uniform."""
    given: dict[str, Float32[Numbers, "*runs V d"]] = eqx.field(default_factory=dict)
    """Tables of embeddings that were made on the host, by stream: `task.on_host`."""


MAX_INT, MAX_RATE = 2**31 - 1, 3e38

TYPES = {"b": np.bool_, "i": np.int32, "f": np.float32}


def arguments(runs: Sequence[Run], shape: Shape) -> Arguments:
    """Runs as the arguments of the program of a shape, leading axis n."""
    streams, batches = run_keys(runs)
    points = [point for point, _ in runs]

    def of_each(values: Iterable[float]) -> Any:
        every = np.array([*values])
        with np.errstate(over="ignore"):
            return every.astype(TYPES[every.dtype.kind])

    numbers = [_numbers(point) for point in points]
    usual: dict[str, float] = {
        name: value
        for field, law in shape.laws.items()
        for name, value in law.traced(field).items()
    }
    return Arguments(
        streams,  # type: ignore[arg-type]
        batches,  # type: ignore[arg-type]
        **{name: of_each(of[name] for of in numbers) for name in numbers[0]},
        parameters={
            name: of_each(law_parameters(p).get(name, value) for p in points)
            for name, value in usual.items()
        },
        token_laws=token_laws(points, shape),
        given=given_tables(points, streams, shape),
    )


def _numbers(point: Point) -> dict[str, float]:
    """The numbers of a run; the type of each is that of the argument."""
    scale, limit, noise = max(point.eta, point.gamma2), point.in_the_limit, point.L - 1
    return {
        **{
            name: getattr(point, name)
            for name in (
                "V",
                "d",
                "m",
                "L",
                "n_test",
                "steps",
                "fresh_batches",
                "trigger_in_value",
            )
        },
        "N": min(point.N, MAX_INT),
        "samples": float(point.N),
        "batch": point.batch or 0,
        "embedding": (
            TOGETHER.index(point.embedding) if point.embedding in TOGETHER else 0
        ),
        "label_noise": point.label_noise,
        "eta": point.eta,
        "attention_rate": min(point.gamma * point.eta, MAX_RATE),
        "scale": min(scale, MAX_RATE),
        "step1_weight": point.eta / scale,
        "step3_weight": point.gamma2 / scale,
        "lr": min(point.lr or 0.0, MAX_RATE),
        "lr_attention": min(point.lr_attention or 0.0, MAX_RATE),
        "drawn_samples": -1 if "samples" in limit else min(point.N, MAX_INT),
        "drawn_noise": -1 if "noise" in limit else noise,
        "drawn_test": -1 if "test" in limit else noise,
    }


def given_tables(
    points: Sequence[Point], streams: np.ndarray, shape: Shape
) -> dict[str, Any]:
    """(n, V, d) float32 tables that the laws of each point make on the host, padded, by
    stream.
    """
    tables = {
        name: np.zeros((len(points), shape.V, shape.d), np.float32)
        for name in shape.given_tables
    }
    for i, point in enumerate(points) if tables else ():
        for name, rows in task.on_host(
            point.embedding_laws, streams[i], point.V, point.d
        ).items():
            tables[name][i, : point.V, : point.d] = rows
    return tables


def token_laws(points: Sequence[Point], shape: Shape) -> TokenLaws | None:
    """The laws of the tokens of each point, padded; None for a program of uniform
    tokens.
    """
    if shape.tokens == "uniform":
        return None
    n_laws, V = 2 if shape.noise_tokens else 1, shape.V

    def padded(
        of: Callable[[Point], np.ndarray], rows: tuple[int, ...], dtype: DTypeLike
    ) -> Any:
        every = np.zeros((len(points), *rows, V), dtype)
        for one, point in zip(every, points, strict=True):
            one[..., : point.V] = of(point)
        return every

    return TokenLaws(
        padded(
            lambda p: np.stack(
                [alias_table(law, p.V) for law in p.token_laws[:n_laws]]
            ),
            (n_laws, 2),
            np.uint32,
        ),
        padded(
            lambda p: np.stack([shares(law, p.V) for law in p.token_laws[:n_laws]]),
            (n_laws,),
            np.float32,
        ),
        padded(lambda p: rare_and_frequent(p.token_laws[0], p.V), (2,), np.int32),
        padded(lambda p: by_frequency(p.token_laws[0], p.V), (), np.int32),
    )


IDLE = Run(Point(V=2, N=1, d=1, L=1, n_test=1), 0)
"""A run of next to nothing, which fills a batch up."""


class Pools(eqx.Module):
    """The samples of the three gradient steps of a point with a pool.

    Those of later steps are unused unless batches are fresh.
    """

    noise: Float32[Array, "3 K V"]
    """How often each token occurs in each sequence of the pool."""
    deviations: Float32[Array, "3 V K"]
    """The part of the samples that have informative token x and noise sequence k, less
    its mean 1 / (V K).
    """


class NoiseTokens(eqx.Module):
    """Noise tokens of the samples of a run, drawn once and read in many steps."""

    tokens: Int32[Array, " STORED_TOKENS"]
    """In the order in which `loops.over_positions` reads them."""
    complete: Bool[Array, ""]
    """Whether all are here; else they are drawn whenever they are needed."""


class World(eqx.Module):
    """The drawn but untrained part of a run: embeddings, permutation, mask of the
    padding.
    """

    run: Arguments
    e: Embeddings
    perm: Int32[Array, " V"]
    no_label: Float32[Array, " V"]
    """0 on labels, -inf on padding."""
    shape: Shape = eqx.field(static=True)
    pools: Pools | None = None
    noise_tokens: NoiseTokens | None = None
    vmapped: bool = eqx.field(static=True, default=False)
    """Whether runs are mapped along the axis `loops.RUNS`,
    as on an accelerator, and not one after the other.
    """

    def law(self, name: str) -> Any:
        """The activation or the optimizer, with the parameters of the run."""
        return self.shape.laws[name].with_traced(self.run.parameters)

    def tokens(self, blocks: keys.Addresses, position: Array | int) -> Array:
        """(..., 512 * count) int32: tokens at each `position` of samples; 0 is
        informative.

        They are drawn by the law of the run.
        """
        return task.tokens(
            blocks,
            position,
            self.run.V,
            self.run.token_laws and self.run.token_laws.tables,
        )


class Trained(eqx.Module):
    """A trained model, which is what metrics read: V_mat and w = W_KQ z_eos, float32.

    Rates are factored out, so nothing here is as small as eta or as large as gamma.
    """

    V1: Float32[Array, "d p"]
    """V_mat after step 1, up to a positive factor."""
    w: Float32[Array, " d"]
    """Up to the factor `rate`."""
    rate: Float32[Array, ""]
    V2: Float32[Array, "d p"]
    """V_mat at the end, up to a positive factor."""
    errors: tuple[Float32[Array, ""], Float32[Array, ""]] | None = None
    """Bounds on the relative error of the residuals of steps 2 and 3; None if the form
    is exact.
    """
    locked: Bool[Array, ""] | None = None
    """Whether attention rests on the informative token to rounding; None if that was
    not asked.
    """


def draw(run: Arguments, shape: Shape, vmapped: bool = False) -> World:
    """The frozen part of the run."""
    laws = [
        law.with_traced(run.parameters, name)
        for name, law in shape.laws.items()
        if name.startswith("embedding")
    ]
    own = (laws[0], laws[-1]) if laws else None
    e = task.draw_embeddings(
        run.streams,
        run.embedding,
        run.V,
        run.d,
        run.m,
        (shape.V, shape.d, shape.m),
        own,
        run.given,
    )
    no_label = jnp.where(jnp.arange(shape.V, dtype=i32) < run.V, f32(0), f32(-jnp.inf))
    return World(
        run,
        e,
        task.permutation(run.streams, run.V, shape.V),
        no_label,
        shape,
        vmapped=vmapped,
    )


def trained(
    world: World,
    G1: Array,
    w_hat: Array,
    G2: Array,
    errors: tuple[Array, Array] | None = None,
    locked: Array | None = None,
) -> Trained:
    """The model after three steps, V1 = eta G1, w = gamma eta w_hat, V2 = eta G1 +
    gamma2 G2.

    V2 is kept up to a positive factor, which changes no prediction.
    """
    run = world.run
    return Trained(
        G1,
        w_hat,
        run.attention_rate,
        run.step1_weight * G1 + run.step3_weight * G2,
        errors,
        locked,
    )


def batch_of_step(world: World, step: int | Array) -> Array:
    """Stream of the samples of gradient step 0, 1 or 2."""
    return world.run.batches[step]


def stream_of_step(world: World, step: Array) -> Array:
    """Stream of the samples that further step `step` reads, or draws its batch from."""
    stream = keys.fold(keys.stream(world.run.streams, "train"), step.astype(jnp.uint32))
    return jnp.where(world.run.fresh_batches, stream, world.run.batches[0])


def centred(world: World, table: Array) -> Array:
    """`table` (V, n) less its mean row; padded rows stay zero."""
    mean = jnp.sum(table, axis=0) / world.run.V.astype(f32)
    return jnp.where((world.no_label == 0)[:, None], table - mean[None], f32(0))


def token_shares(world: World) -> tuple[Array, Array]:
    """(V,) each: the probability of every informative token, and of every noise
    token.
    """
    if laws := world.run.token_laws:
        return laws.shares[0], laws.shares[-1]
    even = jnp.where(world.no_label == 0, 1 / world.run.V.astype(f32), f32(0))
    return even, even


def values(world: World) -> Array:
    """(V, d): the value of each token as the informative one."""
    return world.e.Z_in + in_value(world) * world.e.z_trig[None]


def zeros_dp(world: World) -> Array:
    return jnp.zeros((world.shape.d, world.shape.m or world.shape.d), f32)


def in_value(world: World) -> Array:
    return world.run.trigger_in_value.astype(f32)
