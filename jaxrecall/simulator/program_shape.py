"""The static part of a compiled program as plain data: its padded sizes, and the
choices that determine its code.

One program runs every point that fits its shape.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any

from ..model.activations import Activation
from ..model.columns import OwnColumn
from ..model.laws import (
    EmbeddingLaw,
    Law,
    OptimizerLaw,
    find_law,
)
from ..model.point import BLOCK, Point, fields_of_kind
from ..model.values import padded_size
from .forms import FORMS, Form, form_for, may_group_steps

_STATIC = fields_of_kind("static")

LAWS: dict[str, type[Law]] = {
    "embedding": EmbeddingLaw,
    "embedding_out": EmbeddingLaw,
    "activation": Activation,
    "optimizer": OptimizerLaw,
}
"""The fields of a shape that contain laws, with the family of each law."""

COMPILE_SECONDS, TRAINING_COMPILE_SECONDS = 11.0, 19.0
"""The seconds that one core of a usual machine needs to compile a program: the first
without further steps, and the second with further steps.
"""

SMALL_KERNEL = 2**17
"""The most numbers in the largest array of a tile for which a kernel is small."""

LABELS = 64
"""The number of labels whose logits are computed at a time when predictions are
compared with labels.

The number is small, so that padding past V costs little.
"""

STORED_TOKENS = 2**23
"""The largest number of tokens that a run stores. They occupy 16 MiB.

Tokens that are not stored are drawn again in each loop.
"""

STORED_VALUES = 2**22
"""The largest number of entries of the mean values that a run stores for several first
steps. They occupy 16 MiB. Setting four times as many to zero would take longer than a
short run.

Values that are not stored are computed again in each step.
"""

LIGHT_COMPILE, LIGHT_RUN = 0.5, 1.5
"""Two times of a light program, divided by those of a program that is not light.
LIGHT_COMPILE is for the compile time, and LIGHT_RUN for the run time without matrix
products.
"""

QUICK_COMPILE, QUICK_RUN = 0.5, 8.0
"""The compile time and the run time of a quick program, divided by those of a light
one.
"""

VMAPPED_SAMPLES = 2**17
"""The total number of samples that an accelerator reads at a time, summed over vmapped
runs.

