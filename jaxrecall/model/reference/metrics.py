"""What is measured of a trained model, to read: full batch,
float64, in NumPy. The simulator measures the same, streamed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import PointError, expect
from ..columns import ATTENTION_COLUMNS, COLUMNS
from ..laws.tokens import Uniform, ranks, rare_and_frequent
from ..point import Point
from .descent import Descended
from .realization import Realization, expect_both
from .steps import EMBEDDINGS, ThreeStep, attend, batch_of_step, features, in_float64


def measure(realization: Realization, point: Point, learned: ThreeStep | Descended) -> dict[str, Any]:
    """The metric columns of a run's row, in float64, from
    its draws and what `three_step` or `descend` learned.

    They are in the order of the table; undefined numbers are None.

    Examples:
        >>> from jaxrecall import Point, measure, realize, simulate, three_step
        >>> point = Point(V=64, N=1024, d=32, L=8)
        >>> draws = realize(point, seed=0)
        >>> measure(draws, point, three_step(draws, point))["accuracy"], simulate(point, seed=0)["accuracy"]
    """
    expect_both(realization, point)
    expect("learned", learned, (ThreeStep, Descended), "what jaxrecall.three_step returns, or one of what descend returns", PointError)
    r, w = in_float64(realization), learned.w
    step1 = None if learned.V1 is None else features(r, point, r.Z_in)[0] @ learned.V1.T @ r.Z_out.T
    if isinstance(learned, Descended):
        V_mat, last, traced = learned.V_mat, max(learned.step - 1, 0), trace(learned)
        r = r._replace(**{name: getattr(learned, name) for name in EMBEDDINGS})
    else:
        V_mat, last, traced = learned.V2, 2, {}
    answers = r.Z_out @ (V_mat / (np.abs(V_mat).max() or 1.0))  # (V, p); no metric sees the scale
    n_train = min(point.N, point.n_test)
    x, ell, labels = (part[:n_train] for part in batch_of_step(r, point, last))
    h = attend(r, point, x, ell, w)[0]
    train_labels = (features(r, point, h)[0] @ answers.T).argmax(1)
    found = over_sequences(r, point, w, answers) | over_vocabulary(r, point, answers) | of_scores(r, w) | traced
    found["step1_memory_accuracy"] = None if step1 is None else float((step1.argmax(1) == r.perm).mean())
    found["train_accuracy"] = float((train_labels == labels).mean())
    found |= dict.fromkeys(ATTENTION_COLUMNS) if point.L == 1 else {}
    return {name: found[name] for name in COLUMNS if name in found}


def over_sequences(r: Realization, point: Point, w: np.ndarray, answers: np.ndarray) -> dict[str, Any]:
    """The columns that are counts or means over the test
    sequences; logits are answers phi, (V, p) times (p,).
    """
    x, ell, y, row = r.test_tokens, r.test_positions, r.test_labels, np.arange(point.n_test)
    h, a = attend(r, point, x, ell, w)
    logits = features(r, point, h)[0] @ answers.T
    top, std, others = logits.max(1), logits.std(1), logits.copy()
    others[row, y] = -np.inf
    margin = np.divide(logits[row, y] - others.max(1), std, out=np.zeros_like(std), where=std > 0)
    rest = np.where(np.arange(point.L) == ell[:, None], -np.inf, (r.Z_in @ w)[x])
    own = (r.Z_in @ w)[x[row, ell]] + r.z_trig @ w
    n_correct = int((logits.argmax(1) == y).sum())
    return {
        "n_correct": n_correct,
        "accuracy": n_correct / point.n_test,
        "attention_mass": float(a[row, ell].mean()),
        "attention_top1": float((own > rest.max(1)).mean()),
        "test_margin": float(margin.mean()),
        "n_tied": int(((logits == top[:, None]).sum(1) > 1).sum()),
    }


def over_vocabulary(r: Realization, point: Point, answers: np.ndarray) -> dict[str, Any]:
    """The fractions of the vocabulary that are recalled with attention exactly on the token."""
    exact = r.Z_in + point.trigger_in_value * r.z_trig
    recalled = (features(r, point, exact)[0] @ answers.T).argmax(1) == r.perm
    by_frequency, top = [None] * 2, None
    if (law := point.token_laws[0]) != Uniform():
        by_frequency = [float(recalled[group].mean()) for group in rare_and_frequent(law, point.V)]
        enough = 10 * recalled[ranks(law, point.V).argsort()].cumsum() >= 9 * np.arange(1, point.V + 1)
        top = int(np.flatnonzero(enough).max(initial=-1)) + 1
    return {
        "memory_accuracy": float(recalled.mean()),
        "rare_memory_accuracy": by_frequency[0],
        "frequent_memory_accuracy": by_frequency[1],
        "recalled": int(recalled.sum()),
        "recalled_top": top,
    }


def of_scores(r: Realization, w: np.ndarray) -> dict[str, Any]:
    """The columns of what the trigger and the tokens add to an attention logit."""
    scale = np.abs(w).max()
    unit = w / scale if scale > 0 else w
    trigger_score, score_std = scale * (r.z_trig @ unit), scale * (r.Z_in @ unit).std()
    return {
        "trigger_score": float(trigger_score),
        "score_std": float(score_std),
        "snr": float(trigger_score / score_std) if score_std > 0 else None,
        "trigger_cosine": float(r.z_trig @ unit / np.linalg.norm(r.z_trig) / np.linalg.norm(unit)) if scale > 0 else None,
    }


def trace(learned: Descended) -> dict[str, Any]:
    """The columns that only a run beyond the recipe has."""

    def norm(rows: np.ndarray) -> float:
        return float((rows**2).sum(1).mean() ** 0.5)

    def overlap(rows: np.ndarray) -> float:
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        between = (unit @ unit.T)[~np.eye(len(unit), dtype=bool)]
        return float((between**2).mean() ** 0.5)

    return {
        "step": learned.step,
        "loss": learned.loss,
        "test_loss": learned.test_loss,
        "V_norm": float(np.linalg.norm(learned.V_mat)),
        "W_norm": float(np.linalg.norm(learned.W_KQ)),
        "Z_in_norm": norm(learned.Z_in),
        "Z_out_norm": norm(learned.Z_out),
        "Z_in_overlap": overlap(learned.Z_in),
        "Z_out_overlap": overlap(learned.Z_out),
    }
