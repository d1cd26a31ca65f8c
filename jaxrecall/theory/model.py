"""The model to which the formulas apply: the fields of a point on which the formulas
depend.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from ..errors import (
    PointError,
    Problem,
    TheoryError,
    TheoryWarning,
    shown,
    suggest,
)
from ..model.activations import Activation, NoActivation, activations
from ..model.columns import COLUMNS
from ..model.laws import EmbeddingLaw, Law, Moments, find_law
from ..model.laws.law import not_imported, plain
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
from ..model.values import checked_value, is_missing, plain_type


@dataclass(frozen=True, init=False)
class Model:
    """A checked model, with the fields and defaults of a `Point`.

    Args:
        point: a `Point`.
        given: fields of a `Point` by name, which replace those of `point`. Fields on
            which no formula depends are accepted. N is one of them: it is an argument
            of each formula. `critical` along an axis needs no size along it. With more
            than three `steps`, sgd must train V_mat alone: trains="V".

    Raises TheoryError with a message that contains the field, its value and the allowed
    values, also for a field that the formulas do not cover and that is off its default.
    An eta of 0, the default, is the limit of small eta. Warns with TheoryWarning if the
    first steps are as large as step 3.

        >>> from jaxrecall.theory import Model
        >>> Model(V=64, d=32, L=8, kappa=30), Model(V=64, L=8)
    """

    V: int = None  # type: ignore[assignment]
    d: int = None  # type: ignore[assignment]
    L: int = None  # type: ignore[assignment]
    m: int = 0
    embedding: Any = "gaussian"
    activation: Any = "relu"
    trigger_in_value: bool = True
    fresh_batches: bool = False
    kappa: float = 100.0
    eta: float = 0.0
    first_steps: int = 1
    steps: int = RECIPE_STEPS
    trains: str | None = None
    lr: float = 0.0
    gamma2: float = 1e30  # step 3 outweighs the first steps

    def __init__(self, point: Point | None = None, /, **given: Any) -> None:
        if point is not None:
            given = _fields_of(point) | given
        _check_single(given)
        _refuse_unknown(given)
        for name in FIELDS_OF_MODEL:
            self._set(name, given.get(name, getattr(Model, name)))
        if self.steps == RECIPE_STEPS:
            for name in OF_LAST_STEPS:
                self._set(name, getattr(Model, name))
        self._check()
        first, gamma2 = self.eta * self.first_steps, as_float(given.get("gamma2"))
        # no formula covers a single last step that does not outweigh them
        if first > gamma2 and self.steps == RECIPE_STEPS:
            warn(
                f"gamma2: got {gamma2:g}; theory assumes that step 3 outweighs the"
                f" first steps, that is gamma2 above eta first_steps = {first:g}"
            )

    def _check(self) -> None:
        problems: list[Problem] = []
        for name, low in LEAST.items():
            value = getattr(self, name)
            # `check_model` refuses a size that is missing where a formula needs it
            if value is not getattr(Model, name):
                kind, limits = plain_type(FIELDS[name]), {"low": low}
                self._set(name, checked_value(name, value, kind, limits, problems))
        if problems:
            raise TheoryError(list(map(str, problems)))
        if self.steps > RECIPE_STEPS and self.trains != "V":
            raise TheoryError(
                f"trains: got {shown(self.trains)} with steps={self.steps}; covered by"
                " theory: 'V'"
            )
        self._check_laws()

    def _check_laws(self) -> None:
        for name, family in LAWS_OF_MODEL.items():
            try:
                law = find_law(family, getattr(self, name))
            except PointError as error:
                raise TheoryError(str(error)) from None
            self._set(name, law)
        if not self.missing:
            for problem in self.embedding.problems(self.V, self.d):
                raise TheoryError(str(problem))
        if not self.m:
            self._set("activation", NoActivation())
        elif self.activation == "none":
            raise TheoryError(
                f"activation: got 'none' with m={self.m}; allowed:"
                f" {', '.join(activations())}"
            )

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def missing(self) -> list[str]:
        """The sizes that were not given, of V, d and L."""
        return [name for name in SIZES if getattr(self, name) is None]

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Model:
        """Returns the model that a row or a cell of a table describes.

        Args:
            values: a dict from the name of a field or of another axis to its value.
                None and NaN count as no value. `step` selects a step of a run with
                further steps. Measured columns are ignored.

        Raises:
            TheoryError: a field that the formulas do not cover is off its default, or a
                column is not a field.
        """
        given = {}
        for name, value in _with_law_texts(_given(values)).items():
            if name in FIELDS or name not in COLUMNS:
                given[name] = value
        if given.get("m") and "activation" not in given:
            raise TheoryError(
                f"activation: not given with m={given['m']}; theory assumes none"
            )
        for name in LAWS_OF_MODEL:
            if module := not_imported(given.get(name)):  # the table may be untrusted
                raise TheoryError(
                    f"{name}: got {shown(plain(given[name]))}, whose module {module} is"
                    " not imported for a table that names it; allowed:"
                    " distributions of modules that are imported"
                )
        return cls(**given)

    def replace(self, **changes: object) -> Model:
        """Returns a changed copy.

        If the copy has an MLP, an activation of "none" is replaced by the default, as
        for a `Point`.
        """
        if changes.get("m") and self.activation == "none":
            changes = {"activation": Model.activation, **changes}
        return replace(self, **changes)

    @cached_property
    def moments(self) -> Moments:
        """The moments that the embedding law declares.

        Raises TheoryError if it declares none.
        """
        moments = self.embedding.moments
        if moments is None:
            raise TheoryError(
                f"embedding: got '{self.embedding}'; theory covers distributions that"
                " give moments: gaussian, sphere, orthogonal, equicorrelated"
            )
        return moments

    @cached_property
    def c(self) -> float:
        """V / d, or 0 if embeddings do not overlap."""
        return self.V / self.d if self.moments.overlap else 0.0

    @cached_property
    def common_length(self) -> float:
        """The squared length of the part that all rows share, divided by the squared
        length of the rest.
        """
        return self.moments.common / (1 - self.moments.common)

    @cached_property
    def trigger_length(self) -> float:
        """The squared length of the trigger, divided by the squared length of a row
        without the shared part.
        """
        return 1 + self.common_length


def warn(message: str) -> None:
    """Warns of a setting in which theory was measured to be off."""
    warnings.warn(message, TheoryWarning, stacklevel=4)


def _fields_of(point: Point) -> dict[str, Any]:
    if not isinstance(point, Point):
        raise TheoryError(
            f"point: got {shown(point)}; allowed: a Point, or its fields by name"
        )
    return {name: getattr(point, name) for name in FIELDS}


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a row that its other values do not imply."""
    _check_single(values)
    given = {name: value for name, value in values.items() if not is_missing(value)}
    step = given.get("step", given.get("steps"))
    if step == RECIPE_STEPS and given.get("start", STARTS[0]) == STARTS[0]:
        # without further steps, their settings and the numbers of their optimizer
        names = [name for name in given if name.partition(".")[0] not in TRAINING]
        return {name: given[name] for name in names}
    if step is not None:
        given["steps"] = step
    return given


