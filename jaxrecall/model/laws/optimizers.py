"""Optimiser laws for further steps: optimisers of optax, a polar factor, and the user's
own optimisers.

A law returns the optax transformation for a rate. It also declares how the simulator
may run this transformation: whether zero padding of rows and columns changes an update,
and in which form W_KQ is trained. A law without declarations runs without padding and
trains the full W_KQ. This is correct for any optimiser. The further steps are ours,
because the paper has none. The optimisers are not ours.
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
from .law import Law, register

if TYPE_CHECKING:
    import optax
    from jax import Array


def _setting(default: object, legend: str = "", **limits: object) -> Any:
    """Declares a parameter that is a constant of the compiled program. If b2 were a
    traced float32, 1 - b2 would lose digits.
    """
    return parameter(default, legend, kind="static", **limits)


@dataclass(frozen=True, kw_only=True)
class OptimizerLaw(Law):
    """An optimiser. `transformation(rate)` returns an optax transformation for a dict
    from name to parameter.

    `schedule` and `warmup` determine the factor that multiplies the rates in each step
    of the optimiser.
    """

    field: ClassVar[str] = "optimizer"
    always_columns: ClassVar[bool] = False

    padding_safe: ClassVar[bool] = False
    """Whether zero rows and columns around a gradient only add zeros to its update. If
    False, the law runs in programs without padding.
    """

    attention: ClassVar[Literal["matrix", "column", "vector"]] = "matrix"
    """The form in which W_KQ is trained. The gradient by W_KQ is g z_eos^T.

    `matrix` trains the whole matrix. `column` trains its one column in a basis that
    starts with z_eos. This form requires that the update for G Q is the update for G
    times Q, for every rotation Q. `vector` trains w = W_KQ z_eos. This form requires
    that the update is linear in the gradients.
    """

    of_optax: ClassVar[str] = ""
    """The name of the optax function that returns the optimiser for a rate. The
    parameters of the law are passed to this function.
    """

    schedule: str = _setting(
        "constant",
        "course of the rate after the warmup, to 0 at the last step",
        choices=("constant", "linear", "cosine"),
    )
    warmup: int = _setting(
        0, "steps over which the rate rises from 0", unit="steps", low=0, high=10**6
    )

    def transformation(self, rate: float) -> optax.GradientTransformation:
        """Returns the optax optimiser with this rate. The rate multiplies its
        updates.
        """
        import optax.contrib

        return attrgetter(self.of_optax)(optax)(rate, **self.own)

    @property
    def own(self) -> dict[str, object]:
        """A dict from name to value of the law's parameters, without the parameters of
        the schedule.
        """
        own = fields(self)[len(fields(OptimizerLaw)) :]
        return {f.name: getattr(self, f.name) for f in own}

    @property
    def gain(self) -> float:
        """A bound on the distance that a step adds between two runs, divided by the
        difference between their gradients.

        The distance is that of the parameter entry that differs most. The bound is for
        rate 1 and is averaged over steps. If the bound is finite, steps with locked
        attention may sum over weighted tokens.
        """
        return math.inf

    def descent(self, rates: Mapping[str, Numbers], steps: Numbers) -> Any:
        """Returns the optax optimiser for parameters that each have a rate of their
        own, for this number of steps.
        """
        import optax

        made = self.transformation(1.0)
        if not isinstance(made, optax.GradientTransformation):
            allowed = "an optax.GradientTransformation"
            got = f"got {self}, which returns {shown(made)}"
            raise PointError([Problem("optimizer", got, allowed=allowed)])
        scheduled = []
        if self.warmup or self.schedule != "constant":
            share = partial(self._share, steps=steps)
            scheduled.append(optax.scale_by_schedule(share))
        scaled = optax.stateless(
            lambda moves, _: {name: rates[name] * move for name, move in moves.items()}  # type: ignore
        )
        return optax.chain(made, *scheduled, scaled)

    def _share(self, count: Numbers, steps: Numbers) -> Array:
        """Returns the factor that multiplies the rate in step `count`, counted from 0.
        The schedule is that of optax's warmup_cosine_decay_schedule.
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


