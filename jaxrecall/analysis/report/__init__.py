"""Writes a report: one HTML page, and a folder with its figures.

The page contains figures, laws, thresholds and provenance. The figures are inline SVG.
The page loads no other files and contains no scripts. The page is dark if the reader's
browser prefers dark pages, but figures keep a white background.
"""

from __future__ import annotations

import json
import os
import re
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml

from ...errors import FitError, UsageError
from ...sweep.files import atomic_write, holds_results, local_path
from ...sweep.running.folder_status import survey
from ...sweep.simulators.custom import trusted
from ...sweep.store import Store
from ...sweep.store.table import comment, older, seen
from ..figures import charts
from ..figures.axis import columns_in
from ..figures.grammar import Chart
from ..figures.style import (
    FORMATS,
    PAGE,
    interval,
    label,
    look,
    rounded,
    save,
    sized,
    text,
)
from ..figures.table_of_runs import Places, Runs, arranged, check_maps, in_one_panel
from ..fit import Fit
from ..fit.runs import along_of, at_steps, is_own, parsed, read
from ..fit.write import beside, check_folder

NAMES = (
    "accuracy",
    "critical-",
    "phase",
    "collapse",
    "noise",
    "agreement",
    "decoders",
    "trace",
)
"""The beginnings of figure names, including names that earlier versions used."""


class Picture(NamedTuple):
    """A drawn figure: its name, heading, remark, files, and its SVG for the page."""

    name: str
    heading: str
    remark: str
    files: str
    svg: str


@dataclass(frozen=True)
class Report:
    """The files of a report, its figures, and remarks on the rows and the fit.

    `page` is the file of the page, and `folder` contains the files of the figures.
    """

    page: Path
    folder: Path
    pictures: list[Picture]
    remarks: list[str]


def write(
    asked: Namespace, command: str, on_progress: Callable[[str, int, int], None]
) -> Report:
    """Writes the report of a results folder or of a Parquet file.

    Args:
        asked: the options of the command.
        command: the command line that the page lists as its origin.
        on_progress: called with the name of the current step, the number of finished
            parts, and the total number of parts.

    Raises UsageError, FitError or StoreError before anything is written.
    """
    table, step = local_path(asked.table), parsed(asked.step)
    is_folder = holds_results(Store(table).folder)
    out = _page_of(asked, table, is_folder)
    folder = out.with_name(f"{out.stem}-figures")
    check_folder(folder)
    for module in asked.trust:
        trusted(module)
    with look(asked.style):  # checks style and size before the fit
        sized(asked.size)
    every, remarks = read(table)
    frame = at_steps(every, step)
    runs = Runs.of(frame, along_of(frame, asked.along))
    _places(runs, asked)
    found = runs.fitted(asked.theta, partial(on_progress, "fitting"))
    rows = {"rows": len(every)}
    facts = manifest = {}
    if is_folder:
        rows = seen([every])
        facts = survey(table)
        manifest = Store(table).read_manifest()
    name = facts.get("grid") or beside(table, "").name
    title = f"{name}: how critical {runs.along} scales"
    told = "\n".join([*map("note: {}".format, remarks), str(found)])
    pictures = []
    try:
        _make_empty(folder)
        with look(asked.style):
            for name, heading, chart in figures(runs, found, asked):
                on_progress(f"drawing {name}", 0, 0)
                pictures.append(_saved(name, heading, chart, folder, asked))
        sections = {
            "Laws and warnings": f"<pre>{escape(told)}</pre>",
            "Thresholds": thresholds(runs, found),
            "Provenance": provenance(runs, facts, manifest, command),
        }
        html = page(title, summary(runs), pictures, sections)
        head = f"<head><!-- {comment(rows)} -->"
        html = html.replace("<head>", head, 1)
        atomic_write(out, html.encode(errors="backslashreplace"))
    except OSError as error:
        raise FitError(
            f"{out}: cannot be written ({error.strerror or error}); choose another"
            " --out"
        ) from error
    remarks = [*remarks, *found.remarks, *older(table, rows)]
    return Report(out, folder, pictures, remarks)


def _page_of(asked: Namespace, table: Path, is_folder: bool) -> Path:
    """Returns the path of the page; raises UsageError if the path is a folder."""
    if asked.out:
        out = local_path(asked.out)
    elif is_folder:
        out = table / "report.html"
    else:
        out = beside(table, "-report.html")
    if os.path.isdir(out):
        raise UsageError(
            f"--out: {out} is a folder; give a file, as in {out / 'report.html'}"
        )
    return out


