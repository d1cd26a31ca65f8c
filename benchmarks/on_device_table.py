"""Writes the page of `on_device` from its lines.

Of several lines for the same measurement, the last one counts. What has no line is "not
run", with the reason if there is one. A line {"step": "remark", "section": ..., "text":
...} adds a paragraph to a section.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxrecall.sweep.files import atomic_write

Line = dict[str, Any]

NOT_RUN = "not run"

HEAD = """# Measured on an accelerator

{machine}. Written by `python -m benchmarks.on_device --out DIR`. All times are wall-clock seconds: the median of two or three calls after the first. Compile times are those of an empty folder of compiled programs, with XLA's autotuning unless a line says otherwise. Each number is from one machine on one day.
"""  # noqa: E501

LONGEST = 10
"""The number of operations that the page lists."""


class Timed(NamedTuple):
    """A row of the table of times: its name, and the fields of its lines."""

    what: str
    fields: Line
    runs: int = 0
    """The number of runs of a call. By default, the line has it."""


def r1(width: int, exact: str = "guarded") -> Timed:
    name = "R1" if exact == "guarded" else f"R1, `exact: {exact}`"
    return Timed(name, {"step": "R1", "exact": exact, "width": width}, width)


def by_width(what: str, step: str, width: int, runs: int = 0) -> Timed:
    return Timed(what, {"step": step, "width": width}, runs or width)


def torch(form: str, of: str, what: str) -> Timed:
    fields = {"step": "torch", "form": form, "of": of}
    return Timed(f"torch loop, {what}, draws not included, `{form}`", fields)


SOME_OF_S1 = "runs of S1 with the largest d and L"
S1_ALONE = "S1, device and rows alone, one thread"
TIMED = (
    Timed("S1 by `jaxrecall.run`, 144 runs", {"step": "S1"}, 144),
    *(by_width(S1_ALONE, "S1 by width", width, 144) for width in (16, 48, 144)),
    *(r1(width) for width in (1, 16, 64)),
    *(r1(width, "full") for width in (1, 4)),
    *(by_width("R2 (MLP, m 1024)", "R2", width) for width in (1, 16)),
    Timed("pool, by `jaxrecall.run`", {"step": "pool"}),
    *(by_width("1000 further steps", "later", width) for width in (1, 64)),
    Timed("a user's simulator at four sizes, one seed each", {"step": "own, sizes"}),
    Timed("a user's simulator at one size", {"step": "own, seeds"}),
    Timed("the same by `jax.jit(jax.vmap(...))`", {"step": "own, plain JAX"}),
    *(torch(form, "R1", "R1") for form in ("keys", "bag")),
    *(torch(form, "S1", SOME_OF_S1) for form in ("keys", "bag")),
)


def write(lines: Path) -> Path:
    """Writes the page beside the file of lines, and returns its path."""
    path = lines.with_suffix(".md")
    atomic_write(path, page(read(lines)).encode())
    return path


def read(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def page(lines: Sequence[Line]) -> str:
    """Returns the page in Markdown."""
    sections = {
        "Rows": rows(lines),
        "Time": times(lines),
        "Profile": profile(lines),
        "Rates": rates(lines),
    }
    parts = [HEAD.format(machine=machine(lines)).strip()]
    for name, table in sections.items():
        parts += [f"## {name}", "\n".join(table), *remarks(lines, name)]
    parts += left(lines)
    return "\n\n".join(parts) + "\n"


def remarks(lines: Sequence[Line], section: str) -> list[str]:
    of_section = {"step": "remark", "section": section}
    return [line["text"] for line in matching(lines, of_section)]


def matching(lines: Sequence[Line], fields: Line) -> list[Line]:
    """Returns the lines that have these fields."""
    return [line for line in lines if line.items() >= fields.items()]


def measured(lines: Sequence[Line], fields: Line) -> list[Line]:
    """Returns the last measurement for each setting of XLA_FLAGS."""
    found: dict[str, Line] = {}
    for line in matching(lines, fields):
        if "skipped" not in line and "failed" not in line:
            found[line.get("flags", "")] = line
    return list(found.values())


def machine(lines: Sequence[Line]) -> str:
    devices = measured(lines, {"step": "device"})
    if not devices:
        return f"The device is unknown: the step `device` was {NOT_RUN}"
    device = devices[-1]
    number = "One" if device["n"] == 1 else str(device["n"])
    memory = device.get("bytes")
    amount = f" ({memory / 2**30:.0f} GiB for JAX)" if memory else ""
    versions = [f"jax {device['jax']} on {device['platform_version']}"]
    if device.get("torch"):
        versions.append(f"torch {device['torch']}")
    return (
        f"{number} {device['kind']}{amount} with {device['cores']} CPU cores,"
        f" Python {device['python']}, {', '.join(versions)}"
    )


def table(heads: Sequence[str], entries: Sequence[Sequence[Any]]) -> list[str]:
    """Returns the lines of a table whose first column is text."""
    lines = ["| " + " | ".join(heads) + " |"]
    lines.append("| --- " + "| ---: " * (len(heads) - 1) + "|")
    for cells in entries:
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def rows(lines: Sequence[Line]) -> list[str]:
    """Compares rows with those of a CPU."""
    entries = []
    points = dict.fromkeys(line.get("point") for line in matching(lines, ROWS))
    for point in filter(None, points):
        for line in measured(lines, ROWS | {"point": point}):
            entries.append(agreement(point, line))
    for line in measured(lines, {"step": "S1"}):
        if "unequal" in line:
            entries.append(agreement("the small sweep S1", line))
    if not entries:
        entries.append((NOT_RUN, "", "", ""))
    heads = ("runs", "rows", "unequal counts, checksums, forms", "largest difference")
    note = (
        "Rows are compared with those of a CPU. Differences of other columns are"
        " relative to 0.001 plus the value."
    )
    return [note, "", *table(heads, entries)]


ROWS = {"step": "rows"}


def agreement(name: str, line: Line) -> tuple[Any, ...]:
    unequal = ", ".join(f"{column} {n}" for column, n in line["unequal"].items())
    return name, line["rows"], unequal or 0, line["largest"]


def times(lines: Sequence[Line]) -> list[str]:
    """Shows the times, with one row for each entry of TIMED and each XLA_FLAGS."""
    entries: list[Sequence[Any]] = []
    for row in TIMED:
        found = measured(lines, row.fields)
        if not found:
            width = row.fields.get("width", "")
            entries.append((row.what, width, "", NOT_RUN, "", ""))
        for line in found:
            entries.append(timed(row, line))
    heads = ("what", "vmapped runs", "tile", "seconds", "ms a run", "compile s")
    return table(heads, entries)


def timed(row: Timed, line: Line) -> tuple[Any, ...]:
    flags = f", `{line['flags']}`" if line.get("flags") else ""
    runs = row.runs or line["runs"]
    n_runs = "" if row.runs else f", {runs} run{'s' * (runs > 1)}"
    seconds = line["median"]
    compiled = line.get("compiled")
    return (
        f"{row.what}{n_runs}{flags}",
        line.get("width", ""),
        line.get("tile", ""),
        f"{seconds:.3g}",
        f"{1e3 * seconds / runs:.3g}",
        "" if compiled is None else f"{compiled:.0f}",
    )


def profile(lines: Sequence[Line]) -> list[str]:
    """Lists the longest operations of S1."""
    found = measured(lines, {"step": "profile"})
    heads = (
        "longest operations of S1, which contain each other",
        "calls",
        "ms",
    )
    entries = found[-1]["longest"][:LONGEST] if found else [(NOT_RUN, "", "")]
    return table(heads, [(f"`{name}`", n, ms) for name, n, ms in entries])


def rates(lines: Sequence[Line]) -> list[str]:
    """Shows the rates of primitives."""
    entries: list[tuple[str, str]] = []
    largest: dict[str, Line] = {}
    for line in measured_all(lines, "products"):
        largest[line["precision"]] = line
    for precision, line in largest.items():
        what = f"float32 matrix product, size {line['size']}, `{precision}`"
        entries.append((what, f"{line['tflops']:.3g} TFLOP/s"))
    for line in measured_all(lines, "random words"):
        entries.append(("random words (threefry)", f"{line['a_second']} a second"))
    for line in measured_all(lines, "gather"):
        what = f"gathers from {line['size']} entries"
        entries.append((what, f"{line['a_second']} a second"))
    for line in measured_all(lines, "scatter"):
        what = f"scatter-adds of {line['dtype']} into {line['size']} entries"
        entries.append((what, f"{line['a_second']} a second"))
    for line in measured_all(lines, LOOP):
        each = 1e6 * line["median"] / 1000
        what = "iterations of a loop whose number is known only on the device"
        entries.append((what, f"{each:.3g} us each"))
    return table(("what", "rate"), entries or [("products, primitives", NOT_RUN)])


LOOP = "loop of 1000 iterations, traced bound"


def measured_all(lines: Sequence[Line], step: str) -> list[Line]:
    """Returns the last line of a step for each size, type and precision."""
    found: dict[tuple[Any, ...], Line] = {}
    for line in matching(lines, {"step": step}):
        if "skipped" not in line and "failed" not in line:
            case = line.get("size"), line.get("dtype"), line.get("precision")
            found[case] = line
    return list(found.values())


def left(lines: Sequence[Line]) -> list[str]:
    """Returns a section with the reasons why steps were not run."""
    reasons: dict[str, None] = {}
    for line in lines:
        reason = line.get("skipped") or line.get("failed")
        if reason:
            reasons[f"- {line['step']}: {str(reason).splitlines()[0]}"] = None
    return ["## Not run", "\n".join(reasons)] if reasons else []
