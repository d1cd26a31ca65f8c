"""The figures that are asked for, as asked.yaml lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Ratio:
    """The time of the fastest of some programs over that of another."""

    work: str
    over: Sequence[str]
    under: str = "jaxrecall"
    beside: Sequence[str] = ()

    @property
    def programs(self) -> tuple[str, ...]:
        under = [self.under] if self.under else []
        return (*self.over, *self.beside, *under)


@dataclass(frozen=True)
class Asked:
    """A figure, what is required of it, and how it is measured."""

    key: str
    group: str
    figure: str
    by: str = "ratios"
    ratios: Sequence[Ratio] = ()
    fields: Sequence[str] = ()
    """Fields of the points, for a table with a line for each point."""
    summary: Sequence[str] = ()
    """How the ratios at the points become the values; a slope is that along the first
    of the fields.
    """
    average: str = "median"
    """How the seconds of the calls become those of a program."""
    bar: str = ""
    aim: str = ""
    units: Sequence[str] = ("{:.3g}x",)
    at_most: bool = False
    shown: bool = False


def asked(entry: dict[str, Any]) -> Asked:
    given = dict[str, Any](entry)
    given["ratios"] = [Ratio(**ratio) for ratio in entry.get("ratios", ())]
    return Asked(**given)


ASKED = [
    asked(entry)
    for entry in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
]
GROUPS = tuple(dict.fromkeys(row.group for row in ASKED))
