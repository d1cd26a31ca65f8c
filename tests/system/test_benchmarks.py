"""The benchmarks run, the peers compute the same science, and the saved file holds
every figure asked for.
"""

import importlib
import json
import os
import subprocess
import sys
from statistics import mean

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from helpers import ROOT
from tolerances import assert_close

from benchmarks import (
    jax_loop,
    on_device,
    on_device_table,
    peer,
    programs,
    record,
    runner,
    whole,
)
from benchmarks.asked import ASKED, Asked, Ratio
from benchmarks.programs import NotHere, Ready
from benchmarks.record import Measured, Record, reached
from benchmarks.work import Bench, Work, points, runs
from jaxrecall import Point, descend, measure, realize, simulate
from jaxrecall.model.reference import three_step
from jaxrecall.sweep.grid import as_grid
from results import coverage

try:
    import torch

    # its threads wait for each other by spinning, which crowds out tests that run
    # beside
    torch.set_num_threads(1)
except ModuleNotFoundError:
    torch = None
needs_torch = pytest.mark.skipif(
    torch is None, reason="the torch loop needs torch: pip install '.[bench]'"
)

ABOUT = {
    "date": "2026-01-01T00:00+00:00",
    "machine": "a machine",
    "load": 0.1,
    "versions": {"jax": "1"},
}
FIGURES = {row.key: row for row in ASKED}


class JaxPeer:
    """The loop in JAX on the draws of `realize`."""

    def __init__(self, r, form):
        draws = (None if a is None else jnp.asarray(a) for a in r[:12])
        self.draws, self.form = peer.Draws(*draws), form

    def learn(self, point):
        rates, draws, form = jax_loop.rates_of(point), self.draws, self.form
        learned = jax.jit(jax_loop.learn, static_argnums=2)(draws, rates, form)
        return learned, jax_loop.tested(draws, learned.V2, learned.W1, form)[1]

    def descend(self, point):
        rates, recorded = jax_loop.rates_of(point), point.recorded_steps
        return jax_loop.descend(self.draws, rates, recorded, self.form)


class TorchPeer:
    """The loop in torch on the draws of `realize`."""

    def __init__(self, r, form):
        self.loop, self.form = importlib.import_module("benchmarks.torch_loop"), form
        arrays = (
            a if a is None or a.dtype.kind == "f" else a.astype(np.int64)
            for a in r[:12]
        )
        self.draws = peer.Draws(
            *(None if a is None else torch.from_numpy(a) for a in arrays)
        )

    def learn(self, point):
        learned = self.loop.learn(self.draws, point, self.form)
        return learned, self.loop.accuracy(self.draws, learned, self.form)

    def descend(self, point):
        return self.loop.descend(self.draws, point, self.form)


PEERS = [
    pytest.param(TorchPeer, "keys", marks=needs_torch),
    pytest.param(TorchPeer, "bag", marks=needs_torch),
    (JaxPeer, "keys"),
    (JaxPeer, "table"),
]
of_peers = pytest.mark.parametrize(("make", "form"), PEERS)


@pytest.mark.slow
@of_peers
def test_peers_train_on_as_descend_does(make, form):
    sizes = {"V": 16, "N": 700, "d": 12, "L": 5, "n_test": 600}
    point = Point(**sizes, kappa=20, gamma2=10, steps=50, lr=4)
    r = realize(point, 3)
    judge = descend(r, point)
    V_mat, W_KQ, records = make(r, form).descend(point)
    assert_close(V_mat, judge[-1].V_mat, "float32")
    assert_close(W_KQ, judge[-1].W_KQ, "float32")
    expected = [
        (now.loss, now.test_loss, measure(r, point, now)["accuracy"]) for now in judge
    ]
    assert_close(np.array(records), np.array(expected), "float32")
    assert expected[-1][2] > expected[0][2] + 0.1


