"""The paper that a figure is for: its size, the style of its text, and how wide a text is there.

matplotlib is imported when something is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ..numbers import THIN

COLUMN, PAGE = 3.4, 5.5
"""Widths of a figure, inches. On a screen that is 400 px wide a letter of a page-wide figure has 8 px."""

HIGHEST = 9.0
"""Of a figure whose height was not asked for."""

LEAST, MOST = 1.5, 20.0
"""Sides of a figure, inches."""

_LOOK: Any = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.title_fontsize": 7.5,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "grid.linewidth": 0.4,
    "grid.alpha": 0.5,
    "hatch.linewidth": 0.5,
    "hatch.color": "0.8",
}
_FIXED: Any = {
    "text.parse_math": False,  # a column or a value may hold a $
    "text.usetex": False,
    "savefig.bbox": None,  # the size that was asked for
    "svg.hashsalt": "jaxrecall",
    "svg.fonttype": "path",  # the same everywhere, whatever fonts there are
    "pdf.fonttype": 42,
}
"""What no style changes."""


@dataclass(frozen=True)
class Size:
    """Inches of a figure; of its height None leaves it to the panels."""

    width: float
    height: float | None = None


SIZES = {"column": Size(COLUMN), "text": Size(PAGE)}
_size: ContextVar[Size | None] = ContextVar("size", default=None)


def sized(asked: str | None) -> Size | None:
    """The size that a text stands for: column, text, or inches as in 3.4x2.6; raises UsageError."""
    if asked is None or asked in SIZES:
        return SIZES[asked] if asked else None
    found = re.fullmatch(r"([0-9]*\.?[0-9]+) *x *([0-9]*\.?[0-9]+)", str(asked))
    sides = [float(side) for side in found.groups()] if found else []
    if not sides or not all(LEAST <= side <= MOST for side in sides):
        allowed = f"{', '.join(SIZES)}, or inches as in 3.4x2.6, each {LEAST:g} to {MOST:g}"
        raise UsageError(f"size: got {asked!r}; allowed: {allowed}")
    return Size(*sides)


def paper() -> Size | None:
    """The size that was asked for."""
    return _size.get()


@contextmanager
def styled(size: str | None = None, style: str | Path | None = None, ours: bool = False) -> Iterator[None]:
    """The settings of matplotlib with those of a style file over them, and a size; raises UsageError for what is neither.

    Args:
        size: as for `sized`.
        style: a file, or the name of a style of matplotlib.
        ours: whether the look of a report stands beneath.
    """
    import matplotlib
    from matplotlib import style as styles

    found = sized(size)
    with ExitStack() as stack:
        stack.enter_context(matplotlib.rc_context(_LOOK if ours else {}))
        try:
            stack.enter_context(styles.context([style] if style else []))
        except (OSError, ValueError, TypeError) as error:
            why = str(error).partition("\n")[0] if isinstance(error, ValueError) else "no such file, nor a style of matplotlib"
            raise UsageError(f"style: got {str(style)!r}; {why}; allowed: a .mplstyle file, or a name such as ggplot") from error
        matplotlib.rcParams.update(_FIXED if ours else {})
        token = _size.set(found)
        try:
            yield
        finally:
            _size.reset(token)


def look(size: str | None = None, style: str | Path | None = None) -> Any:
    """The settings of a report for drawing and for saving, as `styled`."""
    return styled(size, style, ours=True)


def points(name: str) -> float:
    """The size of letters that a setting of matplotlib means, such as "legend.fontsize"."""
    import matplotlib
    from matplotlib.font_manager import FontProperties

    settings: Any = matplotlib.rcParams
    return FontProperties(size=settings[name]).get_size_in_points()


def inches(shown: str, name: str = "font.size") -> float:
    """How wide a text is at such a size."""
    import matplotlib

    return _inches(shown, round(points(name), 2), tuple(matplotlib.rcParams["font.family"]))


@lru_cache(maxsize=20_000)
def _inches(shown: str, size: float, family: tuple[str, ...]) -> float:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    font = get_font(findfont(FontProperties(family=list(family))))
    font.set_size(size, 72)
    font.set_text(shown)
    return font.get_width_height()[0] / 64 / 72


def has_letters(letters: Iterable[int]) -> bool:
    """Whether the font in use has these letters; of another they would look foreign."""
    import matplotlib
    from matplotlib.font_manager import FontProperties, findfont, get_font

    font = get_font(findfont(FontProperties(family=matplotlib.rcParams["font.family"])))
    return {*letters} <= {*font.get_charmap()}


def drawable(shown: str) -> str:
    """A text with plain spaces in its numbers where the font in use has no thin ones."""
    return shown if THIN not in shown or has_letters([ord(THIN)]) else shown.replace(THIN, " ")
