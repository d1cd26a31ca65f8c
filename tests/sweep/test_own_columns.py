"""Columns and laws of the user's own on our simulator: as in float64, in workers, on
resume, and what is refused. And helpers that a grid keeps as columns, which name the
cells of a search and of a fit.
"""

import contextlib
import importlib
import json
import linecache
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import NO_FIGURE
from tolerances import assert_close

import jaxrecall
from jaxrecall import Point, measure, realize
from jaxrecall.compact import main as compact
from jaxrecall.errors import StoreError
from jaxrecall.model.reference import three_step
from jaxrecall.status import main as status
from jaxrecall.sweep.__main__ import main
from jaxrecall.sweep.grid import read_grid
from jaxrecall.sweep.store.load import not_finite

MODULE = """import jax.numpy as jnp

def strongest(draws, learned):
    '''Largest score of a token, over that of the trigger.'''
    return jnp.max(draws.Z_in @ learned.w) / (draws.z_trig @ learned.w)

def recalled(draws, learned) -> int:
    '''How many tokens are recalled without an MLP.'''
    answers = draws.Z_out @ learned.V2 @ (draws.Z_in + draws.z_trig[None]).T
    return jnp.sum(jnp.argmax(answers, axis=0) == draws.perm)

def part(draws, learned):
    answers = draws.Z_out @ learned.V2 @ (draws.Z_in + draws.z_trig[None]).T
    return jnp.mean(jnp.argmax(answers, axis=0) == draws.perm)
"""
NAME = "columns_of_mine"
BASE = {"V": 20, "L": 3, "n_test": 200}
OWN = f"columns: {{strongest: {NAME}:strongest, recalled_here: {NAME}:recalled}}\n"
GRID = (
    "name: tiny\nbase: {V: 20, L: 3, d: 8, n_test: 200}\nseeds: 3\n"
    "blocks: [{axes: {N: [100, 600]}}]\n"
)


def write_files(folder: Path):
    """The module with the columns, and the grid with and without them."""
    (folder / f"{NAME}.py").write_text(MODULE)
    (folder / "with.yaml").write_text(GRID + OWN)
    (folder / "without.yaml").write_text(GRID)


@pytest.fixture(autouse=True)
def folder(cwd, monkeypatch) -> Path:
    monkeypatch.syspath_prepend(str(cwd))
    sys.modules.pop(NAME, None)
    write_files(cwd)
    return cwd


def sweep(name: str, *options: str) -> int:
    return main(["--grid", name, "--out", "out", *options])


@pytest.fixture(scope="module")
def once(tmp_path_factory) -> Path:
    """The results of the grid with the columns."""
    there = tmp_path_factory.mktemp("once")
    write_files(there)
    with contextlib.chdir(there), pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(there))
        assert sweep("with.yaml", *NO_FIGURE) == 0
    sys.modules.pop(NAME)
    return there / "out"


@pytest.fixture
def swept(once, folder) -> Path:
    """A copy of them."""
    return shutil.copytree(once, folder / "out")


def assert_as_in_float64(rows) -> None:
    for row in rows.itertuples():
        point = Point(**BASE, d=row.d, N=row.N)
        draws = realize(point, row.seed)
        learned = three_step(draws, point)
        assert row.point_id == point.point_id, "a column enters no id"
        scores = draws.Z_in @ learned.w
        assert_close(
            row.strongest, scores.max() / (draws.z_trig @ learned.w), "float32"
        )
        recalled = measure(draws, point, learned)["memory_accuracy"] * 20
        assert row.recalled_here == round(recalled)


def test_a_column_that_overflows_is_told_as_that(swept):
    rows = jaxrecall.load("out")
    rows.loc[1:, "strongest"] = np.nan
    lines = not_finite(rows, read_grid("with.yaml").simulator)
    assert list(lines) == [
        "strongest: absent, not a number, or too large (float32 ends at 3.4e38) in 5"
        " of 6 rows, where it is null"
    ]


def test_a_column_of_ones_own_is_that_of_float64(swept):
    rows = jaxrecall.load("out")
    assert len(rows) == 6
    assert_as_in_float64(rows)
    assert str(rows["recalled_here"].dtype) == "int64"


@pytest.mark.system  # starts two processes
def test_workers_compute_it_too():
    assert sweep("with.yaml", "--workers", "2") == 0
    assert_as_in_float64(jaxrecall.load("out"))


def test_a_folder_has_the_same_columns_of_ones_own_in_all_rows(swept, capsys):
    assert sweep("without.yaml") == 2
    assert "would add rows with none. Choose another --out" in capsys.readouterr().err
    Path(f"{NAME}.py").write_text(MODULE.replace("jnp.max", "1.0 * jnp.max"))
    sys.modules.pop(NAME, None)
    assert sweep("with.yaml") == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert "holds rows of strongest from other source" in told


