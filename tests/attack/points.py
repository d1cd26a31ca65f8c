"""Points of all switches, small ones and ones at the limits, against the float64
reference.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
from helpers import UNOPTIMISED

from attack.tries import Tries
from jaxrecall import Point, descend, measure, realize, simulate
from jaxrecall.errors import PointError
from jaxrecall.model.reference import descent, three_step
from jaxrecall.model.reference.descent import start
from jaxrecall.simulator import program
from jaxrecall.sweep.__main__ import main as sweep

RTOL, ATOL = 2e-4, 1e-6
"""As in the tests of the metrics against the reference."""

ROUNDING, DRAWS = 1e-5, 4
"""Relative changes of the embeddings that stand for rounding in float32, and how many:
what they change is not held against a row.

Training beyond the recipe is float32 in them: an optimizer that divides by the size of
the gradient makes a step of what rounding leaves of a gradient that is 0, and Adam
corrects its bias by 1 - 0.999^t, which float32 has to four or five digits.
"""

EMBEDDINGS = (
    "gaussian",
    "sphere",
    "orthogonal",
    "equicorrelated(rho=0.3)",
    "power_law(alpha=1)",
    "low_rank(rank=3, noise=0.1)",
)
ACTIVATIONS = ("relu", "gelu", "tanh", "quadratic", "cubic", "mixed", "identity")
MAX_SECONDS, MAX_BYTES = 60, 2**31
NOT_COMPARED = ("n_tied",)
SMALL = {"V": 12, "N": 300, "d": 10, "L": 4, "n_test": 200}
LIMITS: dict[str, list[Any]] = {
    "V": [2, 3, 65536],
    "N": [1, 2, 2**30],
    "d": [1, 2, 65536],
    "L": [1, 2, 65536],
    "m": [0, 1, 2**20],
    "pool": [None, 1, 2, 65536],
    "n_test": [1, 2, 2**30],
    "eta": [5e-324, 1e-300, 1e-30, 1e30, 1e308],
    "kappa": [0.0, 5e-324, 1e-30, 1e30, 1e308],
    "gamma2": [0.0, 5e-324, 1e-30, 1e30, 1e308],
    "steps": [1, 3, 4, 10**6],
    "start": ["zero", "three_step"],
    "optimizer": ["sgd", "momentum", "adam", "adamw"],
    "lr": [5e-324, 1e-30, 0.1, 1e30, 1e308],
    "lr_attention": [0.0, 1e-30, 1e308],
    "trains": ["V", "VW", "VWZ", "VWZM"],
    "batch": [1, 2**30],
    "activation": [*ACTIVATIONS, "none"],
    "embedding": [*EMBEDDINGS],
    "fresh_batches": [True],
    "label_noise": [0.0, 1e-30, 1.0],
    "trigger_in_value": [False],
    "exact": ["full"],
    "streams": ["independent"],
    "diagnose": [True],
    "decoders": [True],
    "root_seed": [0, 2**32 - 1],
}


def small(tries: Tries) -> None:
    """Each choice of switches with a few values of the rest, which share a program; it
    is compiled fast, as in the tests.
    """
    program.compile = lambda lowered, options: lowered.compile(
        compiler_options=UNOPTIMISED
    )
    while tries.more():
        fixed = switches(tries.chance)
        for _ in range(4):
            changes = numbers(tries.chance)
            seed = tries.chance.choice([0, 1, tries.chance.randrange(2**32), 2**32 - 1])
            fields = {
                name: value
                for name, value in (fixed | changes).items()
                if name != "batch" or value <= changes["N"]
            }
            if "steps" not in fixed:
                del fields["steps"], fields["lr"]
            if tries.more():
                with tries.one(f"simulate(Point({_text(fields)}), {seed})") as one:
                    try:
                        point = Point(**fields)
                    except PointError:
                        one.refused()
                    else:
                        check(simulate(point, seed), point, seed)


def extreme(tries: Tries) -> None:
    """1 everywhere, then small points with one to four fields at a limit."""
    given: dict[str, Any] = {
        **dict.fromkeys(("N", "d", "L", "n_test", "m", "eta", "kappa", "gamma2"), 1),
        "V": 2,
    }
    while tries.more():
        planned = plan(given)
        if planned is None or (
            planned["est_seconds"] < MAX_SECONDS
            and planned["est_peak_bytes"] < MAX_BYTES
        ):
            with tries.one(f"simulate(Point({_text(given)}), 0)") as one:
                try:
                    row = simulate(Point(**given), 0)
                except PointError:
                    one.refused()
                else:
                    assert planned is not None, (
                        "it runs, though as a grid it is refused"
                    )
                    check(row, Point(**given), 0)
        names = tries.chance.sample(
            sorted(LIMITS), tries.chance.choice([1, 2, 2, 3, 4])
        )
        given = SMALL | {name: tries.chance.choice(LIMITS[name]) for name in names}


def planned(tries: Tries) -> None:
    """Points with most fields at limits: what they would cost is a finite number, or
    they are refused.
    """
    while tries.more():
        names = tries.chance.sample(sorted(LIMITS), tries.chance.randint(3, 9))
        given = SMALL | {name: tries.chance.choice(LIMITS[name]) for name in names}
        with tries.one(f"plan of Point({_text(given)})") as one:
            if facts := plan(given):
                assert all(
                    math.isfinite(facts[name]) and facts[name] > 0
                    for name in ("est_seconds", "est_peak_bytes", "est_flops")
                ), facts
            else:
                one.refused()


def plan(given: dict[str, Any]) -> dict[str, Any] | None:
    """What the command line says a point would cost; None if it refuses it."""
    with tempfile.TemporaryDirectory() as folder:
        path, told = Path(folder) / "grid.yaml", io.StringIO()
        entries = ", ".join(
            f"{name}: {_yaml(value)}"
            for name, value in given.items()
            if name != "root_seed"
        )
        path.write_text(
            f"name: planned\nroot_seed: {given.get('root_seed', 0)}\nbase:"
            f" {{{entries}}}\n"
        )
        with (
            contextlib.redirect_stdout(told),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            code = sweep(
                [
                    "--grid",
                    str(path),
                    "--out",
                    str(path.with_name("out")),
                    "--dry-run",
                    "--json",
                ]
            )
        assert code in (0, 2), code
        facts = json.loads(told.getvalue()) if code == 0 else None
        if facts:
            facts["est_peak_bytes"] = max(
                program["est_peak_bytes"] for program in facts["program_list"]
            )
        return facts


def switches(chance: Any) -> dict[str, Any]:
    """Sizes, and what selects a program."""
    fields: dict[str, Any] = {
        "V": chance.randint(2, 40),
        "d": chance.choice([1, 2, *range(3, 48)]),
        "embedding": chance.choice(EMBEDDINGS),
    }
    fields["exact"] = chance.choice(["guarded", "full"])
    if chance.random() < 0.5:
        fields |= {
            "m": chance.choice([1, 2, 7, 32]),
            "activation": chance.choice(ACTIVATIONS),
        }
    if chance.random() < 0.3:
        fields["embedding_out"] = chance.choice(EMBEDDINGS)
    if chance.random() < 0.35:
        fields["pool"] = chance.choice([1, 2, 5, 16, 64])
    if chance.random() < 0.4:
        fields |= {
            "steps": 0,
            "optimizer": chance.choice(LIMITS["optimizer"]),
            "start": chance.choice(LIMITS["start"]),
        }
        fields["trains"] = chance.choice(LIMITS["trains"][: 4 if "m" in fields else 3])
        if chance.random() < 0.3 and "pool" not in fields:
            fields["batch"] = chance.choice([1, 7, 40])
    else:
        fields["diagnose"] = chance.random() < 0.3
        fields["decoders"] = chance.random() < 0.2 and not fields.keys() & {"m", "pool"}
    return fields


def numbers(chance: Any) -> dict[str, Any]:
    """Values that programs take as arguments."""
    fields = {
        "N": round(10 ** chance.uniform(0, 3.3)),
        "L": chance.choice([1, 2, 3, 5, 9, 12]),
        "n_test": chance.choice([1, 3, 200, 513]),
        "eta": 10 ** chance.uniform(-6, 1.5),
        "kappa": chance.choice([0.0, *(10 ** chance.uniform(-3, 6) for _ in range(5))]),
        "trigger_in_value": chance.random() < 0.7,
        "root_seed": chance.choice([0, 2**32 - 1]),
        "streams": chance.choice(["common", "independent"]),
        "steps": chance.randint(4, 60),
        "lr": 10 ** chance.uniform(-4, 0.5),
    }
    if chance.random() < 0.5:
        fields["gamma2"] = 10 ** chance.uniform(-2, 3)
    return fields


def check(row: dict[str, Any], point: Point, seed: int) -> None:
    """The row is finite, and as the reference says wherever that can be computed in
    moments.
    """
    bad = {
        name: value
        for name, value in row.items()
        if isinstance(value, float) and not math.isfinite(value)
    }
    assert not bad, (row["status"], bad)
    if row["status"] == "nonfinite" or not comparable(point):
        return
    r = realize(point, seed)
    expected = reference(r, point)
    with (
        mock.patch.object(descent, "start", start_in_float32),
        mock.patch.object(jax, "enable_x64", contextlib.nullcontext),
    ):
        others = [reference(rounded(r, i), point) for i in range(DRAWS)]
    for name, value in expected.items():
        if name not in NOT_COMPARED:
            assert agrees(
                row[name], value, [other[name] for other in others], row["status"]
            ), (name, row[name], value, row["status"])


def agrees(found: Any, expected: Any, others: list[Any], status: str) -> bool:
    """Whether a value is that of the reference, as far as rounding lets it be known."""
    known = [
        value
        for value in (expected, *others)
        if value is not None and math.isfinite(value)
    ]
    if len(known) <= DRAWS:  # the reference itself has none, or overflows
        return (
            found is None
            or not known
            or expected is None
            or not math.isfinite(expected)
            or bool(set(others) - {*known})
        )
    spread = max(abs(value - expected) for value in known)
    if found is None:
        return status == "degenerate" and (
            spread > 0.1 * abs(expected) or expected == 0
        )
    return abs(found - expected) <= RTOL * abs(expected) + ATOL + 4 * spread


def comparable(point: Point) -> bool:
    n_steps = max(3, point.steps) if point.fresh_batches or point.trains_on else 3
    tables = max(point.V, point.d, point.m) * max(
        point.d, point.n_test, min(point.V, 4096)
    )
    return (
        point.N * (point.L + point.V) * n_steps < 2e7
        and tables < 4e6
        and point.n_test * point.L < 2e6
        and not point.in_the_limit
    )


def reference(r: Any, point: Point) -> dict[str, Any]:
    with np.errstate(all="ignore"):
        found = measure(
            r, point, descend(r, point)[-1] if point.trains_on else three_step(r, point)
        )
    return found


def start_in_float32(r: Any, point: Point) -> Any:
    """What a further step starts from, in the precision that it then keeps."""
    V1, held = start(r, point)
    return V1, {
        name: None if table is None else np.float32(table)
        for name, table in held.items()
    }


def rounded(r: Any, i: int) -> Any:
    """The draws with embeddings that are changed by about ROUNDING."""
    noise = np.random.default_rng(i)
    names = [
        name
        for name in ("Z_in", "Z_out", "z_trig", "z_eos", "W_in")
        if getattr(r, name) is not None
    ]
    tables = {name: getattr(r, name).astype(float) for name in names}
    return r._replace(
        **{
            name: table * (1 + ROUNDING * noise.standard_normal(table.shape))
            for name, table in tables.items()
        }
    )


def _text(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in fields.items())


def _yaml(value: Any) -> str:
    return f"{value:.17e}" if isinstance(value, float) else json.dumps(value)
