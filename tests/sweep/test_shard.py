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

from jaxrecall import Point, load
from jaxrecall.compact import main as compact
from jaxrecall.errors import UsageError
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.status import survey
from jaxrecall.sweep.__main__ import main
from jaxrecall.sweep.grid import as_grid
from jaxrecall.sweep.plan import Shard, chosen_shard, without_shard
from jaxrecall.sweep.simulators.shipped import RECALL

POINTS = [
    Point(V=V, N=N, d=d, L=L)
    for V in (20, 300)
    for d in (16, 90)
    for L in (3, 40)
    for N in (100, 5000, 70000)
]


PROGRAMS = RECALL.programs(dict.fromkeys(POINTS, 5))


def cost(runs) -> float:
    return sum(RECALL.cost(PROGRAMS[point], point).seconds for point, _ in runs)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 200])
def test_shards_are_the_grid_alike_in_cost_and_near_in_size(count):
    grid = as_grid(POINTS, seeds=5)
    shares = [Shard(i, count, "").of(grid) for i in range(count)]
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


def of_slurm(task: int, first: int, last: int, step: int, count: int) -> dict[str, str]:
    """What Slurm 22.05 tells a task of an array."""
    facts = {"ID": task, "MIN": first, "MAX": last, "STEP": step, "COUNT": count}
    return {f"SLURM_ARRAY_TASK_{name}": str(fact) for name, fact in facts.items()}


def of_grid_engine(task: str, first: str, last: str, step: str) -> dict[str, str]:
    facts = {"ID": task, "FIRST": first, "LAST": last, "STEPSIZE": step}
    return {f"SGE_TASK_{name}": fact for name, fact in facts.items()}


NO_ARRAY = "undefined"
"""What Grid Engine tells a job that is not in an array."""


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        (None, {}, None),
        ("1/4", of_slurm(0, 0, 1, 1, 2), (1, 4)),
        ("1/4", {"PBS_ARRAY_INDEX": "3"}, (1, 4)),
        (None, of_slurm(6, 0, 7, 2, 4), (3, 4)),
        (None, of_grid_engine(*[NO_ARRAY] * 4), None),
        (None, {"LSB_JOBINDEX": "0", "LSB_JOBINDEX_STEP": "1"}, None),
        (None, {"PBS_ARRAYID": "", "SLURM_ARRAY_TASK_ID": ""}, None),
    ],
)
def test_the_flag_comes_before_the_environment(given, environment, expected):
    shard = chosen_shard(given, environment)
    assert (shard and shard[:2]) == expected
    assert shard is None or shard.source


@pytest.mark.parametrize("count", [2, 5, 16])
@pytest.mark.parametrize(("first", "step"), [(0, 1), (1, 1), (7, 3)])
@pytest.mark.parametrize("scheduler", ["Slurm", "Grid Engine"])
def test_the_tasks_of_an_array_are_all_shares(scheduler, first, step, count):
    last = first + (count - 1) * step + (step - 1)
    shards = []
    for task in range(first, last + 1, step):
        if scheduler == "Slurm":
            highest = first + (count - 1) * step
            environment = of_slurm(task, first, highest, step, count)
        else:
            # Grid Engine tells the last number of -t, which need not be a task
            environment = of_grid_engine(*map(str, (task, first, last, step)))
        shards.append(chosen_shard(None, environment))
    assert [shard and shard[:2] for shard in shards] == [
        (i, count) for i in range(count)
    ]


OF_STEP = [
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
]


@pytest.mark.parametrize(("rank", "size"), OF_STEP)
def test_processes_that_are_started_together_divide_the_share_of_their_task(rank, size):
    def chosen(i, **more):
        shard = chosen_shard(None, {rank: str(i), size: "3", **more})
        assert f"{rank} {i}" in shard.source
        return shard[:2]

    assert [chosen(i) for i in range(3)] == [(i, 3) for i in range(3)]
    of_both = [
        chosen(i, **of_slurm(task, 0, 1, 1, 2)) for task in range(2) for i in range(3)
    ]
    assert of_both == [(i, 6) for i in range(6)]


@pytest.mark.parametrize(("rank", "size"), OF_STEP)
def test_a_single_process_and_the_flag_are_not_divided(rank, size):
    assert chosen_shard(None, {rank: "0", size: "1"}) is None
    assert chosen_shard("0/1", {rank: "1", size: "2"})[:2] == (0, 1)
    assert chosen_shard(None, of_slurm(3, 3, 3, 1, 1)) is None
    # what the script of a job with two tasks sees before it calls srun
    script = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_SUBMIT_DIR": "."}
    assert chosen_shard(None, script) is None


