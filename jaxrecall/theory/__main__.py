"""python -m jaxrecall.theory: what the formulas predict for a model, or for each row of
a grid or a table.
"""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take long
    from ..cli.process import start

    start("jaxrecall.theory.__main__")

import json
import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from ..cli.command import Parser, answer, command
from ..errors import UsageError, shown
from ..model.point import SAME_AS
from .critical import RANGES, critical, critical_N, limiting_noise
from .first_steps import are_drawn
from .limits import assumed
from .model import Model
from .open_attention import accuracy
from .tables import ADDED, is_setting, table

API = "jaxrecall.sweep.api"
DOCUMENT = "jaxrecall.sweep.grid.document"
READING = "jaxrecall.analysis.fit.reading"
"""The names of the modules that read grids, values and tables. They belong to layers
above this folder. So they are imported by name, and only where they are needed.
"""

NOT_SHOWN = ("gamma", "gamma2", "root_seed", *SAME_AS)
"""The fields that are no axes of a printed table: other columns imply them."""


def parser() -> Parser:
    p = Parser(
        "theory",
        "Print what the formulas predict: critical N, the capacity threshold of d, what"
        " limits recall, and where the formulas do not hold. With a grid or a table,"
        " print its points with the predicted accuracy and critical size of each.",
        epilog="The formulas and their errors: docs/theory.md.",
    )
    add = p.add_argument
    add(
        "words",
        metavar="FIELD=VALUE|DIR|FILE.parquet",
        nargs="*",
        help=(
            "fields of a point, as in V=1000 d=128 L=512 (with N=4096, for that many"
            " samples), or results folders or a table, and fields that replace theirs"
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
    add("--json", action="store_true", help="print one JSON object and nothing else")
    return p


@command()
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit code: 0 done, 2 refused."""
    args = parser().parse_args(argv)
    fields, paths = _sorted(args.words)
    theta = fields.pop("theta", args.theta)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = Model(**fields)
        if args.grid or paths:
            rows = _points(args.grid) if args.grid else _rows(paths)
            predictions: Any = table(rows.assign(**fields), theta)
            facts: dict[str, Any] = {
                "rows": json.loads(predictions.to_json(orient="records"))
            }
            lines = _lines_of_table(predictions)
        else:
            facts = _facts(model, fields.get("N"), theta)
            lines = [f"{name:<16}{_text(value)}" for name, value in facts.items()]
    facts["warnings"] = list(dict.fromkeys(str(warning.message) for warning in caught))
    if args.json:
        return answer(json.dumps(facts))
    return answer(
        *lines, *map("warning: {}".format, facts["warnings"]), *assumed(model)
    )


def _sorted(words: Sequence[str]) -> tuple[dict[str, Any], list[Path]]:
    """Returns the fields and the paths among the words of a command line."""
    fields: dict[str, Any] = {}
    paths = []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            paths.append(Path(word))
            continue
        fields[name] = value
        with suppress(ValueError):  # too many digits; `Model` refuses the text
            fields[name] = import_module(DOCUMENT).scalar(value)
    return fields, paths


def _points(path: str) -> pd.DataFrame:
    """Returns a table of the points of a grid file."""
    api = import_module(API)
    api.import_paths(path)
    grid = api.as_grid(path)
    if not grid.simulator.has_theory:
        raise UsageError(
            f"--grid: got {shown(path)}, of another simulator; allowed: grids of this"
            " package's simulator, which theory is about"
        )
    frame = pd.DataFrame([point.values() for point in grid.points])
    frame.attrs["searched"] = grid.searched or "N"
    return frame


def _rows(paths: Sequence[Path]) -> pd.DataFrame:
    """Returns the rows of results folders or of a table."""
    rows, remarks = import_module(READING).read_tables(*paths)
    for remark in remarks:
        warnings.warn(remark, UserWarning, stacklevel=1)
    return rows


def _facts(model: Model, N: float | None, theta: float) -> dict[str, Any]:
    """Returns what theory predicts for a model with N samples. Sizes that do not exist
    are None.

    Without N, the number of samples is the largest that `critical_N` considers, and the
    limiting noise is that at critical N.
    """
    samples = RANGES["N"][1] if N is None else N
    facts: dict[str, Any] = {"theta": theta, "samples": samples}
    if "d" not in model.missing:
        star = critical_N(model, theta)
        at = min(star, samples) if N is None else N
        facts["critical_N"] = _finite(star)
        if not are_drawn(model):
            facts["limiting_noise"] = limiting_noise(model, at)
        facts["accuracy"] = accuracy(model, samples)
    if model.moments.overlap:
        facts["least_d"] = _finite(critical(model, "d", theta, samples))
    return facts


def _finite(size: float) -> float | None:
    return size if math.isfinite(size) else None


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value).lower()


def _lines_of_table(predictions: Any) -> list[str]:
    """Returns a line for each combination of axes, with the means of its rows."""
    axes = []
    for name in predictions:
        is_axis = is_setting(name) and name not in NOT_SHOWN
        if is_axis and predictions[name].nunique(dropna=False) > 1:
            axes.append(name)
    means = [name for name in ("accuracy", *ADDED) if name in predictions]
    cells = predictions.groupby(axes or ["V"], dropna=False, sort=False, as_index=False)
    return cells[means].mean().to_string(index=False).splitlines()
