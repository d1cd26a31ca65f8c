"""What is static in a compiled program, as plain data: padded sizes, and choices of
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
"""Fields of a program that have a law, and its family."""

COMPILE_SECONDS, TRAINING_COMPILE_SECONDS = 3.5, 6.0
"""To compile a program on a core of a usual machine, without further steps and with
them.
"""

LABELS = 64
"""Labels per block when logits are compared with labels: small, so that padding past V
costs little.
"""

STORED_TOKENS = 2**20
"""Most noise tokens that a run keeps for further steps, where it would draw them again
in each: 4 MiB.
"""

LIGHT_COMPILE, LIGHT_RUN = 0.65, 1.35
"""Time to compile a light program, and to run it apart from matrix products, over those
of another.
"""

VMAPPED_SAMPLES = 2**17
"""Samples that an accelerator reads at a time, of all vmapped
runs: a thousand for each of its some hundred processors.
"""


UNLABELLED = ("V", "d", "m", "tile", "columns", "light")
"""Fields that are in no label of a program, or only as its sizes."""


@dataclass(frozen=True)
class Shape:
    """Padded sizes V x d x m and the static fields of a program."""

    V: int
    d: int
    m: int
    activation: LawField[Activation]
    """The law, its float parameters at their defaults."""

    form: str = "full"  # a name of forms.FORMS
    diagnose: bool = False
    decoders: bool = False
    tile: int = 0
    """Samples per iteration of a loop over samples: whole blocks. 0 takes four, which
    suits a CPU's caches and wastes little on small N; programs of further steps take
    one; wide programs take fewer, so that a (tile, widest) float32 array stays within
    16 MiB as long as one block does."""

    pool: int = 0
    """Noise sequences of the pool; 0 is none."""

    start: str = "three_step"
    optimizer: LawField[OptimizerLaw | None] = None  # type: ignore[assignment]
    """Of further steps; None for the recipe alone."""

    trains: str = ""
    embedding: LawField[EmbeddingLaw | None] = None  # type: ignore[assignment]
    """The embedding law, its float parameters at their defaults; None for laws that
    share a program.
    """

    embedding_out: LawField[EmbeddingLaw | None] = None  # type: ignore[assignment]
    """The same of Z_out, where its law is another one."""

    tokens: str = "uniform"
    """`tables` where some tokens are not uniform: they are arguments, so one program
    serves all laws.
    """

    noise_tokens: str = ""
    """`tables` where noise tokens have a law of their own."""

    batched: bool = False
    """Whether further steps read batches of samples."""

    groups: bool = False
    """Whether further steps may take the samples of a token together where attention is
    locked.
    """

    noisy: bool = False
    """Whether some labels of the samples are drawn anew."""

    light: bool = False
    """On a CPU, compiled in less time and slower to run, by the
    factors below. The plan chooses it for little work of the recipe.
    """

    exact_sizes: bool = False
    """Whether V, d and m are those of the point: its optimiser, or a function of the
    user's, sees the zero rows and columns of padding."""

    columns: tuple[OwnColumn, ...] = ()
    """Columns of the user's own."""

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

        Then no sample needs its attention output h (d,).

        Not where embeddings are trained: rounding in the slopes by attention logits
        times w would then be the gradient of keys that locked attention does not have.
        """
        return not self.m and self.V <= 2 * self.d and not TRAINS.get(self.trains)

    @property
    def laws(self) -> dict[str, Any]:
        """The laws of the program by field, their float parameters at the defaults.

        None of the embeddings for those that share a program, one where Z_in and Z_out
        have the same.
        """
        laws = {name: getattr(self, name) for name in LAWS}
        return {name: law for name, law in laws.items() if law is not None}

    @property
    def given_tables(self) -> tuple[str, ...]:
        """Streams of the tables that are made on the host, which the program takes as
        arguments.

        They are z_in and z_out.
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
        """The form of the simulation that trains its runs."""
        return FORMS[self.form]

    @property
    def fallback(self) -> Shape | None:
        """The program for runs that the error bound rejects; None for an exact form."""
        form = self.trained_by.fallback
        return None if form is None else replace(self, form=form)

    @property
    def variant(self) -> tuple[object, ...]:
        """What two programs must share, besides sizes, for one to hold the other's
        points.

        Sizes too where they are exact.
        """
        sizes = (self.V, self.d, self.m) if self.exact_sizes else ()
        names = (*_STATIC, "embedding", "batched", "groups", "noisy")
        return (self.form, self.m > 0, *map(self._plain, names), sizes)

    def _plain(self, name: str) -> Any:
        """The value of a field, a law as its text; programs are sorted by them."""
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

        Every iteration of a loop starts kernels there: the fewer the runs, the more
        samples of each at a time, as long as a (tile, widest) float32 array stays
        within 16 MiB.
        """
        tile = min(VMAPPED_SAMPLES // width, 2**22 // max(self.V, self.d, self.m))
        return replace(self, tile=max(self.tile, tile // BLOCK * BLOCK))

    def __str__(self) -> str:
        return f"{self.V}x{self.d}" + (f"x{self.m}" if self.m else "")

    @property
    def compile_seconds(self) -> float:
        """On a core of a usual machine."""
        seconds = TRAINING_COMPILE_SECONDS if self.optimizer else COMPILE_SECONDS
        return seconds * LIGHT_COMPILE if self.light else seconds

    @property
    def kin(self) -> tuple[Any, ...]:
        """What is close for programs whose points could share one."""
        return *self.variant, self.V, self.d, self.m

    @property
    def choices(self) -> dict[str, str | int | None]:
        """What a dry run says of it, besides its sizes."""
        return {
            "activation": str(self.activation),
            "pool": self.pool,
            "optimizer": self._plain("optimizer") or None,
            "trains": self.trains or None,
            "exact": "full" if self.trained_by.exact else "guarded",
        }

    @property
    def label(self) -> str:
        """Sizes, and every choice that is not the usual one: 64x32x128 relu pool 64."""
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

        Of its own sizes where these must be exact.
        """
        fields = _static_fields(point)
        if fields["exact_sizes"]:
            V, d, m = point.V, point.d, point.m
        return Shape(V, d, m, form=form_for(point, V).name, **fields)

    @staticmethod
    def with_columns(point: Point, columns: tuple[OwnColumn, ...]) -> Shape:
        """The shape of a point with columns of the user's own, which must not see any
        padding.
        """
        shape = Shape.sized(point, point.V, point.d, point.m)
        return replace(shape, exact_sizes=True, columns=columns)

    @staticmethod
    def rounded(point: Point) -> Shape:
        """The shape of a point on its own: each size padded to a power of two, at least
        16.
        """
        V, d, m = map(_power_of_two, (point.V, point.d, point.m))
        return Shape.sized(point, V, d, m)

    @staticmethod
    def tight(point: Point) -> Shape:
        """The shape of a point with little padding: four sizes to the octave, multiples
        of 16.
        """
        V, d, m = (padded(size, 16) for size in (point.V, point.d, point.m))
        return Shape.sized(point, V, d, m)


def _power_of_two(size: int) -> int:
    """The next power of two from 16 on; 0 stays 0."""
    return max(16, 1 << (size - 1).bit_length()) if size else 0


def _static_fields(point: Point) -> dict[str, Any]:
    """The static fields of a point's program; one that the point leaves out is empty or
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
