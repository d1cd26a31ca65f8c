"""The metric columns of the rows of a run from what a program returns."""

from __future__ import annotations

import math
from typing import Any

from ..model import decoders
from ..model.columns import EXTRA_COLUMNS, TRACE_COLUMNS
from ..model.laws.tokens import Uniform, n_frequent, n_rare
from ..model.point import Point
from ..model.reference import noise
from .forms import Form

NORMS = ("V_norm", "W_norm", "Z_in_norm", "Z_out_norm", "Z_in_overlap", "Z_out_overlap")
"""The columns of `norms`, in its order."""

Metrics = dict[str, Any]
"""The metric columns of a row."""


def finish(raw: dict[str, Any], point: Point, form: Form) -> list[Metrics] | None:
    """The metric columns of each row of a run, in order of step, from a program's counts and sums; ratios in float64.

    None stands for a run that the error bound of its form rejects.
    """
    if not form.accepts(raw["errors"]):
        return None
    label = form.label(point, raw["locked"])
    if point.trains_on:
        return _trace(raw["trace"], point, "" if point.start == "zero" else f"{label}, ")
    scale = point.gamma * point.eta * float(raw["w_scale"])
    row = _measured(raw, point, scale) | dict.fromkeys((*EXTRA_COLUMNS, *TRACE_COLUMNS))
    if point.diagnose:
        row |= noise.columns(raw["noise"], float(raw["trigger"]) if scale else 0.0)
    if point.decoders:
        row |= decoders.accuracies(point, **raw["decoders"])
    return [_judged(row, bool(raw["finite"]), scale) | _named(raw, point.steps, label)]


def _trace(raw: dict[str, Any], point: Point, recipe: str) -> list[Metrics]:
    """A row for each recorded step; every array of `raw` has their axis first, and w at its true scale."""
    rows = []
    for i, step in enumerate(point.recorded_steps):
        now = {name: values[i] for name, values in raw.items()}
        scale = float(now["w_scale"])
        traced = dict(zip(NORMS, map(float, now["norms"]), strict=True)) | {name: float(now[name]) for name in ("loss", "test_loss")}
        row = _measured(now, point, scale) | dict.fromkeys(EXTRA_COLUMNS) | traced
        # step 1 of the recipe is over when a trace begins
        row["step1_memory_accuracy"] = None if point.start == "zero" else int(raw["n_step1"][0]) / point.V
        finite = bool(now["finite"]) and all(map(math.isfinite, traced.values()))
        grouped = step > point.recorded_steps[0] and not now["n_read"]
        rows.append(_judged(row, finite, scale) | _named(now, step, f"{recipe}{'locked ' if grouped else ''}descent"))
    return rows


def _measured(raw: dict[str, Any], point: Point, scale: float) -> Metrics:
    """What every row has; `scale` is that of w."""
    counts = {name: int(raw[name]) for name in ("n_correct", "n_tied", "n_top1", "n_train_correct", "n_memory", "n_step1")}
    trigger, std = float(raw["trigger"]), float(raw["score_std"])
    return {
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
        **_by_frequency(raw, point),
    }


def _by_frequency(raw: dict[str, Any], point: Point) -> Metrics:
    """The columns of rare and of frequent tokens; null where tokens are uniform."""
    names = "rare_memory_accuracy", "frequent_memory_accuracy"
    if point.token_laws[0] == Uniform():
        return dict.fromkeys(names)
    sizes = n_rare(point.V), n_frequent(point.V)
    return {name: int(n) / size for name, n, size in zip(names, raw["n_by_frequency"], sizes, strict=True)}


def _judged(row: Metrics, finite: bool, scale: float) -> Metrics:
    """The row with its status: metrics are null if a number overflowed, and those of a direction if w = 0."""
    if not finite or not math.isfinite(scale):
        return dict.fromkeys(row) | {"status": "nonfinite"}
    if scale == 0:
        return row | {"snr": None, "trigger_cosine": None, "status": "degenerate"}
    return row


def _named(raw: dict[str, Any], step: int, label: str) -> Metrics:
    return {"form": label, "draw_check": int(raw["draw_check"]), "step": step}
