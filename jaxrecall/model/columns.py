"""The columns of the result table: their names, types, meaning and order.

The table has one row per (point, seed, step), and rows contain only scalars. The order
of columns is fixed, and a new column is added at the end. A user can define a column by
a function of the draws and the learned parameters of a run. The compiled program of the
run computes this function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from itertools import combinations
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UsageError, imported, shown
from .point import FIELDS, LAW_FIELDS, TRAINING
from .source import source_digest
from .values import plain_type

if TYPE_CHECKING:
    from jax import Array

Row = dict[str, Any]
"""A dict from column name to value."""

Declarations = dict[str, tuple[str, ...]]
"""A dict from column name to Arrow type, meaning and, for some, unit."""

CODE_VERSION = 2
"""The version of the numbers. It is raised by hand whenever a code change alters a
number in a row. Rows of different versions are never mixed silently.
"""

DTYPE = "float32"

LIST = "list "
"""The beginning of the type of a column of arrays, before the type of an entry."""

STATUSES = ("ok", "nonfinite", "degenerate")

_SOURCE = {
    "leakage": "of the component of w along z_trig",
    "bias": "of the component of the rest along Sigma_c zbar",
    "mlp": "of the component of what is left that changes when W_in is redrawn",
    "gradient": "of the component that remains",
}
NOISES = tuple(_SOURCE)
"""The sources of the noise in the attention scores, in the order in which `diagnose`
separates them.
"""

_DIAGNOSED = {
    f"noise_{noise}": (
        "float64",
        f"standard deviation of the scores {source}, over |trigger_score|",
    )
    for noise, source in _SOURCE.items()
}
_DIAGNOSED |= {
    f"cov_{a}_{b}": (
        "float64",
        f"covariance of the {a} and {b} noises over the vocabulary, over"
        " trigger_score^2",
    )
    for a, b in combinations(NOISES, 2)
}
DECODED = {
    "matched_accuracy": (
        "float64",
        "fraction of the vocabulary recovered from the gradient of step 1 by its"
        " matched filter",
    ),
    "whitened_accuracy": (
        "float64",
        "the same fraction by least squares that discounts what all samples have in"
        " common",
    ),
    "assignment_accuracy": (
        "float64",
        "the same fraction by the one-to-one assignment with the largest total score",
    ),
}
"""The columns of the decoders."""

_TRACED = {
    "step": (
        "int64",
        "gradient steps made when this row was measured; a run beyond the recipe"
        " has a row for each recorded step",
    ),
    "loss": (
        "float64",
        "mean cross-entropy of the N samples (nats); null for the recipe alone",
    ),
    "test_loss": (
        "float64",
        "mean cross-entropy of the test sequences (nats); null for the recipe alone",
    ),
    "V_norm": (
        "float64",
        "Frobenius norm of V_mat; this and the columns below are null for the"
        " recipe alone",
    ),
    "W_norm": ("float64", "Frobenius norm of W_KQ"),
    "Z_in_norm": ("float64", "root mean square norm of the input embeddings"),
    "Z_out_norm": ("float64", "root mean square norm of the output embeddings"),
    "Z_in_overlap": ("float64", "root mean square cosine between two input embeddings"),
    "Z_out_overlap": (
        "float64",
        "root mean square cosine between two output embeddings",
    ),
}

ARROW_TYPES = {"float": "float64", "int": "int64", "bool": "bool"}
"""A dict from the name of a Python number type to the name of its Arrow type."""


def _fields(*names: str) -> Declarations:
    """Returns a dict from field name to the Arrow type and meaning of its column, for
    these fields of a point.
    """
    columns = {}
    for name in names:
        arrow_type = ARROW_TYPES.get(plain_type(FIELDS[name]), "string")
        columns[name] = (arrow_type, FIELDS[name].metadata["legend"])
    return columns


EXTRA_COLUMNS = (*_DIAGNOSED, *DECODED)
"""The columns that are null unless the point requests them by a switch."""

ATTENTION_COLUMNS = (
    "attention_mass",
    "attention_top1",
    "trigger_score",
    "score_std",
    "snr",
    "trigger_cosine",
)
"""The columns that are null at L = 1, because attention on a single token is always
1.
"""

TRACE_COLUMNS = tuple(name for name in _TRACED if name != "step")
"""The columns that are null if a run has no steps beyond the recipe."""

COLUMNS: Declarations = {
    "point_id": ("string", "hash of the point: equal ids mean equal science"),
    "seed": ("int64", "seed of the run; the independent unit of any statistics"),
    **_fields(
        "root_seed",
        "V",
        "N",
        "d",
        "L",
        "m",
        "embedding",
        "activation",
        "trigger_in_value",
        "fresh_batches",
        "eta",
        "gamma",
        "gamma2",
        "kappa",
        "n_test",
    ),
    "n_correct": ("int64", "test sequences whose label has the largest logit"),
    "accuracy": ("float64", "n_correct / n_test"),
    "memory_accuracy": (
        "float64",
        "fraction of the vocabulary recalled with attention exactly on the token",
    ),
    "step1_memory_accuracy": (
        "float64",
        "memory_accuracy after step 1 alone, without the trigger: argmax_u"
        " z_out(u)^T V1 phi(z_in(v))",
    ),
    "train_accuracy": (
        "float64",
        "accuracy on the first min(N, n_test) samples of the last step's batch",
    ),
    "attention_mass": (
        "float64",
        "mean softmax weight on the informative token in test sequences",
    ),
    "attention_top1": (
        "float64",
        "fraction of test sequences where that weight is strictly the largest",
    ),
    "trigger_score": (
        "float64",
        "z_trig^T w with w = W_KQ z_eos: what the trigger adds to an attention"
        " logit (nats)",
    ),
    "score_std": (
        "float64",
        "population standard deviation of the scores z_in(v)^T w over the"
        " vocabulary (nats)",
    ),
    "snr": ("float64", "trigger_score / score_std"),
    "trigger_cosine": ("float64", "cosine between w and z_trig"),
    "test_margin": (
        "float64",
        "mean of (logit of the label - best other) / standard deviation of the logits",
    ),
    "n_tied": (
        "int64",
        "test sequences whose largest logit is shared exactly; the first label wins",
    ),
    "status": (
        "string",
        "ok; nonfinite: a number overflowed, metrics are null; degenerate: w = 0 at"
        " L > 1, snr and trigger_cosine are null",
    ),
    "form": ("string", "which code path ran"),
    "draw_check": (
        "int64",
        "hash of the first random draws; equal draws have equal hashes",
    ),
    "seconds": (
        "float64",
        "wall time of the run without compilation; the time of a batch is divided"
        " by estimated cost",
    ),
    "code_version": (
        "int64",
        "version of the numbers; it rises whenever a change alters any of them",
    ),
    "jax_version": ("string", "version of JAX"),
    "device_kind": ("string", "device, as JAX names it"),
    "dtype": ("string", "floating-point type of the simulation"),
    "precision": ("string", "matmul precision of the simulation"),
    "bucket": ("string", "padded sizes V x d [x m] of the program that ran"),
    **_fields("streams", "exact", "diagnose", "decoders"),
    **_DIAGNOSED,
    **DECODED,
    **_fields("pool", *TRAINING),
    **_TRACED,
    **_fields("tokens", "embedding_out", "noise_tokens"),
    "rare_memory_accuracy": (
        "float64",
        "memory_accuracy over the rarer half of the vocabulary; null for uniform"
        " tokens",
    ),
    "frequent_memory_accuracy": (
        "float64",
        "memory_accuracy over the most frequent tenth of the vocabulary; null for"
        " uniform tokens",
    ),
    **_fields("label_noise"),
    "recalled": (
        "int64",
        "tokens of the vocabulary that are recalled: memory_accuracy V",
    ),
    "recalled_top": (
        "int64",
        "largest k such that 90 % of the k most frequent tokens are recalled; null"
        " for uniform tokens",
    ),
    **_fields("first_steps"),
    "largest_prediction": (
        "float64",
        "V times the largest predicted probability after the first steps, over the"
        " first min(N, n_test) samples of step 3; null for one first step",
    ),
    "cpu_model": ("string", "processor model, if known"),
}
"""A dict from column name to Arrow type and meaning, in table order. New columns are
added at the end.

