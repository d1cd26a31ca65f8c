"""The forms of the simulation: ways of training a run that give the same numbers at different cost.

A form is how sums over samples are formed, and which predictions its gradients take:

    name       samples   predictions
    counts     counts    uniform      attention-only: a step needs how often tokens meet in a sample, not the samples themselves
    uniform    stream    uniform      no sample needs V logits
    full       stream    exact        every sample with its softmax
    pool       pairs     uniform      with a pool: samples enter through counts of (token, noise sequence) pairs
    pool-full  pairs     exact        every pair with its softmax, weighted

Uniform predictions are p = 1/V in all three steps, but for the softmax in step 3 where attention is locked. Forms with
them are shortcuts: they compute a bound on their own error, and a run beyond the bound runs again in the
exact form. A shortcut is tried for points that it covers and that are expected to meet the bound (`expected`). What a form computes
is in the modules that its `samples` name, in `shortcut` and in `gradient`; planning needs none of them. Forms and bounds are ours.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from ..model.point import EVALUATION, Point, unknown_fields
from .expected import step2_error

MAX_COUNTED_V = 2048
"""Widest padded vocabulary for which a program keeps a V x V table of token counts (16 MiB)."""

TOLERANCE = (2.0**-20, 2.0**-19)
"""Largest relative error of the samples' residuals, averaged over samples, that uniform predictions may cause in steps 2 and
3. At these bounds V1 and w move by under 1e-6 of their norms, V2 by up to 1e-5 (open attention, V = 30), where rounding alone
moves them by 1e-7 to 8e-7 and a float32 run is held to 2e-5 of the float64 reference. No metric was seen to move."""

BOUNDED = frozenset({"V", "N", "d", "L", "m", "tokens", "noise_tokens", "eta", "gamma", "gamma2", "kappa", "pool", "fresh_batches"})
"""The fields that shortcuts and their bounds depend on, with the embeddings and activations of the run itself. The tokens may have any law:
labels are predicted evenly whatever their frequency, and bounds take means over samples by it."""

OF_ANY_VALUE = EVALUATION | {"embedding", "embedding_out", "activation", "trigger_in_value"}
"""Fields that do not matter to them: bounds are computed from what was drawn."""

AFTER_RECIPE = frozenset({"steps", "start", "optimizer", "lr", "lr_attention", "trains", "batch"})
"""Fields of further steps. Their shortcut, `locked`, bounds its own error at every step, whatever these are."""

KNOWN = BOUNDED | OF_ANY_VALUE | AFTER_RECIPE
"""A point with any other field off its default runs exact."""


class Form(NamedTuple):
    """A way of training a run."""

    name: str
    samples: Literal["stream", "counts", "pairs"]
    exact: bool
    """Whether it has exact predictions, and so no bound that could reject a run."""

    def accepts(self, errors: tuple[Any, Any] | None) -> bool:
        """Whether the bounds on the errors of steps 2 and 3 let a run stand; one that is not a number does not."""
        return errors is None or bool(errors[0] <= TOLERANCE[0] and errors[1] <= TOLERANCE[1])

    def label(self, point: Point, locked: Any) -> str:
        """The column `form`: what trained, whether attention was found to be locked (None: not asked), which counts are Gaussian."""
        trained = self.name if locked is None else f"{self.name}+{'locked' if locked else self.name}"
        return trained + (f", gaussian {' '.join(point.in_the_limit)}" if point.in_the_limit else "")


FORMS: dict[str, Form] = {
    form.name: form
    for form in (
        Form("pool", "pairs", exact=False),
        Form("pool-full", "pairs", exact=True),
        Form("counts", "counts", exact=False),
        Form("uniform", "stream", exact=False),
        Form("full", "stream", exact=True),
    )
}


def polynomial_products(degree: int) -> tuple[int, int]:
    """Matrix products (V, K) x (K, m) that step 1 takes with a pool and a polynomial activation of this degree, and step 2."""
    return degree + 2 * degree - 1, 3 * degree - 1


def form_for(point: Point, V: int) -> Form:
    """The cheapest form that covers the point in a program of V padded tokens."""
    if point.pool is not None:
        return FORMS["pool" if _shortcut_may_pay(point) else "pool-full"]
    if not _shortcut_may_pay(point) or point.N * point.L >= 2**31:  # tokens are counted in 32 bits
        return FORMS["full"]
    return FORMS["counts" if point.m == 0 and V <= MAX_COUNTED_V else "uniform"]


def exact_form(form: Form) -> Form:
    """The exact form for the points of a form."""
    return FORMS["pool-full" if form.samples == "pairs" else "full"]


def _shortcut_may_pay(point: Point) -> bool:
    """Whether the recipe is run, shortcuts are allowed and know the point, and most runs are expected to meet their bound."""
    asked = point.start != "zero" and point.exact == "guarded"
    return asked and not unknown_fields(point, KNOWN) and step2_error(point) <= TOLERANCE[0]


def may_group_steps(point: Point) -> bool:
    """Whether further steps may take the samples of a token together where attention is locked."""
    return point.trains_on and point.exact == "guarded" and not unknown_fields(point, KNOWN)


def register(form: object) -> None:
    """Forms of other packages are no longer taken: raises NotImplementedError."""
    raise NotImplementedError("forms.register: no longer taken; allowed: a simulator of your own, jaxrecall.run(grid, simulator=...)")
