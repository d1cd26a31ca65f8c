"""The command line as a user meets it: from a grid to a table and a picture, again and
again, and all that can go wrong.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers import METRICS, NO_FIGURE, ROOT, assert_same_metrics, python

from jaxrecall import Point, load, simulate
from jaxrecall.compact import main as compact
from jaxrecall.model.columns import CODE_VERSION, COLUMNS, EXTRA_COLUMNS, TRACE_COLUMNS
from jaxrecall.model.point import Run
from jaxrecall.simulator import program
from jaxrecall.sweep.__main__ import main
from jaxrecall.sweep.grid.file import Settings
from jaxrecall.sweep.plan import Chunk
from jaxrecall.sweep.running.call import Call
from jaxrecall.sweep.store import MemoryStore

GRID = """
name: tiny
base: {V: 20, L: 3, n_test: 200}
seeds: {count: 2}
blocks:
  - axes: {d: [8, 12], N: [100, 600]}
"""


@pytest.fixture
def grid(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text(GRID)
    return path


@pytest.fixture(scope="module")
def once(tmp_path_factory) -> Path:
    """A folder where the grid has run."""
    there = tmp_path_factory.mktemp("once")
    (there / "tiny.yaml").write_text(GRID)
    with contextlib.chdir(there):
        assert main(["--grid", "tiny.yaml", *NO_FIGURE]) == 0
    return there


@pytest.fixture
def swept(grid, once) -> Path:
    """Its results, in the current folder."""
    return shutil.copytree(once / "results", "results")


def facts(capsys, *argv: str) -> dict:
    capsys.readouterr()
    assert main([*argv, "--dry-run", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("with_figures")
def test_from_grid_to_table_and_picture(grid, capsys):
    assert main(["--grid", "tiny.yaml"]) == 0
    out = capsys.readouterr().out
    assert "accuracy, mean over 2 seeds; one column per d" in out
    assert "figure:  results/tiny/accuracy.png" in out
    assert Path("results/tiny/accuracy.png").read_bytes().startswith(b"\x89PNG")
    frame = load("results/tiny")
    assert list(frame.columns) == list(COLUMNS)
    assert len(frame) == 8
    row = (
        frame[(frame.N == 600) & (frame.d == 12) & (frame.seed == 1)].iloc[0].to_dict()
    )
    alone = simulate(Point(V=20, N=600, d=12, L=3, n_test=200), 1)
    nothing = [name for name, value in alone.items() if value is None]
    assert {*EXTRA_COLUMNS, *TRACE_COLUMNS} <= {*nothing}
    exact = alone.keys() - {*METRICS, *nothing}
    assert {name: row[name] for name in exact} == {name: alone[name] for name in exact}
    assert frame[nothing].isna().all(axis=None)
    assert_same_metrics(row, alone)
    manifest = json.loads(Path("results/tiny/manifest.json").read_text())
    assert manifest["grid"]["name"] == "tiny"
    assert {"jaxrecall", "jax", "numpy", "optax", "threadpoolctl"} <= manifest[
        "versions"
    ].keys()


def test_the_second_call_runs_nothing_and_a_grown_grid_runs_what_is_missing(
    grid, capsys
):
    assert facts(capsys, "--grid", "tiny.yaml") == facts(capsys, "--grid", "tiny.yaml")
    assert not Path("results").exists()  # a dry run leaves nothing
    assert main(["--grid", "tiny.yaml"]) == 0
    parts = set(Path("results/tiny/parts").iterdir())
    assert main(["--grid", "tiny.yaml"]) == 0
    assert "nothing to do: all 8 runs are in results/tiny" in capsys.readouterr().out
    assert set(Path("results/tiny/parts").iterdir()) == parts
    assert main(["--grid", "tiny.yaml", "--json-log"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == ["start", "picture", "done"]
    assert (
        events[0]["done"],
        events[0]["todo"],
        events[-1]["runs_executed"],
        events[-1]["exit_code"],
    ) == (8, 0, 0, 0)
    sets = ("seeds.count=3", "blocks.0.axes.d=[12, 8, 16]", "name=other")
    more = (
        "--grid",
        "tiny.yaml",
        "--out",
        "results/tiny",
        *(part for one in sets for part in ("--set", one)),
    )
    told = facts(capsys, *more)
    assert [told[key] for key in ("points", "runs", "done", "todo")] == [6, 18, 8, 10]
    before = load("results/tiny").set_index(["point_id", "seed"])
    assert main([*more]) == 0
    after = load("results/tiny").set_index(["point_id", "seed"])
    assert len(after) == 18
    assert after.loc[before.index].equals(before)


def test_another_experiment_in_the_same_folder_is_noted(swept, capsys):
    assert main(["--grid", "tiny.yaml", *NO_FIGURE, "--set", "seeds=3"]) == 0
    assert main(["--grid", "tiny.yaml", "--shard", "0/2"]) == 0
    assert "note" not in capsys.readouterr().err
    assert (
        main(
            [
                "--grid",
                "tiny.yaml",
                "--set",
                "base.kappa=5",
                "--set",
                "seeds=1",
                "--dry-run",
            ]
        )
        == 0
    )
    assert (
        capsys.readouterr().err
        == "note: results/tiny also holds 12 runs of points not in this grid; load, fit"
        " and report read them too. --out DIR keeps grids apart\n"
    )


def test_settings_of_further_steps_that_have_no_effect_are_noted(grid, capsys):
    trained = [
        "--grid",
        "tiny.yaml",
        "--dry-run",
        "--set",
        "base.optimizer=adam",
        "--set",
        "base.lr=0.1",
    ]
    assert main(trained) == 0
    said = (
        "note: optimizer, lr: no effect, as no point takes more than the three steps;"
        " steps: 100 takes 97 more\n"
    )
    assert capsys.readouterr().err == said
    assert main([*trained, "--set", "base.steps=5"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_runs_that_take_no_shortcut_are_announced_where_they_take_long(
    grid, capsys, monkeypatch
):
    monkeypatch.setattr("jaxrecall.sweep.running.runner.ANNOUNCED_SECONDS", 0.0)
    # errors with this activation are not foreseen
    assert (
        main(
            [
                "--grid",
                "tiny.yaml",
                *NO_FIGURE,
                "--set",
                "base.m=8",
                "--set",
                "base.activation=identity",
                "--json-log",
            ]
        )
        == 0
    )
    events = map(json.loads, capsys.readouterr().out.splitlines())
    (said,) = (event["text"] for event in events if event["event"] == "message")
    n_full = (load("results/tiny").form == "full").sum()
    assert said.endswith(
        f": {n_full} runs may not take a shortcut, about 0.0 s more; a smaller eta may"
        " allow it, as 1e-06"
    )


@pytest.mark.filterwarnings("ignore:dropped 8 rows")
def test_the_printed_folder_holds_the_rows_before_and_after_compact(grid, capsys):
    places = "parts", "parts and results/tiny/table.parquet", "table.parquet"
    for options, place in zip((None, [], ["--prune"]), places, strict=True):
        assert options is None or compact(["results/tiny", *options]) == 0
        assert main(["--grid", "tiny.yaml"]) == 0
        assert (
            f"table:   results/tiny/{place} (8 runs of this grid;"
            " jaxrecall.load('results/tiny'))\n" in capsys.readouterr().out
        )
        assert len(load("results/tiny").drop_duplicates(["point_id", "seed"])) == 8


def test_a_grown_or_reordered_grid_runs_exactly_what_is_missing(grid, capsys):
    def counts(*sets: str) -> list[int]:
        told = facts(
            capsys,
            "--grid",
            "tiny.yaml",
            "--out",
            "all",
            *(part for one in sets for part in ("--set", one)),
        )
        return [told[key] for key in ("runs", "done", "todo")]

    few = (
        *NO_FIGURE,
        "--set",
        "blocks.0.axes.N=100",
        "--set",
        "seeds.count=64",
        "--json-log",
    )
    assert main(["--grid", "tiny.yaml", "--out", "all", *few]) == 0
    parts = set(Path("all/parts").iterdir())
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["runs_executed"] == 128
    assert counts("blocks.0.axes.N=100", "seeds.count=64") == [128, 128, 0]
    assert counts("blocks.0.axes.N=100", "seeds.count=80") == [160, 128, 32]
    assert counts("blocks.0.axes.N=100", "seeds={start: 60, count: 8}") == [16, 8, 8]
    assert counts("blocks.0.axes.N=[50, 100]", "seeds.count=64") == [256, 128, 128]
    assert counts(
        "blocks.0.axes={N: 100, d: [12, 8]}", "seeds.count=64", "name=other"
    ) == [128, 128, 0]
    assert counts("blocks.0.axes.N=100", "seeds.count=64", "root_seed=1") == [
        128,
        0,
        128,
    ]
    assert (
        main(
            [
                "--grid",
                "tiny.yaml",
                "--out",
                "all",
                *few,
                "--set",
                "seeds.count=80",
                "--set",
                "name=other",
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["runs_executed"] == 32
    assert parts < set(Path("all/parts").iterdir())
    assert len(load("all")) == 160


def test_damaged_and_foreign_files_are_told_and_their_runs_run_again(grid, capsys):
    assert main(["--grid", "tiny.yaml", *NO_FIGURE, "--set", "run.part_seconds=0"]) == 0
    before = load("results/tiny").set_index(["point_id", "seed"])
    parts = sorted(Path("results/tiny/parts").iterdir())
    assert len(parts) == 8
    parts[0].write_bytes(parts[0].read_bytes()[:5000])
    parts[1].unlink()
    Path("results/tiny/parts/notes.txt").write_text("mine")
    capsys.readouterr()
    assert main(["--grid", "tiny.yaml", "--json-log"]) == 0
    out, err = capsys.readouterr()
    events = [json.loads(line) for line in out.splitlines()]
    assert list(dict.fromkeys(event["event"] for event in events)) == [
        "start",
        "compiling",
        "compiled",
        "batch",
        "part",
        "picture",
        "done",
    ]
    assert (events[0]["done"], events[-1]["runs_executed"]) == (6, 2)
    assert [line.partition(": ")[0] for line in err.splitlines()] == [
        str(parts[0]),
        "results/tiny/parts/notes.txt",
    ]
    assert Path("results/tiny/parts/notes.txt").read_text() == "mine"
    with pytest.warns(UserWarning, match="2 unreadable files left out"):
        after = load("results/tiny").set_index(["point_id", "seed"])
    for (_, a), (_, b) in zip(before.iterrows(), after.iterrows(), strict=True):
        assert_same_metrics(a.to_dict(), b.to_dict())


def test_dry_run_json_is_one_object_with_the_promised_keys(grid, capsys):
    told = facts(capsys, "--grid", "tiny.yaml")
    cost = ["est_flops", "est_seconds", "est_peak_bytes"]
    assert list(told) == [
        "points",
        "runs",
        "done",
        "todo",
        "programs",
        "program_list",
        *cost,
        "program_reason",
        "engine",
        "workers",
        "requests",
    ]
    assert (
        told["points"],
        told["runs"],
        told["done"],
        told["todo"],
        told["programs"],
        len(told["program_list"]),
    ) == (4, 8, 0, 8, 1, 1)
    assert main(["--grid", "tiny.yaml", "--dry-run"]) == 0
    assert "4 points x 2 seeds = 8 runs" in capsys.readouterr().out


def test_a_dry_run_with_nothing_to_do_says_so_and_names_no_worker(swept, capsys):
    for more in ([], ["--workers", "2"]):
        assert main(["--grid", "tiny.yaml", "--dry-run", *more]) == 0
        assert (
            capsys.readouterr().out
            == "tiny: 4 points x 2 seeds = 8 runs\nnothing to do: all 8 runs are in"
            " results/tiny\n"
        )


def test_programs_of_a_dry_run_have_labels_of_their_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    base = {"V": 64, "L": 16, "N": 4096, "d": 32, "eta": 1e-6}
    axes = {
        "exact": ["guarded", "full"],
        "embedding": ["gaussian", "clustered", "low_rank(rank=4)"],
        "m": [0, 32],
    }
    Path("grid.yaml").write_text(
        json.dumps({"name": "alike", "base": base, "blocks": [{"axes": axes}]})
    )
    assert main(["--grid", "grid.yaml", "--dry-run"]) == 0
    labels = re.findall(
        r"^  program (.*): 1 point, ", capsys.readouterr().out, flags=re.MULTILINE
    )
    assert len({*labels}) == len(labels) == 12
    assert {"64x32 counts", "64x32x32 relu low_rank(rank=4)"} <= {*labels}
    assert (
        main(["--grid", "grid.yaml", "--dry-run", "--set", "blocks.0.axes={d: [32]}"])
        == 0
    )
    assert "  program 64x32 counts: 1 point" in capsys.readouterr().out


def a_call(n: int) -> tuple[Call, Chunk]:
    """Of n runs that take a second each."""
    point = Point(V=20, N=100, d=8, L=3)
    chunk = Chunk("16x16", tuple(Run(point, seed) for seed in range(n)), float(n))
    return (
        Call(
            MemoryStore(), Settings(part_seconds=1000), n_runs=n, est_seconds=float(n)
        ),
        chunk,
    )


def traces(*accuracy: float) -> list[list[dict[str, object]]]:
    return [[{"accuracy": each, "status": "ok"}] for each in accuracy]


def test_the_time_left_counts_programs_that_are_still_to_be_compiled():
    call, chunk = a_call(4)
    call.n_programs = 3
    call.handle(("compiled", "16x16", 10.0))
    call.start = time.monotonic() - 11.0  # of which 1 s went to runs
    call.take(chunk.part(chunk.runs[:2]), traces(0.5, 0.5))
    assert call.eta == pytest.approx(1.0 + 2 * 10.0, abs=0.1)
    for _ in range(3):  # workers compile some programs more than once
        call.handle(("compiled", "16x16", 0.0))
    assert call.eta == pytest.approx(1.0, abs=0.1)


def test_the_line_of_progress_says_whose_accuracy_it_is():
    call, chunk = a_call(4)
    call.take(chunk.part(chunk.runs[:2]), traces(0.25, 0.5))
    assert "2/4 runs" in call.summary()
    assert "last accuracy 0.50" in call.summary()


@pytest.mark.slow
def test_programs_traced_are_programs_planned_and_traced_once(
    grid, capsys, monkeypatch
):
    traced = []
    draw = program.draw
    monkeypatch.setattr(
        program,
        "draw",
        lambda run, shape, axis: traced.append(shape) or draw(run, shape, axis),
    )
    program.forget()
    call = [
        "--grid",
        "tiny.yaml",
        *NO_FIGURE,
        "--set",
        "base.eta=1e-6",
        "--set",
        "blocks.0.axes.m=[0, 32]",
    ]
    planned = facts(capsys, *call)["programs"]
    assert main(call) == 0
    assert len(traced) == planned == 2
    assert main([*call, "--set", "seeds.count=3", "--out", "again"]) == 0
    assert len(traced) == planned


def test_resume_reads_the_compacted_table(swept, capsys):
    assert compact(["results/tiny", "--prune"]) == 0
    assert not list(Path("results/tiny/parts").iterdir())
    assert facts(capsys, "--grid", "tiny.yaml")["todo"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flag", "shape", "eta"),
    [
        ("--pad-to", "64x32", "1e-6"),
        *(
            # each compiles programs of its own
            pytest.param(*more, marks=pytest.mark.slow)
            for more in (
                ("--bucket", "20x12", "1e-6"),
                ("--bucket", "20x12", "1e-3"),
                ("--pad-to", "64x32", "1e-3"),
                ("--pad-to", "33x40", "1e-3"),
                ("--pad-to", "33x40", "1e-6"),
            )
        ),
    ],
)
def test_a_forced_bucket_changes_no_row(grid, flag, shape, eta):
    call = ["--grid", "tiny.yaml", *NO_FIGURE, "--set", f"base.eta={eta}"]
    assert main(call) == 0
    assert main([*call, flag, shape, "--out", "forced"]) == 0
    a, b = load("results/tiny"), load("forced")
    assert set(b["bucket"]) == {shape}
    assert a["form"].equals(b["form"])
    assert ("full" in set(a["form"])) == (eta == "1e-3")
    for (_, x), (_, y) in zip(a.iterrows(), b.iterrows(), strict=True):
        assert (x["point_id"], x["seed"], x["draw_check"]) == (
            y["point_id"],
            y["seed"],
            y["draw_check"],
        )
        assert_same_metrics(x.to_dict(), y.to_dict())


def test_a_grid_is_run_from_python_without_a_word(grid, capsys):
    """The command line is one caller of many: same job, same rows, nothing printed."""
    from jaxrecall.cli.process import Interrupts
    from jaxrecall.sweep.grid import read_grid
    from jaxrecall.sweep.running.job import carry_out, prepare
    from jaxrecall.sweep.running.runner import execute

    the_grid = read_grid("tiny.yaml", ["base.eta=1e-6"])
    job = prepare(the_grid, "out", pad_to=(20, 12, 0))
    assert not Path("out").exists()
    outcome = carry_out(job, execute, None, Interrupts())
    assert (outcome.runs, outcome.exit_code, outcome.unsaved) == (8, 0, 0)
    frame = load("out")
    assert set(frame["bucket"]) == {"20x12"}
    assert outcome.accuracy == dict(
        zip(zip(frame.point_id, frame.seed, strict=True), frame.accuracy, strict=True)
    )
    again = prepare(the_grid, "out")
    assert not again.to_do
    outcome = carry_out(again, execute, None, Interrupts())
    assert (outcome.runs, outcome.exit_code, outcome.accuracy) == (0, 0, {})
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("with_figures")
def test_a_point_that_overflows_is_a_row_not_a_crash(grid, capsys):
    assert (
        main(
            [
                "--grid",
                "tiny.yaml",
                "--set",
                "blocks.0.axes.eta=[0.001, 1e300]",
                "--set",
                "base.gamma=1.0",
            ]
        )
        == 0
    )
    frame = load("results/tiny")
    assert frame["status"].value_counts().to_dict() == {"ok": 8, "nonfinite": 8}
    assert (
        frame.loc[frame.status == "nonfinite", ["n_correct", "accuracy", "snr"]]
        .isna()
        .all(axis=None)
    )
    assert "8 non-finite runs are not drawn" in capsys.readouterr().out


def test_rows_of_another_version_do_not_mix(swept, capsys):
    assert main(["--grid", "tiny.yaml", "--set", "run.precision=high"]) == 2
    err = capsys.readouterr().err
    version = f"code_version {CODE_VERSION}, precision"
    assert (
        f"holds 8 runs of {version} highest; this call would add {version} high" in err
    )
    assert "Choose another --out" in err


BAD = {
    "base: {V: -3, N: 5, d: 4, L: 2}": [
        "bad.yaml:1: base.V: got -3; allowed: whole numbers from 2 to 65536"
    ],
    "base: {V: 8, N: 5, d: 4, L: 2, W: 1}": ["bad.yaml:1: base.W"],
    "base: {V: 8, N: five, d: 4, L: 2}": ["base.N: got 'five'; allowed: whole numbers"],
    "base: {V: 8, N: 5, d: 4, L: 2}\nbase: {V: 9}": ["bad.yaml:2: base"],
    "base: {V: 8, N: 5, d: 4, L: 2}\nblocks: [{axes: {d: []}}]": ["blocks.0.axes.d"],
    "base: {V: 8, N: 5, d: 9, L: 2, embedding: orthogonal}": [
        "d: got 9 with orthogonal embeddings and V=8; allowed: d >= V + 2 = 10"
    ],
    "base: {V: 8, N: 5, d: 4, L: 2, gamma: 1, kappa: 1}": ["got both kappa and gamma"],
    "base: {V: 8, N: 5, d: 4, L: 2}\nblocks: [{axes: {d: [4, 5]}, where: ['d > 9']}]": [
        "where"
    ],
    "base: {V: 8, N: 5, d: 4, L: 2}\nblocks: [{axes: {d: [4, 5]}, where: ['open(\"x\")']}]": [  # noqa: E501
        "where"
    ],
    "base: {V: 8, N: 5, d: 4, L: 2}\nseeds: {count: 50}\nlimits: {max_runs: 10}": [
        "limits.max_runs",
        "50",
    ],
    "base: {V: 8, N: 5, d: 4, L: 2}\nlimits: {max_bytes: 1KiB}": [
        "limits.max_bytes: program 16x16 needs about"
    ],
    "name: ../x\nbase: {V: 8, N: 5, d: 4, L: 2}": ["name"],
    "name: [\n": ["bad.yaml:2"],
    "base: {V: 1, N: 0, d: 4, L: 2}\nrun: {precision: low}\nlimits: {max_run: 3}": [
        "base.V",
        "base.N",
        "run.precision",
        "limits.max_run",
    ],
}


@pytest.mark.parametrize(("text", "told"), BAD.items())
def test_a_bad_grid_is_refused_in_plain_lines(grid, capsys, text, told):
    Path("bad.yaml").write_text(text)
    assert main(["--grid", "bad.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert len(err.splitlines()) == (len(told) if len(told) > 2 else 1), err
    assert all(line in err for line in told), err
    assert sorted(p.name for p in Path().iterdir()) == ["bad.yaml", "tiny.yaml"]


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "--grid: nothing given"),
        (["--grid", "absent.yaml"], "absent.yaml"),
        (["--grid", "."], ".: "),
        (["--grid", "tiny.yaml", "--out", "tiny.yaml"], "tiny.yaml is not a folder"),
        (
            ["--grid", "tiny.yaml", "--out", "tiny.yaml/below"],
            "tiny.yaml is not a folder",
        ),
        (["--grid", "tiny.yaml", "--set", "base.W=1"], "--set base.W=1"),
        (["--grid", "tiny.yaml", "--set", "bases.V=1"], "--set bases.V=1"),
        (["--grid", "tiny.yaml", "--set", "base.V"], "--set base.V"),
        (["--grid", "tiny.yaml", "--bucket", "8"], "--pad-to: got '8'"),
        (["--grid", "tiny.yaml", "--pad-to", "8"], "--pad-to: got '8'"),
        (
            ["--grid", "tiny.yaml", "--bucket", "8x8"],
            "--pad-to: got 8x8, too small for 4 points; allowed: at least 20x12",
        ),
        (["--grid", "tiny.yaml", "--json"], "--json: got without --dry-run"),
        (
            ["--grid", "tiny.yaml", "--dry-run", "--json-log"],
            "--json-log: got with --dry-run; allowed: without it",
        ),
    ],
)
def test_bad_arguments_are_one_line_and_leave_nothing(grid, capsys, argv, told):
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert told in err
    assert [p.name for p in Path().iterdir()] == ["tiny.yaml"]


def test_an_unknown_flag_is_usage(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--grids", "x"])
    assert stop.value.code == 2


@pytest.mark.usefixtures("with_figures")
@pytest.mark.parametrize(
    ("raised", "why"),
    [
        (None, "import of jaxrecall.analysis.figures.charts halted"),
        (MemoryError(), "MemoryError"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
    ],
)
def test_a_figure_that_cannot_be_made_is_a_remark(
    grid, capsys, monkeypatch, raised, why
):
    def refuse(*_: object) -> None:
        raise raised

    if raised:
        monkeypatch.setattr("jaxrecall.analysis.figures.charts.draw_sweep", refuse)
    else:
        monkeypatch.setitem(sys.modules, "jaxrecall.analysis.figures.charts", None)
    assert main(["--grid", "tiny.yaml", "--json-log"]) == 0
    out, err = capsys.readouterr()
    done = json.loads(out.splitlines()[-1])
    assert (done["event"], done["exit_code"], done["runs_executed"]) == ("done", 0, 8)
    (remark,) = (line for line in err.splitlines() if "figure" in line)
    assert remark.startswith(f"the figure could not be made: {why}")
    assert "To try again: python" in remark


@pytest.mark.usefixtures("with_figures")
def test_a_figure_that_is_missing_is_made_by_the_next_call(grid, capsys, monkeypatch):
    figure = Path("results/tiny/accuracy.png")
    with monkeypatch.context() as broken:
        charts = "jaxrecall.analysis.figures.charts"
        broken.setattr(f"{charts}.draw_sweep", lambda *_: 1 / 0)
        assert main(["--grid", "tiny.yaml"]) == 0
    out, _ = capsys.readouterr()
    assert "\ntable: " in out, "the table does not depend on the figure"
    assert not figure.exists()
    for _ in range(2):
        assert main(["--grid", "tiny.yaml"]) == 0
        assert "\nfigure: " in capsys.readouterr().out
        figure.unlink()


FAILS = """
import resource, sys
import jax
from jaxrecall.sweep import main
import jaxrecall.sweep.running.runner
jax.numpy.zeros(3)
size = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + 4 * 10**9,) * 2)  # a real lack of memory: one program asks for more
sys.exit(main(sys.argv[1:]))
"""  # noqa: E501
FAILING = """
limits: {max_bytes: 1TiB}
base: {V: 20, N: 100, L: 2, n_test: 10, exact: full}
blocks:
  - axes: {d: [8, 12]}
  - axes: {d: [4000], V: [65000]}
