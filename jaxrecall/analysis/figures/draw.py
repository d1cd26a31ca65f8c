"""Every figure that a table holds, drawn into a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from . import critical, curves, diagnosis, maps, ratios, traces
from .study import Roles, Study
from .style import NotDrawn, Picture, look, save

Figures = Callable[[Study, Roles], Iterator[Picture]]
PICTURES: dict[str, Figures] = curves.FIGURES | critical.FIGURES | traces.FIGURES | maps.FIGURES | ratios.FIGURES | diagnosis.FIGURES
"""What a report draws, in its order. Each module lists its own figures, so that one more is written in one file."""

OURS = ("accuracy", "critical-n", "phase", "collapse", "noise", "agreement", "decoders", "trace")


def draw(
    study: Study, roles: Roles, folder: Path, on_progress: Callable[[str, int, int], None] = lambda what, done, of: None
) -> tuple[list[tuple[Picture, str]], list[tuple[str, str]]]:
    """Draws every figure that the table holds into `folder`, as PDF and PNG; each with its SVG, and what was left out and why.

    Figures that an earlier call left in the folder are removed. `on_progress(what, done, of)` is called before each kind.
    """
    for old in (path for name in OURS for kind in ("pdf", "png") for path in folder.glob(f"{name}*.{kind}")):
        old.unlink()
    drawn, left_out = [], []
    for done, (what, pictures) in enumerate(PICTURES.items()):
        on_progress(f"drawing {what}", done, len(PICTURES))
        try:
            with look():
                for picture in pictures(study, roles):
                    on_progress(f"drawing {picture.name}", done, len(PICTURES))
                    drawn.append((picture, save(picture, folder)))
        except NotDrawn as why:
            left_out.append((what, str(why)))
    return drawn, left_out
