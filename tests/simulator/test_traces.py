"""Runs of several rows: what a program recorded becomes rows, a run is its rows
together, and readers take the last unless asked.
"""

import importlib
import io
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.axes import Axes
from test_fit import LEVELS, table
from test_store import quiet_load, row

import jaxrecall
from jaxrecall import Point, simulate, status
from jaxrecall.analysis.figures import plot
from jaxrecall.analysis.fit import fit
from jaxrecall.analysis.fit.runs import at_steps, parsed
from jaxrecall.cli.process import Interrupts
from jaxrecall.compact import compact
from jaxrecall.errors import FitError, StoreError, UsageError
from jaxrecall.model.columns import CODE_VERSION, COLUMNS, TRACE_COLUMNS
from jaxrecall.model.point import Run, RunId
from jaxrecall.simulator.descent import MAX_RECORDED
from jaxrecall.simulator.forms import FORMS
from jaxrecall.simulator.rows import finish
from jaxrecall.sweep import plan as planning
from jaxrecall.sweep.__main__ import main as sweep
from jaxrecall.sweep.grid import read_grid
from jaxrecall.sweep.grid.file import Settings
from jaxrecall.sweep.running.call import Call
from jaxrecall.sweep.running.job import prepare
from jaxrecall.sweep.running.progress import Events
from jaxrecall.sweep.searches import Searches
from jaxrecall.sweep.store import PART_ROWS, Store
from jaxrecall.sweep.store.load import frame_of, load
from jaxrecall.sweep.store.table import SCHEMA

fit_cli = importlib.import_module("jaxrecall.fit")
report_cli = importlib.import_module("jaxrecall.report")
POINT = Point(V=20, N=96, d=12, L=3, n_test=64, gamma2=20, steps=7, lr=0.5)
STEPS = (3, 5, 7)


def trace(i: int, *steps: int, **changes: object) -> list[dict]:
    """The rows of one run that recorded these steps, the last of them its end."""
    return [
        row(
            i,
            **{
                "step": step,
                "steps": steps[-1],
                "accuracy": step / 1000,
                "code_version": CODE_VERSION,
            }
            | changes,
        )
        for step in steps
    ]


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store(tmp_path / "out")
    store.prepare({})
    return store


# --- from what a program recorded to rows


def recorded(**changes: object) -> dict:
    """What a program might record of POINT: every number differs from step to step."""
    i = np.arange(MAX_RECORDED, dtype=np.float32)
    counts = ("n_correct", "n_tied", "n_top1", "n_train_correct", "recalled", "n_step1")
    raw = {name: (10 * k + i).astype(np.int32) for k, name in enumerate(counts)}
    raw |= {
        name: 100 * k + i + 1
        for k, name in enumerate(
            ("mass", "margin", "w_scale", "trigger", "score_std", "trigger_cosine")
        )
    }
    raw |= {
        "loss": 3 - i / 8,
        "test_loss": 4 - i / 8,
        "norms": np.arange(6, dtype=np.float32) + 10 * i[:, None],
    }
    return (
        raw
        | {
            "finite": i >= 0,
            "n_read": i.astype(np.int32) + 1,
            "draw_check": np.full(MAX_RECORDED, 77, np.uint32),
            "own": {},
        }
        | changes
    )


def rows_of(point: Point, form: str = "full", **changes: object) -> list[dict]:
    rows = finish(
        {"trace": recorded(**changes), "errors": None, "locked": None},
        point,
        FORMS[form],
    )
    assert rows
    assert {len(row) for row in rows} == {len(rows[0])}
    return rows


def test_a_row_for_each_recorded_step_with_its_own_numbers():
    rows = rows_of(POINT)
    assert [row["step"] for row in rows] == list(STEPS)
    for i, found in enumerate(rows):
        assert (found["n_correct"], found["accuracy"]) == (i, i / 64)
        assert (found["loss"], found["test_loss"]) == (3 - i / 8, 4 - i / 8)
        assert [found[name] for name in TRACE_COLUMNS[2:]] == [
            10 * i + k for k in range(6)
        ]
        assert found["trigger_score"] == (201 + i) * (301 + i), (
            "w is at its true scale, whatever gamma and eta are"
        )
        assert found["snr"] == (301 + i) / (401 + i)
        assert found["step1_memory_accuracy"] == 50 / 20, "of the recipe, at every step"
        assert (found["form"], found["status"], found["draw_check"]) == (
            "full, descent",
            "ok",
            77,
        )
        assert found["noise_bias"] is None
    assert (
        rows_of(POINT.replace(pool=8), "pool-full")[0]["form"] == "pool-full, descent"
    )


