"""The page: one HTML file with everything in it, figures as inline SVG, nothing fetched and nothing run.

It is dark where the reader's screen is; figures keep a white card.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import yaml
from pandas.api.types import is_numeric_dtype

from ...sweep.running.status import MAX_SECONDS
from ..figures import predict
from ..figures.paper import PAGE
from ..figures.study import Study, reported
from ..figures.style import Picture, interval, rounded, text
from ..fit.estimate import METHOD_TEXT

OPEN_ROWS = 24
TEMPLATE = Template(Path(__file__).with_name("page.html").read_text("utf-8"))
Section = tuple[str, str]
"""A heading and its HTML."""


def page(
    title: str, summary: str, figures: Sequence[tuple[Picture, str]], left_out: Sequence[Section], sections: Sequence[Section], *files: Any
) -> str:
    """The whole page: figures with their SVG and captions, what was left out and why, and sections.

    `files` are the folder and the formats of the figures beside it.
    """
    if left_out:
        missing = "".join(f"<li>{escape(what)}: {escape(why)}.</li>" for what, why in by_reason(left_out))
        sections = [("Left out", f"<ul>{missing}</ul>"), *sections]
    listed = [(picture.name, picture.title) for picture, _ in figures] + [(_id(heading), heading) for heading, _ in sections]
    return TEMPLATE.substitute(
        title=escape(title),
        summary=escape(summary),
        contents="".join(f'<li><a href="#{anchor}">{escape(heading)}</a></li>' for anchor, heading in listed),
        figures="".join(_figure(picture, svg, *files) for picture, svg in figures),
        sections="".join(f'<h2 id="{_id(heading)}">{escape(heading)}</h2>{content}\n' for heading, content in sections),
    )


def by_reason(left_out: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """What was left out, each reason once."""
    reasons = dict.fromkeys(why for _, why in left_out)
    return [(", ".join(what for what, other in left_out if other == why), why) for why in reasons]


def _id(heading: str) -> str:
    return f"section-{heading.lower().replace(' ', '-')}"


def _figure(picture: Picture, svg: str, folder: str, formats: Sequence[str]) -> str:
    size = f"width:{picture.figure.get_figwidth() / PAGE * 56:.0f}rem"
    drawn = svg.replace("<svg", f'<svg role="img" aria-label="{escape(picture.title)}" style="{size}"', 1)
    files = f"{folder}/{picture.name}.{', .'.join(formats)}"
    caption = f'{escape(picture.caption)} <span class="file">{escape(files)}</span>'
    heading = f'<h2 id="{picture.name}">{escape(picture.title)}</h2>'
    return f"{heading}\n<figure>{drawn}<figcaption>{caption}</figcaption></figure>\n"


def sections(
    study: Study, remarks: Sequence[str], facts: Mapping[str, Any] | None, manifest: Mapping[str, Any] | None, command: str
) -> list[Section]:
    """The sections of tables."""
    return [
        ("Exponents", _exponents(study)),
        ("Thresholds", _thresholds(study)),
        ("Warnings and remarks", _warnings(study, remarks)),
        ("Failures", _failures(facts)),
        ("Provenance", _provenance(study, manifest or {}, command)),
    ]


def _exponents(study: Study) -> str:
    """Critical values ~ product of axis^exponent, and theory's exponents over the same cells."""
    heads = ["part", "theta", "axis", "exponent", "theory", "cells", "seeds", "warning"]
    body = []
    for theta in study.thetas:
        theirs = study.exponents_of(predict.critical_N, theta) if study.along == "N" else {}
        for row in reported(study.fit.exponents, theta).itertuples():
            found = interval(row.exponent, row.lo, row.hi, ".3f")
            theory = interval(theirs.get((str(row.part), str(row.axis)), float("nan")), form=".3f")
            body.append([row.part, f"{theta:g}", row.axis, found, theory, row.n_cells, row.n_seeds, row.warning])
    if not body:
        return "<p>No other axis of V, N, d, L, m varies, so there is no exponent.</p>"
    return table(heads, body) + f"<p>In brackets: the 95 % interval. Method: {escape(METHOD_TEXT)}.</p>"


