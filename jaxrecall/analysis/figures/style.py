"""How every figure looks: its size, colours that read in grey and to colour-blind eyes,
labels, and files.

Brightness and marker carry what colour carries. matplotlib is imported when something
is drawn. The same figure gives the same bytes: no dates, no random ids.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...errors import UsageError, in_one_line
from ...model.columns import is_parameter
from ...model.point import FIELDS, SAME_AS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")
FORMATS = ("png", "pdf", "svg")
MARKERS = "osD^vP*Xd<>"
GREY = "0.35"
DASH = (0, (3, 1.5))
"""Linestyle of theory."""

LETTER = 0.06
"""Width of a letter, inches, of the size that figures use."""

COLUMN, PAGE, HIGHEST = 3.4, 5.5, 9.0
"""Widths of a figure, and its largest height, inches."""

LEAST, MOST = 1.5, 20.0
"""Sides of a figure that may be asked for, inches."""

OURS, FIXED = (
    Path(__file__).with_name(f"{name}.mplstyle") for name in ("report", "fixed")
)
"""The look of a report, and what no style changes."""

Size = tuple[float, float | None]
"""Width and height, inches; a height of None leaves it to the panels."""

SIZES: dict[str, Size] = {"column": (COLUMN, None), "text": (PAGE, None)}

GREEK = {"alpha": "α", "rho": "ρ"}
"""Parameters of laws that go by their letters."""

MAX_TEXT = 60
"""Characters of a value in a figure, at most."""


def sized(asked: str | None) -> Size | None:
    """The size that a text stands for: column, text, or inches as in 3.4x2.6; raises
    UsageError.
    """
    if asked is None or asked in SIZES:
        return SIZES[asked] if asked else None
    found = re.fullmatch(r"([0-9]*\.?[0-9]+) *x *([0-9]*\.?[0-9]+)", str(asked))
    sides = [float(side) for side in found.groups()] if found else []
    if not sides or not all(LEAST <= side <= MOST for side in sides):
        allowed = (
            f"{', '.join(SIZES)}, or inches as in 3.4x2.6, each {LEAST:g} to {MOST:g}"
        )
        raise UsageError(f"size: got {asked!r}; allowed: {allowed}")
    return sides[0], sides[1]


@contextmanager
def look(style: str | Path | None = None, ours: bool = True) -> Iterator[None]:
    """The settings of a report for drawing and saving, with those of a style over them.

    Letters that the font in use lacks are taken from that of matplotlib.

    Args:
        style: a style file of matplotlib, or the name of one of its styles.
        ours: whether the look of a report stands beneath, instead of the user's
            settings.

    Raises UsageError for a style that there is not, and for settings that matplotlib
    cannot use.
    """
    try:
        from matplotlib import rcParams
        from matplotlib import style as styles
    except Exception as error:  # it reads its settings as it is imported
        allowed = "an MPLBACKEND and a matplotlibrc that it can use"
        raise UsageError(
            f"matplotlib: cannot be imported ({in_one_line(error)}); allowed: {allowed}"
        ) from error
    given = [style] if style else []
    with ExitStack() as stack:
        try:
            stack.enter_context(
                styles.context([OURS, *given, FIXED] if ours else given)
            )
        except (OSError, ValueError, TypeError) as error:
            why = (
                str(error).partition("\n")[0]
                if isinstance(error, ValueError)
                else "no such file, nor a style of matplotlib"
            )
            allowed = "a .mplstyle file, or a name such as ggplot"
            raise UsageError(
                f"style: got {str(style)!r}; {why}; allowed: {allowed}"
            ) from error
        rcParams["font.family"] = [*rcParams["font.family"], "DejaVu Sans"]
        yield


def shades(n: int) -> list[tuple[float, ...]]:
    """`n` colours in even steps of lightness, dark to light: they read in grey and
    colour-blind.
    """
    import matplotlib

    return [matplotlib.colormaps["viridis"](0.85 * i / max(1, n - 1)) for i in range(n)]


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most `most` of the items, evenly from the first to the last."""
    return (
        [*items]
        if len(items) <= most
        else [
            items[i] for i in np.linspace(0, len(items) - 1, most).round().astype(int)
        ]
    )


