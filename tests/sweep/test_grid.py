"""Grids: what a file means, and that every error is reported with its line, all at
once.
"""

import ast
import dataclasses
import importlib
import itertools
import json
import math
import os
import re
import threading
import time
import types

import attack
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrecall.errors import GridError, PointError, Problem
from jaxrecall.model.laws import LAWS, EmbeddingLaw, register
from jaxrecall.model.laws.law import _parsed as find_law
from jaxrecall.model.point import Point
from jaxrecall.sweep.grid import as_grid, json_schema, read_grid
from jaxrecall.sweep.grid.axes import Names
from jaxrecall.sweep.grid.document import read_document
from jaxrecall.sweep.grid.expr import FUNCTIONS, parse
from jaxrecall.sweep.grid.file import Settings
from jaxrecall.sweep.simulators import Facts

BASE = "base: {V: 64, N: 100, d: 32, L: 8}\n"
EXAMPLE = """\
schema: 1
name: critical-n-vs-d
root_seed: 0
base: {V: 512, L: 16, m: 0}
seeds: {count: 64}
blocks:
  - axes: {d: [32, 64, 128], N: {logspace: {from: 256, to: 65536, num: 17, round: int}}}
    where: ["N >= d"]
  - axes: {zip: {L: [8, 16], V: [256, 512]}, alpha: {linspace: {from: 0.2, to: 3, num: 15}}}
    derive: {d: 64, N: "round(alpha * d * L)"}
limits: {max_runs: 100000, max_bytes: 8GiB}
run: {precision: highest}
"""  # noqa: E501


@pytest.fixture
def grid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def read(text, *sets, name="grid.yaml", simulator=None):
        (tmp_path / name).write_bytes(
            text if isinstance(text, bytes) else text.encode()
        )
        return read_grid(name, sets, simulator=simulator)

    return read


@pytest.fixture
def refused(grid):
    def lines(text, *sets, **kwargs):
        with pytest.raises(GridError) as error:
            grid(text, *sets, **kwargs)
        assert all(line and "\n" not in line for line in error.value.lines)
        return error.value.lines

    return lines


def one_line(lines, *parts):
    """Just one line, which holds the parts in this order."""
    assert len(lines) == 1, lines
    at = 0
    for part in parts:
        assert part in lines[0][at:], (part, lines[0])
        at = lines[0].index(part, at) + len(part)


def fields(result, *names):
    return [tuple(getattr(point, name) for name in names) for point in result.points]


# what a file means


def test_example(grid):
    result = grid(EXAMPLE)
    assert (result.name, result.root_seed, result.settings.precision) == (
        "critical-n-vs-d",
        0,
        "highest",
    )
    assert result.seeds == range(64)
    assert result.axes == ("d", "N", "L", "V")
    assert len(result.points) + result.n_duplicates == 3 * 17 + 2 * 15
    assert result.n_runs == 64 * len(result.points)
    assert (result.limits.max_runs, result.limits.max_bytes) == (100000, 8 * 2**30)
    assert fields(result, "d", "N")[:2] == [(32, 256), (32, 362)]
    assert fields(result, "d", "N")[16:18] == [(32, 65536), (64, 256)]
    assert (8, 256, 64, 102) in fields(result, "L", "V", "d", "N")


def test_resolved_reads_as_the_same_grid(grid):
    first = grid(EXAMPLE)
    again = grid(json.dumps(first.resolved), name="other.json")
    assert again == first
    assert grid("base: {V: 64, N: 1, d: 2, L: 3}\nseeds: [4, 2]").resolved["seeds"] == [
        4,
        2,
    ]


def test_defaults(grid):
    result = grid(BASE, name="plain.v2.yaml")
    assert (result.name, result.seeds, result.settings.precision, result.axes) == (
        "plain.v2",
        range(1),
        "highest",
        (),
    )
    assert (result.limits.max_runs, result.limits.max_bytes) == (1_000_000, None)
    assert result.points == (Point(V=64, N=100, d=32, L=8),)
    assert "blocks" not in result.resolved
    assert result.settings == Settings()


def test_settings(grid):
    result = grid(BASE + "run: {precision: default, part_seconds: 0}")
    assert result.settings == Settings(precision="default", part_seconds=0.0)
    assert (result.settings.precision, result.settings.part_seconds) == ("default", 0)


def test_root_seed_reaches_the_points(grid):
    assert grid(BASE + "root_seed: 7").points[0].root_seed == 7


def test_seeds(grid):
    assert grid(BASE + "seeds: [0, 7, 5]").seeds == (0, 7, 5)
    assert grid(BASE + "seeds: {start: 5, count: 3}").seeds == range(5, 8)


@pytest.mark.parametrize("count", ["6", "6.0"])
def test_a_plain_number_counts_the_seeds(grid, count):
    assert grid(BASE + f"seeds: {count}").seeds == range(6)
    assert grid(BASE + f"seeds: {count}").resolved["seeds"] == {"start": 0, "count": 6}


def test_last_axis_is_fastest_and_zip_moves_together(grid):
    result = grid(
        BASE
        + "blocks: [{axes: {zip: [{L: [1, 2], V: [8, 9]}, {eta: [1, 2], n_test: [3,"
        " 4]}], d: [5, 6]}}]"
    )
    assert fields(result, "L", "V", "eta", "d")[:5] == [
        (1, 8, 1, 5),
        (1, 8, 1, 6),
        (1, 8, 2, 5),
        (1, 8, 2, 6),
        (2, 9, 1, 5),
    ]
    assert result.axes == ("L", "V", "eta", "n_test", "d")


def test_scalar_axis_overrides_base_and_derive_overrides_both_in_order(grid):
    text = (
        BASE
        + "blocks: [{axes: {N: 5, d: [3, 4]}, derive: {x: 'N * d', N: 'x + 1', L: 'N +"
        " n_test'}}]"
    )
    assert fields(grid(text), "N", "d", "L") == [(16, 3, 2064), (21, 4, 2069)]


def test_derive_may_give_text_number_and_bool(grid):
    text = (
        BASE + "blocks: [{derive: {embedding: \"'sphere'\", d: 70, fresh_batches: 'd >"
        " 60'}}]"
    )
    assert fields(grid(text), "embedding", "d", "fresh_batches") == [
        ("sphere", 70, True)
    ]


KEEPS = (
    BASE.replace(", d: 32", "")
    + """\
keep: [alpha, kind]
blocks:
  - axes: {alpha: [1, 2.5], zip: {kind: [wide, narrow], d: [64, 8]}}
    derive: {N: "round(alpha * d)"}
  - axes: {d: [64, 3]}
"""
)


def test_helpers_that_are_kept(grid):
    kept = grid(KEEPS)
    plain = grid(
        KEEPS.replace("keep: [alpha, kind]\n", "").replace(
            "derive: {N", 'where: ["kind != alpha"]\n    derive: {N'
        )
    )
    assert [point.point_id for point in kept.points] == [
        point.point_id for point in plain.points
    ]
    assert plain.kept == plain.kept_columns == {}
    assert kept.kept_columns == {
        "alpha": ("float64", "helper of the grid"),
        "kind": ("string", "helper of the grid"),
    }
    found = [kept.kept[point.point_id] for point in kept.points]
    assert found[0] == {"alpha": 1, "kind": "wide"}
    assert found[3] == {"alpha": 2.5, "kind": "narrow"}
    assert found[-1] == {"alpha": None, "kind": None}
    assert as_grid(kept.resolved).kept == kept.kept
    twice = grid(
        BASE
        + "keep: [a]\nblocks:\n  - {axes: {a: 1}, where: ['a > 0']}\n  - {axes: {a: 2},"
        " where: ['a > 0']}\n"
    )
    assert [*twice.kept.values()] == [{"a": 1}]
    assert twice.kept_columns["a"][0] == "int64"


def test_whole_derived_numbers_may_be_floats(grid):
    assert fields(grid(BASE + "blocks: [{derive: {N: 'd * 1.5'}}]"), "N") == [(48,)]


def test_duplicates_are_dropped_and_counted(grid):
    result = grid(
        BASE
        + "blocks: [{axes: {d: [4, 5, 4]}}, {axes: {d: [5, 6], a: [1, 2]}, where: ['a >"
        " 0']}]"
    )
    assert fields(result, "d") == [(4,), (5,), (6,)]
    assert result.n_duplicates == 4


def test_where_excludes_and_sees_resolved_fields_and_helpers(grid):
    text = (
        BASE
        + "blocks: [{axes: {kappa: [1, 100], d: [16, 32]}, derive: {edge: 'sqrt(V) *"
        " 3'}, where: ['gamma > 1e7', 'd > edge']}]"
    )
    result = grid(text)
    assert fields(result, "kappa", "d") == [(100, 32)]
    assert result.n_excluded == 3