The meaning of a column that is a field of the point comes from the legend in point.py.
"""


def is_parameter(name: str) -> bool:
    """Whether a column contains a parameter of a law, such as `embedding.rho`.

    Such columns are float64 and follow all other columns. They are null in rows with
    other laws.
    """
    return name.partition(".")[0] in LAW_FIELDS and "." in name


def in_order(row: Row, columns: Mapping[str, object] = COLUMNS) -> Row:
    """Returns `row` with its columns in table order, followed by the parameters of
    laws.

    A law parameter in `columns` that the row lacks is None. Raises KeyError for any
    other missing column, and ValueError for an unknown one.
    """
    if unknown := [name for name in row if not (name in columns or is_parameter(name))]:
        raise ValueError(f"row: no such columns: {', '.join(sorted(unknown))}")
    lacking = [name for name in columns if name not in row]
    every = row | dict.fromkeys(filter(is_parameter, lacking))
    return {name: every[name] for name in columns} | every


ALLOWED = (
    "allowed: module:function of a function of (draws, learned) that returns"
    f" {', '.join(ARROW_TYPES)}"
)


class Drawn(NamedTuple):
    """The draws of a run as float32 and int32 arrays. The names are those of
    `realize`.
    """

    Z_in: Array  # (V, d), as trained so far
    Z_out: Array  # (V, d)
    z_trig: Array  # (d,)
    z_eos: Array  # (d,)
    W_in: Array | None  # (m, d); None without an MLP
    perm: Array  # (V,) label of each token


class Learned(NamedTuple):
    """The parameters that a run has learned. The names are those of `three_step`."""

    V1: Array  # (d, p) V_mat after step 1
    w: Array  # (d,) W_KQ z_eos
    V2: Array  # (d, p) V_mat


class OwnColumn(NamedTuple):
    """A column whose values a user's function returns.

    The record is plain data. Every process can import the function from its path.
    """

    name: str
    path: str
    digest: str
    """The digest of the function and of all that it names."""

    @property
    def fn(self) -> Callable[[Drawn, Learned], Array]:
        """The function.

        Raises UsageError if the source of the function has changed since the column was
        made.
        """
        function = function_at(self.name, self.path)
        if source_digest(function, []) != self.digest:
            raise UsageError(
                f"columns.{self.name}: {self.path} has other source here than where the"
                " sweep was called"
            )
        return function

    @property
    def declared(self) -> tuple[str, str]:
        """The Arrow type of the column, and its meaning.

        The type is float64 unless the function is annotated with another return type.
        """
        legend, _, _ = (inspect.getdoc(self.fn) or self.path).partition("\n")
        return _arrow_type(self.fn), legend.rstrip(".")


def own_columns(given: Mapping[str, object]) -> tuple[OwnColumn, ...]:
    """Returns the columns that a dict from column name to function defines. A function
    may be given by its import path.

    Raises UsageError with a line for each error.
    """
    columns, lines = list[OwnColumn](), list[str]()
    for name, function in given.items():
        try:
            columns.append(_own_column(name, function))
        except UsageError as error:
            lines += error.lines
    if lines:
        raise UsageError(lines)
    return tuple(columns)


def _own_column(name: str, given: object) -> OwnColumn:
    is_taken = name in COLUMNS or name in FIELDS
    if not str(name).isidentifier() or name.startswith("_") or is_taken:
        raise UsageError(
            f"columns.{name}: is no name for a column; allowed: letters, digits and _,"
            " and no column or field that there is"
        )
    if inspect.isfunction(given):
        given = f"{given.__module__}:{given.__qualname__}"
    if not isinstance(given, str):
        raise UsageError(f"columns.{name}: got {shown(given)}; {ALLOWED}")
    digest = source_digest(function_at(name, given), [])
    return OwnColumn(name, given, digest)


def function_at(name: str, path: str) -> FunctionType:
    """Returns the function at module:name, or raises UsageError."""
    function = imported(f"columns.{name}", path, f"{ALLOWED}, at the top of its module")
    if not inspect.isfunction(function) or not _arrow_type(function):
        raise UsageError(
            f"columns.{name}: got {path}, which is {shown(function)}; {ALLOWED}"
        )
    return function


def _arrow_type(fn: Callable[[Drawn, Learned], Array]) -> str:
    """Returns the Arrow type of a function's values. The result is an empty text if no
    column can contain such values.
    """
    returns = fn.__annotations__.get("return", "float")
    return ARROW_TYPES.get(getattr(returns, "__name__", str(returns)), "")
