"""A point of the parameter space, the legend of its symbols, and the hash that identifies it.

A field of `Point` is declared once. Its declaration holds the symbol, the legend, the allowed values, and how the simulator
treats it (`Kind`). The arguments and shapes of compiled programs, the columns of a row, the grid schema and the documented legend
are derived from that.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

from ..errors import PointError, Problem, shown, suggest
from .activations import ACTIVATIONS
from .laws import EMBEDDING_LAWS
from .pool import MAX_LENGTH, MAX_SAMPLES, in_the_limit
from .training import MAX_STEPS, OPTIMIZERS, RECIPE_STEPS, STARTS, TRAINS, first_step, recorded_steps

Kind = Literal["size", "traced", "rate", "static", "form", "draws"]
"""How the simulator treats a field:

    size     an argument of the compiled program, and padded to a static size of it
    traced   an argument
    rate     enters an argument: products and ratios of rates are formed in float64
    static   selects the program
    form     selects the simulation form, and so the program
    draws    selects the random numbers
"""

MAX_SEED = 2**32 - 1

BLOCK = 512
"""Samples per block of random draws: a constant of the contract, not a tuning parameter."""

REDRAWS = 8
"""How often `diagnose` draws W_in again."""


def _field(kind: Kind, symbol: str, legend: str, default: Any = MISSING, **limits: Any) -> Any:
    """A field. `limits`: low, high, high_with_pool, open_low, or choices (a function); `late`: how many later
    groups of columns its own comes after; `extra`: a switch that adds columns and changes no other."""
    return field(default=default, metadata={"kind": kind, "symbol": symbol, "legend": legend, **limits})


def _one_of(*names: str) -> Callable[[], tuple[str, ...]]:
    return lambda: names


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of the parameter space, checked and resolved: `gamma`, `kappa` and `gamma2` are numbers, never None.

    Give `kappa` or `gamma`, not both: gamma = kappa L^2 V / eta. `gamma2` defaults to gamma. `m = 0` is the
    attention-only model and sets `activation` to "none". `replace` makes a changed copy.

    Raises PointError, which lists everything that is wrong, not only the first thing.

        >>> from jaxrecall import Point
        >>> point = Point(V=64, N=1024, d=32, L=8)
        >>> point.gamma, point.replace(N=2048, m=128, activation="gelu")
    """

    root_seed: int = _field("draws", "", "root of every random number", 0, low=0, high=MAX_SEED)
    V: int = _field("size", "V", "vocabulary size, tokens and labels", low=2, high=65536)
    N: int = _field("traced", "N", "samples that each gradient step averages over", low=1, high=2**30, high_with_pool=MAX_SAMPLES)
    d: int = _field("size", "d", "embedding width", low=1, high=2**16)
    L: int = _field("traced", "L", "sequence length, tokens", low=1, high=65536, high_with_pool=MAX_LENGTH)
    m: int = _field("size", "m", "MLP width; 0 is the attention-only model", 0, low=0, high=2**20)
    embedding: str = _field("traced", "", "law of the embeddings", "gaussian", choices=lambda: tuple(EMBEDDING_LAWS))
    activation: str = _field("static", "phi", "nonlinearity of the MLP", "relu", choices=lambda: ("none", *ACTIVATIONS))
    trigger_in_value: bool = _field("traced", "", "the value of the informative token holds z_trig too", True)
    fresh_batches: bool = _field("traced", "", "each of the three steps draws its own N samples", False)
    eta: float = _field("rate", "eta", "rate of step 1", 1e-3, low=0.0, open_low=True)
    gamma: float = _field("rate", "gamma", "rate of step 2; give this or kappa", None, low=0.0)
    gamma2: float = _field("rate", "gamma2", "rate of step 3; gamma unless given", None, low=0.0)
    kappa: float = _field("rate", "kappa", "scaled rate of step 2: gamma = kappa L^2 V / eta (default 100)", None, low=0.0)
    n_test: int = _field("traced", "", "test sequences", 2048, low=1, high=2**30)
    streams: str = _field(
        "draws", "", "points share random numbers, or each has its own", "common", choices=_one_of("common", "independent"), late=1
    )
    exact: str = _field(
        "form", "", "guarded: shortcuts where a computed bound allows; full: none", "guarded", choices=_one_of("guarded", "full"), late=1
    )
    diagnose: bool = _field("static", "", "split the noise of the attention scores by where it comes from", False, late=1, extra=True)
    decoders: bool = _field("static", "", "recover the labels from the gradient of step 1 alone (m = 0)", False, late=1, extra=True)
    pool: int | None = _field(
        "static", "K", "noise sequences that the samples share; none: each sample has its own", None, low=1, high=65536, late=2
    )

    steps: int = _field(
        "traced",
        "",
        "gradient steps in total; those after the three of the recipe, or after none, are the optimizer's",
        3,
        low=1,
        high=MAX_STEPS,
        late=3,
    )
    start: str = _field(
        "static", "", "where the optimizer starts: from the model of the recipe, or from zero", "three_step", choices=lambda: STARTS, late=3
    )
    optimizer: str | None = _field(
        "static", "", "optimizer of further steps (sgd unless given); none: the recipe alone", None, choices=lambda: OPTIMIZERS, late=3
    )
    lr: float | None = _field("rate", "", "learning rate of further steps", None, low=0.0, open_low=True, late=3)
    lr_attention: float | None = _field("rate", "", "learning rate of W_KQ in further steps; lr unless given", None, low=0.0, late=3)
    trains: str | None = _field(
        "static",
        "",
        "what further steps train (VW unless given): V_mat and W_KQ (VW), V_mat (V), embeddings too (VWZ), W_in too (VWZM)",
        None,
        choices=lambda: tuple(TRAINS),
        late=3,
    )
    batch: int | None = _field(
        "traced", "", "samples of each further step, drawn from the N with replacement; none: all N", None, low=1, high=2**30, late=3
    )

    def __post_init__(self) -> None:
        problems: list[Problem] = []
        given = {name for name in FIELDS if getattr(self, name) is not None}
        has_pool = self.pool is not None
        for name, f in FIELDS.items():
            if name in given or f.default is not None:
                value = getattr(self, name)
                if type(value) in PLAIN and _stays(name, value, has_pool):
                    continue
                object.__setattr__(self, name, checked_field(name, value, has_pool, problems))
        if {"kappa", "gamma"} <= given:
            problems.append(Problem("kappa", f"got kappa={self.kappa!r} and gamma={self.gamma!r}; give one, the other follows"))
        if not problems:
            self._check_together(problems)
        if problems:
            raise PointError(problems)
        resolved: dict[str, Any] = {"_given": frozenset(given & {"kappa", "gamma", "gamma2", "lr_attention"})}
        if self.m == 0:
            resolved["activation"] = "none"
        per_kappa = self.L**2 * self.V / self.eta
        if "gamma" in given:
            resolved["kappa"] = self.gamma / per_kappa
        else:
            resolved["kappa"] = self.kappa if "kappa" in given else 100.0
            resolved["gamma"] = resolved["kappa"] * per_kappa
        if "gamma2" not in given:
            resolved["gamma2"] = resolved.get("gamma", self.gamma)
        resolved |= self._resolved_training()
        for name, value in resolved.items():
            object.__setattr__(self, name, value)
        for name in ("kappa", "gamma"):
            if not math.isfinite(getattr(self, name)):
                raise PointError([Problem(name, f"resolves to {getattr(self, name)} at eta={self.eta!r}; allowed: finite numbers")])

    def _check_together(self, problems: list[Problem]) -> None:
        if self.m > 0 and self.activation == "none":
            message = f"got 'none' with m={self.m}; allowed with an MLP: {', '.join(ACTIVATIONS)}"
            problems.append(Problem("activation", message, "m == 0 or activation != 'none'"))
        problems += EMBEDDING_LAWS[self.embedding].problems(self.V, self.d)
        if self.decoders and self.m > 0:
            message = f"got true with m={self.m}; allowed: false with an MLP, whose features of a sample are no sum over its tokens"
            problems.append(Problem("decoders", message, "m == 0 or not decoders"))
        if self.pool and self.V * self.pool >= 2**31:
            message = f"got {self.pool} with V={self.V}; allowed: up to {(2**31 - 1) // self.V}, so that V pool is below 2^31"
            problems.append(Problem("pool", message, "V * pool < 2**31"))
        if self.decoders and self.pool:
            message = (
                f"got true with pool={self.pool}; allowed: false with a pool, whose samples share noise that the decoders hold for new"
            )
            problems.append(Problem("decoders", message, "not decoders"))

        problems += self._training_problems()

    def _training_problems(self) -> list[Problem]:
        """What is wrong with the steps after the recipe."""
        if not self.trains_on:
            if self.steps < RECIPE_STEPS:
                message = (
                    f"got {self.steps} with start='three_step'; allowed: from {RECIPE_STEPS}, the steps of the recipe; or start='zero'"
                )
                return [Problem("steps", message, f"steps >= {RECIPE_STEPS}")]
            return []
        found = []
        if self.lr is None:
            message = (
                f"got none with steps={self.steps}, start={self.start!r}; allowed: numbers greater than 0, as 0.1 for sgd or 0.01 for adam"
            )
            found.append(Problem("lr", message))
        if self.trains == "VWZM" and not self.m:
            found.append(Problem("trains", "got 'VWZM' with m=0; allowed without an MLP: VW, V, VWZ", "m > 0 or trains != 'VWZM'"))
        if self.batch and self.batch > self.N:
            found.append(Problem("batch", f"got {self.batch} with N={self.N}; allowed: up to N, or none for all samples", "batch <= N"))
        if self.batch and self.pool:
            message = f"got {self.batch} with pool={self.pool}; allowed: none with a pool, of which every step reads all pairs"
            found.append(Problem("batch", message))
        if self.batch and self.fresh_batches:
            message = f"got {self.batch} with fresh_batches; allowed: none, for every step draws its own N samples"
            found.append(Problem("batch", message))
        if self.fresh_batches and self.pool:
            message = f"got true with pool={self.pool} and steps={self.steps}; allowed: false, for one pool serves all further steps"
            found.append(Problem("fresh_batches", message))
        for name in EXTRAS:
            if getattr(self, name):
                message = (
                    f"got true with steps={self.steps}, start={self.start!r}; allowed: false beyond the recipe, which its columns are about"
                )
                found.append(Problem(name, message))
        return found

    def _resolved_training(self) -> dict[str, Any]:
        """The fields of further steps as a run has them: none for the recipe alone."""
        if not self.trains_on:
            return dict.fromkeys(("optimizer", "lr", "lr_attention", "trains", "batch"))
        trains = self.trains or "VW"
        attention = 0.0 if trains == "V" else self.lr if self.lr_attention is None else self.lr_attention
        return {"optimizer": self.optimizer or "sgd", "trains": trains, "lr_attention": attention}

    @property
    def trains_on(self) -> bool:
        """Whether an optimiser makes further steps, after the recipe or in place of it."""
        return self.further_steps > 0

    @property
    def recorded_steps(self) -> tuple[int, ...]:
        """The steps of a run that have a row, the last one last."""
        return recorded_steps(self.start, self.steps)

    @property
    def further_steps(self) -> int:
        """Steps of the optimiser."""
        return self.steps - first_step(self.start)

    @property
    def p(self) -> int:
        """Width of what V_mat reads: d for attention-only, m with an MLP."""
        return self.m or self.d

    @cached_property
    def point_id(self) -> str:
        """16 hex digits that name the point: a hash of its science, not of how or where it is run.

        sha256 of the canonical JSON of all fields but kappa (gamma carries it), floats to 12 significant digits. A field
        that a later version adds must enter only when it is not at its default, so that old ids stay.
        """
        # the JSON is put together here, because json.dumps takes most of the time to expand a large grid
        asked = [(name, getattr(self, name)) for name in (IN_ID if self.trains_on else IN_ID_OF_RECIPE)]
        science = [f'"{name}":{_as_json(value)}' for name, value in asked if value or name not in OUT_OF_ID_IF_UNSET]
        return hashlib.sha256(f"{{{','.join(science)}}}".encode()).hexdigest()[:16]

    @cached_property
    def draws_id(self) -> str:
        """The id that independent streams are drawn by: asking for more columns changes no draw."""
        return self.replace(**dict.fromkeys(EXTRAS, False)).point_id if any(getattr(self, name) for name in EXTRAS) else self.point_id

    @cached_property
    def in_the_limit(self) -> tuple[str, ...]:
        """Which counts of a point with a pool are drawn from their Gaussian limit: samples, noise (of the pool), test (sequences)."""
        if self.pool is None:
            return ()
        counts = {
            "samples": in_the_limit(self.N, self.V * self.pool),
            "noise": in_the_limit(self.pool * (self.L - 1), self.pool * self.V),
            "test": in_the_limit(self.n_test * (self.L - 1), self.n_test * self.V),
        }
        return tuple(name for name, is_limit in counts.items() if is_limit)

    def as_given(self) -> dict[str, Any]:
        """Arguments that rebuild this point: of kappa, gamma, gamma2 and lr_attention only those that were given."""
        derived = {"kappa", "gamma", "gamma2", "lr_attention"} - self._given  # type: ignore[attr-defined]
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in derived}

    def replace(self, **changes: Any) -> Point:
        """A changed copy; rates that followed from others follow again."""
        arguments = self.as_given()
        if arguments["activation"] == "none" and changes.get("m"):
            del arguments["activation"]
        if "gamma" in changes:
            arguments.pop("kappa", None)
        if "kappa" in changes:
            arguments.pop("gamma", None)
        return Point(**{**arguments, **changes})


