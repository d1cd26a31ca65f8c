"""Functions that the scripts of this folder share.

They select rows with given values, compute intervals over seeds, and write Markdown.
"""

import numpy as np
from scipy.stats import t


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
