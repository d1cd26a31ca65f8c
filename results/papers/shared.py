"""Functions that the scripts of this folder share.

They select rows with given values, compute intervals over seeds, write Markdown, and
save figures.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import t

CLAIM = {"linestyle": (0, (3, 1.5)), "marker": "none", "width": 0.75}
"""The style of lines of theory and of claims."""


def at(table, **values):
    """Returns the rows with these values; floats are equal up to rounding."""
    for name, value in values.items():
        table = table[
            (
                np.isclose(table[name], value)
                if isinstance(value, float)
                else table[name] == value
            )
        ]
    return table


def interval(values):
    """The mean over seeds and the ends of its 95 % interval (Student's t)."""
    values = np.asarray(values, float)
    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return values.mean(), values.mean() - half, values.mean() + half


def markdown(heads, body):
    return "\n".join(
        "| " + " | ".join(map(str, line)) + " |"
        for line in [heads, ["---"] * len(heads), *body]
    )


def divided(n_rows, n_columns, height, width=5.5):
    """Returns a figure and a list of its parts, row by row; lengths are in inches."""
    whole = plt.figure(figsize=(width, height), dpi=200, layout="constrained")
    return whole, [*whole.subfigures(n_rows, n_columns).flat]


def save(name, figure):
    """Saves a figure beside this file."""
    figure.savefig(Path(__file__).with_name(f"{name}.png"))
    plt.close(figure)
