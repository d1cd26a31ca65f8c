"""The model that the formulas are about: those fields of a point that they depend
on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any

import numpy as np

from ..errors import PointError, TheoryError, shown
from ..model.activations import Activation, NoActivation, activations
from ..model.columns import COLUMNS
from ..model.laws import LAWS, EmbeddingLaw, Law, Moments, TokenLaw, find_law
from ..model.laws.law import LawField, not_imported, plain
from ..model.laws.tokens import shares
from ..model.point import (
    EVALUATION,
    FIELDS,
    RECIPE_STEPS,
    SAME_AS,
    STARTS,
    TRAINING,
    Point,
    unknown_names,
)
from ..model.values import as_number, is_missing


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model, checked, with the fields and the defaults of a `Point`.

    N is an argument of each formula instead.

    Raises TheoryError, which names the field, its value and the values allowed.
    """

    V: int
    d: int
    L: int
    m: int = 0
    embedding: LawField[EmbeddingLaw] = "gaussian"  # type: ignore[assignment]
    activation: LawField[Activation] = "relu"  # type: ignore[assignment]
    trigger_in_value: bool = True
    fresh_batches: bool = False
    kappa: float = 100.0
    tokens: LawField[TokenLaw] = "uniform"  # type: ignore[assignment]
    noise_tokens: LawField[TokenLaw | None] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        for name, low in (("V", 2), ("d", 2), ("L", 1), ("m", 0)):
            number = as_number(getattr(self, name), int)
            if number is None or number < low:
                raise TheoryError(
                    f"{name}: got {getattr(self, name)!r}; allowed: whole numbers from"
                    f" {low}"
                )
            object.__setattr__(self, name, number)
        for name in ("trigger_in_value", "fresh_batches"):
            if getattr(self, name) not in (True, False):
                raise TheoryError(
                    f"{name}: got {getattr(self, name)!r}; allowed: True, False"
                )
            object.__setattr__(self, name, bool(getattr(self, name)))
        if not 0 <= as_float(self.kappa) < math.inf:
            raise TheoryError(
                f"kappa: got {shown(self.kappa)}; allowed: finite numbers from 0"
            )
        object.__setattr__(self, "kappa", float(self.kappa))
        for name, family in LAWS_OF_MODEL.items():
            given = getattr(self, name)
            if name == "noise_tokens" and not given:
                continue
            try:
                object.__setattr__(self, name, find_law(family, given))
            except PointError as error:
                raise TheoryError(str(error)) from None
        if self.noise_tokens == self.tokens:
            object.__setattr__(self, "noise_tokens", None)
        for problem in self.embedding.problems(self.V, self.d):
            raise TheoryError(str(problem))
        if not self.m:
            object.__setattr__(self, "activation", NoActivation())
        elif self.activation == "none":
            raise TheoryError(
                f"activation: got 'none' with m={self.m}; allowed:"
                f" {', '.join(activations())}"
            )

    @classmethod
    def from_point(cls, point: Point, *, any_training: bool = False) -> Model:
        """The model of a point; see `from_fields`."""
        return cls.from_fields(
            {name: getattr(point, name) for name in FIELDS}, any_training=any_training
        )

    of = from_point  # the name that it had at first

    @classmethod
    def from_fields(
        cls, values: Mapping[str, Any], *, any_training: bool = False
    ) -> Model:
        """The model of a row or a cell of a table.

        It has fields of a point and other axes by name, None or NaN where one has no
        value.

        Args:
            values: at least V, d and L. A `step` says which step of a run that trains
                on is meant. Measured columns are ignored.
            any_training: for formulas that hold however the model was trained; others
                are about the three steps alone.

        Raises:
            TheoryError: a field that the formulas do not know is off its default, or a
                column is no field at all.
        """
        for name, value in values.items():
            if np.ndim(value):
                raise TheoryError(f"{name}: got {shown(value)}; allowed: one value")
        given = {name: value for name, value in values.items() if not is_missing(value)}
        step = given.get("step", given.get("steps"))
        if step == RECIPE_STEPS and given.get("start", STARTS[0]) == STARTS[0]:
            given = {
                name: value for name, value in given.items() if name not in TRAINING
            }
        elif step is not None:
            given["steps"] = step
        for name, of in SAME_AS.items():
            if given.get(name) == given.get(of, FIELDS[of].default):
                given.pop(name, None)
        axes = {
            name: value
            for name, value in given.items()
            if name in FIELDS or name not in COLUMNS
        }
        known = {
            *FIELDS_OF_MODEL,
            *IRRELEVANT,
            *(
                name
                for name in axes
                if any_training and name.partition(".")[0] in TRAINING
            ),
        }
        for name in unknown_names(axes, known):
            allowed = (
                f"{FIELDS[name].default!r}" if name in FIELDS else "no such column"
            )
            allowed = f"that of {SAME_AS[name]}" if name in SAME_AS else allowed
            raise TheoryError(
                f"{name}: got {plain(given[name])!r}; covered by theory: {allowed}"
            )
        if missing := [name for name in ("V", "d", "L") if name not in given]:
            raise TheoryError(
                f"{', '.join(missing)}: not given; theory needs V, d and L"
            )
        if given.get("m") and "activation" not in given:
            raise TheoryError(
                f"activation: not given with m={given['m']}; theory assumes none"
            )
        for name in LAWS_OF_MODEL:
            if module := not_imported(given.get(name)):  # the table may be a stranger's
                why = (
                    f"whose module {module} is not imported for a table that names it;"
                    " allowed: laws of modules that are imported"
                )
                raise TheoryError(f"{name}: got {shown(plain(given[name]))}, {why}")
        return cls(**{name: given[name] for name in FIELDS_OF_MODEL if name in given})

    def replace(self, **changes: object) -> Model:
        """A changed copy.

        As for a `Point`, the activation that m = 0 removed is the default again with an
        MLP.
        """
        if changes.get("m") and self.activation == "none":
            changes = {"activation": Model.activation, **changes}
        return replace(self, **changes)

    @property
    def moments(self) -> Moments:
        """What the embedding law says about its rows; raises TheoryError if it says
        nothing.
        """
        moments = self.embedding.moments
        if moments is None:
            covered = (
                f"laws that give moments: {_laws_where(lambda moments: True)},"
                " equicorrelated"
            )
            raise TheoryError(
                f"embedding: got '{self.embedding}'; theory covers {covered}"
            )
        return moments

    @property
    def token_shares(self) -> tuple[np.ndarray, np.ndarray]:
        """(V,) probabilities of informative and of noise tokens."""
        p, q = (
            shares(law, self.V)
            for law in (self.tokens, self.noise_tokens or self.tokens)
        )
        return p, q

    @property
    def common_length(self) -> float:
        """Squared length of what all rows share, over that of the rest."""
        return self.moments.common / (1 - self.moments.common)

    @property
    def trigger_length(self) -> float:
        """Squared length of the trigger, over that of a row without what all share."""
        return 1 + self.common_length

    def require(self, formula: str, **values: object) -> None:
        """Raises TheoryError unless these fields have the values that `formula`
        covers.
        """
        for name, value in values.items():
            if getattr(self, name) != value:
                raise TheoryError(
                    f"{name}: got {plain(getattr(self, name))!r}; covered by {formula}:"
                    f" {value!r}"
                )

    def require_law(self, formula: str, covered: Callable[[Moments], bool]) -> None:
        """Raises TheoryError unless the embedding law has moments that `formula`
        covers.
        """
        if not covered(self.moments):
            raise TheoryError(
                f"embedding: got '{self.embedding}'; covered by {formula}:"
                f" {_laws_where(covered)}"
            )


