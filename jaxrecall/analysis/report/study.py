"""What a report is about: the cells of a table, their curves as the fit sees them, and the laws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import FitError
from ...model.point import FIELDS
from ..fit import axes, cells
from ..fit.fitting import Fit, fit
from ..fit.law import Law
from ..fit.steps import ALL, traced
from .style import settings

Table = Any  # pandas.DataFrame, whose own types say less than Any
ORDER = ("d", "L", "V", "m")
NOT_MEASURED = {"point_id", "seed", *FIELDS, "n_correct", "accuracy", "n_tied", "draw_check", "seconds", "code_version"}


@dataclass(frozen=True)
class Traces:
    """Runs that train on, at every recorded step: laid out as a study in which the step is an axis of each cell.

    `axes` are the others that vary between cells, `n_left_out` the rows that have no count.
    """

    runs: Table
    cells: Table
    levels: Table
    axes: tuple[str, ...]
    families: list[cells.Family]
    n_left_out: int


@dataclass(frozen=True)
class Study:
    """`cells`: one row per cell, with its settings and the name of its family (column `part`).
    `levels`: one row per cell (column `cell`) and level of N.

    A level has `accuracy`, the mean over its runs (fraction), `sd` over seeds, `n_seeds`, and the mean of whatever else was
    measured. `axes` are those that vary between cells. `rows` are all rows of the table, `runs` those with a count, each with its
    `cell` and its `level`, the index of a row of `levels`. `traces` are None if no run has rows of several steps.
    """

    rows: Table
    runs: Table
    cells: Table
    levels: Table
    axes: tuple[str, ...]
    families: list[cells.Family]
    thetas: list[float]
    fit: Fit
    surrogate_seeds: int  # of the locked-attention surrogate's own draws; 0 leaves it out
    resamples: int
    traces: Traces | None = None

    @property
    def methods(self) -> list[str]:
        """The methods of the fit, in the order of METHODS."""
        return list(self.fit.thresholds["method"].unique())

    def at(self, cell: int) -> str:
        """A cell's name: d = 64, L = 8."""
        return settings(self.cells.loc[cell], self.axes) if self.axes else "the only cell"

    def where(self, level: Any) -> str:
        """A level's name: d = 64, L = 8, N = 1024."""
        return settings(self.levels.loc[level], (*self.axes, "N"))

    def thresholds(self, theta: float) -> Table:
        """The reported estimates, row i for cell i, with four columns more.

        `state`: crosses, plateau, not reached, above; `in_law`: it counts in the law; `law`: the N* that the law gives it;
        `rejected`: the diagnostics reject that law.
        """
        found = self.fit.thresholds
        found = found[found["record"] & (found["theta"] == theta)].reset_index(drop=True)
        found["state"] = [state(row.censored, row.warning) for row in found.itertuples()]
        found["in_law"] = (found["state"] == "crosses") & ~found["warning"].str.contains("not in the law")
        found["law"] = np.nan
        found["rejected"] = self.cells["part"].isin(self.rejected(theta))
        for family, mine in self._by_family(found):
            exponent = self.exponents(theta, family.name)
            if exponent and not np.isnan(list(exponent.values())).any():
                steps = sum(e * np.log(mine[axis]) for axis, e in exponent.items())
                off = (np.log(mine["N_star"]) - steps).where(mine["in_law"] & mine["copy_of"].isna())
                constant = off.groupby([mine[f] for f in family.factors], dropna=False).transform("mean") if family.factors else off.mean()
                found.loc[mine.index, "law"] = np.exp(steps + constant)
        return found

    def exponents(self, theta: float, part: str) -> dict[str, float]:
        """The reported exponents by axis."""
        found = self.fit.exponents
        mine = found[found["record"] & (found["theta"] == theta) & (found["part"] == part)]
        return dict(zip(mine["axis"], mine["exponent"], strict=True))

    def rejected(self, theta: float) -> list[str]:
        """The families whose law the diagnostics reject: their cells are farther from it than the noise explains."""
        found = self.fit.exponents
        return list(found.loc[(found["theta"] == theta) & found["record"] & found["rejected"], "part"].unique())

    def exponents_of(self, N_star: Any, theta: float) -> dict[tuple[str, str], float]:
        """Exponents, by (part, axis), of the law through other values of N*, row i for cell i, over the cells of the reported law."""
        out = {}
        for family, mine in self._by_family(self.thresholds(theta)):
            inside = mine["in_law"].to_numpy()
            law = Law([cell for cell, is_in in zip(family.cells, inside, strict=True) if is_in], family.law, family.factors)
            y = np.log(np.asarray(N_star, dtype=float)[mine.index][inside])
            y[~np.isfinite(y)] = np.nan
            found = law.exponents(y[None])[0] if not np.isnan(y).all() else np.full(len(family.law), np.nan)
            out |= {(family.name, axis): float(e) for axis, e in zip(family.law, found, strict=True)}
        return out

    def _by_family(self, table: Table) -> list[tuple[cells.Family, Table]]:
        return [(family, table[self.cells["part"] == family.name]) for family in self.families]


