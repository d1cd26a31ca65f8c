"""What theory predicts for a cell, or None where no formula covers it: the one door from the report to the formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

from .. import theory
from ..errors import TheoryError
from ..theory import Model, surrogate

NOISES = {"leakage": "trigger leakage", "mean_bias": "mean bias", "mlp": "MLP noise", "gradient": "gradient noise"}

FIELDS = tuple(f.name for f in fields(Model))


def accuracy(at: Mapping[str, Any], N: float) -> float | None:
    """Predicted test accuracy (fraction)."""
    return _predicted(theory.accuracy, at, N)


def critical_N(at: Mapping[str, Any], theta: float) -> float | None:
    """Predicted N*; infinite if accuracy never reaches theta."""
    return _predicted(theory.critical_N, at, theta)


def score_noise(at: Mapping[str, Any], N: float) -> dict[str, float] | None:
    """Predicted noises of the attention scores in units of the trigger's score, by the names of NOISES."""
    found = _predicted(theory.score_noise, at, N)
    return None if found is None else {name: getattr(found, name) for name in NOISES}


def surrogate_N(at: Mapping[str, Any], theta: float, seeds: int) -> float | None:
    """Critical N of the locked-attention surrogate, by its own draws; None without seeds."""
    return _predicted(surrogate.critical_N, at, theta, seeds) if seeds else None


def fano_ceiling(at: Mapping[str, Any], N: float) -> float | None:
    """The most accuracy that the information in the initial gradient allows, about."""
    return _predicted(theory.fano_ceiling, at, N)


def _predicted(formula: Callable[..., Any], at: Mapping[str, Any], *arguments: Any) -> Any:
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
