"""Runs that train on, against the step: accuracy, attention, loss, and what becomes of trained embeddings.

One picture for each quantity; one axis makes its lines, the others and N its panels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...model.training import TRAINS
from . import predict
from .accuracy import LINE, entries, joined, kinds, series, signs, split, where
from .agreement import LOCKED
from .axes import Axis, Roles
from .study import Study, Traces
from .style import (
    ACCURACY,
    DASH,
    MARKERS,
    MAX_PANELS,
    NotDrawn,
    Picture,
    above,
    canvas,
    dashed_levels,
    grouped,
    head,
    key,
    label,
    line,
    log_axis,
    name_axes,
    settings,
    shades,
    spread,
)

Table = Any  # pandas.DataFrame, whose own types say less than Any
NONE = "no run has rows of several steps"
SECOND = {"linestyle": ":"}


@dataclass(frozen=True)
class Quantity:
    """One picture: its file name, title and label along y, and its columns, each with its entry of the legend.

    The first column is drawn with marks, the second dotted. `reference` gives the height of a dashed line from a row of the levels,
    and `says` the caption from the curves and their names.
    """

    name: str
    title: str
    label: str
    columns: dict[str, str]
    says: Callable[[Table, Callable[[Any], str]], str]
    reference: Callable[[Any], float | None] | None = None
    reference_label: str = ""
    is_fraction: bool = False
    of_embeddings: bool = False


def of_study(study: Study, roles: Roles) -> Iterator[Picture]:
    """A picture for each quantity that the table has; those of embeddings where these are trained."""
    if study.traces is None:
        raise NotDrawn(NONE)
    levels = _levels(study.traces)
    for quantity in QUANTITIES:
        if {*quantity.columns} <= {*levels}:
            rows = levels[levels[list(quantity.columns)].notna().all(axis=1)]
            rows = rows[[bool(TRAINS.get(trains)) for trains in rows["trains"]]] if quantity.of_embeddings else rows
            if len(rows):
                yield _picture(study.traces, quantity, rows, roles)


def _levels(traces: Traces) -> Table:
    """The levels with the standard deviation over seeds of every column that is drawn."""
    columns = [c for quantity in QUANTITIES for c in quantity.columns if c != "accuracy" and c in traces.levels]
    deviations = traces.runs.groupby("level")[columns].std(ddof=0).add_prefix("sd_")
    return traces.levels.join(deviations)


def _picture(traces: Traces, quantity: Quantity, levels: Table, roles: Roles) -> Picture:
    varying = [axis for axis in (*traces.axes, "N") if levels[axis].nunique(dropna=False) > 1]
    lines, panels = roles.one_for_lines(levels, varying)
    by, panels = split(levels, lines, panels)
    levels = joined(levels, by)
    n = len(grouped(levels, panels))
    groups = grouped(_fewer_N(levels, panels), panels, MAX_PANELS)
    figure, axes = canvas(len(groups))
    head(figure, axes, [heading for heading, _ in groups])
    has_reference = False
    for ax, (_, rows) in zip(axes, groups, strict=True):
        has_reference |= _panel(ax, quantity, rows, levels, bool(by))
    if not quantity.is_fraction:
        low, high = _ends(levels, quantity)
        axes[0].set_ylim(low, high)
        for ax in axes:
            log_axis(ax.yaxis)
    if by:
        key(figure, entries(levels), by[0] if len(by) == 1 else None)
    legend = [line(named, **style) for named, style in zip(quantity.columns.values(), ({}, SECOND), strict=False) if named]
    legend += [line(quantity.reference_label, linestyle=DASH)] if has_reference else []
    above(figure, legend + signs(levels))
    name_axes(figure, axes, label("step"), quantity.label)
    every = [*traces.axes, "N"]
    curves = levels.sort_values("step").groupby(every, dropna=False, sort=True)

    def at(curve: Any) -> str:
        values = curve if isinstance(curve, tuple) else (curve,)
        return settings(dict(zip(every, values, strict=True)), varying) or "the only curve"

    sentence = quantity.says(curves, at)
    return Picture(f"trace-{quantity.name}", f"{quantity.title} against the step", _caption(sentence, traces, len(groups), n), figure)


def _panel(ax: Any, quantity: Quantity, rows: Table, levels: Table, has_lines: bool) -> bool:
    """The lines of one panel; returns whether a reference is there."""
    along = Axis.of("step", levels)
    values = kinds(levels) if has_lines else [None]
    first, *second = quantity.columns
    ends = (0.0, 1.0) if quantity.is_fraction else _ends(levels, quantity)
    references = {}
    for i, (value, colour) in enumerate(zip(values, shades(len(values)), strict=True)):
        mine = where(rows, {LINE: value} if has_lines else {}).sort_values("step")
        series(ax, mine, along, colour, first, ends, marker=MARKERS[i % len(MARKERS)])
        for column in second:
            series(ax, mine, along, colour, column, ends, **SECOND)
        if quantity.reference and len(mine) and (height := quantity.reference(mine.iloc[0])) is not None:
            references.setdefault(height, []).append(colour)
    dashed_levels(ax, references)
    along.scale(ax, "x")
    if quantity.is_fraction:
        ax.set_ylim(-0.02, 1.02)
    else:
        ax.set_yscale("log")
    ax.grid(True)
    return bool(references)


def _ends(levels: Table, quantity: Quantity) -> tuple[float, float]:
    """What holds every mean of a log axis."""
    means = levels[list(quantity.columns)].to_numpy()
    means = means[means > 0]
    return (means.min() / 1.5, means.max() * 1.5) if len(means) else (0.5, 2.0)


def _fewer_N(levels: Table, panels: Sequence[str]) -> Table:
    """The levels at some of the N of each other setting, where all would make too many panels."""
    import pandas as pd

    if "N" not in panels or len(grouped(levels, panels)) <= MAX_PANELS:
        return levels
    others = grouped(levels, [axis for axis in panels if axis != "N"])
    most = max(1, MAX_PANELS // len(others))

    def some(N: list[int]) -> list[int]:
        return spread(N, most) if most > 1 else [N[len(N) // 2]]

    return pd.concat([rows[rows["N"].isin(some(sorted(set(rows["N"]))))] for _, rows in others])


def _caption(sentence: str, traces: Traces, n_drawn: int, n: int) -> str:
    gone = f" {traces.n_left_out} rows without a number are left out." if traces.n_left_out else ""
    more = f" {n_drawn} of {n} panels are drawn." if n_drawn < n else ""
    return f"{sentence} Lines: mean over seeds; bands: one standard deviation over seeds.{gone}{more}"


def _says_accuracy(curves: Any, at: Callable[[Any], str]) -> str:
    p = curves["accuracy"].agg(["first", "last", "max"])
    change = p["last"] - p["first"]
    most = change.abs().idxmax()
    sentence = (
        f"From the first recorded step to the last, accuracy goes from {p['first'].mean():.2f} to {p['last'].mean():.2f} in the mean of "
        f"{len(p)} curves, with the largest change at {at(most)} ({p['first'][most]:.2f} to {p['last'][most]:.2f})."
    )
    limit = np.array([predict.seen(rows.iloc[-1], float(rows["N"].iloc[-1])) for _, rows in curves], dtype=float)
    over = (p["last"] - limit).dropna()
    if over.empty:
        return sentence
    near = int((over.abs() < NEAR_LIMIT).sum())
    most = over.idxmax()
    return (
        f"{sentence} Dashed: the chance that the label of a test token is among the N samples. {near} of {len(over)} curves end within "
        f"{NEAR_LIMIT:g} of it; the highest against it ends at {p['last'][most]:.2f}, {over[most]:+.2f} from it ({at(most)})."
    )


def _says_attention(curves: Any, at: Callable[[Any], str]) -> str:
    mass = curves["attention_mass"].agg(["first", "last"])
    change = mass["last"] - mass["first"]
    most = change.abs().idxmax()
    first, last = ((mass[end] > LOCKED).sum() for end in ("first", "last"))
    return (
        f"Attention mass is above {LOCKED:g} in {first} of {len(mass)} curves at the first recorded step and in {last} at the last. "
        f"It changes most at {at(most)}, from {mass['first'][most]:.2f} to {mass['last'][most]:.2f}."
    )


def _says_loss(curves: Any, at: Callable[[Any], str]) -> str:
    ends = curves[["loss", "test_loss"]].last()
    ratio = ends["test_loss"] / ends["loss"]
    most = ratio.idxmax()
    test = curves["test_loss"].agg(["min", "last"])
    rise = test["last"] / test["min"]
    rises = rise > RISES
    sentence = (
        f"At the last step test loss is {ratio.median():.2f} times the loss of the samples in the median of {len(ends)} curves, at most "
        f"{ratio[most]:.3g} times ({at(most)})."
    )
    if not rises.any():
        return f"{sentence} No test loss rises again after its least value by more than {RISES - 1:.0%}."
    most = rise.idxmax()
    return (
        f"{sentence} After its least value it rises again by more than {RISES - 1:.0%} in {rises.sum()} curves, most at {at(most)} "
        f"({test['min'][most]:.2g} to {test['last'][most]:.2g} nats)."
    )


def _says_overlap(curves: Any, at: Callable[[Any], str]) -> str:
    ends = curves[["Z_in_overlap", "Z_out_overlap", "d"]].agg(["first", "last"])
    sentences = []
    for column in ("Z_in_overlap", "Z_out_overlap"):
        random = ends["d", "last"] ** -0.5
        first, last = ends[column, "first"] / random, ends[column, "last"] / random
        most = (last / first).apply(np.log).abs().idxmax()
        sentences.append(
            f"{column} goes from {first.mean():.2f} to {last.mean():.2f} times 1 / sqrt(d) in the mean of {len(ends)} curves, "
            f"with the largest change at {at(most)} ({ends[column, 'first'][most]:.3f} to {ends[column, 'last'][most]:.3f})."
        )
    return " ".join(sentences) + " 1 / sqrt(d) is the root mean square cosine of random directions."


def _says_norm(curves: Any, at: Callable[[Any], str]) -> str:
    ends = curves[["Z_in_norm", "Z_out_norm"]].agg(["first", "last"])
    growth = {column: ends[column, "last"] / ends[column, "first"] for column in ("Z_in_norm", "Z_out_norm")}
    said = [f"{column} by a factor of {g.mean():.2f}, at most {g.max():.2f} ({at(g.idxmax())})" for column, g in growth.items()]
    return f"In the mean of {len(ends)} curves, root mean square norms grow: {' and '.join(said)}."


NEAR_LIMIT = 0.05
RISES = 1.05
QUANTITIES = (
    Quantity(
        "accuracy", "Accuracy", ACCURACY, {"accuracy": ""}, _says_accuracy,
        lambda row: predict.seen(row, float(row["N"])), "label seen in training, 1 - (1 - 1/V)^N", is_fraction=True,
    ),
    Quantity("attention", "Attention", "attention mass (fraction)", {"attention_mass": ""}, _says_attention, is_fraction=True),
    Quantity(
        "loss", "Loss", "loss (nats)", {"test_loss": "test sequences", "loss": "the N samples"}, _says_loss,
        lambda row: float(np.log(row["V"])), "a guess, ln V",
    ),
    Quantity(
        "overlap", "Overlap of trained embeddings", "overlap (cosine, rms)", {"Z_in_overlap": "Z_in", "Z_out_overlap": "Z_out"},
        _says_overlap, lambda row: float(row["d"] ** -0.5), "random directions, 1 / sqrt(d)", of_embeddings=True,
    ),
    Quantity(
        "norm", "Norms of trained embeddings", "norm of a row (rms)", {"Z_in_norm": "Z_in", "Z_out_norm": "Z_out"}, _says_norm,
        of_embeddings=True,
    ),
)  # fmt: skip
"""Of one picture each."""
