"""python -m benchmarks.documented: prints tables for docs/scaling.md and
CONTRIBUTING.md.

The tables are made from the saved figures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxrecall.sweep.running.progress import duration

from .asked import ASKED, Asked
from .record import joined, reached, table

WORK = {
    "R1": "large run",
    "R2": "large run with an MLP",
    "S1": "small sweep",
    "S2": "large sweep",
}
"""Name of the work in work.yaml -> its name for readers."""

REACHED = {"neither": "neither", "bar": "requirement", "aim": "goal", "": "not run"}

Rows = Mapping[str, Mapping[str, Any]]


def speed(rows: Rows) -> list[str]:
    """Returns the figures that a user may want, as a Markdown table."""
    lines = [
        (name, joined(asked, row["values"]), row["beside"])
        for asked, name, row in _saved(rows)
        if asked.shown
    ]
    return table(("figure", "measured", "against embedding_bag"), lines)


def asked_for(rows: Rows) -> list[str]:
    """Returns the requirements on these figures, and which of them were reached."""
    lines = [
        (name, asked.bar, asked.aim, REACHED[reached(asked, row["values"])])
        for asked, name, row in _saved(rows)
        if asked.bar
    ]
    return table(("figure", "requirement", "goal", "reached"), lines)


def plan(rows: Rows) -> list[str]:
    """Returns a table of the time and space that numbers of rows need at the saved
    rates.

    It assumes one process, one disk, and parts of 1000 rows.
    """
    keys = ("parts-written", "parts-read", "rows-compacted", "bytes")
    (written,), (read,), (compacted,), sizes = (rows[key]["values"] for key in keys)
    lines = []
    for exponent in (6, 7, 9):
        n = 10**exponent
        parts = n // 1000
        space = (n * each for each in sizes)
        times = parts / written, parts / read, n / compacted
        told = (f"10^{exponent}", f"{parts:,}", *map(_bytes, space))
        lines.append((*told, *map(duration, times)))
    heads = ("rows", "parts", "on disk, parts", "on disk, table", "to write all parts")
    return table((*heads, "to know what is done", "to compact"), lines)


def _bytes(size: float) -> str:
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"


def _saved(rows: Rows) -> Iterator[tuple[Asked, str, Mapping[str, Any]]]:
    """Yields the saved figures and their names for readers."""
    for asked in ASKED:
        if asked.key in rows:
            name = re.sub("|".join(WORK), lambda found: WORK[found[0]], asked.figure)
            yield asked, name, rows[asked.key]


if __name__ == "__main__":
    saved = json.loads(Path("results/benchmarks.json").read_text())["rows"]
    print(*speed(saved), "", *plan(saved), "", *asked_for(saved), sep="\n")
