"""The look of every figure: its settings, colours, labels and files.

The settings of matplotlib that a user has changed are obeyed, and so is a style file.
The other settings are those of a report. Colours also differ in brightness, and lines
also differ in their markers, unless the user has chosen other colours. Figures are
therefore readable in grey and for colour-blind readers. matplotlib is imported only
when something is drawn. The files of a report contain no dates or random ids, so that
equal figures give equal bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...errors import UsageError, in_one_line, printable
from ...model.columns import is_parameter
from ...model.point import SAME_AS
from ...model.values import is_missing
from ..fit.roles import Roles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")
MARKERS = "osD^vP*Xd<>"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "0.45")
"""The colours of lines that differ in names. Numbers have shades instead."""

DASH = (0, (3, 1.5))
"""The linestyle of theory."""

LETTER, LINE = 0.0075, 0.02
"""The width of a letter and the height of a line of text, in inches for each point of
the size of the text.
"""

COLUMN, PAGE = 3.4, 5.5
"""The two usual widths of a figure, in inches."""

LEAST, MOST = 1.5, 20.0
"""The shortest and the longest side that a figure may have, in inches."""

OURS = Path(__file__).with_name("report.mplstyle")
"""The style file of a report."""

FIXED = Path(__file__).with_name("fixed.mplstyle")
"""The style file whose settings override every other style in a report."""

PLAIN = {"text.parse_math": False, "text.usetex": False}
"""The settings that override every other style, because names may contain a $."""

SVG_METADATA = ("Date", "Creator", "Type", "Format")
"""The metadata of an SVG file that are left out."""

Style = dict[str, Any]
"""Keyword arguments of matplotlib, and three of ours.

