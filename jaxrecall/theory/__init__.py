"""Closed formulas for the model after the three steps, bounds that hold for any
training, and recall with locked attention.

The formulas are ours, not the paper's: docs/theory.md.

Every formula needs a `Model` and raises TheoryError for a model that it does not cover.
"""

from .bounds import (
    fano_ceiling,
    information,
    matched_filter_accuracy,
    parameters_per_bit,
    recall_ceiling,
    sample_information,
    seen,
    seen_N,
)
from .critical import critical, critical_N, limiting_noise
from .locked import locked_accuracy
from .model import Model
from .noise import ScoreNoise, score_noise
from .open_attention import accuracy, locked_fraction
from .tables import table

__all__ = [
    "Model",
    "ScoreNoise",
    "accuracy",
    "critical",
    "critical_N",
    "fano_ceiling",
    "information",
    "limiting_noise",
    "locked_accuracy",
    "locked_fraction",
    "matched_filter_accuracy",
    "parameters_per_bit",
    "recall_ceiling",
    "sample_information",
    "score_noise",
    "seen",
    "seen_N",
    "table",
]
