"""Grids: what a file means, its arithmetic, and the schema of its keys. The words of
refusals are in tests/refusals/grids.yaml.
"""

import ast
import dataclasses
import importlib
import json
import math
import os
import re
import threading
from operator import attrgetter

import attack
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrecall.errors import GridError
from jaxrecall.model.laws import LAWS, EmbeddingLaw, register
from jaxrecall.model.laws.law import _parsed as find_law
from jaxrecall.sweep.grid import as_grid, json_schema, read_grid
from jaxrecall.sweep.grid.axes import Names
from jaxrecall.sweep.grid.expr import FUNCTIONS

BASE = {"V": 64, "N": 100, "d": 32, "L": 8}
PLAIN = "base: {V: 64, N: 100, d: 32, L: 8}\n"
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
limits: {max_runs: 100000, max_bytes: 8589934592}
run: {precision: highest}
"""  # noqa: E501


@pytest.fixture
def grid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def read(text, *sets, name="grid.yaml"):
        (tmp_path / name).write_text(text)
        return read_grid(name, sets)

    return read


MEANINGS = """
- it: has defaults
  grid: ""
  has: {name: grid, seeds: [0], axes: [], limits.max_runs: 1000000,
        limits.max_bytes: null, settings.precision: highest}
  points: {V: [64], N: [100], d: [32], L: [8]}
- it: has settings
  grid: "run: {precision: default, part_seconds: 0}"
  has: {settings.precision: default, settings.part_seconds: 0}
- it: gives its root seed to its points
  grid: "root_seed: 7"
  points: {root_seed: [7]}
- it: lists its seeds
  grid: "seeds: [0, 7, 5]"
  has: {seeds: [0, 7, 5]}
- it: has seeds from a start
  grid: "seeds: {start: 5, count: 3}"
  has: {seeds: [5, 6, 7]}
- it: has a plain number of seeds
  grid: "seeds: 3"
  has: {seeds: [0, 1, 2]}
- it: has a whole number of seeds that is written as a float
  grid: "seeds: 3.0"
  has: {seeds: [0, 1, 2]}
- it: varies the last axis fastest and zipped axes together
  grid: "blocks: [{axes: {zip: [{L: [1, 2], V: [8, 9]}, {eta: [1, 2], n_test: [3, 4]}],
         d: [5, 6]}}]"
  has: {axes: [L, V, eta, n_test, d]}
  points: {L: [1, 1, 1, 1, 2, 2, 2, 2], V: [8, 8, 8, 8, 9, 9, 9, 9],
           eta: [1, 1, 2, 2, 1, 1, 2, 2], d: [5, 6, 5, 6, 5, 6, 5, 6]}
- it: takes an axis before the base, and derive before both, in order
  grid: "blocks: [{axes: {N: 5, d: [3, 4]},
         derive: {x: 'N * d', N: 'x + 1', L: 'N + n_test'}}]"
  points: {N: [16, 21], d: [3, 4], L: [2064, 2069]}
- it: derives text, numbers and bools
  grid: "blocks: [{derive: {embedding: \\"'sphere'\\", d: 70,
         fresh_batches: 'd > 60'}}]"
  points: {embedding: [sphere], d: [70], fresh_batches: [true]}
- it: derives whole numbers that are floats
  grid: "blocks: [{derive: {N: 'd * 1.5'}}]"
  points: {N: [48]}
- it: drops duplicates and counts them
  grid: "blocks: [{axes: {d: [4, 5, 4]}},
         {axes: {d: [5, 6], a: [1, 2]}, where: ['a > 0']}]"
  has: {n_duplicates: 4}
  points: {d: [4, 5, 6]}
- it: excludes by where, which sees resolved fields and helpers
  grid: "blocks: [{axes: {kappa: [1, 100], d: [16, 32]}, derive: {edge: 'sqrt(V) * 3'},
         where: ['gamma > 1e7', 'd > edge']}]"
  has: {n_excluded: 3}
  points: {kappa: [100], d: [32]}
