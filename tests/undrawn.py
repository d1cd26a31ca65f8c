"""Saves what the figure of a sweep would show, and draws nothing.

Fast tests that do not ask for figures have this module in the place of the one that
draws.
"""

from pathlib import Path
from typing import Any

from jaxrecall.analysis.figures import charts
from jaxrecall.sweep.files import atomic_write
from jaxrecall.sweep.store.table import comment


def draw_sweep(
    frame: Any, axes: Any, title: str, path: Path, *of_a_search: Any
) -> None:
    record = comment({"rows": len(frame)})
    shown = f"{record} {title} {list(axes)} {of_a_search}"
    atomic_write(path, b"\x89PNG\r\n\x1a\n" + shown.encode())


def __getattr__(name: str) -> Any:
    return getattr(charts, name)
