"""What the first steps see: the noises of the attention scores, and what decoders read from the initial gradient.

Noises are measured where the table has them, else predicted. The measured parts are ratios to the trigger's score, which is near 0
in some runs: medians and quartiles over seeds stand for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from . import predict
from .axis import Axis
from .critical import ALONG_N
from .grammar import Chart, Layer, Line, Panel
from .maps import Map, Pixels
from .roles import Roles
from .study import Study
from .style import DASH, NotDrawn, Picture, told

Table = Any  # pandas.DataFrame, whose own types say less than Any
COLUMNS = {"leakage": "noise_leakage", "mean_bias": "noise_bias", "mlp": "noise_mlp", "gradient": "noise_gradient", "whole": "noise_whole"}
COLOURS = {"leakage": "#E3C100", "mean_bias": "#332288", "mlp": "#A03A00", "gradient": "#2A9D8F"}
PARTS = [*COLOURS]
MARKS = {"leakage": "o", "mean_bias": "s", "mlp": "D", "gradient": "^"}
WHOLE = "all: 1 / |snr|"
MOST_CELLS = 6
LEAST_NOISE = 1e-3
"""Smaller noises are not drawn, in units of the trigger's score."""

DECODERS = {
    "accuracy": ("three steps, test accuracy", {"color": "black", "marker": "o"}),
    "matched_accuracy": ("matched filter", {"color": "#332288", "marker": "s"}),
    "whitened_accuracy": ("whitened least squares", {"color": "#2A9D8F", "marker": "D"}),
    "assignment_accuracy": ("assignment", {"color": "#E69F00", "marker": "^"}),
}


def noise(study: Study, roles: Roles) -> Iterator[Picture]:
    """A map of the leading noise over each pair of phase axes, if more than one leads, then the noises along N."""
    if study.along != "N":
        raise NotDrawn(ALONG_N)
    measured, predicted = measured_noise(study), predicted_noise(study)
    shown, how = (measured[PARTS], "measured") if measured[PARTS].notna().any(axis=None) else (predicted[PARTS], "predicted")
    if not shown.notna().any(axis=None):
        raise NotDrawn("the table has no noise_* columns (diagnose: true), and theory does not cover its cells")
    leads = shown.dropna(how="all").idxmax(axis=1)
    sentence = _led(shown, leads, how)
    colours = {name: (predict.NOISES[name], colour) for name, colour in COLOURS.items()}
    for x, y in roles.phases if leads.nunique() > 1 else ():
        over = Map(study, x, y)
        pixels = Pixels(study.levels.assign(leads=leads.reindex(study.levels.index)), "leads", colours=colours, gaps=over.gaps)
        yield over.picture("noise", f"Leading noise of the attention scores, {how}", sentence, over.chart([pixels]))
        sentence = ""  # said once
    yield _lines(study, measured, predicted, sentence)


def measured_noise(study: Study, quantile: float = 0.5) -> Table:
    """The noises of each level by name, in units of the trigger's score: a quantile over seeds; nan where not measured.

    `whole` is all noise, |1 / snr|; the sign of snr is that of the trigger's score.
    """
    runs = study.runs
    if "snr" in runs:
        runs = runs.assign(noise_whole=1 / runs["snr"].abs().where(runs["snr"] != 0))
    here = {name: column for name, column in COLUMNS.items() if column in runs}
    over_seeds = runs.groupby("level")[list(here.values())].quantile(quantile).reindex(study.levels.index)
    return over_seeds.set_axis([*here], axis=1).reindex(columns=[*COLUMNS]).astype(float)


def predicted_noise(study: Study) -> Table:
    """Theory's noises of each level by name, `whole` their root sum of squares; nan where it does not reach."""
    import pandas as pd

    cells = study.cells.to_dict("index")
    each = [predict.score_noise(cells[row.cell], float(row.N)) or {} for row in study.levels.itertuples()]
    found = pd.DataFrame(each, index=study.levels.index, columns=pd.Index(COLUMNS), dtype=float)
    return found.assign(whole=np.sqrt((found**2).sum(axis=1, min_count=1)))


def _led(noises: Table, leads: Table, how: str) -> str:
    counts = leads.value_counts()
    led = [f"{predict.NOISES[name]} at {n}" for name, n in counts.items()]
    never = [predict.NOISES[name] for name in PARTS if noises[name].notna().any() and name not in counts]
    over = " (the largest part, medians over seeds)" if how == "measured" else ""
    sentence = f"Of {len(leads)} tested points, {how} noise{over} is led by {', '.join(led)}"
    sentence += f"; never by {' or '.join(never)}" if never else ""
    largest = noises.max().dropna()
    return f"{sentence}. Largest: {', '.join(f'{predict.NOISES[str(n)]} {v:.2f}' for n, v in largest.items())} of the trigger's score."


