"""Maps over any two axes: phase diagrams of mean accuracy with N* and theory, and any other value of the levels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from .axis import Axis, column
from .critical import theory_layer
from .grammar import MAX_PANELS, Chart, Layer, Points, fewer, values_of, where
from .pixels import Pixels, has_gaps
from .study import Layout, Roles, Study
from .style import ACCURACY, NotDrawn, Picture

Table = Any  # pandas.DataFrame, whose own types say less than Any
WHITE = {"color": "black", "markerfacecolor": "white", "markeredgecolor": "black", "marker": "o", "markersize": 4}


@dataclass(frozen=True)
class Map:
    """Two axes over the levels of a study, and panels for every other that varies, so that a pixel is one cell at one N.

    Where values of an axis made of several columns, such as m * d, stand for more than one cell, those columns make panels too.
    """

    study: Layout
    x: str
    y: str

    @cached_property
    def axes(self) -> tuple[Axis, Axis]:
        """The axes on paper."""
        return Axis.make(self.x, self.study.levels), Axis.make(self.y, self.study.levels)

    @cached_property
    def panels(self) -> list[str]:
        """The columns that make panels."""
        x, y = self.axes
        levels = self.study.levels
        levels = levels.assign(_x=column(self.x, levels), _y=column(self.y, levels))
        used = x.used | y.used
        found = [axis for axis in ("N", *self.study.axes) if axis not in used and levels[axis].nunique(dropna=False) > 1]
        for axis in sorted(used, key=lambda axis: (axis == "N", levels[axis].nunique())):
            if not levels.duplicated(["_x", "_y", *found]).any():
                break
            found += [axis] * (axis not in found and levels[axis].nunique() > 1)
        return found

    @cached_property
    def parts(self) -> list[Table]:
        """The levels of each panel that is drawn."""
        return [where(self.study.levels, values) for values in fewer(values_of(self.study.levels, self.panels), MAX_PANELS)]

    @cached_property
    def gaps(self) -> bool:
        """Whether something was not tested."""
        return has_gaps(*self.axes, self.parts)

    @property
    def shows_N_star(self) -> bool:
        """Whether N* of a cell can stand at the cell's place along x."""
        return self.y == "N" and "N" not in self.axes[0].used

    def name(self, first: str) -> str:
        """A file name: the first word alone for the first axis against N."""
        if self.study.axes and (self.x, self.y) == (self.study.axes[0], "N"):
            return first
        spelled = ("".join(c if c.isalnum() else {"*": "x", "/": "-by-"}.get(c, "") for c in axis) for axis in (self.x, self.y))
        return "-".join([first, *spelled])

    def chart(self, layers: Sequence[Layer]) -> Chart:
        """The chart of these layers, pixels first."""
        x, y = self.axes
        return Chart(layers, x, y=y, panels=self.panels)

    def caption(self, sentence: str, chart: Chart) -> str:
        """The sentence, and why an axis has panels of its own."""
        apart = sorted((self.axes[0].used | self.axes[1].used) & {*self.panels})
        why = f" Panels of one {' and '.join(apart)} each: a pixel is one cell." if apart else ""
        return f"{sentence}{why}{chart.remark}{' Hatched: not tested.' * self.gaps}"


def phase(study: Study, roles: Roles) -> Iterator[Picture]:
    """Mean accuracy over each pair of axes, with the fitted contour and theory's."""
    if not roles.phases:
        raise NotDrawn("no axis but N varies")
    for x, y in roles.phases:
        shown, over = phase_chart(study, x, y)
        caption = over.caption(_sentence(study, study.thetas[0]), shown)
        yield Picture(over.name("phase"), f"Phase diagram: {y} against {x}", caption, shown.figure())


def phase_chart(study: Study, x: str, y: str, with_theory: bool = True) -> tuple[Chart, Map]:
    """Mean accuracy and, over N, the fitted N* of the cells and theory's, for the first theta; over other axes the level of theta."""
    theta, over = study.thetas[0], Map(study, x, y)
    layers: list[Layer] = [
        Pixels(study.levels, "accuracy", name=f"mean {ACCURACY}", mark=theta, contour=not over.shows_N_star, gaps=over.gaps)
    ]
    if over.shows_N_star:
        stars, (axis, _) = study.thresholds(theta), over.axes
        layers.append(Points(stars, "N_star", f"N* at {theta:g}, fitted", WHITE, joined=True, aside=False))
        theory = theory_layer(study.cells, axis, theta, over.panels)
        if with_theory and not theory.table.duplicated([axis.name, *over.panels]).where(theory.table["theory"].notna(), False).any():
            layers.append(replace(theory, style={**theory.style, "color": "black"}))
    return over.chart(layers), over


def _sentence(study: Study, theta: float) -> str:
    levels, theory = study.levels, study.predicted_accuracy
    reach = levels["accuracy"] >= theta
    sentence = f"{reach.sum()} of {len(levels)} tested points reach accuracy {theta:g}"
    if theory.isna().all():
        return f"{sentence}; theory does not cover them."
    wrong = theory.notna() & ((theory >= theta) != reach)
    sentence += f"; theory puts {wrong.sum()} of {theory.notna().sum()} on the wrong side of it"
    if wrong.any():
        worst = abs(theory - levels["accuracy"]).where(wrong).idxmax()
        sentence += f", the farthest {study.where(worst)}: observed {levels['accuracy'][worst]:.2f}, predicted {theory[worst]:.2f}"
    return f"{sentence}."


FIGURES = {"phase diagram": phase}
