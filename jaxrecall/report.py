"""python -m jaxrecall.report: one HTML page from the table of a results folder."""

from __future__ import annotations

if __name__ == "__main__":
    from .process import start

    start("jaxrecall.analysis.report.__main__")