def test_a_number_under_the_name_of_its_column_goes_to_the_row(monkeypatch):
    """A new column is declared and measured, and in no third place."""
    for kind, name in ((float, "float64"), (int, "int64")):
        monkeypatch.setitem(COLUMNS, "entropy", (name, "of attention (nats)"))
        values = [
            found["entropy"]
            for found in rows_of(POINT, entropy=np.arange(MAX_RECORDED, dtype=name))
        ]
        assert values == [0, 1, 2]
        assert {type(value) for value in values} == {kind}


def test_a_run_from_zero_has_no_step_1_and_no_direction_yet():
    scale = np.arange(MAX_RECORDED, dtype=np.float32)
    first, second, *_ = rows_of(POINT.replace(start="zero"), w_scale=scale)
    assert (first["step"], first["status"], first["snr"], first["trigger_cosine"]) == (
        0,
        "degenerate",
        None,
        None,
    )
    assert (first["trigger_score"], first["loss"], first["form"]) == (0, 3, "descent")
    assert (second["step"], second["status"]) == (1, "ok")
    assert {found["step1_memory_accuracy"] for found in (first, second)} == {None}


@pytest.mark.parametrize("name", ["finite", "loss", "test_loss", "norms", "w_scale"])
def test_rows_after_an_overflow_are_null_and_those_before_stay(name):
    values = recorded()[name].copy()
    values[1:] = False if name == "finite" else np.inf
    rows = rows_of(POINT, **{name: values})
    assert [found["status"] for found in rows] == ["ok", "nonfinite", "nonfinite"]
    assert rows[0] == rows_of(POINT)[0]
    assert {key: value for key, value in rows[2].items() if value is not None} == {
        "status": "nonfinite",
        "form": "full, descent",
        "draw_check": 77,
        "step": 7,
    }


def test_a_run_that_its_form_turns_away_has_no_rows():
    assert (
        finish(
            {"trace": recorded(), "errors": (1.0, 0.0), "locked": False},
            POINT,
            FORMS["counts"],
        )
        is None
    )


# --- in the results folder


def test_a_run_is_done_when_its_last_step_is_there(store):
    store.write(
        trace(0, *STEPS)
        + trace(1, *STEPS)[:2]
        + [row(2, step=3, steps=3, code_version=CODE_VERSION)]
    )
    assert store.done(CODE_VERSION, "highest").runs == {
        RunId(row(i)["point_id"], i) for i in (0, 2)
    }
    accuracies = {
        RunId(row(0)["point_id"], 0): (0.007,),
        RunId(row(2)["point_id"], 2): (row(2)["accuracy"],),
    }
    assert store.last_values("accuracy")[0] == {(CODE_VERSION, "highest"): accuracies}
    assert not store.done(CODE_VERSION, "high").runs
    assert store.done(0, "highest").foreign == {(CODE_VERSION, "highest"): 2}, (
        "runs are counted, not rows"
    )


def test_load_returns_all_rows_in_order_or_the_last_of_each_run(store):
    store.write([*trace(1, *STEPS)[::-1], *trace(0, 0, 1, 2, 5)])
    frame = quiet_load(store.folder)
    assert list(zip(frame.seed, frame.step, strict=True)) == [
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 5),
        (1, 3),
        (1, 5),
        (1, 7),
    ]
    last = load(store.folder, last=True)
    assert list(zip(last.seed, last.step, last.accuracy, strict=True)) == [
        (0, 5, 0.005),
        (1, 7, 0.007),
    ]
    assert (
        len(frame_of(store.tables()[0].values(), [RunId(row(1)["point_id"], 1)])) == 3
    )
    pq.write_table(pq.read_table(store.parts).slice(0, 2), store.folder / "cut.parquet")
    with pytest.raises(
        StoreError,
        match=(
            r"no last step of a run in .*cut\.parquet, which hold others; allowed:"
            r" last=False"
        ),
    ):
        load(store.folder / "cut.parquet", last=True)