LAWS_OF_MODEL: dict[str, type[Law]] = {
    "embedding": EmbeddingLaw,
    "activation": Activation,
    "tokens": TokenLaw,
    "noise_tokens": TokenLaw,
}
"""Fields that have a law, and its family."""

FIELDS_OF_MODEL = tuple(f.name for f in fields(Model))

IRRELEVANT = {
    *EVALUATION,
    "N",  # an argument of each formula
    "eta",  # the formulas are limits of small eta
    "gamma",  # kappa is gamma without the scale that eta, L and V give it
    # a common factor of all logits once step 3 outweighs step 1, which it does by
    # gamma2 / eta
    "gamma2",
    # the law of a large pool is that of samples without one; docs/laws.md measures how
    # large
    "pool",
}
"""Fields of a point that matter to no formula, whatever their value."""


MAX_N = 1e30
"""Powers of N and V are finite up to here."""


def check_N(
    model: Model, N: float, infinite: bool = False, any_tokens: bool = False
) -> None:
    """Raises TheoryError for what is no model, and for what is no number of samples.

    Infinitely many are one where a formula has that limit. Few formulas know of tokens
    that are not equally frequent.
    """
    check_model(model, any_tokens)
    if not (1 <= as_float(N) <= MAX_N or (infinite and as_float(N) == math.inf)):
        raise TheoryError(
            f"N: got {shown(N)}; allowed: from 1 to"
            f" {MAX_N:g}{', and infinity' * infinite}"
        )


def check_theta(model: Model, theta: float) -> None:
    """Raises TheoryError for what is no model, and for what is no accuracy to reach."""
    check_model(model)
    if not 0 < as_float(theta) < 1:
        raise TheoryError(
            f"theta: got {shown(theta)}; allowed: fractions between 0 and 1"
        )


def check_model(model: object, any_tokens: bool = False) -> None:
    """Raises TheoryError for what is no model, as a point is none, and for tokens that
    are not equally frequent.
    """
    if not isinstance(model, Model):
        raise TheoryError(
            f"model: got {shown(model)}; allowed: a theory.Model, of a point that of"
            " Model.from_point(point)"
        )
    if not any_tokens and any(np.ptp(shares) for shares in model.token_shares):
        raise TheoryError(
            f"tokens: got {plain(model.tokens)!r} and {plain(model.noise_tokens)!r};"
            " covered, but by"
            " locked_fraction: 'uniform'"
        )


def as_float(value: object) -> float:
    """A real number, infinite or not; nan for anything else."""
    try:
        return float(value) if isinstance(value, Real) else math.nan
    except OverflowError:
        return math.nan


def _laws_where(covered: Callable[[Moments], bool]) -> str:
    moments = {
        name: law().moments  # type: ignore
        for name, law in LAWS["embedding"].items()
        if not fields(law)
    }
    return ", ".join(
        name for name, given in moments.items() if given is not None and covered(given)
    )
