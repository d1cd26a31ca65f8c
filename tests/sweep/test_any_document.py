"""Arbitrary grid files and dicts: a grid or a clear message, whatever they hold."""

import json
import re
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import yaml
from attack import Calls, examples, mutated, odd, reported, texts, trees
from hypothesis import given
from hypothesis import strategies as st

from jaxrecall.errors import MAX_LINE, MAX_LINES, GridError
from jaxrecall.sweep.__main__ import main
from jaxrecall.sweep.grid import Grid, as_grid, read_grid

BASE = {"V": 64, "N": 100, "d": 32, "L": 8}
ALPHA = {"linspace": {"from": 0.2, "to": 3, "num": 5}}
VALID = [
    {"name": "a", "base": BASE},
    {
        "schema": 1,
        "name": "b",
        "root_seed": 3,
        "base": {**BASE, "m": 4, "activation": "relu"},
        "seeds": [0, 5, 7],
    },
    {
        "name": "c",
        "base": {"V": 64, "L": 8},
        "seeds": 4,
        "blocks": [{"axes": {"d": [8, 16], "N": [64, 128]}, "where": ["N >= d"]}],
    },
    {
        "name": "d",
        "base": {"V": 64},
        "seeds": {"start": 2, "count": 3},
        "blocks": [
            {
                "axes": {"zip": {"L": [4, 8], "m": [0, 2]}, "alpha": ALPHA},
                "derive": {"d": "V // 4", "N": "round(alpha * d * L)"},
            },
            {
                "axes": {
                    "d": {"range": {"from": 4, "to": 8, "step": 2}},
                    "L": 4,
                    "N": {"geom": {"from": 9, "to": 99, "num": 3, "round": "int"}},
                }
            },
        ],
        "limits": {"max_runs": 1000, "max_bytes": 2**30},
        "run": {"precision": "highest", "part_seconds": 2},
    },
    {
        "name": "e",
        "base": {"V": 64, "L": 8, "pool": 8, "kappa": 30.0, "embedding": "sphere"},
        "seeds": 20,
        "search": {
            "axis": "N",
            "theta": [0.3, 0.5],
            "from": 64,
            "to": 4096,
            "width": 0.4,
            "max_runs": 100,
        },
        "blocks": [
            {
                "axes": {"d": [16, 32], "exact": ["full", "guarded"]},
                "where": ["d > 8 and not m"],
            }
        ],
    },
]
near = mutated(VALID, odd())
documents = st.one_of(near, near, near, near, trees)

others = st.sampled_from(
    [
        b"a",
        1j,
        Decimal(3),
        date(2026, 1, 1),
        Path("x"),
        {1},
        (1, 2),
        range(3),
        range(10**30),
        np.arange(3),
        np.float32(3),
    ]
)
others |= st.sampled_from(
    [
        np.datetime64("2026-01-01"),
        np.array([1j]),
        np.array([None, "a"]),
        np.ones((2, 2)),
        frozenset(),
        object(),
        len,
        int,
    ]
)
keys = (
    others.filter(lambda key: key.__hash__ is not None)
    | st.integers()
    | st.none()
    | texts
)
_objects = odd() | others | st.dictionaries(keys, odd() | others, max_size=3)


@st.composite
def objects(draw):
    return draw(_objects)


MARKS = [
    "&a ",
    "*a",
    "<<: *a",
    "- ",
    ": ",
    "? ",
    "!!int ",
    "!!python/object:os.system ",
    "!a ",
    "---\n",
    "...\n",
    "%YAML 9.9\n",
    "\t",
    "#",
]
MARKS += [
    "'",
    '"',
    "|\n",
    ">\n",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\r",
    "\x00",
    "\x85",
    "\u2028",
    "\ufeff",
    "\x1b",
    "0x",
    "1_0",
    ".inf",
    "é",
    "𝟙",
    "\u202e",
]
SETS = [
    "base.V=",
    "seeds=",
    "blocks.0.axes.d=",
    "blocks.9=",
    "limits.max_runs=",
    "=",
    "base",
    "a.b.c=",
    "..=",
    "search={axis: N}",
    "name=",
]

