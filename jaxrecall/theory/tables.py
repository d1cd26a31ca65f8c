"""What theory predicts for the rows of a table of runs or of points."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, ndtri

from ..errors import TheoryError
from ..model.point import FIELDS
from ..model.values import as_pandas
from .critical import critical
from .model import MAX_N, SIZES, Model, warn
from .open_attention import accuracy

if TYPE_CHECKING:
    import pandas as pd

ADDED = ("theory_accuracy", "theory_critical")
"""The columns that `table` adds. No other column of the package begins with theory."""

NO_PREDICTION = "no prediction"
"""How a warning begins that says why there is no prediction for a row."""


MOST_SIZES = 16
"""The largest number of N of a model at which its accuracy is computed exactly. Between
powers of 2, interpolation is off by 0.003 in the median of the largest errors.
"""


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
    Each combination of values is computed once, in 0.1 to 1 seconds. After many last
    steps, a combination can take two minutes. If a model occurs with more than 16
    values of N, its accuracy is interpolated between powers of 2.

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

    Equal rows are computed once, and rows that differ in N alone together. The
    prediction is nan where a formula does not cover a row, and a TheoryWarning that
    begins with NO_PREDICTION says why.
    """
    if along != "m":  # the activation depends on the size m
        settings = settings.drop(columns=along, errors="ignore")
    groups = settings.groupby(
        [name for name in settings if along or name != "N"], dropna=False, sort=False
    )
    of_row = groups.ngroup().to_numpy()
    members = np.split(np.argsort(of_row), np.cumsum(np.bincount(of_row)))
    predicted = np.full(len(settings), math.nan)
    for row, rows in zip(groups.head(1).to_dict("records"), members, strict=False):
        with _warning_of_errors():
            model = Model.from_fields(row)
            if along:
                predicted[rows] = critical(model, along, theta, row.get("N"))
            else:
                sizes = settings["N"].iloc[rows].to_numpy(float)
                predicted[rows] = _accuracies(model, sizes)
    return predicted


@contextmanager
def _warning_of_errors() -> Iterator[None]:
    try:
        yield
    except TheoryError as error:
        warn(f"{NO_PREDICTION}: {error}")


def _accuracies(model: Model, sizes: np.ndarray) -> np.ndarray:
    """Returns the accuracy at each N of an array, and nan where no formula covers it.

    More than MOST_SIZES are interpolated between powers of 2.
    """
    places, place_of_size = np.unique(sizes, return_inverse=True)
    is_dense = len(places) > MOST_SIZES and 1 <= places[0] <= places[-1] <= MAX_N
    if is_dense:
        first, last = np.log2(places[[0, -1]])
        places = 2.0 ** np.arange(math.floor(first), math.ceil(last) + 1)
    reached = np.full(len(places), math.nan)
    for i, place in enumerate(places):
        with _warning_of_errors():
            reached[i] = accuracy(model, float(place))
    if not is_dense:
        return reached[place_of_size]
    from scipy.interpolate import PchipInterpolator  # slow to import

    covered = ~np.isnan(reached)
    if covered.sum() < 2:
        return np.full(len(sizes), math.nan)
    # the normal quantile of accuracy is smoother than accuracy
    quantile = ndtri(reached[covered].clip(1e-9, 1 - 1e-9))
    curve = PchipInterpolator(np.log2(places[covered]), quantile, extrapolate=False)
    return ndtr(curve(np.log2(sizes)))


def is_setting(column: object) -> bool:
    """Whether a column of a table has a field of a point, or a number of a law."""
    return str(column).partition(".")[0] in (*FIELDS, "step")
