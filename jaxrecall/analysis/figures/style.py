"""How every figure looks: colours that read in grey and to
colour-blind eyes, labels, numbers as a paper prints them, and files.

Brightness, marker and dash carry what colour carries. matplotlib is imported when
something is drawn. The same figure gives the same bytes: no dates, no random ids.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...model.columns import is_parameter
from ...model.point import FIELDS, SAME_AS
from ..fit.latex import LETTERS

THIN = "\u202f"
"""A thin space, at which no line breaks."""

SPELLED = 1e9
"""Numbers from here on have a power of ten."""

FORMATS = ("png", "pdf", "svg")
MARKERS = "osD^vP*Xd<>"
MAX_TEXT = 60
"""Characters of a value in a figure, at most."""

MAX_NAMED = 3
"""A heading names more axes than this only where fewer do not distinguish the panels."""

GREY = "0.35"
DASH = (0, (3, 1.5))
"""Linestyle of theory."""

ACCURACY = "test accuracy (fraction)"
"""Label of an axis."""

CONVENTIONS = (
    "Lines are means over seeds, bands one standard deviation, and bars 95 % intervals over seeds, unless a caption says otherwise. "
    "In a map a pixel is one cell at one level, and what is hatched was not tested."
)
"""What most figures show; said once."""

UNTESTED: dict[str, Any] = {"facecolor": "white", "edgecolor": "0.8", "hatch": "////", "linewidth": 0.0}


class NotDrawn(Exception):
    """The reason why a figure cannot be drawn of this table."""


@dataclass(frozen=True)
class Picture:
    """A drawn figure, its file name, its heading, and a
    caption, made from the data, that says what to see in it.
    """

    name: str
    title: str
    caption: str
    figure: Any


def shades(n: int) -> list[Any]:
    """`n` colours in even steps of lightness, dark to light: they read in grey and colour-blind."""
    import matplotlib

    return [matplotlib.colormaps["viridis"](0.85 * i / max(1, n - 1)) for i in range(n)]


def spread(items: list[Any], most: int) -> list[Any]:
    """At most `most` of the items, evenly from the first to the last; the middle one of them if only one."""
    if most == 1:
        return items[len(items) // 2 :][:1]
    return items if len(items) <= most else [items[i] for i in np.linspace(0, len(items) - 1, most).round().astype(int)]


def distinguishing(groups: Sequence[Mapping[str, Any]], by: Sequence[str]) -> list[str]:
    """The columns that name the groups: those that vary, and
    no more than needed where they are more than MAX_NAMED.
    """
    names = [name for name in by if len({str(values[name]) for values in groups}) > 1] or list(by)
    for name in reversed(names):
        fewer = [other for other in names if other != name]
        if len(names) > MAX_NAMED and len({settings(values, fewer) for values in groups}) == len(groups):
            names = fewer
    return names


GREEK: dict[str, str] = dict(zip(LETTERS.split(), "αβγδεζηθικλμνξπρστφχψω", strict=True))

MAX_LEGEND = 40
"""Characters of a label under a panel."""


def font_of(family: Sequence[str]) -> Any:
    """The font that matplotlib takes of a family."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return get_font(findfont(FontProperties(family=list(family))))


def has_letters(letters: Iterable[int]) -> bool:
    """Whether the font in use has these letters; of another they would look foreign."""
    import matplotlib

    font = font_of(matplotlib.rcParams["font.family"])
    return all(map(font.get_char_index, letters))


def symbol(name: str) -> str:
    """The Greek letter of a parameter of a law, where it has one and the font in use has that; else the name."""
    letter = GREEK.get(name.partition(".")[2]) if is_parameter(name) and name.partition(".")[0] not in SAME_AS else None
    return letter if letter and has_letters([ord(letter)]) else name


def accuracy_label(of: str | None) -> str:
    """The label of what crosses theta: the accuracy, or another column of fractions."""
    return ACCURACY if of in (None, "accuracy") else f"{of} (fraction)"


