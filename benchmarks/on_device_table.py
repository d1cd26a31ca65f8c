"""Writes the page of `on_device` from its lines, as on_device.yaml describes it.

Of several lines for the same measurement, the last one counts. What has no line is "not
run", with the reason if there is one. A line {"step": "remark", "section": ..., "text":
...} adds a paragraph to a section.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from jaxrecall.sweep.files import atomic_write

from .record import NOT_RUN, table

Line = dict[str, Any]

HEAD = """# Measured on an accelerator

{machine}. Written by `python -m benchmarks.on_device --out DIR`. All times are wall-clock seconds: the median of two or three calls after the first. Compile times are those of an empty folder of compiled programs, with XLA's autotuning unless a line says otherwise. Each number is from one machine on one day.
"""  # noqa: E501

DESCRIBED = yaml.safe_load(Path(__file__).with_name("on_device.yaml").read_text())
LONGEST = 10
"""The number of operations that the page lists."""
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
    for line in [line for line in measured if line["step"] == "profile"][-1:]:
        for name, calls, ms in line["longest"][:LONGEST]:
            about = {"step": "operation", "name": f"`{name}`"}
            measured.append(about | {"calls": calls, "milliseconds": ms})
    devices = [line for line in measured if line["step"] == "device"]
    parts = [HEAD.format(machine=machine(*devices[-1:])).strip()]
    for section in DESCRIBED["page"]:
        title, heads, cells = section["title"], section["heads"], section["cells"]
        rows = [of_row(cells, row, measured) for row in section["rows"]]
        parts += [f"## {title}", *section.get("notes", ())]
        parts.append("\n".join(table(heads, chain.from_iterable(rows), 1)))
        remark = {"step": "remark", "section": title}
        parts += [line["text"] for line in lines if line.items() >= remark.items()]
    reasons: dict[str, None] = {}
    for line in lines:
        if reason := line.get("skipped") or line.get("failed"):
            reasons[f"- {line['step']}: {str(reason).splitlines()[0]}"] = None
    if reasons:
        parts += ["## Not run", "\n".join(reasons)]
    return "\n\n".join(parts) + "\n"


def machine(device: Line | None = None) -> str:
    if not device:
        return f"The device is unknown: the step `device` was {NOT_RUN}"
    number = "One" if device["n"] == 1 else device["n"]
    memory = device.get("bytes")
    amount = f" ({memory / 2**30:.0f} GiB for JAX)" if memory else ""
    torch = f", torch {device['torch']}" if device.get("torch") else ""
    return (
        f"{number} {device['kind']}{amount} with {device['cores']} CPU cores,"
        f" Python {device['python']},"
        f" jax {device['jax']} on {device['platform_version']}{torch}"
    )


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
