"""The figure that `jaxrecall.plot.figure` returns."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib import pyplot, rc_context, rcParams
from matplotlib.figure import Figure


class StyledFigure(Figure):
    """A figure that is drawn and saved with the settings with which it was made."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.settings: dict[Any, Any] = dict(rcParams)
        del self.settings["backend"]

    def draw(self, renderer: Any) -> None:
        with rc_context(self.settings):
            super().draw(renderer)

    def savefig(self, fname: Any, **options: Any) -> None:
        with rc_context(self.settings):
            super().savefig(fname, **options)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Lets a notebook show the figure once.

        IPython calls this method before it shows the value of a cell's last line. At
        the end of the cell, it also shows all figures that pyplot has open.
        """
        if "inline" in matplotlib.get_backend():
            pyplot.close(self)
        return {}