- it: excludes by the activation that a point resolves to
  grid: "blocks: [{axes: {m: [0, 16]}, where: [\\"activation == 'none'\\"]}]"
  points: {m: [0]}
- it: may have invalid points that where excludes
  grid: "blocks: [{axes: {d: [32, 80], embedding: [orthogonal, gaussian]},
         where: [\\"d >= V + 2 or embedding != 'orthogonal'\\"]}]"
  points: {d: [32, 80, 80], embedding: [gaussian, orthogonal, gaussian]}
- it: may have points that cannot be made and that where excludes
  grid: "blocks: [{axes: {m: [0, 4], activation: [none]},
         where: [\\"m == 0 or activation != 'none'\\"]}]"
  points: {m: [0]}
- it: may have expressions that fail where a line excludes
  grid: "blocks: [{axes: {a: [0, 1, 2]}, derive: {N: '4 / a'}, where: ['a > 0']}]"
  points: {N: [4, 2]}
- it: may have wrong derived values that where excludes
  grid: "blocks: [{axes: {a: [0, 1]}, derive: {N: 'a * 10'}, where: ['N >= 1']}]"
  points: {N: [10]}
- it: may have an empty block beside others
  grid: "blocks: [{axes: {d: [4]}, where: ['d > 5']}, {axes: {d: [6]}}]"
  has: {n_excluded: 1}
  points: {d: [6]}
- it: means by null that nothing is given
  grid: "blocks: [{axes: {gamma2: [null, 5], embedding: [null, sphere]}}]"
  set: [base.embedding=orthogonal, base.gamma=7]
  points: {gamma2: [7, 7, 5, 5], embedding: [gaussian, sphere, gaussian, sphere]}
- it: drops a rate of the base where an axis gives the other
  grid: "blocks: [{axes: {gamma: [null, 5]}}]"
  set: [base.kappa=50]
  points: {kappa: [50, 1.220703125e-6]}
- it: drops a rate of the base where derive gives the other
  grid: "blocks: [{derive: {kappa: 'gamma / 2'}}]"
  set: [base.gamma=6]
  points: {kappa: [3]}
- it: has anchors
  grid: |
    blocks:
      - axes: &x {d: [4, 5]}
      - {axes: *x, derive: {N: &n 9}}
      - derive: {N: *n}
  points: {N: [100, 100, 9, 9, 9], d: [4, 5, 4, 5, 32]}
- it: ignores keys for anchors
  grid: |
    x-sizes: &n [4, 5]
    x-: {V: -3, any: [thing, {where: ['1 +']}]}
    x-note:
    blocks: [{axes: {d: *n}}]
  set: [base.N=50]
  points: {N: [50, 50], d: [4, 5]}
- it: takes the place of an anchor from --set
  grid: |
    x-n: &n [4, 5]
    blocks: [{axes: {d: *n}}]
  set: ["blocks.0.axes.d=[8]"]
  points: {d: [8]}
- it: takes the last of several --set, and makes what they need
  grid: "name: a"
  set: [name=x, seeds.count=2, seeds.count=3, "blocks.0.axes.d=[8,16]", base.eta=1e-4,
        base.gamma=5, base.gamma=null, base.kappa=3, run.precision=high]
  has: {name: x, seeds: [0, 1, 2], settings.precision: high}
  points: {d: [8, 16], eta: [0.0001, 0.0001], kappa: [3, 3]}
- it: has parameters of laws
  grid: "blocks: [{axes: {embedding.rho: [0.05, 0.1, 0.3], d: [3, 4]},
         where: ['embedding.rho * d < 0.85']}]"
  set: [base.embedding=equicorrelated, base.embedding.rho=0.2]
  has: {axes: [embedding.rho, d], n_excluded: 2}
  points: {d: [3, 4, 3, 4], embedding: [equicorrelated(rho=0.05),
           equicorrelated(rho=0.05), equicorrelated(rho=0.1), equicorrelated(rho=0.1)]}