def state(censored: str, warning: str) -> str:
    """What an estimate of N* comes to: crosses, plateau, not reached, above."""
    if censored == "no":
        return "crosses"
    return "above" if censored == "left" else "plateau" if "plateau" in warning else "not reached"


def varying(families: Sequence[cells.Family]) -> tuple[str, ...]:
    """The axes that differ between cells, widths and lengths first."""
    at = [cell.at for family in families for cell in family.cells]
    names = (*ORDER, *(axis for axis in at[0] if axis not in ORDER))
    return tuple(axis for axis in names if len({str(one[axis]) for one in at}) > 1)


def study(
    frame: Table,
    families: list[cells.Family],
    thetas: Sequence[float],
    resamples: int,
    surrogate_seeds: int,
    on_progress: Callable[[int, int], None],
    every: Table | None = None,
) -> Study:
    """Fits the table and lays out its cells; `families` are the frame's own. Raises FitError.

    `every` is the same table with the rows of all steps, for the traces.
    """
    if clash := sorted({"cell", "level", "part", "sd", "n_seeds", "state", "law"} & {*frame}):
        raise FitError(f"columns: {', '.join(clash)} has a meaning of its own in a report; rename it")
    frame = axes.as_given(frame)
    laws = fit(frame, thetas, resamples, on_progress, step=ALL)
    return Study(
        frame, *_laid_out(frame, families),
        varying(families), families, list(dict.fromkeys(thetas)), laws, surrogate_seeds, resamples,
        None if every is None else _traces(every),
    )  # fmt: skip


def _traces(every: Table) -> Traces | None:
    frame = traced(every)
    if frame["n_correct"].isna().all():
        return None
    frame = axes.as_given(frame)
    families, _ = cells.families(frame)
    others = tuple(axis for axis in varying(families) if axis != "step")
    return Traces(*_laid_out(frame, families), others, families, int(frame["n_correct"].isna().sum()))


def _laid_out(frame: Table, families: list[cells.Family]) -> tuple[Table, Table, Table]:
    """The runs that have a count, the cells and the levels of a table."""
    import pandas as pd

    every = [(family.name, cell) for family in families for cell in family.cells]
    at = pd.DataFrame([cell.at | {"part": name} for name, cell in every])
    curves = pd.concat([_curve(i, cell) for i, (_, cell) in enumerate(every)], ignore_index=True)
    rows = frame[frame["n_correct"].notna()].copy()
    for name in (name for name in every[0][1].at if rows[name].dtype.kind == "f"):
        rows[name] = axes.rounded(rows[name])
    mine = rows.merge(at.rename_axis("cell").reset_index(), on=list(every[0][1].at), how="left")
    fields = mine.groupby("cell")[[name for name in (*FIELDS, "step") if name in rows and name not in (*at, "N")]].first()
    table = at.join(fields)
    runs = _with_levels(mine, curves)
    levels = curves.join(_measured(runs, NOT_MEASURED | {*at}).mean()).merge(table, left_on="cell", right_index=True)
    return runs, table, levels


def _curve(index: int, cell: cells.Cell) -> Table:
    import pandas as pd

    with np.errstate(invalid="ignore"):
        p = cell.k / cell.n
    with np.errstate(invalid="ignore", divide="ignore"):
        sd = np.nanstd(p, axis=1)
    return pd.DataFrame({"cell": index, "N": cell.N, "accuracy": cell.k.sum(1) / cell.n.sum(1), "sd": sd, "n_seeds": (cell.n > 0).sum(1)})


def _with_levels(rows: Table, curves: Table) -> Table:
    """The rows with the column `level`: the index of the nearest level of their cell, which they are part of."""
    import pandas as pd

    return pd.merge_asof(
        rows.assign(_at=np.log(rows["N"].astype(float))).sort_values("_at"),
        curves.assign(_at=np.log(curves["N"].astype(float)), level=curves.index)[["cell", "_at", "level"]].sort_values("_at"),
        on="_at", by="cell", direction="nearest",
    )  # fmt: skip


def _measured(runs: Table, known: set[str]) -> Any:
    """Every other measured column of the runs, by level."""
    import pandas as pd

    names = [n for n in runs if n not in known | {"_at"} and pd.api.types.is_float_dtype(runs[n])]
    return runs.groupby("level")[names]