class RunId(NamedTuple):
    """What identifies a run in rows, files and messages."""

    point_id: str
    seed: int


class Run(NamedTuple):
    """A run: one point, simulated with one seed."""

    point: Point
    seed: int

    @property
    def id(self) -> RunId:
        return RunId(self.point.point_id, self.seed)


def checked_seed(seed: Any) -> int:
    """`seed` as an int in 0..2^32-1; raises PointError."""
    problems: list[Problem] = []
    value = _checked("seed", seed, "int", {"low": 0, "high": MAX_SEED}, problems)
    if problems:
        raise PointError(problems)
    return value


def checked_field(name: str, value: Any, has_pool: bool, problems: list[Problem], fields: Mapping[str, Any] | None = None) -> Any:
    """`value` as the plain Python type of the field, or an entry in `problems`; limits that join several fields are not checked.

    `fields` are those of another simulator.
    """
    declared = (fields or FIELDS)[name]
    limits: Mapping[str, Any] = declared.metadata
    if has_pool and "high_with_pool" in limits:
        limits = {**limits, "high": limits["high_with_pool"]}
    return _checked(name, value, getattr(declared.type, "__name__", str(declared.type)), limits, problems)


@lru_cache(4096, typed=True)
def _stays(name: str, value: Any, has_pool: bool) -> bool:
    """Whether a value of one of the PLAIN types is allowed as it is. A large grid has the same few in many points."""
    problems: list[Problem] = []
    return type(checked_field(name, value, has_pool, problems)) is type(value) and not problems