def _lines(study: Study, measured: Table, predicted: Table, sentence: str) -> Picture:
    several = study.levels.groupby("cell")["N"].transform("size") > 1
    among = several if several.any() else ~several  # one N is no line
    measured, predicted = (noises.where(among) for noises in (measured, predicted))
    shown = _stacked(study, measured, low=measured_noise(study, 0.25), high=measured_noise(study, 0.75))
    theory = {"linestyle": DASH, "marker": "none", "linewidth": 0.9}
    layers = [Line(shown, "noise", low="low", high="high"), Line(_stacked(study, predicted), "noise", "theory", theory)]
    looks: dict[str, Any] = {WHOLE: {"color": "0.55", "marker": "none", "linewidth": 2.5}}
    for name, colour in COLOURS.items():
        looks[predict.NOISES[name]] = {"color": colour, "marker": MARKS[name], "markeredgecolor": "black", "markeredgewidth": 0.4}
    chart = Chart(
        layers if len(shown) else layers[::-1], Axis.make("N", study.levels), "noise (s.d. / trigger's score)",
        lines=["_noise"], panels=study.axes, looks=looks, scale="log", most=MOST_CELLS,
    )  # fmt: skip
    how = "Lines: medians over seeds; bands: quartiles." if measured[PARTS].notna().any(axis=None) else "The parts were not measured."
    sentence += f" {len(chart.parts)} of {len(study.cells)} cells are drawn; theory dashed. {how}"
    sentence += _compared(study, measured, predicted)
    return Picture("noise-lines", "Noises of the attention scores along N", sentence.strip(), chart.figure())


def _stacked(study: Study, noises: Table, **bands: Table) -> Table:
    """One row per level and noise that is known, with its band."""
    import pandas as pd

    table = study.levels[["N", *study.axes]]
    parts = [table.iloc[:0].assign(_noise="", noise=0.0)]
    for name, values in noises.items():
        if (values >= LEAST_NOISE).any():
            ends = {end: band[name].clip(LEAST_NOISE) for end, band in bands.items()}
            found = table.assign(_noise=predict.NOISES.get(str(name), WHOLE), noise=values.where(values >= LEAST_NOISE), **ends)
            parts.append(found[values.notna()])
    return pd.concat(parts[1:] or parts, ignore_index=True)


def _compared(study: Study, measured: Table, predicted: Table) -> str:
    """The whole noise against theory's, and where a part is larger than the whole."""
    off = np.log(measured["whole"] / predicted["whole"]).replace([np.inf, -np.inf], np.nan)
    sentence = f" ln(whole noise 1 / |snr| / theory's): {told(off, study.where, form='+.2f')}." if off.notna().any() else ""
    over = (measured[PARTS].max(axis=1) / measured["whole"]).dropna()
    if len(over) and over.max() > 1:
        most = f"at most {over.max():.2f} times ({study.where(over.idxmax())})"
        sentence += f" The parts are correlated: one exceeds the whole at {(over > 1).sum()} of {len(over)} levels, {most}."
    return sentence


class Ceiling(Layer):
    """The Fano ceiling, grey above it."""

    def draw(self, panel: Panel) -> None:
        rows = panel.rows(self.table).sort_values("N")
        panel.ax.plot(rows["N"], rows[self.y], **self.style)
        panel.ax.fill_between(rows["N"], rows[self.y], 1.05, color="0.9", linewidth=0, zorder=0)


def decoders(study: Study, roles: Roles) -> Iterator[Picture]:
    """What decoders read from the initial gradient, next to what the three steps learn and what its information allows."""
    import pandas as pd

    if study.along != "N":
        raise NotDrawn(ALONG_N)
    levels = study.levels
    here = [name for name in DECODERS if name in levels and levels[name].notna().any()]
    if here == ["accuracy"]:
        raise NotDrawn("the table has no accuracy of a decoder (decoders: true)")
    cells = levels.loc[levels[here[1:]].notna().any(axis=1), "cell"].unique()
    each = [study.means(name).assign(_by=DECODERS[name][0], value=levels[name]).drop(columns="n_seeds") for name in here]
    table = pd.concat(each, ignore_index=True).dropna(subset=["value"])
    table = table[table["cell"].isin(cells)]
    ceiling = pd.concat([_ceiling(study, cell) for cell in cells], ignore_index=True)
    dotted = {"color": "0.5", "linestyle": ":"}
    layers = [Line(table, "value", low="low", high="high"), Ceiling(ceiling, "ceiling", "Fano ceiling (approximate)", dotted)]
    looks: dict[str, Any] = dict(DECODERS.values())
    chart = Chart(layers, Axis.make("N", table), "accuracy (fraction)", lines=["_by"], panels=study.axes, looks=looks)
    yield Picture("decoders", "Decoders of the initial gradient", _caption(study, here) + chart.remark("Decoders"), chart.figure())


def _ceiling(study: Study, cell: int) -> Table:
    """The ceiling along the N of a cell, closely enough for a smooth line."""
    import pandas as pd

    at = study.cells.loc[cell].to_dict()
    tested = study.levels.loc[study.levels["cell"] == cell, "N"]
    N = np.geomspace(tested.min(), tested.max(), 65)
    ceiling = np.array([predict.fano_ceiling(at, float(n)) for n in N], dtype=float)
    return pd.DataFrame({"N": N, "ceiling": ceiling}).assign(**{axis: at[axis] for axis in study.axes})


def _caption(study: Study, here: list[str]) -> str:
    levels = study.levels
    gains = [f"{DECODERS[name][0]} {told(levels[name] - levels['accuracy'], study.where, 'mean', '+.2f')}" for name in here[1:]]
    over = (levels[here].max(axis=1) - study.asked(predict.fano_ceiling)).dropna()
    most = f", at most by {over.max():.2f} ({study.where(over.idxmax())})" if (over > 0).any() else ""
    bound = f" Of {len(over)} levels {(over > 0).sum()} are above the ceiling{most}." if len(over) else ""
    return f"Decoders minus the three steps: {'; '.join(gains)}.{bound}"


FIGURES = {"dominating noise": noise, "decoders of the initial gradient": decoders}
