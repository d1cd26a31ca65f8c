"""Which noise of the attention scores leads: measured where the table has it, else predicted.

The measured parts are ratios to the trigger's score, which is near 0 in some runs: medians and quartiles over seeds stand for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from . import predict
from .axes import Roles
from .chart import Chart, patches
from .study import Study
from .style import DASH, NotDrawn, Picture, above, canvas, head, label, line, log_axis, name_axes, spread

Table = Any  # pandas.DataFrame, whose own types say less than Any
COLUMNS = {"leakage": "noise_leakage", "mean_bias": "noise_bias", "mlp": "noise_mlp", "gradient": "noise_gradient"}
COLOURS = {"leakage": "#E3C100", "mean_bias": "#332288", "mlp": "#A03A00", "gradient": "#2A9D8F"}
MARKS = {"leakage": "o", "mean_bias": "s", "mlp": "D", "gradient": "^"}
WHOLE = {"color": "0.75", "linewidth": 3.5}
MOST_LINES = 6


def of_study(study: Study, roles: Roles) -> Iterator[Picture]:
    """A map of the leading noise over each pair of phase axes, if more than one leads, then the noises along N."""
    measured, predicted = found(study, measured=True), found(study, measured=False)
    shown, how = (measured, "measured") if measured.notna().any(axis=None) else (predicted, "predicted")
    if not shown.notna().any(axis=None):
        raise NotDrawn("the table has no noise_* columns (diagnose: true), and theory does not cover its cells")
    for x, y in roles.phases if leading(shown).nunique() > 1 else ():
        yield _map(study, x, y, shown, how)
    yield _lines(study, measured, predicted, _caption(shown, how))


def found(study: Study, measured: bool, quantile: float = 0.5) -> Table:
    """The noises of each level by name, in units of the trigger's score; nan where not known. Measured: a quantile over seeds."""
    import pandas as pd

    levels = study.levels
    if measured:
        here = {name: column for name, column in COLUMNS.items() if column in levels}
        over_seeds = study.runs.groupby("level")[list(here.values())].quantile(quantile).reindex(levels.index)
        return over_seeds.set_axis(list(here), axis=1).reindex(columns=pd.Index(COLUMNS)).astype(float)
    each = [predict.score_noise(row, float(row["N"])) or {} for row in levels.to_dict("records")]
    return pd.DataFrame(each, index=levels.index, columns=pd.Index(COLUMNS), dtype=float)


def whole(study: Study, quantile: float = 0.5) -> Table:
    """All noise of each level, |1 / snr|: a quantile over seeds. The sign of snr is that of the trigger's score."""
    import pandas as pd

    if "snr" not in study.levels:
        return pd.Series(np.nan, index=study.levels.index)
    snr = study.runs["snr"].abs()
    return (1 / snr.where(snr > 0)).groupby(study.runs["level"]).quantile(quantile).reindex(study.levels.index)


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
        shown.set(facecolor=[COLOURS[leading(noises.loc[box.rows.index]).iloc[0]] for box in boxes], edgecolor="white", linewidth=0.5)
        ax.add_collection(shown)
    leads = leading(noises).value_counts()
    entries = [Patch(color=COLOURS[name], label=predict.NOISES[name]) for name in COLOURS if name in leads]
    chart.finish(figure, panels, entries)
    name = "noise" if (x, y) == chart.default else f"noise-{chart.slug}"
    return Picture(name, f"Leading noise of the attention scores, {how}: {y} against {x}", _caption(noises, how) + chart.remark, figure)


def _caption(noises: Table, how: str) -> str:
    leads = leading(noises).value_counts()
    led = [f"{predict.NOISES[name]} at {n}" for name, n in leads.items()]
    never = [predict.NOISES[name] for name in known(noises) if name not in leads]
    over = " (the largest part, medians over seeds)" if how == "measured" else ""
    sentence = f"Of {leads.sum()} tested points, {how} noise{over} is led by {', '.join(led)}"
    if never:
        sentence += f"; never by {' or '.join(never)}"
    largest = noises.max().dropna()
    return f"{sentence}. Largest: {', '.join(f'{predict.NOISES[str(n)]} {v:.2f}' for n, v in largest.items())} of the trigger's score."


