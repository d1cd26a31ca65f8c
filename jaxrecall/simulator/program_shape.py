"""The static part of a compiled program as plain data: padded sizes and choices of
code.

One program serves every point that fits.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from ..model.activations import Activation
from ..model.columns import OwnColumn
from ..model.laws import (
    TOGETHER,
    EmbeddingLaw,
    Law,
    OptimizerLaw,
    Uniform,
    find_law,
)
from ..model.laws.law import LawField
from ..model.point import BLOCK, TRAINS, Point, of_kind
from ..model.values import padded
from .forms import FORMS, Form, form_for, may_group_steps

_STATIC = of_kind("static")

LAWS: dict[str, type[Law]] = {
    "embedding": EmbeddingLaw,
    "embedding_out": EmbeddingLaw,
    "activation": Activation,
    "optimizer": OptimizerLaw,
}
"""The fields of a program that are laws, and the family of each law."""

COMPILE_SECONDS, TRAINING_COMPILE_SECONDS = 3.5, 6.0
"""The seconds to compile a program on a core of a usual machine: without further steps,
and with them.
"""

LABELS = 64
"""The number of labels per block when logits are compared with labels.

It is small, so that padding past V costs little.
"""

STORED_TOKENS = 2**20
"""The largest number of noise tokens that a run stores for further steps: 4 MiB.

Tokens that are not stored are drawn again in each step.
"""

LIGHT_COMPILE, LIGHT_RUN = 0.65, 1.35
"""The time to compile a light program, and its run time apart from matrix products,
relative to a program that is not light.
"""

VMAPPED_SAMPLES = 2**17
"""The number of samples, over all vmapped runs, that an accelerator reads at a time.