- it: zips and derives by parameters of laws
  grid: "blocks: [{axes: {zip: {embedding.rho: [0.1, 0.3], d: [10, 30]}},
         derive: {N: '2 * embedding.rho * 50'}}]"
  set: [base.embedding=equicorrelated]
  points: {N: [10, 30], embedding: [equicorrelated(rho=0.1), equicorrelated(rho=0.3)]}
- it: derives parameters of laws
  grid: "blocks: [{axes: {a: [1, 2]}, derive: {embedding.rho: 'a / 10'}}]"
  set: [base.embedding=equicorrelated]
  has: {axes: [embedding.rho]}
  points: {embedding: [equicorrelated(rho=0.1), equicorrelated(rho=0.2)]}
- it: sets a parameter of a law as one key
  grid: ""
  set: [base.embedding=equicorrelated, "blocks.0.axes.zip.embedding.rho=[0.1, 0.2]",
        blocks.0.axes.zip.embedding.rho.1=0.3]
  points: {embedding: [equicorrelated(rho=0.1), equicorrelated(rho=0.3)]}
- it: names the law that varies
  grid: "blocks: [{axes: {embedding: sphere}},
         {axes: {embedding: equicorrelated, embedding.rho: 0.1}}]"
  has: {axes: [embedding]}
- it: names the law and the parameter that vary
  grid: "blocks: [{axes: {embedding: sphere}},
         {axes: {embedding: equicorrelated, embedding.rho: [0.1, 0.3]}}]"
  has: {axes: [embedding, embedding.rho]}
- {it: is bounded in bytes, grid: "limits: {max_bytes: 1e9}",
   has: {limits.max_bytes: 1000000000}}
"""


@pytest.mark.parametrize("case", yaml.safe_load(MEANINGS), ids=lambda case: case["it"])
def test_a_grid(case, grid):
    made = grid(PLAIN + case["grid"], *case.get("set", ()))
    for name, values in case.get("points", {}).items():
        assert [getattr(point, name) for point in made.points] == values, name
    for name, value in case.get("has", {}).items():
        actual = attrgetter(name)(made)
        assert (list(actual) if isinstance(value, list) else actual) == value, name
    assert as_grid(json.loads(json.dumps(made.resolved))) == made


def test_an_example_with_everything(grid):
    made = grid(EXAMPLE)
    assert made.axes == ("d", "N", "L", "V")
    assert len(made.points) + made.n_duplicates == 3 * 17 + 2 * 15
    assert made.n_runs == 64 * len(made.points)
    assert grid(json.dumps(made.resolved), name="other.json") == made
    assert grid(PLAIN, name="plain.v2.yaml").name == "plain.v2"


VALUES = """
{linspace: {from: 0.2, to: 1.4, num: 7}}: [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4]
{linspace: {from: 3, to: 1, num: 3}}: [3, 2, 1]
{linspace: {from: 1, to: 3, num: 9, round: int}}: [1, 2, 3]
{logspace: {from: 1, to: 1000, num: 4}}: [1, 10, 100, 1000]
{logspace: {from: 1, to: 4, num: 9, round: int}}: [1, 2, 3, 4]
{logspace: {from: 0.3, to: 0.7, num: 2}}: [0.3, 0.7]
{geom: {from: 1e-3, to: 0.1, num: 3}}: [0.001, 0.01, 0.1]
{range: {from: 0.1, to: 0.5, step: 0.1}}: [0.1, 0.2, 0.3, 0.4, 0.5]
{range: {from: 10, to: 1, step: -4}}: [10, 6, 2]
1e5: [100000]
[1E-3, 1_000, .5, 0x10]: [0.001, 1000, 0.5, 16]
"""


@pytest.mark.parametrize("line", VALUES.strip().splitlines())
def test_an_axis_has_these_values(line, grid):
    axis, _, values = line.rpartition(": ")
    made = grid(f"{PLAIN}blocks: [{{axes: {{eta: {axis}}}}}]")
    assert [point.eta for point in made.points] == yaml.safe_load(values)
    assert made.n_duplicates == 0


KEEPS = """
base: {V: 64, N: 100, L: 8}
keep: [alpha, kind, one]
blocks:
  - axes: {alpha: [1, 2.5], zip: {kind: [wide, narrow], d: [64, 8]}}
    derive: {N: "round(alpha * d)", one: 1}
  - axes: {d: [64, 3]}
  - axes: {d: [3], kind: [late]}