def _lines(study: Study, measured: Table, predicted: Table, sentence: str) -> Picture:
    levels, all_noise = study.levels, whole(study)
    some = spread([cell for cell in study.cells.index if (levels["cell"] == cell).any()], MOST_LINES)
    figure, panels = canvas(len(some))
    theory = np.sqrt((predicted**2).sum(axis=1, min_count=1))
    bands = [found(study, True, q) for q in (0.25, 0.75)]
    around = [whole(study, q) for q in (0.25, 0.75)]
    limits = _limits(measured, predicted, all_noise)
    head(figure, panels, [study.at(cell) for cell in some])
    for ax, cell in zip(panels, some, strict=True):
        rows = levels[levels["cell"] == cell].sort_values("N").index
        N = levels.loc[rows, "N"]
        for name, colour in COLOURS.items():
            ax.plot(N, measured.loc[rows, name], color=colour, marker=MARKS[name], markeredgecolor="black", markeredgewidth=0.4)
            ax.plot(N, predicted.loc[rows, name].replace(0, np.nan), color=colour, linestyle=DASH)
            ax.fill_between(N, *(band.loc[rows, name].clip(lower=limits[0]) for band in bands), color=colour, alpha=0.2, linewidth=0)
        ax.plot(N, all_noise.loc[rows], zorder=1, **WHOLE)
        ax.fill_between(N, *(band.loc[rows] for band in around), color="0.75", alpha=0.3, linewidth=0, zorder=0)
        ax.plot(N, theory.loc[rows], color="black", linestyle=":", linewidth=0.9)
        ax.set(xscale="log", yscale="log", ylim=limits)
        log_axis(ax.xaxis)
        log_axis(ax.yaxis)
        ax.grid(True)
    entries = [
        line(f"{predict.NOISES[n]}", color=COLOURS[n], marker=MARKS[n], markeredgecolor="black") for n in known(measured[measured > 0])
    ]
    entries += [line(f"{predict.NOISES[n]}, theory", color=COLOURS[n], linestyle=DASH) for n in known(predicted[predicted > 0])]
    entries += [line("all: 1 / |snr|", **WHOLE)] if all_noise.notna().any() else []
    entries += [line("all, theory", color="black", linestyle=":")] if theory.notna().any() else []
    above(figure, entries)
    name_axes(figure, panels, label("N"), "noise (s.d. / trigger's score)")
    sentence += f" {len(some)} of {len(study.cells)} cells are drawn; theory dashed" + (
        ". Lines: medians over seeds; bands: quartiles." if measured.notna().any(axis=None) else "; the parts were not measured."
    )
    sentence += _against_theory(study, measured, predicted, all_noise, theory) + _over_the_whole(study, measured, all_noise)
    return Picture("noise-lines", "Noises of the attention scores along N", sentence, figure)


def _against_theory(study: Study, measured: Table, predicted: Table, all_noise: Table, theory: Table) -> str:
    off = np.log(all_noise / theory).replace([np.inf, -np.inf], np.nan)
    if not off.notna().any():
        return ""
    worst = abs(off).idxmax()
    parts = (measured / predicted.where(predicted > 0)).median().dropna()
    each = (
        f" The parts: {', '.join(f'{predict.NOISES[str(n)]} {v:.2f}' for n, v in parts.items())} times, in the median."
        if len(parts)
        else ""
    )
    return (
        f" Over {off.notna().sum()} levels the whole noise 1 / |snr| is {np.exp(off.median()):.2f} times theory's in the median, "
        f"at the farthest {np.exp(off[worst]):.2f} times ({study.where(worst)}).{each}"
    )


def _over_the_whole(study: Study, measured: Table, all_noise: Table) -> str:
    """Why a part can be larger than the whole, and where it is most."""
    ratio = (measured.max(axis=1) / all_noise).dropna()
    over = ratio[ratio > 1]
    if over.empty:
        return ""
    worst = over.idxmax()
    return (
        " The parts are correlated, and negative covariances cancel some of them: the four variances and twice the six covariances "
        f"add up to 1 / snr^2. A part exceeds the whole at {len(over)} of {len(ratio)} levels, "
        f"at most {over[worst]:.2f} times ({study.where(worst)})."
    )


def _limits(*tables: Table) -> tuple[float, float]:
    values = np.concatenate([np.asarray(table, dtype=float).ravel() for table in tables])
    values = values[np.isfinite(values) & (values > 0)]
    return (max(values.min() / 1.5, 1e-3), values.max() * 1.5) if len(values) else (0.1, 1.0)