def _as_json(value: Any) -> str:
    """As in the canonical JSON of a point: floats are strings of 12 significant digits."""
    return f'"{to_12_digits(value)}"' if isinstance(value, float) else _dumped(value)


_dumped = lru_cache(4096, typed=True)(json.dumps)


def to_12_digits(value: float) -> str:
    """The value to 12 significant digits, by which ids and axes compare numbers."""
    return f"{value:.12g}"


def _checked(name: str, value: Any, kind: str, limits: Any, problems: list[Problem]) -> Any:
    """`value` as the plain Python type of the field, or an entry in `problems`."""
    if "choices" in limits:
        if not isinstance(value, str) or value not in limits["choices"]():
            names = limits["choices"]()
            hint = suggest(value, names) if isinstance(value, str) else ""
            problems.append(Problem(name, f"got {shown(value)}{hint}; allowed: {', '.join(names)}"))
        return value
    if kind == "bool":
        if type(value).__name__ not in ("bool", "bool_"):  # bool_ is numpy's
            problems.append(Problem(name, f"got {shown(value)}; allowed: true, false"))
            return value
        return bool(value)
    low, high = limits["low"], limits.get("high", math.inf)
    number = _as_number(value, int if kind.startswith("int") else float)
    too_low = number is not None and (number <= low if limits.get("open_low") else number < low)
    if number is not None and not too_low and number <= high:
        return number
    what = "whole numbers" if kind.startswith("int") else "finite numbers"
    above = f"greater than {low:g}" if limits.get("open_low") else f"from {low}" if kind.startswith("int") else f"from {low:g}"
    allowed = f"{what} {above}" + (f" to {high}" if high < math.inf else "")
    if (larger := limits.get("high_with_pool", high)) > high:
        allowed += f", with a pool to {larger}"
    mend = None
    if number is not None:
        mend = f"{name} {'>' if limits.get('open_low') else '>='} {low:g}" if too_low else f"{name} <= {high}"
    problems.append(Problem(name, f"got {shown(value)}; allowed: {allowed}", mend))
    return value if number is None else number


