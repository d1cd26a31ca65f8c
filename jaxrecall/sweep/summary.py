"""The summary over seeds that crosses theta: the mean, the median, or a share of seeds.

All three are means of one number per run, so that a single estimator finds where any of
them crosses theta. The median of a measure reaches theta where half of the seeds have
reached it. A share of seeds is the mean of whether each seed has reached a level.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

Values = Any  # a number, or an array of numbers

ALLOWED = 'mean, median, or the fraction of seeds above a level, as in "above 0.9"'
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


@dataclass(frozen=True)
class Summary:
    """A summary over seeds. `level` is that of a share, in units of the measure."""

    kind: str = "mean"  # mean, median or above
    level: float = 0.0

    @property
    def is_share(self) -> bool:
        return self.kind == "above"

    def crossed(self, theta: float) -> float:
        """Returns what the mean of `values` crosses where the summary crosses theta."""
        return 0.5 if self.kind == "median" else theta

    def values(self, values: Values, theta: float, falls: bool = False) -> Values:
        """Returns the numbers whose mean over seeds is compared with `crossed(theta)`.

        The numbers rise along the axis. If `falls` is true, `values` are 1 - measure,
        and theta is 1 - theta. NaN stays NaN. Where a run has no number, as after it
        diverged, the measure is minus infinity for a share, which is below each level.
        """
        if self.kind == "mean":
            return values
        reached = values >= theta
        if self.kind == "above":
            level = 1 - self.level if falls else self.level
            reached = values > level if falls else values >= level
        return np.where(np.isnan(values), np.nan, reached)

    def __str__(self) -> str:
        return f"above {self.level:g}" if self.is_share else self.kind


MEAN = Summary()


def parsed(text: object) -> Summary | None:
    """Returns the summary that a text names. None if it names none."""
    if text in ("mean", "median"):
        return Summary(str(text))
    found = re.fullmatch(rf"above ({NUMBER})", str(text))
    return Summary("above", float(found[1])) if found else None
