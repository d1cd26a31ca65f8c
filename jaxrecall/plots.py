"""The picture a sweep ends with: accuracy against N. No JAX; matplotlib is imported when something is drawn."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

Table = Any  # pandas.DataFrame, whose own types say less than Any
MAX_PANELS = 12
MARKERS = "osD^vP*Xd<>"


def roles(axes: tuple[str, ...]) -> tuple[str, str | None, list[str]]:
    """Which of the grid's axes goes along x, which makes the lines, which make the panels."""
    x = "N" if "N" in axes or not axes else axes[0]
    rest = [axis for axis in axes if axis != x]
    line = "d" if "d" in rest else rest[0] if rest else None
    return x, line, [axis for axis in rest if axis != line]


def accuracy(frame: Table, axes: tuple[str, ...], title: str, path: Path) -> str | None:
    """Draws mean accuracy over seeds, with a band of one standard deviation, to `path` (PNG).

    `frame` holds rows of the table, `axes` the columns that vary. Returns a remark where something is not drawn.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    x, line, panels = roles(axes)
    drawn = frame.dropna(subset=["accuracy"])
    remarks = [f"{len(frame) - len(drawn)} non-finite runs are not drawn"] if len(drawn) < len(frame) else []
    groups: list[tuple[Any, Table]] = list(drawn.groupby(panels, sort=True)) if panels else [((), drawn)]
    if len(groups) > MAX_PANELS:
        remarks.append(f"the first {MAX_PANELS} of {len(groups)} panels are drawn")
    groups = groups[:MAX_PANELS]
    columns = 2 if len(groups) in (2, 4) else max(1, min(len(groups), 3))
    rows = max(1, -(-len(groups) // columns))
    size = (6.4, 4.4) if len(groups) <= 1 else (3.0 * columns + 1, 2.6 * rows + 0.7)
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    cells = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    values = sorted(drawn[line].unique()) if line else [None]
    for ax, (key, panel) in zip(cells, groups, strict=False):
        for i, value in enumerate(values):
            _line(ax, panel[panel[line] == value] if line else panel, x, i, len(values), value)
        _axes(ax, drawn[x], x)
        if panels:
            ax.set_title(", ".join(f"{axis} = {_text(v)}" for axis, v in zip(panels, key, strict=True)), fontsize=9)
    for ax in cells[len(groups) :]:
        ax.set_visible(False)
    for above, below in zip(cells, cells[columns:], strict=False):
        above.tick_params(labelbottom=not below.get_visible())
    if line:
        lines = {text: handle for ax in cells for handle, text in zip(*ax.get_legend_handles_labels(), strict=True)}
        shown = [text for value in values if (text := _text(value)) in lines]
        style = {"title": line, "fontsize": 8, "title_fontsize": 9, "loc": "outside right upper"}
        figure.legend([lines[text] for text in shown], shown, **style)
    figure.supylabel("test accuracy (fraction)", fontsize=10)
    figure.supxlabel(_label(x), fontsize=10)
    fixed = [f"{name} = {_text(frame[name].iloc[0])}" for name in ("V", "N", "d", "L", "m") if name not in axes and name != x]
    figure.suptitle(f"{title}: {', '.join(fixed)}\nmean over {drawn['seed'].nunique()} seeds, band = one standard deviation", fontsize=10)
    temporary = path.with_name(f".{secrets.token_hex(4)}-{path.name}.tmp")  # shards may draw at once
    try:
        figure.savefig(temporary, format="png")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return "; ".join(remarks) or None


def _line(ax: Any, rows: Table, x: str, i: int, n: int, value: Any) -> None:
    import matplotlib

    if rows.empty:
        return
    by_x = rows.groupby(x, sort=True)["accuracy"]
    mean, std = by_x.mean(), by_x.std(ddof=0)
    colour = matplotlib.colormaps["viridis"](0.9 * i / max(1, n - 1))  # even steps of lightness: reads in grey and colour-blind
    at = [str(v) for v in mean.index] if rows[x].dtype.kind not in "iuf" else mean.index
    ax.plot(at, mean, marker=MARKERS[i % len(MARKERS)], markersize=4, linewidth=1.4, color=colour, label=_text(value))
    ax.fill_between(at, (mean - std).clip(0, 1), (mean + std).clip(0, 1), color=colour, alpha=0.2, linewidth=0)


def _axes(ax: Any, values: Any, x: str) -> None:
    if values.dtype.kind in "iuf" and values.min() > 0 and values.max() >= 8 * values.min():
        ax.set_xscale("log", base=2 if x != "eta" else 10)
    ax.set_ylim(-0.02, 1.02)
    ax.grid(True, linewidth=0.4, alpha=0.5)
    ax.tick_params(labelsize=8)


def _label(x: str) -> str:
    from .point import FIELDS

    return f"{x}: {FIELDS[x].metadata['legend']}"


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if str(value) in ("True", "False") else str(value)
