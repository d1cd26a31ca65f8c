"""Runs of several rows: what a program recorded becomes rows, a run is its rows
together, and readers take the last unless asked.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from test_fit import table
from test_store import row
from tolerances import assert_close

import jaxrecall
import jaxrecall.report as report_cli
from jaxrecall import Point, fit, load, simulate, status
from jaxrecall.compact import compact
from jaxrecall.errors import StoreError
from jaxrecall.model.columns import CODE_VERSION, COLUMNS, TRACE_COLUMNS
from jaxrecall.model.point import TRAINING, Run, RunId
from jaxrecall.simulator.descent import MAX_RECORDED
from jaxrecall.simulator.forms import FORMS
from jaxrecall.simulator.rows import finish
from jaxrecall.sweep import plan as planning
from jaxrecall.sweep.__main__ import main as sweep
from jaxrecall.sweep.grid import read_grid
from jaxrecall.sweep.grid.file import Settings
from jaxrecall.sweep.running.call import Call
from jaxrecall.sweep.searches import Searches
from jaxrecall.sweep.store import Store
from jaxrecall.sweep.store.table import SCHEMA

# test_descent.py has the program of this optimiser, too
BASE = """base: {V: 20, d: 12, L: 3, n_test: 64, gamma2: 20, lr: 0.5, exact: full,
optimizer: "momentum(schedule='cosine', warmup=2)\""""
POINT = Point(**yaml.safe_load(BASE + "}")["base"], N=96, steps=7)
STEPS = (3, 5, 7)


def trace(i: int, *steps: int, **changes: object) -> list[dict]:
    """The rows of one run that recorded these steps, the last of them its end."""
    facts = {"steps": steps[-1], "code_version": CODE_VERSION}
    return [
        row(i, **{"step": step, "accuracy": step / 1000} | facts | changes)
        for step in steps
    ]


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store(tmp_path / "out")
    store.prepare({})
    return store


def runs_and_steps(frame: pd.DataFrame):
    return frame[["seed", "step"]].to_numpy().tolist()


# --- from what a program recorded to rows


COUNTS, SUMS = yaml.safe_load("""
- [n_correct, n_tied, n_top1, n_train_correct, recalled, n_step1, n_read, draw_check]
- [mass, margin, w_scale, trigger, score_std, trigger_cosine, loss, test_loss]
""")


def recorded() -> dict:
    """What a program might record of POINT."""
    i = np.arange(MAX_RECORDED, dtype=np.float32)
    raw = dict.fromkeys(COUNTS, 1 + i.astype(np.int32)) | {"own": {}, "finite": i >= 0}
    return raw | dict.fromkeys(SUMS, 1 + i) | {"norms": i[:, None] + np.ones(6)}


def rows_of(point: Point, **changes: object) -> list[dict]:
    raw = {"trace": recorded() | changes, "errors": None, "locked": None}
    rows = finish(raw, point, FORMS["full"])
    assert {len(row) for row in rows} == {len(rows[0])}
    return rows


@pytest.mark.parametrize(("kind", "name"), [(float, "float64"), (int, "int64")])
def test_a_number_under_the_name_of_its_column_goes_to_the_row(kind, name, monkeypatch):
    """A new column is declared and measured, and in no third place."""
    monkeypatch.setitem(COLUMNS, "entropy", (name, "of attention (nats)"))
    rows = rows_of(POINT, entropy=np.arange(MAX_RECORDED, dtype=name))
    values = [row["entropy"] for row in rows]
    assert values == [0, 1, 2]
    assert {*map(type, values)} == {kind}


def test_a_run_from_zero_has_no_step_1_and_no_direction_yet():
    scale = np.arange(MAX_RECORDED, dtype=np.float32)
    first, second, *_ = rows_of(POINT.replace(start="zero"), w_scale=scale)
    expected = {"step": 0, "status": "degenerate", "trigger_score": 0, "loss": 1}
    expected |= dict.fromkeys(["snr", "trigger_cosine", "step1_memory_accuracy"])
    assert first == first | expected | {"form": "descent"}
    assert second == second | {"step": 1, "status": "ok", "step1_memory_accuracy": None}


@pytest.mark.parametrize("name", ["finite", "loss", "test_loss", "norms", "w_scale"])
def test_rows_after_an_overflow_are_null_and_those_before_stay(name):
    values = recorded()[name]
    values[1:] = False if name == "finite" else np.inf
    first, _, last = rows_of(POINT, **{name: values})
    assert first == rows_of(POINT)[0]
    left = {"status": "nonfinite", "form": "full, descent", "draw_check": 3, "step": 7}
    assert last == dict.fromkeys(last) | left


# --- in the results folder


def test_a_run_is_done_when_its_last_step_is_there(store):
    store.write(trace(0, *STEPS) + trace(1, *STEPS)[:2] + trace(2, 3))
    first, last = (RunId(row(i)["point_id"], i) for i in (0, 2))
    accuracies = {first: (0.007,), last: (0.003,)}
    assert store.last_values("accuracy")[0] == {(CODE_VERSION, "highest"): accuracies}


def test_load_returns_all_rows_in_order_or_the_last_of_each_run(store):
    store.write([*trace(1, *STEPS)[::-1], *trace(0, 0, 1, 2, 5)])
    steps = [[0, 0], [0, 1], [0, 2], [0, 5], [1, 3], [1, 5], [1, 7]]
    assert runs_and_steps(load(store.folder)) == steps
    last = load(store.folder, last=True)
    assert runs_and_steps(last) == [[0, 5], [1, 7]]
    assert list(last["accuracy"]) == [0.005, 0.007]
    cut = store.folder / "cut.parquet"
    pq.write_table(pq.read_table(store.parts).slice(0, 2), cut)
    with pytest.raises(StoreError, match=r"^no last step of a run in "):
        load(cut, last=True)


def test_rows_written_twice_are_one_and_others_of_the_run_are_kept(store):
    first = store.write(trace(0, *STEPS))
    assert store.write(trace(0, *STEPS)) == first
    assert store.write(trace(0, *STEPS)[:2]) != first
    overflowed = trace(0, *STEPS, status="nonfinite", n_correct=None)
    store.write(overflowed + trace(1, *STEPS))
    with pytest.warns(UserWarning, match="dropped 5 rows: one is kept per .*, step"):
        frame = load(store.folder)
    assert runs_and_steps(frame) == [[seed, step] for seed in (0, 1) for step in STEPS]
    assert {*frame["status"]} == {"ok"}
    merged = compact(store.folder, prune=True)
    assert (merged.n_rows, merged.n_dropped) == (6, 5)
    pd.testing.assert_frame_equal(load(store.folder), frame)


def test_older_tables_read_as_the_recipe(store):
    """Those from before there were further steps."""
    part = store.write([row(i, code_version=CODE_VERSION) for i in (0, 1)])
    later = {*TRAINING, *TRACE_COLUMNS, "step"}
    older = pq.read_table(part).drop_columns([*later])
    pq.write_table(older.replace_schema_metadata(None), part)
    assert list(map(len, store.last_values()[0].values())) == [2]
    store.write(trace(2, *STEPS, start="zero"))
    frame = load(store.folder)
    assert runs_and_steps(frame)[:2] == [[0, 3], [1, 3]]
    assert list(frame["steps"][:2]) == [3, 3]
    assert list(frame["start"][:2]) == ["three_step"] * 2
    assert frame.step.dtype == frame.steps.dtype == "int64"
    assert frame.loss[:2].isna().all()
    compact(store.folder, prune=True)
    pd.testing.assert_frame_equal(load(store.folder), frame)
    assert list(map(len, store.last_values()[0].values())) == [3]


def test_nulls_of_joined_tables_read_as_the_recipe(store):
    nothing = {"code_version": CODE_VERSION, "step": None, "steps": None, "start": None}
    joined = pa.Table.from_pylist([row(0) | nothing, *trace(1, *STEPS)], SCHEMA)
    pq.write_table(joined, store.folder / "joined.parquet")
    first = load(store.folder / "joined.parquet").iloc[0]
    assert (first.seed, first.steps, first.step, first.start) == (0, 3, 3, "three_step")


# --- on the way there


def test_runs_are_counted_whose_rows_cannot_be_saved(store):
    runs = [Run(POINT, seed) for seed in range(2)]
    settings = Settings(part_seconds=0)
    [chunk] = planning.make_plan(runs, settings=settings).chunks
    for path in (store.parts, store.staging):
        path.rmdir()
        path.write_text("")
    call = Call(store, settings, n_runs=2)
    call.interrupts.requested = True  # so that it does not wait
    call.take(chunk, [trace(i, *STEPS) for i in range(2)])
    assert (call.runs, call.unsaved) == (2, 2)
    assert {*call.accuracy.values()} == {0.007}


def test_a_search_with_batches_has_a_program_for_every_n(tmp_path):
    path = tmp_path / "s.yaml"
    axis = "search: {axis: N, from: 64, to: 4096}"
    path.write_text(f"{BASE}, steps: 7, batch: 64}}\nseeds: 32\n{axis}\n")
    rounds = Searches(read_grid(path), {})
    assert {run.point.N for run in rounds.pending} == {64}
    assert rounds.plan(rounds.pending).n_runs == len(rounds.pending)


# --- fits and figures


def star_at(d: int, step: int) -> float:
    """N* falls with the width, and with the square root of the step."""
    return 128000 / d / np.sqrt(step)


def traced(*steps: int) -> pd.DataFrame:
    """Runs whose N* is known at every recorded step."""
    frames = [
        table({"d": [32, 64]}, lambda c, step=step: star_at(c["d"], step)).assign(
            step=step, steps=steps[-1]
        )
        for step in steps
    ]
    return pd.concat(frames, ignore_index=True)


LATE = (3, 30, 300)
FRAME = traced(*LATE)


def n_star(frame: pd.DataFrame, steps: tuple[int, ...], **given: object):
    """The table of N*, whose cells are those of d and these steps, with their N*."""
    thresholds = fit.fit(frame, [0.5], **given).thresholds.query("record")
    cells = [(d, step) for d in (32, 64) for step in steps]
    assert list(thresholds["d"]) == [d for d, _ in cells]
    ratios = thresholds["N_star"] / [star_at(*cell) for cell in cells]
    assert_close(ratios, np.ones(len(cells)), 0.05)
    return thresholds.reset_index(drop=True)


def test_a_fit_takes_the_last_step_unless_asked():
    last = n_star(FRAME, (300,))
    assert "step" not in last
    n_star(FRAME[FRAME["step"] == 30], (30,))
    without = FRAME[FRAME["step"] == 300].drop(columns=["step", "steps"])
    for given in ({}, {"step": "all"}):
        pd.testing.assert_frame_equal(n_star(without, (300,), **given), last)


def test_the_step_is_an_axis_with_a_cell_for_each():
    assert list(n_star(FRAME, LATE, step="all")["step"]) == [*LATE] * 2


def test_a_run_without_a_row_at_the_last_step_of_its_point_is_left_out():
    frame = FRAME[(FRAME["seed"] > 0) | (FRAME["step"] < 300)]
    point_id = frame["N"].astype(str) + "-" + frame["d"].astype(str)
    for each in (frame, frame.assign(point_id=point_id)):
        assert {*fit.fit(each, [0.5]).thresholds["n_seeds"]} == {7}


def test_the_number_of_steps_is_an_axis_from_the_recipe_on():
    further = pd.concat([traced(3, 30), FRAME])
    further = further.assign(lr=0.5, optimizer="sgd", batch=64)
    recipe = traced(3).assign(lr=np.nan, optimizer=None, batch=None)
    frame = pd.concat([further, recipe], ignore_index=True).assign(start="three_step")
    thresholds = n_star(frame.astype({"batch": "Int64"}), LATE)
    assert list(thresholds.columns[:6]) == ["V", "d", "L", "m", "steps", "theta"]


@pytest.mark.parametrize(("step", "n"), [("last", 2), ("all", 6)])
def test_the_command_line_chooses_steps(step, n, tmp_path, capsys):
    path = tmp_path / "t.parquet"
    FRAME.to_parquet(path)
    assert fit.main([str(path), "--step", step]) == 0
    assert f"{n} configurations: {n} crosses" in capsys.readouterr().out


@pytest.mark.slow
def test_a_report_shows_the_steps_that_are_chosen(tmp_path):
    path = tmp_path / "t.parquet"
    FRAME.to_parquet(path)
    words = ["--format", "svg", "--step", "all", "--x", "step"]
    assert report_cli.main([str(path), *words]) == 0
    page = (tmp_path / "t-report.html").read_text()
    assert "6 configurations, 432 rows" in page


# --- the simulator itself


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> Path:
    """A folder with a point of the recipe, one that trains on and one that overflows,
    three seeds each.
    """
    folder = tmp_path_factory.mktemp("late")
    blocks = "[{axes: {steps: [3, 7]}}, {axes: {steps: [7], lr: [1.0e+30]}}]"
    (folder / "late.yaml").write_text(f"{BASE}, N: 96}}\nseeds: 3\nblocks: {blocks}\n")
    assert sweep(["--grid", f"{folder}/late.yaml", "--out", f"{folder}/out"]) == 0
    return folder


def test_simulate_returns_the_last_row_or_all_of_them(swept):
    rows = simulate(POINT, [0, 2], trace=True)
    steps = [(row["seed"], row["step"]) for row in rows]
    assert steps == [(seed, step) for seed in (0, 2) for step in STEPS]
    assert simulate(POINT, [0, 2]) == [rows[2], rows[5]]
    assert simulate(POINT, 2) == rows[5]
    assert simulate(POINT, 2, trace=True) == rows[3:]
    assert simulate(POINT, [], trace=True) == []
    names = ["step", "loss", "n_correct", "form"]
    of_sweep = load(swept / "out", POINT)[names].to_dict("records")
    assert of_sweep == [{name: row[name] for name in names} for row in rows[:3]]


def test_the_recipe_alone_has_one_row_at_step_3_with_no_trace():
    point = POINT.replace(steps=3)
    [only] = simulate(point, 0, trace=True)
    assert only == simulate(point, 0)
    further = [*TRACE_COLUMNS, "lr", "optimizer", "trains", "batch"]
    expected = {"step": 3, "steps": 3, "start": "three_step"}
    assert only == only | expected | dict.fromkeys(further)


def test_a_sweep_is_counted_and_resumes_by_runs(swept, capsys):
    frame = load(swept / "out").drop(columns=["seconds", "bucket"])
    assert len(frame) == 3 * (1 + 3 + 3)
    for part in (swept / "out/parts").iterdir():
        rows = pq.read_table(part)
        left = rows.to_pandas().eval("lr != 0.5 or seed != 2 or step != 7")
        pq.write_table(rows.filter(pa.array(left)), part)
    facts = status.survey(swept / "out")
    counted = {"runs": 9, "done": 8, "todo": 1, "nonfinite": 3, "other_grids": 0}
    assert facts == facts | counted
    command = ["--grid", f"{swept}/late.yaml", "--out", f"{swept}/out"]
    assert sweep([*command, "--dry-run"]) == 0
    assert "8 done in " in capsys.readouterr().out
    assert sweep([*command, "--json-log"]) == 0
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    events = {line["event"]: line for line in lines}
    for event, counted in {
        "batch": {"rows": 3, "runs_executed": 1, "todo": 0},
        "part": {"rows": 3},
        "done": {"runs_executed": 1},
    }.items():
        assert events[event] == events[event] | counted
    with pytest.warns(UserWarning, match="dropped 2 rows"):
        again = load(swept / "out")
    pd.testing.assert_frame_equal(again[frame.columns], frame)
    assert sweep(command) == 0
    out = capsys.readouterr().out
    assert f"nothing to do: all 9 runs are in {swept}/out" in out
    assert "9 runs of this grid" in out


def test_run_returns_every_row_and_counts_runs(swept):
    rows = jaxrecall.run([POINT], seeds=[0, 1, 2], progress=False)
    assert list(rows["step"]) == list(STEPS) * 3
    frame = load(swept / "out", POINT)
    pd.testing.assert_series_equal(rows["loss"][:3], frame["loss"])
