"""The tables of docs/speed.md, CONTRIBUTING.md and the README, from the saved figures: python -m benchmarks.documented"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .record import ASKED, NOT_RUN, Asked, reached

WORK = {"R1": "large run", "R2": "large run with an MLP", "S1": "small sweep", "S2": "large sweep"}
"""What readers call the work of work.py."""

REACHED = {"neither": "neither", "bar": "requirement", "aim": "goal", "": "not run"}

README = {
    "R1": "one run: V 1000, d 128, L 64, N 131,072",
    "R2": "one run with an MLP: V 1000, d 64, L 32, m 1024, N 65,536",
    "S1-cold-torch": "a first sweep of 144 small runs, compilation included",
}
"""Rows of the README: key of the figure, and the work in words."""

Rows = Mapping[str, Mapping[str, Any]]


def speed(rows: Rows) -> list[str]:
    """All saved figures that something was asked of, as a Markdown table."""
    lines = ["| figure | measured | against embedding_bag |", "| --- | --- | --- |"]
    for asked, name, row in _saved(rows):
        shown = [unit(value) for unit, value in zip(asked.units, row["values"], strict=False)]
        measured = ("; " if ";" in asked.bar else ", ").join(shown) or NOT_RUN
        lines.append(f"| {name} | {measured} | {row['beside']} |")
    return lines


def asked_for(rows: Rows) -> list[str]:
    """What the project asked of the same figures, and which of it was reached."""
    lines = ["| figure | requirement | goal | reached |", "| --- | --- | --- | --- |"]
    return lines + [
        f"| {name} | {asked.bar} | {asked.aim} | {REACHED[reached(asked, row['values'])]} |" for asked, name, row in _saved(rows)
    ]


def _saved(rows: Rows) -> Iterator[tuple[Asked, str, Mapping[str, Any]]]:
    """The saved figures that something was asked of, as readers call them."""
    for asked in ASKED:
        if asked.bar and asked.key in rows:
            yield asked, re.sub("|".join(WORK), lambda found: WORK[found[0]], asked.figure), rows[asked.key]


def readme(rows: Rows) -> list[str]:
    """The figures of the README, with two digits."""
    lines = ["| work | over a plain loop | over a loop with `embedding_bag` |", "| --- | --- | --- |"]
    for key, work in README.items():
        times = (rows[key]["values"][0], float(rows[key]["beside"].rstrip("x")))
        lines.append(f"| {work} | " + " | ".join(f"{float(f'{t:.2g}'):g}" + (" (slower)" if t < 1 else "") for t in times) + " |")
    return lines


if __name__ == "__main__":
    saved = json.loads(Path("results/benchmarks.json").read_text())["rows"]
    print(*speed(saved), "", *asked_for(saved), "", *readme(saved), sep="\n")
