"""Optimisers of further steps, as laws: those of optax, a polar factor, and one's own.

A law gives the optax transformation of a rate. It also declares what the simulator may
do with it: whether the zero rows and columns of padding change an update, and in what
form W_KQ is trained. A law that declares nothing runs without padding and sees W_KQ in
full, which is right for any optimiser. All is ours but the optimisers themselves.
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
"""Courses of a rate after its warmup."""


def _setting(default: object, legend: str = "", **limits: object) -> Any:
    """A parameter that is a constant of the program: 1 - b2 would lose digits in
    float32.
    """
    return parameter(default, legend, kind="static", **limits)


@dataclass(frozen=True, kw_only=True)
class OptimizerLaw(Law):
    """An optimiser: `transformation(rate)` is that of optax, for parameters by name.

    `schedule` and `warmup` are the factor by which rates change with the steps of the
    optimiser.
    """

    field: ClassVar[str] = "optimizer"
    always_columns: ClassVar[bool] = False

    padding_safe: ClassVar[bool] = False
    """Whether zero rows and columns around a gradient only add zeros to its update. A
    law for which this is false runs in programs of exact sizes.
    """

    attention: ClassVar[Literal["matrix", "column", "vector"]] = "matrix"
    """In what form W_KQ is trained, whose gradient is g z_eos^T. As a whole matrix; as
    its one column in a basis that starts with z_eos, for a law whose update of G Q is
    that of G times Q for every rotation Q; or as the vector w = W_KQ z_eos, for a law
    that is linear in gradients.
    """

    of_optax: ClassVar[str] = ""
    """Name in optax of the function of a rate that makes it, whose other parameters are
    those of the law.
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
        """The optimiser of optax whose updates are multiplied by the rate."""
        import optax.contrib

        return attrgetter(self.of_optax)(optax)(rate, **self.own)

    @property
    def own(self) -> dict[str, object]:
        """The parameters by name, without those of the schedule."""
        own = fields(self)[len(fields(OptimizerLaw)) :]
        return {f.name: getattr(self, f.name) for f in own}

    @property
    def gain(self) -> float:
        """How far two runs part in a step at most, over how far their gradients differ.

        It is the most that an entry moves apart, as a mean over steps, at rate 1. Where
        it is finite, steps with locked attention may sum over weighted tokens.
        """
        return math.inf

    def descent(self, rates: Mapping[str, Numbers], steps: Numbers) -> Any:
        """The optimiser of parameters with a rate each, over a number of steps."""
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
        """The factor of the rate in step `count`, from 0 on: optax has the same as
        warmup_cosine_decay_schedule.
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
    """sgd along the sum of the gradients so far, each with `momentum` times the weight
    of the next.
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
"""Padding has gradients of 0, and 0 / (0 + eps) must be 0 in float32."""


@register
@dataclass(frozen=True)
class Adam(OptimizerLaw):
    """The mean of gradients over (the root of the mean of their squares + eps), entry
    by entry.
    """

    of_optax, padding_safe = "adam", True
    b1: float = _setting(0.9, "decay rate of the mean of gradients", **DECAY)
    b2: float = _setting(0.999, "decay rate of the mean of their squares", **DECAY)
    eps: float = _setting(1e-8, "what is added to the root of that mean", low=LEAST_EPS)

    @property
    def gain(self) -> float:
        """At the usual decay rates m moves by 1 / eps, and sqrt v by as much times
        |m| / sqrt v, at most 3.2.
        """
        return 4.2 / self.eps if (self.b1, self.b2) == (0.9, 0.999) else math.inf


@register
@dataclass(frozen=True)
class AdamW(Adam):
    """adam, and each entry decays at the rate times `weight_decay`."""

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
    """The mean of gradients with its singular values brought near 1 by Newton-Schulz
    steps (Jordan, 2024).

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

    h(s) = 0 where s is rounding: at most max(rows, columns) eps times the largest,
    which counts the rows and columns that are not all zero. A vector is a matrix of one
    column. With lam = 0 it is muon without momentum and without error.
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
"""Types of the parameters of a function that are parameters of its law."""


@lru_cache(256)
def of_function(
    function: Callable[..., object], module: str, name: str
) -> type[OptimizerLaw]:
    """The law of a function of a rate, and of parameters, that returns an optax
    transformation.

    Its parameters with a default of a plain type are those of the law. Raises
    PointError for a parameter without a default, and for one that has the name of one
    of the schedule.
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
