"""A report: one HTML page with figures, tables and provenance, and the figures beside it."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from ...errors import FitError, UsageError
from ...sweep.files import atomic_write, holds_results, local_path
from ...sweep.running.status import survey
from ...sweep.simulators.custom import trusted
from ...sweep.store import Store
from ...sweep.store.age import comment, older, seen
from ..figures import charts, predict
from ..figures.axis import columns_in
from ..figures.grammar import Chart
from ..figures.runs import Runs, arranged, in_one_panel, unknown
from ..figures.style import FORMATS, label, look, save
from ..fit.axes import along_of, is_own
from ..fit.fitting import Fit
from ..fit.runs import at_steps, parsed, read
from ..fit.write import beside, check_folder
from .page import laws, page, provenance, thresholds

OURS = ("accuracy", "critical-", "phase", "collapse", "noise", "agreement", "decoders", "trace")
"""How the names of figures begin, of earlier versions too."""


@dataclass(frozen=True)
class Report:
    """The page, the folder of its figures, what each shows, and remarks on the rows and the fit."""

    page: Path
    folder: Path
    pictures: list[tuple[str, str, str]]  # name, heading, remark
    remarks: list[str]


def write(asked: Namespace, command: str, on_progress: Callable[[str, int, int], None]) -> Report:
    """Writes the report of a results folder or of a Parquet file.

    Args:
        asked: the options of the command, by their names.
        command: what goes into the page as the command that made it.
        on_progress: is called with the present step, the parts done and all parts.

    Raises UsageError, FitError or StoreError before anything is written.
    """
    table, step = local_path(asked.table), parsed(asked.step)
    is_folder = holds_results(Store(table).folder)
    out = local_path(asked.out) if asked.out else table / "report.html" if is_folder else beside(table, "-report.html")
    if os.path.isdir(out):
        raise UsageError(f"--out: {out} is a folder; allowed: a file, as in {out / 'report.html'}")
    check_folder(folder := out.with_name(f"{out.stem}-figures"))
    for module in asked.trust:
        trusted(module)
    with look(asked.size, asked.style):
        pass  # refuses before the fit what cannot be drawn
    every, remarks = read(table)
    frame = at_steps(every, step)
    runs = Runs.of(frame, along_of(frame, asked.along))
    _places(runs, asked)
    found = runs.fitted(asked.theta, partial(on_progress, "fitting"))
    rows = seen([every]) if is_folder else {"rows": len(every)}
    facts, manifest = (survey(table), Store(table).read_manifest()) if is_folder else ({}, {})
    title = f"{facts.get('grid') or beside(table, '').name}: how critical {runs.along} scales"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in (path for name in OURS for kind in FORMATS for path in folder.glob(f"{name}*.{kind}")):
            old.unlink()
        drawn = []
        with look(asked.size, asked.style):
            for name, heading, chart in figures(runs, found, asked):
                on_progress(f"drawing {name}", 0, 0)
                drawn.append((name, heading, chart.remark, save(chart.figure(), name, folder, asked.format)))
        sections = {"Laws and warnings": laws(found, remarks), "Thresholds": thresholds(runs, found)}
        sections["Provenance"] = provenance(runs, facts, manifest, command)
        html = page(title, summary(runs), drawn, sections, folder.name, asked.format)
        atomic_write(out, html.replace("<head>", f"<head><!-- {comment(rows)} -->", 1).encode(errors="backslashreplace"))
    except OSError as error:
        raise FitError(f"{out}: cannot be written ({error.strerror or error}); choose another --out") from error
    return Report(out, folder, [figure[:3] for figure in drawn], [*remarks, *found.remarks, *older(table, rows)])


def _places(runs: Runs, asked: Namespace) -> tuple[str | None, list[str], list[str]]:
    """What stands along x, what makes lines, and what panels; raises UsageError."""
    axes = dict.fromkeys(axis for pair in asked.phase for axis in pair if axis not in runs.sizes)
    problems = [problem for axis in axes for problem in unknown("phase", axis, runs.sizes)]
    problems += [f"phase: {a!r} twice; allowed: two axes" for a, b in asked.phase if a == b]
    if problems:
        raise UsageError(problems)
    has_along = bool(asked.x) and runs.along in columns_in(asked.x)
    return arranged(runs.sizes, runs.every if has_along else runs.axes, asked.x, [asked.lines] if asked.lines else None, asked.panels)


def figures(runs: Runs, found: Fit, asked: Namespace) -> Iterator[tuple[str, str, Chart]]:
    """The name, the heading and the chart of each figure."""
    along, theta, (x, lines, panels) = runs.along, asked.theta[0], _places(runs, asked)
    first = max((axis for axis in (*lines, x) if axis in runs.axes), key=lambda axis: runs.rows[axis].nunique(), default=None)
    by, others = in_one_panel(runs.levels, [first] if first else [], [axis for axis in runs.axes if axis != first])
    stars = {one: runs.thresholds(found, one) for one in asked.theta}
    marks = pd.concat(stars.values(), ignore_index=True)
    yield "accuracy", f"Accuracy against {along}", charts.accuracy(runs, along, by, others, marks, theory=True)
    if x and x not in runs.sizes:
        yield "accuracy-against", f"Accuracy against {x}", charts.accuracy(runs, x, *arranged(runs.sizes, runs.every, x, lines, panels)[1:])
    crosses = x if x and along not in columns_in(x) else None
    for one in stars if crosses else ():
        name = f"critical-{along.lower()}" + (f"-{one:g}" if one != theta else "")
        yield name, f"Critical {along} at accuracy {one:g}", charts.critical(runs, found, one, crosses or "", lines, panels)
    for a, b in asked.phase or ([(crosses, along)] if crosses else []):
        words = ["".join(c if c.isalnum() else {"*": "x", "/": "-by-"}.get(c, "") for c in axis) for axis in (a, b)]
        name = "phase" if runs.axes and (a, b) == (runs.axes[0], along) else "-".join(["phase", *words])
        yield name, f"Phase diagram: {b} against {a}", charts.phase(runs, found, theta, a, b)
    if first and stars[theta]["critical"].notna().sum() > 1:
        yield "collapse", "Data collapse", charts.collapse(runs, found, theta, [first])


def summary(runs: Runs) -> str:
    """What the table holds, what its symbols mean, and where theory applies."""
    rows = runs.rows
    legend = "; ".join(label(name) for name in ("N", "d", "L", "V", "m") if name in rows)
    theory = "" if is_own(rows) else f" Theory: ours. {predict.reason(runs.settings(runs.axes).to_dict('records'))}".rstrip()
    n_cells, varying = len(runs.settings(runs.axes)), ", ".join(runs.axes) or "nothing"
    seeds = f"{n_cells} cells ({varying} vary), {len(rows)} rows, {rows['seed'].nunique()} seeds."
    return f"{seeds} {legend}. m = 0: attention only.{theory}"
