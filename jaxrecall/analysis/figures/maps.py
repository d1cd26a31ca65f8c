"""Maps over any two axes: pixels of what was tested and
of nothing else, level lines over them, N* and theory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .axis import Axis, borders, column
from .critical import theory_layers
from .grammar import Chart, Layer, Panel, Points, where
from .study import Roles, Study
from .style import UNTESTED, NotDrawn, Picture, accuracy_label, outline

Table = Any  # pandas.DataFrame, whose own types say less than Any
NEAR = 1.6
"""A pixel reaches half way to its neighbour, if that is not farther than this many usual steps."""

WHITE = {"color": "black", "markerfacecolor": "white", "marker": "o", "markersize": 4}
Corners = tuple[float, float, float, float]
"""Where a pixel begins and ends on paper along x, and along y."""


@dataclass(frozen=True)
class Pixels(Layer):
    """A coloured pixel for each row with a value of `y`; no two
    rows of a panel share a place. What was not tested is hatched.

    Numbers have a scale of colours between `ends`, those of the values if None, with a
    mark at `mark`, and with `contour` a line where the values cross it. With `colours`
    the column holds their keys, each with its name.
    """

    name: str = ""
    ends: tuple[float, float] | None = (0.0, 1.0)
    mark: float | None = None
    contour: bool = False
    colours: Mapping[str, tuple[str, Any]] = field(default_factory=dict)

    def draw(self, panel: Panel) -> None:
        from matplotlib.collections import PolyCollection

        ax, rows, x, y = panel.ax, panel.rows(self.table), panel.x, panel.y or panel.x
        ax.set_facecolor(UNTESTED["facecolor"])
        ax.patch.set(hatch=UNTESTED["hatch"], edgecolor=UNTESTED["edgecolor"])
        found = [(box, row[self.y]) for box, row in pixels(x, y, rows) if row[self.y] == row[self.y]]
        corners = [[(a, c), (b, c), (b, d), (a, d)] for (a, b, c, d), _ in found]
        places = [np.stack([x.data(at), y.data(up)], axis=1) for at, up in (np.transpose(box) for box in corners)]
        shown = PolyCollection(places, linewidth=0.2, edgecolor="face", zorder=1)
        if self.colours:
            shown.set(facecolor=[self.colours[value][1] for _, value in found], edgecolor="white", linewidth=0.5)
        else:
            shown.set(array=[value for _, value in found], cmap="viridis", clim=self._ends())
        ax.add_collection(shown)
        if self.contour:
            self._contour(ax, x, y, rows)

    def _contour(self, ax: Any, x: Axis, y: Axis, rows: Table) -> None:
        """The line at `mark`, where values are known on
        all sides of it; none crosses the break of an axis.
        """
        table = rows.assign(_x=column(x.name, rows), _y=column(y.name, rows)).pivot(index="_y", columns="_x", values=self.y)
        table = table.reindex(index=y.values[y.broken :], columns=x.values[x.broken :])
        if min(table.shape) > 1 and self.mark is not None and table.min(axis=None) < self.mark < table.max(axis=None):
            places = (axis.place(values) for axis, values in ((x, table.columns), (y, table.index)))
            z = np.ma.masked_invalid(table.to_numpy(float))
            ax.contour(*places, z, levels=[self.mark], colors="black", linewidths=1.2, zorder=3).set_path_effects(outline())

    def _ends(self) -> tuple[float, float]:
        return self.ends or (float(np.nanmin(self.heights())), float(np.nanmax(self.heights())))

    def finish(self, figure: Any, axes: Any) -> None:
        """The scale of the colours."""
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        if not self.colours:
            scale = ScalarMappable(Normalize(*self._ends()), "viridis")
            bar = figure.colorbar(scale, ax=axes, label=self.name or self.y, fraction=0.05, pad=0.02)
            if self.mark is not None:
                bar.ax.axhline(self.mark, color="black", linewidth=1.2)

    def heights(self) -> np.ndarray:
        return np.zeros(0) if self.colours else super().heights()

    def entries(self, chart: Chart) -> list[Any]:
        from matplotlib.patches import Patch

        there = set(self.table[self.y]) if self.colours else set()
        found = [Patch(color=colour, label=name) for value, (name, colour) in self.colours.items() if value in there]
        return found + [Patch(label="not tested", **UNTESTED)] * self._has_gaps(chart)

    def _has_gaps(self, chart: Chart) -> bool:
        """Whether the pixels leave some of a panel open."""
        x, y = chart.x, chart.y or chart.x
        whole = np.prod([np.diff(axis.ends()) for axis in (x, y)])
        for values in chart.parts:
            boxes = [box for box, _ in pixels(x, y, where(self.table, values))]
            if sum((b - a) * (d - c) for a, b, c, d in boxes) < 0.999 * whole:
                return True
        return False


def pixels(x: Axis, y: Axis, rows: Table) -> Iterator[tuple[Corners, dict[str, Any]]]:
    """Each row with its pixel; none is wider than the usual
    step, so that gaps stay gaps. A row without a place has none.
    """
    placed = rows.assign(_x=x.spots(column(x.name, rows)), _y=y.spots(column(y.name, rows))).dropna(subset=["_x", "_y"])
    steps: Any = np.diff(np.unique(placed["_x"]))
    across = _sides(x, placed["_x"], float(np.median(steps)) if len(steps) else 1.0)
    largest = [steps.max() for _, mine in placed.groupby("_x") if len(steps := np.diff(np.unique(mine["_y"])))]
    for _, mine in placed.groupby("_x"):
        up = _sides(y, mine["_y"], float(np.median(largest)) if largest else 1.0)
        for row in mine.to_dict("records"):
            yield (*across[row["_x"]], *up[row["_y"]]), row


def _sides(axis: Axis, spots: Table, usual: float) -> dict[float, tuple[float, float]]:
    """Ends of each pixel: half way to its neighbours; half a
    usual step where they are farther than NEAR steps away.
    """
    usual = usual if axis.numeric else 1.0
    at = np.unique(spots)
    edges = borders(at, usual)
    low, high = (np.where(abs(end - at) < NEAR * usual / 2, end, at + np.sign(end - at) * usual / 2) for end in (edges[:-1], edges[1:]))
    return dict(zip(at, zip(np.clip(low, *axis.ends()), np.clip(high, *axis.ends()), strict=True), strict=True))


def over(study: Study, x: str, y: str, layers: Sequence[Layer]) -> Chart:
    """Layers, pixels first, over two axes of the levels, with panels for
    every other that varies, so that a pixel is one cell at one level.

    Where values of an axis made of several columns, such as m * d, stand for more than
    one cell, those columns make panels too.
    """
    across, up = (Axis.make(name, study.levels) for name in (x, y))
    levels = study.levels.assign(_x=column(x, study.levels), _y=column(y, study.levels))
    used = across.used | up.used
    varying = [axis for axis in (study.along, *study.axes) if levels[axis].nunique(dropna=False) > 1]
    panels = [axis for axis in varying if axis not in used]
    for axis in sorted(used, key=lambda axis: (axis == study.along, levels[axis].nunique())):
        if not levels.duplicated(["_x", "_y", *panels]).any():
            break
        panels += [axis] * (axis not in panels and levels[axis].nunique() > 1)
    return Chart(layers, across, y=up, panels=panels)


def pictures(study: Study, roles: Roles, first: str, title: str, sentence: str, chart: Callable[[str, str], Chart]) -> Iterator[Picture]:
    """A map over each pair of axes. Its file has the first word alone
    as its name for the usual two axes; the sentence is said once.
    """
    for x, y in roles.phases:
        spelled = ("".join(c if c.isalnum() else {"*": "x", "/": "-by-"}.get(c, "") for c in axis) for axis in (x, y))
        usual = study.axes and (x, y) == (study.axes[0], study.along)
        yield chart(x, y).picture(first if usual else "-".join([first, *spelled]), f"{title}: {y} against {x}", sentence)
        sentence = ""


def phase(study: Study, roles: Roles) -> Iterator[Picture]:
    """Mean accuracy over each pair of axes, with the fitted contour and theory's."""
    if not roles.phases:
        raise NotDrawn(f"no axis but {study.along} varies")
    sentence = _sentence(study, study.thetas[0])
    yield from pictures(study, roles, "phase", "Phase diagram", sentence, lambda x, y: phase_chart(study, x, y))


