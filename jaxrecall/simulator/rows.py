"""Computes the metric columns of rows on the host, from the results of a program.

All ratios are float64.
"""

from __future__ import annotations

import math
from itertools import combinations

import jax
import numpy as np

from ..model.columns import (
    ATTENTION_COLUMNS,
    COLUMNS,
    EXTRA_COLUMNS,
    NOISES,
    TRACE_COLUMNS,
    Row,
)
from ..model.laws.tokens import n_frequent, n_rare
from ..model.point import Point
from ..model.reference.decoders import decoder_columns
from .forms import Form
from .measurements import Raw

NORMS = TRACE_COLUMNS[2:]
"""The names of the columns that `measurements.norms` computes, in order."""


def finish(raw: Raw, point: Point, form: Form) -> list[Row] | None:
    """Returns the metric columns of each row of a run, in order of step.

    The result is None if the error bound of the form rejects the run.
    """
    if not form.accepts(raw["errors"]):
        return None
    label = form.label(point, raw["locked"])
    if point.trains_on:
        trained = point.start != "zero" or point.is_memory
        return _trace(raw["trace"], point, f"{label}, " if trained else "")
    scale = point.gamma * point.eta * float(raw["w_scale"])
    row = _measured(raw, point, scale)
    if point.diagnose:
        row |= noise_columns(raw["noise"], float(raw["trigger"]) if scale else 0.0)
    if point.decoders:
        row |= decoder_columns(point, **raw["decoded"])
    row = _judged(row, bool(raw["finite"]), scale, point)
    return [row | _named(raw, point.steps, label)]


def noise_columns(covariances: np.ndarray, trigger: float) -> dict[str, float | None]:
    """Returns the noise columns, which are null if the score of the trigger is 0.

    `covariances` (4, 4) contains the covariances between the scores of the four parts
    of w.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.asarray(covariances, np.float64) / np.float64(trigger) ** 2
    columns = {}
    for i, name in enumerate(NOISES):
        columns[f"noise_{name}"] = float(relative[i, i] ** 0.5)
    for i, j in combinations(range(len(NOISES)), 2):
        columns[f"cov_{NOISES[i]}_{NOISES[j]}"] = float(relative[i, j])
    if not np.isfinite(relative).all():
        return dict.fromkeys(columns)
    return columns


def _trace(raw: Raw, point: Point, trained: str) -> list[Row]:
    """Returns the row of each recorded step. `trained` is the first part of the column
    `form`.

    The first axis of every array of `raw` is the step, and w has no scale factor.
    """
    rows = []
    for i, step in enumerate(point.recorded_steps):
        now = jax.tree.map(lambda values, i=i: values[i], raw)
        # step 1 of the recipe has ended when a trace begins
        for name in {"n_step1", "largest_prediction"} & raw.keys():
            now[name] = raw[name][0]
        scale = float(now["w_scale"])
        row = _measured(now, point, scale)
        row |= zip(NORMS, now["norms"].tolist(), strict=True)
        if point.start == "zero":
            row |= {"step1_memory_accuracy": None, "largest_prediction": None}
        finite = all(math.isfinite(row[name]) for name in TRACE_COLUMNS)
        row = _judged(row, finite and bool(now["finite"]), scale, point)
        grouped = step > point.recorded_steps[0] and not now["n_read"]
        form = f"{trained}locked descent" if grouped else f"{trained}descent"
        rows.append(row | _named(now, step, form))
    return rows


def _measured(raw: Raw, point: Point, scale: float) -> Row:
    """Returns the columns of a row. Some are entries of `raw` with the name of a
    column, and the others are computed from `raw`. Columns that not every row has are
    null.

    `scale` is the scale factor of w.
    """
    row: Row = dict.fromkeys((*EXTRA_COLUMNS, *TRACE_COLUMNS, "largest_prediction"))
    for name, (kind, *_) in COLUMNS.items():
        if name in raw:
            row[name] = int(raw[name]) if kind == "int64" else float(raw[name])
    n_test, trigger, std = point.n_test, float(raw["trigger"]), float(raw["score_std"])
    row["accuracy"] = row["n_correct"] / n_test
    row["memory_accuracy"] = row["recalled"] / point.V
    row["step1_memory_accuracy"] = int(raw["n_step1"]) / point.V
    row["train_accuracy"] = int(raw["n_train_correct"]) / min(point.N, n_test)
    row["attention_mass"] = float(raw["mass"]) / n_test
    row["attention_top1"] = int(raw["n_top1"]) / n_test
    row["trigger_score"] = scale * trigger
    row["score_std"] = scale * std
    row["snr"] = trigger / std if std > 0 else None
    row["test_margin"] = float(raw["margin"]) / n_test
    row["status"] = "ok"
    row |= _by_frequency(raw, point)
    for name, array in raw["own"].items():
        value = array.item()
        row[name] = value if math.isfinite(value) else None
    return row


def _by_frequency(raw: Raw, point: Point) -> Row:
    """The columns about rare and frequent tokens, which are null if tokens are
    uniform.
    """
    if point.token_laws[0] == "uniform":
        names = "rare_memory_accuracy", "frequent_memory_accuracy", "recalled_top"
        return dict.fromkeys(names)
    rare, frequent = raw["n_by_frequency"]
    return {
        "rare_memory_accuracy": int(rare) / n_rare(point.V),
        "frequent_memory_accuracy": int(frequent) / n_frequent(point.V),
    }


def _judged(row: Row, finite: bool, scale: float, point: Point) -> Row:
    """Returns the row with its status, and with null for metrics that are undefined.

    All metrics are null if a number overflowed. Metrics of the direction of w are null
    if w = 0. Metrics of attention are null if L = 1.
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
