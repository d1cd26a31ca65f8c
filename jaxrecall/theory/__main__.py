"""python -m jaxrecall.theory: what the formulas predict for a model."""

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
from typing import Any

from ..cli.command import Parser, answer, command
from ..errors import UsageError, shown
from .critical import RANGES, critical, critical_N, limiting_noise
from .first_steps import are_drawn
from .limits import assumed
from .model import Model
from .open_attention import accuracy

DOCUMENT = "jaxrecall.sweep.grid.document"
"""The name of the module that reads values. It belongs to a layer above this folder, so
it is imported by name.
"""


def parser() -> Parser:
    p = Parser(
        "theory",
        "Print what the formulas predict: critical N, the capacity threshold of d, what"
        " limits recall, and where the formulas do not hold.",
        epilog=(
            "The formulas and their errors: docs/theory.md. For the rows of a table:"
            " jaxrecall.theory.table in Python."
        ),
    )
    add = p.add_argument
    add(
        "words",
        metavar="FIELD=VALUE",
        nargs="*",
        help=(
            "fields of a point, as in V=1000 d=128 L=512; with N=4096, for that many"
            " samples"
        ),
    )
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
    fields = _fields(args.words)
    theta = fields.pop("theta", args.theta)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = Model(**fields)
        facts = _facts(model, fields.get("N"), theta)
    lines = [f"{name:<16}{_text(value)}" for name, value in facts.items()]
    facts["warnings"] = list(dict.fromkeys(str(warning.message) for warning in caught))
    if args.json:
        return answer(json.dumps(facts))
    return answer(
        *lines, *map("warning: {}".format, facts["warnings"]), *assumed(model)
    )


def _fields(words: Sequence[str]) -> dict[str, Any]:
    """Returns the fields that the words of a command line give."""
    fields: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageError(
                f"FIELD=VALUE: got {shown(word)}; allowed: fields of a point, as in"
                " V=1000 d=128 L=512"
            )
        fields[name] = value
        with suppress(ValueError):  # too many digits; `Model` refuses the text
            fields[name] = import_module(DOCUMENT).scalar(value)
    return fields


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
