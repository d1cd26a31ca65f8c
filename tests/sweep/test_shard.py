"""Shares of a grid: together they are all of it, alike in cost, whoever decides which
one a process has.
"""

import json
import os
import shlex
import shutil
import warnings
from pathlib import Path

import pytest
from helpers import ROOT

from jaxrecall import Point, load
from jaxrecall.compact import main as compact
from jaxrecall.errors import UsageError
from jaxrecall.fit import main as fit
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.status import main as status
from jaxrecall.status import survey
from jaxrecall.sweep.__main__ import main
from jaxrecall.sweep.plan import Shard, chosen_shard, without_shard
from jaxrecall.sweep.simulators.shipped import RECALL

POINTS = [
    Point(V=V, N=N, d=d, L=L)
    for V in (20, 300)
    for d in (16, 90)
    for L in (3, 40)
    for N in (100, 5000, 70000)
]


def cost(runs) -> float:
    return sum(RECALL.cost(Shape.tight(point), point).seconds for point, _ in runs)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_are_the_grid_alike_in_cost_and_near_in_size(count):
    shares = [Shard(i, count, "").of(POINTS, range(5), RECALL) for i in range(count)]
    assert sorted(
        (p.point_id, seed) for share in shares for p, seed in share
    ) == sorted((p.point_id, s) for p in POINTS for s in range(5))
    most = max(cost([(point, 0)]) for point in POINTS)
    assert max(map(cost, shares)) - min(map(cost, shares)) <= 2 * most
    tight = len({Shape.tight(point) for point in POINTS})
    assert (
        sum(len({Shape.tight(point) for point, _ in share}) for share in shares)
        <= tight + count - 1
    )


def test_more_shards_than_runs_leave_some_empty():
    shares = [Shard(i, 9, "").of(POINTS[:2], [0], RECALL) for i in range(9)]
    assert sum(map(len, shares)) == 2


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        (None, {}, None),
        ("1/4", {"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_COUNT": "2"}, (1, 4)),
        (None, {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "4"}, (3, 4)),
        (
            None,
            {
                f"SLURM_ARRAY_TASK_{k}": v
                for k, v in {"ID": "5", "COUNT": "4", "MIN": "5", "MAX": "8"}.items()
            },
            (0, 4),
        ),
    ],
)
def test_the_flag_comes_before_the_environment(given, environment, expected):
    shard = chosen_shard(given, environment)
    assert (shard and shard[:2]) == expected
    assert shard is None or shard.source


@pytest.mark.parametrize(
    ("given", "environment", "told"),
    [
        ("5/4", {}, "--shard: got 5/4; allowed: i/n with i from 0 to n - 1"),
        ("4/4", {}, "--shard: got 4/4"),
        ("-1/4", {}, "--shard: got -1/4"),
        ("0/0", {}, "--shard: got 0/0"),
        ("half", {}, "--shard: got half"),
        (
            None,
            {
                f"SLURM_ARRAY_TASK_{k}": v
                for k, v in {"ID": "3", "COUNT": "2", "MIN": "3", "MAX": "7"}.items()
            },
            (
                "SLURM_ARRAY_TASK_ID: got 3 of 2 tasks from 3 to 7; allowed: an array"
                " without gaps"
            ),
        ),
    ],
)
def test_a_wrong_share_is_refused(given, environment, told):
    with pytest.raises(UsageError, match=told.replace("(", r"\(")):
        chosen_shard(given, environment)


GRID = """
name: tiny
base: {V: 20, L: 3, n_test: 200}
seeds: {count: 5}
blocks: [{axes: {d: [8, 12], N: [100, 600]}}]
"""


