"""Represents samples with a pool of noise as weighted pairs of a token and a noise
sequence.

A sample is a pair of a token x and a noise sequence k. Sums are over all pairs. The
weight of a pair is the fraction of samples that equal it, 1 / (V K) + E[x, k]. So cost
and memory depend on neither N nor L.

Tables are centred, so terms that do not depend on x cancel. Where possible, products
therefore use only the deviation E from the mean weight. The rounding error is then
relative to the fluctuations of the samples, for any N. The sampling laws and the
formulas for the sums are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import PyTree

from ...model import keys
from ..arrays import f32, gather, i32, masked, transposed_product
from ..forward import (
    Attended,
    NoiseAttention,
    Scores,
    attend_to_counts,
    features_of,
    scores_under,
    shares_of,
    unlearned_scores,
)
from ..gradient import (
    Gradient,
    Maps,
    Parameters,
    State,
    mapped,
    moved,
    output_maps,
    slope_along,
)
from ..losses import cross_entropy, mean_loss
from ..world import World, centred, values
from .pool_draws import (
    cumulated_pairs,
    last_pairs,
    mean_weight,
    pair_weights,
    pool_of_step,
    test_counts,
    with_pools,
)
from .source import TEST, TRAIN, Reader, Source


class Pool(Source):
    """The source that sums over all pairs of a token and a noise sequence of the
    pool.
    """

    def prepare(self, world: World) -> World:
        return with_pools(world)

    def gradient(self, world: World, state: State, name: str, step: int) -> Gradient:
        if state.even and name == "V_mat":
            scores = state.scores
            if scores is None:
                scores = unlearned_scores(world)
            return by_memory(world, scores, step)
        if state.even and world.e.W_in is None:
            return Gradient(by_attention_to_values(world, state.V_mat))
        return Gradient(over_pairs(world, state, [name], step)[name])

    def parts(self, world: World) -> Array:
        parts = 1 / world.run.V.astype(f32) + jnp.sum(pool_of_step(world, 2)[1], axis=1)
        return jnp.where(world.no_label == 0, parts, f32(0))

    def gradient_of_step(
        self, world: World, state: State, wanted: Collection[str], step: Array
    ) -> Parameters:
        return over_pairs(world, state, wanted, 0)

    def parts_of_step(self, world: World, step: Array) -> Array:
        return self.parts(world)

    def work_of_step(self, world: World) -> Array:
        """The number V. There are at least V pairs, so weighted tokens never cost more
        than pairs.
        """
        return world.run.V

    def reader(self, world: World, scores: Scores, unread: Array) -> Reader:
        """Returns a reader that uses new noise for test sequences, and the pairs of
        step 3 for train sequences.
        """
        K, d = world.shape.pool, world.shape.d
        counts, _ = pool_of_step(world, 2)
        cumulated = cumulated_pairs(world)

        zero = jnp.zeros(K, f32)
        nothing = NoiseAttention(jnp.zeros((K, d), f32), zero, zero)
        pooled = lax.cond(
            unread, lambda: nothing, lambda: attend_to_counts(world, counts, scores)
        )

        def read(x: Array, noise: NoiseAttention) -> tuple[Array, Attended]:
            score = gather(scores.token, x) + scores.trigger
            mass, others = shares_of(score, noise.total, noise.top)
            h = mass[:, None] * gather(values(world), x) + others[:, None] * noise.value
            return x, Attended(h, mass, score > noise.top)

        def informative(which: Array, blocks: keys.Blocks) -> Array:
            return lax.cond(
                which == TRAIN,
                lambda: last_pairs(world, blocks, cumulated)[0],
                lambda: world.tokens(blocks, 0),
            )

        def attended(which: Array, blocks: keys.Blocks) -> tuple[Array, Attended]:
            def train() -> tuple[Array, Attended]:
                x, k = last_pairs(world, blocks, cumulated)
                return read(x, jax.tree.map(lambda a: gather(a, k), pooled))

            def test() -> tuple[Array, Attended]:
                fresh = attend_to_counts(world, test_counts(world, blocks), scores)
                return read(world.tokens(blocks, 0), fresh)

            return lax.cond(which == TRAIN, train, test)

        return Reader(informative, attended)

    def losses(self, world: World, V_mat: Array, w: Array) -> tuple[Array, Array]:
        read = self.reader(world, scores_under(world, w), jnp.bool_(False))
        key = keys.stream(world.run.streams, "test")
        test = mean_loss(world, read, V_mat, i32(TEST), key, world.run.n_test)
        return loss_of_pairs(world, V_mat, w), test

    def last_position(self, world: World) -> Array:
        """The position 1, at which the index of the noise sequence is drawn."""
        return i32(1)


SOURCE = Pool()


class PairAttention(NamedTuple):
    """The attention of all pairs. The output h of pair (x, k) is on_token[x, k] v_x +
    on_noise[x, k] noise[k].
    """

    on_token: Array  # (V, K) weight of the informative token
    on_noise: Array  # (V, K) weight of all others
    noise: Array  # (K, d) mean value of the others
    total: Array  # (K,) number of the others, under uniform attention


def attend_to_pairs(world: World, counts: Array, scores: Scores) -> PairAttention:
    """The attention of all pairs of a token and a row of `counts` (K, V)."""
    noise = attend_to_counts(world, counts, scores)
    of_informative = (scores.token + scores.trigger)[:, None]
    shares = shares_of(of_informative, noise.total[None], noise.top[None])
    return PairAttention(*shares, noise.value, noise.total)


def by_memory(world: World, scores: Scores, step: int) -> Gradient:
    """The gradient by V_mat with even predictions, which is a sum over pairs.

    Each pair contributes its weight times zc(pi x) phi(h)^T, where zc is z_out minus
    the mean row of Z_out. Without an MLP, |h|^2 is at most the mean of |v|^2 under the
    attention, by convexity.
    """
    counts, E = pool_of_step(world, step)
    a, mean = attend_to_pairs(world, counts, scores), mean_weight(world)
    weights = pair_weights(world, E)
    table = gather(centred(world, world.e.Z_out), world.perm)
    if world.e.W_in is not None:
        phi, phi2 = mean_features(world, a, weights)
        return Gradient(-transposed_product(table, phi), phi2)
    v = values(world)
    on_token = jnp.sum(weights * a.on_token, axis=1)
    real = masked(world.no_label == 0, a.on_token)
    centre = jnp.sum(real, axis=0) / world.run.V.astype(f32)
    fluctuation = E * a.on_noise - mean * (a.on_token - centre[None])
    rows = on_token[:, None] * v + fluctuation @ a.noise
    v2, noise2 = jnp.sum(v * v, axis=1), jnp.sum(a.noise * a.noise, axis=1)
    h2 = jnp.sum(weights * (a.on_token * v2[:, None] + a.on_noise * noise2[None]))
    return Gradient(-transposed_product(table, rows), h2)


def by_attention_to_values(world: World, V_mat: Array) -> Array:
    """The gradient by w without an MLP and with even predictions. Each key has the
    weight b^T (v - h), where b is the negative slope of a sample's loss by h.

    b depends only on the informative token, and sums to zero over the tokens. Each
    occurrence of a noise token u in sequence k adds B_k^T z_u - of_noise_k to the
    weight of key u, where B_k is the sum of b over the samples of the sequence.
    """
    counts, E = pool_of_step(world, 1)
    run, e, mean = world.run, world.e, mean_weight(world)
    b = gather(centred(world, e.Z_out @ V_mat), world.perm)  # by informative token
    noise = attend_to_pairs(world, counts, unlearned_scores(world))
    g = noise.noise * noise.total[:, None]  # sum of the values of a noise sequence
    along_v = jnp.sum(b * values(world), axis=1)  # b^T v_x
    share = 1 / run.V.astype(f32) + jnp.sum(E, axis=1)
    B = E.T @ b
    # L b^T h, summed over the noise sequences of a token, and over the tokens of a
    # noise sequence
    of_pairs = E @ g + jnp.sum(g, axis=0)[None] * mean
    of_token = share * along_v + jnp.sum(b * of_pairs, axis=1)
    of_noise = jnp.sum(along_v) * mean + along_v @ E + jnp.sum(B * g, axis=1)
    L = run.L.astype(f32)
    less_mean = share * along_v - of_token / L
    weights = jnp.sum(counts * (B @ e.Z_in.T), axis=0) + less_mean
    keys_sum = weights @ e.Z_in - of_noise / L @ g + jnp.sum(less_mean) * e.z_trig
    return -keys_sum / L


def scan_tokens(
    world: World,
    a: PairAttention,
    weights: Array,
    body: Callable[..., tuple[Array, PyTree]],
) -> PyTree:
    """Scans `body(total, phi, weight, label)` over tokens. The arguments are a total,
    which starts at 0, and the features (K, p), the weights (K,) and the label of all
    pairs of one token.

    The input u of the features of pair (x, k) is on_token[x, k] u(v_x) + on_noise[x, k]
    u(noise_k). So each pair costs p operations instead of d p, and the memory is a few
    arrays (K, p).
    """
    pairs, of_noise = hidden_tables(world, a)

    def step(total: Array, rows: PyTree) -> tuple[Array, PyTree]:
        pairs, weight, label = rows
        phi, _ = features_of(world, hidden(pairs, of_noise))
        return body(total, phi, weight, label)

    return lax.scan(step, f32(0), (pairs, weights, world.perm))


class TokenPairs(NamedTuple):
    """The properties of the pairs of one token. For all tokens, each array has a
    leading axis V.
    """

    on_token: Array  # (K,) weight of the token
    on_noise: Array  # (K,) weight of the noise sequence
    u: Array  # (p,) value of the token, as a part of h or of W_in h


def hidden_tables(world: World, a: PairAttention) -> tuple[TokenPairs, Array]:
    """Returns the tables of all tokens, and the values (K, p) of the noise sequences.
    With an MLP, the values in both are multiplied by W_in.
    """
    W_in, v, noise = world.e.W_in, values(world), a.noise
    if W_in is not None:
        v, noise = v @ W_in.T, noise @ W_in.T
    return TokenPairs(a.on_token, a.on_noise, v), noise


def hidden(pairs: TokenPairs, of_noise: Array) -> Array:
    """The array h (K, p) of all pairs of a token, or W_in h with an MLP."""
    on_token, on_noise = pairs.on_token[:, None], pairs.on_noise[:, None]
    return on_token * pairs.u[None] + on_noise * of_noise


def mean_features(
    world: World, a: PairAttention, weights: Array
) -> tuple[Array, Array]:
    """Returns, for each token, the sum of weight times phi over its pairs (V, p). Also
    returns the mean of |phi|^2.
    """

    def token(
        phi2: Array, phi: Array, weight: Array, label: Array
    ) -> tuple[Array, Array]:
        return phi2 + weight @ jnp.sum(phi * phi, axis=1), weight @ phi

    phi2, rows = scan_tokens(world, a, weights, token)
    return rows, phi2


def over_pairs(
    world: World, state: State, wanted: Collection[str], step: int
) -> Parameters:
    """The gradient of the mean loss over all pairs of step 0, 1 or 2, by the parameters
    `wanted`.

    The loss is replaced by the weighted sum of r^T logits with r held constant, which
    has the same gradient. With even predictions, r^T logits is the product of the
    features with a row of the table `of_label`, and only w is wanted.
    """
    counts, E = pool_of_step(world, step)
    w = jnp.zeros(world.shape.d, f32) if state.w is None else state.w
    of_state = {"V_mat": state.V_mat, "w": w}
    at = {}
    for name in wanted:
        at[name] = of_state[name] if name in of_state else getattr(world.e, name)

    def tables(parameters: Parameters) -> tuple[TokenPairs, tuple[Array, Maps]]:
        here = moved(world, parameters)
        scores = state.scores
        if scores is None or "w" in parameters:
            scores = scores_under(here, parameters.get("w", w))
        pairs, of_noise = hidden_tables(here, attend_to_pairs(here, counts, scores))
        V_mat = parameters.get("V_mat", state.V_mat)
        return pairs, (of_noise, output_maps(here, V_mat))

    of_label = -centred(world, world.e.Z_out) @ state.V_mat

    def slope_of_pairs(
        pairs: TokenPairs, shared: tuple[Array, Maps], weight: Array, label: Array
    ) -> Array:
        """The sum of weight times r^T logits over the pairs of a token."""
        of_noise, maps = shared
        phi, _ = features_of(world, hidden(pairs, of_noise))
        if state.even:
            return weight @ (phi @ of_label[label])
        y = jnp.full(len(phi), label)
        return weight @ slope_along(world, mapped(maps, phi), y, state.scale)

    (pairs, shared), pull_back = jax.vjp(tables, at)

    def token(total: PyTree, x: PyTree) -> tuple[PyTree, TokenPairs]:
        pairs, *weight_and_label = x
        slopes = jax.grad(slope_of_pairs, (0, 1))(pairs, shared, *weight_and_label)
        by_pairs, by_shared = slopes
        return jax.tree.map(jnp.add, total, by_shared), by_pairs

    zero = jax.tree.map(jnp.zeros_like, shared)
    tokens = pairs, pair_weights(world, E), world.perm
    by_shared, by_pairs = lax.scan(token, zero, tokens)
    return pull_back((by_pairs, by_shared))[0]


def loss_of_pairs(world: World, V_mat: Array, w: Array) -> Array:
    """The weighted loss of all pairs of a token and a noise sequence of the pool."""
    counts, E = pool_of_step(world, 0)
    seen = attend_to_pairs(world, counts, scores_under(world, w))

    def token(
        total: Array, phi: Array, weight: Array, label: Array
    ) -> tuple[Array, None]:
        losses = cross_entropy(world, V_mat, phi, jnp.full(len(phi), label))
        return total + weight @ losses, None

    return scan_tokens(world, seen, pair_weights(world, E), token)[0]
