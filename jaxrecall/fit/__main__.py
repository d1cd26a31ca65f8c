"""python -m jaxrecall.fit: thresholds and exponents of a table, written as Parquet and summarised."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from ..errors import Refused
from ..store.paths import local_path
from . import RESAMPLES, Fit, cells, fit
from .estimate import METHODS, REPORTED
from .progress import progress
from .write import check_folder, default_folder, write

OK, USAGE, INTERRUPTED = 0, 2, 130


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m jaxrecall.fit",
        description="Finds N* where accuracy crosses theta, cell by cell, and the exponents of N* ~ product of axis^exponent.",
        epilog="Methods: " + "; ".join(f"{name}: {text}" for name, text in METHODS.items()) + f". Reported: {REPORTED}.",
    )
    tables = "results folders, several taken together, or any one table with columns " + ", ".join(cells.NEEDED)
    p.add_argument("tables", metavar="DIR|FILE.parquet", nargs="+", help=tables)
    p.add_argument(
        "--out",
        metavar="DIR",
        help="where the three tables go (default: the results folder or FILE-fit beside a file, ACCURACY there with --of)",
    )
    p.add_argument(
        "--of", metavar="ACCURACY", default="accuracy", help=f"what crosses: accuracy (default), {', '.join(cells.OF_VOCABULARY)}"
    )
    p.add_argument("--theta", type=float, nargs="+", default=[0.5], metavar="T", help="accuracies to cross, fractions (default: 0.5)")
    p.add_argument("--resamples", type=int, default=RESAMPLES, metavar="B", help=f"bootstrap resamplings (default: {RESAMPLES})")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Parses, fits, writes, prints; returns the exit code: 0 done, 2 refused, 130 interrupted."""
    args = parser().parse_args(argv)
    try:
        paths = list(map(local_path, args.tables))
        out = local_path(args.out) if args.out else default_folder(paths, args.of)
        check_folder(out)
        frame, remarks = cells.read(*paths)
        frame = cells.counting(frame, args.of)
        with progress() as on_progress:
            found = fit(frame, args.theta, args.resamples, on_progress)
        print(*lines(found, remarks + found.remarks), "", sep="\n")
        for path, n_rows in write(found, out).items():
            print(f"{path.stem + ':':<13}{path} ({n_rows} rows)")
    except Refused as error:
        print(error, file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("interrupted; nothing was written", file=sys.stderr)
        return INTERRUPTED
    return OK


def lines(found: Fit, remarks: Sequence[str]) -> Iterator[str]:
    """The reported estimates, and every warning."""
    for remark in remarks:
        yield f"note: {remark}"
    thresholds = found.thresholds[found.thresholds["record"]]
    for theta in thresholds["theta"].unique():
        mine = thresholds[thresholds["theta"] == theta]
        counts = mine["censored"].value_counts()
        censored = ", ".join(f"{counts[side]} censored {side}" for side in ("left", "right") if side in counts)
        yield f"\ntheta = {theta:g}: {counts.get('no', 0)} of {len(mine)} cells cross{f', {censored}' if censored else ''}"
        law = found.exponents[found.exponents["record"] & (found.exponents["theta"] == theta)]
        for row in law.itertuples():
            value = f"{row.axis}^{row.exponent:.2f}" if row.exponent == row.exponent else f"{row.axis}: none"
            ends = f"  95 % interval {row.lo:.2f} to {row.hi:.2f}" if row.lo == row.lo else ""
            yield f"  {row.part}: N* ~ {value}{ends}"
        warnings = found.diagnostics[(found.diagnostics["diagnostic"] == "warning") & (found.diagnostics["theta"] == theta)]
        for row in warnings.itertuples():
            yield f"  warning, {row.part}: {row.text}"


if __name__ == "__main__":
    raise SystemExit(main())
