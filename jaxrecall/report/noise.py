"""Which noise of the attention scores leads: measured where the table has it, else predicted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from . import predict
from .axes import Roles
from .phase import Chart, patches
from .study import Study
from .style import DASH, NotDrawn, Picture, above, canvas, label, line, log_axis, name_axes, spread

Table = Any  # pandas.DataFrame, whose own types say less than Any
COLUMNS = {"leakage": "noise_leakage", "mean_bias": "noise_bias", "mlp": "noise_mlp", "gradient": "noise_gradient"}
COLOURS = {"leakage": "#F0E442", "mean_bias": "#332288", "mlp": "#E69F00", "gradient": "#2A9D8F"}
MARKS = {"leakage": "o", "mean_bias": "s", "mlp": "D", "gradient": "^"}
WHOLE = {"color": "0.75", "linewidth": 3.5}
MOST_LINES = 6


def of_study(study: Study, roles: Roles) -> Iterator[Picture]:
    """A map of the leading noise over each pair of phase axes, then the noises along N."""
    measured, predicted = found(study, measured=True), found(study, measured=False)
    shown, how = (measured, "measured") if measured.notna().any(axis=None) else (predicted, "predicted")
    if not shown.notna().any(axis=None):
        raise NotDrawn("the table has no noise_* columns (diagnose: true), and theory does not cover its cells")
    for x, y in roles.phases:
        yield _map(study, x, y, shown, how)
    yield _lines(study, measured, predicted)


def found(study: Study, measured: bool) -> Table:
    """The noises of each level by name, standard deviations in units of the trigger's score; nan where not known."""
    import pandas as pd

    levels = study.levels
    if measured:
        here = {name: levels[column] for name, column in COLUMNS.items() if column in levels}
        return pd.DataFrame(here, index=levels.index, columns=pd.Index(COLUMNS), dtype=float)
    each = [predict.score_noise(row, float(row["N"])) or {} for row in levels.to_dict("records")]
    return pd.DataFrame(each, index=levels.index, columns=pd.Index(COLUMNS), dtype=float)


def known(noises: Table) -> list[str]:
    """The noises that have a number somewhere."""
    return [name for name in COLOURS if noises[name].notna().any()]


def leading(noises: Table) -> Table:
    """The name of the largest noise of each level that has any."""
    return noises.dropna(how="all").idxmax(axis=1)


def _map(study: Study, x: str, y: str, noises: Table, how: str) -> Picture:
    from matplotlib.patches import Patch

    chart = Chart(study, x, y)
    figure, panels = chart.canvas()
    for ax, (_, rows) in zip(panels, chart.groups, strict=True):
        boxes = [box for box in chart.boxes(rows) if noises.loc[box.rows.index].notna().any(axis=None)]
        shown = patches(boxes)
        shown.set(facecolor=[COLOURS[str(noises.loc[box.rows.index].mean().idxmax())] for box in boxes], edgecolor="white", linewidth=0.5)
        ax.add_collection(shown)
    leads = leading(noises).value_counts()
    entries = [Patch(color=COLOURS[name], label=predict.NOISES[name]) for name in COLOURS if name in leads]
    chart.finish(figure, panels, entries)
    name = "noise" if (x, y) == chart.default else f"noise-{chart.slug}"
    return Picture(name, f"Leading noise of the attention scores, {how}: {y} against {x}", _caption(noises, how), figure)


def _caption(noises: Table, how: str) -> str:
    leads = leading(noises).value_counts()
    led = [f"{predict.NOISES[name]} at {n}" for name, n in leads.items()]
    never = [predict.NOISES[name] for name in known(noises) if name not in leads]
    sentence = f"Of {leads.sum()} tested points, {how} noise is led by {', '.join(led)}"
    if never:
        sentence += f"; never by {' or '.join(never)}"
    largest = noises.max().dropna()
    return f"{sentence}. Largest: {', '.join(f'{predict.NOISES[str(n)]} {v:.2f}' for n, v in largest.items())} of the trigger's score."


def _lines(study: Study, measured: Table, predicted: Table) -> Picture:
    levels = study.levels
    some = spread([cell for cell in study.cells.index if (levels["cell"] == cell).any()], MOST_LINES)
    figure, panels = canvas(len(some))
    whole = 1 / levels["snr"] if "snr" in levels else levels["N"] * np.nan
    theory = np.sqrt((predicted**2).sum(axis=1, min_count=1))
    for ax, cell in zip(panels, some, strict=True):
        rows = levels[levels["cell"] == cell].sort_values("N").index
        N = levels.loc[rows, "N"]
        for name, colour in COLOURS.items():
            ax.plot(N, measured.loc[rows, name], color=colour, marker=MARKS[name], markeredgecolor="black", markeredgewidth=0.4)
            ax.plot(N, predicted.loc[rows, name].replace(0, np.nan), color=colour, linestyle=DASH)
        ax.plot(N, whole.loc[rows], zorder=1, **WHOLE)
        ax.plot(N, theory.loc[rows], color="black", linestyle=":", linewidth=0.9)
        ax.set(xscale="log", yscale="log", ylim=_limits(measured, predicted, whole))
        log_axis(ax.yaxis)
        ax.set_title(study.at(cell))
        ax.grid(True)
    entries = [
        line(f"{predict.NOISES[n]}", color=COLOURS[n], marker=MARKS[n], markeredgecolor="black") for n in known(measured[measured > 0])
    ]
    entries += [line(f"{predict.NOISES[n]}, theory", color=COLOURS[n], linestyle=DASH) for n in known(predicted[predicted > 0])]
    entries += [line("all: 1 / snr", **WHOLE)] if whole.notna().any() else []
    entries += [line("all, theory", color="black", linestyle=":")] if theory.notna().any() else []
    above(figure, entries)
    name_axes(figure, panels, label("N"), "noise (s.d. / trigger's score)")
    sentence = f"{len(some)} of {len(study.cells)} cells; theory dashed" + (
        "" if measured.notna().any(axis=None) else "; the parts were not measured"
    )
    off = np.log(whole / theory).replace([np.inf, -np.inf], np.nan)
    if off.notna().any():
        worst = abs(off).idxmax()
        sentence += (
            f". Over {off.notna().sum()} levels the whole noise 1 / snr is {np.exp(off.median()):.2f} times theory's in the median, "
            f"at the farthest {np.exp(off[worst]):.2f} times ({study.where(worst)})"
        )
    return Picture("noise-lines", "Noises of the attention scores along N", f"{sentence}.", figure)


def _limits(*tables: Table) -> tuple[float, float]:
    values = np.concatenate([np.asarray(table, dtype=float).ravel() for table in tables])
    values = values[np.isfinite(values) & (values > 0)]
    return max(values.min() / 1.5, 1e-3), values.max() * 1.5
