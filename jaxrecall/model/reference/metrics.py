"""What is measured of a trained model, to read: full batch, float64, in NumPy. The simulator measures the same, streamed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import PointError, expect
from ..laws.tokens import Uniform, rare_and_frequent
from ..point import Point
from .descent import EMBEDDINGS, Descended
from .realization import Realization, expect_both
from .steps import ThreeStep, attend, batch_of_step, features, in_float64


def measure(realization: Realization, point: Point, learned: ThreeStep | Descended) -> dict[str, Any]:
    """The metric columns of a run's row, in float64, from its draws and what `three_step` or `descend` learned; undefined numbers are None.

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

    def recall(x: np.ndarray, ell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        h, a = attend(r, point, x, ell, w)
        return features(r, point, h)[0] @ answers.T, a

    logits, a = recall(r.test_tokens, r.test_positions)
    row = np.arange(point.n_test)
    y, ell = r.test_labels, r.test_positions
    top = logits.max(1)
    others = logits.copy()
    others[row, y] = -np.inf
    std = logits.std(1)
    margin = np.divide(logits[row, y] - others.max(1), std, out=np.zeros_like(std), where=std > 0)
    rest = np.where(np.arange(point.L) == ell[:, None], -np.inf, attention_logits(r, point, w, r.test_tokens))
    own = (r.Z_in @ w)[r.test_tokens[row, ell]] + r.z_trig @ w
    n_correct = int((logits.argmax(1) == y).sum())

    n_train = min(point.N, point.n_test)
    x, where, labels = batch_of_step(r, point, last)
    train_logits, _ = recall(x[:n_train], where[:n_train])

    exact = r.Z_in + point.trigger_in_value * r.z_trig
    recalled = (features(r, point, exact)[0] @ answers.T).argmax(1) == r.perm
    by_frequency = [None] * 2
    if (law := point.token_laws[0]) != Uniform():
        by_frequency = [float(recalled[group].mean()) for group in rare_and_frequent(law, point.V)]

    scale = np.abs(w).max()
    unit = w / scale if scale > 0 else w
    trigger_score, score_std = scale * (r.z_trig @ unit), scale * (r.Z_in @ unit).std()
    defined = scale > 0
    return {
        "n_correct": n_correct,
        "accuracy": n_correct / point.n_test,
        "memory_accuracy": float(recalled.mean()),
        "step1_memory_accuracy": None if step1 is None else float((step1.argmax(1) == r.perm).mean()),
        "train_accuracy": float((train_logits.argmax(1) == labels[:n_train]).mean()),
        "attention_mass": float(a[row, ell].mean()),
        "attention_top1": float((own > rest.max(1)).mean()),
        "trigger_score": float(trigger_score),
        "score_std": float(score_std),
        "snr": float(trigger_score / score_std) if defined and score_std > 0 else None,
        "trigger_cosine": float(r.z_trig @ unit / np.linalg.norm(r.z_trig) / np.linalg.norm(unit)) if defined else None,
        "test_margin": float(margin.mean()),
        "n_tied": int(((logits == top[:, None]).sum(1) > 1).sum()),
        **traced,
        "rare_memory_accuracy": by_frequency[0],
        "frequent_memory_accuracy": by_frequency[1],
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


def attention_logits(r: Realization, point: Point, w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """z_in(x)^T w for tokens x (n, L): the attention logits without the trigger's share."""
    return (r.Z_in @ w)[x]