def _thresholds(study: Study) -> str:
    """The critical value of each cell and theta."""
    names = [*study.families[0].cells[0].names]
    heads, body = [*study.axes, *names, "theta", f"{study.along}*", "theory", "seeds", "levels", "warning"], []
    for theta in study.thetas:
        for cell, row in study.thresholds(theta).iterrows():
            found = interval(row["critical"], row["lo"], row["hi"])
            if row["censored"] != "no":
                left = row["censored"] == "left"
                found = f"{'<' if left else '>'} {text(row['N_above' if left else 'N_below'])}, censored {row['censored']}"
            theirs = predict.critical_N(study.cells.loc[cell], theta) if study.along == "N" else None
            theory = "" if theirs is None else "never" if theirs == float("inf") else rounded(theirs)
            at = [text(study.cells[axis][cell]) for axis in study.axes] + [text(row[name]) for name in names]
            body.append([*at, f"{theta:g}", found, theory, row["n_seeds"], row["n_levels"], row["warning"]])
    return table(heads, body) + f"<p>{'N* in samples; in' if study.along == 'N' else 'In'} brackets: the 95 % interval.</p>"


def _warnings(study: Study, remarks: Sequence[str]) -> str:
    """Every warning of the fit, remarks on the rows, and the other diagnostics."""
    rows = study.fit.diagnostics
    warned = rows[rows["diagnostic"] == "warning"]
    items = [*remarks, *(f"{row.part}, theta = {row.theta:g}: {row.text}" for row in warned.itertuples())]
    rest = rows[~rows["diagnostic"].isin(["warning", "remark"])]
    heads = ["part", "theta", "diagnostic", "of", "value", "text"]
    body = [
        [r.part, interval(r.theta, form="g"), r.diagnostic, r.subject, interval(r.value, r.lo, r.hi, ".3f"), r.text]
        for r in rest.itertuples()
    ]
    listed = "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>" if items else "<p>None.</p>"
    return listed + folded(f"Diagnostics ({len(body)} rows)", table(heads, body))


def _failures(facts: Mapping[str, Any] | None) -> str:
    """Chunks that failed, with the command that repeats each."""
    if facts is None:
        return "<p>A file says nothing of failures.</p>"
    names = ("runs", "missing", "bucket", "host", "error", "repeat")
    body = [[str(failure[name]).partition("\n")[0] for name in names] for failure in facts["failures"]]
    heads = ["runs", "of them missing", "program", "host", "error", "to try again"]
    bad = [f"{facts[status]} rows {status}" for status in ("nonfinite", "degenerate") if facts.get(status)]
    bad += [f"unreadable: {file['path']} ({file['reason']})" for file in facts["unreadable"]]
    bad += [f"{facts['todo']} runs of the grid are still to do"] if facts["todo"] else []
    unfinished = f"<p>{escape('; '.join(bad))}.</p>" if bad else ""
    return (table(heads, body) if body else "<p>No chunk has failed.</p>") + unfinished


def _provenance(study: Study, manifest: Mapping[str, Any], command: str) -> str:
    """What was run, with what, and the command that made this page."""
    rows, facts = study.rows, {}
    statuses = [f"{n} {status}" for status, n in rows["status"].value_counts().items()] if "status" in rows else []
    facts["rows"] = f"{len(rows)} ({', '.join(statuses)})" if statuses else len(rows)
    facts["seeds"] = f"{rows['seed'].nunique()}, from {rows['seed'].min()} to {rows['seed'].max()}"
    for name in ("root_seed", "code_version", "precision", "dtype", "jax_version", "device_kind", "form"):
        if name in rows:
            facts[name] = ", ".join(f"{value} ({n} rows)" for value, n in rows[name].value_counts().sort_index().items())
    if "seconds" in rows and is_numeric_dtype(rows["seconds"]):
        facts["simulated for"] = f"{rows['seconds'][rows['seconds'].between(0, MAX_SECONDS)].sum():.1f} s"
    manifest = manifest if isinstance(manifest, dict) else {}
    if isinstance(versions := manifest.get("versions"), dict):
        facts["versions"] = ", ".join(f"{name} {version}" for name, version in versions.items())
    stated = {"commit": "commit", "xla_flags": "XLA_FLAGS", "command": "sweep"}
    facts |= {name: manifest[key] for key, name in stated.items() if key in manifest}
    facts["this report"] = command
    grid = yaml.safe_dump(json.loads(json.dumps(manifest["grid"])), sort_keys=False, width=120) if "grid" in manifest else ""
    return table(["", ""], [*facts.items()]) + (folded("The grid as it was resolved", f"<pre>{escape(grid)}</pre>") if grid else "")


def table(heads: Sequence[str], body: Sequence[Sequence[Any]]) -> str:
    """An HTML table, folded away if it is long."""
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    rows = ("".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in body)
    lines = "".join(f"<tr>{row}</tr>\n" for row in rows)
    whole = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{lines}</tbody></table></div>'
    return folded(f"{len(body)} rows", whole) if len(body) > OPEN_ROWS else whole


def folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"
