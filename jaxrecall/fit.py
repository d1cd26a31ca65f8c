"""python -m jaxrecall.fit, and `jaxrecall.fit.fit`: thresholds and exponents of a table."""

from __future__ import annotations

if __name__ == "__main__":
    from .process import start

    start("jaxrecall.analysis.fit.__main__")

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .analysis.fit.fitting import Fit, fit

__all__ = ["Fit", "fit"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(".analysis.fit.fitting", __package__), name)