def test_rows_written_twice_are_one_and_others_of_the_run_are_kept(store):
    first = store.write(trace(0, *STEPS))
    assert store.write(trace(0, *STEPS)) == first
    assert store.write(trace(0, *STEPS)[:2]) != first
    store.write(
        [*trace(0, *STEPS, status="nonfinite", n_correct=None), *trace(1, *STEPS)]
    )
    with pytest.warns(
        UserWarning, match=r"dropped 5 rows: one is kept per \(point_id, seed, step\)"
    ):
        frame = load(store.folder)
    assert list(zip(frame.seed, frame.step, frame.status, strict=True)) == [
        (seed, step, "ok") for seed in (0, 1) for step in STEPS
    ]
    merged = compact(store.folder, prune=True)
    assert (merged.n_rows, merged.n_dropped) == (6, 5)
    pd.testing.assert_frame_equal(quiet_load(store.folder), frame)


def older(part: Path) -> None:
    """Makes a part what it was before there were further steps."""
    names = {
        "steps",
        "start",
        "optimizer",
        "lr",
        "lr_attention",
        "trains",
        "batch",
        "step",
        *TRACE_COLUMNS,
    }
    table = pq.read_table(part)
    pq.write_table(
        table.select(
            [name for name in table.column_names if name not in names]
        ).replace_schema_metadata(None),
        part,
    )


def test_older_tables_read_as_the_recipe(store):
    older(
        store.write(
            [row(0, code_version=CODE_VERSION), row(1, code_version=CODE_VERSION)]
        )
    )
    assert len(store.done(CODE_VERSION, "highest").runs) == 2
    store.write(trace(2, *STEPS, start="zero"))
    frame = quiet_load(store.folder)
    assert list(frame.columns) == list(COLUMNS)
    assert frame[["seed", "steps", "step", "start"]].to_numpy().tolist()[:2] == [
        [seed, 3, 3, "three_step"] for seed in (0, 1)
    ]
    assert frame.step.dtype == frame.steps.dtype == "int64"
    assert frame.loss[:2].isna().all()
    compact(store.folder, prune=True)
    pd.testing.assert_frame_equal(quiet_load(store.folder), frame)
    assert len(store.done(CODE_VERSION, "highest").runs) == 3


def test_nulls_of_joined_tables_read_as_the_recipe(store):
    nothing = {"code_version": CODE_VERSION, "step": None, "steps": None, "start": None}
    joined = pa.Table.from_pylist([row(0) | nothing, *trace(1, *STEPS)], SCHEMA)
    pq.write_table(joined, store.folder / "joined.parquet")
    first = quiet_load(store.folder / "joined.parquet").iloc[0]
    assert (first.seed, first.steps, first.step, first.start) == (0, 3, 3, "three_step")


# --- on the way there


def test_runs_are_counted_and_rows_of_a_run_go_into_one_part(store):
    runs = [Run(POINT, seed) for seed in range(3)]
    plan = planning.make_plan(runs, settings=Settings(part_seconds=0))
    chunk = plan.chunks[0]
    out = io.StringIO()
    call = Call(
        store,
        Settings(part_seconds=0),
        display=Events(out),
        n_runs=3,
        est_seconds=chunk.seconds,
    )
    traces = [trace(i, *STEPS, point_id=POINT.point_id) for i in range(3)]
    call.take(chunk.part(runs[:2]), traces[:2])
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(event["event"], event["rows"]) for event in events] == [
        ("batch", 6),
        ("part", 6),
    ]
    assert (events[0]["runs_executed"], events[0]["todo"], events[0]["accuracy"]) == (
        2,
        1,
        0.007,
    )
    assert call.est_done == pytest.approx(call.est_seconds * 2 / 3)
    for path in (store.parts, store.staging):  # neither can be written any more
        path.rename(path.with_name(f"{path.name}-away"))
        path.write_text("")
    call.interrupts.requested = True  # so that it does not wait
    call.take(chunk.part(runs[2:]), traces[2:])
    assert (call.runs, call.unsaved) == (3, 1)
    assert set(call.accuracy.values()) == {0.007}
    [part] = (store.folder / "parts-away").iterdir()
    assert len(pq.read_table(part)) == 6


