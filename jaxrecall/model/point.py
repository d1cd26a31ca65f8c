"""A point of the parameter space, the meaning of its symbols, and the hash that
identifies the point.

A point consists of five records: the samples, the architecture, the rates of the
recipe, the training beyond the recipe, and the measurements. Each record declares its
fields, checks them together, and lists the fields that enter the id. Users access all
fields on the point itself, as in `point.V`. The declarations determine the arguments
and shapes of compiled programs, the columns of a row, the grid schema and the
documented legend.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache, cached_property, lru_cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..errors import PointError, Problem, shown, suggest
from .activations import Activation, NoActivation, activations
from .laws import EmbeddingLaw, Law, OptimizerLaw, TokenLaw, find_law
from .laws.embedding import problems_of_rows
from .laws.law import (
    law_names,
    plain,
    rename_problems,
)
from .laws.tokens import drawn_as
from .values import (
    Declared,
    as_number,
    checked_value,
    declared,
    is_missing,
    plain_type,
)

Kind = Literal["size", "traced", "rate", "static", "form", "draws"]
"""How the simulator treats a field:

    size     an argument of the compiled program, whose arrays are padded to a static
             size of this field
    traced   an argument of the compiled program
    rate     enters an argument: products and ratios of rates are formed in float64
    static   selects the program
    form     selects the simulation form, and so the program
    draws    selects the random numbers
"""

MAX_SEED = 2**32 - 1

RECIPE_STEPS = 3
"""The number of gradient steps of the paper's recipe."""

MAX_STEPS = 10**6

MAX_FIRST_STEPS = 2**16

STARTS = ("three_step", "zero")
"""The starting points of further steps: the model after the recipe, or zero."""

TRAINS = {
    "VW": (),
    "V": (),
    "VWZ": ("Z_in", "Z_out", "z_trig"),
    "VWZM": ("Z_in", "Z_out", "z_trig", "W_in"),
}
"""A dict from each value of `trains` to the embeddings and layers that are trained in
addition.

V_mat is always trained, and W_KQ is trained for every value except V.
"""

BLOCK = 512
"""The number of samples per block of random draws. It must never change, because the
draws depend on it.
"""

REDRAWS = 8
"""The number of times that `diagnose` redraws W_in."""

MAX_DRAWS = 2**20
"""The largest number of draws that are always made one by one. It applies to a pool,
and to samples of one token each.
"""

MIN_MEAN = 8
"""The smallest mean number of draws per cell at which counts may replace single draws.

At a mean of 8 a cell stays empty with probability 2.4e-4 in the Gaussian limit, against
3.4e-4 exactly. If cells are not equally likely, the counts of cells with a smaller mean
are drawn from their exact distribution.
"""

MAX_STREAMED = 2**30
"""The largest N for which samples are read one by one."""

MAX_SAMPLES, MAX_LENGTH = 10**15, 10**9
"""The largest N and L with a pool.

With a pool, N and L do not change the cost. They only scale other numbers in float32.
At L = 1, the largest N is the same.
"""


SAME_AS = {"embedding_out": "embedding", "noise_tokens": "tokens"}
"""A dict from each field whose default is the law of another field to that other
field.
"""


def _law(
    kind: Kind, legend: str, default: str | None, family: type[Law], symbol: str = ""
) -> Any:
    """Declares a field whose value is a law of a family."""
    names = partial(law_names, family.field)
    law = default and find_law(family, default)
    return declared(kind, legend, law, symbol, names, law=family)


def _clash(
    point: Point,
    name: str,
    others: Iterable[str],
    allowed: str,
    where: str | None = None,
) -> Problem:
    """Returns the problem of a value that is not allowed in combination with the values
    of other fields.
    """
    return Problem(name, _got_with(point, name, others), where, allowed)


def _got_with(point: Point, name: str, others: Iterable[str]) -> str:
    together = ", ".join(f"{other}={_as_text(point, other)}" for other in others)
    return f"got {_as_text(point, name)} with {together}"


def _as_text(point: Point, name: str) -> str:
    """Returns the text of a field's value in the form that a grid file contains."""
    value = plain(getattr(point, name))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return repr(value)


