"""A report: one HTML page with figures, tables and provenance, and the figures beside it. `page` makes the HTML."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import FitError, UsageError
from ...sweep.running.status import survey
from ...sweep.store.files import atomic_write, holds_results
from ...sweep.store.store import Store
from ..figures import critical, curves, maps, noise, predict
from ..figures.paper import look
from ..figures.roles import Roles, roles
from ..figures.study import Study, study
from ..figures.style import CONVENTIONS, FORMATS, NotDrawn, Picture, label, save
from ..fit import cells, runs
from ..fit.axes import along_of
from ..fit.fitting import RESAMPLES
from ..fit.runs import ALL, LAST, Steps, at_steps
from ..fit.write import beside, check_folder
from .page import page, sections

SURROGATE_SEEDS = 64
OURS = ("accuracy", "critical-", "phase", "collapse", "noise", "agreement", "decoders", "trace")
"""How the names of figures begin."""

PICTURES: dict[str, Callable[[Study, Roles], Iterator[Picture]]] = curves.FIGURES | critical.FIGURES | maps.FIGURES | noise.FIGURES
"""What a report draws, in its order. Each module lists its own figures, so that one more is written in one file."""

OnProgress = Callable[[str, int, int], None]
"""Is called with the present step, the parts done and all parts."""


@dataclass(frozen=True)
class Report:
    """The page, the folder of its figures, what they are, which were left out and why, remarks on the rows and the fit, and formats."""

    page: Path
    folder: Path
    pictures: list[Picture]
    left_out: list[tuple[str, str]]
    remarks: list[str]
    formats: tuple[str, ...] = FORMATS[:2]


def write(
    table: Path,
    out: Path | None = None,
    thetas: Sequence[float] = (0.5,),
    resamples: int = RESAMPLES,
    surrogate_seeds: int = SURROGATE_SEEDS,
    step: Steps = LAST,
    along: str | None = None,
    command: str = "",
    on_progress: OnProgress = lambda what, done, of: None,
    size: str | None = None,
    formats: Sequence[str] = FORMATS[:2],
    style: str | Path | None = None,
    **places: Any,
) -> Report:
    """Writes the report of a results folder or of a Parquet file.

    Args:
        table: the folder or the file.
        out: the page; DIR/report.html or FILE-report.html if None.
        thetas: accuracies to cross (fractions).
        resamples: bootstrap resamplings of the fit.
        surrogate_seeds: draws of the locked-attention surrogate; 0: none.
        step: the rows of runs that train on, as for a fit.
        along: the axis along which accuracy crosses, as for a fit.
        command: what goes into the page as the command that made it.
        on_progress: is called with the present step, the parts done and all parts.
        size: of each figure: "column", "text", or inches as in "3.4x2.6"; what suits its panels if None.
        formats: of the files: png, pdf, svg.
        style: a style file of matplotlib, or the name of one of its styles.
        places: axes of figures, by `x`, `lines`, `panels` and `phases`.

    Raises UsageError, FitError or StoreError before anything is written.
    """
    is_folder = holds_results(Store(table).folder)
    out = out or (table / "report.html" if is_folder else beside(table, "-report.html"))
    if os.path.isdir(out):
        raise UsageError(f"--out: {out} is a folder; allowed: a file, as in {out / 'report.html'}")
    folder = out.with_name(f"{out.stem}-figures")
    check_folder(folder)
    if surrogate_seeds < 0:
        raise UsageError(f"--surrogate: {surrogate_seeds}; allowed: a number of seeds, or 0 for none")
    if not formats or not {*formats} <= {*FORMATS}:
        raise UsageError(f"formats: got {', '.join(formats) or 'none'}; allowed: {', '.join(FORMATS)}")
    with look(size, style):
        pass  # refused before the fit
    every, remarks = runs.read(table)
    frame = at_steps(every, step)
    families, _ = cells.families(frame, along_of(frame, along))
    chosen = roles(families, **places)
    found = study(frame, families, thetas, resamples, surrogate_seeds, lambda done, of: on_progress("resampling", done, of), every)
    remarks += found.fit.remarks
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with look(size, style):
            drawn, left_out = draw(found, chosen, folder, on_progress, formats)
        facts = survey(table) if is_folder else None
        manifest = Store(table).read_manifest() if is_folder else None
        title = f"{(facts and facts['grid']) or beside(table, '').name}: how critical {found.along} scales"
        html = page(title, _summary(found, step), drawn, left_out, sections(found, remarks, facts, manifest, command), folder.name, formats)
        atomic_write(out, html.encode(errors="backslashreplace"))
    except OSError as error:
        raise FitError(f"{out}: cannot be written ({error.strerror or error}); choose another --out") from error
    return Report(out, folder, [picture for picture, _ in drawn], left_out, remarks, tuple(formats))


def draw(
    study: Study,
    roles: Roles,
    folder: Path,
    on_progress: OnProgress = lambda what, done, of: None,
    formats: Sequence[str] = FORMATS[:2],
) -> tuple[list[tuple[Picture, str]], list[tuple[str, str]]]:
    """Draws every figure that the table holds into `folder`; each with its SVG, and what was left out and why. Within `look`.

    Figures that an earlier call left in the folder are removed. `on_progress(what, done, of)` is called before each kind.
    """
    for old in (path for name in OURS for kind in FORMATS for path in folder.glob(f"{name}*.{kind}")):
        old.unlink()
    drawn, left_out = [], []
    for done, (what, pictures) in enumerate(PICTURES.items()):
        on_progress(f"drawing {what}", done, len(PICTURES))
        try:
            for picture in pictures(study, roles):
                on_progress(f"drawing {picture.name}", done, len(PICTURES))
                drawn.append((picture, save(picture, folder, formats)))
        except NotDrawn as why:
            left_out.append((what, str(why)))
    return drawn, left_out


def _summary(found: Study, step: Steps) -> str:
    """What the table holds, what its symbols mean, where theory applies, and which steps are shown."""
    rows = found.rows
    legend = "; ".join(label(name) for name in ("N", "d", "L", "V", "m") if name in rows)
    theory = f"Theory: ours. {predict.reason(found.cells.to_dict('records'))}" if found.along == "N" else ""
    summary = (
        f"{len(found.cells)} cells ({', '.join(found.axes) or 'nothing'} vary), {len(rows)} rows, {rows['seed'].nunique()} seeds. "
        f"{legend}. m = 0: attention only. {theory}"
    )
    summary = f"{summary.strip()} {CONVENTIONS}"
    if not found.traces:
        return summary
    named = {LAST: "their last step", ALL: "all recorded steps"}
    steps = named.get(step) if isinstance(step, str) else f"step {', '.join(map(str, [step] if isinstance(step, int) else step))}"
    gone = f" {found.traces.n_left_out} rows without a number are left out." * bool(found.traces.n_left_out)
    return f"{summary} Of runs that train on, the figures and tables take {steps}; those against the step show every one.{gone}"
