"""Simulates how a one-layer transformer learns to recall with random embeddings, over whole grids of parameters.

    import jaxrecall
    from jaxrecall import Point

    row = jaxrecall.simulate(Point(V=64, N=1024, d=32, L=8), seed=0)
    df = jaxrecall.run({"base": {"V": 64, "L": 8}, "blocks": [{"axes": {"d": [16, 32], "N": [256, 1024]}}]}, seeds=4)
    ax = jaxrecall.plot.accuracy(df)

Modules: `plot` draws a table, `fit` finds thresholds and exponents, `model` is the
plain model and its loss, `theory` has closed formulas. Everything is loaded when it is
first used; JAX starts with the first run. docs/python.md has a tour.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import fit, theory
    from .analysis.figures import plot
    from .analysis.fit.write import latex
    from .errors import Interrupted, RunFailed
    from .model import recall as model
    from .model.functional import Rates, predict, rates, recipe, soft_accuracy, three_step, train
    from .model.point import Point
    from .model.reference.descent import Descended, descend
    from .model.reference.metrics import measure
    from .model.reference.realization import Realization, draws, realize
    from .model.reference.steps import ThreeStep
    from .sweep.api import run, thresholds
    from .sweep.simulators.custom import Simulator
    from .sweep.simulators.recall import simulate
    from .sweep.store.load import load

__version__ = "0.1.0"

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

_MODULES = {"fit": "fit", "model": "model", "plot": "analysis.figures.plot", "theory": "theory"}

_HOME = {
    "Descended": "model.reference.descent",
    "Interrupted": "errors",
    "Point": "model.point",
    "Rates": "model.functional",
    "Realization": "model.reference.realization",
    "RunFailed": "errors",
    "Simulator": "sweep.simulators.custom",
    "ThreeStep": "model.reference.steps",
    "descend": "model.reference.descent",
    "draws": "model.reference.realization",
    "latex": "analysis.fit.write",
    "load": "sweep.store.load",
    "measure": "model.reference.metrics",
    "predict": "model.functional",
    "rates": "model.functional",
    "realize": "model.reference.realization",
    "recipe": "model.functional",
    "run": "sweep.api",
    "simulate": "sweep.simulators.recall",
    "soft_accuracy": "model.functional",
    "three_step": "model.functional",
    "thresholds": "sweep.api",
    "train": "model.functional",
}


if not TYPE_CHECKING:  # with it, type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f".{_MODULES[name]}", __name__)
        if name not in _HOME:
            raise AttributeError(f"module 'jaxrecall' has no attribute {name!r}; it has {', '.join(__all__)}")
        return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