def test_where_sees_the_activation_that_the_point_resolves_to(grid):
    result = grid(
        BASE + "blocks: [{axes: {m: [0, 16]}, where: [\"activation == 'none'\"]}]"
    )
    assert fields(result, "m") == [(0,)]


def test_invalid_points_that_where_excludes_do_not_refuse(grid):
    text = (
        BASE
        + "blocks: [{axes: {d: [32, 80], embedding: [orthogonal, gaussian]}, where:"
        " [\"d >= V + 2 or embedding != 'orthogonal'\"]}]"
    )
    assert fields(grid(text), "d", "embedding") == [
        (32, "gaussian"),
        (80, "orthogonal"),
        (80, "gaussian"),
    ]
    assert (
        len(
            grid(
                BASE
                + "blocks: [{axes: {a: [0, 1, 2]}, derive: {N: '4 / a'}, where: ['a >"
                " 0']}]"
            ).points
        )
        == 2
    )
    remedy = "\"m == 0 or activation != 'none'\""
    assert fields(
        grid(
            BASE + "blocks: [{axes: {m: [0, 4], activation: [none]}, where:"
            f" [{remedy}]}}]"
        ),
        "m",
    ) == [(0,)]


def test_an_empty_block_beside_others_is_fine(grid):
    result = grid(
        BASE + "blocks: [{axes: {d: [4]}, where: ['d > 5']}, {axes: {d: [6]}}]"
    )
    assert fields(result, "d") == [(6,)]
    assert result.n_excluded == 1


def test_a_helper_is_whole_between_whole_ends():
    names = Names()
    assert [
        names.is_real("per", *ends) for ends in ((1, 64), (0.5, 64), (1, 64.5))
    ] == [False, True, True]


def test_null_means_not_given(grid):
    result = grid(
        BASE + "blocks: [{axes: {gamma2: [null, 5], embedding: [null, sphere]}}]",
        "base.embedding=orthogonal",
    )
    assert [(p.gamma2 == p.gamma, p.embedding) for p in result.points] == [
        (True, "gaussian"),
        (True, "sphere"),
        (False, "gaussian"),
        (False, "sphere"),
    ]


def test_a_rate_in_an_axis_or_derive_drops_the_other_of_the_base(grid):
    assert fields(
        grid(BASE + "blocks: [{axes: {gamma: [null, 5]}}]", "base.kappa=50"), "gamma"
    )[1] == (5,)
    assert fields(
        grid(BASE + "blocks: [{axes: {gamma: [null, 5]}}]", "base.kappa=50"), "kappa"
    )[0] == (50,)
    assert fields(
        grid(BASE + "blocks: [{derive: {kappa: 'gamma / 2'}}]", "base.gamma=6"), "kappa"
    ) == [(3,)]


@pytest.mark.parametrize(
    ("spacing", "expected"),
    [
        (
            "{linspace: {from: 0.2, to: 3, num: 15}}",
            [round(0.2 * i, 1) for i in range(1, 16)],
        ),
        ("{linspace: {from: 3, to: 1, num: 3}}", [3, 2, 1]),
        ("{linspace: {from: 1, to: 3, num: 9, round: int}}", [1, 2, 3]),
        ("{logspace: {from: 1, to: 1000, num: 4}}", [1, 10, 100, 1000]),
        ("{geom: {from: 1e-3, to: 0.1, num: 3}}", [0.001, 0.01, 0.1]),
        ("{geom: {from: 1, to: 4, num: 7, round: int}}", [1, 2, 3, 4]),
        ("{range: {from: 0.1, to: 0.5, step: 0.1}}", [0.1, 0.2, 0.3, 0.4, 0.5]),
        ("{range: {from: 10, to: 1, step: -4}}", [10, 6, 2]),
        ("1e5", [1e5]),
        ("[1E-3, 1_000, .5, 0x10]", [1e-3, 1000, 0.5, 16]),
    ],
)
def test_axis_values(grid, spacing, expected):
    assert fields(grid(BASE + f"blocks: [{{axes: {{eta: {spacing}}}}}]"), "eta") == [
        (value,) for value in expected
    ]


def test_logspace_ends_are_exact_and_repeats_dropped(grid):
    rounded = grid(
        BASE + "blocks: [{axes: {N: {logspace: {from: 1, to: 4, num: 9, round: int}}}}]"
    )
    assert (fields(rounded, "N"), rounded.n_duplicates) == ([(1,), (2,), (3,), (4,)], 0)
    values = fields(
        grid(
            BASE + "blocks: [{axes: {eta: {logspace: {from: 0.3, to: 0.7, num: 50}}}}]"
        ),
        "eta",
    )
    assert len(values) == 50
    assert (values[0], values[-1]) == ((0.3,), (0.7,))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8GiB", 8 * 2**30),
        ("500 MB", 5 * 10**8),
        ("1.5kB", 1500),
        ("1e9", 10**9),
        ("7", 7),
    ],
)
def test_max_bytes(grid, text, value):
    assert grid(BASE + f"limits: {{max_bytes: {text}}}").limits.max_bytes == value


def test_anchors(grid):
    result = grid(
        BASE
        + "blocks:\n  - axes: &x {d: [4, 5]}\n  - axes: *x\n    derive: {N: &n 9}\n  -"
        " derive: {N: *n}\n"
    )
    assert fields(result, "N", "d") == [(100, 4), (100, 5), (9, 4), (9, 5), (9, 32)]


def test_keys_for_anchors_are_ignored(grid, refused):
    keys = "x-sizes: &n [4, 5]\nx-: {V: -3, any: [thing, {where: ['1 +']}]}\n"
    result = grid(keys + BASE + "blocks:\n  - axes: {d: *n}\n")
    assert fields(result, "N", "d") == [(100, 4), (100, 5)]
    assert result.resolved == grid(BASE + "blocks:\n  - axes: {d: [4, 5]}\n").resolved
    assert (
        as_grid({"x-note": None, "base": {"V": 64, "N": 100, "d": 32, "L": 8}}).n_runs
        == 1
    )
    assert (
        "base.x-d: is no known key"
        in refused("base: {V: 64, N: 100, d: 32, L: 8, x-d: 3}")[0]
    )
    assert "xd: is no known key" in refused(BASE + "xd: 3")[0]
    assert re.fullmatch(
        next(iter(json_schema()["patternProperties"])) + ".*", "x-sizes"
    )


def test_anchors_of_ignored_keys_are_not_set_and_the_place_of_their_use_is_told(
    grid, refused
):
    text = "x-n: &n [4, 5]\nx-all: {deep: [&m 9]}\nx-v: 1\n" + BASE
    text += "blocks:\n  - axes: {d: *n, m: *m}\n"
    allowed = "anchors are read before --set; allowed: keys with an alias of an anchor"
    for override, place in (
        ("x-n=[8]", f"{allowed} in x-n: blocks.0.axes.d"),
        ("x-n.0=8", f"{allowed} in x-n: blocks.0.axes.d"),
        ("x-all.deep.0=8", f"{allowed} in x-all: blocks.0.axes.m"),
        ("x-v=2", f"{allowed} in x-v: there is none"),
        ("x-new=2", f"{allowed} in x-new: there is none"),
    ):
        assert refused(text, override) == [f"--set {override}: {place}"]
    assert fields(grid(text, "blocks.0.axes.d=[8]"), "N", "d") == [(100, 8)]


@pytest.mark.parametrize(
    ("text", "sets", "place"),
    [
        ("x-b: &b {V: 16, L: 4}\nbase: {<<: *b, d: 16, N: 64}", (), "grid.yaml:2"),
        ("x-b: &b {V: 16}\nbase:\n  d: 16\n  <<: [*b, *b]", (), "grid.yaml:4"),
        (BASE, ("base={<<: {V: 3}}",), "--set base={<<: {V: 3}}"),
    ],
)
def test_a_merge_key_gets_one_true_line(refused, text, sets, place):
    assert refused(text, *sets) == [
        f"{place}: got a merge key (<<); allowed: each key with its value, which may"
        " be an alias, as in V: *v"
    ]


