"""What the first steps see: the noises of the attention
scores, and what decoders read from the initial gradient.

Noises are measured where the table has them, else predicted. The measured parts are
ratios to the trigger's score, which is near 0 in some runs: medians and quartiles over
seeds stand for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from . import maps, predict
from .axis import Axis
from .critical import ALONG_N
from .grammar import Chart, Line
from .study import Roles, Study
from .style import DASH, NotDrawn, Picture, told

Table = Any  # pandas.DataFrame, whose own types say less than Any
COLUMNS = {"noise_leakage": "leakage", "noise_bias": "mean_bias", "noise_mlp": "mlp", "noise_gradient": "gradient", "noise_whole": "whole"}
PARTS = [*predict.NOISES]
NAMES = {"whole": "all: 1 / |snr|"} | predict.NOISES
EDGE = {"markeredgecolor": "black", "markeredgewidth": 0.4}
LOOKS: dict[str, dict[str, Any]] = {
    "whole": {"color": "0.55", "marker": "none", "linewidth": 2.5},
    "leakage": {"color": "#E3C100", "marker": "o", **EDGE},
    "mean_bias": {"color": "#332288", "marker": "s", **EDGE},
    "mlp": {"color": "#A03A00", "marker": "D", **EDGE},
    "gradient": {"color": "#2A9D8F", "marker": "^", **EDGE},
}
MOST_CELLS = 6
LEAST_NOISE = 1e-3
"""Smaller noises are not drawn, in units of the trigger's score."""

DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "accuracy": ("three steps, test accuracy", {"color": "black", "marker": "o"}),
    "matched_accuracy": ("matched filter", {"color": "#332288", "marker": "s"}),
    "whitened_accuracy": ("whitened least squares", {"color": "#2A9D8F", "marker": "D"}),
    "assignment_accuracy": ("assignment", {"color": "#E69F00", "marker": "^"}),
}


def noise(study: Study, roles: Roles) -> Iterator[Picture]:
    """A map of the leading noise over each pair of phase
    axes, if more than one leads, then the noises along N.
    """
    if study.along != "N":
        raise NotDrawn(ALONG_N)
    measured, predicted = measured_noise(study), predicted_noise(study)
    shown, how = (measured[PARTS], "measured") if measured[PARTS].notna().any(axis=None) else (predicted[PARTS], "predicted")
    if not shown.notna().any(axis=None):
        raise NotDrawn("the table has no noise_* columns (diagnose: true), and theory does not cover its cells")
    leads = shown.dropna(how="all").idxmax(axis=1)
    sentence = _led(shown, leads, how)
    colours = {name: (NAMES[name], LOOKS[name]["color"]) for name in PARTS}
    pixels = maps.Pixels(study.levels.assign(leads=leads.reindex(study.levels.index)), "leads", colours=colours)
    drawn = roles.phases and leads.nunique() > 1
    if drawn:
        title = f"Leading noise of the attention scores, {how}"
        yield from maps.pictures(study, roles, "noise", title, sentence, lambda x, y: maps.over(study, x, y, [pixels]))
    yield _lines(study, measured, predicted, "" if drawn else sentence)


def measured_noise(study: Study, quantile: float = 0.5) -> Table:
    """The noises of each level by name, in units of the trigger's
    score: a quantile over seeds; nan where not measured.

    `whole` is all noise, |1 / snr|; the sign of snr is that of the trigger's score.
    """
    runs = study.runs
    if "snr" in runs:
        runs = runs.assign(noise_whole=1 / runs["snr"].abs().where(runs["snr"] != 0))
    runs = runs.rename(columns=COLUMNS)
    over_seeds = runs.groupby("level")[[name for name in NAMES if name in runs]].quantile(quantile)
    return over_seeds.reindex(index=study.levels.index, columns=[*NAMES]).astype(float)


def predicted_noise(study: Study) -> Table:
    """Theory's noises of each level by name, `whole` their
    root sum of squares; nan where it does not reach.
    """
    cells = study.cells.to_dict("index")
    each = [predict.score_noise(cells[row.cell], float(row.N)) or {} for row in study.levels.itertuples()]
    found = pd.DataFrame(each, index=study.levels.index, columns=pd.Index(NAMES), dtype=float)
    return found.assign(whole=np.sqrt((found**2).sum(axis=1, min_count=1)))


def _led(noises: Table, leads: Table, how: str) -> str:
    counts = leads.value_counts()
    led = ", ".join(f"{NAMES[name]} at {n}" for name, n in counts.items())
    never = [NAMES[name] for name in PARTS if noises[name].notna().any() and name not in counts]
    but = f"; never by {' or '.join(never)}" if never else ""
    over = " (the largest part, medians over seeds)" if how == "measured" else ""
    largest = ", ".join(f"{NAMES[str(name)]} {noise:.2f}" for name, noise in noises.max().dropna().items())
    return f"Of {len(leads)} tested points, {how} noise{over} is led by {led}{but}. Largest: {largest} of the trigger's score."


