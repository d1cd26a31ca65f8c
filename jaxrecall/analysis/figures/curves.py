"""Accuracy against N, or against another axis: the figure a sweep ends with and a report begins with."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...sweep.store.files import atomic_write
from . import predict
from .axis import Axis
from .critical import crossings
from .grammar import Chart, Layer, Line, Panel, arranged, averaged, scale_of
from .study import Roles, Study
from .style import ACCURACY, BANDS, DASH, Picture, line, look, settings

Table = Any  # pandas.DataFrame, whose own types say less than Any


MARK = {"marker": "d", "color": "black", "markerfacecolor": "white", "markersize": 4.5, "markeredgewidth": 0.8}


class Crossings(Layer):
    """N* at height theta with its interval, over a line of accuracy: the columns N_star, lo, hi and theta."""

    def draw(self, panel: Panel) -> None:
        for rows, looks, _ in panel.lines(self.table[self.table["N_star"].notna()]):
            for row in rows.itertuples():
                if row.lo > 0 and np.isfinite(row.hi):
                    style = {"color": looks["color"], "linewidth": 2.2, "solid_capstyle": "butt", "zorder": 4}
                    panel.ax.plot([row.lo, row.hi], [row.theta, row.theta], **style)
                panel.ax.plot(row.N_star, row.theta, zorder=5, **MARK)

    def entries(self) -> list[Any]:
        there = self.table["N_star"].notna().any()
        return [line("N* and 95 % interval", linestyle="none", **MARK)] if there else []


def chart(levels: Table, x: str, lines: Sequence[str], panels: Sequence[str], *, thresholds: Any = None, theory: Any = None) -> Chart:
    """Mean accuracy along x with its band; thresholds (theta, N_star, lo, hi) and theory's accuracy have the same axes."""
    layers: list[Layer] = [Line(levels, low="low", high="high")]
    if theory is not None:
        layers.append(Line(theory, legend="theory", style={"marker": "none", "linestyle": DASH, "linewidth": 0.9}))
    if thresholds is not None and x == "N":
        layers.append(Crossings(thresholds, "theta"))
    return Chart(layers, Axis.make(x, levels), ACCURACY, lines=lines, panels=panels, scale=scale_of(levels["accuracy"].to_numpy(float)))


def places(axes: Sequence[str]) -> tuple[str, str | None, list[str]]:
    """Which of a grid's axes goes along x, which makes the lines, which make the panels."""
    x = "N" if "N" in axes or not axes else axes[0]
    rest = [axis for axis in axes if axis != x]
    lines = "d" if "d" in rest else rest[0] if rest else None
    return x, lines, [axis for axis in rest if axis != lines]


def draw_sweep(
    frame: Table, axes: Sequence[str], title: str, path: Path, thresholds: Sequence[Mapping[str, Any]] | None = None
) -> str | None:
    """Draws the rows of a sweep along its axes, as PNG at `path`. Returns a remark where something is not drawn.

    Args:
        frame: rows of a sweep; `frame.attrs["accuracy"]` names their accuracy if that is not "accuracy".
        axes: the fields that the grid varies, in its order.
        title: the heading, usually the name of the grid.
        path: the PNG file.
        thresholds: what a search found, if the sweep is one: its axes, theta, N_star, lo and hi.
    """
    import pandas as pd

    y = frame.attrs.get("accuracy", "accuracy")
    for name in {"pool", "batch"} & {*axes}:
        frame = frame.assign(**{name: frame[name].fillna(0).astype(int)})  # 0 is no pool, as m = 0 is no MLP
    drawn = frame.dropna(subset=[y])
    x, lines, panels = places(axes)
    levels = averaged(frame, [*panels, *([lines] if lines else []), x], y).rename(columns={y: "accuracy"})
    by, panels = arranged(levels, lines, panels)
    shown = chart(levels, x, by, panels, thresholds=pd.DataFrame(thresholds) if thresholds else None)
    fixed = [name for name in ("V", "N", "d", "L", "m") if name not in axes and name != x and name in frame]
    upto = "up to " if thresholds else ""  # a search runs other seeds at other levels
    band = f"mean over {upto}{drawn['seed'].nunique()} seeds, band = one standard deviation"
    heading = f"{title}: {settings(frame.iloc[0], fixed)}\n{band}" if fixed else f"{title}\n{band}"
    png = io.BytesIO()
    with look():
        shown.figure(heading).savefig(png, format="png")
    atomic_write(path, png.getbuffer())  # shards may draw at once
    remarks = [f"{len(frame) - len(drawn)} non-finite runs are not drawn"] if len(drawn) < len(frame) else []
    return "; ".join([*remarks, *filter(None, [shown.remark.strip(" .")])]) or None


def accuracy(study: Study, roles: Roles) -> Iterator[Picture]:
    """Accuracy against N, with each cell's fitted crossings and theory's curve."""
    import pandas as pd

    by, panels = arranged(study.levels, *roles.one_for_lines(study.cells, study.axes))
    marks = pd.concat([study.thresholds(theta) for theta in study.thetas])
    curves = [curve for cell in study.cells.index if (curve := _predicted(study, cell)) is not None]
    shown = chart(study.levels, "N", by, panels, thresholds=marks, theory=pd.concat(curves) if curves else None)
    yield Picture("accuracy", "Accuracy against N", _caption(study, marks) + shown.remark, shown.figure())


def _predicted(study: Study, cell: int) -> Any:
    """Theory's curve over the N that the cell has; None where theory does not reach."""
    import pandas as pd

    at = study.cells.loc[cell]
    between = predict.accuracy_curve(at, study.levels.loc[study.levels["cell"] == cell, "N"].to_numpy(float))
    if between is None:
        return None
    return pd.DataFrame({"N": between[0], "accuracy": between[1]}).assign(**{axis: at[axis] for axis in study.axes})


def _caption(study: Study, marks: Table) -> str:
    counted = [f"Accuracy {theta:g}: of {len(mine)} cells {crossings(mine)}" for theta, mine in marks.groupby("theta")]
    levels = study.levels
    off = (levels["accuracy"] - study.predicted_accuracy).dropna().abs()
    sentence = "theory does not cover these cells"
    if len(off):
        worst = off.idxmax()
        sentence = (
            f"theory (dashed) is off by {off.mean():.3f} in the mean over {len(off)} of {len(levels)} levels, "
            f"at most by {off[worst]:.2f} (observed {levels['accuracy'][worst]:.2f} at {study.where(worst)})"
        )
    return f"{'; '.join([*counted, sentence])}. {BANDS}"


FIGURES = {"accuracy against N": accuracy}