Each of the hundred or so processors then reads a thousand samples.
"""


UNLABELLED = ("V", "d", "m", "tile", "columns", "light")
"""The fields that the label of a program omits, or contains only as its sizes."""


@dataclass(frozen=True)
class Shape:
    """Padded sizes V x d x m and the static fields of a program."""

    V: int
    d: int
    m: int
    activation: LawField[Activation]
    """The activation law, with its float parameters at their defaults."""

    form: str = "full"  # a name of forms.FORMS
    diagnose: bool = False
    decoders: bool = False
    tile: int = 0
    """The number of samples per iteration of a loop over samples: a multiple of the
    block.

    The default, for 0, is four blocks, which suits the caches of a CPU and wastes
    little at small N. Programs with further steps use one block. Wide programs use
    fewer blocks, so that a (tile, widest) float32 array stays within 16 MiB, but at
    least one.
    """

    pool: int = 0
    """The number of noise sequences in the pool; 0 without a pool."""

    start: str = "three_step"
    optimizer: LawField[OptimizerLaw | None] = None  # type: ignore[assignment]
    """The optimiser of further steps; None for the recipe alone."""

    trains: str = ""
    embedding: LawField[EmbeddingLaw | None] = None  # type: ignore[assignment]
    """The embedding law with its float parameters at their defaults; None for laws that
    share one program.
    """

    embedding_out: LawField[EmbeddingLaw | None] = None  # type: ignore[assignment]
    """The embedding law of Z_out, if it differs from that of Z_in."""

    tokens: str = "uniform"
    """`tables` if some tokens are not uniform, else `uniform`.

    The tables are arguments of the program, so one program serves all token laws.
    """

    noise_tokens: str = ""
    """`tables` if noise tokens have a law of their own."""

    batched: bool = False
    """Whether further steps read batches of samples."""

    groups: bool = False
    """Whether further steps may replace samples by weighted tokens where attention is
    locked.
    """

    noisy: bool = False
    """Whether some labels of the samples are drawn anew."""

    light: bool = False
    """Whether a program on a CPU compiles faster and runs slower, by LIGHT_COMPILE and
    LIGHT_RUN.

    The plan chooses light programs if the recipe has little work.
    """

    exact_sizes: bool = False
    """Whether V, d and m equal those of the point.

    They must if the optimiser or a user's function depends on padding, which is zero
    rows and columns.
    """

    columns: tuple[OwnColumn, ...] = ()
    """The user-defined columns."""

    def __post_init__(self) -> None:
        for name, family in LAWS.items():
            given = getattr(self, name)
            law = find_law(family, given) if given else None
            object.__setattr__(self, name, law)
        if not self.tile:
            most = 1 if self.optimizer else 4  # many steps over few samples
            blocks = max(1, min(most, 2**22 // (max(self.V, self.d, self.m) * BLOCK)))
            object.__setattr__(self, "tile", BLOCK * blocks)

    @property
    def through_logits(self) -> bool:
        """Whether further steps go through the logits of the vocabulary.

        Then the attention output h (d,) of a sample is not computed.

        This is false where embeddings are trained: the product of w and the rounding
        errors of slopes by attention logits would then replace the gradient of keys,
        which is zero under locked attention.
        """
        return not self.m and self.V <= 2 * self.d and not TRAINS.get(self.trains)

    @property
    def laws(self) -> dict[str, Any]:
        """The laws of the program by field, with float parameters at their defaults.

        The embedding laws that share a program are absent. If Z_in and Z_out have the
        same law, only the first is included.
        """
        laws = {name: getattr(self, name) for name in LAWS}
        return {name: law for name, law in laws.items() if law is not None}

    @property
    def given_tables(self) -> tuple[str, ...]:
        """The streams, z_in or z_out, of tables that are made on the host.

        The program receives these tables as arguments.
        """
        law_in, law_out = self.embedding, self.embedding_out or self.embedding
        tables = []
        if law_in and law_in.on_host:
            tables.append("z_in")
        if law_out and law_out.on_host:
            tables.append("z_out")
        return tuple(tables)

    @property
    def trained_by(self) -> Form:
        """The form in which the program trains its runs."""
        return FORMS[self.form]

    @property
    def fallback(self) -> Shape | None:
        """The program for runs that the error bound rejects; None for an exact form."""
        form = self.trained_by.fallback
        return None if form is None else replace(self, form=form)

    @property
    def variant(self) -> tuple[object, ...]:
        """What two programs must have in common so that one can serve the points of the
        other.

        Sizes are included only if they are exact.
        """
        sizes = (self.V, self.d, self.m) if self.exact_sizes else ()
        names = (*_STATIC, "embedding", "batched", "groups", "noisy")
        return (self.form, self.m > 0, *map(self._plain, names), sizes)

    def _plain(self, name: str) -> Any:
        """The value of a field, as text for a law. Programs are sorted by it."""
        value = getattr(self, name)
        return str(value or "") if name in LAWS else value

    @cached_property
    def _order(self) -> tuple[Any, ...]:
        return tuple(self._plain(f.name) for f in fields(self))

    def __lt__(self, other: Shape) -> bool:
        return self._order < other._order

    def fits(self, point: Point) -> bool:
        """Whether the program can run the point."""
        if point.V > self.V or point.d > self.d or point.m > self.m:
            return False
        own = Shape.sized(point, self.V, self.d, self.m)
        return replace(own, tile=self.tile, light=self.light) == self

    def vmapped(self, width: int) -> Shape:
        """The shape with the tile for `width` vmapped runs on an accelerator.

        There, every iteration of a loop starts kernels. So with fewer runs, more
        samples of each are read at a time. A (tile, widest) float32 array stays within
        16 MiB.
        """
        tile = min(VMAPPED_SAMPLES // width, 2**22 // max(self.V, self.d, self.m))
        return replace(self, tile=max(self.tile, tile // BLOCK * BLOCK))

    def __str__(self) -> str:
        return f"{self.V}x{self.d}" + (f"x{self.m}" if self.m else "")

    @property
    def compile_seconds(self) -> float:
        """The time to compile the program on a core of a usual machine."""
        seconds = TRAINING_COMPILE_SECONDS if self.optimizer else COMPILE_SECONDS
        return seconds * LIGHT_COMPILE if self.light else seconds

    @property
    def kin(self) -> tuple[Any, ...]:
        """A sort key under which programs are close if their points could share a
        program.
        """
        return *self.variant, self.V, self.d, self.m

    @property
    def choices(self) -> dict[str, str | int | None]:
        """The properties that a dry run prints, in addition to the sizes."""
        return {
            "activation": str(self.activation),
            "pool": self.pool,
            "optimizer": self._plain("optimizer") or None,
            "trains": self.trains or None,
            "exact": "full" if self.trained_by.exact else "guarded",
        }

    @property
    def label(self) -> str:
        """The sizes and the non-default choices, such as 64x32x128 relu pool 64."""
        words = [str(self)]
        for field in fields(self):
            usual = "none" if field.name == "activation" else field.default
            if field.name in UNLABELLED or getattr(self, field.name) == usual:
                continue
            value = self._plain(field.name)
            if value is True:
                words.append(field.name)
            elif isinstance(value, str):
                words.append(value)
            else:
                words.append(f"{field.name} {value}")
        return " ".join(words)

    @staticmethod
    def sized(point: Point, V: int, d: int, m: int) -> Shape:
        """The shape of these sizes for the point, whether it fits or not.

        If sizes must be exact, they are those of the point.
        """
        fields = _static_fields(point)
        if fields["exact_sizes"]:
            V, d, m = point.V, point.d, point.m
        return Shape(V, d, m, form=form_for(point, V).name, **fields)

    @staticmethod
    def with_columns(point: Point, columns: tuple[OwnColumn, ...]) -> Shape:
        """The shape of a point with user-defined columns.

        Such columns must not see any padding, so sizes are exact.
        """
        shape = Shape.sized(point, point.V, point.d, point.m)
        return replace(shape, exact_sizes=True, columns=columns)

    @staticmethod
    def rounded(point: Point) -> Shape:
        """The shape of a single point: each size is padded to a power of two, at least
        16.
        """
        V, d, m = map(_power_of_two, (point.V, point.d, point.m))
        return Shape.sized(point, V, d, m)

    @staticmethod
    def tight(point: Point) -> Shape:
        """The shape of a point with little padding.

        Sizes are multiples of 16, four of them to the octave.
        """
        V, d, m = (padded(size, 16) for size in (point.V, point.d, point.m))
        return Shape.sized(point, V, d, m)


def _power_of_two(size: int) -> int:
    """The smallest power of two that is at least 16 and at least `size`; 0 stays 0."""
    return max(16, 1 << (size - 1).bit_length()) if size else 0


def _static_fields(point: Point) -> dict[str, Any]:
    """The static fields of a point's program; fields that the point omits are empty or
    0.
    """
    tokens, noise = point.token_laws
    law, out = point.embedding_laws
    return {name: getattr(point, name) for name in _STATIC} | {
        "pool": point.pool or 0,
        "trains": point.trains or "",
        "optimizer": point.optimizer and point.optimizer.static(),
        "activation": point.activation.static(),
        "tokens": "uniform" if tokens == noise == Uniform() else "tables",
        "noise_tokens": "" if tokens == noise else "tables",
        "embedding": None if law in TOGETHER and law == out else law.static(),
        "embedding_out": None if law == out else out.static(),
        "batched": point.batch is not None,
        "groups": may_group_steps(point),
        "exact_sizes": bool(point.optimizer and not point.optimizer.padding_safe),
        "noisy": point.label_noise > 0,
    }
