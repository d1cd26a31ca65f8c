"""The metric columns of a row from what a program returns."""

from __future__ import annotations

import math
from typing import Any

from ..point import Point
from ..reference import noise
from ..science import decoders
from ..science.columns import EXTRA_COLUMNS
from .forms import Form


def finish(raw: dict[str, Any], point: Point, form: Form) -> dict[str, Any] | None:
    """The metric columns of a row from a program's counts and sums, scales and ratios in float64.

    None stands for a run that the error bound of its form turns away.
    """
    if not form.holds(raw["errors"]):
        return None
    counts = {name: int(raw[name]) for name in ("n_correct", "n_tied", "n_top1", "n_train_correct", "n_memory", "n_step1")}
    trigger, std = float(raw["trigger"]), float(raw["score_std"])
    scale = point.gamma * point.eta * float(raw["w_scale"])
    row: dict[str, Any] = {
        "n_correct": counts["n_correct"],
        "accuracy": counts["n_correct"] / point.n_test,
        "memory_accuracy": counts["n_memory"] / point.V,
        "step1_memory_accuracy": counts["n_step1"] / point.V,
        "train_accuracy": counts["n_train_correct"] / min(point.N, point.n_test),
        "attention_mass": float(raw["mass"]) / point.n_test,
        "attention_top1": counts["n_top1"] / point.n_test,
        "trigger_score": scale * trigger,
        "score_std": scale * std,
        "snr": trigger / std if std > 0 else None,
        "trigger_cosine": float(raw["cosine"]),
        "test_margin": float(raw["margin"]) / point.n_test,
        "n_tied": counts["n_tied"],
        "status": "ok",
    } | dict.fromkeys(EXTRA_COLUMNS)
    if point.diagnose:
        row |= noise.columns(raw["noise"], trigger if scale else 0.0)
    if point.decoders:
        row |= decoders.accuracies(point, **raw["decoders"])
    if not raw["finite"] or not math.isfinite(scale):
        row = dict.fromkeys(row) | {"status": "nonfinite"}
    elif scale == 0:
        row |= {"snr": None, "trigger_cosine": None, "status": "degenerate"}
    return row | {"form": form.label(point, raw["locked"]), "draw_check": int(raw["draw_check"])}
