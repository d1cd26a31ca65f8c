"""From a table of runs to a report: pictures worth a paper, each with a sentence on what it shows, and tables.

`study` is what it is about, `axes` what goes where and `chart` the pixels over two axes. `accuracy`, `critical`, `phase`,
`collapse`, `noise`, `agreement` and `decoders` draw one kind of picture each; `predict` asks theory; `style` has looks and files.
`tables` and `page` make the HTML; `write` writes all of it, and `progress` shows how far it is. `plot` draws single figures for
Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from . import accuracy, agreement, collapse, critical, decoders, noise, phase
from .axes import Roles
from .study import Study
from .style import NotDrawn, Picture, look, save

PICTURES: dict[str, Callable[[Study, Roles], Iterator[Picture]]] = {
    "accuracy against N": accuracy.of_study,
    "critical N": critical.of_study,
    "phase diagram": phase.of_study,
    "data collapse": collapse.of_study,
    "dominating noise": noise.of_study,
    "predicted against observed critical N": agreement.of_study,
    "decoders of the initial gradient": decoders.of_study,
}
OURS = ("accuracy", "critical-n", "phase", "collapse", "noise", "agreement", "decoders")


def draw(
    study: Study, roles: Roles, folder: Path, on_progress: Callable[[str, int, int], None] = lambda what, done, of: None
) -> tuple[list[tuple[Picture, str]], list[tuple[str, str]]]:
    """Draws every picture that the table holds into `folder`, as PDF and PNG; each with its SVG, and what was left out and why.

    Pictures that an earlier call left in the folder are removed. `on_progress(what, done, of)` is called before each kind.
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
