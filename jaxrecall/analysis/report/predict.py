"""What theory predicts for a cell, or None where no formula covers it: the one door from the report to the formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator

from ... import theory
from ...errors import TheoryError
from ...model.training import RECIPE_STEPS
from ...theory import Model, surrogate

NOISES = {"leakage": "trigger leakage", "mean_bias": "mean bias", "mlp": "MLP noise", "gradient": "gradient noise"}

POINTS = 8
"""Theory is evaluated at this many places at least along a line, and interpolated between them."""

FIELDS = tuple(f.name for f in fields(Model))


def accuracy(at: Mapping[str, Any], N: float) -> float | None:
    """Predicted test accuracy (fraction)."""
    return _predicted(theory.accuracy, at, N)


def accuracy_curve(at: Mapping[str, Any], N: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Predicted test accuracy along N, (N, accuracy): smooth in ln N between these N and, where they are few, some more."""
    low, high = float(np.log(N.min())), float(np.log(N.max()))
    asked = np.unique(N) if len(set(N)) >= POINTS or low == high else np.unique([*N, *np.exp(np.linspace(low, high, POINTS)).round()])
    found = [accuracy(at, float(n)) for n in asked]
    if None in found:
        return None
    if len(asked) < 2:
        return asked, np.array(found, dtype=float)
    x = np.linspace(low, high, 49)
    return np.exp(x), PchipInterpolator(np.log(asked), np.array(found, dtype=float))(x)


def critical_curve(at: Mapping[str, Any], axis: str, values: Sequence[int], theta: float) -> tuple[np.ndarray, np.ndarray]:
    """Predicted N* along an axis of whole numbers, (value, N*), smooth in logarithms; nan where accuracy never reaches theta.

    Theory is evaluated at these values, and between them where they are few.
    """
    between = -(-POINTS // max(1, len(values) - 1))
    asked = {round(v) for a, b in pairwise(values) for v in np.geomspace(a, b, between + 1)} | {*values}
    at_value = np.array(sorted(asked), dtype=float)
    found = np.array([critical_N({**at, axis: int(v)}, theta) for v in at_value], dtype=float)
    x, y = [], []
    for run in np.split(np.arange(len(found)), np.flatnonzero(np.diff(np.isfinite(found))) + 1):
        if len(run) > 1 and np.isfinite(found[run[0]]):
            fine = np.linspace(np.log(at_value[run[0]]), np.log(at_value[run[-1]]), 6 * len(run))
            x += [*np.exp(fine), np.nan]
            y += [*np.exp(PchipInterpolator(np.log(at_value[run]), np.log(found[run]))(fine)), np.nan]
    return np.array(x), np.array(y)


def critical_N(at: Mapping[str, Any], theta: float) -> float | None:
    """Predicted N*; infinite if accuracy never reaches theta."""
    return _predicted(theory.critical_N, at, theta)


def score_noise(at: Mapping[str, Any], N: float) -> dict[str, float] | None:
    """Predicted noises of the attention scores in units of the trigger's score, by the names of NOISES."""
    found = _predicted(theory.score_noise, at, N)
    return None if found is None else {name: getattr(found, name) for name in NOISES}


def surrogate_N(at: Mapping[str, Any], theta: float, seeds: int) -> float | None:
    """Critical N of the locked-attention surrogate, by its own draws; None without seeds."""
    locked = {"L": 2, "kappa": 100.0}  # neither matters where attention is locked
    return _predicted(surrogate.critical_N, {**at, **locked}, theta, seeds) if seeds else None


def fano_ceiling(at: Mapping[str, Any], N: float) -> float | None:
    """The most accuracy that the information in the initial gradient allows, about."""
    return _predicted(theory.fano_ceiling, at, N)


def seen(at: Mapping[str, Any], N: float) -> float | None:
    """Expected fraction of the labels that N samples hold, which no training recalls more of but by chance."""
    return _whatever_it_trained(theory.seen, at, N)


def seen_N(at: Mapping[str, Any], theta: float) -> float | None:
    """The N at which that fraction is theta."""
    return _whatever_it_trained(theory.seen_N, at, theta)


def parameters_per_bit(at: Mapping[str, Any]) -> float | None:
    """Parameters of V_mat for each bit of the permutation."""
    return _whatever_it_trained(theory.parameters_per_bit, at)


def _predicted(formula: Callable[..., Any], at: Mapping[str, Any], *arguments: Any) -> Any:
    """What a formula for the recipe alone says."""
    steps, start = at.get("step", at.get("steps")), at.get("start")
    if (steps == steps and steps not in (None, RECIPE_STEPS)) or start == "zero":
        return None
    return _whatever_it_trained(formula, at, *arguments)


def _whatever_it_trained(formula: Callable[..., Any], at: Mapping[str, Any], *arguments: Any) -> Any:
    values = (at.get(name) for name in FIELDS)
    return _cached(formula, tuple(value if value == value else None for value in values), *arguments)


@lru_cache(maxsize=200_000)
def _cached(formula: Callable[..., Any], values: tuple[Any, ...], *arguments: Any) -> Any:
    """The formula of a model with these values of FIELDS; None stands for a column or a value that the table lacks."""
    given = {name: value for name, value in zip(FIELDS, values, strict=True) if value is not None}
    if not {"V", "d", "L"} <= set(given):
        return None
    try:
        return formula(Model(**{"activation": "none", **given}), *arguments)  # no activation is assumed for an MLP
    except TheoryError:
        return None
