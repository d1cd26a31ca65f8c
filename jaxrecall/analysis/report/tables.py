"""The tables of a report, as HTML: exponents, thresholds, warnings, failures, and where it all came from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import yaml

from ...sweep.running.status import MAX_SECONDS
from ..figures import predict
from ..figures.study import Study
from ..figures.style import text
from ..fit.estimate import METHODS, REPORTED

OPEN_ROWS = 24
WHY = (
    f"<b>{REPORTED}</b> is the reported estimate: it takes each cell's crossing by itself and assumes no slope, ceiling or shape that "
    "cells would share, so curves that level off cannot bend the exponents."
)


def exponents(study: Study) -> str:
    """N* ~ product of axis^exponent: every method side by side, and theory's exponents over the same cells."""
    rows = study.fit.exponents
    if rows.empty:
        return "<p>No axis of V, d, L, m varies, so there is no exponent.</p>"
    theirs = {}
    for theta in study.thetas:
        predicted = [predict.critical_N(cell, theta) or float("nan") for cell in study.cells.to_dict("records")]
        theirs |= {(theta, *key): value for key, value in study.exponents_of(predicted, theta).items()}
    body = []
    for (part, theta, axis), mine in rows.groupby(["part", "theta", "axis"], sort=False):
        by_method = mine.set_index("method")
        record = by_method.loc[REPORTED]
        values = [_interval(by_method.loc[m], "exponent", "{:.3f}") if m in by_method.index else "" for m in study.methods]
        e = theirs.get((theta, part, axis), float("nan"))
        counts = [str(record["n_cells"]), str(record["n_seeds"])]
        body.append([part, f"{theta:g}", axis, *values, f"{e:.3f}" if e == e else "", *counts, record["warning"]])
    heads = ["part", "theta", "axis", *study.methods, "theory", "cells", "seeds", "to mind"]
    how = "".join(f"<li><b>{name}</b>: {escape(METHODS[name])}</li>" for name in study.methods)
    return table(heads, body, bold=heads.index(REPORTED)) + f"<p>In brackets: 95 % interval. {WHY}</p><ul>{how}</ul>"


def thresholds(study: Study) -> str:
    """N* of each cell and theta: every method side by side."""
    axes = list(study.axes)
    body = []
    for theta in study.thetas:
        found = study.fit.thresholds
        found = {m: found[(found["theta"] == theta) & (found["method"] == m)].reset_index(drop=True) for m in study.methods}
        reported = study.thresholds(theta)
        for cell in study.cells.index:
            row = reported.loc[cell]
            values = [_interval(found[m].loc[cell], "N_star", "{:.4g}") for m in study.methods]
            if row["censored"] != "no":
                end = row["N_above"] if row["censored"] == "left" else row["N_below"]
                sign = "<" if row["censored"] == "left" else ">"
                values = [f"{sign} {end}, censored {row['censored']}", *[""] * (len(study.methods) - 1)]
            theirs = predict.critical_N(study.cells.loc[cell], theta)
            prediction = "" if theirs is None else "never" if theirs == float("inf") else f"{theirs:.4g}"
            at = [text(study.cells[axis][cell]) for axis in axes]
            body.append([*at, f"{theta:g}", *values, prediction, str(row["n_seeds"]), str(row["n_levels"]), row["warning"]])
    heads = [*axes, "theta", *study.methods, "theory", "seeds", "levels", "to mind"]
    return table(heads, body, bold=heads.index(REPORTED)) + "<p>N* in samples; in brackets: 95 % interval.</p>"


def warnings(study: Study, remarks: Sequence[str]) -> str:
    """Every warning of the fit, remarks on the rows, and the other diagnostics."""
    rows = study.fit.diagnostics
    warned = rows[rows["diagnostic"] == "warning"]
    items = [*remarks, *(f"{row.part}, theta = {row.theta:g}: {row.text}" for row in warned.itertuples())]
    rest = rows[~rows["diagnostic"].isin(["warning", "remark"])]
    heads = ["part", "theta", "diagnostic", "of", "value", "text"]
    body = [
        [r.part, f"{r.theta:g}" if r.theta == r.theta else "", r.diagnostic, r.subject, _between(r.value, r.lo, r.hi, "{:.3f}"), r.text]
        for r in rest.itertuples()
    ]
    listed = "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>" if items else "<p>None.</p>"
    return listed + folded(f"Diagnostics ({len(body)} rows)", table(heads, body))


def failures(facts: Mapping[str, Any] | None) -> str:
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


def provenance(study: Study, manifest: Mapping[str, Any] | None, command: str) -> str:
    """What was run, with what, and the command that made this page."""
    from pandas.api.types import is_numeric_dtype

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
    facts |= {"sweep": manifest["command"]} if "command" in manifest else {}
    facts["this report"] = command
    body = [[name, str(value)] for name, value in facts.items()]
    grid = yaml.safe_dump(json.loads(json.dumps(manifest["grid"])), sort_keys=False, width=120) if "grid" in manifest else ""
    return table(["", ""], body) + (folded("The grid as it was resolved", f"<pre>{escape(grid)}</pre>") if grid else "")


def _interval(row: Any, name: str, form: str) -> str:
    return _between(row[name], row["lo"], row["hi"], form)


def _between(value: float, low: float, high: float, form: str) -> str:
    if value != value:
        return ""
    return form.format(value) + (f" ({form.format(low)} to {form.format(high)})" if low == low else "")


def table(heads: Sequence[str], body: Sequence[Sequence[str]], bold: int = -1) -> str:
    """An HTML table, folded away if it is long; column `bold` stands out."""
    marks = [' class="record"' * (i == bold) for i in range(len(heads))]
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    rows = ("".join(f"<td{mark}>{escape(cell)}</td>" for mark, cell in zip(marks, row, strict=True)) for row in body)
    lines = "".join(f"<tr>{row}</tr>\n" for row in rows)
    whole = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{lines}</tbody></table></div>'
    return folded(f"{len(body)} rows", whole) if len(body) > OPEN_ROWS else whole


def folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"