def test_arrays_of_float32_are_the_decimals_that_were_written():
    """Every array of JAX is one."""
    base = {"V": 16, "L": 4, "d": 16, "N": 64, "embedding": "equicorrelated"}
    wanted = as_grid(
        {"base": base, "blocks": [{"axes": {"embedding.rho": [0.1, 0.2]}}]}
    )
    for values in (
        jnp.array([0.1, 0.2]),
        jnp.array([0.1, 0.2], jnp.bfloat16),
        [np.float32(0.1), jnp.float32(0.2)],
        pd.Series([0.1, 0.2], dtype="float32"),
    ):
        found = as_grid({"base": base, "blocks": [{"axes": {"embedding.rho": values}}]})
        assert found == wanted


def test_sets(grid):
    sets = [
        "base.V=128",
        "seeds.count=2",
        "seeds.count=3",
        "blocks.0.axes.d=[8,16]",
        "name=x",
        "run.precision=high",
        "base.eta=1e-4",
    ]
    result = grid(EXAMPLE.replace("run: {precision: highest}\n", ""), *sets)
    assert (result.name, result.settings.precision, len(result.seeds)) == (
        "x",
        "high",
        3,
    )
    assert {(p.d, p.V, p.eta) for p in result.points[:34]} == {
        (8, 128, 1e-4),
        (16, 128, 1e-4),
    }
    assert fields(grid(BASE, "blocks.0.axes.d=[8,16]"), "d") == [(8,), (16,)]
    assert fields(
        grid(BASE, "base.gamma=5", "base.gamma=null", "base.kappa=3"), "kappa"
    ) == [(3,)]


@pytest.mark.slow
def test_many_points_are_expanded(grid):
    result = grid(
        BASE
        + "blocks: [{axes: {N: {range: {from: 1, to: 100, step: 1}}, d: {range: {from:"
        " 1, to: 100, step: 1}}}, where: ['N >= d']}]"
    )
    assert len(result.points) == 5050


# laws that a user registers


@dataclasses.dataclass(frozen=True)
class Toy(EmbeddingLaw):
    def rows(self, draws, xp):
        return draws.normals


@pytest.fixture
def toy_law(monkeypatch):
    monkeypatch.setitem(LAWS, "embedding", dict(LAWS["embedding"]))
    register(Toy, "toy")
    yield
    find_law.cache_clear()


TOY = (
    BASE + 'blocks: [{axes: {embedding: [gaussian, toy]}, where: ["embedding =='
    " 'test_grid:Toy'\"]}]"
)


def test_a_law_that_is_registered_later_is_a_value_of_grids(toy_law, grid, refused):
    path = "test_grid:Toy"
    assert fields(grid(TOY), "embedding") == [(path,)]
    assert fields(grid(BASE, "base.embedding=toy"), "embedding") == [(path,)]
    assert fields(
        grid(BASE + "blocks: [{derive: {embedding: \"'toy'\"}}]"), "embedding"
    ) == [(path,)]
    assert fields(
        grid(BASE + f"blocks: [{{where: [\"embedding != '{path}'\"]}}]"), "embedding"
    ) == [("gaussian",)]
    one_line(
        refused(BASE + "blocks: [{derive: {embedding: sphere}}]"),
        "uses sphere, which is a text; put it in quotes: 'sphere'",
    )
    one_line(
        refused(BASE + "blocks: [{where: [\"embedding != 'toy'\"]}]"),
        "holds 'toy', which is no value of any field or helper",
    )


def test_a_law_is_no_value_of_grids_unless_registered(refused):
    assert any(
        "got 'toy'; allowed: gaussian, sphere, orthogonal" in line
        for line in refused(TOY)
    )
    assert "toy" not in json.dumps(json_schema()).lower()


# another simulator


@dataclasses.dataclass
class Throws:
    n: int = dataclasses.field(metadata={"legend": "throws", "low": 1, "high": 4000})
    p: float = dataclasses.field(
        default=0.5, metadata={"legend": "chance", "low": 0.0, "high": 1.0}
    )
    fair: bool = dataclasses.field(
        default=False, metadata={"legend": "both sides differ"}
    )


class Coin:
    """A simulator whose points are throws of a coin."""

    facts = Facts("coin", {f.name: f for f in dataclasses.fields(Throws)}, {})

    @staticmethod
    def point(values):
        values = {"p": 0.5, "fair": False, **values}
        if values["n"] > 4000:
            raise PointError(
                [Problem("n", f"got {values['n']}; allowed: up to 4000", "n <= 4000")]
            )
        if values["fair"] and values["p"] != 0.5:
            raise PointError(
                [
                    Problem(
                        "p",
                        f"got {values['p']}; allowed: 0.5 of a fair coin",
                        "p == 0.5",
                    )
                ]
            )
        return types.SimpleNamespace(
            **values, point_id=json.dumps(values, sort_keys=True)
        )


COIN = (
    "seeds: 3\nbase: {n: 10}\nblocks: [{axes: {p: [0.1, 0.5], k: [1, 2]}, derive: {n:"
    " 'k * 10'}, where: ['p * n > 1']}]"
)


def test_a_simulator_of_ones_own(tmp_path, monkeypatch):
    path = tmp_path / "coin.yaml"
    path.write_text(COIN)
    result = read_grid(path, simulator=Coin)
    assert [(point.n, point.p, point.root_seed) for point in result.points] == [
        (20, 0.1, 0),
        (10, 0.5, 0),
        (20, 0.5, 0),
    ]
    assert (result.axes, result.n_excluded, result.simulator) == (("p", "n"), 1, Coin)
    assert as_grid(json.loads(json.dumps(result.resolved)), simulator=Coin) == result
    assert (
        as_grid({"name": "coin", **yaml.safe_load(COIN)}, simulator=Coin).points
        == result.points
    )
    schema = json_schema(Coin)
    assert schema["$defs"]["n"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 4000,
        "description": "throws",
    }


def test_a_simulator_named_in_the_file(tmp_path, monkeypatch):
    fields = (
        '{"n": (int, None, 1, 4000, "static"), "p": (float, 0.5, 0.0, 1.0, "traced")}'
    )
    made = (
        f'jaxrecall.Simulator(lambda point, key: {{}}, {fields}, {{"share": (float, "of'
        ' heads")}, accuracy="share")'
    )
    (tmp_path / "coins.py").write_text(f"import jaxrecall\ncoin = {made}")
    monkeypatch.syspath_prepend(str(tmp_path))
    coin = importlib.import_module("coins").coin
    path = tmp_path / "coin.yaml"
    path.write_text("simulator: coins:coin\n" + COIN)
    result = read_grid(path)
    assert (result.simulator, result.resolved["simulator"], len(result.points)) == (
        coin,
        "coins:coin",
        3,
    )
    assert as_grid(result.resolved) == result
    path.write_text(COIN + "\nsimulator: coins:con")
    with pytest.raises(
        GridError,
        match=(
            r"coin.yaml:4: simulator: coins:con cannot be imported \(AttributeError:"
            r" .*\); allowed: module:name"
        ),
    ):
        read_grid(path)
    path.write_text(COIN + "\nsimulator: elsewhere:coin")
    with pytest.raises(
        GridError,
        match=(
            r"No module named 'elsewhere'\); run in the folder that holds elsewhere.py,"
            r" or put it on PYTHONPATH; "
        ),
    ):
        read_grid(path)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("base: {n: 0}", ["base.n: got 0; allowed: whole numbers from 1 to 4000"]),
        ("base: {n: 1, p: 2}", ["base.p: got 2; allowed: finite numbers from 0 to 1"]),
        ("base: {n: 1, V: 2}", ["base.V: is no known key; allowed: n, p, fair"]),
        (
            "base: {p: 1}",
            ["n is given nowhere (throws); give it in base, axes or derive"],
        ),
        (
            "base: {n: 1, p: 1, fair: true}",
            [
                "base.p: 1 of 1 point cannot be simulated: p: got 1.0; allowed: 0.5 of"
                " a fair coin"
            ],
        ),
        (
            "base: {n: 1, fair: true}\nblocks: [{axes: {p: [0.5, 0.6]}}]",
            [
                "grid.yaml:2: blocks.0.axes.p: 1 of 2 points",
                "p=0.6",
                'where: ["p == 0.5"] would exclude them',
            ],
        ),
        (
            "base: {n: 1}\nblocks: [{where: ['N > 3']}]",
            ["uses N, which is no field and no helper; did you mean n?"],
        ),
        ("base: {n: 1, embedding.rho: 0.3}", ["base.embedding.rho: is no known key"]),
        (
            "base: {p: 1}\nsearch: {axis: N}\nseeds: 20",
            ["search.axis: got 'N'; did you mean n?; allowed: n, p"],
        ),
        (
            "seeds: 20\nsearch: {axis: n, from: 5000, to: 9000}",
            ["1 of 1 point", "n: no level between", "n: got 8933; allowed: up to 4000"],
        ),
    ],
)
def test_errors_name_the_fields_of_the_simulator(refused, text, parts):
    one_line(refused(text, simulator=Coin), *parts)


