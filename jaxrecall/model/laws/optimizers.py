"""Optimiser laws for further steps: those of optax, a polar factor, and the user's own.

A law returns the optax transformation for a rate. It also declares how the simulator
may run it: whether zero padding of rows and columns changes an update, and in what form
W_KQ is trained. A law without declarations runs without padding and is given the full
W_KQ, which is correct for any optimiser. The paper has no further steps. Only the
optimisers themselves are not ours.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, make_dataclass
from functools import lru_cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ...errors import PointError, Problem, shown
from ..values import Numbers, parameter
from .law import OF_FUNCTIONS, Law, register

if TYPE_CHECKING:
    import optax
    from jax import Array

SCHEDULES = ("constant", "linear", "cosine")
"""Shapes of the learning-rate schedule after warmup."""


def _setting(default: object, legend: str = "", **limits: object) -> Any:
    """Declares a parameter that is a constant of the program. A traced float32 b2 would
    lose digits in 1 - b2.
    """
    return parameter(default, legend, kind="static", **limits)


@dataclass(frozen=True, kw_only=True)
class OptimizerLaw(Law):
    """An optimiser. `transformation(rate)` is that of optax, for a dict of parameters
    by name.

    `schedule` and `warmup` determine the factor by which rates change with the steps of
    the optimiser.
    """

    field: ClassVar[str] = "optimizer"
    always_columns: ClassVar[bool] = False

    padding_safe: ClassVar[bool] = False
    """Whether zero rows and columns around a gradient only add zeros to its update. If
    False, the law runs in programs of exact sizes.
    """

    attention: ClassVar[Literal["matrix", "column", "vector"]] = "matrix"
    """The form in which W_KQ is trained, whose gradient is g z_eos^T.

    `matrix` trains the whole matrix. `column` trains its one column in a basis that
    starts with z_eos. It is for a law whose update of G Q is that of G times Q for
    every rotation Q. `vector` trains w = W_KQ z_eos. It is for a law that is linear in
    gradients.
    """

    of_optax: ClassVar[str] = ""
    """The name of the optax function that returns the optimiser for a rate. Its other
    parameters are those of the law.
    """

    schedule: str = _setting(
        "constant",
        "course of the rate after the warmup, to 0 at the last step",
        choices=SCHEDULES,
    )
    warmup: int = _setting(
        0, "steps over which the rate rises from 0", unit="steps", low=0, high=10**6
    )

    def transformation(self, rate: float) -> optax.GradientTransformation:
        """Returns the optax optimiser whose updates are multiplied by the rate."""
        import optax.contrib

        return attrgetter(self.of_optax)(optax)(rate, **self.own)

    @property
    def own(self) -> dict[str, object]:
        """The parameters by name, without those of the schedule."""
        own = fields(self)[len(fields(OptimizerLaw)) :]
        return {f.name: getattr(self, f.name) for f in own}

    @property
    def gain(self) -> float:
        """A bound on how far two runs part in a step, relative to how far their
        gradients differ.

        The distance is that of the entry that moves apart most, as a mean over steps,
        at rate 1. If the bound is finite, steps with locked attention may sum over
        weighted tokens.
        """
        return math.inf

    def descent(self, rates: Mapping[str, Numbers], steps: Numbers) -> Any:
        """Returns the optax optimiser of parameters with one rate each, for this number
        of steps.
        """
        import optax

        made = self.transformation(1.0)
        if not isinstance(made, optax.GradientTransformation):
            allowed = "an optax.GradientTransformation"
            message = f"got {self}, which returns {shown(made)}; allowed: {allowed}"
            raise PointError([Problem("optimizer", message)])
        scheduled = []
        if self.warmup or self.schedule != "constant":
            share = partial(self._share, steps=steps)
            scheduled.append(optax.scale_by_schedule(share))
        scaled = optax.stateless(
            lambda moves, _: {name: rates[name] * move for name, move in moves.items()}  # type: ignore
        )
        return optax.chain(made, *scheduled, scaled)

    def _share(self, count: Numbers, steps: Numbers) -> Array:
        """Returns the factor of the rate in step `count`, counted from 0, as in
        warmup_cosine_decay_schedule of optax.
        """
        import jax.numpy as jnp

        after_warmup = jnp.maximum(steps - self.warmup, 1)
        done = jnp.clip((count - self.warmup) / after_warmup, 0, 1)
        after = {
            "constant": jnp.ones_like(done),
            "linear": 1 - done,
            "cosine": (1 + jnp.cos(jnp.pi * done)) / 2,
        }[self.schedule]
        return jnp.where(count < self.warmup, count / max(self.warmup, 1), after)


@register
@dataclass(frozen=True)
class Sgd(OptimizerLaw):
    """theta <- theta - rate gradient."""

    of_optax, padding_safe, attention = "sgd", True, "vector"

    @property
    def gain(self) -> float:
        return 1 / (1 - getattr(self, "momentum", 0.0))


@register
@dataclass(frozen=True)
class Momentum(Sgd):
    """sgd along a weighted sum of the gradients so far.

    Each gradient has `momentum` times the weight of the next.
    """

    momentum: float = _setting(
        0.9,
        "weight of a gradient over that of the next",
        low=0.0,
        high=1.0,
        open_high=True,
    )
    nesterov: bool = _setting(False, "whether the step looks one gradient ahead")


DECAY = {"low": 0.0, "high": 1.0, "open_high": True}
LEAST_EPS = 1e-30
"""The smallest eps. Padding has gradients of 0, and 0 / (0 + eps) must be 0 in
float32.
"""


@register
@dataclass(frozen=True)
class Adam(OptimizerLaw):
    """The mean of gradients over (the root of the mean of their squares + eps),
    elementwise.
    """

    of_optax, padding_safe = "adam", True
    b1: float = _setting(0.9, "decay rate of the mean of gradients", **DECAY)
    b2: float = _setting(0.999, "decay rate of the mean of their squares", **DECAY)
    eps: float = _setting(1e-8, "what is added to the root of that mean", low=LEAST_EPS)

    @property
    def gain(self) -> float:
        """A bound for the usual decay rates, and infinity for others.

        m moves by 1 / eps. sqrt v moves by as much times |m| / sqrt v, which is at most
        3.2.
        """
        return 4.2 / self.eps if (self.b1, self.b2) == (0.9, 0.999) else math.inf


@register
@dataclass(frozen=True)
class AdamW(Adam):
    """adam, where each entry also decays at the rate times `weight_decay`."""

    of_optax = "adamw"
    weight_decay: float = _setting(
        1e-4, "part of itself that an entry loses in a step at rate 1", low=0.0
    )


@register
@dataclass(frozen=True)
class SignSgd(OptimizerLaw):
    """The sign of every entry of the gradient."""

    of_optax, padding_safe = "sign_sgd", True


@register
@dataclass(frozen=True)
class Lion(OptimizerLaw):
    """The sign of every entry of a mean of gradients (Chen et al.,
    arXiv:2302.06675).
    """

    of_optax, padding_safe = "lion", True
    b1: float = _setting(
        0.9, "weight of the mean against the gradient of the step", **DECAY
    )
    b2: float = _setting(0.99, "decay rate of the mean of gradients", **DECAY)
    weight_decay: float = _setting(
        1e-3, "part of itself that an entry loses in a step at rate 1", low=0.0
    )


@register
@dataclass(frozen=True)
class Muon(OptimizerLaw):
    """The mean of gradients, with singular values brought near 1 by Newton-Schulz steps
    (Jordan, 2024).

    optax multiplies the update of a matrix by max(1, columns/rows)^(1/2), which padding
    would change.
    """

    of_optax, attention = "contrib.muon", "column"
    beta: float = _setting(0.95, "decay rate of the mean of gradients", **DECAY)
    nesterov: bool = _setting(True, "whether the step looks one gradient ahead")
    ns_steps: int = _setting(5, "Newton-Schulz steps", unit="steps", low=0, high=100)


@register
@dataclass(frozen=True)
class Polar(OptimizerLaw):
    """G = U S V^T with each singular value s replaced by h(s) = s / sqrt(s^2 + lam^2).

    The step is along U h(S) V^T.

    h(s) = 0 where s is only rounding: at most max(rows, columns) eps times the largest
    singular value, without the rows and columns that are all zero. A vector is treated
    as a matrix with one column. With lam = 0 the law is an exact muon without momentum.
    """

    padding_safe, attention = True, "column"
    lam: float = parameter(0.0, "singular values below it are damped", low=0.0)

    def transformation(self, rate: float) -> optax.GradientTransformation:
        import jax
        import jax.numpy as jnp
        import optax

        def of_matrix(G: Array) -> Array:
            columns = G.reshape(len(G), -1)
            U, s, Vt = jnp.linalg.svd(columns, full_matrices=False)
            is_set = columns != 0
            n_columns, n_rows = (jnp.sum(jnp.any(is_set, axis=axis)) for axis in (0, 1))
            rounding = jnp.maximum(n_columns, n_rows) * jnp.finfo(G.dtype).eps * s[0]
            h = jnp.where(s > rounding, s / jnp.hypot(s, self.lam), 0)
            return -rate * ((U * h[None]) @ Vt).reshape(G.shape)

        return optax.stateless(lambda gradient, _: jax.tree.map(of_matrix, gradient))


TYPES = (bool, int, float, str)
"""The types of function parameters that become parameters of the law."""


@lru_cache(256)
def of_function(
    function: Callable[..., object], module: str, name: str
) -> type[OptimizerLaw]:
    """Returns the law of a function that takes a rate and parameters and returns an
    optax transformation.

    The parameters of the law are those of the function that have a default of a plain
    type. Raises PointError for a parameter without a default, and for one whose name is
    that of a schedule parameter.
    """
    declared = [*inspect.signature(function).parameters.values()]
    given = [p for p in declared[1:] if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    taken = [f.name for f in fields(OptimizerLaw)]
    positional = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    takes_rate = declared and declared[0].kind in positional
    if not takes_rate or any(p.default is p.empty or p.name in taken for p in given):
        got = shown(f"{module}:{name}({', '.join(map(str, declared))})")
        allowed = (
            "a function of a rate, then parameters with defaults, none of them called"
            f" {' or '.join(taken)}"
        )
        raise PointError([Problem("optimizer", f"got {got}; allowed: {allowed}")])
    plain = []
    for p in given:
        if type(p.default) in TYPES:
            plain.append((p.name, type(p.default).__name__, _setting(p.default)))
    methods = {
        "transformation": lambda self, rate: function(rate, **self.own),
        "source": staticmethod(lambda: function),
    }
    methods |= {"__module__": module, "__qualname__": name}
    return make_dataclass(
        name, plain, bases=(OptimizerLaw,), namespace=methods, frozen=True
    )


OF_FUNCTIONS["optimizer"] = of_function
