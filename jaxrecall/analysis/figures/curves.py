"""Measured values against N, against another axis, and of runs that train on against the step.

Accuracy is the figure a sweep ends with and a report begins with.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...model.point import LAW_FIELDS
from ...model.training import TRAINS
from ...sweep.files import atomic_write
from ...sweep.store.load import with_names
from ..fit.axes import fixed, told_apart
from . import predict
from .axis import Axis, column, columns_in
from .critical import NO_TRACES, crossings
from .grammar import Chart, Layer, Line, Panel, Rule, arranged, averaged, scale_of, with_reference
from .paper import line, look
from .study import Roles, Study, swept
from .style import ACCURACY, NotDrawn, Picture, accuracy_label, settings, told

Table = Any  # pandas.DataFrame, whose own types say less than Any
LONGEST_LAW = 30
"""Letters of a law in a heading; of a longer one the name alone."""

MARK = {"marker": "d", "markersize": 5.5, "markeredgecolor": "black", "markeredgewidth": 0.7}


class Crossings(Layer):
    """What crosses at height theta with its interval, over a line
    of accuracy: the columns axis, critical, lo, hi and theta.
    """

    def draw(self, panel: Panel) -> None:
        for rows, looks, _ in panel.lines(self.table[self.table["critical"].notna()]):
            for row in rows.astype({"lo": float, "hi": float}).itertuples():
                if row.lo > 0 and np.isfinite(row.hi):
                    panel.ax.plot([row.lo, row.hi], [row.theta] * 2, color=looks["color"], linewidth=2.2, solid_capstyle="butt", zorder=4)
                panel.ax.plot(row.critical, row.theta, zorder=5, color=looks["color"], **MARK)

    def entries(self, chart: Chart) -> list[Any]:
        there = self.table["critical"].notna().any()
        return [line(f"{self.table['axis'].iloc[0]}* and 95 % interval", linestyle="none", **MARK)] if there else []


def chart(
    levels: Table,
    x: str,
    lines: Sequence[str],
    panels: Sequence[str] = (),
    y: str = "accuracy",
    label: str = ACCURACY,
    *,
    scale: str | None = None,
    thresholds: Any = None,
    theory: Any = None,
    without: Any = None,
) -> Chart:
    """Means of a column along x with their band; thresholds
    (theta, axis, critical, lo, hi) and theory have the same axes.

    `without` holds the means without an MLP where the levels do not. The scale is what
    suits the values if None.
    """
    layers = with_reference(Line(levels, y, low="low", high="high"), x, lines, panels, without)
    levels = layers[0].table
    if theory is not None:
        layers += [Line(mine, legend=str(name), style=predict.STYLES[str(name)]) for name, mine in theory.groupby("legend")]
    if thresholds is not None and (thresholds["axis"] == x).all():
        layers.append(Crossings(thresholds, "theta"))
    scale = scale or scale_of(levels[y].to_numpy(float, na_value=np.nan))
    return Chart(layers, Axis.make(x, levels), label, lines=lines, panels=panels, scale=scale)


def places(axes: Sequence[str], searched: str = "") -> tuple[str, str | None, list[str]]:
    """Which of a grid's axes goes along x, which makes the lines, which make the panels."""
    x = searched or ("N" if "N" in axes or not axes else axes[0])
    rest = [axis for axis in axes if axis != x]
    lines = "d" if "d" in rest else rest[0] if rest else None
    return x, lines, [axis for axis in rest if axis != lines]


