"""The page: one HTML file with figures as inline SVG, nothing fetched and nothing run.

It is dark where the reader's screen is; figures keep a white card.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import yaml

from ..figures.runs import Runs
from ..figures.style import PAGE, interval, rounded, text
from ..fit.fitting import Fit

OPEN_ROWS = 24
TEMPLATE = Template(Path(__file__).with_name("page.html").read_text("utf-8"))


def page(
    title: str, summary: str, figures: Sequence[tuple[str, str, str, str]], sections: Mapping[str, str], folder: str, formats: Sequence[str]
) -> str:
    """The whole page: figures (name, heading, remark, SVG), sections by heading, where the files are."""
    ids = {heading: f"section-{heading.lower().replace(' ', '-')}" for heading in sections}
    listed = {name: heading for name, heading, _, _ in figures} | {anchor: heading for heading, anchor in ids.items()}
    return TEMPLATE.substitute(
        title=escape(title),
        summary=escape(summary),
        contents="".join(f'<li><a href="#{anchor}">{escape(heading)}</a></li>' for anchor, heading in listed.items()),
        figures="".join(_figure(*figure, folder, formats) for figure in figures),
        sections="".join(f'<h2 id="{ids[heading]}">{escape(heading)}</h2>{content}\n' for heading, content in sections.items()),
    )


def _figure(name: str, title: str, remark: str, svg: str, folder: str, formats: Sequence[str]) -> str:
    points = float(re.search(r'viewBox="0 0 ([0-9.]+)', svg)[1])  # type: ignore[index]
    drawn = svg.replace("<svg", f'<svg role="img" aria-label="{escape(title)}" style="width:{points / 72 / PAGE * 56:.0f}rem"', 1)
    caption = f'{escape(remark)} <span class="file">{escape(folder)}/{name}.{", .".join(formats)}</span>'
    return f'<h2 id="{name}">{escape(title)}</h2>\n<figure>{drawn}<figcaption>{caption}</figcaption></figure>\n'


def laws(found: Fit, remarks: Sequence[str]) -> str:
    """What the command fit prints: remarks on the rows, exponents with their intervals, and warnings."""
    return f"<pre>{escape(chr(10).join([*(f'note: {remark}' for remark in remarks), str(found)]))}</pre>"


def thresholds(runs: Runs, found: Fit) -> str:
    """The critical value of each cell and theta."""
    names, body = [*found.thresholds.columns[: found.thresholds.columns.get_loc("theta")]], []
    names = [name for name in names if name in runs.axes or name not in runs.sizes]
    for theta in found.thresholds["theta"].unique():
        for row in runs.thresholds(found, theta, theory=True).to_dict("records"):
            star = interval(row["critical"], row["lo"], row["hi"])
            if row["censored"] != "no":
                star = f"{'<' if row['censored'] == 'left' else '>'} {text(row['tried'])}, censored {row['censored']}"
            theory = "" if row["theory"] != row["theory"] else rounded(row["theory"])
            cell = [text(row[name]) for name in names]
            body.append([*cell, f"{theta:g}", star, theory, row["n_seeds"], row["n_levels"], row["warning"]])
    heads = [*names, "theta", f"{runs.along}*", "theory", "seeds", "levels", "warning"]
    return table(heads, body) + f"<p>{'N* in samples; in' if runs.along == 'N' else 'In'} brackets: the 95 % interval.</p>"


def provenance(runs: Runs, facts: Mapping[str, Any], manifest: object, command: str) -> str:
    """What was run, with what, and the command that made this page."""
    rows = runs.given
    told: dict[str, object] = {"rows": len(rows), "seeds": f"{rows['seed'].nunique()}, from {rows['seed'].min()} to {rows['seed'].max()}"}
    for name in ("status", "root_seed", "code_version", "precision", "dtype", "jax_version", "device_kind", "form"):
        if name in rows:
            told[name] = ", ".join(f"{value} ({n} rows)" for value, n in rows[name].value_counts().sort_index().items())
    if failed := len(facts.get("failures", ())):
        told["failed chunks"] = f"{failed}, which the command status lists"
    if todo := facts.get("todo"):
        told["runs still to do"] = todo
    manifest = manifest if isinstance(manifest, dict) else {}
    stated = {"versions": "versions", "commit": "commit", "xla_flags": "XLA_FLAGS", "command": "sweep"}
    told |= {name: manifest[key] for key, name in stated.items() if key in manifest}
    told["this report"] = command
    grid = yaml.safe_dump(json.loads(json.dumps(manifest["grid"])), sort_keys=False, width=120) if "grid" in manifest else ""
    return table(["", ""], [*told.items()]) + (_folded("The grid as it was resolved", f"<pre>{escape(grid)}</pre>") if grid else "")


def table(heads: Sequence[str], body: Sequence[Sequence[object]]) -> str:
    """An HTML table, folded away if it is long."""
    lines = [[f"<td>{escape(str(cell))}</td>" for cell in row] for row in body]
    rows = "".join(f"<tr>{''.join(line)}</tr>\n" for line in lines)
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    whole = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>'
    return _folded(f"{len(body)} rows", whole) if len(body) > OPEN_ROWS else whole


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"
