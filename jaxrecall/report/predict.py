"""What theory says of a cell, or None where it does not reach: the one door from the report to the formulas. No JAX here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from inspect import signature
from typing import Any

import numpy as np

from ..theory import critical as theory
from ..theory import information, surrogate

ASSUMED = {"m": 0, "embedding": "gaussian", "activation": "none", "trigger_in_value": True, "fresh_batches": False, "kappa": 100.0}
"""What a table that lacks these columns is taken to hold: the defaults of a point."""

NOISES = {"leakage": "trigger leakage", "mean_bias": "mean bias", "mlp": "MLP noise", "gradient": "gradient noise"}


def accuracy(at: Mapping[str, Any], N: float) -> float | None:
    """Predicted test accuracy (fraction)."""
    return _asked(theory.accuracy, at, N=N)


def critical_N(at: Mapping[str, Any], theta: float) -> float | None:
    """Predicted N*; infinite if accuracy never reaches theta."""
    return _asked(theory.critical_N, at, theta=theta)


def score_noise(at: Mapping[str, Any], N: float) -> dict[str, float] | None:
    """Predicted noises of the attention scores in units of the trigger's score, by the names of NOISES."""
    found = _asked(theory.score_noise, at, N=N)
    return None if found is None else {name: getattr(found, name) for name in NOISES}


def surrogate_N(at: Mapping[str, Any], theta: float, seeds: int) -> float | None:
    """Critical N of the locked-attention surrogate, by its own draws; None without seeds."""
    return _asked(surrogate.critical_N, at, theta=theta, seeds=seeds) if seeds else None


def fano_ceiling(at: Mapping[str, Any], N: float) -> float | None:
    """The most accuracy that the information in the initial gradient allows, about."""
    return _asked(information.fano_ceiling, at, N=N)


def _asked(function: Callable[..., Any], at: Mapping[str, Any], **more: Any) -> Any:
    cell = {k: at[k] for k in ("V", "d", "L")} | {k: at[k] if k in at and at[k] == at[k] else v for k, v in ASSUMED.items()}
    given = {k: v.item() if isinstance(v, np.generic) else v for k, v in (cell | more).items()}
    takes = signature(function).parameters
    if any(given[k] != v for k, v in ASSUMED.items() if k not in takes and k != "kappa"):
        return None
    return _answer(function, tuple((k, v) for k, v in given.items() if k in takes))


@lru_cache(maxsize=200_000)
def _answer(function: Callable[..., Any], arguments: tuple[tuple[str, Any], ...]) -> Any:
    try:
        return function(**dict(arguments))
    except ValueError:  # theory does not cover this cell, or the table does not say enough of it
        return None
