"""python -m jaxrecall.fit, and `jaxrecall.fit.fit`: thresholds and exponents of a table."""

from __future__ import annotations

if __name__ == "__main__":  # before the import below, which takes long
    from .cli.process import start

    start("jaxrecall.analysis.fit.__main__")

from .analysis.fit.fitting import Fit, fit

__all__ = ["Fit", "fit"]
