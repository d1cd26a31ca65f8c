"""Writes a report: one HTML page, and a folder with its figures.

The page contains the question, figures, critical values, the summary of the fit, and
provenance, in this order. The figures are inline SVG.
The page loads no other files and contains no scripts. The page is dark if the reader's
browser prefers dark pages, but figures keep a white background.
"""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import yaml

from ...errors import UsageError
from ...sweep.files import (
    atomic_write,
    held_folder,
    holds_results,
    local_path,
    plain_name,
    read_bytes,
    refuse_link,
)
from ...sweep.store import Store
from ...sweep.store.survey import survey
from ...sweep.store.table import is_ours
from ..figures import charts
from ..figures.figure import Chart
from ..figures.layers import ordered
from ..figures.style import (
    PAGE,
    look,
    rendered,
    rounded,
    sized,
    text,
)
from ..figures.table_of_runs import (
    Places,
    Runs,
    arranged,
)
from ..figures.theory_lines import Theory
from ..fit import Fit, chosen_summary
from ..fit.columns import Table, groups, without
from ..fit.measure import at_steps, choose_along, choose_measure
from ..fit.reading import parse_columns, read_tables
from ..fit.roles import roles_of, with_stated
from ..fit.table_axes import constants
from ..fit.write import beside, summarise, unwritable, with_interval

MADE = re.compile(
    r'<span class="file">([^<]*)/([\w.-]+)\.((?:png|pdf|svg)(?:, \.(?:png|pdf|svg))*)<',
    re.ASCII,
)
"""The regular expression for the files of a figure in a page, as in
`report-figures/phase.png, .pdf`. It finds the folder, the name and the formats.
"""


class Picture(NamedTuple):
    """A drawn figure: its name, heading, remark, width in rem, SVG and files."""

    name: str
    heading: str
    remark: str
    width: str
    svg: str
    files: dict[str, bytes]


def write(
    options: Namespace, command: str, on_progress: Callable[[str, int, int], None]
) -> list[str]:
    """Writes the report of a results folder or of a Parquet file, and returns lines of
    text: the remarks, the figures, and the paths of the files.

    Args:
        options: the options of the command.
        command: the command line that the page lists as its origin.
        on_progress: called with the name of the current step, the number of finished
            parts, and the total number of parts.

    Raises UsageError, FitError or StoreError.
    """
    table = local_path(options.table)
    is_folder = holds_results(Store(table).folder)
    out = _page_of(options, table, is_folder)
    _earlier_page(out)
    folder = out.with_name(f"{out.stem}-figures")
    refuse_link(folder)
    with look(options.style, "report"):  # checks style and size before the fit
        sized(options.size)
    every, remarks = read_tables(table, columns=parse_columns(options.columns))
    every = with_stated(every, options.axes, options.average)
    frame = at_steps(every, options.step)
    roles = choose_measure(frame, roles_of(frame), options.of)
    along = choose_along(frame, roles, options.along)
    runs = Runs.of(frame, roles, along, chosen_summary(options.summary))
    _places(runs, options)
    fitted = runs.fitted(options.theta, on_progress=partial(on_progress, "fitting"))
    facts = manifest = {}
    if is_folder:
        facts = survey(table)
        manifest = Store(table).read_manifest()
        manifest = manifest if isinstance(manifest, dict) else {}
    name = facts.get("grid") or beside(table, "").name
    predicted = Theory(runs)
    pictures = _pictures(runs, fitted, options, predicted, on_progress)
    told = [
        *remarks,
        *fitted.remarks,
        *(f"theory: {message}" for message in predicted.messages.values()),
    ]
    html = page(
        n_rows=len(every),
        title=f"{name}: how critical {along} scales",
        options=options,
        n_cells=groups(runs.rows, runs.axes).ngroups,
        axes=axes(runs),
        notes=told,
        pictures=pictures,
        folder=folder,
        thresholds=thresholds(runs, fitted, predicted),
        law=summarise(fitted),
        provenance=provenance(runs, facts, manifest, command),
        is_folder=is_folder,
        grid=yaml.safe_dump(manifest.get("grid"), sort_keys=False, width=120),
        runs=runs,
    )
    try:
        _replace(out, html, folder, pictures)
    except OSError as error:
        raise unwritable(out, error) from error
    lines = [f"note: {note}" for note in told]
    for picture in pictures:
        remark = f" ({picture.remark})" if picture.remark else ""
        lines.append(f"{picture.name}: {picture.heading}{remark}")
    return [
        *lines,
        "",
        f"page:     {out} ({out.stat().st_size / 1e6:.2f} MB)",
        f"figures:  {folder} ({len(pictures)} as {', '.join(options.format)})",
    ]


