"""python -m jaxrecall.fit: thresholds and exponents of a table, written as Parquet and told in short."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import FitError, Refused
from ..run.progress import PLAIN_EVERY_SECONDS
from ..run.tally import duration
from ..store.store import Store, local_path
from . import RESAMPLES, Fit, cells, fit
from .estimate import METHODS, RECORD

OK, USAGE, INTERRUPTED = 0, 2, 130
NAMES = ("thresholds", "exponents", "diagnostics")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m jaxrecall.fit",
        description="Finds N* where accuracy crosses theta, cell by cell, and the exponents of N* ~ product of axis^exponent.",
        epilog="Methods: " + "; ".join(f"{name}: {text}" for name, text in METHODS.items()) + f". Of record: {RECORD}.",
    )
    told = "results folders, several taken together, or any one table with columns " + ", ".join(cells.NEEDED)
    p.add_argument("tables", metavar="DIR|FILE.parquet", nargs="+", help=told)
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
    args = parser().parse_args(argv)
    try:
        paths = list(map(local_path, args.tables))
        out = local_path(args.out) if args.out else _beside(*paths, of=args.of)
        check_folder(out)
        frame, remarks = cells.read(*paths)
        frame = cells.counting(frame, args.of)
        with progress() as tell:
            found = fit(frame, args.theta, args.resamples, tell)
        _say(found, remarks + found.remarks)
        _write(found, out)
    except Refused as error:
        print(error, file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("interrupted; nothing was written", file=sys.stderr)
        return INTERRUPTED
    return OK


def _beside(path: Path, *others: Path, of: str) -> Path:
    """Where the tables go unless told."""
    if others:
        raise FitError(f"--out: nothing given; needed with {1 + len(others)} folders, as in --out laws")
    folder = path if Store(path).holds_results() else path.resolve().with_name(f"{path.resolve().stem}-fit")
    return folder if of == "accuracy" else folder / of


def check_folder(out: Path) -> None:
    """Refuses a folder that cannot be written, before anything is fitted; makes nothing."""
    nearest = next(path for path in (out, *out.resolve().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise FitError(f"{out}: cannot be written ({nearest} is not a folder, or not writable); choose another --out")


def _write(found: Fit, out: Path) -> None:
    """Each table whole or not at all."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in NAMES:
            staged = out / f".{name}.parquet.tmp"
            getattr(found, name).to_parquet(staged, index=False)
            staged.replace(out / f"{name}.parquet")
            print(f"{name + ':':<13}{out / name}.parquet ({len(getattr(found, name))} rows)")
    except OSError as error:
        raise FitError(f"{out}: cannot be written ({error.strerror or error}); choose another --out") from error


def _say(found: Fit, remarks: Sequence[str]) -> None:
    """The estimates of record, and every warning."""
    for remark in remarks:
        print(f"note: {remark}")
    cells_of_record = found.thresholds[found.thresholds["record"]]
    for theta in cells_of_record["theta"].unique():
        mine = cells_of_record[cells_of_record["theta"] == theta]
        counts = mine["censored"].value_counts()
        censored = ", ".join(f"{counts[side]} censored {side}" for side in ("left", "right") if side in counts)
        print(f"\ntheta = {theta:g}: {counts.get('no', 0)} of {len(mine)} cells cross{f', {censored}' if censored else ''}")
        law = found.exponents[found.exponents["record"] & (found.exponents["theta"] == theta)]
        for row in law.itertuples():
            value = f"{row.axis}^{row.exponent:.2f}" if row.exponent == row.exponent else f"{row.axis}: none"
            ends = f"  95 % interval {row.lo:.2f} to {row.hi:.2f}" if row.lo == row.lo else ""
            print(f"  {row.part}: N* ~ {value}{ends}")
        told = found.diagnostics[(found.diagnostics["diagnostic"] == "warning") & (found.diagnostics["theta"] == theta)]
        for row in told.itertuples():
            print(f"  warning, {row.part}: {row.text}")
    print()


@contextmanager
def progress() -> Iterator[Callable[[int, int], None]]:
    """A live bar on a terminal, elsewhere a line every half minute."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("resampling")
            yield lambda done, of: bar.update(task, completed=done, total=of)
        return
    start = last = time.monotonic()

    def tell(done: int, of: int) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= PLAIN_EVERY_SECONDS:
            last = now
            print(f"resampling: {100 * done / of:.0f} %, {duration((now - start) * (of - done) / done)} to go", file=sys.stderr, flush=True)

    yield tell


if __name__ == "__main__":
    raise SystemExit(main())