`width` and `size` are the width of a line and the size of a marker relative to those of
the user's settings. `open` marks have the colour of the paper inside.
"""

Size = tuple[float, float | None]
"""The width and height in inches. If the height is None, the panels determine it."""

SIZES: dict[str, Size] = {"column": (COLUMN, None), "text": (PAGE, None)}

GREEK = {"alpha": "α", "rho": "ρ"}
"""A dict from the parameter of a law to its Greek letter."""

LONGEST_LEGEND = 40
"""The number of characters from which a meaning is cut after its first clause."""

MAX_TEXT = 60
"""The largest number of characters that a figure shows of a value."""


def sized(size: str | None) -> Size | None:
    """Returns the size that a text describes: column, text, or inches as in 3.4x2.6.

    Raises UsageError for any other text.
    """
    if size is None:
        return None
    if size in SIZES:
        return SIZES[size]
    match = re.fullmatch(r"([0-9]*\.?[0-9]+) *x *([0-9]*\.?[0-9]+)", str(size))
    if match:
        width, height = map(float, match.groups())
        if LEAST <= min(width, height) and max(width, height) <= MOST:
            return width, height
    allowed = f"{', '.join(SIZES)}, or inches as in 3.4x2.6, each {LEAST:g} to {MOST:g}"
    raise UsageError(f"size: got {size!r}; allowed: {allowed}")


def usual_size(n_columns: int) -> Size:
    """Returns the user's `figure.figsize`, or else the width of a column, or of a page
    for several columns of panels.
    """
    if is_own("figure.figsize"):
        return tuple(_rc("figure.figsize"))
    return (COLUMN if n_columns == 1 else PAGE), None


@contextmanager
def look(
    style: str | Path | Mapping[str, Any] | None = None,
    place: Literal["report", "figure", "axes"] = "figure",
) -> Iterator[None]:
    """Returns a context in which figures have the user's settings, or else ours.

    matplotlib's default font supplies letters that the user's font lacks.

    Args:
        style: a style file of matplotlib, the name of one of its styles, or a dict of
            settings.
        place: what is drawn. A report has our settings and the style, so that it looks
            the same everywhere. On Axes of the user, only the user's settings apply.

    Raises UsageError for a style that does not exist, and for settings that matplotlib
    cannot use.
    """
    try:
        from matplotlib import rcParams
        from matplotlib import style as styles
    except Exception as error:  # matplotlib reads its settings on import
        raise UsageError(
            f"matplotlib: cannot be imported ({in_one_line(error)}); set MPLBACKEND and"
            " matplotlibrc to what it can use"
        ) from error
    base: dict[str, list[Any]] = {"report": [OURS], "figure": [_ours()], "axes": []}
    used = base[place] + ([style] if style else [])
    used.append(FIXED if place == "report" else PLAIN)
    with ExitStack() as stack:
        try:
            stack.enter_context(styles.context(used))
        except (OSError, ValueError, TypeError) as error:
            why = "no such file, nor a style of matplotlib"
            if isinstance(error, ValueError):
                why, _, _ = str(error).partition("\n")
            raise UsageError(
                f"style: got {str(style)!r}; {why}; allowed: a .mplstyle file, or a"
                " name such as ggplot"
            ) from error
        rcParams["font.family"] = [*rcParams["font.family"], "DejaVu Sans"]
        yield


def _ours() -> dict[str, Any]:
    """Returns our settings, except those that the user has changed."""
    from matplotlib import rc_params_from_file

    ours = rc_params_from_file(OURS, use_default_template=False)
    return {name: value for name, value in ours.items() if not is_own(name)}


def _rc(name: str) -> Any:
    import matplotlib

    settings: Any = matplotlib.rcParams  # pyright knows each name
    return settings[name]


def is_own(name: str) -> bool:
    """Whether the user or a style has changed a setting of matplotlib."""
    import matplotlib

    usual: Any = matplotlib.rcParamsDefault
    return _rc(name) != usual[name]


def points(name: str) -> float:
    """Returns the size in points of the text that a setting is for."""
    from matplotlib.font_manager import FontProperties

    return FontProperties(size=_rc(name)).get_size_in_points()


def ink() -> Any:
    """Returns the colour of what belongs to no line, such as text and axes."""
    return _rc("text.color")


def paper() -> Any:
    """Returns the colour inside open marks, which is that of the background."""
    return _rc("axes.facecolor")


def keywords(style: Style) -> Style:
    """Returns a style as keyword arguments of matplotlib alone."""
    shown = dict(style)
    if "width" in shown:
        shown["linewidth"] = shown.pop("width") * _rc("lines.linewidth")
    if "size" in shown:
        shown["markersize"] = shown.pop("size") * _rc("lines.markersize")
    if shown.pop("open", False):
        shown["markerfacecolor"] = paper()
    return shown


def line_styles(values: Sequence[Mapping[str, Any]]) -> list[Style]:
    """Returns a style for each line: those of the user's `axes.prop_cycle`, or ours.

    Lines that differ in one number have shades from dark to light. Other lines have
    distinct colours, if there are enough.
    """
    n = len(values)
    cycle = list(_rc("axes.prop_cycle"))
    if not (is_own("axes.prop_cycle") and n <= len(cycle)):
        are_shades = n > len(COLOURS) or all(map(_is_number, values))
        colours = shades(n) if are_shades else COLOURS
        cycle = [{"color": colour} for colour in colours]
    styles = []
    for i, style in enumerate(cycle[:n]):
        styles.append({"marker": MARKERS[i % len(MARKERS)]} | style)
    return styles


def _is_number(values: Mapping[str, Any]) -> bool:
    (*several, value) = values.values() or [""]
    return not several and not isinstance(value, (str, bool, np.bool_))


def shades(n: int) -> list[tuple[float, ...]]:
    """Returns `n` colours of the user's `image.cmap`, from its dark end on.

    The lightest colours are left out on light paper, and the darkest on dark paper.
    """
    import matplotlib
    from matplotlib.colors import to_rgb

    colours = matplotlib.colormaps[_rc("image.cmap")]
    ends = (0.3, 1) if sum(to_rgb(paper())) < 1.5 else (0, 0.85)
    return list(map(colours, np.linspace(*ends, n)))


def symbol(name: str) -> str:
    """Returns the name of an axis, or a Greek letter for a parameter of a law."""
    law, _, parameter = name.partition(".")
    if is_parameter(name) and law not in SAME_AS:
        return GREEK.get(parameter, name)
    return printable(name)


def label(name: str, roles: Roles) -> str:
    """Returns the label of an axis: its title, or else its symbol, with its meaning if
    there is room.
    """
    if name in roles.titles:
        return roles.titles[name]
    legend = roles.labels.get(name, "")
    if legend == name:
        return symbol(name)
    if len(legend) >= LONGEST_LEGEND:
        legend = re.split(r";| that | \(|: ", legend)[0]
    if legend and len(legend) < LONGEST_LEGEND:
        return printable(f"{name}: {legend}")
    return symbol(name)


def settings(values: Mapping[str, Any], titles: Mapping[str, str] = {}) -> str:
    """Formats settings as in d = 64, L = 8.

    `titles` are shown in place of the names of columns. If a title is empty, only the
    value is shown. Missing values are left out, unless all are missing: a law lacks the
    parameters of other laws.
    """
    known = {name: value for name, value in values.items() if not is_missing(value)}
    shown = []
    for name, value in (known or values).items():
        title = titles.get(name, symbol(name))
        shown.append(f"{title} = {text(value)}" if title else text(value))
    return ", ".join(shown)


def text(value: object, most: int = MAX_TEXT) -> str:
    """Formats a value for a figure.

    Numbers have four digits, and text is cut after `most` characters.
    """
    if isinstance(value, (float, np.floating)) and np.isfinite(value):
        if 1e4 <= abs(value) <= 1e15:
            return grouped(round(value))
        return f"{value:.4g}"
    # matplotlib's warning about a control character would print it
    shown = printable(str(value))
    if shown in ("True", "False"):
        shown = shown.lower()
    elif isinstance(value, (int, np.integer)):
        shown = grouped(value)
    if len(shown) > most:
        return f"{shown[: most - 3]}..."
    return shown


def grouped(value: float | np.integer) -> str:
    """Formats a whole number; from five digits on, thin spaces separate thousands.

    >>> grouped(8500), grouped(17400)  # ('8500', '17 400')
    """
    if abs(value) < 10_000:
        return str(int(value))
    return f"{int(value):,}".replace(",", "\u202f")


def rounded(value: float) -> str:
    """Formats a number with three significant digits.

    >>> rounded(17432.1), rounded(0.01234)  # ('17 400', '0.0123')
    """
    short = f"{value:.3g}"
    if abs(value) < 1e9 and abs(float(short)) >= 100:
        return grouped(float(short))
    return short


def lay_out(figure: Figure) -> None:
    """Lays out a figure once. Otherwise it is laid out again for each file."""
    engine: Any = figure.get_layout_engine()
    engine.execute(figure)
    figure.set_layout_engine(None)


def rendered(
    figure: Figure, name: str, formats: Sequence[str]
) -> tuple[str, dict[str, bytes]]:
    """Returns the SVG of a figure for a page, and its files as a dict from name to
    bytes. The names are `<name>.<format>`.

    The ids in the SVG for a page begin with `svg-` and the name, so that they are
    unique in the page. No SVG contains text of the figure. Letters are outlines, and
    the comments in which matplotlib repeats the text are left out.
    """
    lay_out(figure)
    drawing = io.StringIO()
    figure.savefig(drawing, format="svg", metadata=dict.fromkeys(SVG_METADATA))
    svg = re.sub("<!--.*?-->\n?", "", drawing.getvalue(), flags=re.DOTALL)
    files = {}
    for kind in formats:
        file = io.BytesIO()
        if kind == "svg":
            file.write(svg.encode())
        else:
            metadata = {"CreationDate": None} if kind == "pdf" else None
            figure.savefig(file, format=kind, metadata=metadata)
        files[f"{name}.{kind}"] = file.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>svg-{name}-", svg)
    size = r' width="[^"]*" height="[^"]*"| height="[^"]*" width="[^"]*"'
    return re.sub(size, "", svg, count=1), files
