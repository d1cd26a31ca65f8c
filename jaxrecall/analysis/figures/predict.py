"""What theory predicts for a cell, or None where no formula
covers it: the one place where figures use the formulas.

A formula gets every setting of a cell. Where one is off its default and the formula
does not know it, there is no prediction, and `reason` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator

from ... import theory
from ...errors import TheoryError
from ...model.values import is_missing
from ...theory import Model, surrogate
from ...theory.noise import has_score_noise
from .style import DASH

NOISES = {"leakage": "trigger leakage", "mean_bias": "mean bias", "mlp": "MLP noise", "gradient": "gradient noise"}

POINTS = 8
"""Theory is evaluated at this many places at least along a line, and interpolated between them."""

NO_FIELD = ("part", "foreign", "locked_from")
"""Columns of cells that are no settings of a model."""

THEORY, ASSUMES = "theory", "theory, assumes locked attention"
STYLES: dict[str, dict[str, Any]] = {
    THEORY: {"marker": "none", "linestyle": DASH, "linewidth": 0.9},
    ASSUMES: {"marker": "none", "linestyle": (0, (1, 1.5)), "linewidth": 1.1},
}
"""How a prediction looks, by its name in a legend."""

Formula = Callable[..., Any]
Cell = Mapping[str, Any]


def accuracy(at: Cell, N: float) -> float | None:
    """Predicted test accuracy (fraction); None too where it
    assumes locked attention and attention was measured to be open.
    """
    return None if is_open(at, N) else _predicted(theory.accuracy, at, N)


def critical_N(at: Cell, theta: float) -> float | None:
    """Predicted N* (samples); infinite if accuracy never reaches theta; None as for `accuracy`."""
    found = _predicted(theory.critical_N, at, theta)
    return None if found is None or is_open(at, found) else found


def assumes_locked(at: Cell) -> bool:
    """Whether theory covers a cell only by assuming that its attention is locked."""
    return bool(_predicted(_without_noise, at))


def _without_noise(model: Model) -> bool:
    return model.L > 1 and not has_score_noise(model)


def is_open(at: Cell, N: float) -> bool:
    """Whether theory assumes locked attention at this N where it
    was measured not to be; `at` has `locked_from` where it was.
    """
    measured = at.get("locked_from")
    return measured is not None and N < measured and assumes_locked(at)


def legend(cells: Iterable[Cell]) -> str:
    """What a legend calls the theory of some cells."""
    return ASSUMES if any(map(assumes_locked, cells)) else THEORY


def fano_ceiling(at: Cell, N: float) -> float | None:
    """The most accuracy that the information in the initial gradient allows, about."""
    return _predicted(theory.fano_ceiling, at, N)


def seen(at: Cell, N: float) -> float | None:
    """Expected fraction of the labels that N samples
    hold, which no training recalls more of but by chance.
    """
    return _predicted(theory.seen, at, N, any_training=True)


def seen_N(at: Cell, theta: float) -> float | None:
    """The N at which that fraction is theta."""
    return _predicted(theory.seen_N, at, theta, any_training=True)


def parameters_per_bit(at: Cell) -> float | None:
    """Parameters of V_mat for each bit of the permutation."""
    return _predicted(theory.parameters_per_bit, at, any_training=True)


def score_noise(at: Cell, N: float) -> dict[str, float] | None:
    """Predicted noises of the attention scores in units of the trigger's score, by the names of NOISES."""
    found = _predicted(theory.score_noise, at, N)
    return None if found is None else {name: getattr(found, name) for name in NOISES}


def surrogate_N(at: Cell, theta: float, seeds: int) -> float | None:
    """Critical N of the locked-attention surrogate, by its own draws; None without seeds."""
    locked = {"L": 2, "kappa": 100.0}  # neither matters where attention is locked
    return _predicted(surrogate.critical_N, {**at, **locked}, theta, seeds) if seeds else None