@dataclass(frozen=True, kw_only=True)
class Data:
    """The samples: their number, their length, and how they are drawn.

    The pool and the token laws also enter the id if they differ from their defaults.
    """

    root_seed: int = declared(
        "draws", "root of every random number", 0, low=0, high=MAX_SEED
    )
    V: int = declared("size", "vocabulary size, tokens and labels", low=2, high=65536)
    N: int = declared(
        "traced",
        "samples that each gradient step averages over",
        low=1,
        high=MAX_STREAMED,
        high_with_pool=MAX_SAMPLES,
    )
    L: int = declared(
        "traced",
        "sequence length, tokens",
        low=1,
        high=65536,
        high_with_pool=MAX_LENGTH,
    )
    tokens: Any = _law("static", "distribution of the tokens", "uniform", TokenLaw)
    noise_tokens: Any = _law(
        "static",
        "distribution of the noise tokens; tokens unless given",
        None,
        TokenLaw,
    )
    fresh_batches: bool = declared(
        "traced", "each of the three steps draws N new samples", False
    )
    label_noise: float = declared(
        "traced",
        "fraction of training labels that are drawn anew, uniformly",
        0.0,
        low=0,
        high=1,
    )
    streams: str = declared(
        "draws",
        "points share random numbers, or have independent ones",
        "common",
        choices=("common", "independent"),
    )
    pool: int | None = declared(
        "static",
        "noise sequences that the samples share; none: independent samples",
        None,
        "K",
        low=1,
        high=65536,
    )

    @staticmethod
    def problems(point: Point) -> Iterable[Problem]:
        if point.pool and point.V * point.pool >= 2**31:
            most = f"up to {(2**31 - 1) // point.V}, so that V pool is below 2^31"
            yield _clash(point, "pool", ["V"], most, "V * pool < 2**31")
        if point.N > MAX_STREAMED and not (point.pool or point.is_memory):
            others = unknown_fields(point, OF_MEMORY)
            most, where = f"up to {MAX_STREAMED}", f"N <= {MAX_STREAMED}"
            yield _clash(point, "N", others, most, where)
        for name in ("tokens", "noise_tokens"):
            law = getattr(point, name)
            try:
                drawn_as(law, point.V)
            except PointError as error:
                yield from rename_problems(error.problems, law, name)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The transformer: its sizes and laws.

    The id contains the text that each law returns from `identity`. It contains
    embedding_out only if it differs from embedding.
    """

    d: int = declared("size", "embedding width", low=1, high=2**16)
    m: int = declared(
        "size", "MLP width; 0 is the attention-only model", 0, low=0, high=2**20
    )
    embedding: Any = _law(
        "traced", "distribution of the embeddings", "gaussian", EmbeddingLaw
    )
    embedding_out: Any = _law(
        "static", "distribution of Z_out; embedding unless given", None, EmbeddingLaw
    )
    activation: Any = _law(
        "static", "nonlinearity of the MLP", "relu", Activation, "phi"
    )
    trigger_in_value: bool = declared(
        "traced",
        "z_trig is in the value of the informative token, not only in its key",
        True,
    )

    @staticmethod
    def problems(point: Point) -> Iterable[Problem]:
        if point.m > 0 and point.activation == "none":
            got = _got_with(point, "activation", ["m"])
            got += f"; allowed with an MLP: {', '.join(activations())}"
            yield Problem("activation", got, "m == 0 or activation != 'none'")
        yield from _problems_of_embeddings(point, "embedding")
        if point.embedding_out != point.embedding:
            yield from _problems_of_embeddings(point, "embedding_out")


def _problems_of_embeddings(point: Point, name: str) -> list[Problem]:
    """Returns the problems that the embedding law in field `name` has at the sizes of
    the point.
    """
    law = getattr(point, name)
    problems = law.problems(point.V, point.d)
    if not problems and ":" in str(law):
        problems = problems_of_rows(law, point.V, point.d)
    return rename_problems(problems, law, name)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The rates of the three steps, and whether shortcuts are allowed.

    All fields except kappa enter the id, because gamma already determines kappa.
    """

    eta: float = declared("rate", "rate of step 1", 1e-3, low=0.0, open_low=True)
    gamma: float = declared("rate", "rate of step 2; give this or kappa", None, low=0.0)
    gamma2: float = declared(
        "rate", "rate of step 3; gamma unless given", None, low=0.0
    )
    kappa: float = declared(
        "rate",
        "scaled rate of step 2: gamma = kappa L^2 V / (eta first_steps) (default 100)",
        None,
        low=0.0,
    )
    first_steps: int = declared(
        "traced",
        "steps of V_mat at the rate eta before the attention step; together they are"
        " step 1",
        1,
        "k",
        low=1,
        high=MAX_FIRST_STEPS,
    )
    exact: str = declared(
        "form",
        "fast code paths; guarded: where a computed error bound allows, full: none",
        "guarded",
        choices=("guarded", "full"),
    )

    @staticmethod
    def problems(point: Point) -> Iterable[Problem]:
        for name in ("kappa", "gamma"):
            rate = getattr(point, name)
            if not math.isfinite(rate):
                got = f"resolves to {rate} at eta={point.eta!r}"
                yield Problem(name, got, allowed="finite numbers")
        several = point.first_steps > 1 or point.trains_on
        if several and point.fresh_batches and point.pool:
            allowed = "false, for one pool serves all steps"
            others = ["pool", "first_steps", "steps"]
            yield _clash(point, "fresh_batches", others, allowed)
        if 0 < point.kappa < LEAST_KAPPA:
            allowed = f"0, and numbers from {LEAST_KAPPA:.2g}"
            yield Problem("kappa", f"resolves to {point.kappa}", allowed=allowed)