@pytest.mark.slow
@of_peers
@pytest.mark.parametrize("kw", [{}, {"eta": 0.5, "gamma2": 0.3}, {"m": 24}], ids=str)
def test_peers_learn_what_three_step_learns(make, form, kw):
    """On the draws of `realize`, over two chunks of samples and a broken one."""
    point = Point(**{"V": 20, "N": 8700, "d": 24, "L": 6, "n_test": 600, **kw})
    r = realize(point, 3)
    judge = three_step(r, point)
    learned, accuracy = make(r, form).learn(point)
    assert_close(learned.V1, judge.V1, "float32")
    assert_close(np.asarray(learned.W1) @ r.z_eos, judge.w, "float32")
    assert_close(learned.V2, judge.V2, "float32")
    expected = measure(r, point, judge)["accuracy"]
    assert 0.1 < expected < 0.95
    assert_close(accuracy, expected, 3.5 / 600)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param("torch_loop", "keys", marks=needs_torch),
        pytest.param("jax_loop", "keys", marks=pytest.mark.slow),
        pytest.param("jax_loop", "table", marks=pytest.mark.slow),
    ],
)
def test_peers_draw_the_same_task(name, form):
    """With their own random numbers they reach the simulator's mean accuracy."""
    loop = importlib.import_module(f"benchmarks.{name}")
    point = Point(V=20, N=1024, d=16, L=4, n_test=512, exact="full")
    ours = [row["accuracy"] for row in simulate(point, range(24))]
    theirs = loop.run(point, range(24), form)
    spread = np.hypot(np.std(ours), np.std(theirs)) / 24**0.5
    assert_close(mean(theirs), mean(ours), 6 * spread)
    assert len(set(theirs)) > 12
    wide = Point(V=400, N=8, d=64, L=4, m=300)
    if name == "torch_loop":
        draws = loop.draw(wide, 5)
    else:
        draws = loop.draw(jax.random.key(5), loop.sizes(wide))
    for name, std, within in (
        ("Z_in", 1 / 8, 0.01),
        ("Z_out", 1 / 8, 0.01),
        ("z_trig", 1 / 8, 0.06),
        ("z_eos", 1 / 8, 0.06),
        ("W_in", 1, 0.06),
    ):
        assert_close(np.std(np.asarray(getattr(draws, name))), std, within, of=name)


@pytest.mark.parametrize("tiny", [True, False])
def test_what_the_table_asks_for_is_there(tiny):
    """Every grid, program and function that a row names."""
    work = Work(tiny)
    for row in ASKED:
        assert row.by in {"ratios", "each", *whole.FIGURES}, row.key
        assert bool(row.ratios) == (row.by not in whole.FIGURES)
        assert set(row.summary) <= set(runner.SUMMARIES)
        for ratio in row.ratios:
            for program in ratio.programs:
                kind, fields = programs.parsed(program)
                assert kind in programs.PROGRAMS
                assert points(work.grid(ratio.work, **fields))
        n_limits = len(row.bar.replace(";", ",").split(","))
        assert not row.bar or n_limits == len(row.units), row.key


def test_the_large_works_are_as_large_as_the_pages_say():
    work = Work(tiny=False)
    sizes = {"S1": 144, "S2": 15360, "later": 64}
    assert {name: len(runs(work.grid(name))) for name in sizes} == sizes
    assert {point.N / point.V for point in points(work.grid("locked"))} == {16}


def taking(seconds, share=1.0):
    """A program that takes some seconds for a share of the work, at each call."""
    return lambda bench, grid: Ready(lambda call: seconds, share, "as told")


def absent(bench, grid):
    raise NotHere("torch is not installed")


def as_long_as_its_sequences(bench, grid):
    return Ready(lambda call: sum(point.L for point in points(grid)))


@pytest.fixture
def measuring(tmp_path, monkeypatch):
    made = {"half": taking(3.0, 0.5), "whole": taking(4.0), "absent": absent}
    made["slow"] = as_long_as_its_sequences
    monkeypatch.setattr(programs, "PROGRAMS", made)
    return Bench(Work(tiny=True), 2, lambda line: None, tmp_path)


def test_a_ratio_is_that_of_whole_works_and_names_what_is_missing(measuring):
    here = Ratio("R1", ["half"], "whole", beside=["half"])
    away = Ratio("R1", ["absent"], "whole")

    def compared(*ratios):
        row = Asked("key", "group", "figure", ratios=ratios)
        names = [*here.programs, *away.programs]
        times = runner.of_programs(measuring, names, lambda **fields: {})
        return runner.compared(row, times)

    row = compared(here)
    assert row.values == [6 / 4]
    assert row.beside == "1.5x"
    assert row.note == "half: as told; whole: as told"
    assert set(row.seconds) == {"half", "whole"}
    assert compared(here, away).values == []
    assert compared(away).note.startswith("not run: torch")


def test_a_ratio_at_each_point_is_summarised_and_listed(measuring):
    ratio = Ratio("S1", ["slow"], "whole")
    about = {"fields": ["L", "embedding"], "summary": ["max", "min"]}
    asked = Asked("key", "group", "figure", "each", [ratio], **about)
    row = runner.each(measuring, asked)
    assert row.values == [1.5, 1.0]
    line = {"L": 6, "embedding": "gaussian", "slow": 6, "whole": 4, "ratio": 1.5}
    assert row.table[1] == line


