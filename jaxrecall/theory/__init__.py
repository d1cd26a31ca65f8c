"""Closed formulas for what the three steps learn, and draws of locked recall. Ours, not the paper's: docs/theory.md.

Every formula takes a `Model` and raises TheoryError for what it does not cover.
"""

from . import surrogate
from .initial_gradient import fano_ceiling, information, matched_filter_accuracy
from .locked import locked_accuracy
from .model import Model
from .noise import ScoreNoise, score_noise
from .open_attention import accuracy, critical_N

__all__ = [
    "Model",
    "ScoreNoise",
    "accuracy",
    "critical_N",
    "fano_ceiling",
    "information",
    "locked_accuracy",
    "matched_filter_accuracy",
    "score_noise",
    "surrogate",
]