@dataclass(frozen=True, kw_only=True)
class Training:
    """The steps of an optimiser, after the recipe or in place of it.

    The fields enter the id only if there are such steps. The paper has none.

    A run with further steps starts from the model after the three steps, or from V_mat
    = 0 and W_KQ = 0. The optimiser descends the same loss until the run has made
    `steps` gradient steps in total. Each recorded step is a row of its own.
    """

    steps: int = declared(
        "traced",
        "gradient steps in total; those after the three of the recipe, or after none,"
        " are the optimizer's",
        RECIPE_STEPS,
        low=1,
        high=MAX_STEPS,
    )
    start: str = declared(
        "static",
        "where the optimizer starts: from the model of the recipe, or from zero",
        STARTS[0],
        choices=STARTS,
    )
    optimizer: Any = _law(
        "static",
        "optimizer of further steps (sgd unless given); none: the recipe alone",
        None,
        OptimizerLaw,
    )
    lr: float | None = declared(
        "rate", "learning rate of further steps", None, low=0.0, open_low=True
    )
    lr_attention: float | None = declared(
        "rate", "learning rate of W_KQ in further steps; lr unless given", None, low=0.0
    )
    trains: str | None = declared(
        "static",
        "what further steps train (VW unless given): V_mat and W_KQ (VW), V_mat (V),"
        " embeddings too (VWZ), W_in too (VWZM)",
        None,
        choices=TRAINS,
    )
    batch: int | None = declared(
        "traced",
        "samples of each further step, drawn from the N with replacement; none: all N",
        None,
        low=1,
        high=2**30,
    )

    @staticmethod
    def problems(point: Point) -> Iterable[Problem]:
        if point.further_steps < 0:
            allowed = f"from {RECIPE_STEPS}, the steps of the recipe; or start='zero'"
            where = f"steps >= {RECIPE_STEPS}"
            yield _clash(point, "steps", ["start"], allowed, where)
        if not point.trains_on:
            return
        if point.lr is None:
            allowed = "numbers greater than 0, as 0.1 for sgd or 0.01 for adam"
            yield _clash(point, "lr", ["steps", "start"], allowed)
        if point.trains == "VWZM" and not point.m:
            got = _got_with(point, "trains", ["m"])
            got += "; allowed without an MLP: VW, V, VWZ"
            yield Problem("trains", got, "m > 0 or trains != 'VWZM'")
        if point.batch and point.batch > point.N:
            allowed = "up to N, or none for all samples"
            yield _clash(point, "batch", ["N"], allowed, "batch <= N")
        if point.batch and point.fresh_batches:
            allowed = "none, for every step draws N new samples"
            yield _clash(point, "batch", ["fresh_batches"], allowed)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The test sequences, and switches that add columns.

    A switch changes no other column, and enters the id only if it is on.
    """

    n_test: int = declared("traced", "test sequences", 2048, low=1, high=2**30)
    diagnose: bool = declared(
        "static",
        "split the noise of the attention scores by where it comes from",
        False,
    )
    decoders: bool = declared(
        "static", "recover the labels from the gradient of step 1 alone (m = 0)", False
    )


IN_ID = {
    "root_seed",
    "V",
    "N",
    "L",
    "fresh_batches",
    "streams",
    "d",
    "m",
    "embedding",
    "activation",
    "trigger_in_value",
    "eta",
    "gamma",
    "gamma2",
    "exact",
    "n_test",
}
"""The fields that enter the id of every point. All other fields enter it if they are
off their default.
"""

NO_ACTIVATION = NoActivation()

KAPPA = 100.0
"""The default of kappa if neither kappa nor gamma is given."""

LEAST_KAPPA = 2.0**-126
"""The smallest normal number of float32. With a smaller kappa all attention scores
would be 0.
"""


def gamma_per_kappa(L: int, V: int, eta: Any, first_steps: int = 1) -> Any:
    """The ratio gamma / kappa for these sizes, this rate eta of step 1, and this number
    of first steps. JAX may trace eta.

    The trigger then has a score of about kappa nats, to first order in eta.
    """
    return float(L**2 * V) / (eta * first_steps)


DERIVED = (
    "kappa",
    "gamma",
    "gamma2",
    "lr_attention",
    "embedding_out",
    "noise_tokens",
)
"""The fields that are derived from other fields unless they are given."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Point(Evaluation, Training, Recipe, Architecture, Data):
    """One checked point of the parameter space. All rates of the recipe are numbers.

    Give `kappa` or `gamma`, not both: gamma = kappa L^2 V / (eta first_steps). `gamma2`
    defaults to gamma. `m = 0` is the attention-only model and sets `activation` to
    "none". A law can be given as an object, a class or a text. `point.embedding` is
    always the object, such as `Equicorrelated(rho=0.3)`, which equals its text
    "equicorrelated(rho=0.3)". `replace` returns a changed copy.

    Raises PointError, which lists all problems and not only the first.

        >>> from jaxrecall import Point
        >>> point = Point(V=64, N=1024, d=32, L=8)
        >>> point.gamma, point.replace(N=2048, m=128, activation="gelu")
    """

    given: tuple[str, ...] = field(init=False)
    """The names in DERIVED of the fields that were given."""

    named: frozenset[str] = field(default=frozenset(), init=False)
    """The parameters of laws that a grid names. They are columns even at their
    defaults.
    """

    template: Template = field(init=False)
    """What the point has in common with others that differ in numbers alone."""

    point_id: str = field(init=False)
    """The id of the point, 16 hex digits. It is a hash of the problem that is solved,
    and does not depend on the method or the machine.

    The id is the start of the sha256 of a canonical JSON object. The object contains
    the fields in IN_ID, those of further steps if there are such steps, and all other
    fields that are off their default. A field that a later version adds therefore
    changes no id. kappa never enters, because gamma determines it.
    """

    def _complete(self, **given: object) -> None:
        """Sets the attributes. A field at its default remains an attribute of the
        class, so a point stores only what differs.

        Raises PointError.
        """
        problems: list[Problem] = []
        for name in given:
            if name not in FIELDS:
                allowed = f"{suggest(name, FIELDS)}; allowed: {', '.join(FIELDS)}"
                problems.append(Problem(name, f"is no field{allowed}"))
        if problems:
            raise PointError(problems)
        stored = self.__dict__
        _store(given, stored)
        stored["given"] = tuple(filter(stored.__contains__, DERIVED))
        self._resolve()
        template = _template(tuple(stored), _choices(self))
        stored["template"] = template
        for record in (Data, Architecture, Training, Recipe):
            problems += record.problems(self)
        problems += _uncovered(self)
        if problems:
            raise PointError(problems)
        identity, numbers = template.identity
        text = identity % numbers(self)
        stored["point_id"] = hashlib.sha256(text.encode()).hexdigest()[:16]

    if not TYPE_CHECKING:  # type checkers use the generated constructor
        __init__ = _complete

    def _resolve(self) -> None:
        """Sets the fields that are derived from the given ones. Without further steps,
        the fields of such steps have their defaults.
        """
        stored = self.__dict__
        for name, of in SAME_AS.items():
            stored[name] = getattr(self, name) or getattr(self, of)
        if self.m == 0:
            stored["activation"] = NO_ACTIVATION
        scale = gamma_per_kappa(self.L, self.V, self.eta, self.first_steps)
        if self.gamma is None:
            stored["kappa"] = KAPPA if self.kappa is None else self.kappa
            stored["gamma"] = self.kappa * scale
        else:
            stored["kappa"] = self.gamma / scale
        if self.gamma2 is None:
            stored["gamma2"] = self.gamma
        n_further = self.further_steps
        if n_further < 0:
            return  # which is refused
        if not n_further:
            for name in TRAINING:
                stored.pop(name, None)
            return
        stored["optimizer"] = self.optimizer or find_law(OptimizerLaw, "sgd")
        stored["trains"] = self.trains or "VW"
        if self.lr_attention is None:
            stored["lr_attention"] = self.lr
        if self.trains == "V":
            stored["lr_attention"] = 0.0

    def __repr__(self) -> str:
        values = (f"{name}={value!r}" for name, value in self.values().items())
        return f"Point({', '.join(values)})"

    def __eq__(self, other: object) -> bool:
        """Whether two points agree in all fields, and in whether gamma and gamma2 were
        given.

        JAX uses this equality to find the compiled function of a static point.
        """
        if not isinstance(other, Point):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self.point_id)

    def _key(self) -> tuple[object, ...]:
        given = "gamma" in self.given, "gamma2" in self.given
        return *given, *(getattr(self, name) for name in FIELDS)

    @property
    def trains_on(self) -> bool:
        """Whether an optimiser makes further steps, after the recipe or in place of
        it.
        """
        return self.optimizer is not None

    @property
    def recorded_steps(self) -> tuple[int, ...]:
        """The steps for which a run has a row, in increasing order."""
        return recorded_steps(self.start, self.steps)

    @property
    def further_steps(self) -> int:
        """The number of steps of the optimiser."""
        return self.steps - first_step(self.start)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """V, d and m."""
        return self.V, self.d, self.m

    @property
    def p(self) -> int:
        """The width of the input of V_mat: d for attention-only, m with an MLP."""
        return self.m or self.d

    @property
    def embedding_laws(self) -> tuple[EmbeddingLaw, EmbeddingLaw]:
        """The law of Z_in, z_trig and z_eos, and the law of Z_out."""
        return self.embedding, self.embedding_out

    @property
    def token_laws(self) -> tuple[TokenLaw, TokenLaw]:
        """The laws of the informative tokens and of the noise tokens.

        A law that makes all tokens equally likely is replaced by the uniform law.
        """
        return drawn_as(self.tokens, self.V), drawn_as(self.noise_tokens, self.V)

    def values(self) -> dict[str, Any]:
        """Returns a dict from field name to value, in the form that rows contain. A law
        is converted to its text.
        """
        return {name: plain(getattr(self, name)) for name in FIELDS}

    @property
    def unusual_fields(self) -> tuple[str, ...]:
        """The names of the fields that are off their default, in order."""
        return self.template.unusual_fields

    @cached_property
    def draws_id(self) -> str:
        """The id that determines the random numbers of independent streams.

        The switches that add columns do not enter this id, so they change no draw.
        """
        if not any(getattr(self, name) for name in EXTRAS):
            return self.point_id
        return self.replace(**dict.fromkeys(EXTRAS, False)).point_id

    @property
    def is_memory(self) -> bool:
        """Whether the model is an associative memory. Then L = 1, and a sample consists
        of its informative token.

        The result is False if any field outside `OF_MEMORY` is off its default.
        """
        return self.L == 1 and self.pool is None and not unknown_fields(self, OF_MEMORY)

    @cached_property
    def in_the_limit(self) -> tuple[str, ...]:
        """The names of the counts that are drawn from their Gaussian limit.

        `samples` means the counts of samples, `noise` the counts of the pool's noise
        tokens, and `test` the counts of tokens in test sequences. Without a pool, only
        an associative memory is simulated with counts from this limit.
        """
        if self.pool is None:
            is_limit = self.is_memory and in_the_limit(self.N, self.V)
            return ("samples",) if is_limit else ()
        draws_and_cells = {
            "samples": (self.N, self.V * self.pool),
            "noise": (self.pool * (self.L - 1), self.pool * self.V),
            "test": (self.n_test * (self.L - 1), self.n_test * self.V),
        }
        return tuple(name for name, of in draws_and_cells.items() if in_the_limit(*of))

    def as_given(self) -> dict[str, Any]:
        """Returns a dict of plain arguments from which `Point` constructs this point
        again.

        A field that can be derived from other fields is included only if it was given.
        """
        return {name: plain(value) for name, value in self._arguments().items()}

    def _arguments(self) -> dict[str, Any]:
        names = [name for name in FIELDS if name in self.given or name not in DERIVED]
        return {name: getattr(self, name) for name in names}

    def replace(self, **changes: Any) -> Point:
        """Returns a changed copy. Rates that were derived from other fields are derived
        again.
        """
        arguments = self._arguments()
        if self.activation == "none" and changes.get("m"):
            del arguments["activation"]
        if "gamma" in changes:
            arguments.pop("kappa", None)
        if "kappa" in changes:
            arguments.pop("gamma", None)
        return Point(**(arguments | changes))

    def with_columns(self, parameters: Iterable[str]) -> Point:
        """Returns a copy whose rows have columns for these law parameters, even if the
        parameters are at their defaults.
        """
        other = copy.copy(self)
        other.__dict__["named"] = frozenset(parameters)
        return other