# parameters of laws


@dataclasses.dataclass
class Drawn:
    n: int = dataclasses.field(metadata={"legend": "samples", "low": 1, "high": 100})
    law: str = dataclasses.field(
        default="even",
        metadata={"legend": "law", "law": True, "choices": lambda: ("even", "tilted")},
    )


class Lawful:
    """A simulator with a law, "even" or "tilted", of which the second has the parameter
    rho.
    """

    facts = Facts("lawful", {f.name: f for f in dataclasses.fields(Drawn)}, {})

    @staticmethod
    def point(values):
        values = {"law": "even", **values}
        for name in [name for name in values if "." in name]:
            if (values["law"], name) != ("tilted", "law.rho"):
                raise PointError(
                    [
                        Problem(
                            name,
                            f"got {values[name]} with {values['law']}; allowed: law.rho"
                            " of tilted",
                        )
                    ]
                )
            values["law"] = f"tilted(rho={values.pop(name)})"
        return types.SimpleNamespace(**values, point_id=json.dumps(values))


@pytest.fixture
def lawful(grid, monkeypatch):
    def parameters(point):
        return {"law.rho": float(point.law[11:-1])} if "(" in point.law else {}

    for module in ("grid", "grid.axes"):
        monkeypatch.setattr(f"jaxrecall.sweep.{module}.law_parameters", parameters)
    return lambda text, *sets: grid(text, *sets, simulator=Lawful)


TILTED = "base: {n: 5, law: tilted, law.rho: 0.2}\n"


def test_parameters_of_laws_are_names_of_a_grid(lawful):
    assert fields(lawful(TILTED), "law") == [("tilted(rho=0.2)",)]
    axes = lawful(
        TILTED
        + "blocks: [{axes: {law.rho: [0, 0.1, 0.3], n: [3, 4]}, where: ['law.rho * n <"
        " 0.85']}]"
    )
    assert fields(axes, "law", "n")[-2:] == [
        ("tilted(rho=0.1)", 3),
        ("tilted(rho=0.1)", 4),
    ]
    assert (axes.axes, axes.n_excluded) == (("law.rho", "n"), 2)
    assert as_grid(json.loads(json.dumps(axes.resolved)), simulator=Lawful) == axes
    zipped = lawful(
        TILTED
        + "blocks: [{axes: {zip: {law.rho: [0.1, 0.3], n: [10, 30]}}, derive: {n: '2 *"
        " law.rho * 50'}}]"
    )
    assert fields(zipped, "law", "n") == [
        ("tilted(rho=0.1)", 10.0),
        ("tilted(rho=0.3)", 30.0),
    ]
    derived = lawful(
        TILTED
        + "blocks: [{axes: {a: {linspace: {from: 1, to: 2, num: 3}}}, derive: {law.rho:"
        " 'a / 10'}}]"
    )
    assert (derived.axes, fields(derived, "law")[2]) == (
        ("law.rho",),
        ("tilted(rho=0.2)",),
    )


def test_axes_name_what_varies_of_a_law(lawful):
    blocks = "blocks: [{axes: {law: even}}, {axes: {law: tilted, law.rho: %s}}]"
    assert lawful("base: {n: 5}\n" + blocks % "0.1").axes == ("law",)
    assert lawful("base: {n: 5}\n" + blocks % "[0.1, 0.3]").axes == ("law", "law.rho")


def test_parameters_of_laws_in_errors(lawful):
    for text, parts in (
        (
            TILTED + "blocks: [{axes: {law.roh: [1, 2]}}]",
            ["grid.yaml:2: blocks.0.axes.law.roh: 2 of 2 points", "got 1 with tilted"],
        ),
        (
            "base: {n: 5, law.rho: 1}",
            [
                "grid.yaml:1: base.law.rho: 1 of 1 point",
                "got 1 with even; allowed: law.rho of tilted",
            ],
        ),
        (
            "base: {n: 5, lw.rho: 1}",
            ["grid.yaml:1: base.lw.rho: is no known key; allowed: n, law"],
        ),
        (
            TILTED + "blocks: [{axes: {law.rho: [[1]]}}]",
            ["law.rho.0: got [1]; allowed: numbers, text, true, false, null"],
        ),
        (
            "base: {n: 5}\nblocks: [{where: ['law.rho < 1']}]",
            ["blocks.0.where.0: 1 of 1 point", "law.rho has no value"],
        ),
        (
            TILTED + "blocks: [{axes: {x.y: [1, 2]}}]",
            ["axis 'x.y' is no field, and no derive or where line uses it"],
        ),
    ):
        with pytest.raises(GridError) as error:
            lawful(text)
        one_line(error.value.lines, *parts)


def test_a_set_takes_the_parameter_of_a_law_as_one_key(tmp_path):
    path = tmp_path / "grid.yaml"
    path.write_text("base: {embedding: gaussian}")
    sets = [
        "base.embedding.rho=0.3",
        "blocks.0.axes.zip.tokens.s=[1, 2]",
        "blocks.0.axes.zip.tokens.s.1=3",
    ]
    data = {
        "base": {"embedding": "gaussian", "embedding.rho": 0.3},
        "blocks": [{"axes": {"zip": {"tokens.s": [1, 3]}}}],
    }
    document = read_document(path, sets)
    assert (document.data, document.errors) == (data, [])
    assert document.origin(("base", "embedding.rho")) == "--set base.embedding.rho=0.3"


