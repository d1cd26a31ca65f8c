"""Why the N* of a fit differ from those of the threshold search that made the rows, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...files import read_json
from ...model.pool import MAX_SAMPLES

Table = Any  # pandas.DataFrame, whose own types say less than Any
FILE = "search.json"
WHY = (
    "a search draws a straight line in logit accuracy against ln N between two levels near the crossing, the fit a monotone cubic "
    "through all levels, so their N* differ"
)


def remarks(folders: Sequence[Path], thresholds: Table) -> list[str]:
    """A sentence for each folder with a search.json; `thresholds` is the table of the fit."""
    found = []
    for path in (folder / FILE for folder in folders if (folder / FILE).is_file()):
        try:
            off = np.abs(_ln_ratios(read_json(path)["cells"], thresholds))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            found.append(f"{path}: is no result of a search ({type(error).__name__}), so nothing is compared with it")
            continue
        size = f": median |ln ratio| {np.median(off):.3f}, largest {off.max():.2f}, over {len(off)} N*" if len(off) else ""
        found.append(f"{path}: {WHY}{size}")
    return found


def _ln_ratios(cells: Sequence[dict[str, Any]], thresholds: Table) -> np.ndarray:
    """ln of the fit's N* over the search's, of cells and theta that have both."""
    mine = thresholds[thresholds["record"] & (thresholds["censored"] == "no")]
    settings = [{"pool": 0, "batch": 0} | {k: v for k, v in (cell["point"] | cell).items() if v is not None} for cell in cells]
    axes = [name for name in thresholds.columns[: thresholds.columns.get_loc("theta") + 1] if all(name in s for s in settings)]
    if mine.duplicated(axes).any():
        return np.zeros(0)  # an axis that search.json does not name
    theirs = {tuple(s[name] for name in axes): s["N_star"] for s in settings if "N_star" in s}
    if wrong := [N for N in theirs.values() if not 0 < N <= MAX_SAMPLES]:
        raise ValueError(f"N_star: {wrong[0]}")
    at = [tuple(row) for row in mine[axes].itertuples(index=False)]
    return np.array([np.log(N / theirs[key]) for key, N in zip(at, mine["N_star"], strict=True) if key in theirs])
