"""What theory predicts for the rows of a table of runs or of points."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import TheoryError
from ..model.point import FIELDS
from ..model.values import as_pandas
from .critical import critical
from .model import SIZES, Model, warn
from .open_attention import accuracy

if TYPE_CHECKING:
    import pandas as pd

ADDED = ("theory_accuracy", "theory_critical")
"""The columns that `table` adds. No other column of the package begins with theory."""

NO_PREDICTION = "no prediction"
"""How a warning begins that says why there is no prediction for a row."""


def table(
    df: pd.DataFrame, theta: float = 0.5, along: str | None = None
) -> pd.DataFrame:
    """Returns a copy of a table with two columns of what theory predicts.

    - theory_accuracy: the accuracy (fraction) at the N of the row. It is null without
      N and sizes.
    - theory_critical: the size along an axis at which accuracy crosses theta, as
      `critical` returns it.

    Only fields of a `Point` and numbers of its laws are used. A field that the table
    lacks has its default, so fields that all rows share may have to be assigned first.
    Each combination of values is computed once, in 0.1 to 1 seconds.

    Args:
        df: a table that `run` or `load` returned, or any table with columns V, d and L.
        theta: the accuracy (fraction) of the critical size.
        along: N, d, m, V or L. The default is the axis of the search, else N.

    Raises TheoryError if the rows are of another simulator. Where a formula does not
    cover a row, a TheoryWarning says why, and the prediction is null.

        >>> import jaxrecall
        >>> df = jaxrecall.theory.table(jaxrecall.load("results/quickstart"))
        >>> df.groupby(["d", "N"])[["accuracy", "theory_accuracy"]].mean()
    """
    df = as_pandas(df)
    if "accuracy" in df.attrs or "simulator" in df:
        raise TheoryError(
            "table: got rows of another simulator; allowed: rows of this package's,"
            " which theory is about"
        )
    axis = along or df.attrs.get("searched", "N")
    if lacking := [name for name in SIZES if name not in df and name != axis]:
        raise TheoryError(
            f"columns: no {', '.join(lacking)}; theory needs V, d and L, or two of them"
            " and `along`"
        )
    settings: Any = df[list(filter(is_setting, df))]
    sizes = predict(settings, axis, theta)
    reached = predict(settings) if {"N", *SIZES} <= {*df} else math.nan
    return df.assign(**dict(zip(ADDED, (reached, sizes), strict=True)))


def predict(settings: Any, along: str = "", theta: float = 0.5) -> np.ndarray:
    """Returns an array with a prediction for each row of settings: its accuracy at its
    N, or its critical size along an axis.

    Equal rows are computed once. The prediction is nan where a formula does not cover a
    row, and a TheoryWarning that begins with NO_PREDICTION says why.
    """
    if along != "m":  # the activation depends on the size m
        settings = settings.drop(columns=along, errors="ignore")
    groups = settings.groupby([*settings], dropna=False, sort=False)
    values = []
    for row in groups.head(1).to_dict("records"):
        try:
            model = Model.from_fields(row)
            if along:
                values.append(critical(model, along, theta, row.get("N")))
            else:
                values.append(accuracy(model, row["N"]))
        except TheoryError as error:
            warn(f"{NO_PREDICTION}: {error}")
            values.append(math.nan)
    return np.array(values, float)[groups.ngroup()]


def is_setting(column: object) -> bool:
    """Whether a column of a table has a field of a point, or a number of a law."""
    return str(column).partition(".")[0] in (*FIELDS, "step")
