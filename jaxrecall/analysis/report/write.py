"""A whole report: the page with its tables, and the figures beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import FitError, UsageError
from ...sweep.running.status import survey
from ...sweep.store.files import atomic_write, holds_results
from ...sweep.store.store import Store
from ..figures import predict
from ..figures.draw import draw
from ..figures.study import Study, roles, study
from ..figures.style import Picture, label
from ..fit import cells, runs
from ..fit.fitting import RESAMPLES
from ..fit.steps import ALL, LAST, Steps, at_steps
from ..fit.write import check_folder
from . import tables
from .page import page

SURROGATE_SEEDS = 64


@dataclass(frozen=True)
class Report:
    """The page, the folder of its figures, what they are, which were left out and why, and remarks on the rows and the fit."""

    page: Path
    folder: Path
    pictures: list[Picture]
    left_out: list[tuple[str, str]]
    remarks: list[str]


def write(
    table: Path,
    out: Path | None = None,
    thetas: Sequence[float] = (0.5,),
    resamples: int = RESAMPLES,
    surrogate_seeds: int = SURROGATE_SEEDS,
    step: Steps = LAST,
    command: str = "",
    on_progress: Callable[[str, int, int], None] = lambda what, done, of: None,
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
        command: what goes into the page as the command that made it.
        on_progress: is called with the present step, the parts done and all parts.
        places: axes of figures, by `x`, `lines`, `panels` and `phases`.

    Raises UsageError, FitError or StoreError before anything is written.
    """
    is_folder = holds_results(Store(table).folder)
    out = out or (table / "report.html" if is_folder else table.resolve().with_name(f"{table.resolve().stem}-report.html"))
    if out.is_dir():
        raise UsageError(f"--out: {out} is a folder; allowed: a file, as in {out / 'report.html'}")
    folder = out.with_name(f"{out.stem}-figures")
    check_folder(folder)
    if surrogate_seeds < 0:
        raise UsageError(f"--surrogate: {surrogate_seeds}; allowed: a number of seeds, or 0 for none")
    every, remarks = runs.read(table)
    frame = at_steps(every, step)
    families, _ = cells.families(frame)
    chosen = roles(families, **places)
    found = study(frame, families, thetas, resamples, surrogate_seeds, lambda done, of: on_progress("resampling", done, of), every)
    remarks += found.fit.remarks
    try:
        folder.mkdir(parents=True, exist_ok=True)
        drawn, left_out = draw(found, chosen, folder, on_progress)
        facts = survey(table) if is_folder else None
        sections = [
            ("Exponents", tables.exponents(found)),
            ("Thresholds", tables.thresholds(found)),
            ("Warnings and remarks", tables.warnings(found, remarks)),
            ("Failures", tables.failures(facts)),
            ("Provenance", tables.provenance(found, Store(table).read_manifest() if is_folder else None, command)),
        ]
        title = f"{(facts and facts['grid']) or table.resolve().stem}: how critical N scales"
        html = page(title, [_summary(found, step)], drawn, left_out, sections, folder.name)
        atomic_write(out, html.encode(errors="backslashreplace"))
    except OSError as error:
        raise FitError(f"{out}: cannot be written ({error.strerror or error}); choose another --out") from error
    return Report(out, folder, [picture for picture, _ in drawn], left_out, remarks)


def _summary(found: Study, step: Steps) -> str:
    """What the table holds, what its symbols mean, where theory applies, and which steps are shown."""
    rows = found.rows
    legend = "; ".join(label(name) for name in ("N", "d", "L", "V", "m") if name in rows)
    summary = (
        f"{len(found.cells)} cells ({', '.join(found.axes) or 'nothing'} vary), {len(rows)} rows, {rows['seed'].nunique()} seeds. "
        f"{legend}. m = 0: attention only. Theory: ours. {predict.reason(found.cells.to_dict('records'))}"
    )
    if not found.traces:
        return summary.strip()
    named = {LAST: "their last step", ALL: "all recorded steps"}
    steps = named.get(step) if isinstance(step, str) else f"step {', '.join(map(str, [step] if isinstance(step, int) else step))}"
    return f"{summary.strip()} Of runs that train on, the figures and tables take {steps}; those against the step show every one."