def _check_single(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if np.ndim(value):
            raise TheoryError(f"{name}: got {shown(value)}; allowed: one value")


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    """Raises TheoryError for a field that the formulas do not cover, or a name that is
    no field.
    """
    if given.get("gamma") is not None and given.get("kappa") is None:
        raise TheoryError(
            f"gamma: got {shown(given['gamma'])} without kappa; allowed: kappa = gamma"
            " eta first_steps / (L^2 V), on which the formulas depend"
        )
    usual = {name: FIELDS[name].default for name in SAME_AS.values()}
    covered = {*FIELDS_OF_MODEL, *IRRELEVANT}
    covered |= {name for name in OF_SGD if given.get(name) == OF_SGD[name]}
    off = unknown_names({**usual, **given}, covered)
    for name in (*off, *given.keys() - FIELDS.keys()):
        allowed = f"no such field{suggest(name, FIELDS)}"
        if name in SAME_AS:
            allowed = f"that of {SAME_AS[name]}"
        elif name in FIELDS:
            allowed = repr(plain(OF_SGD.get(name, FIELDS[name].default)))
        raise TheoryError(
            f"{name}: got {plain(given[name])!r}; covered by theory: {allowed}"
        )


def _with_law_texts(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings in which the text of each law includes its parameters.

    In the argument, a parameter may be a separate setting, such as embedding.rho.
    """
    settings = dict(given)
    texts: dict[str, list[str]] = {}
    for name in given:
        law, dot, parameter = name.partition(".")
        if dot and law in given:
            texts.setdefault(law, []).append(f"{parameter}={settings.pop(name)}")
    for law, parameters in texts.items():
        if "(" not in str(settings[law]):
            settings[law] = f"{settings[law]}({', '.join(parameters)})"
    return settings


FIELDS_OF_MODEL = tuple(field.name for field in fields(Model))

OF_LAST_STEPS = ("trains", "lr", "gamma2")
"""The fields on which a formula depends only if V_mat has several last steps."""

OF_SGD = {"optimizer": "sgd", "lr_attention": 0}
"""The other fields of several last steps of V_mat."""

SIZES = ("V", "d", "L")
"""The sizes without a default."""

LEAST = {"V": 2, "d": 2, "L": 1, "first_steps": 1, "steps": RECIPE_STEPS}
LEAST |= dict.fromkeys(
    ("m", "kappa", "eta", "lr", "gamma2", "trigger_in_value", "fresh_batches"), 0
)
"""The smallest value of each field that is a number or a bool."""

LAWS_OF_MODEL: dict[str, type[Law]] = {
    "embedding": EmbeddingLaw,
    "activation": Activation,
}
"""A dict from each field that contains a law to the family of the law."""

IRRELEVANT = {
    *EVALUATION,
    "N",  # an argument of each formula
    "gamma",  # kappa is gamma divided by a scale of eta, first_steps, L and V
    # a large pool acts like samples without one; docs/laws.md states the size
    "pool",
}
"""The fields of a point that no formula depends on."""


MAX_N = 1e30
"""The largest finite N that the formulas accept. Up to this N, powers of N and V are
finite.
"""


def check_N(model: Model, N: float, infinite: bool = False) -> None:
    """Raises TheoryError unless `model` is a model and N is a number of samples.

    With `infinite`, N may be infinite.
    """
    check_model(model)
    number = as_float(N)
    if 1 <= number <= MAX_N or (infinite and number == math.inf):
        return
    allowed = f"from 1 to {MAX_N:g}"
    if infinite:
        allowed += ", and infinity"
    raise TheoryError(f"N: got {shown(N)}; allowed: {allowed}")


def check_theta(model: Model, theta: float) -> None:
    """Raises TheoryError unless `model` is a model and theta an accuracy between 0 and
    1.
    """
    check_model(model)
    if not 0 < as_float(theta) < 1:
        raise TheoryError(
            f"theta: got {shown(theta)}; allowed: fractions between 0 and 1"
        )


def check_model(model: object) -> None:
    """Raises TheoryError unless `model` is a `Model` with all sizes. A `Point` is
    refused.
    """
    if not isinstance(model, Model):
        raise TheoryError(
            f"model: got {shown(model)}; allowed: a theory.Model, of a point"
            " theory.Model(point)"
        )
    if model.missing:
        raise TheoryError(
            f"{', '.join(model.missing)}: not given; theory needs V, d and L"
        )


def as_float(value: object) -> float:
    """Returns a real number as a float, finite or infinite, and nan for any other
    value.
    """
    try:
        return float(value) if isinstance(value, Real) else math.nan
    except OverflowError:
        return math.nan
