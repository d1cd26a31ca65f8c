"""Simulates how a one-layer transformer with random embeddings learns to recall, over
whole grids of parameters.

    import jaxrecall
    from jaxrecall import Point

    row = jaxrecall.simulate(Point(V=64, N=1024, d=32, L=8), seed=0)
    axes = {"d": [16, 32], "N": [256, 1024]}
    grid = {"base": {"V": 64, "L": 8}, "blocks": [{"axes": axes}]}
    df = jaxrecall.run(grid, seeds=4)
    ax = jaxrecall.plot.accuracy(df)

The module `plot` draws figures of a table, and `fit` finds thresholds and exponents.
`model` defines the plain model and its loss, and `theory` contains closed formulas.
Each module is loaded when it is first used. JAX is started by the first run.
docs/python.md is a tour of the package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .cli.version import __version__

if TYPE_CHECKING:
    from . import fit, theory
    from .analysis.figures import plot
    from .analysis.fit.write import latex
    from .errors import Interrupted, RunFailed
    from .model import recall as model
    from .model.functional import (
        Rates,
        predict,
        rates,
        recipe,
        soft_accuracy,
        three_step,
        train,
    )
    from .model.point import Point
    from .model.reference.descent import Descended, descend
    from .model.reference.metrics import measure
    from .model.reference.realization import Realization, draws, realize
    from .model.reference.steps import ThreeStep
    from .sweep.api import run, thresholds
    from .sweep.simulators.custom import Simulator
    from .sweep.simulators.shipped import simulate
    from .sweep.store.load import load

__all__ = [
    "Descended",
    "Interrupted",
    "Point",
    "Rates",
    "Realization",
    "RunFailed",
    "Simulator",
    "ThreeStep",
    "__version__",
    "descend",
    "draws",
    "fit",
    "latex",
    "load",
    "measure",
    "model",
    "plot",
    "predict",
    "rates",
    "realize",
    "recipe",
    "run",
    "simulate",
    "soft_accuracy",
    "theory",
    "three_step",
    "thresholds",
    "train",
]

_MODULES = {
    "fit": "fit",
    "model": "model",
    "plot": "analysis.figures.plot",
    "theory": "theory",
}

_HOME = {
    "analysis.fit.write": ("latex",),
    "errors": ("Interrupted", "RunFailed"),
    "model.functional": (
        "Rates",
        "predict",
        "rates",
        "recipe",
        "soft_accuracy",
        "three_step",
        "train",
    ),
    "model.point": ("Point",),
    "model.reference.descent": ("Descended", "descend"),
    "model.reference.metrics": ("measure",),
    "model.reference.realization": ("Realization", "draws", "realize"),
    "model.reference.steps": ("ThreeStep",),
    "sweep.api": ("run", "thresholds"),
    "sweep.simulators.custom": ("Simulator",),
    "sweep.simulators.shipped": ("simulate",),
    "sweep.store.load": ("load",),
}
"""A dict from each module to the public names that it defines."""


if not TYPE_CHECKING:  # otherwise, type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f".{_MODULES[name]}", __name__)
        for module, names in _HOME.items():
            if name in names:
                return getattr(import_module(f".{module}", __name__), name)
        raise AttributeError(
            f"module 'jaxrecall' has no attribute {name!r}; it has {', '.join(__all__)}"
        )


def __dir__() -> list[str]:
    return sorted(__all__)