"""


def test_helpers_that_are_kept_are_columns_and_move_no_id(grid):
    kept = grid(KEEPS)
    first_blocks = KEEPS.rpartition("\n  -")[0].replace("keep: [alpha, kind, one]", "")
    used = "where: ['kind != alpha and one > 0']\n    derive:"
    plain = grid(first_blocks.replace("derive:", used))
    ids = [point.point_id for point in kept.points]
    assert ids == [point.point_id for point in plain.points]
    assert plain.kept == plain.kept_columns == {}
    types = {name: kind for name, (kind, _) in kept.kept_columns.items()}
    assert types == {"alpha": "float64", "kind": "string", "one": "int64"}
    rows = [(*kept.kept[point_id].values(),) for point_id in ids]
    assert rows[0] == (1, "wide", 1)
    assert rows[3] == (2.5, "narrow", 1)
    assert rows[-1] == (None, None, None), "the first block that has a point names it"
    assert as_grid(kept.resolved).kept == kept.kept


def test_a_helper_is_whole_between_whole_ends():
    search = {"axis": "per"}
    blocks = [{"derive": {"N": "round(8 * per)"}}]
    base = {"V": 64, "d": 32, "L": 8}
    levels = []
    for low, high in ((1, 64), (0.5, 64), (1, 64.5)):
        search |= {"from": low, "to": high}
        made = as_grid({"base": base, "seeds": 12, "blocks": blocks, "search": search})
        levels.append([*made.lines[0].levels])
    assert all(level == int(level) for level in levels[0])
    assert all(any(level != int(level) for level in real) for real in levels[1:])


def test_arrays_of_float32_are_the_decimals_that_were_written():
    """Every array of JAX is one."""
    base = BASE | {"embedding": "equicorrelated"}

    def made(values):
        return as_grid({"base": base, "blocks": [{"axes": {"embedding.rho": values}}]})

    single, half = (np.array([0.1, 0.2], kind) for kind in (np.float32, jnp.bfloat16))
    of_jax = jnp.asarray(single)
    for values in (of_jax, jnp.asarray(half), [*single], pd.Series(single)):
        assert made(values) == made([0.1, 0.2])


def test_a_search_over_very_many_seeds_takes_no_memory_for_them():
    seeds = {"start": 3, "count": 4_000_000_000}
    base = {"V": 64, "d": 32, "L": 8}
    made = as_grid({"base": base, "seeds": seeds, "search": {"axis": "N"}})
    assert made.seeds == range(3, 4_000_000_003)


# laws and simulators of one's own


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


@pytest.mark.usefixtures("toy_law")
@pytest.mark.parametrize(
    "blocks",
    [
        "{axes: {embedding: [sphere, toy]}, where: [\"embedding == 'test_grid:Toy'\"]}",
        "{axes: {embedding: toy}}",
        "{derive: {embedding: \"'toy'\"}}",
    ],
)
def test_a_law_that_is_registered_later_is_a_value_of_grids(grid, blocks):
    (point,) = grid(f"{PLAIN}blocks: [{blocks}]").points
    assert point.embedding == "test_grid:Toy"


COINS = """
import jaxrecall
fields = {
    "n": (int, None, 1, 4000, "static", "throws"),
    "p": (float, 0.5, 0.0, 1.0, "traced"),
}
columns = {"share": (float, "of heads")}
coin = jaxrecall.Simulator(lambda point, key: {}, fields, columns, accuracy="share")
"""
COIN = """
simulator: coins:coin
seeds: 3
base: {n: 10}
blocks:
  - {axes: {p: [0.1, 0.5], k: [1, 2]}, derive: {n: 'k * 10'}, where: ['p * n > 1']}