def phase_chart(study: Study, x: str, y: str, with_theory: bool = True, of: str | None = None) -> Chart:
    """Mean accuracy and, over the axis of the levels, the fitted and
    theory's crossing of the first theta; else the line of that theta.
    """
    theta = study.thetas[0]
    pixels = Pixels(study.levels, name=f"mean {accuracy_label(of)}", mark=theta)
    chart = over(study, x, y, [pixels])
    if y != study.along or y in chart.x.used:  # where no cell has a place along x for its critical value
        return replace(chart, layers=[replace(pixels, contour=True)])
    stars = study.thresholds(theta)
    layers: list[Layer] = [pixels, Points(stars, "critical", f"{y}* at {theta:g}, fitted", WHITE, joined=True, aside=False)]
    for theory in theory_layers(study.cells, chart.x, theta, chart.panels) if with_theory and y == "N" else ():
        known = theory.table[theory.table["theory"].notna()]
        if not known.duplicated([chart.x.name, *chart.panels]).any():
            layers.append(replace(theory, style={**theory.style, "color": "black"}))
    return replace(chart, layers=layers)


def _sentence(study: Study, theta: float) -> str:
    levels, theory = study.levels, study.predicted_accuracy
    reach = levels["accuracy"] >= theta
    sentence = f"{reach.sum()} of {len(levels)} tested points reach accuracy {theta:g}"
    if theory.isna().all():
        return f"{sentence}{'; theory does not cover them' * (study.along == 'N')}."
    wrong = theory.notna() & ((theory >= theta) != reach)
    sentence += f"; theory puts {wrong.sum()} of {theory.notna().sum()} on the wrong side of it"
    if wrong.any():
        worst = abs(theory - levels["accuracy"]).where(wrong).idxmax()
        sentence += f", the farthest {study.where(worst)}: observed {levels['accuracy'][worst]:.2f}, predicted {theory[worst]:.2f}"
    return f"{sentence}."


FIGURES = {"phase diagram": phase}