@dataclass(eq=False)
class Template:
    """What points have in common that differ in numbers alone. The points of a grid
    have few templates, and each is made once.

    `chosen` is a dict of the fields in CHOICES.
    """

    unusual_fields: tuple[str, ...]
    chosen: Mapping[str, Any]

    @cached_property
    def identity(self) -> tuple[str, Callable[[Point], tuple[float, ...]]]:
        """The JSON object of the id as a format of numbers, and a function that returns
        these numbers of a point. A float is a text with 12 significant digits.
        """
        of_training = _FURTHER if "optimizer" in self.unusual_fields else ()
        entries, numbers = [], []
        for name in sorted(IN_ID.union(self.unusual_fields, of_training) - {"kappa"}):
            if name in self.chosen:
                value = self.chosen[name]
                text = json.dumps(value.identity() if isinstance(value, Law) else value)
                text = text.replace("%", "%%")
            else:
                numbers.append(name)
                text = "%d" if plain_type(FIELDS[name]) == "int" else '"%.12g"'
            entries.append(f'"{name}":{text}')
        return f"{{{','.join(entries)}}}", attrgetter(*numbers)


@lru_cache(4096)
def _template(stored: Collection[str], choices: Iterable[Any]) -> Template:
    """Returns the template of the points that store these fields and that have these
    values of the fields in CHOICES.
    """
    chosen = dict(zip(CHOICES, choices, strict=True))
    unusual = set(stored).difference(CHOICES).union(unknown_names(chosen))
    return Template(tuple(name for name in FIELDS if name in unusual), chosen)


