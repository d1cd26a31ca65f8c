"""The settings with which every engine carries out a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Precision = Literal["highest", "high", "default"]


@dataclass(frozen=True)
class Settings:
    """How a plan is carried out, by any engine."""

    precision: Precision = "highest"
    """Precision of matrix products, as JAX names it."""

    part_seconds: float = 5.0
    """Finished rows are saved this often: a kill loses little, and a day of work is still at most 17,000 files."""

    fail_fast: bool = False
    """Whether the first failed chunk stops the sweep."""
