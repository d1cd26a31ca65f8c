"""The sources of the samples of a run, one module each: stream, counts, pool, memory.

Module `<name>` contains an object `SOURCE`, which provides gradients, losses and
sequences. Module `<name>_cost` contains an object `COST`, which computes their cost.
Planning imports only the costs, because sources start JAX.

A new source needs these two modules, a row of `forms.FORMS`, and a condition in
`forms.form_for` that chooses it (in `forms.source_for` too, if its form is exact). If
users choose the source, it also needs a new field of the point. Data that it prepares
for several steps needs a field of `World`. The tokens of samples are drawn outside of
sources, by `World.tokens`.
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
    """The cost of samples from the source of this name."""
    return import_module(f"{__name__}.{name}_cost").COST