def test_status_and_searches_count_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("late.yaml").write_text(
        "base: {V: 20, N: 96, d: 12, L: 3, steps: 7, lr: 0.5}\nseeds: 3\n"
    )
    grid = read_grid("late.yaml")
    store = Store("results/late")
    store.prepare(prepare(grid, store, resume_command="again").manifest())
    point_id = grid.points[0].point_id
    written = (
        trace(0, *STEPS, point_id=point_id, seconds=2.0)
        + trace(1, *STEPS, point_id=point_id, seconds=2.0)[:2]
    )
    store.write(
        written
        + trace(2, *STEPS, point_id=point_id, seconds=2.0, status="nonfinite")[1:]
    )
    facts = status.survey("results/late")
    assert [
        facts[name]
        for name in ("runs", "done", "todo", "nonfinite", "seconds", "other_grids")
    ] == [3, 2, 1, 1, 4.0, 0]
    assert sweep(["--grid", "late.yaml", "--dry-run"]) == 0
    assert "2 done in results/late, 1 to do" in capsys.readouterr().out


def test_a_search_with_batches_has_a_program_for_every_n(tmp_path):
    (tmp_path / "s.yaml").write_text(
        "base: {V: 20, d: 12, L: 3, steps: 7, lr: 0.5, batch: 64}\nseeds: 32\nsearch:"
        " {axis: N, from: 64, to: 4096}\n"
    )
    rounds = Searches(read_grid(tmp_path / "s.yaml"), {})
    assert {run.point.N for run in rounds.pending} == {64}
    assert rounds.plan(rounds.pending).n_runs == len(rounds.pending)


def test_room_for_the_rows_of_a_part_is_asked_for(tmp_path, monkeypatch):
    (tmp_path / "late.yaml").write_text(
        f"base: {{V: 20, N: 96, d: 12, L: 3, steps: 7, lr: 0.5}}\nseeds: {PART_ROWS}\n"
    )
    asked = []
    monkeypatch.setattr(
        Store, "prepare", lambda self, manifest, n_rows=0: asked.append(n_rows)
    )
    from jaxrecall.sweep.running import job

    for grid in (["seeds=2"], [f"seeds={PART_ROWS}"]):
        made = job.prepare(read_grid(tmp_path / "late.yaml", grid), tmp_path / "out")
        job.carry_out(made, lambda plan, call: None, None, Interrupts())
    assert asked == [6, 3 * PART_ROWS]


# --- fits and figures


def star_at(d: int, step: int) -> float:
    """N* falls with the width, and with the square root of the step."""
    return 128000 / d / np.sqrt(step)


def traced(steps: tuple[int, ...] = (3, 30, 300)) -> pd.DataFrame:
    """Runs whose N* is known at every recorded step."""
    frames = [
        table({"d": [32, 64]}, lambda c, step=step: star_at(c["d"], step)).assign(
            step=step, steps=steps[-1]
        )
        for step in steps
    ]
    return pd.concat(frames, ignore_index=True)


def n_star(frame: pd.DataFrame, **given: object) -> pd.DataFrame:
    found = fit(frame, [0.5], 100, **given).thresholds
    return found[found["record"]].reset_index(drop=True)


def assert_stars(found: pd.DataFrame, at: list[tuple[int, int]]) -> None:
    """The cells are those of d and the step, with their N*."""
    assert list(found["N_star"]) == pytest.approx(
        [star_at(d, step) for d, step in at], rel=0.05
    )
    assert list(found["d"]) == [d for d, _ in at]


def test_a_fit_takes_the_last_step_unless_asked():
    frame = traced()
    last = n_star(frame)
    assert "step" not in last
    assert_stars(last, [(32, 300), (64, 300)])
    assert_stars(n_star(frame, step=30), [(32, 30), (64, 30)])
    assert_stars(n_star(frame[frame["step"] == 30]), [(32, 30), (64, 30)])
    without = frame[frame["step"] == 300].drop(columns=["step", "steps"])
    pd.testing.assert_frame_equal(n_star(without), last)
    pd.testing.assert_frame_equal(n_star(without, step="all"), last)


@pytest.mark.parametrize(
    ("step", "steps"), [("all", [3, 30, 300]), ([300, 3], [3, 300])]
)
def test_the_step_is_an_axis_with_a_cell_for_each(step, steps):
    found = n_star(traced(), step=step)
    assert list(found["step"]) == steps * 2
    assert_stars(found, [(d, step) for d in (32, 64) for step in steps])


def test_a_run_without_a_row_at_the_last_step_of_its_point_is_left_out():
    frame = traced()
    overflowed = (frame["seed"] == 0) & (frame["step"] == 300)
    assert set(at_steps(frame[~overflowed], "last")["seed"]) == set(range(1, 8))
    named = frame[~overflowed].assign(
        point_id=frame["N"].astype(str) + "-" + frame["d"].astype(str)
    )
    assert set(at_steps(named, "last")["seed"]) == set(range(1, 8))


