"""The tables of docs/speed.md and of the README, from the saved figures: python -m benchmarks.documented"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .record import ASKED, NOT_RUN, reached

WORK = {"R1": "large run", "R2": "large run with an MLP", "S1": "small sweep", "S2": "large sweep"}
"""What readers call the work of work.py."""

REACHED = {"neither": "neither", "bar": "requirement", "aim": "goal", "": ""}

README = {
    "R1": "one run: V 1000, d 128, L 64, N 131,072",
    "R2": "one run with an MLP: V 1000, d 64, L 32, m 1024, N 65,536",
    "S1-cold-torch": "a first sweep of 144 small runs, compilation included",
}
"""Rows of the README: key of the figure, and the work in words."""

Rows = Mapping[str, Mapping[str, Any]]


def speed(rows: Rows) -> list[str]:
    """All saved figures that something was asked of, as a Markdown table."""
    lines = ["| figure | measured | against embedding_bag | requirement | goal | reached |", "| --- | --- | --- | --- | --- | --- |"]
    for asked in ASKED:
        if not asked.bar or asked.key not in rows:
            continue
        row = rows[asked.key]
        shown = [unit(value) for unit, value in zip(asked.units, row["values"], strict=False)]
        measured = ("; " if ";" in asked.bar else ", ").join(shown) or NOT_RUN
        name = re.sub("|".join(WORK), lambda found: WORK[found[0]], asked.figure)
        cells = (name, measured, row["beside"], asked.bar, asked.aim, REACHED[reached(asked, row["values"])])
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def readme(rows: Rows) -> list[str]:
    """The figures of the README, with two digits."""
    lines = ["| work | over a plain loop | over a loop with `embedding_bag` |", "| --- | --- | --- |"]
    for key, work in README.items():
        times = (rows[key]["values"][0], float(rows[key]["beside"].rstrip("x")))
        lines.append(f"| {work} | " + " | ".join(f"{float(f'{t:.2g}'):g}" + (" (slower)" if t < 1 else "") for t in times) + " |")
    return lines


if __name__ == "__main__":
    saved = json.loads(Path("results/benchmarks.json").read_text())["rows"]
    print(*speed(saved), "", *readme(saved), sep="\n")