"""


def test_a_grid_of_a_simulator_of_ones_own(grid, tmp_path, monkeypatch):
    (tmp_path / "coins.py").write_text(COINS)
    monkeypatch.syspath_prepend(str(tmp_path))
    coin = importlib.import_module("coins").coin
    made = grid(COIN, name="coin.yaml")
    assert [(p.n, p.p, p.root_seed) for p in made.points] == [
        (20, 0.1, 0),
        (10, 0.5, 0),
        (20, 0.5, 0),
    ]
    assert (made.axes, made.n_excluded, made.simulator) == (("p", "n"), 1, coin)
    assert as_grid(json.loads(json.dumps(made.resolved))) == made
    document = {"name": "coin", **yaml.safe_load(COIN)}
    del document["simulator"]
    assert as_grid(document, simulator=coin).points == made.points
    described = {"type": "integer", "minimum": 1, "maximum": 4000}
    assert Names(coin).schema()["$defs"]["n"] == described | {"description": "throws"}


# what the table of refusals cannot hold


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\xff\xfe\x00\x01", "grid.yaml: is not UTF-8 text"),
        (b"a: \x00\x01", "grid.yaml: is not valid YAML"),
        (b"b: " + b"[" * 1000, "grid.yaml: is nested too deeply"),
        (b"b: " + b"9" * 5000, "grid.yaml:1: got '999.*; allowed: numbers of up to"),
        (b" " * (16 * 2**20 + 1), "grid.yaml: is too large; allowed: up to 16777216"),
        (b"," * 100_001, "grid.yaml: got 100001 lines and signs , : .* up to 100000"),
        (PLAIN.encode() + b"? " + b"k" * 9000 + b"\n: 1", "is no known key"),
    ],
    ids=["no text", "null", "deep", "digits", "large", "signs", "long key"],
)
def test_a_file_that_is_no_grid_is_one_short_line(tmp_path, monkeypatch, content, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.yaml").write_bytes(content)
    with pytest.raises(GridError, match=told) as refused:
        read_grid("grid.yaml")
    (line,) = refused.value.lines
    assert len(line) <= 2005


def test_anchors_do_not_unfold_to_too_many_values(grid, monkeypatch):
    monkeypatch.setattr("jaxrecall.sweep.grid.document.MAX_VALUES", 5000)
    lines = ["a0: &a0 [1]"]
    for i in range(9):
        lines.append(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]")
    with pytest.raises(GridError, match=r"^grid.yaml:5: is too large with its an"):
        grid("\n".join(lines))


def test_a_file_name_that_is_no_name_needs_one_in_the_file(grid):
    with pytest.raises(GridError, match=r"^my grid.yaml: name: got 'my grid'; allowed"):
        grid(PLAIN, name="my grid.yaml")


def test_many_mistakes_are_few_lines(grid):
    repeated = ", ".join(str(i // 2) for i in range(2000))
    with pytest.raises(GridError, match="0, 1, 2, 3, 4, 5, 6, 7, 8, 9"):
        grid(f"{PLAIN}seeds: [{repeated}]")
    with pytest.raises(GridError) as refused:
        grid(f"{PLAIN}seeds: [{', '.join('x' * 2000)}]")
    assert refused.value.lines[100:] == ["and 1900 more errors"]


def test_a_grid_from_a_pipe_is_read_once_something_is_written(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Timer(0.1, path.write_text, [PLAIN])
    writer.start()
    assert len(read_grid(str(path)).points) == 1
    writer.join()


# the arithmetic


def value_of(text, **axes):
    """What a grid derives from these helpers."""
    line = " and ".join(["N > 0", *(f"{name} == {name}" for name in axes)])
    block = {"axes": axes, "derive": {"value": text}, "where": [line]}
    block = {key: part for key, part in block.items() if part}
    made = as_grid({"base": BASE, "keep": ["value"], "blocks": [block]})
    (helpers,) = made.kept.values()
    return helpers["value"]


EXPRESSIONS = """
1 + 2 * x ** 2 -> 19
-x // 2 -> -2
7 % x -> 1
x == 3 and y != 'a' -> True
1 < x < 3 -> False
x in [1, 3] -> True
y not in ('b', 'c') -> False
not x > 2 -> False
x > 5 or true -> True
round(2.6) + floor(x) + ceil(0.1) + int(3.9) -> 10
sqrt(16) + log(1) + log2(8) + log10(100) + exp(0) -> 10.0
abs(-x) + min(x, 2) + max(x, 5, 1) -> 10
2 ** -1 -> 0.5
1_000 * 1e3 -> 1000000.0
\tx > 2  # why -> True
"""


@pytest.mark.parametrize("line", EXPRESSIONS.strip("\n").splitlines())
def test_an_expression_has_this_value(line):
    text, _, value = line.partition(" -> ")
    assert repr(value_of(text.ljust(500), x=3, y="b")) == value


NO_EXPRESSIONS = r"""x =3|x.real|x[0]|[1]|(1, 2)|{1: 2}|lambda: 3|x if x else 2|f'{x}'
None|1j|b'a'|...|x := 3|x is 3|x in y|x ^ 2|x & 1|~x|[x for x in y]|__import__('os')
x.bit_length()|max(x)|round(*x)|round(number=x)|1e999|print|1 +\|x; y"""
TOO_LONG = ["(" * 300, "1" * 501, "9" * 499, "-" * 499 + "1", "+".join("1" * 250)]


@pytest.mark.parametrize(
    "text",
    [*re.split(r"[|\n]", NO_EXPRESSIONS), *TOO_LONG, "", "\0", "\ud800"],
    ids=lambda text: repr(text[:20]),
)
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(
        GridError, match=r"^grid: blocks\.0\.derive\.value: "
    ) as refused:
        value_of(text, x=3, y="b")
    assert len(refused.value.lines) == 1


FAILING = """
9**9**9**9 -> past 1e308
2**10000 -> past 1e308
x**x**x**x -> at x=9
exp(1000) -> past 1e308
1e300 * 1e300 -> past 1e308
10 ** 300 * 10 ** 300 -> past 1e308
1 / (x - 9) -> division by zero, at x=9
1 // 0 -> zero
1 % 0.0 -> zero
0 ** -1 -> zero
(-8) ** 0.5 -> root of a negative
log(x - 9) -> at x=9
sqrt(-1) -> 'sqrt
'a' * 9 -> of numbers
'a' % 9 -> of numbers
t * 9000000000 -> of numbers, at t='text'
[0] * 9000000000 -> of numbers
round(x, -9000000000) -> 1 positional argument
'a' < x -> not supported between instances of 'str' and 'int', at x=9
"""


@pytest.mark.parametrize("line", FAILING.strip().splitlines())
def test_an_expression_that_fails_says_why(line):
    text, _, why = line.partition(" -> ")
    with pytest.raises(GridError) as refused:
        value_of(text, x=9, t="text")
    (line,) = refused.value.lines
    assert why in line.partition(f"{text!r}: ")[2] + line.rpartition("value: ")[2]


NUMBERS = st.integers(-20, 20).map(str)
NUMBERS |= st.floats(-9, 9, allow_nan=False).map(lambda x: repr(round(x, 3)))
LEAVES = NUMBERS | st.sampled_from("abc")
SCOPE = {"a": 3, "b": -0.75, "c": 12, "s": "sphere"}
FORMS = {
    "({0} {word} {1})": "+ - * / // % ** < <= > >= == != and or",
    "({word} {0})": "- + not",
    "({0} < {1} {word} {2})": "<=",
    "({0} {word} [{1}, {2}])": "in",
    "({0} not {word} [{1}, {2}])": "in",
    "{word}({0})": "round floor ceil int sqrt log exp abs",
    "{word}({0}, {1})": "min max",
}


def _grow(inner):
    parts = st.tuples(inner, inner, inner)
    grown = []
    for form, words in FORMS.items():
        word = st.sampled_from(words.split())
        grown.append(st.tuples(st.just(form), parts, word))
    return st.one_of(grown).map(lambda drawn: drawn[0].format(*drawn[1], word=drawn[2]))


def _small(text):
    """No power in the text that Python itself would take long over."""
    nodes = ast.walk(ast.parse(text))
    return len(text) < 400 and sum(isinstance(node, ast.Pow) for node in nodes) <= 1


@settings(max_examples=400 if attack.full_counts else 150, deadline=None)
@given(st.recursive(LEAVES, _grow, max_leaves=8).filter(_small))
def test_random_expressions_agree_with_python(text):
    try:
        expected = eval(text, {"__builtins__": {}, **FUNCTIONS, **SCOPE})
    except (ArithmeticError, ValueError, TypeError):
        expected = None
    try:
        result = value_of(text, **SCOPE)
    except GridError as error:
        result = None
        if re.search("root of a negative|past 1e308", str(error)):
            return
    assert repr(result) == repr(expected)


@settings(max_examples=300 if attack.full_counts else 150, deadline=None)
@given(
    st.text(max_size=40)
    | st.text(alphabet="()[]{}.,:=+-*/%<>!'\"_ abc12\n\\#@", max_size=30)
)
def test_random_text_is_a_value_or_refused(text):
    try:
        result = value_of(text, a=2, b=2, c=2)
    except GridError:
        return
    assert isinstance(result, str) or math.isfinite(result)


# the schema


KEYS = (
    "schema name simulator columns root_seed base seeds blocks keep search limits run"
)


def test_the_schema_describes_the_keys():
    schema = json_schema()
    assert schema["$schema"].endswith("2020-12/schema")
    assert [*schema["properties"]] == KEYS.split()
    assert schema["additionalProperties"] is False
    V, embedding, eta = (schema["$defs"][name] for name in ("V", "embedding", "eta"))
    limits = {"type": "integer", "minimum": 2, "maximum": 65536}
    assert V == limits | {"description": "vocabulary size, tokens and labels"}
    assert embedding["anyOf"][0]["enum"][:3] == ["gaussian", "sphere", "orthogonal"]
    assert (eta["exclusiveMinimum"], eta["default"]) == (0, 0.001)
    (ignored,) = schema["patternProperties"]
    assert re.fullmatch(f"{ignored}.*", "x-sizes")


CHECKED = """
type properties patternProperties additionalProperties required minProperties
maxProperties items minItems maxItems uniqueItems anyOf enum pattern minimum maximum
exclusiveMinimum exclusiveMaximum not $ref $defs $schema title description default
errorMessage
"""


def keywords(schema):
    """All keywords of a schema and of those in it; names of keys and of definitions are
    none.
    """
    yield from schema
    for name, value in schema.items():
        inside = [value]
        if name in ("properties", "patternProperties", "$defs"):
            inside = value.values()
        elif name in ("anyOf", "default", "enum"):
            inside = value if name == "anyOf" else []
        for each in inside:
            yield from keywords(each) if isinstance(each, dict) else ()


def test_the_schema_has_only_keywords_that_are_checked():
    schema = json_schema()
    # for editors, which do not know the fields of other simulators
    assert schema.pop("if") == {"required": ["simulator"]}
    for_ours = schema.pop("else")
    assert {*keywords(schema), *keywords(for_ours)} <= {*CHECKED.split()}


def test_the_schema_accepts_what_is_read_and_refuses_typos(grid):
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