def test_the_number_of_steps_is_an_axis_from_the_recipe_on():
    further = pd.concat([traced((3, 30)), traced((3, 30, 300))]).assign(
        lr=0.5, optimizer="sgd", batch=64
    )
    frame = pd.concat(
        [further, traced((3,)).assign(lr=np.nan, optimizer=None, batch=None)],
        ignore_index=True,
    )
    found = n_star(frame.assign(start="three_step").astype({"batch": "Int64"}))
    assert list(found.columns[:5]) == ["V", "d", "L", "m", "steps"]
    assert found.columns[5] == "theta"
    assert_stars(found, [(d, step) for d in (32, 64) for step in (3, 30, 300)])


@pytest.mark.parametrize("step", [31, [3, 31], [], "first"])
def test_steps_that_no_row_has_are_refused(step):
    with pytest.raises(FitError) as error:
        fit(traced(), [0.5], 100, step=step)
    assert (
        str(error.value)
        == f"step: got {step!r}; allowed: 'last', 'all', or steps of the table (3, 30,"
        " 300)"
    )


def test_steps_on_a_command_line():
    assert [parsed(words) for words in (["last"], ["all"], ["30"], ["3", "30"])] == [
        "last",
        "all",
        [30],
        [3, 30],
    ]
    for words in (["first"], ["3", "all"], ["-3"], ["2.5"]):
        with pytest.raises(
            UsageError,
            match=(
                rf"--step: got {' '.join(words)}; allowed: last, all, or whole numbers,"
                r" as in 3 30 300"
            ),
        ):
            parsed(words)


def test_the_command_lines_choose_steps(tmp_path, capsys):
    path = tmp_path / "t.parquet"
    traced().to_parquet(path)
    assert fit_cli.main([str(path), "--resamples", "100", "--step", "3", "30"]) == 0
    assert "4 cells: 4 cross" in capsys.readouterr().out
    assert fit_cli.main([str(path), "--step", "4"]) == 2
    assert capsys.readouterr().err.startswith(
        "step: got [4]; allowed: 'last', 'all', or steps of the table (3, 30, 300)"
    )


@pytest.mark.slow  # two reports; that of the sweep below is quick
def test_reports_choose_steps(tmp_path):
    path = tmp_path / "t.parquet"
    traced().to_parquet(path)
    small = ["--resamples", "100", "--surrogate", "0"]
    for arguments, cells in (
        ([], "2 cells (d vary), 144 rows"),
        (["--step", "all", "--x", "step"], "6 cells (d, step vary), 432 rows"),
    ):
        assert report_cli.main([str(path), *small, *arguments]) == 0
        assert cells in (tmp_path / "t-report.html").read_text()


def curves(ax: Axes, n: int) -> list[list[float]]:
    """y of the lines of n points."""
    return [
        list(line.get_ydata()) for line in ax.get_lines() if len(line.get_xdata()) == n
    ]


def test_figures_show_the_last_step_unless_the_step_is_an_axis():
    frame = traced()
    accuracy = (
        frame.assign(accuracy=frame["n_correct"] / frame["n_test"])
        .groupby(["step", "d", "N"])["accuracy"]
        .mean()
    )
    assert curves(plot.accuracy(frame), len(LEVELS)) == [
        pytest.approx(list(accuracy[300, d])) for d in (32, 64)
    ]
    at = {"N": LEVELS[4]}
    over = plot.accuracy(frame[frame["N"] == at["N"]], x="step", lines="d")
    assert curves(over, 3) == [
        pytest.approx([accuracy[step, d, at["N"]] for step in (3, 30, 300)])
        for d in (32, 64)
    ]
    ax = plot.critical_n(frame, x="step", lines="d", theory=False)
    assert ax.get_xlabel() == "step: gradient steps made"
    for d in (32, 64):
        assert pytest.approx(
            [star_at(d, step) for step in (3, 30, 300)], rel=0.05
        ) in curves(ax, 3)
    assert len(
        plot.phase(frame[frame["d"] == 32], "step", theory=False)
        .collections[0]
        .get_paths()
    ) == 3 * len(LEVELS)
    assert len(
        plot.phase(frame, "d", theory=False).collections[0].get_paths()
    ) == 2 * len(LEVELS)
    assert [
        text.get_text()
        for text in plot.collapse(frame, lines="step").get_legend().get_texts()
    ][:3] == ["step = 3", "step = 30", "step = 300"]


