"""The readable implementation (full batch, float64, NumPy). Tests compare the fast
implementation with it.
"""

from __future__ import annotations

from .steps import three_step as three_step
