"""Every picture that a table holds, drawn into a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from . import accuracy, agreement, collapse, critical, decoders, noise, phase, trace, trace_critical
from .axes import Roles
from .study import Study
from .style import NotDrawn, Picture, look, save

PICTURES: dict[str, Callable[[Study, Roles], Iterator[Picture]]] = {
    "accuracy against N": accuracy.of_study,
    "critical N": critical.of_study,
    "traces": trace.of_study,
    "critical N against the step": trace_critical.of_study,
    "phase diagram": phase.of_study,
    "data collapse": collapse.of_study,
    "dominating noise": noise.of_study,
    "predicted against observed critical N": agreement.of_study,
    "decoders of the initial gradient": decoders.of_study,
}
OURS = ("accuracy", "critical-n", "phase", "collapse", "noise", "agreement", "decoders", "trace")


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