def _store(given: Mapping[str, object], stored: dict[str, Any]) -> None:
    """Adds the checked values of the given fields to `stored`, without those at their
    default.

    Raises PointError.
    """
    has_many = given.get("pool") is not None or as_number(given.get("L"), int) == 1
    problems: list[Problem] = []
    for name, value in {**REQUIRED, **given}.items():
        if value is DEFAULTS[name]:
            continue
        if isinstance(value, (int, float)):
            value, more = _checked_number(name, value, has_many)
            problems += more
        else:
            value = checked_field(name, value, has_many, problems)
        if value != DEFAULTS[name]:
            # key by key, for which Python shares the keys of all points
            stored[name] = value
    if None not in (given.get("kappa"), given.get("gamma")):
        both = f"kappa={stored['kappa']!r} and gamma={stored['gamma']!r}"
        message = f"got {both}; give one, the other follows"
        problems.append(Problem("kappa", message))
    if problems:
        raise PointError(problems)


@lru_cache(2**16, typed=True)
def _checked_number(
    name: str, value: float, has_many: bool
) -> tuple[Any, list[Problem]]:
    """Returns the value of a field and its problems, as `checked_field` gives them.

    The points of a grid share the values of its axes, which are so checked once.
    """
    problems: list[Problem] = []
    return checked_field(name, value, has_many, problems), problems