"""


@pytest.mark.system
@pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="needs RLIMIT_AS and /proc, which this system lacks",
)
def test_a_chunk_that_fails_is_told_and_the_rest_goes_on(grid, capsys):
    Path("fails.yaml").write_text(FAILING)
    command = [sys.executable, "-c", FAILS, "--grid", "fails.yaml", *NO_FIGURE]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 3, done.stderr
    assert "failed: 1 run of program 65536x4096" in done.stderr
    assert "to try again: python" in done.stderr
    assert len(load("results/fails")) == 2
    record = json.loads(next(Path("results/fails/failures").iterdir()).read_text())
    assert "Out of memory" in record["error"]
    assert "--grid fails.yaml" in record["repeat"]
    assert facts(capsys, "--grid", "fails.yaml")["todo"] == 1


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_signal_while_jax_starts_ends_the_sweep(grid, capsys, number):
    call = [sys.executable, "-m", "jaxrecall.sweep", "--grid", "tiny.yaml"]
    sweep = subprocess.Popen(
        call,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    while (
        "jaxlib" not in Path(f"/proc/{sweep.pid}/maps").read_text()
        and sweep.poll() is None
    ):
        time.sleep(0.01)
    sweep.send_signal(number)
    _, err = sweep.communicate(timeout=60)
    assert sweep.returncode == 130, err
    assert err.startswith("interrupted; finished runs are kept. To resume: python")
    assert facts(capsys, "--grid", "tiny.yaml")["done"] == 0


CACHED = """
import jax, sys
from collections import Counter
from jaxrecall.sweep import main
events = Counter()
jax.monitoring.register_event_listener(lambda event, **_: events.update([event.rsplit("/", 1)[1]]))
assert main(["--grid", "tiny.yaml", "--out", sys.argv[1]]) == 0
print(events["cache_hits"], events["cache_misses"])
"""  # noqa: E501


@pytest.mark.system
def test_a_second_process_compiles_nothing(grid, tmp_path):
    def events(out: str) -> list[int]:
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "JAXRECALL_CACHE": str(tmp_path / "cache"),
        }
        del env["JAX_COMPILATION_CACHE_DIR"]  # that of the tests
        told = subprocess.run(
            [sys.executable, "-c", CACHED, out],
            capture_output=True,
            text=True,
            timeout=300,
            env=env,
        )
        assert told.returncode == 0, told.stderr
        return [int(n) for n in told.stdout.splitlines()[-1].split()]

    assert events("first") == [0, 1]
    assert events("second") == [1, 0]
    a, b = load("first"), load("second")
    assert a.drop(columns="seconds").equals(b.drop(columns="seconds"))


JAX_FREE = """
import contextlib, os, sys
from jaxrecall.sweep import main
grid = ["--grid", "tiny.yaml"]
for argv, code in (
    (["--help"], 0), (["--print-schema"], 0), ([*grid, "--dry-run"], 0), ([*grid, "--dry-run", "--json"], 0),
    (["--grid", "absent.yaml"], 2), ([*grid, "--set", "base.V=-1"], 2), (grid, 0),
):
    with contextlib.redirect_stdout(open(os.devnull, "w")), contextlib.redirect_stderr(open(os.devnull, "w")):
        try:
            assert main(argv) == code, argv
        except SystemExit as stop:
            assert stop.code == code
    assert not {"jax", "ray", "submitit"} & set(sys.modules), argv
