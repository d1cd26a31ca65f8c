"""What theory says of a cell, or None where it does not reach: the one door from the report to the formulas. No JAX here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import Any

import numpy as np

ASSUMED = {"m": 0, "embedding": "gaussian", "activation": "none", "trigger_in_value": True, "fresh_batches": False, "kappa": 100.0}
"""What a table that lacks these columns is taken to hold: the defaults of a point."""

NOISES = {"leakage": "trigger leakage", "mean_bias": "mean bias", "mlp": "MLP noise", "gradient": "gradient noise"}


def accuracy(at: Mapping[str, Any], N: float) -> float | None:
    """Predicted test accuracy (fraction)."""
    return _asked("accuracy", at, N=N)


def critical_N(at: Mapping[str, Any], theta: float) -> float | None:
    """Predicted N*; infinite if accuracy never reaches theta."""
    return _asked("critical_N", at, theta=theta)


def score_noise(at: Mapping[str, Any], N: float) -> dict[str, float] | None:
    """Predicted noises of the attention scores in units of the trigger's score, by the names of NOISES."""
    found = _asked("score_noise", at, N=N)
    return None if found is None else {name: float(getattr(found, name, 0.0)) for name in NOISES}


def surrogate_N(at: Mapping[str, Any], theta: float, seeds: int) -> float | None:
    """Critical N of the locked-attention surrogate, by its own draws; None without seeds."""
    return _asked("critical_N", at, of="surrogate", theta=theta, seeds=seeds) if seeds else None


def fano_ceiling(at: Mapping[str, Any], N: float) -> float | None:
    """The most accuracy that the information in the initial gradient allows, about."""
    return _asked("fano_ceiling", at, of="information", N=N)


def _asked(name: str, at: Mapping[str, Any], of: str = "theory", **more: Any) -> Any:
    cell = {k: at[k] for k in ("V", "d", "L")} | {k: at[k] if k in at and at[k] == at[k] else v for k, v in ASSUMED.items()}
    if find_spec(f"jaxrecall.{of}") is None:
        return None
    function: Callable[..., Any] | None = getattr(import_module(f"jaxrecall.{of}"), name, None)
    if function is None:
        return None
    given = {k: v.item() if isinstance(v, np.generic) else v for k, v in (cell | more).items()}
    takes = signature(function).parameters
    if any(given[k] != v for k, v in ASSUMED.items() if k not in takes and k != "kappa"):
        return None
    return _answer(function, tuple((k, v) for k, v in given.items() if k in takes))


@lru_cache(maxsize=200_000)
def _answer(function: Callable[..., Any], arguments: tuple[tuple[str, Any], ...]) -> Any:
    try:
        return function(**dict(arguments))
    except ValueError:  # theory does not cover this cell
        return None