def unusual(values: Mapping[str, object]) -> dict[str, object]:
    """Returns a dict of the settings in a row that are off their default and are not
    derived from other settings.
    """
    follow = {"root_seed"}
    if "kappa" in values:
        follow.add("gamma")
    if values.get("gamma2") == values.get("gamma"):
        follow.add("gamma2")
    usual = {"kappa": KAPPA, "pool": 0, "batch": 0}
    given = {}
    for name, value in values.items():
        if not is_missing(value) and value != usual.get(name):
            given[name] = value
    return {name: given[name] for name in unknown_names(given, follow)}


def unknown_names(
    values: Mapping[str, object], known: Collection[str] = ()
) -> tuple[str, ...]:
    """Returns the names in `values` whose value is off its default, except those in
    `known`.

    None and NaN count as no value. The activation `none` counts as a default if there
    is no MLP. A law counts as a default if it equals the law of the field that it
    follows. Fields without a default, such as V, count as off their default. Names that
    are not fields also count as off their default.

    A formula, a bound or a shortcut lists the fields on which it depends, and the
    fields that do not matter to it. A point is refused if any other field is off its
    default. A new field is therefore refused until somebody has checked it.
    """
    skipped = set(known)
    for name, of in SAME_AS.items():
        if values.get(name) == values.get(of):
            skipped.add(name)
    unknown = []
    for name, value in values.items():
        if name not in skipped and not _is_default(name, value):
            unknown.append(name)
    return tuple(unknown)


