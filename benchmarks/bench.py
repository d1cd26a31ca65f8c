"""What every measurement needs: the work, a temporary folder and progress messages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from . import clock
from .clock import Engine
from .work import Work


@dataclass
class Bench:
    """The context of a measurement; `folder` is temporary."""

    work: Work
    rounds: int
    log: Callable[[str], None]
    folder: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def new_folder(self) -> Path:
        return self.folder / str(next(self.numbers))

    def interleaved(
        self, engines: Mapping[str, Engine], rounds: int | None = None
    ) -> dict[str, list[float]]:
        return clock.interleaved(engines, rounds or self.rounds, self.log)


class Ready(NamedTuple):
    """A program that is compiled and ready to be timed."""

    engine: Engine
    share: float = 1.0  # of the work that a call does
    note: str = ""
    terms: Sequence[dict[str, Any]] = ()  # of a floor
    once: bool = False  # whether one round is enough


class NotHere(Exception):
    """The reason why a program cannot run on this machine."""
