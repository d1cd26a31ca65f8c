"""A point of the parameter space, the legend of its symbols, and the hash that
identifies it.

A point is five records: what the samples are, what the model is, the rates of the
recipe, training beyond it, and what is measured. A record declares its fields, checks
what joins them, and says what of it enters the id. To a user the fields are flat:
`point.V`. The arguments and shapes of compiled programs, the columns of a row, the grid
schema and the documented legend are derived from the declarations.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import Field, dataclass, fields
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar, Literal, NamedTuple

from ..errors import PointError, Problem, shown, suggest
from .activations import activations
from .laws import LAWS, EmbeddingLaw, Law, OptimizerLaw, TokenLaw, find_law
from .laws.embedding import problems_of_rows
from .laws.law import OF_FUNCTIONS, SAME_AS, law_names, renamed, with_parameters
from .laws.tokens import drawn_as, shares
from .values import Limits, as_number, checked_value, declared, is_missing, to_12_digits

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

RECIPE_STEPS = 3
"""Gradient steps of the paper's recipe."""

MAX_STEPS = 10**6

STARTS = ("three_step", "zero")
"""Where further steps start: from the recipe's model, or from zero."""

TRAINS = {
    "VW": (),
    "V": (),
    "VWZ": ("Z_in", "Z_out", "z_trig"),
    "VWZM": ("Z_in", "Z_out", "z_trig", "W_in"),
}
"""What may be trained, by name: V_mat always, W_KQ in all but V, and these embeddings
and layers.
"""

BLOCK = 512
"""Samples per block of random draws: a constant of the contract, not a tuning
parameter.
"""

REDRAWS = 8
"""How often `diagnose` draws W_in again."""

MAX_DRAWS = 2**20
"""Draws of a pool, or of samples of one token each, that are always made one by one."""

MIN_MEAN = 8
"""Draws a cell below which they are made one by one however many they are. At a mean of
8 a cell stays empty with probability 2.4e-4 in the limit, against 3.4e-4. Where cells
are not equally likely, those with a smaller mean have counts of their exact law.
"""

MAX_STREAMED = 2**30
"""Largest N of samples that are read one by one."""

MAX_SAMPLES, MAX_LENGTH = 10**15, 10**9
"""Largest N and L with a pool, whose cost they do not raise; in float32 they scale
other numbers alone. At L = 1 the largest N is the same.
"""


def _law(
    kind: Kind, legend: str, default: str | None, family: str, symbol: str = ""
) -> Any:
    return declared(
        kind, legend, default, symbol, lambda: law_names(family), law=family
    )


def _clash(
    point: Point, name: str, others: str, allowed: str, where: str | None = None
) -> Problem:
    """A value that does not go with those of other fields."""

    def text(name: str) -> str:
        value = getattr(point, name)
        return (
            str(value).lower()
            if value is None or isinstance(value, bool)
            else repr(value)
        )

    with_others = ", ".join(f"{other}={text(other)}" for other in others.split())
    return Problem(
        name, f"got {text(name)} with {with_others}; allowed{allowed}", where
    )


@dataclass(frozen=True, kw_only=True)
class Data:
    """The samples: how many, how long, and how they are drawn.

    Off their defaults, the pool and the laws of tokens enter the id too.
    """

    in_id: ClassVar = ("root_seed", "V", "N", "L", "fresh_batches", "streams")

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
    tokens: str = _law("static", "law of the tokens", "uniform", "tokens")
    noise_tokens: str | None = _law(
        "static", "law of the noise tokens; tokens unless given", None, "tokens"
    )
    fresh_batches: bool = declared(
        "traced", "each of the three steps draws its own N samples", False
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
        "points share random numbers, or each has its own",
        "common",
        choices=("common", "independent"),
    )
    pool: int | None = declared(
        "static",
        "noise sequences that the samples share; none: each sample has its own",
        None,
        "K",
        low=1,
        high=65536,
    )

    @staticmethod
    def problems(point: Point) -> Iterable[Problem]:
        if point.pool and point.V * point.pool >= 2**31:
            most = f": up to {(2**31 - 1) // point.V}, so that V pool is below 2^31"
            yield _clash(point, "pool", "V", most, "V * pool < 2**31")
        if point.N > MAX_STREAMED and not (point.pool or point.is_memory):
            yield _clash(
                point,
                "N",
                " ".join(unknown_fields(point, OF_MEMORY)),
                f": up to {MAX_STREAMED}",
                f"N <= {MAX_STREAMED}",
            )
        for name in ("tokens", "noise_tokens"):
            try:
                shares(find_law(name, getattr(point, name)), point.V)
            except ValueError as error:
                yield Problem(name, str(error).partition(": ")[2])