def accuracy_curve(at: Cell, N: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Predicted test accuracy along N, (N, accuracy): smooth
    in ln N between these N and, where they are few, some more.
    """
    N = np.unique([n for n in N if not is_open(at, float(n))])
    if not len(N):
        return None
    if len(N) > 1:
        few = len(N) < POINTS
        N = np.unique([*N, *np.geomspace(N[0], N[-1], POINTS).round()]) if few else N
    found = [accuracy(at, float(n)) for n in N]
    return None if None in found else _smooth(N, np.array(found, dtype=float), 49)


def critical_curve(at: Cell, axis: str, values: Sequence[int], theta: float) -> tuple[np.ndarray, np.ndarray]:
    """Predicted N* along an axis of whole numbers, (value, N*), smooth in logarithms.

    nan, which breaks a line, where accuracy never reaches theta. Theory is evaluated at
    these values, and between them where they are few.
    """
    between = -(-POINTS // max(1, len(values) - 1))
    asked = sorted({round(v) for a, b in pairwise(values) for v in np.geomspace(a, b, between + 1)} | {*values})
    found = np.array([critical_N({**at, axis: value}, theta) for value in asked], dtype=float)
    runs = np.split(np.arange(len(found)), np.flatnonzero(np.diff(np.isfinite(found))) + 1)
    x, y = [], []
    for run in (run for run in runs if len(run) > 1 and np.isfinite(found[run[0]])):
        fine, star = _smooth(np.array(asked)[run], np.log(found[run]), 6 * len(run))
        x += [*fine, fine[-1]]
        y += [*np.exp(star), np.nan]
    return np.array(x), np.array(y)


def _smooth(x: np.ndarray, y: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """`n` points on a smooth and monotone curve in ln x through these; a single one as it is."""
    if len(x) < 2:
        return x, y
    fine = np.linspace(np.log(x[0]), np.log(x[-1]), n)
    return np.exp(fine), PchipInterpolator(np.log(x), y)(fine)


def reason(cells: Iterable[Cell]) -> str:
    """One sentence on the cells without a prediction of
    accuracy, with the first reason; nothing if there are none.
    """
    every, why = list(cells), []
    for cell in every:
        try:
            _answer(theory.accuracy, cell, 1024.0)
        except TheoryError as refused:
            why.append(str(refused))
    return f"Theory does not cover {len(why)} of {len(every)} cells ({why[0]})." if why else ""


def _predicted(formula: Formula, at: Cell, *arguments: Any, any_training: bool = False) -> Any:
    """What a formula says; None where it does not cover the cell.
    With `any_training` it holds however the model was trained.
    """
    try:
        return _answer(formula, at, *arguments, any_training=any_training)
    except TheoryError:
        return None


def _answer(formula: Formula, at: Cell, *arguments: Any, any_training: bool = False) -> Any:
    """What a formula says of all settings of a cell; raises the TheoryError that refuses them."""
    if at.get("foreign") is not None and at["foreign"] == at["foreign"]:
        raise TheoryError(f"{at['foreign']}; covered by theory: no such column")
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in at.items() if name not in NO_FIELD}
    settings = {name: value for name, value in plain.items() if not is_missing(value)}
    for law in {name.partition(".")[0] for name in settings if "." in name}:  # the text of a law holds its numbers
        numbers = [f"{name.partition('.')[2]}={settings.pop(name)}" for name in [*settings] if name.startswith(f"{law}.")]
        if law in settings and "(" not in settings[law]:
            settings[law] = f"{settings[law]}({', '.join(numbers)})"
    return _cached(formula, tuple(settings.items()), any_training, *arguments)


@lru_cache(maxsize=200_000)
def _cached(formula: Formula, settings: tuple[tuple[str, Any], ...], any_training: bool, *arguments: Any) -> Any:
    return formula(Model.from_fields(dict(settings), any_training=any_training), *arguments)
