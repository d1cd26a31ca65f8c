"""The requested table, its file, and the merging of partial runs.

The JSON file is the record, and the Markdown file beside it is written from it. Each
row includes when, where and with what it was measured, so that expensive rows can be
refreshed on their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from jaxrecall.sweep.files import atomic_write

TIMES = "{:.3g}x".format
NUMBER = "{:.2f}".format
COUNT = "{:.0f}".format
PERCENT = "{:.0f} %".format
SHORT = "{:.3g}".format
NOT_RUN = "not run"


class Asked(NamedTuple):
    """A row of the table: a figure, its required and desired values, and its group.

    The group is the group of measurements that the figure comes from.
    """

    key: str
    group: str
    figure: str
    bar: str
    aim: str
    units: Sequence[Any] = (TIMES,)
    at_most: bool = False


ASKED = (
    Asked("R1", "R1", "R1, torch loop / jaxrecall", "80x", "200x"),
    Asked(
        "R1-full", "R1", "R1 with `exact: full`, torch loop / jaxrecall", "20x", "35x"
    ),
    Asked("R2", "R2", "R2, torch loop / jaxrecall", "10x", "20x"),
    Asked(
        "R1-floor",
        "R1",
        "R1, jaxrecall / floor of the words, lookups and scatters that its form needs",
        "2.0",
        "1.2",
        (NUMBER,),
        True,
    ),
    Asked("S1-warm", "S1", "S1 warm, torch loop / jaxrecall", "20x", "50x"),
    Asked(
        "S1-cold-torch",
        "cold",
        "S1 cold (empty compile cache, compile counted, import not), torch loop / jaxrecall",  # noqa: E501
        "5x",
        "9x",
    ),
    Asked("S1-cold-jax", "cold", "S1 cold, jax loop / jaxrecall", "40x", "100x"),
    Asked(
        "compiling",
        "cold",
        "S1's program, processor seconds to trace and compile it: light, thorough",
        "",
        "",
        (SHORT, SHORT),
    ),
    Asked(
        "S2-warm",
        "S2",
        "S2 warm, runs per second over the torch loop's (a stated sample of its points)",  # noqa: E501
        "15x",
        "40x",
    ),
    Asked(
        "programs",
        "cold",
        "programs compiled: S1, S2",
        "4, 8",
        "2, 4",
        (COUNT, COUNT),
        True,
    ),
    Asked(
        "second",
        "cold",
        "second process on the same grid with the persistent cache: programs compiled",
        "0",
        "0",
        (COUNT,),
        True,
    ),
    Asked(
        "memory",
        "memory",
        "peak RSS, N = 1e7 over N = 1e5 (V 256, d 64, L 16)",
        "1.10",
        "1.02",
        (NUMBER,),
        True,
    ),
    Asked(
        "slope",
        "memory",
        "log-log slope of time against N from 1e5 to 1e7",
        "1.03",
        "1.00",
        (NUMBER,),
        True,
    ),
    Asked(
        "search",
        "search",
        "threshold search: samples simulated for the same CI width, dense grid / search",  # noqa: E501
        "4x",
        "10x",
    ),
    Asked(
        "pool",
        "pool",
        "exact run (measured at N = 8192, scaled) / pool run: V 256, d 128, L 4096, N 1e6, K 512",  # noqa: E501
        "500x",
        "3000x",
    ),
    Asked(
        "pool-N",
        "pool",
        "log-log slope of a pool run's time against N from 1e4 to 1e12",
        "0.05",
        "0.02",
        (NUMBER,),
        True,
    ),
    Asked(
        "pool-L",
        "pool",
        "log-log slope of a pool run's time against L from 64 to 65536",
        "0.25",
        "0.1",
        (NUMBER,),
        True,
    ),
    Asked(
        "pool-memory",
        "pool",
        "peak RSS of a pool run, N 1e15 and L 1e9 over N 1e4 and L 64",
        "1.10",
        "1.02",
        (NUMBER,),
        True,
    ),
    Asked(
        "pool-floor",
        "pool",
        "1,000 pool runs (V 128, d 64, K 256) / floor of their products and draws",
        "2.5",
        "1.5",
        (NUMBER,),
        True,
    ),
    Asked(
        "guard",
        "guard",
        "guarded / full, worst over V 16-1024, d 16-2048, L 2-512, m 0 and 512",
        "1.1",
        "0.8",
        (NUMBER,),
        True,
    ),
    Asked(
        "estimates",
        "estimates",
        "estimate / measured, or its inverse, worst of twenty grids: at first, once more",  # noqa: E501
        "2, 2",
        "1.3, 1.3",
        (NUMBER, NUMBER),
        True,
    ),
    Asked(
        "parts",
        "estimates",
        "V 64, d 64, 256 and 1024, 200 seeds in one grid / in three, summed: cold, warm",  # noqa: E501
        "1.3, 1.3",
        "1.1, 1.1",
        (NUMBER, NUMBER),
        True,
    ),
    Asked(
        "later",
        "later",
        "64 runs of 1000 steps (8 rates x 8 seeds; V 64, d 32, L 8, N 1024), torch loop on both cores / jaxrecall",  # noqa: E501
        "4x",
        "10x",
    ),
    Asked(
        "from-tokens",
        "locked",
        "further steps with locked attention, N = 16 V, from samples / from tokens: least of six runs, median",  # noqa: E501
        "5x, 5x",
        "10x, 10x",
        (TIMES, TIMES),
    ),
    Asked(
        "zipf-full",
        "laws",
        "R1 with `exact: full`, zipf tokens / uniform ones",
        "1.3",
        "1.1",
        (NUMBER,),
        True,
    ),
    Asked(
        "zipf-guarded",
        "laws",
        "R1 with zipf tokens, guarded / full",
        "0.5",
        "0.2",
        (NUMBER,),
        True,
    ),
    Asked(
        "zipf-S1",
        "laws",
        "S1 warm, zipf tokens / uniform ones: as it is, at eta 1e-4, at eta 1e-4 with open attention in both",  # noqa: E501
        "1.3, 1.3, 1.3",
        "1.1, 1.1, 1.1",
        (NUMBER, NUMBER, NUMBER),
        True,
    ),
    Asked(
        "structured",
        "laws",
        "R1, structured embeddings / gaussian ones, worst of four laws",
        "1.2",
        "1.05",
        (NUMBER,),
        True,
    ),
    Asked(
        "gpu",
        "gpu",
        "GPU: S1 batched / one run a call; R1 matmul rate / that GPU's own f32-grade rate",  # noqa: E501
        "30x; 40 %",
        "100x; 60 %",
        (TIMES, PERCENT),
    ),
    Asked(
        "two-workers",
        "engines",
        "two workers on two cores / one worker on one, steady state",
        "1.7x",
        "1.9x",
    ),
    Asked(
        "ray",
        "engines",
        "Ray, two actors: time over that of two workers, less one",
        "15 %",
        "5 %",
        (PERCENT,),
        True,
    ),
    Asked(
        "fit",
        "fit",
        "fit of 10^6 rows: seconds; peak GiB",
        "60; 4",
        "30; 1",
        (COUNT, NUMBER),
        True,
    ),
    Asked(
        "parts-written",
        "scale",
        "parts of 1000 rows written per second, each fsynced and read back",
        "",
        "",
        (SHORT,),
    ),
    Asked(
        "parts-read",
        "scale",
        "parts of 1000 rows listed and read per second, to know what is done",
        "",
        "",
        (SHORT,),
    ),
    Asked("rows-compacted", "scale", "rows compacted per second", "", "", (SHORT,)),
    Asked(
        "bytes",
        "scale",
        "bytes a row: in parts of 1000, in the compacted table",
        "",
        "",
        (SHORT, SHORT),
    ),
)
GROUPS = tuple(dict.fromkeys(row.group for row in ASKED))


@dataclass
class Measured:
    """The measurements for one row.

    Without values the row was not run, and the note gives the reason.
    """

    values: list[float] = field(default_factory=list)
    beside: str = ""  # the same figure, measured against the bag form of the torch loop
    note: str = ""
    # the seconds of every call, by engine
    seconds: Mapping[str, list[float]] = field(default_factory=dict)
    # counted terms and their rates
    floor: list[dict[str, Any]] = field(default_factory=list)
    # the entries of which the values are the worst
    table: list[dict[str, Any]] = field(default_factory=list)


def reached(asked: Asked, values: Sequence[float]) -> str:
    """Returns "aim", "bar" or "neither", whichever the values reach.

    The result is empty if the row was not run, or if nothing is required of it.
    """
    if not asked.bar:
        return ""
    for level in ("aim", "bar") if values else ():
        limits = [
            float(part.strip(" x%"))
            for part in getattr(asked, level).replace(";", ",").split(",")
        ]
        shown = [
            float(unit(v).strip(" x%"))
            for unit, v in zip(asked.units, values, strict=True)
        ]
        if all(
            v <= limit if asked.at_most else v >= limit
            for v, limit in zip(shown, limits, strict=True)
        ):
            return level
    return "neither" if values else ""


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
        atomic_write(
            self.json,
            (
                json.dumps({"tiny": self.tiny, "rows": self.rows}, indent=1) + "\n"
            ).encode(),
        )
        atomic_write(self.path, self.markdown().encode())

    def markdown(self) -> str:
        title = "# Speed" + (
            " (tiny sizes: a test of the benchmarks, not a measurement)"
            if self.tiny
            else ""
        )
        parts = [
            title,
            "",
            (
                "Written by `python -m benchmarks`; ratios of medians, bars and aims as"
                " asked of the project."
            ),
            "",
        ]
        parts += [
            "\n".join(self.table()),
            "",
            *self.details(),
            *self.floor(),
            *self.tables(),
            *self.places(),
        ]
        return "\n".join(parts) + "\n"

    def table(self) -> list[str]:
        """Returns the lines of the table, with one row for each requested figure."""
        lines = [
            "| figure | bar | aim | measured | reached | against embedding_bag |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for asked in ASKED:
            row = self.rows.get(asked.key, {})
            values = row.get("values") or []
            shown = [
                unit(value) for unit, value in zip(asked.units, values, strict=False)
            ]
            text = ("; " if ";" in asked.bar else ", ").join(shown) or NOT_RUN
            cells = (
                asked.figure,
                asked.bar,
                asked.aim,
                text,
                reached(asked, values),
                row.get("beside", ""),
            )
            lines.append("| " + " | ".join(cells) + " |")
        return lines

    def details(self) -> list[str]:
        """Returns a table of how each row was measured: medians, calls and remarks."""
        lines = [
            (
                "| row | medians, seconds (calls) | on | date, load at the start |"
                " remarks |"
            ),
            "| --- | --- | --- | --- | --- |",
        ]
        where = self.circumstances()
        for asked in ASKED:
            if asked.key not in self.rows:
                continue
            row = self.rows[asked.key]
            times = ", ".join(
                f"{name} {sorted(s)[len(s) // 2]:.3g} ({len(s)})"
                for name, s in row["seconds"].items()
            )
            place = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[where.index(circumstance(row)) % 26]
            lines.append(
                f"| {asked.key} | {times} | {place} | {row['date']}, {row['load']} |"
                f" {row['note']} |"
            )
        return [*lines, ""]

    def floor(self) -> list[str]:
        """Returns a table of the counted terms of R1, and the rates of this process."""
        terms = self.rows.get("R1-floor", {}).get("floor", [])
        lines = [
            (
                "| R1, form | term | count | per second | seconds | per second, one"
                " call a core |"
            ),
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for t in terms:
            numbers = [
                f"{t[name]:.3g}"
                for name in ("count", "rate", "seconds", "rate_all_cores")
            ]
            lines.append(f"| {t['form']} | {t['term']} | " + " | ".join(numbers) + " |")
        return [*lines, ""] if terms else []

    def tables(self) -> list[str]:
        """Returns the tables behind the figures that are a worst case."""
        lines: list[str] = []
        for asked in ASKED:
            if table := self.rows.get(asked.key, {}).get("table"):
                lines += [
                    f"{asked.figure}:",
                    "",
                    "| " + " | ".join(table[0]) + " |",
                    "| " + " | ".join("---" for _ in table[0]) + " |",
                ]
                lines += [
                    "| "
                    + " | ".join(
                        SHORT(v) if isinstance(v, float) else str(v)
                        for v in entry.values()
                    )
                    + " |"
                    for entry in table
                ]
                lines.append("")
        return lines

    def places(self) -> list[str]:
        """Returns the lines that describe machines and versions."""
        named = zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", self.circumstances(), strict=False)
        return [f"{name}: {machine}; {versions}" for name, (machine, versions) in named]

    def circumstances(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys(circumstance(row) for row in self.rows.values()))


def circumstance(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["machine"], ", ".join(
        f"{name} {version}" for name, version in row["versions"].items()
    )
