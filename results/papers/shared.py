"""What the scripts of this folder share: tables, and how figures are saved."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

sys.path.append(str(Path(__file__).parent.parent))

from table import (
    as_table,
    at,
    bracketed,
    each,
    formatted,
    interval,
    markdown,
    print_tables,
    tables_of,
    with_interval,
)

__all__ = [
    "CLAIM",
    "as_table",
    "at",
    "bracketed",
    "divided",
    "each",
    "formatted",
    "interval",
    "markdown",
    "print_tables",
    "save",
    "tables_of",
    "with_interval",
]

CLAIM = {"linestyle": (0, (3, 1.5)), "marker": "none", "width": 0.75}
"""The style of lines of theory and of claims."""


def divided(n_rows, n_columns, height, width=5.5):
    """Returns a figure and a list of its parts, row by row; lengths are in inches."""
    whole = plt.figure(figsize=(width, height), dpi=200, layout="constrained")
    parts = whole.subfigures(n_rows, n_columns, squeeze=False)
    return whole, [*parts.flat]


def save(name, figure):
    """Saves a figure beside this file."""
    figure.savefig(Path(__file__).with_name(f"{name}.png"))
    plt.close(figure)
