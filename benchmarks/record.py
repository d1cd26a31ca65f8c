"""The file of measured figures, its page, and the merging of partial runs.

The JSON file is the record, and the Markdown file beside it is written from it. Each
row includes when, where and with what it was measured, so that expensive rows can be
refreshed on their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median_high
from string import ascii_uppercase
from typing import Any

from jaxrecall.sweep.files import atomic_write

from .asked import ASKED, SHORT, Asked

NOT_RUN = "not run"
INTRODUCTION = (
    "Written by `python -m benchmarks`; ratios of medians, bars and aims as asked of"
    " the project."
)


@dataclass
class Measured:
    """The measurements for one row.

    Without values the row was not run, and the note gives the reason.
    """

    values: list[float] = field(default_factory=list)
    beside: str = ""  # the same figure, measured against the bag form of the torch loop
    note: str = ""
    # the seconds of every call, by engine
    seconds: dict[str, list[float]] = field(default_factory=dict)
    # counted terms and their rates
    floor: list[dict[str, Any]] = field(default_factory=list)
    # the entries of which the values are a summary
    table: list[dict[str, Any]] = field(default_factory=list)


def shown(asked: Asked, values: Sequence[float]) -> list[str]:
    return [unit(value) for unit, value in zip(asked.units, values, strict=False)]


def joined(asked: Asked, values: Sequence[float]) -> str:
    """Returns the values as the page shows them."""
    return ("; " if ";" in asked.bar else ", ").join(shown(asked, values)) or NOT_RUN


def reached(asked: Asked, values: Sequence[float]) -> str:
    """Returns "aim", "bar" or "neither", whichever the values reach.

    The result is empty if the row was not run, or if nothing is required of it.
    """
    if not asked.bar or not values:
        return ""
    found = [number(text) for text in shown(asked, values)]
    for level in ("aim", "bar"):
        limits = map(number, getattr(asked, level).replace(";", ",").split(","))
        over = [value - limit for value, limit in zip(found, limits, strict=True)]
        if max(over) <= 0 if asked.at_most else min(over) >= 0:
            return level
    return "neither"


def number(text: str) -> float:
    return float(text.strip(" x%"))


def table(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> list[str]:
    """Returns the lines of a Markdown table, and an empty one."""
    lines = [
        list(heads),
        ["---" for _ in heads],
        *([SHORT(v) if isinstance(v, float) else str(v) for v in row] for row in rows),
    ]
    return [*("| " + " | ".join(cells) + " |" for cells in lines), ""]


class Record:
    """The saved rows; `path` is the Markdown file, and the JSON file is beside it."""

    def __init__(self, path: Path, tiny: bool):
        self.path, self.json, self.tiny = path, path.with_suffix(".json"), tiny
        self.rows: dict[str, dict[str, Any]] = {}
        if self.json.exists():
            saved = json.loads(self.json.read_text())
            if saved["tiny"] != tiny:
                raise ValueError(
                    f"--out: {path} holds {'tiny' if saved['tiny'] else 'full'}"
                    " figures; choose another file or remove it"
                )
            self.rows = saved["rows"]

    def merge(
        self, measured: Mapping[str, Measured], circumstances: Mapping[str, Any]
    ) -> None:
        """Adds rows and saves the record.

        A row that was not run does not replace an earlier measurement.
        """
        for key, row in measured.items():
            if row.values or not self.rows.get(key, {}).get("values"):
                self.rows[key] = {**vars(row), **circumstances}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"tiny": self.tiny, "rows": self.rows}, indent=1)
        atomic_write(self.json, f"{text}\n".encode())
        atomic_write(self.path, self.markdown().encode())

    def markdown(self) -> str:
        title = "# Speed"
        if self.tiny:
            title += " (tiny sizes: a test of the benchmarks, not a measurement)"
        parts = [title, "", INTRODUCTION, "", *self.asked(), *self.details()]
        return "\n".join(parts + self.behind()) + "\n"

    def behind(self) -> list[str]:
        """Returns the tables behind the figures, and the machines."""
        return [*self.floor(), *self.tables(), *self.places()]

    def asked(self) -> list[str]:
        """Returns a table with one row for each requested figure."""
        rows = []
        for asked in ASKED:
            row = self.rows.get(asked.key, {})
            values = row.get("values", [])
            measured, level = joined(asked, values), reached(asked, values)
            required = (asked.figure, asked.bar, asked.aim)
            rows.append((*required, measured, level, row.get("beside", "")))
        heads = ("figure", "bar", "aim", "measured", "reached", "against embedding_bag")
        return table(heads, rows)

    def saved(self) -> list[tuple[Asked, dict[str, Any]]]:
        return [
            (asked, self.rows[asked.key]) for asked in ASKED if asked.key in self.rows
        ]

    def details(self) -> list[str]:
        """Returns a table of how each row was measured: medians, calls and remarks."""
        rows = []
        letters = dict(zip(self.circumstances(), ascii_uppercase, strict=False))
        for asked, row in self.saved():
            times = [
                f"{name} {SHORT(median_high(calls))} ({len(calls)})"
                for name, calls in row["seconds"].items()
            ]
            when = f"{row['date']}, {row['load']}"
            place = letters[circumstance(row)]
            rows.append((asked.key, ", ".join(times), place, when, row["note"]))
        heads = ("row", "medians, seconds (calls)", "on", "date, load at the start")
        return table((*heads, "remarks"), rows)

    def floor(self) -> list[str]:
        """Returns a table of the counted terms of R1, and the rates of this process."""
        terms = self.rows.get("R1-floor", {}).get("floor", [])
        heads = ("R1, form", "term", "count", "per second", "seconds")
        rows = [
            (term["form"], term["term"], *map(float, list(term.values())[2:]))
            for term in terms
        ]
        return table((*heads, "per second, one call a core"), rows) if terms else []

    def tables(self) -> list[str]:
        """Returns the tables of which figures are a summary."""
        lines: list[str] = []
        for asked, row in self.saved():
            if entries := row["table"]:
                rows = [entry.values() for entry in entries]
                lines += [f"{asked.figure}:", "", *table(entries[0], rows)]
        return lines

    def places(self) -> list[str]:
        """Returns the lines that describe machines and versions."""
        named = zip(ascii_uppercase, self.circumstances(), strict=False)
        return [f"{name}: {machine}; {versions}" for name, (machine, versions) in named]

    def circumstances(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys(circumstance(row) for row in self.rows.values()))


def circumstance(row: Mapping[str, Any]) -> tuple[str, str]:
    versions = [f"{name} {version}" for name, version in row["versions"].items()]
    return row["machine"], ", ".join(versions)
