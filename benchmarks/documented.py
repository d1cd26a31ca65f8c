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

from .asked import ASKED, Asked
from .record import joined, reached

WORK = {
    "R1": "large run",
    "R2": "large run with an MLP",
    "S1": "small sweep",
    "S2": "large sweep",
}
"""Name of the work in work.py -> its name for readers."""

REACHED = {"neither": "neither", "bar": "requirement", "aim": "goal", "": "not run"}

SHOWN = (
    *(
        "R1",
        "R1-full",
        "R1-vmap",
        "R2",
        "S1-warm",
        "S1-vmap",
        "S1-cold-torch",
        "S1-cold-jax",
        "S1-cold-vmap",
        "S2-warm",
        "memory",
        "search",
        "pool",
        "later",
    ),
    *("two-workers", "fit"),
)
"""Keys of the figures that docs/scaling.md shows; results/benchmarks.md lists all."""

Rows = Mapping[str, Mapping[str, Any]]


def speed(rows: Rows) -> list[str]:
    """Returns the figures that a user may want, as a Markdown table."""
    lines = ["| figure | measured | against embedding_bag |", "| --- | --- | --- |"]
    for asked, name, row in _saved(rows):
        if asked.key not in SHOWN:
            continue
        measured = joined(asked, row["values"])
        lines.append(f"| {name} | {measured} | {row['beside']} |")
    return lines


def asked_for(rows: Rows) -> list[str]:
    """Returns the requirements on these figures, and which of them were reached."""
    lines = ["| figure | requirement | goal | reached |", "| --- | --- | --- | --- |"]
    for asked, name, row in _saved(rows):
        if asked.bar:
            level = REACHED[reached(asked, row["values"])]
            lines.append(f"| {name} | {asked.bar} | {asked.aim} | {level} |")
    return lines


def _saved(rows: Rows) -> Iterator[tuple[Asked, str, Mapping[str, Any]]]:
    """Yields the saved figures and their names for readers."""
    for asked in ASKED:
        if asked.key in rows:
            yield (
                asked,
                re.sub("|".join(WORK), lambda found: WORK[found[0]], asked.figure),
                rows[asked.key],
            )


if __name__ == "__main__":
    saved = json.loads(Path("results/benchmarks.json").read_text())["rows"]
    print(*speed(saved), "", *asked_for(saved), sep="\n")
