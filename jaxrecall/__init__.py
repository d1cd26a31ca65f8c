"""jaxrecall: how a one-layer transformer learns to recall with random embeddings, swept over everything.

The contract: `Point`, `simulate`, `realize`, `three_step`, `load`. JAX starts when one of the middle three is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .point import Point
from .store.load import load

if TYPE_CHECKING:
    from .reference.realization import Realization, realize
    from .reference.steps import ThreeStep, three_step
    from .simulator.program import simulate

__version__ = "0.1.0"

__all__ = ["Point", "Realization", "ThreeStep", "load", "realize", "simulate", "three_step"]

_HOME = {
    "simulate": "simulator.program",
    "realize": "reference.realization",
    "Realization": "reference.realization",
    "three_step": "reference.steps",
    "ThreeStep": "reference.steps",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'jaxrecall' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