def draw_sweep(
    frame: Table, axes: Sequence[str], title: str, path: Path, thresholds: Sequence[Mapping[str, Any]] | None = None, searched: str = ""
) -> str | None:
    """Draws the rows of a sweep along its axes, as PNG at
    `path`. Returns a remark where something is not drawn.

    Args:
        frame: rows of a sweep; `frame.attrs["accuracy"]` names their accuracy, or what
            else crosses theta, if that is not "accuracy".
        axes: the fields that the grid varies, in its order.
        title: the heading, usually the name of the grid.
        path: the PNG file.
        thresholds: what a search found, if the sweep is one: its axes, theta, axis,
            critical, lo and hi.
        searched: the field that it varies.
    """
    y = frame.attrs.get("accuracy", "accuracy")
    if thresholds:
        frame = with_names(frame, searched)
        axes = told_apart(frame, [axis for axis in axes if axis != searched], frame.attrs.get("names", {}).get("told", ()))
    for name in {"pool", "batch"} & {*axes}:
        frame = frame.assign(**{name: frame[name].fillna(0).astype(int)})  # 0 is no pool, as m = 0 is no MLP
    drawn = frame.dropna(subset=[y])
    x, lines, panels = places(axes, searched)
    levels = averaged(frame, [*panels, *([lines] if lines else []), x], y)
    by, panels = arranged(levels, lines, panels)
    shown = chart(levels, x, by, panels, y, accuracy_label(y), thresholds=pd.DataFrame(thresholds) if thresholds else None)
    fixed = {name: value for name, value in _fixed(frame).items() if name not in (*axes, x)}
    upto = "up to " if thresholds else ""  # a search runs other seeds at other levels
    band = f"mean over {upto}{drawn['seed'].nunique()} seeds, band = one standard deviation"
    heading = f"{title}: {settings(fixed)}\n{band}" if fixed else f"{title}\n{band}"
    png = io.BytesIO()
    with look():
        shown.figure(heading).savefig(png, format="png")
    atomic_write(path, png.getbuffer())  # shards may draw at once
    remarks = [f"{len(frame) - len(drawn)} non-finite runs are not drawn"] if len(drawn) < len(frame) else []
    return "; ".join([*remarks, *filter(None, [shown.remark])]) or None


def _fixed(frame: Table) -> dict[str, Any]:
    """The sizes that all rows share, and the pool, the path of
    the trigger and the laws, where these are not the usual ones.
    """
    sizes = {name: frame[name].iloc[0] for name in ("V", "N", "d", "L", "m") if name in frame and frame[name].nunique() == 1}
    others = {name: value for name, value in fixed(frame).items() if name.partition(".")[0] in ("pool", "trigger_in_value", *LAW_FIELDS)}
    return sizes | {name: value if len(str(value)) <= LONGEST_LAW else str(value).partition("(")[0] for name, value in others.items()}


def accuracy(study: Study, roles: Roles) -> Iterator[Picture]:
    """Accuracy along N or another axis, with each cell's fitted crossings and theory's curve."""
    by, panels = roles.lines_and_panels(study.levels, study.axes)
    marks = pd.concat([study.thresholds(theta) for theta in study.thetas])
    curves = [curve for cell in study.cells.index if (curve := _predicted(study, cell)) is not None]
    theory = pd.concat(curves) if curves else None
    shown = chart(study.levels, study.along, by, panels, thresholds=marks, theory=theory, without=_without_mlp(study))
    sentences = [f"Accuracy {theta:g}: of {len(mine)} cells {crossings(mine)}" for theta, mine in marks.groupby("theta")]
    off = (study.levels["accuracy"] - study.predicted_accuracy).dropna()
    if len(off):
        sentences.append(f"|accuracy - theory (dashed)| is {told(abs(off), study.where, 'mean', '.3f')}")
    elif study.along == "N":
        sentences.append("theory does not cover these cells")
    yield shown.picture("accuracy", f"Accuracy against {study.along}", f"{'; '.join(sentences)}.")
    if roles.against:
        yield _against(study, roles, roles.against)


def _without_mlp(study: Study) -> Table | None:
    """The accuracy without an MLP beside each level, where the levels are widths and the table has it."""
    known = study.levels.assign(accuracy=study.levels["cell"].map(study.references)).dropna(subset=["accuracy"])
    return known if len(known) else None


def _against(study: Study, roles: Roles, x: str) -> Picture:
    """Accuracy against arithmetic on axes; of its columns
    the one with most values makes neither lines nor panels.
    """
    levels = study.levels.assign(**{x: column(x, study.levels)})
    axes = [axis for axis in (study.along, *study.axes) if levels[axis].nunique(dropna=False) > 1]
    chosen = (roles.lines, *roles.panels[: roles.n_chosen])
    free = swept(x, [axis for axis in axes if axis not in chosen], levels)
    axes = [axis for axis in axes if axis != free]
    lines = roles.lines if roles.lines in axes else next((axis for axis in axes if axis in columns_in(x)), axes[0] if axes else None)
    panels = [axis for axis in axes if axis != lines]
    shown = chart(levels, x, [lines] if lines else [], panels, without=_without_mlp(study))
    best = levels["accuracy"].idxmax()
    sentence = f"Accuracy is highest {study.where(best)}: {levels['accuracy'][best]:.2f}."
    return shown.picture("accuracy-against", f"Accuracy against {x}", sentence)


