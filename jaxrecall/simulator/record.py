"""What a run leaves: metrics, losses, norms, the noise of its scores, and their
columns.

`after_recipe` and `at_step` return raw numbers, `finish` makes rows of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import PyTree

from ..errors import UsageError
from ..model import keys, task
from ..model.columns import (
    ATTENTION_COLUMNS,
    COLUMNS,
    EXTRA_COLUMNS,
    NOISES,
    TRACE_COLUMNS,
    Drawn,
    Learned,
    Row,
)
from ..model.laws.tokens import Uniform, n_frequent, n_rare
from ..model.point import BLOCK, REDRAWS, Point
from ..model.reference.decoders import decoder_columns
from . import metrics, pairs, shortcut
from .forms import Form
from .forward import features, features_of, is_label, scores_under
from .gradient import mapped, output_maps
from .loops import norm, over_vocabulary, repeat, token_counts, unless_zero, whole
from .metrics import TEST, TRAIN, reader
from .pool_draws import pool_of_step, token_parts, weights_of
from .shortcut import FirstSteps
from .world import Trained, World, batch_of_step, centred, f32, i32, values

Raw = dict[str, PyTree]
"""What a program returns of a run: columns and what they follow from."""


def after_recipe(
    world: World, trained: Trained, first_steps: Callable[[World], FirstSteps]
) -> Raw:
    """Raw metrics of the model, and the bounds on its error; `finish` makes columns of
    them.

    `first_steps` trains steps 1 and 2 alone, for redraws of W_in.
    """
    raw: Raw = metrics.measure(world, trained)
    errors = trained.errors
    if world.shape.diagnose:
        mean_w, error = (
            over_redraws(world, first_steps)
            if world.shape.m
            else (trained.w, jnp.float32(0))
        )
        raw["noise"] = covariances(world, trained.w, mean_w)
        errors = errors and (jnp.maximum(errors[0], error), errors[1])
    if world.shape.decoders:
        raw["decoded"] = {"perm": world.perm, "G1": trained.V1} | {
            name: getattr(world.e, name) for name in ("Z_in", "Z_out", "z_trig")
        }
    raw["own"] = own_columns(
        world, trained.V1, trained.rate * trained.w, world.run.scale * trained.V2
    )
    return raw | {"errors": errors, "locked": trained.locked}


def at_step(
    world: World, params: dict[str, Array], w: Array, V1: Array, last: Array
) -> dict[str, Array]:
    """Raw metrics, losses and norms of a model with parameters at their true scale.

    `last` is the stream of the last samples.

    The embeddings of the world are those that were trained.
    """
    V_mat = params["V_mat"]
    draws = metrics.draw_check(world)
    world = replace(
        world, run=replace(world.run, batches=jnp.broadcast_to(last, (3, 2)))
    )
    raw = metrics.measure(world, Trained(V1, w, jnp.float32(1), V_mat))
    loss, test_loss = train_and_test(world, V_mat, w)
    finite = jnp.stack(
        [jnp.all(jnp.isfinite(a)) for a in (loss, test_loss, *params.values())]
    )
    return raw | {
        "loss": loss,
        "test_loss": test_loss,
        "norms": norms(world, params, w),
        "own": own_columns(world, V1, w, V_mat),
        "finite": raw["finite"] & jnp.all(finite),
        "draw_check": draws,
    }


def own_columns(world: World, V1: Array, w: Array, V_mat: Array) -> dict[str, Array]:
    """The columns of the user's own, of a model at its true scale but for V1, which is
    over eta.
    """
    e = world.e
    draws = Drawn(e.Z_in, e.Z_out, e.z_trig, e.z_eos, e.W_in, world.perm)
    found = {
        column.name: jnp.asarray(
            column.fn(draws, Learned(world.run.eta * V1, w, V_mat))
        )
        for column in world.shape.columns
    }
    for column in world.shape.columns:
        value, (kind, _) = found[column.name], column.declared
        if value.shape or not jnp.issubdtype(
            value.dtype,
            {"int64": jnp.integer, "bool": jnp.bool_}.get(kind, jnp.floating),
        ):
            raise UsageError(
                f"columns.{column.name}: {column.path} returned {value.dtype}"
                f" {value.shape}; allowed: one {kind}"
            )
    return found


NORMS = ("V_norm", "W_norm", "Z_in_norm", "Z_out_norm", "Z_in_overlap", "Z_out_overlap")


def norms(world: World, params: dict[str, Array], w: Array) -> Array:
    """(6,): the columns NORMS, of V_mat and W_KQ, and of the rows of Z_in and Z_out."""
    e, V = world.e, world.run.V.astype(jnp.float32)

    def rows(Z: Array) -> tuple[Array, Array]:
        square = jnp.sum(Z * Z, axis=1)
        unit = Z * lax.rsqrt(unless_zero(square))[:, None]
        gram = unit.T @ unit
        return jnp.sqrt(jnp.sum(square) / V), jnp.sqrt(
            jnp.maximum(jnp.sum(gram * gram) - V, 0) / (V * (V - 1))
        )

    W_KQ = (
        norm(params["W_KQ"])
        if "W_KQ" in params
        else jnp.sqrt(jnp.sum(w * w) / jnp.sum(e.z_eos * e.z_eos))
    )
    (norm_in, overlap_in), (norm_out, overlap_out) = rows(e.Z_in), rows(e.Z_out)
    return jnp.stack(
        [norm(params["V_mat"]), W_KQ, norm_in, norm_out, overlap_in, overlap_out]
    )


def train_and_test(world: World, V_mat: Array, w: Array) -> tuple[Array, Array]:
    """The loss of the N samples, and that of the test sequences."""
    run = world.run
    read = reader(world, scores_under(world, w), jnp.bool_(False))

    def mean_loss(which: Array, key: Array, n: Array) -> Array:
        def block(c: Array, total: Array) -> Array:
            v, seen = read.attended(which, keys.blocks(key, c, 1))
            y = metrics.labels(world, which, keys.blocks(key, c, 1), v)
            losses = cross_entropy(world, V_mat, features(world, seen.h)[0], y)
            real = c * BLOCK + jnp.arange(BLOCK, dtype=i32) < n
            return total + jnp.sum(jnp.where(real, losses, f32(0)))

        return repeat(world, 0, whole(n, BLOCK), block, f32(0)) / n.astype(f32)

    test_key, train_key = keys.stream(run.streams, "test"), batch_of_step(world, 2)
    if world.shape.pool:
        return over_pairs(world, V_mat, w), mean_loss(i32(TEST), test_key, run.n_test)
    if world.shape.memory:
        of_test = token_counts(world, test_key, run.n_test).astype(
            f32
        ) / run.n_test.astype(f32)
        train, test = over_tokens(
            world, V_mat, jnp.stack([token_parts(world, train_key), of_test])
        )
    else:
        sets = (
            jnp.array([TRAIN, TEST], i32),
            jnp.stack([train_key, test_key]),
            jnp.stack([run.N, run.n_test]),
        )
        train, test = lax.map(lambda of: mean_loss(*of), sets)
    return train, test


def over_tokens(world: World, V_mat: Array, weights: Array) -> Array:
    """The losses (n,) of tokens with all the attention, weighted (n, V)."""

    def rows(v: Array, real: Array, total: Array) -> Array:
        phi, _ = features(world, values(world).at[v].get(mode="clip"))
        losses = cross_entropy(world, V_mat, phi, world.perm.at[v].get(mode="clip"))
        return total + jnp.sum(
            jnp.where(real, weights.at[:, v].get(mode="clip") * losses[None], f32(0)),
            axis=1,
        )

    return over_vocabulary(world, rows, jnp.zeros(len(weights), f32))


def over_pairs(world: World, V_mat: Array, w: Array) -> Array:
    """The loss of all pairs of a token and a noise sequence of the pool, weighted."""
    counts, E = pool_of_step(world, 0)
    seen = pairs.attended(world, counts, scores_under(world, w))

    def token(total: Array, x: pairs.Token) -> tuple[Array, None]:
        phi, _ = features_of(world, x.u)
        return (
            total
            + x.weight @ cross_entropy(world, V_mat, phi, jnp.full(len(phi), x.label)),
            None,
        )

    return pairs.over_tokens(world, seen, weights_of(world, E), token, f32(0))[0]


def cross_entropy(world: World, V_mat: Array, phi: Array, y: Array) -> Array:
    """(n,): -log p_y of features phi (n, p) with labels y (n,)."""
    logits = mapped(output_maps(world, V_mat), phi)
    own = jnp.sum(jnp.where(is_label(world, y), logits, f32(0)), axis=1)
    return jax.nn.logsumexp(logits + world.no_label[None], axis=1) - own


def over_redraws(
    world: World, first_steps: Callable[[World], FirstSteps]
) -> tuple[Array, Array]:
    """Mean of w_hat over redraws of W_in, and the largest error bound of step 2 among
    them.

    Data and embeddings are held.

    `first_steps` takes steps 1 and 2 in the form of the run itself; an exact form has
    error 0.
    """
    run, shape = world.run, world.shape

    def one(r: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        total, largest = carry
        W_in = task.redrawn_first_layer(
            run.streams, r, run.d, run.m, (shape.m, shape.d)
        )
        redrawn = eqx.tree_at(lambda w: w.e.W_in, world, W_in)
        G1, A, w, phi2 = first_steps(redrawn)
        if phi2 is not None:
            largest = jnp.maximum(
                largest,
                shortcut.softmax_errors(
                    redrawn, G1, A, centred(world, world.e.Z_out), phi2, phi2
                )[0],
            )
        return total + w, largest

    total, error = lax.fori_loop(0, REDRAWS, one, (jnp.zeros(shape.d, f32), f32(0)))
    return total / REDRAWS, error


def split(world: World, w: Array, mean_w: Array) -> Array:
    """(4, d): w as the sum of its parts, in the order of NOISES.

    `mean_w` is its mean over redraws of W_in.

    Along z_trig; of the rest along Sigma_c zbar, the covariance of the rows of Z_in
    times their mean; of the rest, what differs from the mean over redraws; and that
    mean. Where Sigma_c zbar has no direction of its own (orthogonal embeddings), there
    is no such part.
    """
    e, V = world.e, world.run.V.astype(f32)
    rows = centred(world, e.Z_in)
    zbar = jnp.sum(e.Z_in, axis=0) / V
    trigger = e.z_trig / norm(e.z_trig)
    drift = (rows @ zbar) @ rows / V
    own = drift - (drift @ trigger) * trigger
    rounding = norm(drift) + jnp.sum(rows * rows) * norm(zbar) / (V * V)
    bias = jnp.where(norm(own) > 1e-5 * rounding, own / unless_zero(norm(own)), f32(0))

    def rest(x: Array) -> Array:
        return x - (x @ trigger) * trigger - (x @ bias) * bias

    return jnp.stack(
        [
            (w @ trigger) * trigger,
            (w @ bias) * bias,
            rest(w) - rest(mean_w),
            rest(mean_w),
        ]
    )


def covariances(world: World, w_hat: Array, mean_w: Array) -> Array:
    """(4, 4): covariances over the vocabulary of the scores of the parts of w.

    w_hat is scaled to a largest entry of 1.
    """
    scale = unless_zero(jnp.max(jnp.abs(w_hat)))
    scores = (
        centred(world, world.e.Z_in) @ split(world, w_hat / scale, mean_w / scale).T
    )
    return scores.T @ scores / world.run.V.astype(f32)


def noise_columns(covariances: np.ndarray, trigger: float) -> dict[str, float | None]:
    """The noise columns from the covariances (4, 4) of the parts' scores and the
    trigger's score.

    Null where that is 0.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.asarray(covariances, np.float64) / np.float64(trigger) ** 2
    std = {f"noise_{name}": relative[i, i] ** 0.5 for i, name in enumerate(NOISES)}
    both = {
        f"cov_{NOISES[i]}_{NOISES[j]}": relative[i, j]
        for i, j in combinations(range(4), 2)
    }
    return {
        name: float(value) if np.isfinite(relative).all() else None
        for name, value in (std | both).items()
    }


