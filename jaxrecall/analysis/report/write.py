"""A whole report: the page with its tables, and the pictures beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import FitError, UsageError
from ...files import atomic_write
from ...sweep.running.status import survey
from ...sweep.store.store import Store
from ..fit import cells, runs
from ..fit.fitting import RESAMPLES
from ..fit.steps import ALL, LAST, Steps, at_steps
from ..fit.write import check_folder
from . import tables
from .axes import roles
from .draw import draw
from .page import page
from .study import ORDER, study
from .style import Picture, label

SURROGATE_SEEDS = 64


@dataclass(frozen=True)
class Report:
    """The page, the folder of its pictures, what they are, which were left out and why, and remarks on the rows and the fit."""

    page: Path
    folder: Path
    pictures: list[Picture]
    left_out: list[tuple[str, str]]
    remarks: list[str]


def write(
    table: Path,
    out: Path | None = None,
    thetas: Sequence[float] = (0.5,),
    x: str | None = None,
    lines: str | None = None,
    panels: Sequence[str] = (),
    phases: Sequence[Sequence[str]] = (),
    resamples: int = RESAMPLES,
    surrogate_seeds: int = SURROGATE_SEEDS,
    step: Steps = LAST,
    command: str = "",
    on_progress: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> Report:
    """Writes the report of a results folder or of a Parquet file to `out`, or to DIR/report.html or FILE-report.html.

    `x`, `lines`, `panels` and `phases` are axes of pictures, `surrogate_seeds` the draws of the locked-attention surrogate (0: none),
    `step` the rows of runs that train on, as for a fit. `command` goes into the page; `on_progress(what, done, of)` is called with
    the step and how many are done. Raises UsageError, FitError or StoreError before anything is written.
    """
    is_folder = Store(table).holds_results()
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
    chosen = roles(families, x, lines, panels, phases)
    found = study(frame, families, thetas, resamples, surrogate_seeds, lambda done, of: on_progress("resampling", done, of), every)
    remarks += found.fit.remarks
    manifest = Store(table).read_manifest() if is_folder else None
    facts = survey(table) if is_folder else None
    title = f"{(facts and facts['grid']) or table.resolve().stem}: how critical N scales"
    legend = "; ".join(label(name) for name in ("N", *ORDER))
    summary = (
        f"{len(found.cells)} cells ({', '.join(found.axes) or 'nothing'} vary), {len(frame)} rows, {frame['seed'].nunique()} seeds. "
        f"{legend}. m = 0: attention only. Theory: ours."
    )
    taken = (
        "their last step"
        if step == LAST
        else "all recorded steps"
        if step == ALL
        else f"step {', '.join(map(str, [step] if isinstance(step, int) else step))}"
    )
    summary += f" Of runs that train on, the figures and tables take {taken}; those against the step show every one." * bool(found.traces)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pictures, left_out = draw(found, chosen, folder, on_progress)
        sections = [
            ("Exponents", tables.exponents(found)),
            ("Thresholds", tables.thresholds(found)),
            ("Warnings and remarks", tables.warnings(found, remarks)),
            ("Failures", tables.failures(facts)),
            ("Provenance", tables.provenance(found, manifest, command)),
        ]
        atomic_write(out, page(title, [summary], pictures, left_out, sections, folder.name).encode(errors="backslashreplace"))
    except OSError as error:
        raise FitError(f"{out}: cannot be written ({error.strerror or error}); choose another --out") from error
    return Report(out, folder, [picture for picture, _ in pictures], left_out, remarks)
