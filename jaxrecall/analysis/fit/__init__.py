"""From a table of runs to thresholds N* and the exponents of N* ~ product of axis^exponent.

`steps` chooses rows of a table and `cells` makes curves of them; `axes` and `copies` say which cells there are, `regime` selects
some of them. `curve` finds where one crosses theta, `glm` holds the regressions, `law` the exponents and intervals, `estimate` every
method side by side. `tables` and `diagnose` make the rows, `summary` and `write` the output; `searched` compares with a search,
`coverage` tests the intervals. The reported estimate needs SciPy only; the regressions need firthmodels and are left out without it.
`fitting` does all of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .fitting import Fit, fit

__all__ = ["Fit", "fit"]

if not TYPE_CHECKING:  # so that `python -m jaxrecall.fit` handles signals before it imports what takes long

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(".fitting", __name__), name)