@pytest.mark.parametrize("given", ["5/4", "4/4", "-1/4", "0/0", "half"])
def test_a_wrong_share_is_refused(given):
    with pytest.raises(
        UsageError, match=f"^--shard: got {given}; allowed: i/n with i fr"
    ):
        chosen_shard(given, {})


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        ("SLURM_ARRAY_TASK_ID", of_slurm(3, 3, 7, 1, 2)),
        ("SLURM_ARRAY_TASK_ID", of_slurm(1, 0, 6, 2, 4)),
        ("SLURM_ARRAY_TASK_ID", of_slurm(9, 0, 7, 1, 8)),
        ("SLURM_ARRAY_TASK_ID", of_slurm(0, 0, 0, 0, 1)),
        ("SLURM_ARRAY_TASK_ID", {"SLURM_ARRAY_TASK_COUNT": "4"}),
        ("SGE_TASK_ID", of_grid_engine("many", "1", "16", "1")),
        ("PBS_ARRAY_INDEX", of_grid_engine(*[NO_ARRAY] * 4)),
        ("PBS_ARRAYID", {}),
        ("LSB_JOBINDEX", {"LSB_JOBINDEX_END": "16"}),
    ],
)
def test_an_array_with_gaps_or_of_unknown_size_is_refused(name, environment):
    environment = {name: "3", "LSB_JOBINDEX_END": "16"} | environment
    told = (
        f"^{name}: got {environment[name]}, of an array with gaps or of unknown size;"
    )
    shares = rf'"\${name}/16" for .* "\$\(\({name} - 1\)\)/16" for'
    with pytest.raises(UsageError, match=f"{told} .* {shares}"):
        chosen_shard(None, environment)


GRID = """
name: tiny
base: {V: 20, L: 3, n_test: 200}
seeds: {count: 5}
blocks: [{axes: {d: [8, 12], N: [100, 600]}}]
"""


@pytest.fixture
def grid(cwd) -> None:
    Path("tiny.yaml").write_text(GRID)


def sweep(*words: str) -> int:
    return main(["--grid", "tiny.yaml", *words])


def rows_of(*folders: str):
    """All rows; none twice."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return load(list(folders))


def test_a_dry_run_has_the_figures_of_the_shard(grid, capsys):
    told = []
    for i in range(3):
        assert sweep("--shard", f"{i}/3", "--dry-run", "--json") == 0
        told.append(json.loads(capsys.readouterr().out))
    for count in ("runs", "todo"):
        assert sum(facts[count] for facts in told) == 20
    assert all(5 <= facts["runs"] <= 9 and facts["points"] in (2, 3) for facts in told)
    assert sweep("--shard", "1/3", "--dry-run") == 0
    of_shard = f"shard 1/3 (--shard): {told[1]['runs']} of these runs"
    assert of_shard in capsys.readouterr().out


def test_shards_share_a_folder_or_have_their_own(grid, capsys, monkeypatch):
    assert sweep("--shard", "0/2") == 0
    assert "tiny, shard 0/2 (--shard): 0 of " in capsys.readouterr().out
    for name, value in of_slurm(1, 0, 1, 1, 2).items():
        monkeypatch.setenv(name, value)
    assert sweep() == 0
    out = capsys.readouterr().out
    assert "tiny, shard 1/2 (SLURM_ARRAY_TASK_ID 1): 0 of " in out
    assert "figure" not in out, "a shard has no figure"
    assert len(rows_of("results/tiny")) == 20
    assert sweep() == 0
    done = "runs of shard 1/2 (SLURM_ARRAY_TASK_ID 1) are in results/tiny"
    assert done in capsys.readouterr().out
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID")
    for i in range(2):
        assert sweep("--shard", f"{i}/2", "--out", f"own-{i}") == 0
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
    assert sweep("--out", "own 0", "--shard", "0/2") == 0
    words = shlex.split(survey("own 0")["command"])[1:]
    assert words[:2] == ["-m", "jaxrecall.sweep"]
    assert words[2:] == ["--grid", "tiny.yaml", "--out", "own 0"]
    assert main(words[2:]) == 0
    assert survey("own 0")["todo"] == 0


@pytest.mark.parametrize(
    "flag", ["--shard 0/2", "--shard=0/2", "--sh 0/2", "--shar=1/2", ""]
)
def test_the_command_for_all_shards_has_no_shard(flag):
    command = f"jaxrecall sweep --set name=x {flag} --slurm 'a=b c'"
    words = ["jaxrecall", "sweep", "--set", "name=x", "--slurm", "a=b c"]
    assert shlex.split(without_shard(command)) == words
    assert without_shard(f"jaxrecall sweep {flag}").split() == words[:2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--out", "s3://bucket/tiny"), "s3://bucket/tiny: is not on this machine's"),
        (("--out", "file:///tmp/tiny"), "file:///tmp/tiny: is not on this machine's"),
        (("--shard", "5/4"), "--shard: got 5/4"),
    ],
)
def test_a_wrong_word_is_one_line_and_leaves_nothing(grid, capsys, words, told):
    assert sweep(*words) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert err.startswith(told)
    assert os.listdir() == ["tiny.yaml"]


def test_a_search_is_not_divided(grid, capsys):
    searched = GRID.replace(", N: [100, 600]", "").replace("count: 5", "count: 20")
    Path("searched.yaml").write_text(f"{searched}search: {{axis: N}}\n")
    assert main(["--grid", "searched.yaml", "--shard", "1/4"]) == 2
    told = "search: got shard 1/4 (--shard); allowed: one process, or --workers or "
    assert capsys.readouterr().err.startswith(told)
    assert not Path("results").exists()