# what is refused


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "schema: 1\nbase: {V: -3, N: 4, d: 2, L: 3}",
            ["grid.yaml:2: base.V: got -3; allowed: whole numbers from 2 to 65536"],
        ),
        (
            "base:\n  V: 8\n  N: 4\n  d: '5'\n  L: 3",
            ["grid.yaml:4: base.d: got '5'; allowed: whole numbers from 1"],
        ),
        (
            "base:\n  V: null\n  N: 4\n  d: 5\n  L: 3",
            ["grid.yaml:2: base.V: got null; allowed: whole numbers"],
        ),
        (
            BASE + "base2: 3",
            [
                "grid.yaml:2: base2: is no known key; did you mean base?; allowed:"
                " schema, name"
            ],
        ),
        (
            "base:\n  V: 8\n  v: 8\n  N: 4\n  d: 2\n  L: 3",
            ["grid.yaml:3: base.v: is no known key; did you mean V?; allowed: V, N"],
        ),
        (
            "base: {V: 8, N: 4, d: 2, L: 3,\n root_seed: 3}",
            ["grid.yaml:2: base.root_seed: is not given here", "top"],
        ),
        (
            "base: {V: 8, N: 4, d: 2, L: 3,\n embedding: spher}",
            [
                "grid.yaml:2: base.embedding: got 'spher'; did you mean sphere?;"
                " allowed: gaussian, sphere"
            ],
        ),
        (
            "base: {V: 8, N: 4, d: 2, L: 3,\n fresh_batches: yes}",
            ["grid.yaml:2: base.fresh_batches: got 'yes'; allowed: true, false"],
        ),
        (
            "base: {V: 8, N: 4, d: 2, L: 3, kappa: 3, gamma: 4}",
            ["grid.yaml:1: base: got both kappa and gamma; give one"],
        ),
        (
            "base: {V: 8, N: 4, d: 2}",
            ["grid.yaml: L is given nowhere (sequence length", "base, axes or derive"],
        ),
        (
            BASE + "base: {V: 8}",
            ["grid.yaml:2: base: is given twice, first at grid.yaml:1"],
        ),
        (BASE + "base", ["grid.yaml:", "is not valid YAML"]),
        (
            BASE + "name: a b",
            ["grid.yaml:2: name: got 'a b'; allowed: text of 1 to 100"],
        ),
        (BASE + "name: ../x", ["grid.yaml:2: name: got '../x'"]),
        (BASE + "name: 12", ["grid.yaml:2: name: got 12;", "quotes"]),
        (BASE + "schema: 2", ["grid.yaml:2: schema: got 2; allowed: 1"]),
        (
            BASE + "root_seed: -1",
            [
                "grid.yaml:2: root_seed: got -1; allowed: whole numbers from 0 to"
                " 4294967295"
            ],
        ),
        (
            BASE + "seeds: 0",
            [
                "grid.yaml:2: seeds: got 0; allowed: a count from 1, {start: 0, count:"
                " 64} or a list such as [0, 5, 7]"
            ],
        ),
        (BASE + "seeds: 2.5", ["grid.yaml:2: seeds: got 2.5; allowed: a count from 1"]),
        (
            BASE + "seeds: true",
            ["grid.yaml:2: seeds: got true; allowed: a count from 1"],
        ),
        (
            BASE + "seeds: []",
            ["grid.yaml:2: seeds: got an empty list; allowed: at least one"],
        ),
        (BASE + "seeds: [1, 2,\n 1]", ["grid.yaml:2: seeds: got 1 more than once"]),
        (
            BASE + "seeds: [1,\n -2]",
            [
                "grid.yaml:3: seeds.1: got -2; allowed: whole numbers from 0 to"
                " 4294967295"
            ],
        ),
        (BASE + "seeds: {start: 3}", ["grid.yaml:2: seeds.count: is missing"]),
        (
            BASE + "seeds: {start: 4294967295, count: 2}",
            ["grid.yaml:2: seeds: got start=4294967295, count=2; allowed: seeds up to"],
        ),
        (
            BASE + "seeds: {cuont: 3, count: 2}",
            [
                "grid.yaml:2: seeds.cuont: is no known key; did you mean count?;"
                " allowed: count, start"
            ],
        ),
        (
            BASE + "seeds: {count: 1e9}",
            [
                "got 1 point times 1000000000 seeds = 1000000000 runs; allowed: 1000000"
                " runs"
            ],
        ),
        (BASE + "blocks: []", ["grid.yaml:2: blocks: got an empty list"]),
        (BASE + "blocks:", ["grid.yaml:2: blocks: got null; allowed: a list"]),
        (BASE + "blocks: [3]", ["grid.yaml:2: blocks.0: got 3; allowed: a mapping"]),
        (
            BASE + "blocks: [{axis: {d: 3}}]",
            [
                "grid.yaml:2: blocks.0.axis: is no known key; did you mean axes?;"
                " allowed: axes, derive, where"
            ],
        ),
        (
            BASE + "blocks: [{axes: {}}]",
            [
                "grid.yaml:2: blocks.0.axes: got {}; allowed: at least one axis, such"
                " as d: [32, 64]"
            ],
        ),
        (
            BASE + "blocks: [{axes: {d: []}}]",
            ["grid.yaml:2: blocks.0.axes.d: got an empty list"],
        ),
        (
            BASE + "blocks:\n - axes:\n     d:\n      - 4\n      - -3",
            ["grid.yaml:6: blocks.0.axes.d.1: got -3; allowed: whole numbers from 1"],
        ),
        (
            BASE + "blocks: [{axes: {V: [null]}}]",
            ["blocks.0.axes.V.0: got null; allowed: whole"],
        ),
        (
            BASE + "blocks: [{axes: {x: [[1]]}, where: ['x > 0']}]",
            ["blocks.0.axes.x.0: got [1]; allowed: numbers, text"],
        ),
        (
            BASE + "blocks: [{axes: {eta: [.inf]}}]",
            ["blocks.0.axes.eta.0: got inf; allowed: finite numbers"],
        ),
        (
            BASE + "blocks: [{axes: {root_seed: [1]}}]",
            ["grid.yaml:2: blocks.0.axes.root_seed: is not given here"],
        ),
        (
            BASE + "blocks: [{derive: {root_seed: 3}}]",
            ["grid.yaml:2: blocks.0.derive.root_seed: is not given here"],
        ),
        (
            BASE + "blocks: [{axes: {d: {linspce: 3}}}]",
            [
                "blocks.0.axes.d.linspce: is no known key; did you mean linspace?;"
                " allowed: linspace, logspace, geom, range"
            ],
        ),
        (
            BASE + "blocks: [{axes: {d: {}}}]",
            ["blocks.0.axes.d: got {}; allowed: exactly one of linspace"],
        ),
        (
            BASE + "blocks: [{axes: {N: {geom: {from: 0, to: 3, num: 3}}}}]",
            ["blocks.0.axes.N.geom: got from=0, to=3; allowed: values above 0"],
        ),
        (
            BASE + "blocks: [{axes: {N: {geom: {from: 1, to: 3, num: 1}}}}]",
            ["blocks.0.axes.N.geom.num: got 1; allowed: whole numbers from 2"],
        ),
        (
            BASE + "blocks: [{axes: {N: {geom: {from: 1, to: 3, num: 3}}}}]",
            ["blocks.0.axes.N: one of its values is wrong: got 1.73", "round: int"],
        ),
        (
            BASE + "blocks: [{axes: {N: {linspace: {from: 1, num: 3}}}}]",
            ["blocks.0.axes.N.linspace.to: is missing"],
        ),
        (
            BASE + "blocks: [{axes: {N: {linspace: {from: a, to: 2, num: 3}}}}]",
            ["blocks.0.axes.N.linspace.from: got 'a'; allowed: finite numbers"],
        ),
        (
            BASE + "blocks: [{axes: {N: {range: {from: 1, to: 5, step: -1}}}}]",
            [
                "blocks.0.axes.N.range: got from=1, to=5, step=-1; allowed: 1 to"
                " 1000000 steps"
            ],
        ),
        (
            BASE + "blocks: [{axes: {N: {range: {from: 1, to: 5, step: 0}}}}]",
            ["blocks.0.axes.N.range: got", "step=0"],
        ),
        (
            BASE + "blocks: [{axes: {N: {range: {from: 1, to: 9e9, step: 1}}}}]",
            ["blocks.0.axes.N.range: got", "1000000 steps"],
        ),
        (
            BASE + "blocks: [{axes: {zip: {L: [1, 2], d: [3]}}}]",
            [
                "grid.yaml:2: blocks.0.axes.zip: got lengths L: 2, d: 1; allowed: equal"
                " lengths"
            ],
        ),
        (
            BASE + "blocks: [{axes: {L: [3], zip: {L: [1, 2]}}}]",
            ["blocks.0.axes.zip.L: is an axis twice, also at grid.yaml:2"],
        ),
        (
            BASE + "blocks: [{axes: {zip: {L: [1, -2]}}}]",
            ["blocks.0.axes.zip.L.1: got -2"],
        ),
        (
            BASE + "blocks: [{axes: {dd: [3]}}]",
            [
                "grid.yaml:2: blocks.0.axes.dd: axis 'dd' is no field, and no derive or"
                " where line uses it; did you mean d?"
            ],
        ),
        (
            BASE + "blocks: [{derive: {x: 3}}]",
            ["grid.yaml:2: blocks.0.derive.x: derive 'x' is no field, and no derive"],
        ),
        (
            BASE + "blocks: [{axes: {gamma: [3]}, derive: {kappa: 3}}]",
            ["grid.yaml:2: blocks.0: got both kappa and gamma"],
        ),
        (
            BASE
            + "blocks: [{derive: {N: 'alhpa * d'}, axes: {alpha: 3}, where: ['alpha >"
            " 0']}]",
            ["blocks.0.derive.N: uses alhpa", "did you mean alpha?"],
        ),
        (
            BASE + "blocks: [{derive: {N: 'x * d', x: 'd'}}]",
            ["blocks.0.derive.N: uses x, which has no value yet"],
        ),
        (
            BASE + "blocks: [{derive: {N: 'gamma'}}]",
            [
                "blocks.0.derive.N: uses gamma, which has no value before the point is"
                " made"
            ],
        ),
        (
            BASE + "blocks: [{derive: {embedding: sphere}}]",
            ["blocks.0.derive.embedding: uses sphere", "'sphere'"],
        ),
        (
            BASE + "blocks: [{derive: {N: [3]}}]",
            ["blocks.0.derive.N: got [3]; allowed: an expression in quotes"],
        ),
        (
            BASE + "blocks: [{derive: {N: 'open(3)'}}]",
            [
                "blocks.0.derive.N: 'open(3)': got a call of open; allowed functions:"
                " round"
            ],
        ),
        (
            BASE + "blocks: [{where: 'N > d'}]",
            ["grid.yaml:2: blocks.0.where: got 'N > d'; allowed: a list"],
        ),
        (
            BASE + "blocks: [{where: ['N > log(d)']}]",
            [
                "blocks.0.where.0: 'N > log(d)': no calls here; define a helper,"
                " derive: {edge:"
            ],
        ),
        (
            BASE + "blocks: [{where: ['N > dd']}]",
            [
                "grid.yaml:2: blocks.0.where.0: uses dd, which is no field and no"
                " helper; did you mean d?"
            ],
        ),
        (
            BASE + "blocks: [{where: [\"embedding != 'spher'\"]}]",
            [
                "blocks.0.where.0: holds 'spher', which is no value of any field or"
                " helper; did you mean sphere?"
            ],
        ),
        (
            BASE + "blocks: [{axes: {d: [3]}, where: ['N - d']}]",
            [
                "blocks.0.where.0: 1 of 1 point cannot be simulated, the first at d=3",
                "gives 97; allowed: true",
            ],
        ),
        (
            BASE + "blocks:\n - axes: {d: [3, 4]}\n   where: ['N > 900']",
            ["grid.yaml:4: blocks.0.where: excludes all of 2 points"],
        ),
        (
            BASE + "limits: {max_bytes: 8G}",
            ["grid.yaml:2: limits.max_bytes: got '8G'; allowed: bytes", "GiB"],
        ),
        (
            BASE + "limits: {max_runs: 0}",
            ["grid.yaml:2: limits.max_runs: got 0; allowed: whole numbers from 1"],
        ),
        (
            BASE
            + "limits: {max_runs: 5}\nseeds: {count: 3}\nblocks: [{axes: {d: [3, 4]}}]",
            [
                "grid.yaml:2: limits.max_runs: got 2 points times 3 seeds = 6 runs;"
                " allowed: 5"
            ],
        ),
        (
            BASE + "run: {precision: hi}",
            ["grid.yaml:2: run.precision: got 'hi'; allowed: highest, high, default"],
        ),
        (BASE + "run: 3", ["grid.yaml:2: run: got 3; allowed: a mapping"]),
        ("", ["grid.yaml: got an empty file; allowed: a mapping"]),
        ("- 3", ["grid.yaml: got a list; allowed: a mapping"]),
        ("a: 1\nb: [1, 2\nc: 3", ["grid.yaml:3: is not valid YAML"]),
        ("a: 1\n---\nb: 1", ["grid.yaml:2: is not valid YAML", "single document"]),
        (
            "a: 1\nb: !!python/object/apply:os.system [ls]",
            ["grid.yaml:2: got the tag", "python/object"],
        ),
        (
            BASE + "keep: [dd]",
            [
                "grid.yaml:2: keep.0: got 'dd'; allowed: helpers that axes or derive"
                " define, and there are none"
            ],
        ),
        (
            BASE + "keep: [d]",
            [
                "grid.yaml:2: keep.0: got 'd', which is a column of every row; allowed:"
                " helpers"
            ],
        ),
        (
            BASE + "keep: alpha",
            ["grid.yaml:2: keep: got 'alpha'; allowed: a list, such as [alpha]"],
        ),
        (BASE + "keep: [1]", ["grid.yaml:2: keep.0: got 1; allowed: names"]),
        (
            BASE + "keep: [snr]",
            [
                "grid.yaml:2: keep.0: got 'snr', which is a column of every row;"
                " allowed: helpers"
            ],
        ),
        (
            BASE + "keep: [edgy]\nblocks: [{axes: {edge: 3}, where: ['edge > 2']}]",
            ["grid.yaml:2: keep.0: got 'edgy'; did you mean edge?; allowed: edge"],
        ),
        (
            "a: 1\nb: &b [*b]",
            [
                "grid.yaml:2: is too large with its anchors unfolded; allowed: up to"
                " 500000 values, nested up to 100 deep"
            ],
        ),
        (
            "b: !!int 3",
            ["grid.yaml:1: got the tag tag:yaml.org,2002:int; allowed: plain numbers"],
        ),
        (
            f"b: {'9' * 5000}",
            ["grid.yaml:1: got '999", "allowed: numbers of up to 4300 digits"],
        ),
        (
            BASE + "blocks:\n - &a {axes: {d: 4}}\n - <<: *a",
            ["grid.yaml:4: got a merge key (<<); allowed: each key with its value"],
        ),
        ("? [1]\n: 2", ["grid.yaml:1: got a list or mapping as a key"]),
        ("b: " + "[" * 1000, ["grid.yaml: is nested too deeply"]),
        (b"\xff\xfe\x00\x01", ["grid.yaml: is not UTF-8 text"]),
        (b"a: \x00\x01", ["grid.yaml: is not valid YAML"]),
    ],
)
def test_one_error(refused, text, parts):
    one_line(refused(text), *parts)