def label(name: str) -> str:
    """An axis's symbol and what it counts, in few words; the
    symbol alone where these would not fit under a panel.
    """
    meaning = "gradient steps made" if name == "step" else FIELDS[name].metadata["legend"] if name in FIELDS else ""
    legend = re.split(r";| that | \(|: ", meaning)[0]
    return f"{name}: {legend}" if legend and len(legend) < MAX_LEGEND else symbol(name)


def settings(values: Mapping[str, Any], names: Iterable[str] | None = None) -> str:
    """d = 64, L = 8; of a column whose name begins with _ the value alone."""
    names = values if names is None else names
    return ", ".join(text(values[name]) if name[:1] == "_" else f"{symbol(name)} = {text(values[name])}" for name in names)


def text(value: Any) -> str:
    """A value as a reader expects it: four digits of a number, and no more of a text than fits."""
    if isinstance(value, (float, np.floating)) and np.isfinite(value):
        return f"{value:.4g}" if abs(value) < 1e4 or abs(value) > 1e15 else grouped(round(value))
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        value = grouped(value)
    shown = str(value).lower() if str(value) in ("True", "False") else str(value)
    return shown if len(shown) <= MAX_TEXT else f"{shown[: MAX_TEXT - 3]}..."


def grouped(value: Any) -> str:
    """A whole number with thin spaces between thousands, from five digits on.

    >>> grouped(8500), grouped(17400)  # ('8500', '17 400')
    """
    return f"{int(value):,}".replace(",", THIN) if abs(value) >= 10_000 else str(int(value))


def rounded(value: float, digits: int = 3) -> str:
    """A number with so many digits that count.

    >>> rounded(17432.1), rounded(0.01234)  # ('17 400', '0.0123')
    """
    if not np.isfinite(value) or abs(value) >= SPELLED:
        return f"{value:.{digits}g}"
    near = float(f"{value:.{digits}g}")
    return grouped(near) if abs(near) >= 10 ** (digits - 1) else f"{near:.{digits}g}"


def interval(value: float, low: float = float("nan"), high: float = float("nan"), form: str = "") -> str:
    """A number with its interval, as far as they are known, by `form` or with three digits that count.

    >>> interval(17432.1, 8495.2, 35600.0)  # '17 400 [8500, 35 600]'
    """
    if value != value:
        return ""
    shown, *ends = (f"{v:{form}}" if form else rounded(v) for v in (value, low, high))
    return f"{shown} [{', '.join(ends)}]" if low == low else shown


def told(values: Any, named: Callable[[Any], str], middle: str = "median", form: str = ".2f", most: str = "at the farthest") -> str:
    """The middle of a column and the value farthest from 0, or the
    "least" if `most` says so: 0.98 in the median of 36, at ... (d = 64).
    """
    values = values.astype(float).dropna()
    worst = values.idxmin() if "least" in most else values.abs().idxmax()
    return f"{values.agg(middle):{form}} in the {middle} of {len(values)}, {most} {values[worst]:{form}} ({named(worst)})"


def outline() -> list[Any]:
    """Path effects of a black line over a map."""
    from matplotlib.patheffects import Normal, Stroke

    return [Stroke(linewidth=2.6, foreground="white"), Normal()]


def save(picture: Picture, folder: Path, formats: Sequence[str] = FORMATS[:2]) -> str:
    """Writes `<name>.<format>` for each format; returns
    the figure as SVG to stand in a page, its ids its own.
    """
    figure, undated = picture.figure, {"pdf": {"CreationDate": None}}
    figure.get_layout_engine().execute(figure)
    figure.set_layout_engine("none")  # laid out once, for all
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None})
    svg = file.getvalue()
    for kind in formats:
        path = folder / f"{picture.name}.{kind}"
        if kind == "svg":
            path.write_text(svg, "utf-8")
        else:
            figure.savefig(path, metadata=undated.get(kind))
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{picture.name}-", svg)
    return re.sub(r' width="[^"]*" height="[^"]*"| height="[^"]*" width="[^"]*"', "", svg, count=1)
