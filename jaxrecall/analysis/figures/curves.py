"""The figure that a sweep ends with: accuracy along its axes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from ...model.point import LAW_FIELDS
from ...sweep.files import atomic_write
from ..fit.axes import fixed
from .charts import crossings, means
from .grammar import Table, Values
from .runs import in_one_panel
from .style import accuracy_label, look, settings

LONGEST_LAW = 30
"""Letters of a law in a heading; of a longer one the name alone."""


def places(axes: Sequence[str], searched: str = "") -> tuple[str, str | None, list[str]]:
    """Which of a grid's axes goes along x, which makes the lines, which make the panels."""
    x = searched or ("N" if "N" in axes or not axes else axes[0])
    rest = [axis for axis in axes if axis != x]
    lines = "d" if "d" in rest else rest[0] if rest else None
    return x, lines, [axis for axis in rest if axis != lines]


def draw_sweep(
    frame: Table, axes: Sequence[str], title: str, path: Path, thresholds: Sequence[Values] | None = None, searched: str = ""
) -> str | None:
    """Draws the rows of a sweep along its axes, as PNG at `path`. Returns a remark where something is not drawn.

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
        axes = [axis for axis in axes if axis != searched]
    for name in {"pool", "batch"} & {*axes}:
        frame = frame.assign(**{name: frame[name].fillna(0).astype(int)})  # 0 is no pool, as m = 0 is no MLP
    drawn = frame.dropna(subset=[y])
    x, line, panels = places(axes, searched)
    lines, panels = in_one_panel(drawn, [line] if line else [], panels)
    chart = means(drawn, [y], x, lines, panels, accuracy_label(y), "fraction")
    if thresholds:
        chart = replace(chart, layers=[*chart.layers, *crossings(pd.DataFrame(thresholds), x)])
    shared = {name: value for name, value in _fixed(frame).items() if name not in (*axes, x)}
    upto = "up to " if thresholds else ""  # a search runs other seeds at other levels
    band = f"mean over {upto}{drawn['seed'].nunique()} seeds, band = one standard deviation"
    heading = f"{title}: {settings(shared)}\n{band}" if shared else f"{title}\n{band}"
    png = io.BytesIO()
    with look():
        chart.figure(heading).savefig(png, format="png")
    atomic_write(path, png.getbuffer())  # shards may draw at once
    remarks = [f"{len(frame) - len(drawn)} non-finite runs are not drawn"] if len(drawn) < len(frame) else []
    return "; ".join([*remarks, *filter(None, [chart.remark])]) or None


def _fixed(frame: Table) -> Values:
    """The sizes that all rows share, and the pool, the path of the trigger and the laws, where these are not the usual ones."""
    sizes = {name: frame[name].iloc[0] for name in ("V", "N", "d", "L", "m") if name in frame and frame[name].nunique() == 1}
    others = {name: value for name, value in fixed(frame).items() if name.partition(".")[0] in ("pool", "trigger_in_value", *LAW_FIELDS)}
    return sizes | {name: value if len(str(value)) <= LONGEST_LAW else str(value).partition("(")[0] for name, value in others.items()}
