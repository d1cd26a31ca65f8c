"""The metrics of a trained model, written readably for the full batch in NumPy float64
or in JAX.

The simulator computes the same metrics with streamed samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import PointError, expect
from ..columns import ATTENTION_COLUMNS, COLUMNS, TRACE_COLUMNS, Row
from ..functional import in_jax, is_plain, predict
from ..laws.tokens import by_frequency, rare_and_frequent
from ..point import RECIPE_STEPS, Point
from ..recall import Attend, Readout, plain_readout, softmax_attention
from ..values import Numbers
from .descent import Descended
from .realization import EMBEDDINGS, Realization, expect_both
from .steps import ThreeStep


def measure(
    realization: Realization,
    point: Point,
    learned: ThreeStep | Descended,
    *,
    attend: Attend = softmax_attention,
    readout: Readout = plain_readout,
) -> Row:
    """Returns the metric columns of a run's row in table order.

    `realization` contains the draws of the run, and `learned` is the output of
    `three_step` or `descend`.

    The result contains only metrics. It lacks the columns of the point and the columns
    about the computation (status, form, draw_check, seconds, versions, device_kind,
    dtype, precision, bucket). It also lacks the columns that the switches `diagnose`
    and `decoders` add.

    If the draws or the learned parameters are JAX arrays, the numbers are JAX arrays of
    the same dtype, and undefined numbers are nan. Otherwise they are computed in NumPy
    float64, and undefined numbers are None. Columns that are empty in a row of this
    point are None in both cases.

    `attend` and `readout` are as in `predict`. With another attention or readout, the
    numbers are JAX arrays. `attention_mass` and `attention_top1` are computed from the
    weights that `attend` returns. The columns of scores are computed from w.

    Examples:
        >>> from jaxrecall import Point, measure, realize, simulate, three_step
        >>> point = Point(V=64, N=1024, d=32, L=8)
        >>> draws = realize(point, seed=0)
        >>> measure(draws, point, three_step(draws, point))["accuracy"]
        >>> simulate(point, seed=0)["accuracy"]
    """
    expect_both(realization, point)
    expect_learned = "what jaxrecall.three_step returns, or one of what descend returns"
    expect("learned", learned, (ThreeStep, Descended), expect_learned, PointError)
    traced = in_jax(realization, learned)
    xp, r = (jnp, realization) if traced else (np, realization.astype(np.float64))
    if not is_plain(attend, readout):
        traced, xp, r = True, jnp, jax.tree.map(jnp.asarray, realization)
    # sequences of a single token, so that attention is exactly on it
    alone = np.arange(point.V, dtype=np.int32)[:, None], np.zeros(point.V, np.int32)
    of_first_steps = "step1_memory_accuracy", "largest_prediction"
    row: Row = dict.fromkeys((*TRACE_COLUMNS, *of_first_steps))
    row["step"] = RECIPE_STEPS
    w = learned.w
    if learned.V1 is not None:
        untriggered = r._replace(z_trig=0 * r.z_trig)
        logits, _ = predict(untriggered, point, learned.V1, w, *alone, readout=readout)
        row["step1_memory_accuracy"] = (logits.argmax(1) == r.perm).mean()
        if point.first_steps > 1:
            x, ell, _ = samples(r, point, RECIPE_STEPS - 1)
            logits, _ = predict(
                r, point, learned.V1, 0 * w, x, ell, attend=attend, readout=readout
            )
            row["largest_prediction"] = point.V * largest_probability(logits, xp)
    if isinstance(learned, Descended):
        V_mat, last = learned.V_mat, max(learned.step - 1, 0)
        r = r._replace(**{name: getattr(learned, name) for name in EMBEDDINGS})
        row |= measure_trace(learned)
    else:
        V_mat, last = learned.V2, 2
    if readout is plain_readout:  # no metric depends on the scale then
        V_mat = V_mat / positive(abs(V_mat).max(), xp)
    model = partial(predict, r, point, V_mat, w, readout=readout)
    x, ell, y = samples(r, point, last)
    logits, _ = model(x, ell, attend=attend)
    row["train_accuracy"] = (logits.argmax(1) == y).mean()
    with jax.default_matmul_precision("highest"):
        logits, attention = model(*r.test[:2], attend=attend)
        ranked = None if attend is softmax_attention else attention
        row |= measure_sequences(r, point, w, logits, attention, xp, ranked)
        row |= measure_vocabulary(r, point, model(*alone)[0], xp)
        row |= measure_scores(r, w, xp)
    if not traced:
        row = _plain(row)
    if point.L == 1:
        row |= dict.fromkeys(ATTENTION_COLUMNS)
    return {name: row[name] for name in COLUMNS if name in row}


def samples(r: Realization, point: Point, step: int) -> Iterator[Numbers]:
    """Yields the tokens, positions and labels of the samples of a step, counted from 0,
    of which at most n_test are measured.
    """
    n = min(point.N, point.n_test)
    yield from (part[:n] for part in r.samples(step))


def largest_probability(logits: Numbers, xp: ModuleType) -> Numbers:
    """Returns the largest entry of the softmax of any row of the logits (n, V)."""
    behind = logits - logits.max(1, keepdims=True)
    return 1 / xp.exp(behind).sum(1).min()


def _plain(row: Row) -> Row:
    """Returns the same row with Python numbers as values, and None for undefined
    numbers.
    """
    for name, value in row.items():
        if isinstance(value, np.generic | np.ndarray):
            row[name] = value.item()
    for name in ("snr", "trigger_cosine"):
        if np.isnan(row[name]):
            row[name] = None
    return row


def positive(x: Numbers, xp: ModuleType) -> Numbers:
    """Returns x, or 1 where it is 0, for use as a divisor."""
    return xp.where(x > 0, x, 1)


def measure_sequences(
    r: Realization,
    point: Point,
    w: Numbers,
    logits: Numbers,
    attention: Numbers,
    xp: ModuleType,
    ranked: Numbers | None = None,
) -> Row:
    """Returns the columns that are counts or means over the test sequences.

    The columns are computed from the logits (n, V) and the attention (n, L). `ranked`
    (n, L) determines whether the informative token ranks first. If `ranked` is None,
    the attention scores rank the tokens, because softmax preserves their order.
    """
    x, ell, y = r.test
    is_label = xp.arange(point.V)[None] == y[:, None]
    of_label = xp.where(is_label, logits, 0.0).sum(1)
    others = xp.where(is_label, -xp.inf, logits).max(1)
    std = logits.std(1)
    margin = xp.where(std > 0, (of_label - others) / positive(std, xp), 0.0)

    is_ell = xp.arange(point.L)[None] == ell[:, None]
    if ranked is None:
        ranked = (r.Z_in @ w)[x] + xp.where(is_ell, r.z_trig @ w, 0.0)
    informative = xp.where(is_ell, ranked, 0.0).sum(1)
    rival = xp.where(is_ell, -xp.inf, ranked).max(1)

    n_correct = (logits.argmax(1) == y).sum()
    n_largest = (logits == logits.max(1, keepdims=True)).sum(1)
    return {
        "n_correct": n_correct,
        "accuracy": n_correct / point.n_test,
        "attention_mass": xp.where(is_ell, attention, 0.0).sum(1).mean(),
        "attention_top1": (informative > rival).mean(),
        "test_margin": margin.mean(),
        "n_tied": (n_largest > 1).sum(),
    }


def measure_vocabulary(
    r: Realization, point: Point, logits: Numbers, xp: ModuleType
) -> Row:
    """Returns the columns that measure recall over the vocabulary while attention is
    exactly on the token.
    """
    recalled = logits.argmax(1) == r.perm
    columns: Row = {
        "memory_accuracy": recalled.mean(),
        "rare_memory_accuracy": None,
        "frequent_memory_accuracy": None,
        "recalled": recalled.sum(),
        "recalled_top": None,
    }
    law = point.token_laws[0]
    if law != "uniform":
        rare, frequent = rare_and_frequent(law, point.V)
        columns["rare_memory_accuracy"] = recalled[rare].mean()
        columns["frequent_memory_accuracy"] = recalled[frequent].mean()
        n = np.arange(1, point.V + 1)
        of_most_frequent = recalled[by_frequency(law, point.V)].cumsum()
        columns["recalled_top"] = xp.where(10 * of_most_frequent >= 9 * n, n, 0).max()
    return columns


def measure_scores(r: Realization, w: Numbers, xp: ModuleType) -> Row:
    """Returns the columns that measure the contributions of the trigger and the tokens
    to an attention logit.

    Undefined numbers are nan.
    """
    scale = abs(w).max()
    unit = w / positive(scale, xp)
    trigger, std = r.z_trig @ unit, (r.Z_in @ unit).std()
    lengths = xp.linalg.norm(r.z_trig) * xp.linalg.norm(unit)
    cosine = trigger / xp.where(scale > 0, lengths, 1)
    return {
        "trigger_score": scale * trigger,
        "score_std": scale * std,
        "snr": xp.where(std > 0, trigger / positive(std, xp), xp.nan),
        "trigger_cosine": xp.where(scale > 0, cosine, xp.nan),
    }


def measure_trace(learned: Descended) -> Row:
    """Returns the columns that only the rows of a run beyond the recipe contain."""

    def norm(rows: np.ndarray) -> float:
        return (rows**2).sum(1).mean() ** 0.5

    def overlap(rows: np.ndarray) -> float:
        unit = rows / (rows**2).sum(1, keepdims=True) ** 0.5
        between = (unit @ unit.T)[~np.eye(len(unit), dtype=bool)]
        return (between**2).mean() ** 0.5

    return {
        "step": learned.step,
        "loss": learned.loss,
        "test_loss": learned.test_loss,
        "V_norm": (learned.V_mat**2).sum() ** 0.5,
        "W_norm": (learned.W_KQ**2).sum() ** 0.5,
        "Z_in_norm": norm(learned.Z_in),
        "Z_out_norm": norm(learned.Z_out),
        "Z_in_overlap": overlap(learned.Z_in),
        "Z_out_overlap": overlap(learned.Z_out),
    }
