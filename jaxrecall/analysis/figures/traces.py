"""Runs that train on, against the step: accuracy, attention, loss, and what becomes of trained embeddings.

One figure for each quantity; one axis makes its lines, the others and N its panels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...model.training import TRAINS
from . import predict
from .axis import Axis
from .critical import NO_TRACES
from .grammar import Chart, Layer, Line, Rule, arranged
from .study import Layout, Roles, Study
from .style import ACCURACY, BANDS, NotDrawn, Picture, settings

Table = Any  # pandas.DataFrame, whose own types say less than Any


@dataclass(frozen=True)
class Quantity:
    """One figure: its file name, title and label along y, and its columns, each with its entry of the legend.

    The first column is drawn with marks, the second dotted. `reference` gives the height of a dashed line from the settings of a cell
    and N, and `reference_label` says what it is.
    """

    name: str
    title: str
    label: str
    columns: dict[str, str]
    reference: Callable[[Any, float], float | None] | None = None
    reference_label: str = ""
    scale: str = "fraction"
    of_embeddings: bool = False


QUANTITIES = (
    Quantity("accuracy", "Accuracy", ACCURACY, {"accuracy": ""}, predict.seen, "label seen in training, 1 - (1 - 1/V)^N"),
    Quantity("attention", "Attention", "attention mass (fraction)", {"attention_mass": ""}),
    Quantity(
        "loss", "Loss", "loss (nats)", {"test_loss": "test sequences", "loss": "the N samples"},
        lambda cell, N: float(np.log(cell["V"])), "a guess, ln V", scale="log",
    ),
    Quantity(
        "overlap", "Overlap of trained embeddings", "overlap (cosine, rms)", {"Z_in_overlap": "Z_in", "Z_out_overlap": "Z_out"},
        lambda cell, N: float(cell["d"] ** -0.5), "random directions, 1 / sqrt(d)", scale="log", of_embeddings=True,
    ),
    Quantity(
        "norm", "Norms of trained embeddings", "norm of a row (rms)", {"Z_in_norm": "Z_in", "Z_out_norm": "Z_out"},
        scale="log", of_embeddings=True,
    ),
)  # fmt: skip
"""Of one figure each; an entry more is a figure more."""


def traces(study: Study, roles: Roles) -> Iterator[Picture]:
    """A figure for each quantity that the table has; those of embeddings where these are trained."""
    if study.traces is None:
        raise NotDrawn(NO_TRACES)
    for quantity in QUANTITIES:
        if {*quantity.columns} <= {*study.traces.levels}:
            rows = study.traces.levels[list(quantity.columns)].notna().all(axis=1)
            if quantity.of_embeddings:
                rows &= np.array([bool(TRAINS.get(trains)) for trains in study.traces.levels["trains"]])
            if rows.any():
                yield _picture(study.traces, quantity, rows, roles)


def _picture(study: Layout, quantity: Quantity, among: Table, roles: Roles) -> Picture:
    levels = study.levels[among]
    varying = [axis for axis in (*study.axes, "N") if levels[axis].nunique(dropna=False) > 1]
    lines, panels = arranged(levels, *roles.one_for_lines(levels, varying))
    means = levels[list(quantity.columns)]
    within = (0.0, 1.0) if quantity.scale == "fraction" else (means.where(means > 0).min(axis=None) / 1.5, np.inf)
    layers: list[Layer] = []
    for (column, legend), style in zip(quantity.columns.items(), ({}, {"linestyle": ":", "marker": "none"}), strict=False):
        layers.append(Line(study.means(column, within)[among], column, legend, style, low="low", high="high"))
    sentences = [_change(study, levels, column, varying) for column in quantity.columns]
    if quantity.reference:
        heights = levels.assign(reference=study.asked(quantity.reference)[among])
        layers.append(Rule(heights, "reference", quantity.reference_label, limits=False))
        sentences += _against(study, heights, next(iter(quantity.columns)), quantity.reference_label, varying)
    shown = Chart(layers, Axis.make("step", levels), quantity.label, lines=lines, panels=panels, scale=quantity.scale)
    gone = f" {study.n_left_out} rows without a number are left out." * bool(study.n_left_out)
    title = f"{quantity.title} against the step"
    return Picture(f"trace-{quantity.name}", title, f"{' '.join(sentences)} {BANDS}{gone}{shown.remark}", shown.figure())


def _change(study: Layout, levels: Table, column: str, varying: list[str]) -> str:
    """How far a column goes from the first recorded step to the last."""
    by = [*study.axes, "N"]
    curves = levels.sort_values([*by, "step"]).groupby(by, dropna=False)
    first, last = (rows.reset_index(drop=True) for rows in (curves.head(1), curves.tail(1)))
    most = (last[column] - first[column]).abs().idxmax()
    return (
        f"From the first recorded step to the last {column} goes from {first[column].mean():.3g} to {last[column].mean():.3g} in the mean "
        f"of {len(last)} curves, most from {first[column][most]:.3g} to {last[column][most]:.3g} ({_named(last.loc[most], varying)})."
    )


def _against(study: Layout, levels: Table, column: str, what: str, varying: list[str]) -> list[str]:
    """How the last step compares with the dashed line."""
    last = levels.sort_values("step").groupby([*study.axes, "N"], dropna=False).tail(1).dropna(subset=["reference"])
    if last.empty:
        return []
    ratio = (last[column] / last["reference"]).astype(float)
    most = ratio.idxmax()
    return [
        f"At the last step {column} is {ratio.median():.3g} times the dashed line ({what}) in the median of {len(last)} curves, at most "
        f"{ratio[most]:.3g} times ({_named(last.loc[most], varying)})."
    ]


def _named(row: Any, varying: list[str]) -> str:
    return settings(row, varying) or "the only curve"


FIGURES = {"traces": traces}
