"""How closely numbers of two computations agree: one table, and how much of it is used.

A tolerance is relative to the largest number of a comparison, or to the natural scale
of a column, and never to a number that may be near zero. `pytest` prints the largest
ratio of a difference to its tolerance; with `--margins` a ratio above MOST_USED fails,
so that another processor, which rounds in another way, has room.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np
import pandas as pd

TOLERANCES = {
    "float64": 1e-12,
    "roots": 1e-6,
    "float32": 2e-5,
}
"""The largest difference, relative to the scale of a comparison.

float64: sums of float64 in another order. roots: what a solver, a quadrature or a
rounded text gives. float32: what a program of float32 gives, after the three steps.
"""

SCALES = dict.fromkeys(
    (
        "accuracy",
        "memory_accuracy",
        "step1_memory_accuracy",
        "train_accuracy",
        "rare_memory_accuracy",
        "frequent_memory_accuracy",
        "attention_mass",
        "attention_top1",
        "trigger_cosine",
        "test_margin",
        "loss",
        "test_loss",
        "snr",
    ),
    1.0,
)
"""The natural scales of columns. The scale of a comparison is at least this, and at
least the largest number of the column.
"""

MOST_USED = 0.5

used: dict[str, float] = {}
"""The largest ratio of a difference to its tolerance, by test."""


def assert_close(
    actual: Any,
    expected: Any,
    tolerance: str | float = "float64",
    *,
    scale: float = 0.0,
    of: str = "",
) -> None:
    """The same shape, nan and infinities in the same places, and otherwise differences
    within the tolerance. A list is an array; other pytrees are compared leaf by leaf,
    and mappings by key.

    Args:
        tolerance: an entry of TOLERANCES, times the largest |expected| or `scale` if
            that is larger. Or a number: the largest difference itself, for a claim
            that is not about rounding.
        of: what is compared, for the message. A column of SCALES has its scale.
    """
    if isinstance(expected, Mapping):
        assert {*actual} == {*expected}, of
        for name in expected:
            assert_close(actual[name], expected[name], tolerance, scale=scale, of=name)
        return
    if isinstance(expected, list):
        actual, expected = np.asarray(actual), np.asarray(expected)
    leaves, others = jax.tree.leaves(expected), jax.tree.leaves(actual)
    if len(leaves) > 1:
        assert len(others) == len(leaves), of
        for one, other in zip(others, leaves, strict=True):
            assert_close(one, other, tolerance, scale=scale, of=of)
        return
    ratio, largest = _ratio(actual, expected, tolerance, max(scale, SCALES.get(of, 0)))
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    used[test] = max(used.get(test, 0.0), float(ratio))
    assert ratio <= 1, (
        f"{of}: the difference {largest} is {ratio:.3g} times its tolerance"
        f" {tolerance}: got {actual}; expected {expected}"
    )


def _ratio(
    actual: Any, expected: Any, tolerance: str | float, scale: float
) -> tuple[float, float]:
    """The largest difference over its tolerance, and the difference."""
    a, b = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert a.shape == b.shape, f"shape {a.shape} instead of {b.shape}"
    finite = np.isfinite(b)
    assert np.array_equal(a[~finite], b[~finite], equal_nan=True), (actual, expected)
    assert np.isfinite(a[finite]).all(), (actual, expected)
    if not finite.any():
        return 0.0, 0.0
    largest = float(np.abs(a[finite] - b[finite]).max())
    allowed = tolerance
    if isinstance(tolerance, str):
        allowed = TOLERANCES[tolerance] * max(scale, float(np.abs(b[finite]).max()))
    if largest == 0:
        return 0.0, largest
    return largest / allowed if allowed else np.inf, largest


def assert_same_columns(
    actual: pd.DataFrame,
    expected: pd.DataFrame,
    columns: Iterable[str],
    tolerance: str = "float32",
) -> None:
    """These columns of two tables agree, row by row: numbers within the tolerance, and
    all else exactly.
    """
    assert len(actual) == len(expected)
    for name in columns:
        one, other = actual[name], expected[name]
        if pd.api.types.is_float_dtype(other):
            missing = other.isna().to_numpy()
            assert np.array_equal(one.isna(), missing), name
            values = (each.astype("float64").to_numpy() for each in (one, other))
            assert_close(*values, tolerance, of=name)
        else:
            assert one.tolist() == other.tolist(), name