def test_anchors_that_unfold_to_too_many_values(refused, monkeypatch):
    monkeypatch.setattr("jaxrecall.sweep.grid.document.MAX_VALUES", 5000)
    text = "a0: &a0 [1]\n" + "".join(
        f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(9)
    )
    one_line(
        refused(text),
        "grid.yaml:5: is too large with its anchors unfolded; allowed: up to 5000"
        " values",
    )


def test_unreadable_paths(tmp_path):
    for path, why in (
        (tmp_path, "directory"),
        (tmp_path / "none.yaml", "No such file"),
        ("a\0b", "null"),
    ):
        with pytest.raises(GridError) as error:
            read_grid(path)
        one_line(error.value.lines, "cannot be read", why)


def test_a_file_that_is_too_large(refused, monkeypatch):
    monkeypatch.setattr("jaxrecall.sweep.grid.document.MAX_FILE_BYTES", len(BASE) - 1)
    assert refused(BASE) == [
        f"grid.yaml: is too large; allowed: up to {len(BASE) - 1} bytes"
    ]


def test_a_file_name_that_is_no_name(refused):
    one_line(
        refused(BASE, name="my grid.yaml"),
        "my grid.yaml: name: got 'my grid'; allowed: text",
        "without a name the file gives it",
    )


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        (
            "base.V=-3",
            ["--set base.V=-3: base.V: got -3; allowed: whole numbers from 2"],
        ),
        (
            "base={V: 1, N: 1, d: 1, L: 1}",
            ["--set base={V: 1, N: 1, d: 1, L: 1}: base.V: got 1"],
        ),
        (
            "base.VV=3",
            [
                "--set base.VV=3: base.VV: is no known key; did you mean V?; allowed:"
                " V, N"
            ],
        ),
        (
            "bas.V=3",
            [
                "--set bas.V=3: bas: is no known key; did you mean base?; allowed:"
                " schema"
            ],
        ),
        ("base.V", ["--set base.V: is malformed; allowed: KEY=VALUE"]),
        ("base..V=3", ["--set base..V=3: is malformed"]),
        ("base.V.x=3", ["--set base.V.x=3: base.V is 64, not a mapping"]),
        ("base.V=[1,", ["--set base.V=[1,: is not valid YAML"]),
        ("base={V: 8, V: 9, N: 1, d: 1, L: 1}", ["base.V: is given twice"]),
        (
            "seeds.0=3",
            [
                "--set seeds.0=3: got '0' in seeds, a list; allowed: none, the list is"
                " empty"
            ],
        ),
        (
            "blocks.1.axes.d=3",
            ["--set blocks.1.axes.d=3: got '1' in blocks, a list; allowed: 0 to 0"],
        ),
        (
            "blocks.0.axes.dd=3",
            ["--set blocks.0.axes.dd=3: blocks.0.axes.dd: axis 'dd' is no field"],
        ),
    ],
)
def test_wrong_sets(refused, setting, parts):
    text = BASE + ("blocks: [{axes: {d: [4]}}]" if setting.startswith("blocks") else "")
    lines = refused(
        text + ("seeds: []" if setting.startswith("seeds") else ""), setting
    )
    one_line(lines[:1], *parts)
    assert len(lines) == (2 if setting.startswith("seeds") else 1), lines


def test_a_set_that_takes_a_key_away_is_named_for_it(refused):
    text = BASE + "blocks: [{axes: {N: {linspace: {from: 1, to: 2, num: 2}}}}]"
    one_line(
        refused(text, "blocks.0.axes.N.linspace={from: 1, to: 2}"),
        "--set blocks.0.axes.N.linspace={from: 1, to: 2}: blocks.0.axes.N.linspace.num:"
        " is missing",
    )


def test_all_errors_come_at_once(refused):
    text = """\
name: a/b
base: {V: -3, N: 4, L: x, N: 5}
sedes: {count: 3}
blocks:
  - axes: {d: [4, -1, 0], mm: [1]}
    where: ["NN > 3", "log(N) > 3"]
  - axes: {zip: {d: [1, 2], N: [3]}}
"""
    lines = refused(text, "run.precision=low", "nonsense")
    starts = [
        "grid.yaml:2: base.N: is given twice",
        "--set nonsense: is malformed",
        "grid.yaml:1: name: got 'a/b'",
        "grid.yaml:2: base.V: got -3",
        "grid.yaml:2: base.L: got 'x'",
        "grid.yaml:3: sedes: is no known key; did you mean seeds?",
        "grid.yaml:5: blocks.0.axes.d.1: got -1",
        "grid.yaml:5: blocks.0.axes.d.2: got 0",
        "grid.yaml:6: blocks.0.where.1: 'log(N) > 3': no calls",
        "grid.yaml:7: blocks.1.axes.zip: got lengths",
        "--set run.precision=low: run.precision: got 'low'",
        "grid.yaml:6: blocks.0.where.0: uses NN",
    ]
    assert {
        next((start for start in starts if line.startswith(start)), line)
        for line in lines
    } == set(starts)
    assert len(lines) == len(starts)