import jaxrecall
assert len(jaxrecall.load("results/tiny")) == 8
from jaxrecall.compact import main as compact
assert compact(["results/tiny"]) == 0
assert "jax" not in sys.modules
"""  # noqa: E501


def test_what_needs_no_jax_does_not_start_it(swept):
    """Where the last call above has nothing to do."""
    done = python(
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r});"
        f" os.chdir({str(Path.cwd())!r})\n" + JAX_FREE
    )
    assert done.returncode == 0, done.stderr


def test_the_parts_carry_their_provenance(swept):
    part = next(Path("results/tiny/parts").iterdir())
    about = json.loads(pq.read_schema(part).metadata[b"jaxrecall"])
    assert (about["code_version"], about["precision"]) == (CODE_VERSION, "highest")


FAILING_LAW = """
import numpy as np
from dataclasses import dataclass
from jaxrecall.model.laws import EmbeddingLaw
from jaxrecall.model.values import parameter

@dataclass(frozen=True)
class Failing(EmbeddingLaw):
    p: float = parameter(0.0, "any number", low=0.0, high=1.0)

    def rows(self, draws, xp):
        if xp is not np:
            raise RuntimeError("only rows of NumPy")
        return draws.normals
"""

TWO_LAWS = """
name: laws
base: {V: 16, N: 64, L: 4, d: 8, n_test: 64, exact: full}
seeds: 1
blocks:
  - axes: {N: [32, 64]}
  - axes: {embedding: "failing:Failing", embedding.p: [0.1, 0.3]}