@dataclass(frozen=True, kw_only=True)
class Model:
    """The transformer: its sizes and laws, each of which says what of it enters the id.

    embedding_out enters where it is another one.
    """

    in_id: ClassVar = ("d", "m", "embedding", "activation", "trigger_in_value")

    d: int = declared("size", "embedding width", low=1, high=2**16)
    m: int = declared(
        "size", "MLP width; 0 is the attention-only model", 0, low=0, high=2**20
    )
    embedding: str = _law("traced", "law of the embeddings", "gaussian", "embedding")
    embedding_out: str | None = _law(
        "static", "law of Z_out; embedding unless given", None, "embedding"
    )
    activation: str = _law(
        "static", "nonlinearity of the MLP", "relu", "activation", "phi"
    )
    trigger_in_value: bool = declared(
        "traced", "the value of the informative token holds z_trig too", True
    )

    @staticmethod
    def problems(point: Point) -> Iterable[Problem]:
        if point.m > 0 and point.activation == "none":
            yield _clash(
                point,
                "activation",
                "m",
                f" with an MLP: {', '.join(activations())}",
                "m == 0 or activation != 'none'",
            )
        for name, law in zip(
            ("embedding", "embedding_out"),
            dict.fromkeys(point.embedding_laws),
            strict=False,
        ):
            found = law.problems(point.V, point.d) or (
                problems_of_rows(law, point.V, point.d) if ":" in str(law) else []
            )
            yield from renamed(found, name)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The three steps: their rates, and whether shortcuts are allowed.

    All enter the id but kappa, which gamma carries.
    """

    in_id: ClassVar = ("eta", "gamma", "gamma2", "exact")

    eta: float = declared("rate", "rate of step 1", 1e-3, low=0.0, open_low=True)
    gamma: float = declared("rate", "rate of step 2; give this or kappa", None, low=0.0)
    gamma2: float = declared(
        "rate", "rate of step 3; gamma unless given", None, low=0.0
    )
    kappa: float = declared(
        "rate",
        "scaled rate of step 2: gamma = kappa L^2 V / eta (default 100)",
        None,
        low=0.0,
    )
    exact: str = declared(
        "form",
        "shortcuts; guarded: where a computed bound allows, full: none",
        "guarded",
        choices=("guarded", "full"),
    )


@dataclass(frozen=True, kw_only=True)
class Training:
    """Steps of an optimiser, after the recipe or in place of it; in the id if there are
    any. All is ours.

    A run that trains on starts from the model after the three steps, or from V_mat = 0
    and W_KQ = 0, and descends the same loss until `steps` gradient steps are made in
    total. Each recorded step is a row of its own.
    """

    in_id: ClassVar = ("steps", "start", "optimizer", "lr", "lr_attention", "trains")

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
    optimizer: str | None = _law(
        "static",
        "optimizer of further steps (sgd unless given); none: the recipe alone",
        None,
        "optimizer",
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
        if not point.trains_on:
            if point.steps < RECIPE_STEPS:
                allowed = (
                    f": from {RECIPE_STEPS}, the steps of the recipe; or start='zero'"
                )
                yield _clash(
                    point, "steps", "start", allowed, f"steps >= {RECIPE_STEPS}"
                )
            return
        if point.lr is None:
            yield _clash(
                point,
                "lr",
                "steps start",
                ": numbers greater than 0, as 0.1 for sgd or 0.01 for adam",
            )
        if point.trains == "VWZM" and not point.m:
            yield _clash(
                point,
                "trains",
                "m",
                " without an MLP: VW, V, VWZ",
                "m > 0 or trains != 'VWZM'",
            )
        if point.batch and point.batch > point.N:
            yield _clash(
                point, "batch", "N", ": up to N, or none for all samples", "batch <= N"
            )
        if point.batch and point.fresh_batches:
            yield _clash(
                point,
                "batch",
                "fresh_batches",
                ": none, for every step draws its own N samples",
            )
        if point.fresh_batches and point.pool:
            yield _clash(
                point,
                "fresh_batches",
                "pool steps",
                ": false, for one pool serves all further steps",
            )


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is measured: test sequences, and switches that add columns and change no
    other.

    Those that are on enter the id.
    """

    in_id: ClassVar = ("n_test",)

    n_test: int = declared("traced", "test sequences", 2048, low=1, high=2**30)
    diagnose: bool = declared(
        "static",
        "split the noise of the attention scores by where it comes from",
        False,
    )
    decoders: bool = declared(
        "static", "recover the labels from the gradient of step 1 alone (m = 0)", False
    )


