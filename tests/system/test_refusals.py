"""What makes no sense is refused in one short line that names the argument, in Python
and on the command line.
"""

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attack
import jax
import numpy as np
import pandas as pd
import pytest
import yaml
from attack import within
from helpers import ROOT

import jaxrecall
from jaxrecall import Point
from jaxrecall.__main__ import main as command
from jaxrecall.errors import (
    MAX_LINE,
    MAX_REASON,
    GridError,
    PointError,
    Refused,
    in_one_line,
    shortened,
)
from jaxrecall.sweep.grid import read_grid

POINT = Point(V=8, N=16, d=8, L=4, n_test=32)
FURTHER = POINT.replace(steps=5, lr=0.1, gamma2=1)
GRID = yaml.safe_load("""
base: {V: 8, L: 4, n_test: 32}
blocks: [{axes: {d: [4, 8], N: [4, 16, 64]}}]
""")
ODD = {
    "a number": 5,
    "minus one": -1,
    "true": True,
    "a fraction": 1.5,
    "nan": float("nan"),
    "text": "3",
    "nothing": "",
    "long text": "x" * 10_000,
    "null": "\0",
    "bytes": b"x",
    "empty": [],
    "nested": [[]],
    "none in a list": [None],
    "dict": {"a": 1},
    "object": object(),
    "5000 digits": 10**5000,
    "long range": range(10**18),
    "array": np.array(3),
    "table": pd.DataFrame(),
    "function": len,
    "type": int,
    "set": {1},
    "complex": 1j,
    "path": Path("/nowhere/x"),
}


@pytest.fixture(scope="module")
def df() -> pd.DataFrame:
    return jaxrecall.run(GRID, seeds=6, progress=False)