def finish(raw: Raw, point: Point, form: Form) -> list[Row] | None:
    """The metric columns of each row of a run, in order of step, from a program's
    counts and sums.

    Ratios in float64.

    None stands for a run that the error bound of its form rejects.
    """
    if not form.accepts(raw["errors"]):
        return None
    label = form.label(point, raw["locked"])
    if point.trains_on:
        return _trace(
            raw["trace"],
            point,
            "" if point.start == "zero" and not point.is_memory else f"{label}, ",
        )
    scale = point.gamma * point.eta * float(raw["w_scale"])
    row = dict.fromkeys((*EXTRA_COLUMNS, *TRACE_COLUMNS)) | _measured(raw, point, scale)
    if point.diagnose:
        row |= noise_columns(raw["noise"], float(raw["trigger"]) if scale else 0.0)
    if point.decoders:
        row |= decoder_columns(point, **raw["decoded"])
    return [
        _judged(row, bool(raw["finite"]), scale, point)
        | _named(raw, point.steps, label)
    ]


def _trace(raw: Raw, point: Point, recipe: str) -> list[Row]:
    """A row for each recorded step.

    Every array of `raw` has their axis first, and w at its true scale.
    """
    rows = []
    for i, step in enumerate(point.recorded_steps):
        now = jax.tree.map(lambda values, i=i: values[i], raw)
        scale = float(now["w_scale"])
        row: Row = (
            dict.fromkeys(EXTRA_COLUMNS)
            | _measured(now, point, scale)
            | dict(zip(NORMS, map(float, now["norms"]), strict=True))
        )
        # step 1 of the recipe is over when a trace begins
        row["step1_memory_accuracy"] = (
            None if point.start == "zero" else int(raw["n_step1"][0]) / point.V
        )
        finite = bool(now["finite"]) and all(
            math.isfinite(row[name]) for name in TRACE_COLUMNS
        )
        grouped = step > point.recorded_steps[0] and not now["n_read"]
        rows.append(
            _judged(row, finite, scale, point)
            | _named(now, step, f"{recipe}{'locked ' if grouped else ''}descent")
        )
    return rows