def _is_default(name: str, value: Any) -> bool:
    if value is None or value != value:
        return True
    if name == "activation" and value == "none":
        return True
    return name in FIELDS and value == FIELDS[name].default


def unknown_fields(point: Point, known: Collection[str]) -> tuple[str, ...]:
    """Returns the fields that are off their default and not in `known`, in order."""
    return tuple(name for name in point.unusual_fields if name not in known)


def _uncovered(point: Point) -> Iterable[Problem]:
    """Yields one problem for each part of the simulation that does not cover the point.

    The problem is about the first field that is off its default and that the part does
    not cover.
    """
    off = point.unusual_fields
    taken = {*off, "steps"} if point.trains_on else off
    for part, covered in COVERED.items():
        if covered.issuperset(off) or (part in FIELDS and part not in taken):
            continue
        name = next(name for name in off if name not in covered)
        usual = _usual(name)
        if part in FIELDS:
            got = f"{_got_with(point, part, [name])}; allowed where {usual}"
            yield Problem(part, got, f"{usual} or {_usual(part)}")
        else:
            got = shown(plain(getattr(point, name)))
            message = f"got {got}; allowed where {usual}, all that {part} cover"
            yield Problem(name, message, usual)


def _usual(name: str) -> str:
    """Returns the text of a grid condition that is true if a field is at its
    default.
    """
    default = plain(DEFAULTS[name])
    if name in SAME_AS:
        return f"{name} == {SAME_AS[name]}"
    if default is None or default is False:
        return f"not {name}"
    return f"{name} == {default!r}"


def in_the_limit(draws: int, cells: int) -> bool:
    """Whether the counts of `draws` draws over `cells` cells are sampled from the
    Gaussian limit.
    """
    return draws > MAX_DRAWS and draws >= MIN_MEAN * cells


@cache
def recorded_steps(start: str, steps: int) -> tuple[int, ...]:
    """Returns the steps for which a run has a row, in increasing order.

    The rows are for the first step, then steps 1, 2 and 5 of each decade, then the last
    step.

    >>> recorded_steps("three_step", 100)  # 3, 5, 10, 20, 50, 100
    """
    first = first_step(start)
    recorded = [first]
    for power in range(7):
        for digit in (1, 2, 5):
            step = digit * 10**power
            if first < step < steps:
                recorded.append(step)
    recorded.append(steps)
    return tuple(dict.fromkeys(recorded))


def first_step(start: str) -> int:
    """The number of steps that are made before those of the optimiser."""
    return RECIPE_STEPS if start == "three_step" else 0


class RunId(NamedTuple):
    """The id by which rows, files and messages identify a run."""

    point_id: str
    seed: int


class Run(NamedTuple):
    """A run: one point, simulated with one seed."""

    point: Point
    seed: int

    @property
    def id(self) -> RunId:
        return RunId(self.point.point_id, self.seed)


