"""What theory predicts for the rows of a table of runs, of points or of thresholds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import TheoryError, TheoryWarning
from ..model.point import FIELDS
from ..model.values import is_missing
from .critical import critical
from .model import LAWS_OF_MODEL, Model
from .open_attention import accuracy

if TYPE_CHECKING:
    import pandas as pd

ADDED = ("theory_accuracy", "theory_critical", "theory_note")
"""The columns that `table` adds. No other column of the package begins with theory."""

OF_THRESHOLDS = ("theta", "axis", "critical")
"""The columns by which a table of thresholds is known."""

Row = dict[str, Any]
Formula = Callable[[Row, float], float]
"""A function of the settings of a row and of theta."""

OnProgress = Callable[[int, int], None]


def table(
    df: pd.DataFrame,
    theta: float = 0.5,
    along: str | None = None,
    *,
    on_progress: OnProgress = lambda done, of: None,
    **fields: Any,
) -> pd.DataFrame:
    """Returns a copy of a table with three columns of what theory predicts.

    - theory_accuracy: the accuracy (fraction) at the N of the row.
    - theory_critical: the critical size along an axis, as `critical` returns it.
    - theory_note: why one of them is missing, or each TheoryWarning; else empty.

    Only the fields of a `Point` in the table are used. A field that the table lacks has
    its default. Each combination of values is computed once, in 0.1 to 1 seconds.

    Args:
        df: a table that `run`, `load` or `thresholds` returned, or any table that names
            its columns like these do.
        theta: the accuracy (fraction) of the critical size. The column theta of a table
            of thresholds has precedence.
        along: N, d, m, V or L. The default is the axis of the search, else N.
        on_progress: a function that is called with two numbers: the combinations of
            values computed so far, and all.
        fields: fields that the table lacks, by name, such as V=64. A table of
            thresholds lacks those that its cells share.

    Raises:
        TheoryError: the rows are of another simulator, or have such columns already.

        >>> import jaxrecall
        >>> df = jaxrecall.theory.table(jaxrecall.load("results/quickstart"))
        >>> df.groupby(["d", "N"])[["accuracy", "theory_accuracy"]].mean()
    """
    if simulator := df.attrs.get("simulator"):
        raise TheoryError(
            f"table: got rows of the simulator {simulator}; allowed: rows of this"
            " package's, which theory is about"
        )
    if again := [name for name in (*ADDED, *fields) if name in df]:
        raise TheoryError(
            f"columns: {', '.join(again)} are in the table already; drop or rename them"
        )
    is_thresholds = {*OF_THRESHOLDS} <= {*df}
    if along is None:
        along = df["axis"].iloc[0] if is_thresholds else df.attrs.get("searched", "N")
    settings = df[list(filter(_is_setting, df))].assign(**fields)
    settings["theta"] = df["theta"] if is_thresholds else theta
    accuracies, notes = _each(settings, _accuracy, on_progress)
    cells = settings.drop(columns=along, errors="ignore")
    sizes, others = _each(cells, partial(_critical, along), on_progress)
    for i, other in enumerate(others):
        if other not in notes[i]:
            notes[i] = f"{notes[i]} {other}".strip()
    return df.assign(**dict(zip(ADDED, (accuracies, sizes, notes), strict=True)))


def _is_setting(name: str) -> bool:
    law, dot, _ = name.partition(".")
    return name in FIELDS or name == "step" or bool(dot and law in LAWS_OF_MODEL)


def _each(
    settings: pd.DataFrame, formula: Formula, on_progress: OnProgress
) -> tuple[np.ndarray, np.ndarray]:
    """Returns an array with the value of a formula for each row, and an array with the
    notes. Equal rows are computed once.
    """
    groups = settings.groupby([*settings], dropna=False, sort=False)
    values, notes = [], []
    for row in groups.head(1).to_dict("records"):
        value, note = _answer(formula, row)
        values.append(value)
        notes.append(note)
        on_progress(len(values), groups.ngroups)
    group = groups.ngroup().to_numpy()
    return np.array(values, float)[group], np.array(notes, object)[group]


def _answer(formula: Formula, row: Row) -> tuple[float, str]:
    theta = row.pop("theta")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TheoryWarning)
        try:
            value = formula(row, theta)
        except TheoryError as error:
            return math.nan, str(error)
    return value, " ".join(dict.fromkeys(str(warning.message) for warning in caught))


def _accuracy(row: Row, theta: float) -> float:
    if is_missing(row.get("N")):
        return math.nan
    return accuracy(Model.from_fields(row), row["N"])


def _critical(along: str, row: Row, theta: float) -> float:
    return critical(Model.from_fields(row), along, theta, row.get("N"))
