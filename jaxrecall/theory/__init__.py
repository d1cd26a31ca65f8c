"""Closed formulas for the model after the three steps, a bound that holds for any
training, and recall with locked attention.

The formulas are ours, not the paper's: docs/theory.md.

Every formula needs a `Model` and raises TheoryError for a model that it does not cover.
"""

from .bounds import recall_ceiling
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
    "limiting_noise",
    "locked_accuracy",
    "locked_fraction",
    "recall_ceiling",
    "score_noise",
    "table",
]