@pytest.fixture(scope="module")
def calls(df) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Functions with arguments that are right."""
    draws = jaxrecall.realize(POINT, 0)
    plot = jaxrecall.plot
    return {
        "simulate": (jaxrecall.simulate, {"point": POINT, "seed": 0}),
        "realize": (jaxrecall.realize, {"point": POINT, "seed": 0}),
        "draws": (jaxrecall.draws, {"point": POINT, "key": jax.random.key(0)}),
        "three_step": (jaxrecall.three_step, {"realization": draws, "point": POINT}),
        "descend": (
            jaxrecall.descend,
            {"realization": jaxrecall.realize(FURTHER, 0), "point": FURTHER},
        ),
        "measure": (
            jaxrecall.measure,
            {
                "realization": draws,
                "point": POINT,
                "learned": jaxrecall.three_step(draws, POINT),
            },
        ),
        "load": (jaxrecall.load, {"path": "nowhere", "grid": None}),
        "thresholds": (jaxrecall.thresholds, {"source": df}),
        "run": (
            jaxrecall.run,
            {
                "grid": POINT,
                "seeds": 1,
                "out": None,
                "workers": 1,
                "simulator": None,
                "progress": False,
            },
        ),
        "fit": (
            jaxrecall.fit.fit,
            {
                "frame": df,
                "thetas": [0.3],
                "where": (),
                "step": "last",
                "along": None,
            },
        ),
        "accuracy": (
            plot.accuracy,
            {"df": df, "ax": None, "x": None, "lines": None, "theta": None},
        ),
        "critical_n": (
            plot.critical_n,
            {
                "df": df,
                "ax": None,
                "x": None,
                "lines": None,
                "theta": 0.3,
                "along": None,
            },
        ),
        "phase": (plot.phase, {"df": df, "x": "d", "y": "N", "ax": None, "theta": 0.3}),
        "collapse": (
            plot.collapse,
            {"df": df, "ax": None, "lines": None, "theta": 0.3},
        ),
        "figure": (
            plot.figure,
            {
                "df": df,
                "y": "accuracy",
                "x": "N",
                "lines": None,
                "panels": (),
                "colour": None,
                "scale": None,
            },
        ),
    }


NAMES = [
    "simulate",
    "realize",
    "draws",
    "three_step",
    "descend",
    "measure",
    "load",
    "thresholds",
    "run",
    "fit",
    "accuracy",
    "critical_n",
    "phase",
    "collapse",
    "figure",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_type_is_a_short_error_of_the_package(name, calls, cwd):
    """Each argument in turn gets each odd value, or a third of them in a fast run;
    those that a function takes are no matter here.
    """
    import matplotlib.pyplot as plt

    function, right = calls[name]
    told = []
    every = 1 if attack.full_counts or len(right) < 3 else 3
    for turn, argument in enumerate(right):
        for value in list(ODD.values())[turn % every :: every]:
            is_right = {
                "progress": True,
                "workers": value is ODD["a number"],
                "out": isinstance(value, (str, Path)),
            }
            if is_right.get(argument):
                continue
            try:
                with within(120):
                    function(**{**right, argument: value})
            except (PointError, Refused) as error:
                told.append(str(error))
            plt.close("all")
    assert len(told) > 10
    assert all(0 < len(line) <= MAX_LINE for line in told)


def refusals() -> Iterator[Any]:
    """The exact words of refusals, in tests/refusals/*.yaml. Nothing else pins them.

    A case has `told`, the lines, of which " ... " stands for anything, and one of

        call      Python; the names are those of `names` below
        grid      the text of grid.yaml, with `set` as in --set
        command   words as in a shell; the current folder is that of `odd_paths`
    """
    for path in sorted((ROOT / "tests/refusals").glob("*.yaml")):
        for number, case in enumerate(yaml.safe_load(path.read_text())):
            yield pytest.param(case, id=f"{path.stem}-{number}")


@pytest.fixture
def names(df, odd_paths) -> dict[str, Any]:
    modules = {"jaxrecall": jaxrecall, "jax": jax, "jnp": jax.numpy}
    public = {name: getattr(jaxrecall, name) for name in jaxrecall.__all__}
    tables = {"np": np, "pd": pd, "df": df, "GRID": GRID}
    return modules | public | tables | {"POINT": POINT, "FURTHER": FURTHER}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [*refusals()])
def test_a_refusal_has_these_words(case, names, capsys):
    with within(60):
        if "command" in case:
            with suppress(SystemExit):  # argparse
                command(shlex.split(case["command"]))
            lines = capsys.readouterr().err.splitlines()
        elif "grid" in case:
            Path("grid.yaml").write_text(case["grid"])
            with pytest.raises(GridError) as caught:
                read_grid("grid.yaml", case.get("set", ()))
            lines = caught.value.lines
        else:
            with pytest.raises((PointError, Refused)) as caught:
                eval(case["call"], names)
            lines = str(caught.value).splitlines()
    told = [case["told"]] if isinstance(case["told"], str) else case["told"]
    patterns = [re.escape(line).replace(r"\ \.\.\.", " .*") for line in told]
    assert len(lines) == len(told), lines
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(pattern, line), line


LONG, LETTERS, DIGITS = "x" * 300, "y" * 10_000, "9" * 5_000


@pytest.fixture
def odd_paths(cwd, df) -> None:
    """A folder with a table, a grid, links that lead to themselves, and a pipe; it is
    the current one.
    """
    df.to_parquet("t.parquet")
    (cwd / "tiny.yaml").write_text("base: {V: 8, L: 4, d: 8, N: 16, n_test: 32}\n")
    os.symlink("loop", "pool")
    os.symlink("pool", "loop")
    os.mkfifo("pipe")


SWEEP = ("sweep", "--grid", "tiny.yaml")
COMMANDS = [
    [name, path]
    for name in ("status", "fit", "report", "compact")
    for path in (LONG, LETTERS, "loop", "pipe", "/", "file:///a%00b")
]
COMMANDS += [
    [*call, "--out", out]
    for call in (("fit", "t.parquet"), SWEEP)
    for out in (f"{LONG}/a", LETTERS, "loop", "file:///a%00b", "/proc")
]
COMMANDS += [
    ["report", "t.parquet", "--format", "svg", "--out", out]
    for out in ("file:///a%00b", "/proc/a.html")
]
COMMANDS += [["sweep", "--grid", path] for path in (LONG, LETTERS, "loop", "/", "a\0b")]
COMMANDS += [[*SWEEP, "--dry-run", "--out", "file:///a%00b"]]
COMMANDS += [
    ["fit", "t.parquet", option, value]
    for option in ("--step", "--theta")
    for value in (DIGITS, LETTERS)
]
COMMANDS += [
    ["fit", "t.parquet", option, LETTERS] for option in ("--where", "--along", "--of")
]
OPTIONS = (
    "--workers",
    "--shard",
    "--set",
    "--engine",
    "--worker-resource",
    "--ray-address",
)
COMMANDS += [[*SWEEP, f"{option}=--"] for option in OPTIONS]
COMMANDS += [
    [*SWEEP, option, value] for option in OPTIONS for value in (DIGITS, LETTERS)
]
COMMANDS += [
    [*SWEEP, "--workers", "0" * 5000 + "5"],
    [*SWEEP, f"--{LETTERS}"],
]
COMMANDS += [[LETTERS], ["examples", LETTERS]]


@pytest.mark.parametrize(
    "argv",
    COMMANDS,
    ids=lambda argv: " ".join(word[:20] for word in argv).replace("\0", "0"),
)
def test_a_command_refuses_in_one_short_line(argv, odd_paths, capsys):
    with within(60):
        try:
            code = command(argv)
        except SystemExit as stop:  # argparse
            code = stop.code
    out, err = capsys.readouterr()
    assert code == 2, err
    assert not out or argv[0] == "fit"  # a fit prints what it found before it saves it
    lines = err.splitlines()  # one for each mistake
    assert 1 <= len(lines) <= 2, err
    assert all(0 < len(line) < MAX_LINE for line in lines)
    assert DIGITS not in err
    assert LETTERS not in err


def test_a_folder_that_cannot_be_made_says_that_nothing_ran(odd_paths, capsys):
    assert command([*SWEEP, "--out", "/proc"]) == 2
    assert capsys.readouterr().err.endswith("; nothing ran\n")


def test_a_long_message_is_cut_between_words_and_keeps_its_end():
    words = [f"word{i}" for i in range(1000)]
    for text, most in (
        (in_one_line(OSError("\n".join(words))), MAX_REASON),
        (shortened(" ".join(words)), MAX_LINE),
    ):
        start, end = text.split(" ... ")
        assert 0.9 * most < len(text) <= most
        assert [*start.split(" "), *end.split(" ")] == [
            *words[: start.count(" ") + 1],
            *words[-end.count(" ") - 1 :],
        ]
    assert in_one_line(OSError("as it is")) == "as it is"
    assert in_one_line(OSError()) == "OSError"
    assert 0 < len(shortened("\n".join(["a" * 200] * 50))) <= MAX_LINE