@pytest.fixture
def grid(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(GRID)
    return tmp_path


def rows_of(*folders: str):
    """All rows; none twice."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return load(list(folders))


def test_a_dry_run_has_the_figures_of_the_shard(grid, capsys):
    told = []
    for i in range(3):
        assert (
            main(["--grid", "tiny.yaml", "--shard", f"{i}/3", "--dry-run", "--json"])
            == 0
        )
        told.append(json.loads(capsys.readouterr().out))
    assert (
        sum(facts["runs"] for facts in told)
        == sum(facts["todo"] for facts in told)
        == 20
    )
    assert all(5 <= facts["runs"] <= 9 and facts["points"] in (2, 3) for facts in told)
    assert main(["--grid", "tiny.yaml", "--shard", "1/3", "--dry-run"]) == 0
    assert (
        f"shard 1/3 (--shard): {told[1]['runs']} of these runs"
        in capsys.readouterr().out
    )


def test_shards_share_a_folder_or_have_their_own(grid, capsys, monkeypatch):
    assert main(["--grid", "tiny.yaml", "--shard", "0/2"]) == 0
    assert "tiny, shard 0/2 (--shard): 0 of " in capsys.readouterr().out
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "2")
    assert main(["--grid", "tiny.yaml"]) == 0
    out = capsys.readouterr().out
    assert "tiny, shard 1/2 (SLURM_ARRAY_TASK_ID 1): 0 of " in out
    assert "figure" not in out, "a shard has no figure"
    assert len(rows_of("results/tiny")) == 20
    assert main(["--grid", "tiny.yaml"]) == 0
    assert (
        "runs of shard 1/2 (SLURM_ARRAY_TASK_ID 1) are in results/tiny"
        in capsys.readouterr().out
    )
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID")
    for i in range(2):
        assert (
            main(["--grid", "tiny.yaml", "--shard", f"{i}/2", "--out", f"own-{i}"]) == 0
        )
    whole, apart = rows_of("results/tiny"), rows_of("own-0", "own-1")
    assert whole.drop(columns="seconds").equals(apart.drop(columns="seconds"))
    assert 0 < survey("own-0")["todo"] < 20
    shutil.copytree("own-0", "all")
    assert compact(["own-1", "--prune"]) == 0
    shutil.copy("own-1/table.parquet", "all/parts/own-1.parquet")
    facts = survey("all")
    assert (facts["done"], facts["todo"], facts["remark"]) == (20, 0, None)
    assert compact(["all", "--prune"]) == 0
    assert rows_of("all").equals(apart)
    assert not list(Path("all/parts").iterdir())


def test_after_one_shard_status_says_how_to_run_the_others(grid):
    assert main(["--grid", "tiny.yaml", "--out", "own 0", "--shard", "0/2"]) == 0
    argv = shlex.split(survey("own 0")["command"])
    assert argv[1:] == [
        "-m",
        "jaxrecall.sweep",
        "--grid",
        "tiny.yaml",
        "--out",
        "own 0",
    ]
    assert main(argv[3:]) == 0
    assert survey("own 0")["todo"] == 0


@pytest.mark.parametrize(
    "flag", ["--shard 0/2", "--shard=0/2", "--sh 0/2", "--shar=1/2", ""]
)
def test_the_command_for_all_shards_has_no_shard(flag):
    command = f"jaxrecall sweep --set name=x {flag} --slurm 'a=b c'"
    assert shlex.split(without_shard(command)) == [
        "jaxrecall",
        "sweep",
        "--set",
        "name=x",
        "--slurm",
        "a=b c",
    ]
    assert shlex.split(without_shard(f"jaxrecall sweep {flag}")) == [
        "jaxrecall",
        "sweep",
    ]


def test_several_folders_are_refused_with_one_line_where_one_is_none(grid, capsys):
    assert compact(["absent"]) == 2
    assert capsys.readouterr().err.startswith("no rows in absent: ")
    assert not Path("absent").exists()
    assert status(["absent"]) == 2
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith("absent: is not a results folder")
    )
    Path("a/parts").mkdir(parents=True)
    assert fit(["a", "absent"]) == 2
    assert capsys.readouterr().err.startswith("no rows in a, absent: ")
    assert (
        fit(
            [
                str(ROOT / "results/study" / name)
                for name in ("law-exact", "sensitivity")
            ]
        )
        == 2
    )
    assert capsys.readouterr().err.startswith(
        "--out: nothing given; needed with 2 folders"
    )


def test_urls_are_refused(grid, capsys):
    for url in ("s3://bucket/tiny", "file:///tmp/tiny"):
        assert main(["--grid", "tiny.yaml", "--out", url]) == 2
        assert capsys.readouterr().err.startswith(
            f"{url}: is not on this machine's file systems; allowed: a folder, on a"
            " network"
        )
    assert os.listdir() == ["tiny.yaml"]


def test_a_wrong_shard_is_one_line_and_leaves_nothing(grid, capsys):
    assert main(["--grid", "tiny.yaml", "--shard", "5/4"]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    search = [
        "--set",
        "blocks=[{axes: {d: [8]}}]",
        "--set",
        "seeds.count=12",
        "--set",
        "search={axis: N, theta: 0.5}",
    ]
    assert main(["--grid", "tiny.yaml", *search, "--shard", "0/2"]) == 2
    assert capsys.readouterr().err.startswith(
        "--shard: got shard 0/2 (--shard) for a search"
    )
    assert os.listdir() == ["tiny.yaml"]