def _as_number(value: Any, kind: type) -> Any:
    """`value` as an exact int or finite float, or None; 1e5 is a whole number, True is none."""
    if isinstance(value, (bool, str)) or value is None:
        return None
    try:
        if kind is int:
            return operator.index(value) if not isinstance(value, float) else int(value) if value.is_integer() else None
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


PLAIN = (bool, int, float)
"""Types of numbers that a field may hold."""

FIELDS = {f.name: f for f in fields(Point)}


def make_point(values: Mapping[str, Any]) -> Point:
    """The point with these values of its fields; raises PointError."""
    return Point(**values)


def of_kind(*kinds: Kind) -> tuple[str, ...]:
    """The names of the fields of these kinds, in the order of their declaration."""
    return tuple(name for name, f in FIELDS.items() if f.metadata["kind"] in kinds)


def choices(name: str) -> tuple[str, ...]:
    """The allowed values of a field that takes one of a few names, else nothing."""
    limits: Mapping[str, Any] = FIELDS[name].metadata
    return limits["choices"]() if "choices" in limits else ()


EXTRAS = tuple(name for name, f in FIELDS.items() if f.metadata.get("extra"))
"""Switches that add columns and change no other; they enter the id only when they are on."""

TRAINING = tuple(name for name, f in FIELDS.items() if f.metadata.get("late", 0) == 3)
"""Fields of further steps; they enter the id only where there are any."""

OUT_OF_ID_IF_UNSET = (*EXTRAS, "pool", "batch")
"""Fields that enter the id only when they are set."""

IN_ID = sorted(name for name in FIELDS if name != "kappa")
"""Fields that the id is made of, in the order of its canonical JSON."""

IN_ID_OF_RECIPE = [name for name in IN_ID if name not in TRAINING]