KAPPA = 100.0
"""kappa unless it or gamma is given."""

LEAST_KAPPA = 2.0**-126
"""Below the least normal number of float32, scores of attention would all be 0."""


@dataclass(frozen=True, kw_only=True)
class Point(Evaluation, Training, Recipe, Model, Data):
    """One point of the parameter space, checked and resolved: rates are numbers, never
    None.

    Give `kappa` or `gamma`, not both: gamma = kappa L^2 V / eta. `gamma2` defaults to
    gamma. `m = 0` is the attention-only model and sets `activation` to "none". Laws are
    given as text or as objects, and held as text:
    `embedding="equicorrelated(rho=0.3)"`. `replace` makes a changed copy.

    Raises PointError, which lists everything that is wrong, not only the first thing.

        >>> from jaxrecall import Point
        >>> point = Point(V=64, N=1024, d=32, L=8)
        >>> point.gamma, point.replace(N=2048, m=128, activation="gelu")
    """

    records: ClassVar = (Data, Model, Recipe, Training, Evaluation)
    _given: ClassVar[frozenset[str]] = frozenset()
    """Of the point itself: the fields that follow from others and were given, and the
    parameters that a grid names.
    """

    def __post_init__(self) -> None:
        problems: list[Problem] = []
        values = self.__dict__
        given = {name for name in FOLLOWING if values[name] is not None}
        pool = values["pool"] is not None
        for name, default in DEFAULTS.items():
            if values[name] is not default:
                many = pool or (name == "N" and as_number(values["L"], int) == 1)
                values[name] = checked_field(name, values[name], many, problems)
        if {"kappa", "gamma"} <= given:
            problems.append(
                Problem(
                    "kappa",
                    f"got kappa={self.kappa!r} and gamma={self.gamma!r}; give one, the"
                    " other follows",
                )
            )
        if not problems:
            values |= {name: values[name] or values[of] for name, of in SAME_AS.items()}
            problems += [
                problem
                for record in (Data, Model, Training)
                for problem in record.problems(self)
            ]
            problems += _uncovered(self)
        if problems:
            raise PointError(problems)
        values["_given"] = frozenset(given)
        if self.m == 0:
            values["activation"] = "none"
        values |= self._resolved_rates(given) | self._resolved_training()
        for name in ("kappa", "gamma"):
            if not math.isfinite(values[name]):
                raise PointError(
                    [
                        Problem(
                            name,
                            f"resolves to {values[name]} at eta={self.eta!r}; allowed:"
                            " finite numbers",
                        )
                    ]
                )
        if 0 < values["kappa"] < LEAST_KAPPA:
            raise PointError(
                [
                    Problem(
                        "kappa",
                        f"resolves to {values['kappa']}; allowed: 0, and numbers from"
                        f" {LEAST_KAPPA:.2g}",
                    )
                ]
            )

    def __eq__(self, other: object) -> bool:
        """Whether all fields are equal, and whether gamma and gamma2 follow.

        JAX keeps compiled functions by static points.
        """
        if not isinstance(other, Point):
            return NotImplemented
        given = [
            point.as_given().keys() & {"gamma", "gamma2"} for point in (self, other)
        ]
        return given[0] == given[1] and all(
            getattr(self, name) == getattr(other, name) for name in FIELDS
        )

    def _resolved_rates(self, given: set[str]) -> dict[str, float]:
        """gamma, kappa and gamma2 as numbers."""
        per_kappa = self.L**2 * self.V / self.eta
        if "gamma" in given:
            gamma, kappa = self.gamma, self.gamma / per_kappa
        else:
            kappa = self.kappa if "kappa" in given else KAPPA
            gamma = kappa * per_kappa
        return {
            "gamma": gamma,
            "kappa": kappa,
            "gamma2": self.gamma2 if "gamma2" in given else gamma,
        }

    def _resolved_training(self) -> dict[str, object]:
        """The fields of further steps as a run has them: none for the recipe alone."""
        if not self.trains_on:
            return {name: DEFAULTS[name] for name in TRAINING}
        trains = self.trains or "VW"
        attention = (
            0.0
            if trains == "V"
            else self.lr
            if self.lr_attention is None
            else self.lr_attention
        )
        return {
            "optimizer": self.optimizer or "sgd",
            "trains": trains,
            "lr_attention": attention,
        }

    @property
    def trains_on(self) -> bool:
        """Whether an optimiser makes further steps, after the recipe or in place of
        it.
        """
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

    @property
    def embedding_law(self) -> EmbeddingLaw:
        return find_law("embedding", self.embedding)

    @property
    def embedding_laws(self) -> tuple[EmbeddingLaw, EmbeddingLaw]:
        """The laws of Z_in, which is that of z_trig and z_eos too, and of Z_out."""
        return self.embedding_law, find_law("embedding", self.embedding_out)

    @property
    def optimizer_law(self) -> OptimizerLaw:
        """The optimiser of a point that trains on."""
        return find_law("optimizer", self.optimizer)

    @property
    def token_laws(self) -> tuple[TokenLaw, TokenLaw]:
        """The laws of informative tokens and of noise, uniform where all are equally
        likely.
        """
        law, noise = (
            drawn_as(find_law("tokens", text), self.V)
            for text in (self.tokens, self.noise_tokens)
        )
        return law, noise

    def identity(self) -> dict[str, object]:
        """What enters the id, by field: `in_id` of each record, and all else off its
        default.

        So a field that a later version adds moves no id. kappa never enters, since
        gamma carries it.
        """
        values = {name: getattr(self, name) for name in FIELDS}
        values |= {
            name: find_law(name, values[name]).identity()
            for name in LAW_FIELDS
            if values[name] is not None
        }
        always = [
            name
            for record in self.records
            for name in record.in_id
            if self.trains_on or record is not Training
        ]
        return {
            name: values[name]
            for name in (*always, *unknown_names(values, (*always, "kappa")))
        }

    @cached_property
    def point_id(self) -> str:
        """16 hex digits that name the point: a hash of its science, not of how or where
        it is run.

        sha256 of the canonical JSON of `identity`, floats to 12 significant digits.
        """
        science = {
            name: to_12_digits(value) if isinstance(value, float) else value
            for name, value in self.identity().items()
        }
        return hashlib.sha256(
            json.dumps(science, sort_keys=True, separators=(",", ":")).encode()
        ).hexdigest()[:16]

    @cached_property
    def draws_id(self) -> str:
        """The id that independent streams are drawn by: asking for more columns changes
        no draw.
        """
        return (
            self.replace(**dict.fromkeys(EXTRAS, False)).point_id
            if any(getattr(self, name) for name in EXTRAS)
            else self.point_id
        )

    @property
    def is_memory(self) -> bool:
        """Whether the model is an associative memory: L = 1, a sample is its
        informative token.

        No field may make more of it.
        """
        return self.L == 1 and self.pool is None and not unknown_fields(self, OF_MEMORY)

    @cached_property
    def in_the_limit(self) -> tuple[str, ...]:
        """Which counts are drawn from their Gaussian limit.

        They are samples, of an associative memory too, and with a pool noise (of the
        pool) and test (sequences).
        """
        if self.pool is None:
            return (
                ("samples",) if self.is_memory and in_the_limit(self.N, self.V) else ()
            )
        counts = {
            "samples": in_the_limit(self.N, self.V * self.pool),
            "noise": in_the_limit(self.pool * (self.L - 1), self.pool * self.V),
            "test": in_the_limit(self.n_test * (self.L - 1), self.n_test * self.V),
        }
        return tuple(name for name, is_limit in counts.items() if is_limit)

    def as_given(self) -> dict[str, Any]:
        """Arguments that rebuild this point: of fields that follow only those that were
        given.
        """
        derived = set(FOLLOWING) - self._given
        return {name: getattr(self, name) for name in FIELDS if name not in derived}

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


