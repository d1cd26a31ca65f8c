"""python -m benchmarks.documented: prints the table of docs/scaling.md.

The table is made from the saved figures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .asked import ASKED
from .record import joined, table

WORK = {
    "R1": "large run",
    "R2": "large run with an MLP",
    "S1": "small sweep",
    "S2": "large sweep",
}
"""Name of the work in work.yaml -> its name for readers."""

Rows = Mapping[str, Mapping[str, Any]]


def speed(rows: Rows) -> list[str]:
    """Returns the figures that a user may want, as a Markdown table."""
    lines = []
    for asked in ASKED:
        if asked.shown and asked.key in rows:
            row = rows[asked.key]
            name = re.sub("|".join(WORK), lambda work: WORK[work[0]], asked.figure)
            lines.append((name, joined(asked, row["values"]), row["beside"]))
    return table(("figure", "measured", "against embedding_bag"), lines)


if __name__ == "__main__":
    saved = json.loads(Path("results/benchmarks.json").read_text())["rows"]
    print(*speed(saved), sep="\n")