def _saved(
    name: str, heading: str, chart: Chart, folder: Path, asked: Namespace
) -> Picture:
    """Draws a chart, writes its files, and returns the picture."""
    chart = replace(chart, size=sized(asked.size))
    svg = save(chart.figure(), name, folder, asked.format)
    files = f"{folder.name}/{name}.{', .'.join(asked.format)}"
    return Picture(name, heading, chart.remark, files, svg)


def _make_empty(folder: Path) -> None:
    """Creates the folder, and deletes the figures of earlier reports in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        for kind in FORMATS:
            for path in folder.glob(f"{name}*.{kind}"):
                path.unlink()


def _places(runs: Runs, asked: Namespace) -> Places:
    """Returns the axes that are along x, make lines, or make panels.

    Raises UsageError if the options do not suit the runs.
    """
    check_maps(asked.phase, runs.sizes)
    every = runs.axes
    if asked.x and runs.along in columns_in(asked.x):
        every = runs.every
    lines = [asked.lines] if asked.lines else None
    return arranged(runs.sizes, every, asked.x, lines, asked.panels)


def figures(
    runs: Runs, found: Fit, asked: Namespace
) -> Iterator[tuple[str, str, Chart]]:
    """Yields the name, the heading and the chart of each figure."""
    along, theta = runs.along, asked.theta[0]
    x, lines, panels = _places(runs, asked)
    stars = {one: runs.thresholds(found, one) for one in asked.theta}
    marks = pd.concat(stars.values(), ignore_index=True)

    coloured = [axis for axis in (*lines, x) if axis in runs.axes]
    coloured.sort(key=lambda axis: runs.rows[axis].nunique(), reverse=True)
    first = coloured[:1]
    rest = [axis for axis in runs.axes if axis not in first]
    by, others = in_one_panel(runs.levels, first, rest)
    chart = charts.accuracy(runs, along, by, others, marks, theory=True)
    yield "accuracy", f"Accuracy against {along}", chart

    if x and x not in runs.sizes:
        place = arranged(runs.sizes, runs.every, x, lines, panels)
        chart = charts.accuracy(runs, x, place.lines, place.panels)
        yield "accuracy-against", f"Accuracy against {x}", chart

    maps = asked.phase
    if x and along not in columns_in(x):
        for one in stars:
            name = f"critical-{along.lower()}"
            if one != theta:
                name += f"-{one:g}"
            chart = charts.critical(runs, found, one, x, lines, panels)
            yield name, f"Critical {along} at accuracy {one:g}", chart
        maps = maps or [(x, along)]

    for a, b in maps:
        name = "phase"
        if not runs.axes or (a, b) != (runs.axes[0], along):
            name = f"phase-{_file_name(a)}-{_file_name(b)}"
        chart = charts.phase(runs, found, theta, a, b)
        yield name, f"Phase diagram: {b} against {a}", chart

    if first and stars[theta]["critical"].notna().sum() > 1:
        chart = charts.collapse(runs, found, theta, first)
        yield "collapse", "Data collapse", chart


def _file_name(axis: str) -> str:
    """Returns the name of an axis in a form that suits file names.

    If the axis is arithmetic, letters replace the signs * and /. All other signs are
    removed.
    """
    plain = re.sub(r"[^\w*/]|_", "", axis)
    return plain.replace("*", "x").replace("/", "-by-")


def summary(runs: Runs) -> str:
    """Returns a paragraph about the rows, the symbols, and where theory applies."""
    rows = runs.rows
    symbols = [label(name) for name in ("N", "d", "L", "V", "m") if name in rows]
    n_cells = len(runs.settings(runs.axes))
    varying = ", ".join(runs.axes) or "nothing"
    counts = (
        f"{n_cells} cells ({varying} vary), {len(rows)} rows, {rows['seed'].nunique()}"
        " seeds."
    )
    theory = "" if is_own(rows) else f" Theory: ours. {runs.reason()}".rstrip()
    return f"{counts} {'; '.join(symbols)}. m = 0: attention only.{theory}"


OPEN_ROWS = 24
"""The largest number of rows that a table may have without being folded."""

TEMPLATE = Template(Path(__file__).with_name("page.html").read_text("utf-8"))


def page(
    title: str,
    summary: str,
    pictures: Sequence[Picture],
    sections: Mapping[str, str],
) -> str:
    """Returns the whole page; `sections` is a dict from heading to HTML."""
    contents = figures = written = ""
    for picture in pictures:
        contents += _link(picture.name, picture.heading)
        figures += _figure(picture)
    for heading, content in sections.items():
        anchor = f"section-{heading.lower().replace(' ', '-')}"
        contents += _link(anchor, heading)
        written += f'<h2 id="{anchor}">{escape(heading)}</h2>{content}\n'
    return TEMPLATE.substitute(
        title=escape(title),
        summary=escape(summary),
        contents=contents,
        figures=figures,
        sections=written,
    )


def _link(anchor: str, heading: str) -> str:
    return f'<li><a href="#{anchor}">{escape(heading)}</a></li>'


def _figure(picture: Picture) -> str:
    name, heading = picture.name, escape(picture.heading)
    points = float(re.search(r'viewBox="0 0 ([0-9.]+)', picture.svg)[1])  # type: ignore[index]
    width = f"{points / 72 / PAGE * 56:.0f}rem"
    opening = f'<svg role="img" aria-label="{heading}" style="width:{width}"'
    drawn = picture.svg.replace("<svg", opening, 1)
    files = f'<span class="file">{escape(picture.files)}</span>'
    caption = f"{escape(picture.remark)} {files}"
    return (
        f'<h2 id="{name}">{heading}</h2>\n'
        f"<figure>{drawn}<figcaption>{caption}</figcaption></figure>\n"
    )


def thresholds(runs: Runs, found: Fit) -> str:
    """Returns an HTML table with the critical value for each cell and theta."""
    columns = found.thresholds.columns
    before = columns[: columns.get_loc("theta")]
    names = [name for name in before if name in runs.axes or name not in runs.sizes]
    body = []
    for theta in found.thresholds["theta"].unique():
        for row in runs.thresholds(found, theta, with_theory=True).to_dict("records"):
            cells = [text(row[name]) for name in names]
            cells += [f"{theta:g}", _star(row)]
            cells.append("" if np.isnan(row["theory"]) else rounded(row["theory"]))
            cells += [row["n_seeds"], row["n_levels"], row["warning"]]
            body.append(cells)
    heads = [*names, "theta", f"{runs.along}*", "theory", "seeds", "levels", "warning"]
    note = "In brackets: the 95 % interval."
    if runs.along == "N":
        note = "N* in samples; in brackets: the 95 % interval."
    return f"{table(heads, body)}<p>{note}</p>"


def _star(row: Mapping[str, Any]) -> str:
    """Formats a critical value with its interval, or a bound if it is censored."""
    if row["censored"] == "no":
        return interval(row["critical"], row["lo"], row["hi"])
    sign = "<" if row["censored"] == "left" else ">"
    return f"{sign} {text(row['tried'])}, censored {row['censored']}"


SETUP = (
    "status",
    "root_seed",
    "code_version",
    "precision",
    "dtype",
    "jax_version",
    "device_kind",
    "form",
)
"""The columns whose values are listed and counted in the section on provenance."""

STATED = {
    "versions": "versions",
    "commit": "commit",
    "xla_flags": "XLA_FLAGS",
    "command": "sweep",
}
"""A dict from an entry of the manifest to its name in the section on provenance."""


def provenance(
    runs: Runs, facts: Mapping[str, Any], manifest: object, command: str
) -> str:
    """Returns the HTML of the section on provenance.

    The section describes the runs and the software versions that computed them. The
    section also contains the command that creates the page.
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
    manifest = manifest if isinstance(manifest, dict) else {}
    for key, name in STATED.items():
        if key in manifest:
            told[name] = manifest[key]
    told["this report"] = command
    html = table(["", ""], [*told.items()])
    if "grid" not in manifest:
        return html
    plain = json.loads(json.dumps(manifest["grid"]))
    grid = escape(yaml.safe_dump(plain, sort_keys=False, width=120))
    return html + _folded("The grid as it was resolved", f"<pre>{grid}</pre>")


def table(heads: Sequence[str], body: Sequence[Sequence[object]]) -> str:
    """Returns an HTML table, folded if it is long."""
    rows = ""
    for line in body:
        rows += f"<tr>{_cells('td', line)}</tr>\n"
    whole = (
        f'<div class="wide"><table><thead><tr>{_cells("th", heads)}</tr></thead>'
        f"<tbody>\n{rows}</tbody></table></div>"
    )
    if len(body) > OPEN_ROWS:
        return _folded(f"{len(body)} rows", whole)
    return whole


def _cells(tag: str, line: Sequence[object]) -> str:
    return "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in line)


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"
