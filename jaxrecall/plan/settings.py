"""How a plan is carried out, whoever does it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """How a plan is carried out, whoever does it."""

    precision: str = "highest"
    """Of matrix products, as JAX names it."""

    part_seconds: float = 5.0
    """Finished rows are saved this often: little is lost by a kill, and a day of work is still no more than 17,000 files."""

    fail_fast: bool = False
    """Whether the first failed chunk ends the call."""