def checked_seed(seed: object) -> int:
    """Returns `seed` as an int in 0..2^32-1, or raises PointError."""
    problems: list[Problem] = []
    value = checked_value("seed", seed, "int", {"low": 0, "high": MAX_SEED}, problems)
    if problems:
        raise PointError(problems)
    return value


def checked_field(
    name: str,
    value: object,
    has_many: bool,
    problems: list[Problem],
    fields: Mapping[str, Field] | None = None,
) -> Any:
    """Returns `value`, converted to the plain Python type of the field or to a law.

    A value that is not allowed is returned unchanged, and a problem is appended to
    `problems`. Limits on several fields together are not checked. If `has_many` is
    true, samples are counts and N may be large. Another simulator passes its own
    declared fields as `fields`.
    """
    declared = (fields or FIELDS)[name]
    limits: Declared = declared.metadata
    family = limits.get("law")
    if value is not None and isinstance(
        family, type
    ):  # another simulator's law is a text
        try:
            return find_law(family, value)
        except PointError as error:
            problems += rename_problems(error.problems, family, name)
            return value
    if has_many and "high_with_pool" in limits:
        limits = {**limits, "high": limits["high_with_pool"]}
    return checked_value(name, value, plain_type(declared), limits, problems)


FIELDS = {f.name: f for f in fields(Point) if "kind" in f.metadata}

LAW_FIELDS: dict[str, type[Law]] = {
    name: f.metadata["law"] for name, f in FIELDS.items() if "law" in f.metadata
}
"""A dict from each field that contains a law to the family of this law. For example,
embedding_out has the family EmbeddingLaw.
"""

DEFAULTS = {name: f.default for name, f in FIELDS.items()}

REQUIRED = {name: None for name, default in DEFAULTS.items() if default is MISSING}
"""The fields without a default, each with the value None, which is refused."""

CHOICES = [
    name
    for name, f in FIELDS.items()
    if f.metadata["kind"] == "static" or plain_type(f) in ("bool", "str")
]
"""The fields that are no numbers, and those that are part of a program."""

_choices = attrgetter(*CHOICES)

TRAINING = tuple(f.name for f in fields(Training))
"""The names of the fields of further steps."""

EVALUATION = frozenset(
    {"root_seed", "streams", "n_test", "exact", "diagnose", "decoders"}
)
"""The fields that change the random numbers or the measured columns, but never the
average of the learned parameters.
"""

EXTRAS = ("diagnose", "decoders")
"""The switches that add columns and change no other column."""

_EVERYWHERE = EVALUATION | IN_ID | {"embedding_out", "kappa", "first_steps", "pool"}
_TOKENS = {"tokens", "noise_tokens"}
_FURTHER = {"steps", "start", "optimizer", "lr", "lr_attention", "trains"}

COVERED: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        ("gradients", "metrics", "steps"),
        _EVERYWHERE | _FURTHER | _TOKENS | {"batch", "label_noise"},
    ),
    # counts are per token and without label noise, and every step uses all pairs
    "pool": _EVERYWHERE | _FURTHER | _TOKENS,
    # uses w after the recipe, and the direction of the mean bias for uniform tokens
    "diagnose": _EVERYWHERE | {"label_noise"},
    # uses sums over tokens that are drawn one by one, with the labels of pi, and the
    # gradient of a single first step
    "decoders": _EVERYWHERE - {"m", "pool", "first_steps"},
}
"""The fields that each part of the simulation covers, in the simulator and in the
reference.

The parts are the exact gradients and metrics of every point, further steps, the forms
with a pool, the diagnosis, and the decoders. Names are listed explicitly, apart from
those in IN_ID, which never changes. Each part therefore refuses a point with a new
field off its default until somebody has checked this field. Shortcuts and formulas list
their fields in `simulator/forms.py` and `theory/model.py`.
"""

OF_MEMORY = _EVERYWHERE | _FURTHER | _TOKENS | {"batch"}
"""The fields that may have any value in an associative memory. At L = 1, a sample is
then a token with the label that pi assigns to this token.
"""


def fields_of_kind(*kinds: Kind) -> tuple[str, ...]:
    """Returns the names of the fields of these kinds, in the order of their
    declaration.
    """
    return tuple(name for name, f in FIELDS.items() if f.metadata["kind"] in kinds)