def _measured(raw: Raw, point: Point, scale: float) -> Row:
    """What every row has: numbers that `raw` has by the name of their column, and
    ratios.

    `scale` is that of w.
    """
    trigger, std = float(raw["trigger"]), float(raw["score_std"])
    given = {
        name: int(raw[name]) if COLUMNS[name][0] == "int64" else float(raw[name])
        for name in COLUMNS
        if name in raw
    }
    return given | {
        "accuracy": given["n_correct"] / point.n_test,
        "memory_accuracy": given["recalled"] / point.V,
        "step1_memory_accuracy": int(raw["n_step1"]) / point.V,
        "train_accuracy": int(raw["n_train_correct"]) / min(point.N, point.n_test),
        "attention_mass": float(raw["mass"]) / point.n_test,
        "attention_top1": int(raw["n_top1"]) / point.n_test,
        "trigger_score": scale * trigger,
        "score_std": scale * std,
        "snr": trigger / std if std > 0 else None,
        "test_margin": float(raw["margin"]) / point.n_test,
        "status": "ok",
        **_by_frequency(raw, point),
        **{
            name: value if math.isfinite(value := of.item()) else None
            for name, of in raw["own"].items()
        },
    }


def _by_frequency(raw: Raw, point: Point) -> Row:
    """The columns of rare and of frequent tokens.

    Null, as `recalled_top`, where tokens are uniform.
    """
    names = "rare_memory_accuracy", "frequent_memory_accuracy"
    if point.token_laws[0] == Uniform():
        return dict.fromkeys((*names, "recalled_top"))
    sizes = n_rare(point.V), n_frequent(point.V)
    return {
        name: int(n) / size
        for name, n, size in zip(names, raw["n_by_frequency"], sizes, strict=True)
    }


def _judged(row: Row, finite: bool, scale: float, point: Point) -> Row:
    """The row with its status: metrics that mean nothing are null.

    They are all if a number overflowed, those of a direction if w = 0, and those of
    attention at L = 1.
    """
    if not finite or not math.isfinite(scale):
        return dict.fromkeys(row) | {"status": "nonfinite"}
    if point.L == 1:
        return row | dict.fromkeys(ATTENTION_COLUMNS)
    if scale == 0:
        return row | {"snr": None, "trigger_cosine": None, "status": "degenerate"}
    return row


def _named(raw: Raw, step: int, label: str) -> Row:
    return {"form": label, "draw_check": int(raw["draw_check"]), "step": step}