def symbol(name: str) -> str:
    """The letter of a parameter of a law, as that of embedding.rho, where it has one;
    else the name.
    """
    law, _, parameter = name.partition(".")
    return (
        GREEK.get(parameter, name)
        if is_parameter(name) and law not in SAME_AS
        else name
    )


def label(name: str) -> str:
    """An axis's symbol and what it counts, where these fit under a panel."""
    meaning = (
        "gradient steps made"
        if name == "step"
        else FIELDS[name].metadata["legend"]
        if name in FIELDS
        else ""
    )
    legend = re.split(r";| that | \(|: ", meaning)[0]
    return f"{name}: {legend}" if legend and len(legend) < 40 else symbol(name)


def accuracy_label(of: str | None) -> str:
    """The label of what crosses theta: the accuracy, or another column of fractions."""
    return (
        "test accuracy (fraction)" if of in (None, "accuracy") else f"{of} (fraction)"
    )


def settings(values: Mapping[str, Any], names: Iterable[str] | None = None) -> str:
    """d = 64, L = 8; of a column whose name begins with _ the value alone."""
    names = values if names is None else names
    return ", ".join(
        (
            text(values[name])
            if name[:1] == "_"
            else f"{symbol(name)} = {text(values[name])}"
        )
        for name in names
    )


def text(value: object) -> str:
    """A value as a reader expects it: four digits of a number, and no more of a text
    than fits.
    """
    if isinstance(value, (float, np.floating)) and np.isfinite(value):
        return (
            f"{value:.4g}"
            if abs(value) < 1e4 or abs(value) > 1e15
            else grouped(round(value))
        )
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        value = grouped(value)
    shown = str(value).lower() if str(value) in ("True", "False") else str(value)
    return shown if len(shown) <= MAX_TEXT else f"{shown[: MAX_TEXT - 3]}..."


def grouped(value: float | np.integer) -> str:
    """A whole number with thin spaces between thousands, from five digits on.

    >>> grouped(8500), grouped(17400)  # ('8500', '17 400')
    """
    return (
        f"{int(value):,}".replace(",", "\u202f")
        if abs(value) >= 10_000
        else str(int(value))
    )


def rounded(value: float) -> str:
    """A number with three digits that count.

    >>> rounded(17432.1), rounded(0.01234)  # ('17 400', '0.0123')
    """
    if not np.isfinite(value) or abs(value) >= 1e9:
        return f"{value:.3g}"
    near = float(f"{value:.3g}")
    return grouped(near) if abs(near) >= 100 else f"{near:.3g}"


def interval(value: float, low: float, high: float) -> str:
    """A number with its interval, as far as they are known, with three digits that
    count.

    >>> interval(17432.1, 8495.2, 35600.0)  # '17 400 [8500, 35 600]'
    """
    if value != value:
        return ""
    shown, *ends = map(rounded, (value, low, high))
    return f"{shown} [{', '.join(ends)}]" if low == low else shown


def save(
    figure: Figure, name: str, folder: Path, formats: Sequence[str] = FORMATS[:2]
) -> str:
    """Writes `<name>.<format>` for each format; returns the figure as SVG to stand in a
    page, its ids its own.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine(
        None
    )  # it is laid out; with "none" each format would be drawn twice
    file = io.StringIO()
    figure.savefig(
        file,
        format="svg",
        metadata={"Date": None, "Creator": None, "Type": None, "Format": None},
    )
    svg = file.getvalue()
    for kind in formats:
        path = folder / f"{name}.{kind}"
        if kind == "svg":
            path.write_text(svg, "utf-8")
        else:
            figure.savefig(
                path, metadata={"CreationDate": None} if kind == "pdf" else None
            )
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg[svg.index("<svg") :])
    return re.sub(
        r' width="[^"]*" height="[^"]*"| height="[^"]*" width="[^"]*"', "", svg, count=1
    )
