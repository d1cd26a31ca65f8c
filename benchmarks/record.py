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

from .asked import ASKED, Asked

NOT_RUN = "not run"
SHORT = "{:.3g}".format
TITLE = "# Speed"
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
    # the seconds of every call, by program
    seconds: dict[str, list[float]] = field(default_factory=dict)
    # the entries of which the values are a summary, or the terms of a floor
    table: list[dict[str, Any]] = field(default_factory=list)


def shown(asked: Asked, values: Sequence[float]) -> list[str]:
    return [
        unit.format(value) for unit, value in zip(asked.units, values, strict=False)
    ]


def joined(asked: Asked, values: Sequence[float]) -> str:
    """Returns the values as the page shows them."""
    return ("; " if ";" in asked.bar else ", ").join(shown(asked, values)) or NOT_RUN


def reached(asked: Asked, values: Sequence[float]) -> str:
    """Returns "aim", "bar" or "neither", whichever the values reach.

    The result is empty if the row was not run, or if nothing is required of it.
    """
    if not asked.bar or not values:
        return ""
    rounded = [number(text) for text in shown(asked, values)]
    for level in ("aim", "bar"):
        limits = map(number, getattr(asked, level).replace(";", ",").split(","))
        over = [value - limit for value, limit in zip(rounded, limits, strict=True)]
        if max(over) <= 0 if asked.at_most else min(over) >= 0:
            return level
    return "neither"


def number(text: str) -> float:
    return float(text.strip(" x"))


def table(
    heads: Iterable[str], rows: Iterable[Iterable[Any]], n_text: int | None = None
) -> list[str]:
    """Returns the lines of a Markdown table.

    Columns after the first `n_text` contain numbers.
    """
    heads = list(heads)
    n_text = len(heads) if n_text is None else n_text
    rule = ["---"] * n_text + ["---:"] * (len(heads) - n_text)
    body = ([SHORT(v) if isinstance(v, float) else str(v) for v in row] for row in rows)
    return ["| " + " | ".join(cells) + " |" for cells in (heads, rule, *body)]


class Record:
    """The saved rows; `path` is the Markdown file, and the JSON file is beside it."""

    def __init__(self, path: Path):
        self.path, self.json = path, path.with_suffix(".json")
        self.rows: dict[str, dict[str, Any]] = {}
        if self.json.exists():
            self.rows = json.loads(self.json.read_text())["rows"]

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
        text = json.dumps({"rows": self.rows}, indent=1)
        atomic_write(self.json, f"{text}\n".encode())
        atomic_write(self.path, self.markdown().encode())

    def markdown(self) -> str:
        parts = [TITLE, "", INTRODUCTION, "", *self.asked(), "", *self.details(), ""]
        return "\n".join(parts + self.behind()) + "\n"

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
        letters = dict(zip(self.places(), ascii_uppercase, strict=False))
        for asked, row in self.saved():
            times = (
                f"{name} {SHORT(median_high(calls))} ({len(calls)})"
                for name, calls in row["seconds"].items()
            )
            when = f"{row['date']}, {row['load']}"
            where = letters[place(row)]
            rows.append((asked.key, ", ".join(times), where, when, row["note"]))
        heads = ("row", "medians, seconds (calls)", "on", "date, load at the start")
        return table((*heads, "remarks"), rows)

    def behind(self) -> list[str]:
        """Returns the tables behind the figures, and the machines."""
        lines: list[str] = []
        for asked, row in self.saved():
            if entries := row["table"]:
                rows = [entry.values() for entry in entries]
                lines += [f"{asked.figure}:", "", *table(entries[0], rows), ""]
        for letter, where in zip(ascii_uppercase, self.places(), strict=False):
            lines.append(f"{letter}: {where}")
        return lines

    def places(self) -> list[str]:
        """Returns the machines and versions of the rows."""
        return list(dict.fromkeys(map(place, self.rows.values())))


def place(row: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {of}" for name, of in row["versions"].items())
    return f"{row['machine']}; {versions}"
