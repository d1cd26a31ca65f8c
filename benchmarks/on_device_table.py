"""Writes the page of `on_device` from its lines, as on_device.yaml describes it.

Of several lines for the same measurement, the last one counts. What has no line is "not
run", with the reason if there is one. A line {"step": "remark", "section": ..., "text":
...} adds a paragraph to a section.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from jaxrecall.sweep.files import atomic_write

from .record import NOT_RUN, table

Line = dict[str, Any]

DESCRIBED = yaml.safe_load(Path(__file__).with_name("on_device.yaml").read_text())
VARIED = ("point", "name", "of", "size", "dtype", "precision", "flags")
"""The fields by which lines of the same row differ."""


class Fields(dict[str, Any]):
    """The fields of a line. Those that it lacks are shown as nothing."""

    def __missing__(self, name: str) -> Any:
        return Fields()

    def __format__(self, spec: str) -> str:
        return ""


def write(lines: Path) -> Path:
    """Writes the page beside the file of lines, and returns its path."""
    path = lines.with_suffix(".md")
    atomic_write(path, page(read(lines)).encode())
    return path


def read(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def page(lines: Sequence[Line]) -> str:
    """Returns the page in Markdown."""
    measured = [line for line in lines if not line.keys() & {"skipped", "failed"}]
    devices = [Fields(line) for line in measured if line["step"] == "device"]
    for device in devices:
        device["gib"] = (device["bytes"] or 0) / 2**30
    head = DESCRIBED["head"].format_map(devices[-1] if devices else Fields())
    parts = ["# Measured on an accelerator", head]
    for section in DESCRIBED["page"]:
        title, heads, cells = section["title"], section["heads"], section["cells"]
        rows = [
            shown for row in section["rows"] for shown in of_row(cells, row, measured)
        ]
        if not rows:
            continue
        parts += [f"## {title}", *section.get("notes", ())]
        parts.append("\n".join(table(heads, rows, 1)))
        remark = {"step": "remark", "section": title}
        parts += [line["text"] for line in lines if line.items() >= remark.items()]
    reasons: dict[str, None] = {}
    for line in lines:
        if reason := line.get("skipped") or line.get("failed"):
            reasons[f"- {line['step']}: {str(reason).splitlines()[0]}"] = None
    if reasons:
        parts += ["## Not run", "\n".join(reasons)]
    return "\n\n".join(parts) + "\n"


def of_row(
    cells: Sequence[str], row: Line, measured: Iterable[Line]
) -> list[list[str]]:
    """Returns the cells of each measurement that a row shows."""
    last: dict[tuple[Any, ...], Line] = {}
    for line in measured:
        if line.items() >= row["lines"].items():
            last[tuple(map(line.get, VARIED))] = line
    if not last and "optional" in row:
        return []
    if not last:
        missing = filled(cells, Fields(row["lines"]), row["what"])
        missing[missing.index("")] = NOT_RUN
        return [missing]
    rows = []
    for line in last.values():
        fields = Fields(line)
        unequal = line.get("unequal", {}).items()
        fields["unequal"] = ", ".join(f"{column} {n}" for column, n in unequal) or 0
        if "median" in line:
            runs = row.get("runs", line.get("runs", 1))
            fields["ms"] = 1e3 * line["median"] / runs
        fields["rate"] = row.get("rate", "").format_map(fields)
        flags = f", `{line['flags']}`" if line.get("flags") else ""
        rows.append(filled(cells, fields, row["what"] + flags))
    return rows


def filled(cells: Iterable[str], fields: Fields, what: str) -> list[str]:
    fields["what"] = what.format_map(fields)
    return [cell.format_map(fields) for cell in cells]
