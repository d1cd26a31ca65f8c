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

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
"""The public names, which stand there alone, where type checkers read them too."""

_IMPORTS = re.findall(r"^from \.(\S*) import (\w+)", _STUB, re.MULTILINE)
_HOMES: dict[str, str] = {name: home for home, name in _IMPORTS}
"""A dict from each public name to the module that defines it. The name of a module of
this folder has an empty text.
"""

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(
            f"module 'jaxrecall' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    home = _HOMES[name]
    if not home:
        return import_module(f".{name}", __name__)
    # imports the name too if it is a module
    return getattr(__import__(f"{__name__}.{home}", fromlist=[name]), name)


class _Simulator(ModuleType):
    """The package `jaxrecall.simulator`, whose name is also that of a decorator."""

    def __call__(self, **options: Any) -> Any:
        return __getattr__("simulator")(**options)


import_module(".simulator", __name__).__class__ = _Simulator


def __dir__() -> list[str]:
    return __all__
