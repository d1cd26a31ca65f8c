"""The columns of the result table: names, types and meaning, in the order that users rely on.

One row per (point, seed, step), scalars only. The order is fixed and a new column goes
to the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from .point import FIELDS, LAW_FIELDS, TRAINING

Row = dict[str, Any]
"""The columns of a row by name."""

CODE_VERSION = 2
"""Raised by hand whenever a number in a row changes; rows of different versions never mix silently."""

DTYPE = "float32"

STATUSES = ("ok", "nonfinite", "degenerate")

# name -> (Arrow type, meaning); fields of the point take their meaning from the legend in point.py
_MEASURED = {
    "n_correct": ("int64", "test sequences whose label has the largest logit"),
    "accuracy": ("float64", "n_correct / n_test"),
    "memory_accuracy": ("float64", "fraction of the vocabulary recalled with attention exactly on the token"),
    "step1_memory_accuracy": ("float64", "memory_accuracy after step 1 alone, without the trigger: argmax_u z_out(u)^T V1 phi(z_in(v))"),
    "train_accuracy": ("float64", "accuracy on the first min(N, n_test) samples of the last step's batch"),
    "attention_mass": ("float64", "mean softmax weight on the informative token in test sequences"),
    "attention_top1": ("float64", "fraction of test sequences where that weight is strictly the largest"),
    "trigger_score": ("float64", "z_trig^T w with w = W_KQ z_eos: what the trigger adds to an attention logit (nats)"),
    "score_std": ("float64", "population standard deviation of the scores z_in(v)^T w over the vocabulary (nats)"),
    "snr": ("float64", "trigger_score / score_std"),
    "trigger_cosine": ("float64", "cosine between w and z_trig"),
    "test_margin": ("float64", "mean of (logit of the label - best other) / standard deviation of the logits"),
    "n_tied": ("int64", "test sequences whose largest logit is shared exactly; the first label wins"),
    "status": (
        "string",
        "ok; nonfinite: a number overflowed, metrics are null; degenerate: w = 0 at L > 1, snr and trigger_cosine are null",
    ),
    "form": ("string", "which form of the computation ran"),
    "draw_check": ("int64", "32-bit hash of the first random draws of the run; equal draws have equal hashes"),
    "seconds": ("float64", "wall time of the run without compilation; the time of a batch is divided by estimated cost"),
    "code_version": ("int64", "version of the numbers; it rises whenever a change alters any of them"),
    "jax_version": ("string", "version of JAX"),
    "device_kind": ("string", "device that it ran on, as JAX names it"),
    "dtype": ("string", "floating-point type of the simulation"),
    "precision": ("string", "matmul precision of the simulation"),
    "bucket": ("string", "padded sizes V x d [x m] of the program that ran"),
}

NOISES = ("leakage", "bias", "mlp", "gradient")
"""Sources of the noise of the attention scores, in the order in which they are split off."""

_SOURCE = {
    "leakage": "of the part of w along z_trig",
    "bias": "of the part of the rest along Sigma_c zbar",
    "mlp": "of the part of what is left that changes when W_in is redrawn",
    "gradient": "of the part that remains",
}
_DIAGNOSED = {f"noise_{a}": ("float64", f"standard deviation of the scores {_SOURCE[a]}, over |trigger_score|") for a in NOISES}
_DIAGNOSED |= {
    f"cov_{a}_{b}": ("float64", f"covariance of the {a} and {b} noises over the vocabulary, over trigger_score^2")
    for a, b in combinations(NOISES, 2)
}
_DECODED = {
    "matched_accuracy": ("float64", "fraction of the vocabulary recovered from the gradient of step 1 by its matched filter"),
    "whitened_accuracy": ("float64", "the same fraction by least squares that discounts what all samples have in common"),
    "assignment_accuracy": ("float64", "the same fraction by the one-to-one assignment with the largest total score"),
}

_TRACED = {
    "step": ("int64", "gradient steps made when this row was measured; a run beyond the recipe has a row for each recorded step"),
    "loss": ("float64", "mean cross-entropy of the N samples (nats); null for the recipe alone"),
    "test_loss": ("float64", "mean cross-entropy of the test sequences (nats); null for the recipe alone"),
    "V_norm": ("float64", "Frobenius norm of V_mat; this and the columns below are null for the recipe alone"),
    "W_norm": ("float64", "Frobenius norm of W_KQ"),
    "Z_in_norm": ("float64", "root mean square norm of the rows of Z_in"),
    "Z_out_norm": ("float64", "root mean square norm of the rows of Z_out"),
    "Z_in_overlap": ("float64", "root mean square cosine between two rows of Z_in"),
    "Z_out_overlap": ("float64", "root mean square cosine between two rows of Z_out"),
}

_BY_FREQUENCY = {
    "rare_memory_accuracy": ("float64", "memory_accuracy over the rarer half of the vocabulary; null for uniform tokens"),
    "frequent_memory_accuracy": ("float64", "memory_accuracy over the most frequent tenth of the vocabulary; null for uniform tokens"),
}

_POINT_TYPES = {"int": "int64", "int | None": "int64", "float": "float64", "float | None": "float64", "bool": "bool"}


def _fields(*names: str) -> dict[str, tuple[str, str]]:
    declared = {name: FIELDS[name] for name in names}
    return {name: (_POINT_TYPES.get(str(f.type), "string"), f.metadata["legend"]) for name, f in declared.items()}


EXTRA_COLUMNS = (*_DIAGNOSED, *_DECODED)
"""Columns that are null unless the point asks for them."""

ATTENTION_COLUMNS = ("attention_mass", "attention_top1", "trigger_score", "score_std", "snr", "trigger_cosine")
"""Columns that are null at L = 1, where there is nothing to attend to."""

TRACE_COLUMNS = tuple(name for name in _TRACED if name != "step")
"""Columns that are null for the recipe alone."""

COLUMNS: dict[str, tuple[str, str]] = {
    "point_id": ("string", "hash of the point: equal ids mean equal science"),
    "seed": ("int64", "seed of the run; the independent unit of any statistics"),
    **_fields("root_seed", "V", "N", "d", "L", "m", "embedding", "activation", "trigger_in_value", "fresh_batches"),
    **_fields("eta", "gamma", "gamma2", "kappa", "n_test"),
    **_MEASURED,
    **_fields("streams", "exact", "diagnose", "decoders"),
    **_DIAGNOSED,
    **_DECODED,
    **_fields("pool", *TRAINING),
    **_TRACED,
    **_fields("tokens", "embedding_out", "noise_tokens"),
    **_BY_FREQUENCY,
    **_fields("label_noise"),
    "recalled": ("int64", "tokens of the vocabulary that are recalled: memory_accuracy V"),
    "recalled_top": ("int64", "largest k such that 90 % of the k most frequent tokens are recalled; null for uniform tokens"),
}
"""name -> (Arrow type name, meaning), in table order. A new column goes to the end."""


def is_parameter(name: str) -> bool:
    """Whether a column holds a parameter of a law, as `embedding.rho` does.

    Such columns are float64, null for other laws, and come after all others.
    """
    return name.partition(".")[0] in LAW_FIELDS and "." in name


def in_order(row: Row, columns: Mapping[str, object] = COLUMNS) -> Row:
    """`row` with the columns in table order, then other parameters of laws.

    A parameter that its laws lack is None. Raises KeyError on any other missing column,
    ValueError on one too many.
    """
    parameters = {name: value for name, value in row.items() if is_parameter(name)}
    if unknown := row.keys() - columns.keys() - parameters.keys():
        raise ValueError(f"row: no such columns: {', '.join(sorted(unknown))}")
    return {name: row.get(name) if is_parameter(name) else row[name] for name in columns} | parameters
