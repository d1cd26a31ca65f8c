"""Shapes of compiled programs: which points fit, what their runs cost, and where a run goes that its form turns away."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from ..errors import UsageError
from ..model.laws import TOGETHER
from ..model.point import BLOCK, REDRAWS, Point, of_kind
from . import beside
from .forms import FORMS, Form, exact_form_after, form_of, further_floats, further_steps
from .sizes import Sizes
from .work import KEPT, Amounts, Work

_STATIC = of_kind("static")

SAMPLES_AT_ONCE = 2**17
"""Samples that an accelerator reads at a time, of all runs side by side: a thousand for each of its some hundred processors."""

QUICK_COMPILE, QUICK_RUN = 0.65, 1.35
"""Time to compile a quick program, and to run it apart from matrix products, over those of another."""

TRAINING_COMPILE = 1.7
"""Time to compile a program of runs that train on, over that of one without further steps."""


def _static(point: Point) -> dict[str, Any]:
    """The static fields of a point's program; one that is None is empty or 0."""
    values = {name: getattr(point, name) for name in _STATIC}
    nothing = {"pool": 0, "optimizer": "", "trains": ""}
    values |= {"activation": point.activation_law.static_text(), "tokens": point.token_law.static_text()}
    values["embedding"] = "" if point.embedding_law in TOGETHER else point.embedding_law.static_text()
    return {name: nothing[name] if value is None else value for name, value in values.items()} | {"batched": point.batch is not None}


@dataclass(frozen=True, order=True)
class Shape(Sizes):
    """The sizes of a program, and what follows from its form: cost, memory, and which points fit."""

    @property
    def runs_as(self) -> Form:
        return FORMS[self.form]

    @property
    def fallback(self) -> Shape | None:
        """The program for runs that the error bound of this form turns away; None for an exact form."""
        form = None if self.runs_as.exact else exact_form_after(self.form)
        return form and replace(self, form=form.name)

    def amounts(self, work: Work) -> Amounts:
        """The primitive operations of runs in this program."""
        V, d, m, runs = self.V, self.d, self.m, work.runs
        hidden = 2 * m * d
        recipe = Amounts() if self.start == "zero" else self.runs_as.amounts(work, self)
        total = (
            recipe
            + further_steps(work, self)
            + self.runs_as.reading(work, self)
            + Amounts(
                runs=runs,
                normals=runs * (2 * V + m) * d,
                activations=work.evaluated * m,
                logits=work.labels,
                flops=2 * work.labels * d
                + work.evaluated * 2 * hidden
                + max(runs, work.recorded) * 4 * V * (V * d + (hidden if m else 2 * d**2)),
                decoded=runs * (V**3 + 4 * d**3 + 4 * V * d * (V + d)) if self.decoders else 0,
            )
        )
        redraw = self.runs_as.redraw_amounts(work, self)
        total = sum((redraw for _ in range(REDRAWS if self.diagnose and m else 0)), total)
        return total.slower(QUICK_RUN) if self.quick else total

    @property
    def peak_bytes(self) -> int:
        """Estimated peak memory, one run at a time: tables, and what a tile of samples holds at once."""
        V, d, m = self.V, self.d, self.m
        p = m or d
        floats = 10 * V * d + 4 * V * p + 2 * m * d + 6 * d * p + self.runs_as.floats(self)
        if self.diagnose:
            floats += 4 * V * d + (4 * V * p + 2 * d * p + 2 * m * d if m else 0)
        if self.decoders:  # what the program returns, and float64 on the host
            floats += 5 * V * d + 10 * V * V + 20 * d * d
        if self.optimizer and not (self.pool or self.batched):
            floats += KEPT
        return 4 * (floats + further_floats(self) + self.tile * (4 * V + 4 * d + 4 * m))

    def beside(self, width: int) -> Shape:
        """The shape with the tile for `width` runs side by side on an accelerator, where every iteration of a loop starts kernels:
        the fewer the runs, the more samples of each at a time, as long as a (tile, widest) float32 array stays within 16 MiB."""
        tile = min(SAMPLES_AT_ONCE // width, 2**22 // max(self.V, self.d, self.m))
        return replace(self, tile=max(self.tile, tile // BLOCK * BLOCK))

    def beside_bytes(self, width: int, platform: str) -> int:
        """Estimated memory of each of `width` runs side by side on an accelerator; `platform` is as JAX names it."""
        sizes = beside.padded(self.beside(width), platform)
        return 4 * (beside.floats(sizes, self.runs_as.held_beside(sizes), platform) + further_floats(sizes))

    @property
    def variant(self) -> tuple[Any, ...]:
        """What two programs must share, besides sizes, for one to hold the other's points."""
        return self.form, self.m > 0, *(getattr(self, name) for name in (*_STATIC, "embedding", "batched"))

    def fits(self, point: Point) -> bool:
        sizes = point.V <= self.V and point.d <= self.d and point.m <= self.m
        return sizes and replace(Shape.sized(point, self.V, self.d, self.m), tile=self.tile, quick=self.quick) == self

    @staticmethod
    def sized(point: Point, V: int, d: int, m: int) -> Shape:
        """The shape of these sizes for the point, whether it fits or not."""
        return Shape(V, d, m, form=form_of(point, V).name, **_static(point))

    @staticmethod
    def of(point: Point) -> Shape:
        """The shape of a point on its own: each size padded to a power of two, at least 16."""
        return Shape.sized(point, *(max(16, 1 << (size - 1).bit_length()) if size else 0 for size in (point.V, point.d, point.m)))

    @staticmethod
    def tight(point: Point) -> Shape:
        """The shape of a point with little padding: four sizes to the octave, multiples of 16."""

        def padded(size: int) -> int:
            step = max(16, 1 << max(0, size.bit_length() - 3))
            return -(-size // step) * step

        return Shape.sized(point, padded(point.V), padded(point.d), padded(point.m))

    @staticmethod
    def parse(text: str) -> tuple[int, int, int]:
        """Sizes (V, d, m) from "256x128" or "256x128x512"; raises UsageError."""
        match = re.fullmatch(r"([1-9]\d{0,6})x([1-9]\d{0,6})(?:x([1-9]\d{0,6}))?", text)
        if not match:
            raise UsageError(f"--bucket: got {text!r}; allowed: VxD or VxDxM in whole numbers, as in 256x128 or 256x128x512")
        V, d, m = (int(size or 0) for size in match.groups())
        return V, d, m