def _predicted(study: Study, cell: int) -> Any:
    """Theory's curve over the N that the cell has; None where theory does not reach."""
    at = study.cells.loc[cell]
    if study.along != "N":
        return None
    between = predict.accuracy_curve(at, study.levels.loc[study.levels["cell"] == cell, "N"].to_numpy(float))
    if between is None:
        return None
    shown = pd.DataFrame({"N": between[0], "accuracy": between[1], "legend": predict.legend([at])})
    return shown.assign(**{axis: at[axis] for axis in study.axes})


@dataclass(frozen=True)
class Quantity:
    """One figure against the step: its file name, title and label
    along y, and its columns, each with its entry of the legend.

    The first column is drawn with marks, the second dotted. `reference` gives the
    height of a dashed line from the settings of a cell and N, and `reference_label`
    says what it is.
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
    every = study.traces
    if every is None:
        raise NotDrawn(NO_TRACES)
    trained = np.array([bool(TRAINS.get(trains)) for trains in every.levels["trains"]]) if "trains" in every.levels else False
    for quantity in QUANTITIES:
        if {*quantity.columns} <= {*every.levels}:
            rows = every.levels[[*quantity.columns]].notna().all(axis=1) & (trained | (not quantity.of_embeddings))
            if rows.any():
                yield _trace(every, quantity, rows, roles)


def _trace(study: Study, quantity: Quantity, among: Table, roles: Roles) -> Picture:
    levels = study.levels[among]
    varying = [axis for axis in (*study.axes, study.along) if levels[axis].nunique(dropna=False) > 1]
    means = levels[[*quantity.columns]]
    within = (0.0, 1.0) if quantity.scale == "fraction" else (means.where(means > 0).min(axis=None) / 1.5, np.inf)
    layers: list[Layer] = []
    for (name, legend), style in zip(quantity.columns.items(), ({}, {"linestyle": ":", "marker": "none"}), strict=False):
        layers.append(Line(study.means(name, within)[among], name, legend, style, low="low", high="high"))
    if quantity.reference:
        levels = levels.assign(reference=study.asked(quantity.reference)[among])
        layers.append(Rule(levels, "reference", quantity.reference_label, limits=False))
    lines, panels = roles.lines_and_panels(levels, varying)
    shown = Chart(layers, Axis.make("step", levels), quantity.label, lines=lines, panels=panels, scale=quantity.scale)
    caption = _caption(quantity, *study.first_and_last(levels), varying)
    return shown.picture(f"trace-{quantity.name}", f"{quantity.title} against the step", caption)


def _caption(quantity: Quantity, first: Table, last: Table, axes: Sequence[str]) -> str:
    """How each column changes, in the mean and where most, and what the first comes to over the reference."""

    def named(row: Any) -> str:
        return settings(last.loc[row], axes) or "the only curve"

    sentences = []
    for name in quantity.columns:
        most = (last[name] - first[name]).abs().idxmax()
        mean = f"{name} goes from {first[name].mean():.3g} to {last[name].mean():.3g} in the mean of {len(last)} curves"
        ends = f"most from {first[name][most]:.3g} to {last[name][most]:.3g} ({named(most)})"
        sentences.append(f"From the first recorded step to the last {mean}, {ends}.")
    name = next(iter(quantity.columns))
    if quantity.reference and (ratio := last[name] / last["reference"]).notna().any():
        over = f"At the last step {name} over the dashed line ({quantity.reference_label}) is"
        sentences.append(f"{over} {told(ratio, named, form='.3g', most='at most')}.")
    return " ".join(sentences)


FIGURES = {"accuracy against N": accuracy, "traces": traces}
