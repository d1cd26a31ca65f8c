"""A report: one HTML page with figures, laws, thresholds and provenance, and the
figures beside it.

Figures are inline SVG; nothing is fetched and nothing run. The page is dark where the
reader's screen is; figures keep a white card.
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
from typing import Any

import pandas as pd
import yaml

from ...errors import FitError, UsageError
from ...sweep.files import atomic_write, holds_results, local_path
from ...sweep.running.status import survey
from ...sweep.simulators.custom import trusted
from ...sweep.store import Store
from ...sweep.store.table import comment, older, seen
from ..figures import charts
from ..figures.axis import columns_in
from ..figures.grammar import Chart
from ..figures.runs import Runs, arranged, check_maps, in_one_panel
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
from ..fit import Fit
from ..fit.runs import along_of, at_steps, is_own, parsed, read
from ..fit.write import beside, check_folder

OURS = (
    "accuracy",
    "critical-",
    "phase",
    "collapse",
    "noise",
    "agreement",
    "decoders",
    "trace",
)
"""How the names of figures begin, of earlier versions too."""


@dataclass(frozen=True)
class Report:
    """The page, the folder of its figures, what each shows, and remarks on the rows and
    the fit.
    """

    page: Path
    folder: Path
    pictures: list[tuple[str, str, str]]  # name, heading, remark
    remarks: list[str]


def write(
    asked: Namespace, command: str, on_progress: Callable[[str, int, int], None]
) -> Report:
    """Writes the report of a results folder or of a Parquet file.

    Args:
        asked: the options of the command, by their names.
        command: what goes into the page as the command that made it.
        on_progress: is called with the present step, the parts done and all parts.

    Raises UsageError, FitError or StoreError before anything is written.
    """
    table, step = local_path(asked.table), parsed(asked.step)
    is_folder = holds_results(Store(table).folder)
    out = (
        local_path(asked.out)
        if asked.out
        else table / "report.html"
        if is_folder
        else beside(table, "-report.html")
    )
    if os.path.isdir(out):
        raise UsageError(
            f"--out: {out} is a folder; allowed: a file, as in {out / 'report.html'}"
        )
    check_folder(folder := out.with_name(f"{out.stem}-figures"))
    for module in asked.trust:
        trusted(module)
    size = sized(asked.size)
    with look(asked.style):
        pass  # refuses before the fit what cannot be drawn
    every, remarks = read(table)
    frame = at_steps(every, step)
    runs = Runs.of(frame, along_of(frame, asked.along))
    _places(runs, asked)
    found = runs.fitted(asked.theta, partial(on_progress, "fitting"))
    rows = seen([every]) if is_folder else {"rows": len(every)}
    facts, manifest = (
        (survey(table), Store(table).read_manifest()) if is_folder else ({}, {})
    )
    title = (
        f"{facts.get('grid') or beside(table, '').name}: how critical {runs.along}"
        " scales"
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in (
            path
            for name in OURS
            for kind in FORMATS
            for path in folder.glob(f"{name}*.{kind}")
        ):
            old.unlink()
        drawn = []
        with look(asked.style):
            for name, heading, chart in figures(runs, found, asked):
                on_progress(f"drawing {name}", 0, 0)
                chart = replace(chart, size=size)
                drawn.append(
                    (
                        name,
                        heading,
                        chart.remark,
                        save(chart.figure(), name, folder, asked.format),
                    )
                )
        told = "\n".join([*(f"note: {remark}" for remark in remarks), str(found)])
        sections = {
            "Laws and warnings": f"<pre>{escape(told)}</pre>",
            "Thresholds": thresholds(runs, found),
        }
        sections["Provenance"] = provenance(runs, facts, manifest, command)
        html = page(title, summary(runs), drawn, sections, folder.name, asked.format)
        atomic_write(
            out,
            html.replace("<head>", f"<head><!-- {comment(rows)} -->", 1).encode(
                errors="backslashreplace"
            ),
        )
    except OSError as error:
        raise FitError(
            f"{out}: cannot be written ({error.strerror or error}); choose another"
            " --out"
        ) from error
    return Report(
        out,
        folder,
        [figure[:3] for figure in drawn],
        [*remarks, *found.remarks, *older(table, rows)],
    )


def _places(runs: Runs, asked: Namespace) -> tuple[str | None, list[str], list[str]]:
    """What stands along x, what makes lines, and what panels; raises UsageError."""
    check_maps(asked.phase, runs.sizes)
    has_along = bool(asked.x) and runs.along in columns_in(asked.x)
    return arranged(
        runs.sizes,
        runs.every if has_along else runs.axes,
        asked.x,
        [asked.lines] if asked.lines else None,
        asked.panels,
    )


def figures(
    runs: Runs, found: Fit, asked: Namespace
) -> Iterator[tuple[str, str, Chart]]:
    """The name, the heading and the chart of each figure."""
    along, theta, (x, lines, panels) = runs.along, asked.theta[0], _places(runs, asked)
    first = max(
        (axis for axis in (*lines, x) if axis in runs.axes),
        key=lambda axis: runs.rows[axis].nunique(),
        default=None,
    )
    by, others = in_one_panel(
        runs.levels,
        [first] if first else [],
        [axis for axis in runs.axes if axis != first],
    )
    stars = {one: runs.thresholds(found, one) for one in asked.theta}
    marks = pd.concat(stars.values(), ignore_index=True)
    yield (
        "accuracy",
        f"Accuracy against {along}",
        charts.accuracy(runs, along, by, others, marks, theory=True),
    )
    if x and x not in runs.sizes:
        yield (
            "accuracy-against",
            f"Accuracy against {x}",
            charts.accuracy(
                runs, x, *arranged(runs.sizes, runs.every, x, lines, panels)[1:]
            ),
        )
    crosses = x if x and along not in columns_in(x) else None
    for one in stars if crosses else ():
        name = f"critical-{along.lower()}" + (f"-{one:g}" if one != theta else "")
        yield (
            name,
            f"Critical {along} at accuracy {one:g}",
            charts.critical(runs, found, one, crosses or "", lines, panels),
        )
    for a, b in asked.phase or ([(crosses, along)] if crosses else []):
        words = [
            "".join(
                c if c.isalnum() else {"*": "x", "/": "-by-"}.get(c, "") for c in axis
            )
            for axis in (a, b)
        ]
        name = (
            "phase"
            if runs.axes and (a, b) == (runs.axes[0], along)
            else "-".join(["phase", *words])
        )
        yield (
            name,
            f"Phase diagram: {b} against {a}",
            charts.phase(runs, found, theta, a, b),
        )
    if first and stars[theta]["critical"].notna().sum() > 1:
        yield "collapse", "Data collapse", charts.collapse(runs, found, theta, [first])


def summary(runs: Runs) -> str:
    """What the table holds, what its symbols mean, and where theory applies."""
    rows = runs.rows
    legend = "; ".join(
        label(name) for name in ("N", "d", "L", "V", "m") if name in rows
    )
    theory = "" if is_own(rows) else f" Theory: ours. {runs.reason()}".rstrip()
    n_cells, varying = len(runs.settings(runs.axes)), ", ".join(runs.axes) or "nothing"
    seeds = (
        f"{n_cells} cells ({varying} vary), {len(rows)} rows, {rows['seed'].nunique()}"
        " seeds."
    )
    return f"{seeds} {legend}. m = 0: attention only.{theory}"


OPEN_ROWS = 24
TEMPLATE = Template(Path(__file__).with_name("page.html").read_text("utf-8"))


def page(
    title: str,
    summary: str,
    figures: Sequence[tuple[str, str, str, str]],
    sections: Mapping[str, str],
    folder: str,
    formats: Sequence[str],
) -> str:
    """The whole page: figures (name, heading, remark, SVG), sections by heading, where
    the files are.
    """
    ids = {
        heading: f"section-{heading.lower().replace(' ', '-')}" for heading in sections
    }
    listed = {name: heading for name, heading, _, _ in figures} | {
        anchor: heading for heading, anchor in ids.items()
    }
    return TEMPLATE.substitute(
        title=escape(title),
        summary=escape(summary),
        contents="".join(
            f'<li><a href="#{anchor}">{escape(heading)}</a></li>'
            for anchor, heading in listed.items()
        ),
        figures="".join(_figure(*figure, folder, formats) for figure in figures),
        sections="".join(
            f'<h2 id="{ids[heading]}">{escape(heading)}</h2>{content}\n'
            for heading, content in sections.items()
        ),
    )


def _figure(
    name: str, title: str, remark: str, svg: str, folder: str, formats: Sequence[str]
) -> str:
    points = float(re.search(r'viewBox="0 0 ([0-9.]+)', svg)[1])  # type: ignore[index]
    drawn = svg.replace(
        "<svg",
        f'<svg role="img" aria-label="{escape(title)}"'
        f' style="width:{points / 72 / PAGE * 56:.0f}rem"',
        1,
    )
    caption = (
        f"{escape(remark)} <span"
        f' class="file">{escape(folder)}/{name}.{", .".join(formats)}</span>'
    )
    return f'<h2 id="{name}">{escape(title)}</h2>\n<figure>{drawn}<figcaption>{caption}</figcaption></figure>\n'  # noqa: E501


def thresholds(runs: Runs, found: Fit) -> str:
    """The critical value of each cell and theta."""
    names, body = (
        [*found.thresholds.columns[: found.thresholds.columns.get_loc("theta")]],
        [],
    )
    names = [name for name in names if name in runs.axes or name not in runs.sizes]
    for theta in found.thresholds["theta"].unique():
        for row in runs.thresholds(found, theta, with_theory=True).to_dict("records"):
            star = interval(row["critical"], row["lo"], row["hi"])
            if row["censored"] != "no":
                star = (
                    f"{'<' if row['censored'] == 'left' else '>'} {text(row['tried'])},"
                    f" censored {row['censored']}"
                )
            theory = "" if row["theory"] != row["theory"] else rounded(row["theory"])
            cell = [text(row[name]) for name in names]
            body.append(
                [
                    *cell,
                    f"{theta:g}",
                    star,
                    theory,
                    row["n_seeds"],
                    row["n_levels"],
                    row["warning"],
                ]
            )
    heads = [*names, "theta", f"{runs.along}*", "theory", "seeds", "levels", "warning"]
    return (
        table(heads, body)
        + f"<p>{'N* in samples; in' if runs.along == 'N' else 'In'} brackets: the 95 %"
        " interval.</p>"
    )


def provenance(
    runs: Runs, facts: Mapping[str, Any], manifest: object, command: str
) -> str:
    """What was run, with what, and the command that made this page."""
    rows = runs.given
    told: dict[str, object] = {
        "rows": len(rows),
        "seeds": (
            f"{rows['seed'].nunique()}, from {rows['seed'].min()} to"
            f" {rows['seed'].max()}"
        ),
    }
    for name in (
        "status",
        "root_seed",
        "code_version",
        "precision",
        "dtype",
        "jax_version",
        "device_kind",
        "form",
    ):
        if name in rows:
            told[name] = ", ".join(
                f"{value} ({n} rows)"
                for value, n in rows[name].value_counts().sort_index().items()
            )
    if failed := len(facts.get("failures", ())):
        told["failed chunks"] = f"{failed}, which the command status lists"
    if todo := facts.get("todo"):
        told["runs still to do"] = todo
    manifest = manifest if isinstance(manifest, dict) else {}
    stated = {
        "versions": "versions",
        "commit": "commit",
        "xla_flags": "XLA_FLAGS",
        "command": "sweep",
    }
    told |= {name: manifest[key] for key, name in stated.items() if key in manifest}
    told["this report"] = command
    grid = (
        yaml.safe_dump(
            json.loads(json.dumps(manifest["grid"])), sort_keys=False, width=120
        )
        if "grid" in manifest
        else ""
    )
    return table(["", ""], [*told.items()]) + (
        _folded("The grid as it was resolved", f"<pre>{escape(grid)}</pre>")
        if grid
        else ""
    )


def table(heads: Sequence[str], body: Sequence[Sequence[object]]) -> str:
    """An HTML table, folded away if it is long."""
    lines = [[f"<td>{escape(str(cell))}</td>" for cell in row] for row in body]
    rows = "".join(f"<tr>{''.join(line)}</tr>\n" for line in lines)
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    whole = (
        "<div"
        f' class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>'  # noqa: E501
    )
    return _folded(f"{len(body)} rows", whole) if len(body) > OPEN_ROWS else whole


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"