def unusual(values: Mapping[str, object]) -> dict[str, object]:
    """Of settings by name those that are not at their defaults and do not follow from
    others.

    They are as a row or a point has them.
    """
    follow = {
        "root_seed",
        *(["gamma"] if "kappa" in values else []),
        *(["activation"] if values.get("m") == 0 else []),
    }
    follow |= {"gamma2"} if values.get("gamma2") == values.get("gamma") else set()
    usual = {"kappa": KAPPA, "pool": 0, "batch": 0}
    given = {
        name: value
        for name, value in values.items()
        if not is_missing(value) and value != usual.get(name)
    }
    return {name: given[name] for name in unknown_names(given, follow)}


def make_point(values: Mapping[str, Any]) -> Point:
    """The point of these fields and parameters of laws, as {"embedding.rho": 0.3}.

    Args:
        values: fields of a point by name; a parameter replaces that of the law given,
            None leaves it.

    Raises:
        PointError: as `Point`, and for a parameter that the law lacks.
    """
    given = {name: value for name, value in values.items() if "." not in name}
    parameters = [
        (*name.split(".", 1), value)
        for name, value in values.items()
        if "." in name and value is not None
    ]
    problems: list[Problem] = []
    for field, parameter, value in sorted(
        parameters, key=lambda one: one[0] in SAME_AS
    ):  # a law that follows another one comes last
        if field not in LAW_FIELDS:
            allowed = f"{', '.join(LAW_FIELDS)}{suggest(field, LAW_FIELDS)}"
            problems.append(
                Problem(
                    f"{field}.{parameter}",
                    f"got {shown(value)}; fields with parameters: {allowed}",
                )
            )
            continue
        family = LAW_FIELDS[field]
        try:
            law = find_law(
                field,
                given.get(field) or given.get(family) or DEFAULTS[family] or "sgd",
            )
            given[field] = with_parameters(law, {parameter: value})
        except PointError as error:
            problems += renamed(error.problems, field)
    if problems:
        raise PointError(problems)
    point = Point(**given)
    point.__dict__["_given"] |= {
        f"{field}.{parameter}" for field, parameter, _ in parameters
    }
    return point


