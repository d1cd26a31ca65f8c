"""jaxrecall: how a one-layer transformer learns to recall with random embeddings, swept over everything.

The contract: `Point`, `simulate`, `realize`, `three_step`, `load`. JAX starts when one of the middle three is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .point import Point
from .store import load

if TYPE_CHECKING:
    from .program import simulate
    from .realization import Realization, realize
    from .steps import ThreeStep, three_step

__version__ = "0.1.0"

__all__ = ["Point", "Realization", "ThreeStep", "load", "realize", "simulate", "three_step"]

_HOME = {"simulate": "program", "realize": "realization", "Realization": "realization", "three_step": "steps", "ThreeStep": "steps"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'jaxrecall' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
