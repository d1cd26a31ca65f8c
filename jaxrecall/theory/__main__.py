"""python -m jaxrecall.theory: what the formulas predict for a model, or for each row of
a grid or a table.
"""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take long
    from ..cli.process import start

    start("jaxrecall.theory.__main__")

import json
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from ..cli.command import Parser, answer, command
from ..errors import TheoryWarning, UsageError, plural, printable, shown
from ..model.point import FIELDS
from .critical import RANGES, critical, critical_N, limiting_noise
from .limits import ASSUMED
from .model import Model
from .open_attention import accuracy
from .tables import ADDED, table

API = "jaxrecall.sweep.api"
DOCUMENT = "jaxrecall.sweep.grid.document"
PROGRESS = "jaxrecall.sweep.running.progress"
READING = "jaxrecall.analysis.fit.runs"
"""The names of the modules that read grids, values and tables. They belong to layers
above this folder. So they are imported by name, and only where they are needed.
"""

NOT_SHOWN = ("gamma", "gamma2", "root_seed")
"""The fields that are no axes of a printed table: other columns imply them."""


def parser() -> Parser:
    p = Parser(
        "theory",
        "Print what the formulas predict: critical N, the least width, what limits"
        " recall, and where the formulas do not hold. With a grid or a table, print"
        " its points with the predicted accuracy and critical size of each.",
        epilog="The formulas and their errors: docs/theory.md.",
    )
    add = p.add_argument
    add(
        "words",
        metavar="FIELD=VALUE|DIR|FILE.parquet",
        nargs="*",
        help=(
            "fields of a point, as in V=1000 d=128 L=512 (with N=..., the prediction is"
            " for N samples), or results folders or a table; fields that the table"
            " lacks may follow"
        ),
    )
    add("--grid", metavar="FILE", help="a grid file, whose points are the rows")
    add(
        "--theta",
        type=float,
        default=0.5,
        metavar="T",
        help="the accuracy of the critical size, a fraction (default: 0.5)",
    )
    add("--csv", action="store_true", help="print the whole table as CSV")
    add("--json", action="store_true", help="print one JSON object, without a table")
    return p


@command()
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit code: 0 done, 2 refused."""
    args = parser().parse_args(argv)
    given, paths = _sorted(args.words)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TheoryWarning)
        model = Model(**given)
        if args.grid or paths:
            rows = _points(args.grid) if args.grid else _rows(paths)
            shown = import_module(PROGRESS).counter("predictions")
            found = table(rows, args.theta, on_progress=shown, **given)
            if args.csv:
                return answer(*found.to_csv(index=False).splitlines())
            return answer(*_lines_of_table(found))
        facts = _facts(model, given.get("N"), args.theta)
    facts["warnings"] = list(dict.fromkeys(str(warning.message) for warning in caught))
    if args.json:
        return answer(json.dumps(facts))
    return answer(*_lines(facts, args.words))


def _sorted(words: Sequence[str]) -> tuple[dict[str, Any], list[Path]]:
    """Returns the fields and the paths among the words of a command line."""
    fields, paths = {}, []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            paths.append(Path(word))
            continue
        try:
            fields[name] = import_module(DOCUMENT).scalar(value)
        except ValueError:
            raise UsageError(
                f"{name}: got {shown(value)}; allowed: shorter numbers"
            ) from None
    return fields, paths


def _points(path: str) -> pd.DataFrame:
    """Returns a table of the points of a grid file."""
    api = import_module(API)
    api.import_paths(path)
    grid = api.as_grid(path)
    if not grid.simulator.facts.is_ours:
        raise UsageError(
            f"--grid: got {shown(path)}, of the simulator {grid.simulator.facts.name};"
            " allowed: grids of this package's simulator, which theory is about"
        )
    frame = pd.DataFrame([point.values() for point in grid.points])
    if grid.search:
        frame.attrs["searched"] = grid.searched
    return frame


def _rows(paths: Sequence[Path]) -> pd.DataFrame:
    frame, remarks = import_module(READING).read(*paths)
    for remark in remarks:
        print(f"note: {printable(remark)}", file=sys.stderr)
    return frame


def _facts(model: Model, N: float | None, theta: float) -> dict[str, Any]:
    """Returns what theory predicts for a model: a dict for JSON.

    Critical sizes that do not exist are None. Without N, the number of samples is the
    largest that `critical_N` considers, and the limiting noise is that at critical N.
    """
    samples = RANGES["N"][1] if N is None else N
    facts: dict[str, Any] = {"theta": theta, "N": samples}
    if "d" not in model.missing:
        star = critical_N(model, theta)
        at = min(star, samples) if N is None else N
        facts["critical_N"] = _finite(star)
        facts["accuracy"] = accuracy(model, samples)
        facts["limiting_noise"] = limiting_noise(model, at)
    if model.moments.overlap:
        facts["least_d"] = _finite(critical(model, "d", theta, samples))
    return facts


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _lines(facts: dict[str, Any], words: Sequence[str]) -> Iterator[str]:
    """Yields lines of text: what was given, what follows, and what is assumed."""
    theta = f"accuracy {facts['theta']:g}"
    samples = f"with {_count(facts['N'])} samples"
    yield ", ".join(words)
    if "critical_N" in facts:
        yield f"critical N       {_size(facts['critical_N'])}, for {theta}"
        yield f"accuracy         {facts['accuracy']:.3g}, {samples}"
        yield f"limiting noise   {facts['limiting_noise']}"
    if "least_d" in facts:
        yield f"least d          {_size(facts['least_d'])}, for {theta} {samples}"
    for line in facts["warnings"]:
        yield f"warning: {line}"
    for line in ASSUMED:
        yield f"assumed: {line}"


def _size(value: float | None) -> str:
    return "none" if value is None else f"{math.ceil(value)}"


def _count(N: float) -> str:
    return "2^50" if N == 2**50 else f"{N:g}"


def _lines_of_table(found: pd.DataFrame) -> Iterator[str]:
    """Yields a line for each combination of axes with the means of its rows, and each
    note with the number of its rows.
    """
    axes, means = [], []
    for name in found:
        is_axis = name in FIELDS or name in ("theta", "step")
        if is_axis and name not in NOT_SHOWN and found[name].nunique(dropna=False) > 1:
            axes.append(name)
    for name in ("accuracy", "critical", *ADDED):
        if name in found and name != "theory_note":
            means.append(name)
    by = axes or found.index
    cells = found.groupby(by, dropna=False, sort=False)[means].mean().reset_index()
    yield from cells.to_string(index=False, na_rep="").splitlines()
    for note, n in found["theory_note"].value_counts().items():
        if note:
            yield f"note, {plural(n, 'row')}: {note}"
