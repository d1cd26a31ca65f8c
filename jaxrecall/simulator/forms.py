"""The forms of the simulation: ways of training a run that give the same numbers at different cost.

    counts    attention-only: a step needs how often tokens meet in a sample, not the samples themselves
    uniform   predictions before step 3 are uniform to rounding, so no sample needs V logits
    full      every sample, with its exact softmax
    pool      with a pool: predictions before step 3 are uniform to rounding, and samples enter through counts of pairs
    pool-full with a pool: every pair of a token and a noise sequence, weighted, with its exact softmax

A point runs in the first form that covers it. A form that is not exact computes a bound on its own error; a run beyond the bound
runs again in the next exact form. To add a form, subclass `Form` and call `register`. What a form computes is imported when a
program is compiled, so planning needs no JAX. The forms and their bounds are ours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from ..model.point import BLOCK, Point
from ..model.training import TRAINS
from .beside import POSITIONS, Held
from .expected import step2_error
from .work import Amounts, Work

if TYPE_CHECKING:
    from jax import Array

    from .sizes import Sizes
    from .world import Trained, World

MAX_COUNTED_V = 2048
"""Widest padded vocabulary for which a program keeps a V x V table of token counts (16 MiB)."""

TOLERANCE = (2.0**-20, 2.0**-19)
"""Largest relative error of the samples' residuals, averaged over samples, that uniform predictions may cause in steps 2 and
3. At these bounds V1 and w move by under 1e-6 of their norms, V2 by up to 1e-5 (open attention, V = 30), where rounding alone
moves them by 1e-7 to 8e-7 and a float32 run is held to 2e-5 of the float64 reference. No metric was seen to move."""


class Form(ABC):
    """A way of training a run. Sizes V, d, m in the arguments are padded ones."""

    name: str
    exact = True
    """Whether it has no error bound that could turn a run away."""

    with_pool = False
    """Whether its points have a pool; other forms are asked about points without one only."""

    @abstractmethod
    def covers(self, point: Point, V: int) -> bool:
        """Whether the point may run in this form in a program of V padded tokens."""

    @abstractmethod
    def train(self, world: World) -> Trained:
        """The three steps of one run, traced."""

    def first_steps(self, world: World) -> tuple[Array, Array | float]:
        """w of steps 1 and 2 alone, up to scale, and an error as in `Trained.errors`: for redraws of W_in."""
        trained = self.train(world)
        return trained.w, 0.0 if trained.errors is None else trained.errors[0]

    def holds(self, errors: tuple[Any, Any] | None) -> bool:
        """Whether the error bounds of steps 2 and 3 let a run stand; one that is not a number does not."""
        return errors is None or bool(errors[0] <= TOLERANCE[0] and errors[1] <= TOLERANCE[1])

    def label(self, point: Point, locked: Any) -> str:
        """The column `form`: what trained, whether attention was found to be locked (None: not asked), which counts are Gaussian."""
        trained = self.name if locked is None else f"{self.name}+{'locked' if locked else self.name}"
        return trained + (f", gaussian {' '.join(point.in_the_limit)}" if point.in_the_limit else "")

    @abstractmethod
    def amounts(self, work: Work, sizes: Sizes) -> Amounts:
        """Operations of the three steps, with open attention, which costs more."""

    def redraw_amounts(self, work: Work, sizes: Sizes) -> Amounts:
        """Operations of steps 1 and 2, once more for a redraw of W_in."""
        return Amounts()

    def reading(self, work: Work, sizes: Sizes) -> Amounts:
        """Operations that attend to the sequences that are evaluated."""
        return Amounts(words=work.evaluated_tokens, row_floats=work.evaluated_tokens * sizes.d)

    def floats(self, sizes: Sizes) -> int:
        """Numbers of four bytes that it holds besides what every form does."""
        return 0

    def held_beside(self, sizes: Sizes) -> Held:
        """What a run holds side by side with others on an accelerator."""
        return Held(0, sizes.tile * 3 * sizes.d, sizes.tile * (2 * sizes.m + sizes.V), 2 * (sizes.d + sizes.m))


class Counts(Form):
    name = "counts"
    exact = False

    def covers(self, point: Point, V: int) -> bool:
        return point.m == 0 and V <= MAX_COUNTED_V and _may_be_counted(point)

    def train(self, world: World) -> Trained:
        from . import counts

        return counts.train(world)

    def amounts(self, work: Work, sizes: Sizes) -> Amounts:
        tokens, V, d = work.tokens, sizes.V, sizes.d
        tables = Amounts(lookups=work.runs * V**2, flops=work.runs * 8 * V * d * (V + d))
        read = tables + Amounts(words=5 * tokens, lookups=3 * tokens, scatters=3 * tokens, exponentials=2 * tokens)
        return read + _error_bounds(work, sizes)

    def floats(self, sizes: Sizes) -> int:
        return 4 * sizes.V * sizes.d + 5 * sizes.V**2

    def held_beside(self, sizes: Sizes) -> Held:
        return Held(3 * sizes.V**2, sizes.tile * 2 * POSITIONS, 0, 2 * sizes.d)


class Uniform(Form):
    name = "uniform"
    exact = False

    def covers(self, point: Point, V: int) -> bool:
        return _may_be_counted(point)

    def train(self, world: World) -> Trained:
        from . import uniform

        return uniform.train(world)

    def first_steps(self, world: World) -> tuple[Array, Array | float]:
        from . import uniform

        return uniform.redrawn_first_steps(world)

    def amounts(self, work: Work, sizes: Sizes) -> Amounts:
        V, d, p = sizes.V, sizes.d, sizes.m or sizes.d
        locked = Amounts(exponentials=work.runs * V**2, flops=work.runs * 2 * V * (d * p + V * (d + p)))
        return _sample_by_sample(work, sizes) + Amounts(exponentials=2 * work.tokens) + locked + _error_bounds(work, sizes)

    def redraw_amounts(self, work: Work, sizes: Sizes) -> Amounts:
        return _redraw(work, sizes) + _error_bounds(work, sizes)

    def floats(self, sizes: Sizes) -> int:
        return 4 * sizes.V * (sizes.m or sizes.d) + 3 * sizes.m**2

    def held_beside(self, sizes: Sizes) -> Held:
        return super().held_beside(sizes)._replace(computed=sizes.tile * 2 * sizes.m)


class Full(Form):
    name = "full"

    def covers(self, point: Point, V: int) -> bool:
        return True

    def train(self, world: World) -> Trained:
        from . import steps

        return steps.train(world)

    def first_steps(self, world: World) -> tuple[Array, Array | float]:
        from . import steps

        return steps.first_steps(world)[1], 0.0

    def amounts(self, work: Work, sizes: Sizes) -> Amounts:
        return _sample_by_sample(work, sizes) + _softmax(work.samples, sizes, 2)

    def redraw_amounts(self, work: Work, sizes: Sizes) -> Amounts:
        return _redraw(work, sizes) + _softmax(work.samples, sizes, 1)


class Pool(Form):
    name = "pool"
    exact = False
    with_pool = True

    def covers(self, point: Point, V: int) -> bool:
        return _may_pay(point)

    def train(self, world: World) -> Trained:
        from . import pool

        return pool.train(world)

    def first_steps(self, world: World) -> tuple[Array, Array | float]:
        from . import pool

        return pool.redrawn_first_steps(world)

    def amounts(self, work: Work, sizes: Sizes) -> Amounts:
        return _draws(work) + _pairs(work, sizes, 3) + _error_bounds(work, sizes)

    def redraw_amounts(self, work: Work, sizes: Sizes) -> Amounts:
        return _pairs(work, sizes, 2) + Amounts(normals=work.runs * sizes.m * sizes.d) + _error_bounds(work, sizes)

    def reading(self, work: Work, sizes: Sizes) -> Amounts:
        tokens, counts = work.evaluated_tokens, work.evaluated * sizes.V
        return Amounts(words=tokens, scatters=tokens, exponentials=counts, flops=2 * counts * sizes.d)

    def floats(self, sizes: Sizes) -> int:
        V, d, m, K = sizes.V, sizes.d, sizes.m, sizes.pool
        return 14 * V * K + 6 * K * d + (4 * m * (2 * V + K) + 6 * K * m if m else 0)

    def held_beside(self, sizes: Sizes) -> Held:
        V, d, m, K = sizes.V, sizes.d, sizes.m, sizes.pool
        return Held(9 * V * K + m * (V + K), 4 * sizes.tile, 0, d + (m or d) + V)


class PoolFull(Pool):
    name = "pool-full"
    exact = True

    def covers(self, point: Point, V: int) -> bool:
        return True

    def train(self, world: World) -> Trained:
        from . import pool

        return pool.train_full(world)

    def first_steps(self, world: World) -> tuple[Array, Array | float]:
        from . import pool

        return pool.full_first_steps(world)[1], 0.0

    def amounts(self, work: Work, sizes: Sizes) -> Amounts:
        return super().amounts(work, sizes) + _softmax(work.runs * sizes.V * sizes.pool, sizes, 2)

    def redraw_amounts(self, work: Work, sizes: Sizes) -> Amounts:
        return super().redraw_amounts(work, sizes) + _softmax(work.runs * sizes.V * sizes.pool, sizes, 1)

    def floats(self, sizes: Sizes) -> int:
        return super().floats(sizes) + sizes.pool * (4 * sizes.V + 8 * (sizes.m or sizes.d))

    def held_beside(self, sizes: Sizes) -> Held:
        V, d, m, K = sizes.V, sizes.d, sizes.m, sizes.pool
        return Held(7 * V * K + m * (V + K), 4 * sizes.tile, K * (2 * V + 3 * (m or d)), d + V)


def _may_pay(point: Point) -> bool:
    """Whether the point allows shortcuts, and is not expected to be turned away by their error bound."""
    return point.exact == "guarded" and step2_error(point) <= TOLERANCE[0]


def _may_be_counted(point: Point) -> bool:
    """Whether shortcuts may pay, and the tokens can be counted in 32 bits."""
    return point.N * point.L < 2**31 and _may_pay(point)


def _sample_by_sample(work: Work, sizes: Sizes) -> Amounts:
    d, m = sizes.d, sizes.m
    p, hidden = m or d, 2 * m * d
    return Amounts(
        words=4 * work.tokens,
        row_floats=4 * work.tokens * d,
        scatters=work.tokens,
        activations=3 * work.samples * m,
        flops=work.samples * (4 * d * p + 4 * hidden),
    )


def _redraw(work: Work, sizes: Sizes) -> Amounts:
    V, d, m = sizes.V, sizes.d, sizes.m
    p, hidden = m or d, 2 * m * d
    return Amounts(
        normals=work.runs * m * d,
        words=3 * work.tokens,
        row_floats=3 * work.tokens * d,
        scatters=work.tokens,
        activations=2 * work.samples * m,
        flops=work.samples * (2 * d * p + 3 * hidden) + work.runs * 2 * V * d * p,
    )


def _softmax(samples: int, sizes: Sizes, steps: int) -> Amounts:
    """The exact softmax of samples in some of the steps 2 and 3."""
    return Amounts(exponentials=steps * samples * sizes.V, flops=steps * samples * 4 * (sizes.V + sizes.m) * sizes.d)


def _error_bounds(work: Work, sizes: Sizes) -> Amounts:
    """The bounds of `uniform.softmax_errors`: some dozen products of matrices of the smaller side."""
    V, d = sizes.V, sizes.d
    side = min(V, d)
    return Amounts(flops=work.runs * side**2 * (22 * side + 2 * (max(V, d) + (sizes.m or max(V, d)))))


def further_steps(work: Work, sizes: Sizes) -> Amounts:
    """Steps of an optimiser: forward and back, which costs twice as much; over all pairs with a pool, formed once more for the way
    back."""
    if not sizes.optimizer:
        return Amounts()
    V, d, m, K = sizes.V, sizes.d, sizes.m, sizes.pool
    of_logits = 2 * V * d + 4 * m * d  # an MLP's features, and its answers
    of_values = 2 * V * d if "Z_in" in TRAINS[sizes.trains] else 0
    if K:
        pairs = work.stepped * V * K
        read = Amounts(exponentials=6 * pairs, activations=3 * pairs * m, flops=4 * pairs * of_logits)
        tables = work.stepped * 4 * 2 * (K * V * d + V * K * d + (V + K) * m * d)
        return read + Amounts(flops=tables)
    samples, tokens = work.stepped, work.stepped_tokens
    of_keys = 2 * V * d if sizes.trains != "V" else 0
    of_sample = 2 * V * V if sizes.through_logits else 3 * of_logits + of_keys + of_values
    return Amounts(
        words=work.stepped_words,
        row_floats=tokens * (V if sizes.through_logits else d),
        lookups=4 * tokens,
        scatters=(2 if of_values else 1) * tokens,
        exponentials=3 * samples * V + 2 * tokens,
        activations=2 * samples * m,
        flops=samples * of_sample + (samples // BLOCK) * 6 * V * d * (m or d),
    )


def further_floats(sizes: Sizes) -> int:
    """Numbers of four bytes of an optimiser: parameters, their gradient, two moments, tables of the
    vocabulary, and what a tile holds on the way back."""
    if not sizes.optimizer:
        return 0
    V, d, m = sizes.V, sizes.d, sizes.m
    with_Z, with_W_in = (name in TRAINS[sizes.trains] for name in ("Z_in", "W_in"))
    trained = d * (m or d) + d * d + 2 * V * d * with_Z + m * d * with_W_in
    tables = 5 * V * V if sizes.through_logits and not sizes.pool else 0
    return 5 * trained + 6 * V * (d + sizes.pool) + tables + sizes.tile * (4 * V + 2 * d) * (2 if with_Z else 1)


def _draws(work: Work) -> Amounts:
    """The counts of a pool, and those of test sequences."""
    return Amounts(normals=work.gaussian, words=2 * work.samples + work.tokens, scatters=work.samples + work.tokens)


def _pairs(work: Work, sizes: Sizes, steps: int) -> Amounts:
    """Some of the three steps over all pairs of a token and a noise sequence."""
    V, d, m, K, runs = sizes.V, sizes.d, sizes.m, sizes.pool, work.runs
    flops = runs * 2 * (V * K * d + K * V * d + 2 * K * d * m + V * K * m)
    return Amounts(exponentials=steps * runs * 3 * V * K, activations=steps * runs * V * K * m, flops=steps * flops)


FORMS: dict[str, Form] = {form.name: form for form in (Pool(), PoolFull(), Counts(), Uniform(), Full())}
"""Every form by name; a point runs in the first that covers it, among those with a pool if it has one, else among the others."""


def register(form: Form) -> Form:
    """Puts a form before all others; raises ValueError if another one has its name."""
    if form.name in FORMS:
        raise ValueError(f"form: got {form.name!r} a second time; allowed: a name other than {', '.join(FORMS)}")
    others = dict(FORMS)
    FORMS.clear()
    FORMS.update({form.name: form, **others})
    return form


def form_of(point: Point, V: int) -> Form:
    """The first form that covers the point in a program of V padded tokens."""
    with_pool = point.pool is not None
    if point.start == "zero":  # no recipe whose form there is to choose
        return FORMS["pool-full" if with_pool else "full"]
    return next(form for form in FORMS.values() if form.with_pool == with_pool and form.covers(point, V))


def exact_form_after(name: str) -> Form:
    """The next exact form in the order of FORMS, for the same points."""
    later = list(FORMS.values())[list(FORMS).index(name) + 1 :]
    return next(form for form in later if form.exact and form.with_pool == FORMS[name].with_pool)