def _page_of(options: Namespace, table: Path, is_folder: bool) -> Path:
    """Returns the path of the page; raises UsageError if the path is a folder."""
    if options.out:
        out = local_path(options.out)
    elif is_folder:
        out = table / "report.html"
    else:
        out = beside(table, "-report.html")
    if os.path.isdir(out):
        raise UsageError(
            f"--out: {out} is a folder; give a file, as in {out / 'report.html'}"
        )
    return out


def _pictures(
    runs: Runs,
    fitted: Fit,
    options: Namespace,
    predicted: Theory,
    on_progress: Callable[[str, int, int], None],
) -> list[Picture]:
    """Draws all figures, and returns their pictures."""
    pictures, size = [], sized(options.size)
    with look(options.style, "report"):
        for name, heading, chart in figures(runs, fitted, options, predicted):
            on_progress(f"drawing {name}", 0, 0)
            figure = replace(chart, size=size).figure()
            svg, files = rendered(figure, name, options.format)
            width = f"{figure.get_figwidth() / PAGE * 56:.0f}"
            picture = Picture(name, heading, chart.remark, width, svg, files)
            pictures.append(picture)
    return pictures


def _replace(out: Path, html: str, folder: Path, pictures: Sequence[Picture]) -> None:
    """Writes the page and the figures in place of those of the earlier report.

    The page lists its figures, and it is written before they are. The figures of a
    report that was cut short are therefore known, too. Raises UsageError if the folder
    contains a file that no report made and that has the name of a figure.
    """
    files = {}
    for picture in pictures:
        files.update(picture.files)
    earlier = _listed(_earlier_page(out), folder.name)
    folder.mkdir(parents=True, exist_ok=True)
    with held_folder(folder) as held:
        for name in files:
            if name not in earlier and os.path.lexists(held / name):
                raise UsageError(
                    f"--out: {folder / name} is not a figure that {out.name} lists, and"
                    " is not replaced; move it away, or choose another --out"
                )
        for name in earlier - files.keys():
            (held / name).unlink(missing_ok=True)
        atomic_write(out, html.encode(errors="backslashreplace"))
        for name, content in files.items():
            atomic_write(held / name, content)


def _earlier_page(out: Path) -> str:
    """Returns the page that an earlier report wrote, or an empty text if there is none.

    Raises UsageError if there is another file, or a link.
    """
    if not os.path.lexists(out):
        return ""
    why = "is not a page that jaxrecall wrote"
    try:
        if is_ours(out) and not os.path.islink(out):
            return read_bytes(out).decode("utf-8", "replace")
    except ValueError as error:
        why = f"has {error}"
    raise UsageError(
        f"--out: {out} {why}, and is not replaced; move it away, or choose another"
        " --out"
    )


def _listed(page: str, folder: str) -> set[str]:
    """Returns the names of the files in a folder that a page lists as its figures."""
    names = set()
    folder = folder.encode(errors="backslashreplace").decode()  # as in the page
    for place, name, formats in MADE.findall(page):
        if unescape(place) == folder:
            names |= {f"{name}.{kind}" for kind in formats.split(", .")}
    return names


def _places(runs: Runs, options: Namespace) -> Places:
    """Returns the axes that are along x, make lines, or make panels.

    Raises UsageError if the options do not suit the runs.
    """
    lines = [options.lines] if options.lines else None
    return arranged(runs.axes, options.x, lines, options.panels)


def figures(
    runs: Runs, fitted: Fit, options: Namespace, predicted: Theory
) -> Iterator[tuple[str, str, Chart]]:
    """Yields the name, the heading and the chart of each figure; names are plain."""
    along, theta = runs.along, options.theta[0]
    x, lines, panels = _places(runs, options)
    stars = {one: runs.thresholds(fitted, one) for one in options.theta}
    if x:
        for one in stars:
            chart = charts.critical(runs, fitted, one, x, lines, panels, predicted)
            name = f"critical-{along.lower()}"
            if one != theta:
                name += f"-{one}"
            heading = f"Critical {along} at {runs.measure} {one:g}"
            yield plain_name(name), heading, chart

    colours = [options.lines] if options.lines else runs.axes[:1]
    others = without(runs.axes, colours)
    marks = pd.concat(stars.values(), ignore_index=True)
    chart = charts.accuracy(runs, along, colours, others, marks, predicted)
    subject = f"{runs.measure[:1].upper()}{runs.measure[1:]}"
    yield "accuracy", f"{subject} against {along}", chart

    if x and not runs.is_search:
        chart = charts.phase(runs, fitted, theta, x, along, predicted)
        yield "phase", f"Phase diagram: {along} against {x}", chart

    if colours and stars[theta]["critical"].notna().sum() > 1:
        chart = charts.collapse(runs, fitted, theta, colours)
        yield "collapse", "Data collapse", chart