CALLS = Calls("documents")
_report = reported(CALLS)


@st.composite
def files(draw) -> bytes:
    """A document as YAML, in places other text; or any bytes."""
    if draw(st.integers(0, 30)) == 30:
        return draw(st.binary(max_size=60))
    options = {
        "default_flow_style": draw(st.sampled_from([None, True, False])),
        "allow_unicode": draw(st.booleans()),
    }
    document = draw(documents)
    try:
        text = yaml.safe_dump(document, **options)
    except (yaml.YAMLError, ValueError):  # numbers of more digits than Python writes
        text = "base: {V: 1" + "0" * draw(st.sampled_from([400, 5000])) + "}\n"
    data = text.encode("utf-8", "surrogatepass")
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 3]))):
        at = draw(st.integers(0, len(data)))
        mark = draw(st.sampled_from(MARKS) | st.text(max_size=3))
        data = (
            data[:at]
            + mark.encode("utf-8", "surrogatepass")
            + data[at + draw(st.integers(0, 3)) :]
        )
    spoiled = [
        data[: len(data) // 2],
        data.decode("utf-8", "replace").encode("utf-16"),
        data + b"\xff",
    ]
    return draw(st.sampled_from(spoiled)) if draw(st.integers(0, 20)) == 20 else data


def check_message(error: GridError) -> None:
    assert error.lines
    assert len(error.lines) <= MAX_LINES + 1
    assert all(0 < len(line) <= MAX_LINE for line in error.lines), error.lines


def check_grid(grid: Grid) -> None:
    """It can be kept in a manifest, and read again it is the same grid."""
    again = as_grid(json.loads(json.dumps(grid.resolved)))
    assert (again.points, again.seeds, again.axes, again.search) == (
        grid.points,
        grid.seeds,
        grid.axes,
        grid.search,
    )


def made(read, *given) -> Grid | None:
    try:
        return read(*given)
    except GridError as error:
        check_message(error)


overrides = (
    st.just([])
    | st.just([])
    | st.lists(st.builds(str.__add__, st.sampled_from(SETS), texts), max_size=2)
)
documents = st.dictionaries(
    st.sampled_from(["base", "seeds", "blocks", "name"]) | keys, objects()
) | mutated(VALID, objects())


def check_file(path: Path, data: bytes, sets: list[str]) -> int:
    """Reads and plans a file. Returns the exit code of a dry run."""
    path.write_bytes(data)
    if grid := CALLS("read", made, read_grid, path, sets):
        check_grid(grid)
    words = ["--grid", str(path), "--out", str(path.with_name("none")), "--dry-run"]
    for text in sets:
        words += ["--set", text]
    code = CALLS("dry run", main, words)
    assert code in ((0, 2) if grid else (2,))
    return code


def check_dict(document, seeds) -> bool:
    """Returns whether the dict is a grid."""
    grid = CALLS("dict", made, as_grid, document, seeds)
    if grid:
        check_grid(grid)
    return bool(grid)


@examples(80, 2500)
@given(files(), overrides)
def test_any_file(tmp_path_factory, data, sets):
    check_file(tmp_path_factory.getbasetemp() / "grid.yaml", data, sets)


@examples(80, 2500)
@given(documents, st.none() | objects())
def test_any_dict(document, seeds):
    check_dict(document, seeds)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"base": {**BASE, 3: 1}}, "grid: got 3 as a key; allowed: names"),
        (
            {"base": BASE, "blocks": [{"axes": {(1, 2): 3, "alpha": 1}}]},
            "grid: got (1, 2) as a key; allowed: names",
        ),
        (
            {"base": BASE, "blocks": [{"axes": {"d": range(0, 10**30, 2)}}]},
            (
                "grid: got range(0, 1000000000000000000000000000000, 2), more than"
                " 1000000 values; allowed: lists of up to 1000000"
            ),
        ),
    ],
)
def test_dicts_that_were_found(document, said):
    with pytest.raises(GridError, match=re.escape(said)):
        as_grid({"name": "a", **document})