def law_parameters(point: Point) -> dict[str, float]:
    """The numeric parameters of the laws of a point by dotted name: columns of its
    rows.

    They are as {"embedding.rho": 0.3}.

    Those of embedding_out and noise_tokens are among them where it is given or differs
    from embedding or tokens.
    """
    laws = _laws_with_columns(point).items()
    return {
        name: value
        for field, law in laws
        for name, (value, *_) in law.numbers(field, point._given).items()
    }


def parameter_columns(points: Iterable[Point]) -> dict[str, tuple[str, str, str]]:
    """All such columns of the rows of some points, sorted: Arrow type, legend and
    unit.
    """
    alike = {attrgetter(*LAW_FIELDS, "_given")(point): point for point in points}
    numbers = (
        law.numbers(field, point._given)
        for point in alike.values()
        for field, law in _laws_with_columns(point).items()
    )
    return dict(
        sorted(
            (name, ("float64", legend, unit))
            for of_law in numbers
            for name, (_, legend, unit) in of_law.items()
        )
    )


def _laws_with_columns(point: Point) -> dict[str, Law]:
    """The laws whose parameters are columns, by field."""
    names = [
        "embedding",
        "tokens",
        "activation",
        *(["optimizer"] if point.trains_on else []),
    ]
    names += [
        name
        for name, of in SAME_AS.items()
        if getattr(point, name) != getattr(point, of) or name in point._given
    ]
    return {name: find_law(name, getattr(point, name)) for name in names}


