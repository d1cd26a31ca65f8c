"""The ways of having the samples of a run, one module each.

They are stream, counts, pool and memory; `forms` chooses one for a point. The module of
its name has an object `SOURCE`, which gives gradients, losses and sequences; the module
`<name>_cost` has an object `COST`, which says what they take. Planning imports the
costs alone, as sources start JAX.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..cost import SourceCost
    from .source import Source
else:
    Source = SourceCost = object


@cache
def source_named(name: str) -> Source:
    """The source in the module of this name. Starts JAX."""
    return import_module(f"{__name__}.{name}").SOURCE


@cache
def cost_named(name: str) -> SourceCost:
    """What samples from the source of this name cost."""
    return import_module(f"{__name__}.{name}_cost").COST