MOST_VALUES = 8
"""The largest number of values of an axis that are listed."""


def axes(runs: Runs) -> Table:
    """Returns a table of what varies, and of the other settings that figures name."""
    settings = {name: ordered(runs.rows[name]) for name in (*runs.axes, runs.along)}
    for name, value in constants(runs.rows, runs.roles).items():
        settings.setdefault(name, [value])
    body = []
    for name, values in settings.items():
        listed = ", ".join(map(text, values))
        if len(values) > MOST_VALUES:
            listed = f"{text(values[0])} to {text(values[-1])}, {len(values)} values"
        body.append([name, runs.roles.labels.get(name, ""), listed])
    return pd.DataFrame(body, columns=["axis", "meaning", "values"])


def page(**values: object) -> str:
    """Returns the whole page. The arguments are the values of the template."""
    from jinja2 import Environment, StrictUndefined  # slow to import

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = Path(__file__).with_name("page.html").read_text("utf-8")
    with pd.option_context("display.max_colwidth", None):
        return environment.from_string(text).render(values)


def thresholds(runs: Runs, fitted: Fit, predicted: Theory) -> Table:
    """Returns a table with the critical value for each cell and theta, and with what
    theory predicts, if it predicts any.
    """
    constant = without(runs.roles.needed, runs.axes)
    names = without(fitted.thresholds.loc[:, :"theta"], constant)
    thetas = fitted.thresholds["theta"].unique()
    parts = [predicted.beside(runs.thresholds(fitted, one), one) for one in thetas]
    stars: Table = pd.concat(parts, ignore_index=True)
    table = stars[names].map(text)
    table[f"{runs.along}*"] = list(map(_star, stars.to_dict("records")))
    if not stars["theory"].isna().all():
        table["theory"] = stars["theory"].map(rounded, na_action="ignore").fillna("")
    return table.assign(
        seeds=stars["n_seeds"], levels=stars["n_levels"], warning=stars["warning"]
    )


def _star(row: Mapping[str, Any]) -> str:
    """Formats a critical value with its interval, or a bound if it is censored."""
    if row["censored"] == "no":
        return with_interval([row["critical"], row["lo"], row["hi"]], rounded)
    sign = "<" if row["censored"] == "left" else ">"
    return f"{sign} {text(row['tried'])}, {row['state']}"


SETUP = (
    "status",
    "root_seed",
    "code_version",
    "precision",
    "n_test",
    "simulator",
    "form",
    "dtype",
    "device_kind",
    "cpu_model",
    "jax_version",
)
"""The columns whose values are listed and counted in the section on provenance."""

STATED = ("versions", "commit", "xla_flags", "command")
"""The entries of the manifest that the section on provenance lists."""


def provenance(
    runs: Runs, facts: Mapping[str, Any], manifest: Mapping[str, Any], command: str
) -> Table:
    """Returns the table of the section on provenance.

    The table describes the runs and the software versions that computed them. It also
    contains the command that creates the page.
    """
    rows = runs.given
    seeds = rows["seed"]
    told: dict[str, object] = {
        "rows": len(rows),
        "seeds": f"{seeds.nunique()}, from {seeds.min()} to {seeds.max()}",
    }
    for name in SETUP:
        if name in rows:
            counts = rows[name].value_counts().sort_index()
            told[name] = ", ".join(f"{value} ({n} rows)" for value, n in counts.items())
    failed = sum(failure["runs"] for failure in facts.get("failures", ()))
    if failed:
        told["failed runs"] = f"{failed}, which the command status lists"
    todo = facts.get("todo")
    if todo:
        told["runs still to do"] = todo
    for name in STATED:
        value = manifest.get(name)
        if isinstance(value, dict):
            value = ", ".join(f"{one} {number}" for one, number in value.items())
        if value is not None:
            told[name] = value
    told["this report"] = command
    return pd.DataFrame([*told.items()], columns=["", ""])
