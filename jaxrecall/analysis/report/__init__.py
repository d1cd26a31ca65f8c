"""A report: one HTML page with figures, tables and
provenance, and the figures beside it. `page` makes the HTML.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import FitError, UsageError
from ...sweep.files import atomic_write, holds_results, local_path
from ...sweep.running.status import survey
from ...sweep.simulators.custom import trusted
from ...sweep.store import Store
from ...sweep.store.age import comment, older, seen
from ..figures import critical, curves, maps, noise, predict
from ..figures.paper import look
from ..figures.study import Roles, Study, roles, study
from ..figures.style import CONVENTIONS, FORMATS, NotDrawn, Picture, label, save
from ..fit import cells, runs
from ..fit.axes import along_of
from ..fit.write import beside, check_folder
from .page import page, sections

OURS = ("accuracy", "critical-", "phase", "collapse", "noise", "agreement", "decoders", "trace")
"""How the names of figures begin."""

PICTURES: dict[str, Callable[[Study, Roles], Iterator[Picture]]] = curves.FIGURES | critical.FIGURES | maps.FIGURES | noise.FIGURES
"""What a report draws, in its order. Each module lists
its own figures, so that one more is written in one file.
"""

OnProgress = Callable[[str, int, int], None]
"""Is called with the present step, the parts done and all parts."""


@dataclass(frozen=True)
class Report:
    """The page, the folder of its figures, what they are, which
    were left out and why, and remarks on the rows and the fit.
    """

    page: Path
    folder: Path
    pictures: list[Picture]
    left_out: list[tuple[str, str]]
    remarks: list[str]


def write(asked: Namespace, command: str, on_progress: OnProgress) -> Report:
    """Writes the report of a results folder or of a Parquet file.

    Args:
        asked: the options of the command, by their names.
        command: what goes into the page as the command that made it.
        on_progress: is called with the present step, the parts done and all parts.

    Raises UsageError, FitError or StoreError before anything is written.
    """
    table, step = local_path(asked.table), runs.parsed(asked.step)
    is_folder = holds_results(Store(table).folder)
    usual = table / "report.html" if is_folder else beside(table, "-report.html")
    out = local_path(asked.out) if asked.out else usual
    folder = _figures_beside(out)
    _check(asked)
    found, chosen, remarks, every = _studied(asked, table, step, on_progress)
    rows = seen([every]) if is_folder else {"rows": len(every)}
    facts, manifest = (survey(table), Store(table).read_manifest()) if is_folder else (None, None)
    title = f"{(facts and facts['grid']) or beside(table, '').name}: how critical {found.along} scales"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with look(asked.size, asked.style):
            drawn, left_out = draw(found, chosen, folder, on_progress, asked.format)
        tables = sections(found, remarks, facts, manifest, command)
        html = page(title, summary(found, step), drawn, left_out, tables, folder.name, asked.format)
        atomic_write(out, html.replace("<head>", f"<head><!-- {comment(rows)} -->", 1).encode(errors="backslashreplace"))
    except OSError as error:
        raise FitError(f"{out}: cannot be written ({error.strerror or error}); choose another --out") from error
    return Report(out, folder, [picture for picture, _ in drawn], left_out, [*remarks, *older(table, rows)])


def _figures_beside(out: Path) -> Path:
    """The folder of the figures of a page; raises UsageError where either cannot be written."""
    if os.path.isdir(out):
        raise UsageError(f"--out: {out} is a folder; allowed: a file, as in {out / 'report.html'}")
    folder = out.with_name(f"{out.stem}-figures")
    check_folder(folder)
    return folder


def _check(asked: Namespace) -> None:
    """Raises UsageError for what would be refused only after the fit."""
    if asked.surrogate < 0:
        raise UsageError(f"--surrogate: {asked.surrogate}; allowed: a number of seeds, or 0 for none")
    for module in asked.trust:
        trusted(module)
    with look(asked.size, asked.style):
        pass


def _studied(asked: Namespace, table: Path, step: runs.Steps, on_progress: OnProgress) -> tuple[Study, Roles, list[str], Any]:
    """The fitted table, which axis goes where, remarks on rows and fit, and all rows."""
    every, remarks = runs.read(table)
    frame = runs.at_steps(every, step)
    families, _ = cells.families(frame, along_of(frame, asked.along))
    chosen = roles(families, asked.x, asked.lines, asked.panels, asked.phase)
    found = study(frame, families, asked.theta, asked.surrogate, partial(on_progress, "fitting"), every)
    return found, chosen, [*remarks, *found.fit.remarks], every


def draw(
    study: Study, roles: Roles, folder: Path, on_progress: OnProgress = lambda *step: None, formats: Sequence[str] = FORMATS[:2]
) -> tuple[list[tuple[Picture, str]], list[tuple[str, str]]]:
    """Draws every figure that the table holds into `folder`; each
    with its SVG, and what was left out and why. Within `look`.

    Figures that an earlier call left in the folder are removed.
    `on_progress(what, done, of)` is called before each kind.
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


def summary(found: Study, step: runs.Steps) -> str:
    """What the table holds, what its symbols mean, where theory applies, and which steps are shown."""
    rows = found.rows
    legend = "; ".join(label(name) for name in ("N", "d", "L", "V", "m") if name in rows)
    theory = f"Theory: ours. {predict.reason(found.cells.to_dict('records'))}".strip() if found.along == "N" else ""
    varying = ", ".join(found.axes) or "nothing"
    sentences = [
        f"{len(found.cells)} cells ({varying} vary), {len(rows)} rows, {rows['seed'].nunique()} seeds. {legend}. m = 0: attention only.",
        theory,
        CONVENTIONS,
    ]
    if found.traces:
        named = {runs.LAST: "their last step", runs.ALL: "all recorded steps"}
        shown = named.get(step) if isinstance(step, str) else f"step {', '.join(map(str, [step] if isinstance(step, int) else step))}"
        n_left_out = found.traces.rows["n_correct"].isna().sum()
        sentences.append(f"Of runs that train on, the figures and tables take {shown}; those against the step show every one.")
        sentences += [f"{n_left_out} rows without a number are left out."] * bool(n_left_out)
    return " ".join(filter(None, sentences))
