"""What a fit has found, in a few lines of text or as a table for a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

Table = Any  # pandas.DataFrame, whose own types say less than Any
SHOWN = ("part", "regime", "theta", "axis", "exponent", "lo", "hi", "n_cells", "n_seeds", "rejected", "warning")
"""Columns of the exponents in a notebook."""


def summary(thresholds: Table, exponents: Table, diagnostics: Table) -> Iterator[str]:
    """For each theta: how many cells cross, the reported exponents with their intervals, and every warning."""
    for theta, mine in thresholds[thresholds["record"]].groupby("theta", sort=False):
        yield f"theta = {theta:g}: {crossings(mine)}"
        for row in exponents[exponents["record"] & (exponents["theta"] == theta)].itertuples():
            if row.exponent != row.exponent:
                yield f"  {_law(row)}: the cells that cross do not determine how {row.along}* depends on {row.axis}"
                continue
            ends = f"  95 % interval {_two(row.lo)} to {_two(row.hi)}" if row.lo == row.lo else ""
            yield f"  {_law(row)}: {row.along}* ~ {row.axis}^{_two(row.exponent)}{ends}{'  (law rejected)' if row.rejected else ''}"
        warnings = diagnostics[(diagnostics["diagnostic"] == "warning") & (diagnostics["theta"] == theta)]
        yield from (f"  warning, {_law(row)}: {row.text}" for row in warnings.itertuples())


def crossings(thresholds: Table) -> str:
    """How many of the cells cross, count in the law, are censored or are copies; `thresholds` has one row for each cell."""
    n, n_distinct = len(thresholds), int(thresholds["copy_of"].isna().sum())
    cells = f"{n} cell{'s' * (n > 1)}" + (f", of which {n - n_distinct} repeat the counts of another" if n_distinct < n else "")
    counts = thresholds["censored"].value_counts()
    cross = f"{counts.get('no', 0)} cross"
    if unsure := int(thresholds["warning"].str.contains("crossing not sure").sum()):
        cross += f", {unsure} of them not in enough resamplings for the law"
    censored = [f"{counts[side]} censored {side}" for side in ("left", "right") if side in counts]
    return f"{cells}: {'; '.join([cross, *censored])}"


def html(exponents: Table, lines: list[str]) -> str:
    """The reported exponents as a table, and the lines below it that are no exponents."""
    table = exponents.loc[exponents["record"], list(SHOWN)]
    table = table.loc[:, [name for name in SHOWN if name not in ("regime", "warning") or (table[name] != "").any()]]
    notes = "".join(f"<br>{escape(line.strip())}" for line in lines if "* ~" not in line)
    return table.to_html(index=False, float_format="{:.3g}".format, border=0) + f"<p>{notes.removeprefix('<br>')}</p>"


def _law(row: Any) -> str:
    return f"{row.part}, {row.regime}" if row.regime else row.part


def _two(value: float) -> str:
    """Two decimals; 0.00 for what rounds to it, without a sign."""
    return f"{round(value, 2) + 0.0:.2f}"