An accelerator has about a hundred processors, so each then reads a thousand samples.
"""


UNLABELLED = ("V", "d", "m", "tile", "columns", "light", "quick")
"""The fields that `Shape.label` omits or includes only as sizes."""


@dataclass(frozen=True)
class Shape:
    """The padded sizes V, d and m of a program, and its other static fields."""

    V: int
    d: int
    m: int
    activation: Any
    """The activation law, with its float parameters at their defaults."""

    form: str = "full"  # a name of forms.FORMS
    diagnose: bool = False
    decoders: bool = False
    tile: int = 0
    """The number of samples per iteration of a loop over samples, a multiple of BLOCK.

    By default, or if 0 is given, the tile is four blocks, which suit the caches of a
    CPU and waste little at small N. Programs with many steps, with an MLP or with code
    that is not optimised use one block. Wide programs use fewer blocks, but at least
    one, so that a float32 array of shape (tile, max(V, d)) stays within 16 MiB.
    """

    pool: int = 0
    """The number of noise sequences in the pool; 0 without a pool."""

    start: str = "three_step"
    optimizer: Any = None
    """The optimiser of further steps; None for the recipe alone."""

    trains: str = ""
    embedding: Any = "gaussian"
    """The embedding law, with its float parameters at their defaults."""

    embedding_out: Any = None
    """The embedding law of Z_out, if Z_in has a different one; else None."""

    tokens: str = "uniform"
    """`tables` if some tokens are not uniform, else `uniform`.

    The tables are arguments of the program, so one program serves all token laws.
    """

    noise_tokens: str = ""
    """`tables` if the laws of noise tokens and informative tokens differ, else
    empty.
    """

    batched: bool = False
    """Whether further steps read batches of samples."""

    groups: bool = False
    """Whether further steps may use weighted tokens instead of samples when attention
    is locked.
    """

    repeats: bool = False
    """Whether there are several first steps."""

    noisy: bool = False
    """Whether the samples have label noise: some labels are then drawn again at random.
    """

    light: bool = False
    """Whether the program is light: on a CPU it compiles faster and runs slower, by the
    factors LIGHT_COMPILE and LIGHT_RUN.

    The plan chooses a light program if the recipe is cheap.
    """

    quick: bool = False
    """Whether a light program is quick: its machine code is not optimised, which
    changes both times once more, by the factors QUICK_COMPILE and QUICK_RUN.

    The plan chooses a quick program if its runs take a moment in any program.
    """

    exact_sizes: bool = False
    """Whether V, d and m equal those of the point.

    Sizes must be exact if padding with zeros would change the results of the optimiser
    or of a user's function.
    """

    columns: tuple[OwnColumn, ...] = ()
    """The user-defined columns."""

    def __post_init__(self) -> None:
        for name, family in LAWS.items():
            given = getattr(self, name)
            law = find_law(family, given) if given else None
            object.__setattr__(self, name, law)
        if not self.tile:
            # many steps over few samples, hidden units that fill the caches, or slow
            # code, for which padding costs most
            most = 1 if self.optimizer or self.repeats or self.m or self.quick else 4
            blocks = max(1, min(most, 2**22 // (max(self.V, self.d) * BLOCK)))
            object.__setattr__(self, "tile", BLOCK * blocks)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """V, d and m."""
        return self.V, self.d, self.m

    @property
    def laws(self) -> dict[str, Any]:
        """A dict from field name to law, with the float parameters at their defaults.

        If Z_in and Z_out have the same law, only `embedding` is included.
        """
        laws = {name: getattr(self, name) for name in LAWS}
        return {name: law for name, law in laws.items() if law is not None}

    @property
    def given_tables(self) -> tuple[str, ...]:
        """The names (`z_in`, `z_out`) of the embedding tables that are made on the
        host.

        The program receives these tables as arguments.
        """
        laws = {"z_in": self.embedding, "z_out": self.embedding_out or self.embedding}
        return tuple(name for name, law in laws.items() if law.on_host)

    @property
    def trained_by(self) -> Form:
        """The `Form` with which the program trains its runs."""
        return FORMS[self.form]

    @property
    def fallback(self) -> Shape | None:
        """The shape of the program that repeats runs rejected by the error bound. None
        if the form is exact.
        """
        form = self.trained_by.fallback
        if form is None:
            return None
        return replace(self, form=form)

    @property
    def variant(self) -> tuple[object, ...]:
        """A tuple that is equal for two programs if one can run the points of the
        other, apart from sizes.

        The sizes are included only if they must be exact.
        """
        sizes = self.sizes if self.exact_sizes else ()
        names = (*_STATIC, "embedding", "batched", "groups", "repeats", "noisy")
        return (self.form, self.m > 0, *map(self._plain, names), sizes)

    def _plain(self, name: str) -> Any:
        """The value of a field, by which programs are sorted. A law is converted to
        text.
        """
        value = getattr(self, name)
        return str(value or "") if name in LAWS else value

    @cached_property
    def _order(self) -> tuple[Any, ...]:
        return tuple(self._plain(f.name) for f in fields(self))

    def __hash__(self) -> int:
        return hash(self._order)

    def __lt__(self, other: Shape) -> bool:
        return self._order < other._order

    def vmapped(self, width: int) -> Shape:
        """Returns the shape with `tile` set for `width` vmapped runs on an accelerator.

        On an accelerator, every iteration of a loop starts kernels. So if there are
        fewer runs, each run reads more samples per iteration. If a program has arrays
        of shape (tile, max(V, d, m)), the tile is limited, so that such a float32 array
        stays within 16 MiB.
        """
        tile = VMAPPED_SAMPLES // width
        if not self.counts_only:
            tile = min(tile, 2**22 // max(self.sizes))
        return replace(self, tile=max(self.tile, tile // BLOCK * BLOCK))

    @property
    def counts_only(self) -> bool:
        """Whether samples are only counted, so that a tile has only its tokens in
        memory.
        """
        return self.form == "counts" and self.optimizer is None

    @property
    def stores_tokens(self) -> bool:
        """Whether a run stores its tokens, because so many loops read them that this
        saves time. Light programs gain nothing.
        """
        if self.optimizer:
            return self.trained_by.source in ("counts", "stream")
        return self.counts_only and not self.light

    @property
    def has_small_kernels(self) -> bool:
        """Whether the arrays of a tile are small, so that a CPU takes longer to divide
        a kernel between cores than to run it.
        """
        widest = max(self.sizes)
        return self.counts_only or self.tile * widest <= SMALL_KERNEL

    def __str__(self) -> str:
        return f"{self.V}x{self.d}" + (f"x{self.m}" if self.m else "")

    @property
    def compile_seconds(self) -> float:
        """The number of seconds that one core of a usual machine needs to compile the
        program.
        """
        seconds = TRAINING_COMPILE_SECONDS if self.optimizer else COMPILE_SECONDS
        if self.light:
            seconds *= LIGHT_COMPILE
        return seconds * QUICK_COMPILE if self.quick else seconds

    @property
    def kin(self) -> tuple[Any, ...]:
        """A sort key that places programs next to each other if their points could
        share one.
        """
        return *self.variant, *self.sizes

    @property
    def label(self) -> str:
        """A text with the sizes and the non-default choices, such as "64x32x128 relu
        pool 64".
        """
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
        """The shape for the point with sizes V, d and m, even if the point does not
        fit.

        If sizes must be exact, those of the point are used instead.
        """
        fields = _static_fields(point)
        if fields["exact_sizes"]:
            V, d, m = point.sizes
        return _shape(V, d, m, form=form_for(point, V).name, **fields)

    @staticmethod
    def with_columns(point: Point, columns: tuple[OwnColumn, ...]) -> Shape:
        """The shape for a point with user-defined columns.

        The functions of such columns must not receive padded arrays, so sizes are
        exact.
        """
        shape = Shape.sized(point, *point.sizes)
        return replace(shape, exact_sizes=True, columns=columns)

    @staticmethod
    def rounded(point: Point) -> Shape:
        """The shape for a single point. Each size is padded to a power of two that is
        at least 16.
        """
        V, d, m = map(_power_of_two, point.sizes)
        return Shape.sized(point, V, d, m)

    @staticmethod
    def tight(point: Point) -> Shape:
        """The shape for a point with little padding.

        Sizes are multiples of 16, with four sizes between successive powers of two.
        """
        V, d, m = (padded_size(size, 16) for size in point.sizes)
        return Shape.sized(point, V, d, m)


_shape = lru_cache(4096)(Shape)
"""Makes a shape. The points of a grid have few shapes, and each is made once."""


def _power_of_two(size: int) -> int:
    """The smallest power of two that is at least 16 and at least `size`; 0 stays 0."""
    return max(16, 1 << (size - 1).bit_length()) if size else 0


def _static_fields(point: Point) -> dict[str, Any]:
    """A dict of the static fields of the point's program. Fields that the point omits
    are empty or 0.
    """
    tokens, noise = point.token_laws
    law, out = point.embedding_laws
    return {name: getattr(point, name) for name in _STATIC} | {
        "pool": point.pool or 0,
        "trains": point.trains or "",
        "optimizer": point.optimizer and point.optimizer.static,
        "activation": point.activation.static,
        "tokens": "uniform" if tokens == noise == "uniform" else "tables",
        "noise_tokens": "" if tokens == noise else "tables",
        "embedding": law.static,
        "embedding_out": None if law == out else out.static,
        "batched": point.batch is not None,
        "groups": may_group_steps(point),
        "exact_sizes": bool(point.optimizer and not point.optimizer.padding_safe),
        "repeats": point.first_steps > 1,
        "noisy": point.label_noise > 0,
    }