def problem_in_workers(point: Point) -> str | None:
    """Why other processes cannot run the point, or None: they must be able to import
    its laws.
    """
    for name in (name for name in LAW_FIELDS if getattr(point, name) is not None):
        law = find_law(name, getattr(point, name))
        if (module := type(law).__module__) == "__main__" or "<locals>" in type(
            law
        ).__qualname__:
            where = "a script or a notebook" if module == "__main__" else "a function"
            what = "a function or a class" if name in OF_FUNCTIONS else "a class"
            return (
                f"{name}: got {law}, which is defined in {where}; other processes need"
                f" {what} at the top of a module of its own"
            )
    return None


def unknown_names(
    values: Mapping[str, object], known: Collection[str] = ()
) -> tuple[str, ...]:
    """The names of `values` that have a value off the default, leaving out `known`.

    None and NaN are no values.

    The activation `none`, that of a model without an MLP, counts as a default, and so
    does a law like that of the field it follows. A field without a default, such as V,
    counts as off its default, and so does a name that is no field.

    A formula, a bound or a shortcut names the fields that it depends on, and those that
    do not matter to it whatever their value. It refuses a point with any other off its
    default, so that a field which is added later is refused until somebody has looked.
    """
    skipped = {
        *known,
        *(name for name, of in SAME_AS.items() if values.get(name) == values.get(of)),
    }

    def is_default(name: str, value: object) -> bool:
        no_mlp = name == "activation" and value == "none"
        return (
            no_mlp
            or value is None
            or value != value
            or (name in FIELDS and value == FIELDS[name].default)
        )

    return tuple(
        name
        for name, value in values.items()
        if name not in skipped and not is_default(name, value)
    )


def unknown_fields(point: Point, known: Collection[str]) -> tuple[str, ...]:
    """The fields of a point that are off their default and not among `known`, in order.

    >>> from jaxrecall import Point
    >>> unknown_fields(Point(V=64, N=1024, d=32, L=8, pool=16), known={"V", "N", "d",
        "L", "gamma", "gamma2", "kappa"})  # ('pool',)
    """
    return unknown_names({name: getattr(point, name) for name in FIELDS}, known)


def _uncovered(point: Point) -> Iterable[Problem]:
    """For each part that a point takes, the first field off its default that it does
    not cover.
    """
    off = unknown_fields(point, () if point.trains_on else TRAINING)
    taken = {
        *COVERED.keys() - FIELDS.keys(),
        *off,
        *(["steps"] if point.trains_on else []),
    }
    for part, covered in COVERED.items():
        name = next((name for name in off if name not in covered), None)
        if part not in taken or name is None:
            continue
        if part in FIELDS:
            yield _clash(
                point,
                part,
                name,
                f" where {_usual(name)}",
                f"{_usual(name)} or {_usual(part)}",
            )
        else:
            yield Problem(
                name,
                f"got {shown(getattr(point, name))}; allowed where {_usual(name)}, all"
                f" that {part} cover",
                _usual(name),
            )


def _usual(name: str) -> str:
    """The condition of a grid that a field is at its default."""
    default = DEFAULTS[name]
    if name in SAME_AS:
        return f"{name} == {SAME_AS[name]}"
    return (
        f"not {name}"
        if default is None or default is False
        else f"{name} == {default!r}"
    )


def in_the_limit(draws: int, cells: int) -> bool:
    """Whether the counts of so many draws on so many cells are from the Gaussian
    limit.
    """
    return draws > MAX_DRAWS and draws >= MIN_MEAN * cells