def test_designs_are_compared_at_equal_width():
    """Half the width needs four times the samples."""
    dense = pd.DataFrame({"samples": [100.0, 10.0], "width": [0.5, 0.1]})
    search = pd.DataFrame({"samples": [50.0, 5.0], "width": [0.25, 0.1]})
    assert whole.samples_needed(dense, search).tolist() == [400, 10]


def test_the_search_has_the_cells_of_the_dense_grid():
    dense = Work(tiny=False).grid("dense")
    search = as_grid(whole.search_grid(dense, 0.4))
    ours, theirs = (
        {(p.V, p.d, p.L) for p in some} for some in (search.points, points(dense))
    )
    assert ours == theirs
    assert search.search.from_ == min(p.N for p in points(dense))


@pytest.mark.parametrize(
    ("key", "levels"),
    [
        ("R1", {"neither": [79.4], "bar": [80], "aim": [200.0], "": []}),
        ("memory", {"neither": [1.11], "bar": [1.10], "aim": [1.024]}),
        ("estimates", {"neither": [1, 2.5], "bar": [1.9, 1.2], "aim": [1.3, 1.1]}),
        ("fit", {"neither": [61.0, 5.0], "bar": [60.0, 1.0]}),
    ],
)
def test_bars_and_aims_are_read_from_their_text(key, levels):
    told = {level: reached(FIGURES[key], values) for level, values in levels.items()}
    assert told == {level: level for level in levels}


def test_the_table_behind_a_worst_case_is_saved_and_printed(tmp_path):
    table = [
        {"V": 16, "form": "counts", "guarded / full": 0.51234},
        {"V": 64, "form": "full", "guarded / full": 1.0},
    ]
    saved = Record(tmp_path / "figures.md")
    saved.merge({"guard": Measured([1.0], table=table)}, ABOUT)
    head = "| V | form | guarded / full |\n| --- | --- | --- |\n"
    lines = "| 16 | counts | 0.512 |\n| 64 | full | 1 |\n"
    assert head + lines in saved.path.read_text()
    assert json.loads(saved.json.read_text())["rows"]["guard"]["table"] == table


def test_partial_runs_merge_and_keep_what_was_measured(tmp_path):
    path = tmp_path / "saved" / "figures.md"
    failed = Measured(note="not run: no torch")
    Record(path).merge({"R1": Measured([90.0]), "R2": failed}, ABOUT)
    later = {**ABOUT, "machine": "another", "date": "2026-02-02T00:00+00:00"}
    saved = Record(path)
    saved.merge({"R1": failed, "R2": Measured([11.0], beside="9.9x")}, later)
    rows = json.loads(path.with_suffix(".json").read_text())["rows"]
    assert (rows["R1"]["values"], rows["R1"]["machine"]) == ([90.0], "a machine")
    assert (rows["R2"]["values"], rows["R2"]["machine"]) == ([11.0], "another")
    text = path.read_text()
    assert "| R1, torch loop / jaxrecall | 80x | 200x | 90x | bar |  |" in text
    assert "| R2, torch loop / jaxrecall | 10x | 20x | 11x | bar | 9.9x |" in text
    assert text.endswith("\nA: a machine; jax 1\nB: another; jax 1\n")


def test_the_saved_page_is_that_of_the_saved_figures():
    saved = Record(ROOT / "results/benchmarks.md")
    assert saved.path.read_text() == saved.markdown()
    assert set(saved.rows) == set(FIGURES)


@pytest.mark.slow
def test_a_timed_process_needs_no_ray():
    """`make bench` does not install it."""
    code = "import sys; from benchmarks.child import import_all; import_all()"
    code += "; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=300)


