"""python -m jaxrecall.report: a results folder or table as one HTML page, and its pictures as PDF and PNG."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import FitError, Refused
from ..fit import RESAMPLES, cells
from ..fit.__main__ import check_folder, progress
from ..status import survey
from ..store.store import Store
from . import draw, tables
from .axes import roles
from .page import page
from .study import study

OK, USAGE, INTERRUPTED = 0, 2, 130


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m jaxrecall.report",
        description="One HTML page with pictures, thresholds, exponents, theory and provenance; the pictures as PDF and PNG beside it.",
        epilog="An axis is a column that varies between cells: d, L, V, m, ... A phase diagram takes N and arithmetic too: 'm * d' N.",
    )
    p.add_argument("table", metavar="DIR|FILE.parquet", help="a results folder, or any table with columns " + ", ".join(cells.NEEDED))
    p.add_argument("--out", metavar="FILE.html", help="the page (default: DIR/report.html, or FILE-report.html beside a file)")
    p.add_argument(
        "--theta", type=float, nargs="+", default=[0.5], metavar="T", help="accuracies to cross; maps show the first (default: 0.5)"
    )
    p.add_argument("--x", metavar="AXIS", help="along x in the picture of critical N (default: the first that varies of d, L, V, m)")
    p.add_argument("--lines", metavar="AXIS", help="what the lines of a picture differ in (default: the next)")
    p.add_argument("--panels", metavar="AXIS", nargs="+", default=[], help="what the panels differ in (all others do too)")
    p.add_argument(
        "--phase",
        metavar=("X", "Y"),
        nargs=2,
        action="append",
        default=[],
        help="a phase diagram's axes; repeatable (default: that of --x, and N)",
    )
    p.add_argument("--resamples", type=int, default=RESAMPLES, metavar="B", help=f"bootstrap resamplings of the fit (default: {RESAMPLES})")
    p.add_argument("--surrogate", type=int, default=64, metavar="S", help="seeds of the locked-attention surrogate; 0: none (default: 64)")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else list(argv)
    args = parser().parse_args(argv)
    try:
        _report(args, f"python -m jaxrecall.report {shlex.join(argv)}")
    except Refused as error:
        print(error, file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("interrupted; the report is not complete", file=sys.stderr)
        return INTERRUPTED
    return OK


def _report(args: argparse.Namespace, command: str) -> None:
    path = Path(args.table)
    is_folder = Store(path).holds_results()
    out = (
        Path(args.out)
        if args.out
        else path / "report.html"
        if is_folder
        else path.resolve().with_name(f"{path.resolve().stem}-report.html")
    )
    if out.is_dir():
        raise FitError(f"--out: {out} is a folder; allowed: a file, as in {out / 'report.html'}")
    folder = out.with_name(f"{out.stem}-figures")
    check_folder(folder)
    if args.surrogate < 0:
        raise FitError(f"--surrogate: {args.surrogate}; allowed: a number of seeds, or 0 for none")
    frame, remarks = cells.read(path)
    parts, notes = cells.parts(frame)
    chosen = roles(parts, args.x, args.lines, args.panels, args.phase)
    with progress() as tell:
        found = study(frame, parts, args.theta, args.resamples, args.surrogate, tell)
    manifest = Store(path).read_manifest() if is_folder else None
    facts = survey(path) if is_folder else None
    name = (facts and facts["grid"]) or path.resolve().stem
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pictures, left_out = draw(found, chosen, folder)
        sections = [
            ("Exponents", tables.exponents(found)),
            ("Thresholds", tables.thresholds(found)),
            ("Warnings and remarks", tables.warnings(found, [*remarks, *notes])),
            ("Failures", tables.failures(facts)),
            ("Provenance", tables.provenance(found, manifest, command)),
        ]
        lines = [
            f"{len(found.cells)} cells ({', '.join(found.axes) or 'nothing'} vary), {len(frame)} runs, {frame['seed'].nunique()} seeds. "
            "N: samples; d: embedding width; L: sequence length; V: vocabulary; m: MLP width, 0 for attention only. Theory: ours."
        ]
        staged = out.with_name(f".{out.name}.tmp")
        staged.write_text(page(f"{name}: how critical N scales", lines, pictures, left_out, sections, folder.name), encoding="utf-8")
        staged.replace(out)
    except OSError as error:
        raise FitError(f"{out}: cannot be written ({error.strerror or error}); choose another --out") from error
    for picture, _ in pictures:
        print(f"{picture.title}\n  {picture.caption}")
    for what, why in left_out:
        print(f"left out: {what}: {why}")
    print(f"\npage:     {out} ({out.stat().st_size / 1e6:.2f} MB)\npictures: {folder} ({len(pictures)} as .pdf and .png)")


if __name__ == "__main__":
    raise SystemExit(main())
