"""Closed formulas for what the three steps learn. Ours, not the paper's."""

from . import information, surrogate
from .critical import ScoreNoise, accuracy, critical_N, locked_accuracy, score_noise

__all__ = ["ScoreNoise", "accuracy", "critical_N", "information", "locked_accuracy", "score_noise", "surrogate"]