def test_a_field_that_one_block_lacks(refused):
    one_line(
        refused(
            "base: {V: 8, N: 4, L: 2}\nblocks:\n - axes: {d: [3]}\n - axes: {m: [3]}"
        ),
        "grid.yaml:4: blocks.1: d is given nowhere",
    )


def test_invalid_points_one_line_for_each_kind_and_block(refused):
    text = (
        BASE
        + "blocks:\n - axes: {embedding: [gaussian, orthogonal], d: [32, 40, 80], a:"
        " [0.001, 1, 2]}\n   derive: {N: 'a * 10'}\n - axes: {d: [32, 40, 80]}\n  "
        " derive: {embedding: \"'orthogonal'\"}\n"
    )
    lines = refused(text)
    assert len(lines) == 3
    one_line(
        lines[:1],
        "grid.yaml:4: blocks.0.derive.N: 6 of 21 points",
        "the first at embedding='gaussian', d=32, a=0.001",
        "got 0.01",
        'N: "round(a * 10)"',
    )
    one_line(
        lines[1:2],
        "grid.yaml:3: blocks.0.axes.d: 4 of 21 points",
        "embedding='orthogonal', d=32, a=1",
        "where: [\"d >= V + 2 or embedding != 'orthogonal'\"]",
    )
    one_line(lines[2:], "grid.yaml:5: blocks.1.axes.d: 2 of 21 points")


def test_the_suggested_where_line_excludes_a_wrong_derived_value(refused, grid):
    text = BASE + "blocks: [{axes: {a: [0, 1]}, derive: {N: 'a * 10'}, where: [a < 9]}]"
    one_line(
        refused(text),
        "1 of 2 points",
        "a=0",
        "N: got 0",
        'where: ["N >= 1"] would exclude them',
    )
    assert len(grid(text.replace("a < 9", "N >= 1")).points) == 1


def test_a_fault_of_the_base_is_reported_once(refused):
    lines = refused(
        BASE + "blocks: [{axes: {N: [3, 4]}}, {axes: {N: [5]}}]",
        "base.embedding=orthogonal",
    )
    one_line(
        lines,
        "grid.yaml:1: base.d: 3 of 3 points",
        "the first at N=3: d: got 32 with orthogonal",
    )
    one_line(
        refused(BASE, "base.embedding=orthogonal"),
        "1 of 1 point cannot be simulated: d: got 32",
    )
    one_line(
        refused(BASE, "base.eta=1e-300", "base.kappa=1e300"),
        "grid.yaml",
        "1 of 1 point",
        "finite numbers",
    )


def test_expressions_that_fail_at_a_point(refused):
    one_line(
        refused(BASE + "blocks: [{axes: {a: [0, 1]}, derive: {N: '4 / a'}}]"),
        "blocks.0.derive.N: 1 of 2 points",
        "'4 / a': division by zero, at a=0",
    )
    one_line(
        refused(BASE + "blocks: [{axes: {a: [0, 1]}, where: ['4 / a > 1']}]"),
        "blocks.0.where.0: 1 of 2 points",
        "division by zero, at a=0",
    )


def test_a_huge_product_is_refused_before_it_is_made(refused):
    spacing = "{range: {from: 1, to: 1000, step: 1}}"
    text = (
        BASE
        + f"blocks: [{{axes: {{N: {spacing}, d: {spacing}, L: {spacing}}}, where: ['N"
        " == d']}]"
    )
    one_line(
        refused(text),
        "grid.yaml: limits.max_runs: got 1000000000 points before where, times 1"
        " seeds =",
        "allowed: 1000000 runs",
    )


def test_a_grid_is_refused_at_the_first_point_too_many(refused):
    text = (
        BASE
        + "limits: {max_runs: 3}\nblocks: [{axes: {N: {range: {from: 1, to: 100, step:"
        " 1}}}, where: ['N > 90']}]"
    )
    one_line(
        refused(text),
        "grid.yaml:2: limits.max_runs: got 100 points before where, times 1 seeds = 100"
        " runs; allowed: 3 runs",
    )


# the arithmetic


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * x ** 2", 19),
        ("-x // 2", -2),
        ("7 % x", 1),
        ("x == 3 and y != 'a'", True),
        ("1 < x < 3", False),
        ("x in [1, 3]", True),
        ("y not in ('b', 'c')", False),
        ("not x > 2", False),
        ("x > 5 or true", True),
        ("round(2.6) + floor(x) + ceil(0.1) + int(3.9)", 10),
        ("sqrt(16) + log(1) + log2(8) + log10(100) + exp(0)", 10.0),
        ("abs(-x) + min(x, 2) + max(x, 5, 1)", 10),
        ("2 ** -1", 0.5),
        ("1_000 * 1e3", 1e6),
        ("x\n> 2  # why", True),
    ],
)
def test_expressions(text, value):
    result = parse(text, calls=True).evaluate({"x": 3, "y": "b"})
    assert result == value
    assert type(result) is type(value)


def test_expression_names():
    expression = parse("round(alpha * d) > L and e == 'f' and true", calls=True)
    assert expression.names == {"alpha", "d", "L", "e"}
    assert expression.strings == {"f"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x =3",
        "x.real",
        "x[0]",
        "[1]",
        "(1, 2)",
        "{1: 2}",
        "lambda: 3",
        "x if x else 2",
        "f'{x}'",
        "None",
        "1j",
        "b'a'",
        "...",
        "x := 3",
        "x is 3",
        "x in y",
        "x ^ 2",
        "x & 1",
        "~x",
        "[x for x in y]",
        "__import__('os')",
        "x.bit_length()",
        "max(x)",
        "round(*x)",
        "round(number=x)",
        "(" * 300,
        "1" * 501,
        "1e999",
        "9" * 499,
        "-" * 499 + "1",
        "+".join("1" * 250),
        "print",
        "\0",
        "\ud800",
        "1 +\\",
        "x; y",
    ],
)
def test_refused_expressions(text):
    with pytest.raises(ValueError, match=r"(?s)^'|^\""):
        parse(text, calls=True).evaluate({"x": 3, "y": "b"})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("9**9**9**9", "past 1e308"),
        ("2**10000", "past 1e308"),
        ("x**x**x**x", "at x=9"),
        ("exp(1000)", "past 1e308"),
        ("1e300 * 1e300", "past 1e308"),
        ("10 ** 300 * 10 ** 300", "past 1e308"),
        ("1 / (x - 9)", "division by zero, at x=9"),
        ("1 // 0", "zero"),
        ("1 % 0.0", "zero"),
        ("0 ** -1", "zero"),
        ("(-8) ** 0.5", "root of a negative"),
        ("log(x - 9)", r"at x=9"),
        ("sqrt(-1)", "sqrt|math domain|nonnegative"),
        ("'a' * 9", "of numbers"),
        ("'a' % 9", "of numbers"),
        ("t * 9000000000", "of numbers, at t='text'"),
        ("[0] * 9000000000", "of numbers"),
        ("round(x, -9000000000)", "1 positional argument"),
        ("'a' < x", "not supported between instances of 'str' and 'int', at x=9"),
        ("q + 1", "q has no value"),
    ],
)
def test_expressions_that_fail(text, why):
    start = time.process_time()
    with pytest.raises(ValueError, match=why) as error:
        parse(text, calls=True).evaluate({"x": 9, "t": "text"})
    assert repr(text) in str(error.value)
    assert time.process_time() - start < 0.5


NUMBERS = st.integers(-20, 20).map(str) | st.floats(-9, 9, allow_nan=False).map(
    lambda x: repr(round(x, 3))
)
SCOPE = {"a": 3, "b": -0.75, "c": 12, "s": "sphere"}