# --- the simulator itself


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A folder with a point of the recipe and one that trains on, three seeds each, and
    what the sweep printed last.
    """
    folder = tmp_path_factory.mktemp("late")
    base = {
        name: value
        for name, value in POINT.as_given().items()
        if name in ("V", "N", "d", "L", "n_test", "gamma2", "lr")
    }
    (folder / "late.yaml").write_text(
        json.dumps({"base": base, "seeds": 3, "blocks": [{"axes": {"steps": [3, 7]}}]})
    )
    assert (
        sweep(["--grid", str(folder / "late.yaml"), "--out", str(folder / "out")]) == 0
    )
    return folder


def test_simulate_returns_the_last_row_or_all_of_them(swept):
    rows = simulate(POINT, [0, 2], trace=True)
    assert [(row["seed"], row["step"]) for row in rows] == [
        (seed, step) for seed in (0, 2) for step in STEPS
    ]
    assert simulate(POINT, [0, 2]) == [rows[2], rows[5]]
    assert simulate(POINT, 2) == rows[5]
    assert simulate(POINT, 2, trace=True) == rows[3:]
    assert simulate(POINT, [], trace=True) == []
    assert rows[0]["loss"] > rows[2]["loss"] > 0
    frame = quiet_load(swept / "out")
    mine = frame[(frame["point_id"] == POINT.point_id) & (frame["seed"] == 2)]
    names = ["step", "loss", "n_correct", "form"]
    assert mine[names].to_dict("records") == [
        {name: row[name] for name in names} for row in rows[3:]
    ]


def test_the_recipe_alone_has_one_row_at_step_3_with_no_trace():
    point = POINT.replace(steps=3)
    [only] = simulate(point, 0, trace=True)
    assert only == simulate(point, 0)
    assert (only["step"], only["steps"], only["start"]) == (3, 3, "three_step")
    assert {
        only[name] for name in (*TRACE_COLUMNS, "lr", "optimizer", "trains", "batch")
    } == {None}


def test_a_sweep_resumes_by_runs(swept, capsys):
    [part] = sorted(
        (swept / "out/parts").glob("*.parquet"), key=lambda path: -path.stat().st_size
    )[:1]
    frame = quiet_load(swept / "out")
    assert len(frame) == 3 + 9
    rows = pq.read_table(part)
    last_of_2 = [
        seed == 2 and step == 7
        for seed, step in zip(
            rows["seed"].to_pylist(), rows["step"].to_pylist(), strict=True
        )
    ]
    pq.write_table(rows.filter(pa.array([not gone for gone in last_of_2])), part)
    command = ["--grid", str(swept / "late.yaml"), "--out", str(swept / "out")]
    assert sweep([*command, "--json-log"]) == 0
    done = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert done["runs_executed"] == sum(last_of_2) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two rows of that run were there
        again = load(swept / "out")
    unlike = ["seconds", "bucket"]
    pd.testing.assert_frame_equal(
        again.drop(columns=unlike), frame.drop(columns=unlike)
    )
    assert sweep(command) == 0
    out = capsys.readouterr().out
    assert f"nothing to do: all 6 runs are in {swept}/out" in out
    assert "6 runs of this grid" in out


def test_run_returns_every_row_and_counts_runs(swept):
    rows = jaxrecall.run([POINT], seeds=[0, 1, 2], progress=False)
    frame = load(swept / "out", POINT)
    assert list(rows["step"]) == list(STEPS) * 3
    assert list(frame["step"]) == list(STEPS)
    pd.testing.assert_series_equal(rows["loss"][:3], frame["loss"])
    with pytest.warns(UserWarning, match="2 of 3 rows have the status nonfinite"):
        lost = jaxrecall.run(POINT.replace(lr=1e30), progress=False)
    assert list(lost["status"]) == ["ok", "nonfinite", "nonfinite"]


def test_a_report_of_traces_shows_the_last_step(swept, capsys):
    assert (
        report_cli.main(
            [
                str(swept / "out"),
                "--out",
                str(swept / "page.html"),
                "--resamples",
                "100",
                "--surrogate",
                "0",
                "--format",
                "svg",
            ]
        )
        == 0
    )
    assert "from 2 cells, 6 rows and 3 seeds" in (swept / "page.html").read_text()
    assert "no axis" not in capsys.readouterr().out.replace(
        "optimizer, lr, lr_attention, trains: varies", ""
    )
