"""What theory predicts for a row of a table, or None where no formula covers it: the one place where figures use the formulas.

A formula gets every setting of a row. Where one is off its default and the formula does
not know it, there is no prediction, and `reason` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ... import theory
from ...errors import TheoryError
from ...model.values import is_missing
from ...theory import Model
from ...theory.noise import has_score_noise

Cell = Mapping[str, Any]


LOCKED = 0.95
"""Attention counts as locked where its mass on the informative token is above this."""

NO_SETTINGS = ("foreign", "mass")
"""What a row says besides its settings: a column that no formula knows, and the attention mass that was measured."""


def accuracy(at: Cell) -> float | None:
    """Predicted test accuracy (fraction) of a row with its N."""
    return None if is_open(at) else predicted(theory.accuracy, at, float(at["N"]))


def critical_N(at: Cell, theta: float) -> float | None:
    """Predicted N* (samples); infinite if accuracy never reaches theta."""
    return None if is_open(at) else predicted(theory.critical_N, at, theta)


def is_open(at: Cell) -> bool:
    """Whether theory assumes locked attention where it was measured not to be."""
    return at.get("mass", 1.0) <= LOCKED and assumes_locked(at)


def assumes_locked(at: Cell) -> bool:
    """Whether theory covers a cell only by assuming that its attention is locked."""
    return bool(predicted(_without_noise, at))


def _without_noise(model: Model) -> bool:
    return model.L > 1 and not has_score_noise(model)


def reason(cells: Iterable[Cell]) -> str:
    """One sentence on the cells without a prediction of accuracy, with the first reason; nothing if there are none."""
    every, why = list(cells), []
    for cell in every:
        try:
            _answer(theory.accuracy, cell, 1024.0)
        except TheoryError as refused:
            why.append(str(refused))
    return f"Theory does not cover {len(why)} of {len(every)} cells ({why[0]})." if why else ""


def predicted(formula: Callable[..., Any], at: Cell, *arguments: Any) -> Any:
    """What a formula says of a model; None where it does not cover the settings `at`."""
    try:
        return _answer(formula, at, *arguments)
    except TheoryError:
        return None


def _answer(formula: Callable[..., Any], at: Cell, *arguments: Any) -> Any:
    """What a formula says of all settings of a cell; raises the TheoryError that refuses them."""
    if at.get("foreign"):
        raise TheoryError(f"{at['foreign']}; covered by theory: no such column")
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in at.items() if name not in NO_SETTINGS}
    settings = {name: value for name, value in plain.items() if not is_missing(value)}
    for law in {name.partition(".")[0] for name in settings if "." in name}:  # the text of a law holds its numbers
        numbers = [f"{name.partition('.')[2]}={settings.pop(name)}" for name in [*settings] if name.startswith(f"{law}.")]
        if law in settings and "(" not in settings[law]:
            settings[law] = f"{settings[law]}({', '.join(numbers)})"
    return _cached(formula, tuple(settings.items()), *arguments)


@lru_cache(maxsize=200_000)
def _cached(formula: Callable[..., Any], settings: tuple[tuple[str, Any], ...], *arguments: Any) -> Any:
    return formula(Model.from_fields(dict(settings)), *arguments)