def _grow(inner):
    two = st.tuples(
        inner,
        st.sampled_from(
            [
                "+",
                "-",
                "*",
                "/",
                "//",
                "%",
                "**",
                "<",
                "<=",
                ">",
                ">=",
                "==",
                "!=",
                "and",
                "or",
            ]
        ),
        inner,
    )
    return st.one_of(
        two.map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(st.sampled_from(["-", "+", "not "]), inner).map(
            lambda t: f"({t[0]}{t[1]})"
        ),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} < {t[1]} <= {t[2]})"),
        st.tuples(inner, inner, inner, st.sampled_from(["in", "not in"])).map(
            lambda t: f"({t[0]} {t[3]} [{t[1]}, {t[2]}])"
        ),
        st.tuples(
            st.sampled_from(
                ["round", "floor", "ceil", "int", "sqrt", "log", "exp", "abs"]
            ),
            inner,
        ).map(lambda t: f"{t[0]}({t[1]})"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(
            lambda t: f"{t[0]}({t[1]}, {t[2]})"
        ),
    )


def _small(node):
    """No power in the text that Python itself would take long over."""
    return sum(isinstance(n, ast.Pow) for n in ast.walk(node)) <= 1


@settings(max_examples=400 if attack.full_counts else 150, deadline=None)
@given(
    st.recursive(NUMBERS | st.sampled_from("abc"), _grow, max_leaves=8).filter(
        lambda t: len(t) < 400 and _small(ast.parse(t))
    )
)
def test_random_expressions_agree_with_python(text):
    try:
        expected = eval(text, {"__builtins__": {}, **FUNCTIONS, **SCOPE})
    except (ArithmeticError, ValueError, TypeError):
        expected = ValueError
    try:
        result = parse(text, calls=True).evaluate(SCOPE)
    except ValueError as error:
        result = ValueError
        if any(why in str(error) for why in ("root of a negative", "past 1e308")):
            return
    assert result == expected
    assert type(result) is type(expected)


@settings(max_examples=300 if attack.full_counts else 150, deadline=None)
@given(
    st.text(max_size=40)
    | st.text(alphabet="()[]{}.,:=+-*/%<>!'\"_ abc12\n\\#@", max_size=30)
)
def test_random_text_raises_only_value_errors(text):
    try:
        result = parse(text, calls=True).evaluate(dict.fromkeys("abc", 2))
    except ValueError:
        return
    assert isinstance(result, str) or math.isfinite(result)


# the schema


def test_schema_describes_the_keys():
    schema = json_schema()
    assert schema["$schema"].endswith("2020-12/schema")
    assert list(schema["properties"]) == [
        "schema",
        "name",
        "simulator",
        "columns",
        "root_seed",
        "base",
        "seeds",
        "blocks",
        "keep",
        "search",
        "limits",
        "run",
    ]
    assert schema["additionalProperties"] is False
    base = schema["$defs"]["Base"]
    v, embedding, eta = (schema["$defs"][name] for name in ("V", "embedding", "eta"))
    assert (v["type"], v["minimum"], v["maximum"], v["description"]) == (
        "integer",
        2,
        65536,
        "vocabulary size, tokens and labels",
    )
    assert embedding["anyOf"][0]["enum"][:3] == ["gaussian", "sphere", "orthogonal"]
    assert (eta["exclusiveMinimum"], eta["default"]) == (0, 0.001)
    assert "root_seed" not in base["properties"]
    assert base["additionalProperties"] is False
    axes = schema["$defs"]["Axes"]
    assert {"V", "N", "zip"} <= axes["properties"].keys()
    assert isinstance(axes["additionalProperties"], dict)
    json.dumps(schema)


KNOWN = {
    "type",
    "properties",
    "patternProperties",
    "additionalProperties",
    "required",
    "minProperties",
    "maxProperties",
    "items",
}
KNOWN |= {
    "minItems",
    "maxItems",
    "uniqueItems",
    "anyOf",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
}
KNOWN |= {
    "not",
    "$ref",
    "$defs",
    "$schema",
    "title",
    "description",
    "default",
    "errorMessage",
}


def keywords(schema):
    """All keywords of a schema and of those in it; names of keys and of definitions are
    none.
    """
    yield from schema
    for name, value in schema.items():
        inside = (
            value.values()
            if name in ("properties", "patternProperties", "$defs")
            else value
            if name == "anyOf"
            else [value]
        )
        if name not in ("default", "enum"):
            for each in inside:
                yield from keywords(each) if isinstance(each, dict) else ()


def test_the_schema_has_only_keywords_that_are_checked():
    schema = json_schema()
    # for editors, which do not know the fields of other simulators
    assert schema.pop("if") == {"required": ["simulator"]}
    for_ours = schema.pop("else")
    assert set(keywords(schema)) | set(keywords(for_ours)) <= KNOWN


def test_schema_accepts_what_is_read_and_refuses_typos(grid):
    jsonschema = pytest.importorskip("jsonschema")
    resolved = grid(EXAMPLE).resolved
    validator = jsonschema.Draft202012Validator(json_schema())
    validator.check_schema(json_schema())
    for seeds in (resolved["seeds"], 3, [4, 2]):
        validator.validate({**resolved, "seeds": seeds})
    for wrong in (
        {"bas": {}},
        {"base": {"v": 3}},
        {"base": {"V": 1}},
        {"seeds": 0},
        {"blocks": []},
        {"blocks": [{"axes": {"d": {"lin": 3}}}]},
    ):
        assert not validator.is_valid({**resolved, **wrong}), wrong


def test_a_search_over_very_many_seeds_takes_no_memory_for_them(grid):
    result = grid(
        "base: {V: 64, d: 32, L: 8}\nseeds: {start: 3, count: 4000000000}\nsearch:"
        " {axis: N}"
    )
    assert result.seeds == range(3, 4_000_000_003)


def test_messages_stay_short(refused):
    lines = refused(BASE + f"seeds: [{', '.join(str(i // 2) for i in range(2000))}]")
    assert lines[0].endswith(
        "seeds: got 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 990 others more than once;"
        " allowed: each once"
    )
    lines = refused(BASE + f"seeds: [{', '.join('x' * 2000)}]")
    assert (len(lines), lines[-1]) == (101, "and 1900 more errors")
    lines = refused(BASE + "? " + "k" * 9000 + "\n: 1")
    assert max(map(len, lines)) <= 2005
    assert lines[0].endswith("run")


def test_progress_of_an_expansion(tmp_path):
    path = tmp_path / "many.yaml"
    path.write_text(
        BASE
        + 'blocks: [{axes: {a: {range: {from: 1, to: 25000, step: 1}}}, where: ["a =='
        ' 1"]}]'
    )
    calls = []
    read_grid(path, on_progress=lambda *call: calls.append(call))
    assert calls == [(0, 25000), (10000, 25000), (20000, 25000)]


def test_huge_numbers(refused):
    huge = "0x" + "f" * 5000
    one_line(
        refused(f"base: {{V: 64, N: {huge}, d: 32, L: 8}}"),
        ":1: base.N: got a value of type int that is too long to show; allowed",
    )
    one_line(
        refused(BASE + "blocks: [{axes: {d: 8}}]", f"blocks.{'9' * 5000}.axes.d=8"),
        "a list; allowed: 0 to 0",
    )
    for wrong in (
        {"base": {"V": 64, "N": 10**5000, "d": 32, "L": 8}},
        {"base": {"V": 64, "N": 4, "d": 8, "L": 8}, "seeds": [10**5000]},
    ):
        with pytest.raises(GridError, match="too long to show"):
            as_grid(wrong | {"name": "huge"})
    with pytest.raises(GridError, match="numbers up to 1e308"):
        as_grid(
            {
                "name": "huge",
                "base": {"V": 64, "d": 32, "L": 8},
                "blocks": [{"axes": {"a": [10**5000]}, "derive": {"N": "a"}}],
            }
        )
    with pytest.raises(
        PointError, match="N: got a value of type int that is too long to show"
    ):
        Point(V=64, N=10**5000, d=32, L=8)


def test_lists_from_python_are_bounded():
    point = Point(V=64, N=4, d=32, L=8)
    assert as_grid(point, range(3)).seeds == range(3)
    with pytest.raises(
        GridError, match="2000000000 seeds = 2000000000 runs; allowed: 1000000 runs"
    ):
        as_grid(point, range(2_000_000_000))
    with pytest.raises(
        GridError,
        match=(
            r"got count\(.*\), more than 1000000 values; allowed: lists of up to"
            r" 1000000"
        ),
    ):
        as_grid(point, itertools.count())
    endless = {"name": "endless"}
    endless["base"] = endless
    with pytest.raises(GridError, match="nested too deeply"):
        as_grid(endless)


def test_a_grid_from_a_pipe_is_read_once_something_is_written(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Timer(0.3, path.write_text, ["base: {V: 8, N: 8, d: 4, L: 2}\n"])
    writer.start()
    assert len(read_grid(str(path)).points) == 1
    writer.join()