def _lines(study: Study, measured: Table, predicted: Table, sentence: str) -> Picture:
    several = study.levels.groupby("cell")["N"].transform("size") > 1
    among = several if several.any() else ~several  # one N is no line
    measured, predicted = (noises.where(among) for noises in (measured, predicted))
    quartiles = {"low": measured_noise(study, 0.25), "high": measured_noise(study, 0.75)}
    shown = Line(_stacked(study, measured, **quartiles), "noise", low="low", high="high")
    theory = Line(_stacked(study, predicted), "noise", "theory", {"linestyle": DASH, "marker": "none", "linewidth": 0.9})
    layers, axis = [shown, theory] if len(shown.table) else [theory], Axis.make("N", study.levels)
    looks = {NAMES[name]: look for name, look in LOOKS.items()}
    grammar: dict[str, Any] = {"lines": ["_noise"], "panels": study.axes, "looks": looks, "most": MOST_CELLS}
    chart = Chart(layers, axis, "noise (s.d. / trigger's score)", scale="log", **grammar)
    how = "Lines: medians over seeds; bands: quartiles." if measured[PARTS].notna().any(axis=None) else "The parts were not measured."
    drawn = f"{len(chart.parts)} of {len(study.cells)} cells are drawn; theory dashed. {how}"
    caption = f"{sentence} {drawn}{_compared(study, measured, predicted)}".strip()
    return Picture("noise-lines", "Noises of the attention scores along N", caption, chart.figure())


def _stacked(study: Study, noises: Table, **bands: Table) -> Table:
    """One row per level and noise that is known, with its band."""
    at = study.levels[["N", *study.axes]]
    rows = [at.iloc[:0].assign(_noise="", noise=0.0)]
    for name in (name for name in [*PARTS, "whole"] if (noises[name] >= LEAST_NOISE).any()):
        ends = {end: band[name].clip(LEAST_NOISE) for end, band in bands.items()}
        rows.append(at.assign(_noise=NAMES[name], noise=noises[name], **ends))
    found = pd.concat(rows, ignore_index=True).dropna(subset=["noise"])
    return found.assign(noise=found["noise"].where(found["noise"] >= LEAST_NOISE))


def _compared(study: Study, measured: Table, predicted: Table) -> str:
    """The whole noise against theory's, and where a part is larger than the whole."""
    off = np.log(measured["whole"] / predicted["whole"]).replace([np.inf, -np.inf], np.nan)
    sentence = f" ln(whole noise 1 / |snr| / theory's): {told(off, study.where, form='+.2f')}." if off.notna().any() else ""
    over = (measured[PARTS].max(axis=1) / measured["whole"]).dropna()
    if len(over) and over.max() > 1:
        most = f"at most {over.max():.2f} times ({study.where(over.idxmax())})"
        sentence += f" The parts are correlated: one exceeds the whole at {(over > 1).sum()} of {len(over)} levels, {most}."
    return sentence


def decoders(study: Study, roles: Roles) -> Iterator[Picture]:
    """What decoders read from the initial gradient, next to
    what the three steps learn and what its information allows.
    """
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
    dotted = {"color": "0.5", "linestyle": ":", "marker": "none"}
    layers = [Line(table, "value", low="low", high="high")]
    layers.append(Line(ceiling, "ceiling", "Fano ceiling (approximate)", dotted, low="ceiling", high="top"))
    grammar: dict[str, Any] = {"lines": ["_by"], "panels": study.axes, "looks": dict(DECODERS.values())}
    chart = Chart(layers, Axis.make("N", table), "accuracy (fraction)", **grammar)
    yield chart.picture("decoders", "Decoders of the initial gradient", _caption(study, here))


def _ceiling(study: Study, cell: int) -> Table:
    """The ceiling along the N of a cell, closely enough for a smooth line."""
    at = study.cells.loc[cell].to_dict()
    tested = study.levels.loc[study.levels["cell"] == cell, "N"]
    N = np.geomspace(tested.min(), tested.max(), 65)
    ceiling = np.array([predict.fano_ceiling(at, float(n)) for n in N], dtype=float)
    return pd.DataFrame({"N": N, "ceiling": ceiling, "top": 1.05}).assign(**{axis: at[axis] for axis in study.axes})


def _caption(study: Study, here: list[str]) -> str:
    levels = study.levels
    gains = [f"{DECODERS[name][0]} {told(levels[name] - levels['accuracy'], study.where, 'mean', '+.2f')}" for name in here[1:]]
    over = (levels[here].max(axis=1) - study.asked(predict.fano_ceiling)).dropna()
    most = f", at most by {over.max():.2f} ({study.where(over.idxmax())})" if (over > 0).any() else ""
    bound = f" Of {len(over)} levels {(over > 0).sum()} are above the ceiling{most}." if len(over) else ""
    return f"Decoders minus the three steps: {'; '.join(gains)}.{bound}"


FIGURES = {"dominating noise": noise, "decoders of the initial gradient": decoders}