DECAY = {"low": 0.0, "high": 1.0, "open_high": True}


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
    """Gradient descent along a weighted sum of the gradients so far.

    Each gradient has `momentum` times the weight of the next.
    """

    momentum: float = _setting(
        0.9,
        "weight of a gradient over that of the next",
        **DECAY,
    )
    nesterov: bool = _setting(False, "whether the step looks one gradient ahead")


LEAST_EPS = 1e-30
"""The smallest eps. The gradients of padding are 0, and 0 / (0 + eps) must be 0 in
float32.
"""


@register
@dataclass(frozen=True)
class Adam(OptimizerLaw):
    """The step is along m / (sqrt(v) + eps), elementwise, where m is the mean of
    gradients and v the mean of their squares.
    """

    of_optax, padding_safe = "adam", True
    b1: float = _setting(0.9, "decay rate of the mean of gradients", **DECAY)
    b2: float = _setting(0.999, "decay rate of the mean of their squares", **DECAY)
    eps: float = _setting(1e-8, "what is added to the root of that mean", low=LEAST_EPS)

    @property
    def gain(self) -> float:
        """A bound for the usual decay rates. For other decay rates the value is
        infinity.

        A change of m contributes at most 1 / eps. A change of sqrt v contributes as
        much times |m| / sqrt v, which is at most 3.2.
        """
        return 4.2 / self.eps if (self.b1, self.b2) == (0.9, 0.999) else math.inf


@register
@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with weight decay: in each step, every entry also decays by the rate times
    `weight_decay`.
    """

    of_optax = "adamw"
    weight_decay: float = _setting(
        1e-4, "fraction of itself that an entry loses in a step at rate 1", low=0.0
    )


@register
@dataclass(frozen=True)
class Muon(OptimizerLaw):
    """The step is along the mean of gradients after Newton-Schulz steps bring its
    singular values near 1 (Jordan, 2024).

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
    """The step replaces each singular value s of the gradient G = U S V^T by h(s) = s /
    sqrt(s^2 + lam^2).

    The step is along U h(S) V^T.

    h(s) = 0 if s is only rounding, at most max(rows, columns) eps times the largest
    singular value. Rows and columns that are all zero are not counted. A vector is
    treated as a matrix with one column. With lam = 0 the law is an exact muon without
    momentum.
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


@lru_cache(256)
def of_function(
    function: Callable[..., object], module: str, name: str
) -> type[OptimizerLaw]:
    """Returns the law class of a function. The function accepts a rate and parameters,
    and returns an optax transformation.

    Each function parameter whose default has a plain type becomes a parameter of the
    law. Raises PointError for a parameter without a default, and for a parameter with
    the name of a schedule parameter.
    """
    declared = [*inspect.signature(function).parameters.values()]
    given = [p for p in declared[1:] if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    taken = [f.name for f in fields(OptimizerLaw)]
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    takes_rate = declared and declared[0].kind <= positional  # or positional-only
    if not takes_rate or any(p.default is p.empty or p.name in taken for p in given):
        got = shown(f"{module}:{name}({', '.join(map(str, declared))})")
        allowed = (
            "a function of a rate, then parameters with defaults, none of them called"
            f" {' or '.join(taken)}"
        )
        raise PointError([Problem("optimizer", f"got {got}", allowed=allowed)])
    plain = []
    for p in given:
        if type(p.default) in (bool, int, float, str):
            plain.append((p.name, type(p.default).__name__, _setting(p.default)))
    methods = {
        "transformation": lambda self, rate: function(rate, **self.own),
        "source": staticmethod(lambda: function),
    }
    law = make_dataclass(
        name, plain, bases=(OptimizerLaw,), namespace=methods, frozen=True
    )
    # Python >= 3.12 overwrites these if they are in the namespace
    law.__module__, law.__qualname__ = module, name
    return law


OptimizerLaw.of_function = of_function