@pytest.mark.slow
def test_everything_runs_in_small(tmp_path):
    """`python -m benchmarks --tiny`, end to end."""
    out = tmp_path / "results/tiny/benchmarks.md"
    # compiles in half the time
    flags = (
        "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    )
    quick = {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "XLA_FLAGS": flags}
    command = f"{sys.executable} -m benchmarks --tiny --repeats 1".split()
    environment = {**os.environ, **quick, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=1500)
    cells = [line.split(" | ") for line in out.read_text().splitlines()]
    table = {cell[0].removeprefix("| "): cell[1:] for cell in cells}
    rows = json.loads(out.with_suffix(".json").read_text())["rows"]
    without = {"ray"} if "ray is not" in rows["ray"]["note"] else set()
    if torch is None:
        without |= {row.key for row in ASKED if "torch" in row.figure}
    for row in ASKED:
        bar, aim, measured, *_ = table[row.figure]
        assert (bar, aim) == (row.bar, row.aim)
        assert (measured == record.NOT_RUN) == (row.key in without), row.key
    assert len(rows["R1-floor"]["table"]) == 4


@pytest.mark.slow
def test_a_device_is_measured_in_small(tmp_path):
    """`python -m benchmarks.on_device --tiny`: every step has a line, and no step fails
    but that of an absent torch. A step that is asked for later adds its lines.
    """
    command = [
        sys.executable,
        "-m",
        "benchmarks.on_device",
        "--tiny",
        "--out",
        tmp_path,
    ]
    for further in ([], ["--only", "pool"], ["--minutes", "0", "--only", "rows"]):
        subprocess.run([*command, *further], cwd=ROOT, check=True, timeout=900)
    lines = on_device_table.read(tmp_path / "on-device.jsonl")
    assert {line["step"] for line in lines if "failed" in line} <= {"peer"}
    assert {line["step"] for line in lines if "skipped" in line} == {"rows"}
    compared = [line for line in lines if "unequal" in line]
    assert {line["point"] for line in compared} == {*on_device.FORMS, "S1"}
    assert not any(line["unequal"] for line in compared)
    assert [line["step"] for line in lines].count("pool") == 2
    assert lines[-1]["step"] == "end"
    page = (tmp_path / "on-device.md").read_text()
    assert page == on_device_table.page(lines)
    for what in ("S1 by", "R1 |", "pool,", "iterations"):
        [row] = [r for r in page.splitlines() if r.startswith(f"| {what}")][:1]
        assert "not run" not in row


def test_the_page_of_a_device_is_that_of_its_lines():
    path = ROOT / "results/on-device.jsonl"
    written = on_device_table.page(on_device_table.read(path))
    command = "python -m benchmarks.on_device --table results/on-device.jsonl"
    assert path.with_suffix(".md").read_text() == written, f"run: {command}"


def test_the_page_of_a_device_tells_the_last_measurement_and_what_is_missing():
    width = {"step": "S1 by width", "width": 16, "compiled": 3.2}
    lines = [
        width | {"median": 0.2},
        width | {"median": 0.144},
        width | {"median": 0.288, "flags": "--fast"},
        {"step": "R1", "exact": "guarded", "width": 1, "failed": "Error: no\nmore"},
    ]
    page = on_device_table.page(lines)
    name = "| S1, device and rows alone, one thread"
    assert f"{name} | 16 |  | 0.144 | 1 | 3 |" in page
    assert f"{name}, `--fast` | 16 |  | 0.288 | 2 | 3 |" in page
    assert "| R1 | 1 | not run |  |  |  |" in page
    assert "0.2 |" not in page
    assert page.endswith("## Not run\n\n- R1: Error: no\n")


def test_rows_of_a_device_are_compared_with_those_of_a_cpu():
    reference = {"n_correct": 5, "form": "full", "loss": 1.0, "snr": None}
    found = {"n_correct": 4, "form": "full", "loss": 1.1, "snr": 3.0}
    agreement = on_device.compared([found], [reference])
    assert agreement == {
        "rows": 1,
        "unequal": {"n_correct": 1},
        "largest": "1.0e-01 (loss)",
    }


def test_crossings_print_their_figures(capsys):
    coverage.main(["searches", "tables", "--replicates", "1"])
    lines = [
        line for line in capsys.readouterr().out.splitlines() if "replicates" in line
    ]
    # and the best of five rates that hardly differ, or differ
    assert len(lines) == 2 * (len(coverage.FAMILIES) + 2)
    assert all(
        "point in 100.0 %" in line or "none with an interval" in line for line in lines
    )


@pytest.mark.parametrize("family", coverage.FAMILIES)
def test_the_mean_of_very_many_seeds_crosses_at_the_truth(family):
    cell = coverage.draw_cell(family, np.random.default_rng(1), 0)
    truth, of_seed = cell.truth(), np.random.default_rng(2).normal(size=(2, 10**5))
    assert_close(cell.accuracy(truth, of_seed).mean(), cell.theta, 0.02)
    of_runs = [cell.run(np.exp(truth), seed) for seed in range(1000)]
    within = 10 * np.std(of_runs) / 1000**0.5
    assert_close(np.mean(of_runs), cell.theta, within)
