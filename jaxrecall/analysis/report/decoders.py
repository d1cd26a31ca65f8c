"""What decoders read from the initial gradient, next to what the three steps learn and what its information allows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from . import predict
from .axes import Roles
from .study import Study
from .style import MAX_PANELS, NotDrawn, Picture, above, canvas, head, label, line, log_axis, name_axes, spread

Table = Any  # pandas.DataFrame, whose own types say less than Any
LINES = {
    "accuracy": ("three steps, test accuracy", "black", "o", "-"),
    "matched_accuracy": ("matched filter", "#332288", "s", "-"),
    "whitened_accuracy": ("whitened least squares", "#2A9D8F", "D", "-"),
    "assignment_accuracy": ("assignment", "#E69F00", "^", "-"),
}


def of_study(study: Study, roles: Roles) -> Iterator[Picture]:
    levels = study.levels
    here = [name for name in LINES if name in levels and levels[name].notna().any()]
    if here == ["accuracy"]:
        raise NotDrawn("the table has no accuracy of a decoder (decoders: true)")
    ceiling = [predict.fano_ceiling(row, float(row["N"])) for row in levels.to_dict("records")]
    levels = levels.assign(ceiling=np.array(ceiling, dtype=float))
    cells = levels.loc[levels[here[1:]].notna().any(axis=1), "cell"].unique().tolist()
    some = spread(sorted(cells), MAX_PANELS)
    figure, panels = canvas(len(some))
    deviations = study.runs.groupby("level")[here[1:]].std(ddof=0).reindex(levels.index)
    head(figure, panels, [study.at(cell) for cell in some])
    for ax, cell in zip(panels, some, strict=True):
        rows = levels[levels["cell"] == cell].sort_values("N")
        for name in here:
            _, colour, marker, style = LINES[name]
            ax.plot(rows["N"], rows[name], color=colour, marker=marker, linestyle=style)
            off = rows["sd"] if name == "accuracy" else deviations.loc[rows.index, name]
            low, high = ((rows[name] + sign * off).clip(0, 1) for sign in (-1, 1))
            ax.fill_between(rows["N"], low, high, color=colour, alpha=0.2, linewidth=0)
        N = np.geomspace(rows["N"].min(), rows["N"].max(), 65)
        ceiling = np.array([predict.fano_ceiling(study.cells.loc[cell], float(n)) for n in N], dtype=float)
        ax.plot(N, ceiling, color="0.5", linestyle=":")
        ax.fill_between(N, ceiling, 1.05, color="0.9", linewidth=0, zorder=0)
        ax.set(xscale="log", ylim=(-0.02, 1.02))
        log_axis(ax.xaxis)
        ax.grid(True)
    entries = [line(text, color=colour, marker=marker) for text, colour, marker, _ in (LINES[name] for name in here)]
    if levels["ceiling"].notna().any():
        entries.append(line("Fano ceiling (approximate)", color="0.5", linestyle=":"))
    above(figure, entries)
    name_axes(figure, panels, label("N"), "accuracy (fraction)")
    more = f" {len(some)} of {len(cells)} cells are drawn." if len(some) < len(cells) else ""
    yield Picture("decoders", "Decoders of the initial gradient", _caption(study, levels, here) + more, figure)


def _caption(study: Study, levels: Table, here: list[str]) -> str:
    sentences = []
    for name in here[1:]:
        gain = levels[name] - levels["accuracy"]
        worst = gain.abs().idxmax()
        sentences.append(f"{LINES[name][0]} {gain.mean():+.2f} in the mean, at the farthest {gain[worst]:+.2f} ({study.where(worst)})")
    over = (levels[here].max(axis=1) - levels["ceiling"]).dropna()
    bound = ""
    if len(over):
        worst = over.idxmax()
        bound = f" Of {len(over)} levels {(over > 0).sum()} are above the ceiling"
        bound += f", at most by {over[worst]:.2f} ({study.where(worst)})." if over[worst] > 0 else "."
    shared = (
        " Cells share their seeds' draws, so their curves wiggle alike."
        if "streams" in levels and (levels["streams"] == "common").any()
        else ""
    )
    bands = " Lines: mean over seeds; bands: one standard deviation over seeds."
    return f"Decoders minus the three steps: {'; '.join(sentences)}.{bound}{bands}{shared}"