"""


@pytest.mark.usefixtures("with_figures")
def test_the_parameter_of_a_law_is_no_axis_before_a_run_with_the_law_has_finished(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("failing.py").write_text(FAILING_LAW)
    Path("laws.yaml").write_text(TWO_LAWS)
    assert main(["--grid", "laws.yaml"]) == 3
    out, err = capsys.readouterr()
    assert (
        out.index("one column per embedding")
        < out.index("gaussian")
        < out.index("figure:  results/laws/accuracy.png")
    )
    assert "the figure could not be made" not in err


# the names of its lines leave a small figure no room
@pytest.mark.usefixtures("with_figures")
@pytest.mark.filterwarnings("ignore:constrained_layout not applied")
def test_the_printed_table_has_the_rows_of_laws_without_a_parameter(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    laws = TWO_LAWS.replace("failing:Failing", "equicorrelated").replace(
        "embedding.p", "N: [32, 64], embedding.rho"
    )
    Path("laws.yaml").write_text(laws)
    assert main(["--grid", "laws.yaml"]) == 0
    table = capsys.readouterr().out.partition("one column per")[2]
    assert [
        word in table
        for word in ("gaussian", "equicorrelated(rho=0.1)", "equicorrelated(rho=0.3)")
    ] == [True] * 3