def test_status_imports_nothing_that_a_folder_names(swept, capsys):
    Path(f"{NAME}.py").write_text("raise SystemExit(7)")
    assert status(["out"]) == 0
    assert "6 done, 0 to do" in capsys.readouterr().out
    assert len(jaxrecall.load("out")) == 6


PART = {"part": f"{NAME}:part"}


@pytest.mark.slow
def test_several_steps_and_a_pool_have_it_too():
    for more in ({"steps": 5, "lr": 0.1}, {"pool": 32}):
        point = Point(**BASE, d=10, N=64, **more)
        rows = jaxrecall.run(point, seeds=2, columns=PART)
        assert_close(rows["part"], rows["memory_accuracy"], "float32", of="accuracy")


LAWS = """from dataclasses import dataclass

import optax

from jaxrecall.model.laws import EmbeddingLaw

@dataclass(frozen=True)
class Mine(EmbeddingLaw):
    def rows(self, draws, xp):
        return {scale} * draws.normals / xp.sqrt(xp.asarray(draws.d, draws.normals.dtype))

def mine(rate):
    return optax.sgd({speed} * rate)
"""  # noqa: E501


@pytest.mark.slow
def test_rows_of_a_law_with_other_source_are_not_added_to(folder):
    """A law that is a class, and one that is a function."""
    trained = {"start": "zero", "steps": 1, "lr": 1.0, "exact": "full"}

    def seeds_in(out, text, seeds):
        (folder / "laws_of_mine.py").write_text(text)
        sys.modules.pop("laws_of_mine", None)
        linecache.checkcache()
        importlib.invalidate_caches()
        module = importlib.import_module("laws_of_mine")
        point = Point(
            **BASE, d=8, N=64, embedding=module.Mine, optimizer=module.mine, **trained
        )
        jaxrecall.run(point, seeds=seeds, out=out)
        return jaxrecall.load(out)["seed"].nunique()

    first = LAWS.format(scale="1.0", speed="1.0")
    assert seeds_in("out", first, 1) == 1
    assert seeds_in("out", f"# a comment\n{first}", 2) == 2
    assert compact(["out", "--prune"]) == 0
    for name, speed, scale in (("Mine", "1.0", "1.001"), ("mine", "1.001", "1.0")):
        told = (
            f"out: holds rows of laws_of_mine:{name} from other source than it has now"
        )
        with pytest.raises(StoreError, match=told):
            seeds_in("out", LAWS.format(scale=scale, speed=speed), 3)
    assert seeds_in("out", first, 3) == 3


# helpers that a grid keeps

SEARCHED = """
base: {L: 4, d: 16, n_test: 64, pool: 16}
seeds: 16
search: {axis: V, from: 8, to: 32, max_runs: 40, width: 2}
keep: [per]
blocks: [{axes: {per: [8, 64]}, derive: {N: per * V}}]
"""
LABELLED = """
base: {V: 16, L: 4, n_test: 64, N: 64}
seeds: 6
keep: [label]
blocks:
  - axes:
      zip: {label: [thin, medium, wide], d: [8, 12, 16]}
      N: [64, 256, 1024, 4096]
"""


@pytest.mark.slow
def test_a_kept_helper_names_the_cells_of_a_search(capsys):
    Path("kept.yaml").write_text(SEARCHED)
    assert sweep("kept.yaml") == 0
    told = re.findall(r"^([01]) +(\d+) +.*0\.5", capsys.readouterr().out, re.M)
    assert told == [("0", "8"), ("1", "64")]
    assert jaxrecall.thresholds("out")["per"].tolist() == [8, 64]
    cells = json.loads(Path("out/search.json").read_text())["cells"]
    assert [cell["per"] for cell in cells] == [8, 64]


def test_a_text_that_is_kept_names_the_cells_of_a_fit():
    """A label of one's own: it moves no id."""
    Path("kept.yaml").write_text(LABELLED)
    jaxrecall.run("kept.yaml", progress=False, out="out")
    rows = jaxrecall.load("out")
    assert rows.attrs["kept"] == ["label"]
    found = jaxrecall.fit.fit(rows)
    assert found.thresholds["d"].tolist() == [8, 12, 16]
    assert found.thresholds["label"].tolist() == ["thin", "medium", "wide"]
    assert [*found.exponents["axis"]] == ["d"]
    plain = re.sub(r"keep: \[label\]|label: [^]]*\],", "", LABELLED)
    Path("plain.yaml").write_text(plain)
    ids = {point.point_id for point in read_grid("plain.yaml").points}
    assert {*rows["point_id"]} == ids