def recorded_steps(start: str, steps: int) -> tuple[int, ...]:
    """The steps of a run that have a row: the first, then 1, 2 and 5 of each decade,
    then the last.

    >>> recorded_steps("three_step", 100)  # 3, 5, 10, 20, 50, 100
    """
    first = first_step(start)
    decades = (k * 10**e for e in range(7) for k in (1, 2, 5))
    return tuple(
        dict.fromkeys(
            (first, *(step for step in decades if first < step < steps), steps)
        )
    )


def first_step(start: str) -> int:
    """Steps that are made before the optimiser takes over."""
    return RECIPE_STEPS if start == "three_step" else 0


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


def checked_seed(seed: object) -> int:
    """`seed` as an int in 0..2^32-1; raises PointError."""
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
    """`value` as the plain Python type of the field, a law as its text, or an entry in
    `problems`.

    Joint limits are not checked.

    `has_many` is whether samples are counts, so that N may be large; `fields` are those
    of another simulator.
    """
    declared = (fields or FIELDS)[name]
    limits: Limits = declared.metadata
    if value is not None and limits.get("law") in LAWS:
        try:
            return str(find_law(name, value))
        except PointError as error:
            problems += error.problems
            return value
    if has_many and "high_with_pool" in limits:
        limits = {**limits, "high": limits["high_with_pool"]}
    return checked_value(
        name,
        value,
        getattr(declared.type, "__name__", str(declared.type)),
        limits,
        problems,
    )


FOLLOWING = ("kappa", "gamma", "gamma2", "lr_attention", *SAME_AS)
"""Fields that follow from others unless they are given."""

FIELDS = {f.name: f for f in fields(Point)}

LAW_FIELDS: dict[str, str] = {
    name: f.metadata["law"] for name, f in FIELDS.items() if "law" in f.metadata
}
"""The fields that hold a law, with its family: embedding_out holds a law of the
embeddings.
"""

DEFAULTS = {name: f.default for name, f in FIELDS.items()}

EVALUATION = frozenset(
    {"root_seed", "streams", "n_test", "exact", "diagnose", "decoders"}
)
"""Fields that change which random numbers are drawn or what is measured, never what is
learned on average.
"""

EXTRAS = ("diagnose", "decoders")
"""Switches that add columns and change no other."""

_EVERYWHERE = EVALUATION | {
    "V",
    "N",
    "L",
    "d",
    "m",
    "embedding",
    "embedding_out",
    "activation",
    "trigger_in_value",
    "fresh_batches",
}
_EVERYWHERE |= {"eta", "gamma", "gamma2", "kappa", "pool"}
_TOKENS = {"tokens", "noise_tokens"}
_FURTHER = {*Training.in_id}

COVERED: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        ("gradients", "metrics", "steps"),
        _EVERYWHERE | _FURTHER | _TOKENS | {"batch", "label_noise"},
    ),
    "pool": (
        _EVERYWHERE | _FURTHER | _TOKENS
    ),  # its counts are by token, and every step reads all of its pairs
    "diagnose": (
        _EVERYWHERE | {"label_noise"}
    ),  # about w after the recipe; a direction of the mean bias for uniform tokens
    "decoders": (
        _EVERYWHERE
        - {
            "m",
            "pool",
        }
    ),  # from sums over tokens that are drawn one by one, with the labels of pi
}
"""The fields that each part of the simulation covers, in the simulator and in the
reference: exact gradients and metrics of every point; further steps; the forms with a
pool; the diagnosis and the decoders. Names are written out, so that a field which is
added to a point is refused off its default by each part until somebody has looked
there. Shortcuts and formulas list theirs in `simulator/forms.py` and `theory/model.py`.
"""

OF_MEMORY = _EVERYWHERE | _FURTHER | _TOKENS | {"batch"}
"""Fields of an associative memory: whatever they are, a sample at L = 1 is its token,
with the label of pi.
"""

TRAINING = tuple(f.name for f in fields(Training))
"""Fields of further steps."""


def of_kind(*kinds: Kind) -> tuple[str, ...]:
    """The names of the fields of these kinds, in the order of their declaration."""
    return tuple(name for name, f in FIELDS.items() if f.metadata["kind"] in kinds)
