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
from helpers import ROOT, relative

from benchmarks import (
    on_device,
    on_device_table,
    programs,
    record,
    runner,
    scale,
    search,
)
from benchmarks.asked import ASKED, Each, Program, Ratio
from benchmarks.bench import Bench, NotHere, Ready
from benchmarks.record import Measured, Record, reached
from benchmarks.work import Work, points, runs
from jaxrecall import Point, descend, realize, simulate, three_step
from jaxrecall.model.reference.metrics import measure
from jaxrecall.simulator.program_shape import Shape
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


PEERS = [
    pytest.param("torch keys", marks=needs_torch),
    pytest.param("torch bag", marks=needs_torch),
    "jax keys",
    "jax table",
]


def jax_draws(r, point):
    from benchmarks import jax_loop

    rates = tuple(jnp.float32(rate) for rate in (point.eta, point.gamma, point.gamma2))
    return (
        jax_loop.Draws(*(None if a is None else jnp.asarray(a) for a in r[:12])),
        rates,
    )


def torch_draws(r):
    from benchmarks import torch_loop

    as_torch = (
        a if a is None or a.dtype.kind == "f" else a.astype(np.int64) for a in r[:12]
    )
    return torch_loop.Draws(
        *(None if a is None else torch.from_numpy(a) for a in as_torch)
    )


@pytest.fixture(params=PEERS)
def learn(request):
    """(realization, point) -> V1, w, V2 and accuracy of a peer on those draws."""
    loop, form = request.param.split()
    if loop == "jax":
        from benchmarks import jax_loop

        def by_jax(r, point):
            draws, rates = jax_draws(r, point)
            learned = jax.jit(jax_loop.learn, static_argnums=2)(draws, rates, form)
            return (
                learned.V1,
                learned.W1 @ draws.z_eos,
                learned.V2,
                float(jax_loop.accuracy(draws, learned, form)),
            )

        return by_jax
    from benchmarks import torch_loop

    def by_torch(r, point):
        draws = torch_draws(r)
        learned = torch_loop.learn(draws, point, form)
        return (
            learned.V1.numpy(),
            (learned.W1 @ draws.z_eos).numpy(),
            learned.V2.numpy(),
            torch_loop.accuracy(draws, learned, form),
        )

    return by_torch


@pytest.mark.slow
@pytest.mark.parametrize("peer", PEERS[:3])
def test_peers_train_on_as_descend_does(peer):
    point = Point(
        V=16, N=700, d=12, L=5, n_test=600, kappa=20, gamma2=10, steps=50, lr=4
    )
    r = realize(point, 3)
    judge = descend(r, point)
    if peer == "jax keys":
        from benchmarks import jax_loop

        draws, rates = jax_draws(r, point)
        V_mat, W_KQ, records = jax_loop.descend(
            draws, rates, jnp.float32(point.lr), point.recorded_steps
        )
    else:
        from benchmarks import torch_loop

        V_mat, W_KQ, traced = torch_loop.descend(torch_draws(r), point, peer.split()[1])
        assert [record.step for record in traced] == [3, 5, 10, 20, 50]
        records = [record[1:] for record in traced]
    assert relative(V_mat, judge[-1].V_mat) < 1e-4
    assert relative(W_KQ, judge[-1].W_KQ) < 1e-4
    expected = [
        (now.loss, now.test_loss, measure(r, point, now)["accuracy"]) for now in judge
    ]
    np.testing.assert_allclose(np.array(records), expected, rtol=1e-4)
    assert expected[-1][2] > expected[0][2] + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("kw", [{}, {"eta": 0.5, "gamma2": 0.3}, {"m": 24}], ids=str)
def test_peers_learn_what_three_step_learns(learn, kw):
    """On the draws of `realize`, over two chunks of samples and a broken one."""
    point = Point(**{"V": 20, "N": 8700, "d": 24, "L": 6, "n_test": 600, **kw})
    r = realize(point, 3)
    judge = three_step(r, point)
    V1, w, V2, accuracy = learn(r, point)
    for name, mine in (("V1", V1), ("w", w), ("V2", V2)):
        assert relative(mine, getattr(judge, name)) < 2e-5, name
    expected = measure(r, point, judge)["accuracy"]
    assert 0.1 < expected < 0.95
    assert accuracy == pytest.approx(expected, abs=1.5 / 600)


@pytest.mark.parametrize(
    "peer",
    [
        pytest.param("torch_loop", marks=needs_torch),
        pytest.param("jax_loop", marks=pytest.mark.slow),
        pytest.param("jax_loop, vmap", marks=pytest.mark.slow),
    ],
)
def test_peers_draw_the_same_task(peer):
    """With their own random numbers they reach the simulator's mean accuracy."""
    name, _, vmap = peer.partition(", ")
    loop = importlib.import_module(f"benchmarks.{name}")
    point = Point(V=20, N=1024, d=16, L=4, n_test=512, exact="full")
    seeds = range(24)
    ours = [row["accuracy"] for row in simulate(point, seeds)]
    if vmap:
        theirs = loop.run_seeds(point, seeds)
    else:
        theirs = [loop.run(point, seed) for seed in seeds]
    assert (
        abs(mean(ours) - mean(theirs))
        < 4 * np.hypot(np.std(ours), np.std(theirs)) / 24**0.5
    )
    assert len(set(theirs)) > 12
    wide = Point(V=400, N=8, d=64, L=4, m=300)
    draws = (
        loop.draw(wide, 5)
        if name == "torch_loop"
        else loop.draw(jax.random.key(5), loop.sizes(wide))
    )
    for name, std in (
        ("Z_in", 1 / 8),
        ("Z_out", 1 / 8),
        ("z_trig", 1 / 8),
        ("z_eos", 1 / 8),
        ("W_in", 1),
    ):
        assert np.std(np.asarray(getattr(draws, name))) == pytest.approx(
            std, rel=0.3 if name.startswith("z") else 0.03
        )


@pytest.mark.parametrize("tiny", [True, False])
def test_what_the_table_asks_for_is_there(tiny):
    """Every grid, program and function that a row names."""
    work = Work(tiny)
    for asked in ASKED:
        if isinstance(asked.how, str):
            assert asked.how in runner.OWN
            continue
        for how in asked.how if isinstance(asked.how, tuple) else (asked.how,):
            ratio = how.ratio if isinstance(how, Each) else how
            assert points(work.grid(ratio.work)), asked.key
            for program in ratio.programs if isinstance(ratio, Ratio) else ():
                assert program.name in programs.PROGRAMS
                assert points(work.grid(ratio.work, **dict(program.fields)))


def test_the_large_works_are_as_large_as_the_pages_say():
    work = Work(tiny=False)
    assert len(runs(work.grid("S1"))) == 144
    assert len(runs(work.grid("S2"))) == 15360
    assert len(runs(work.grid("later"))) == 64
    assert {point.N / point.V for point in points(work.grid("locked"))} == {16}


def test_the_sample_of_s2_stands_for_its_cost():
    """Each d once, each V twice, every L; the means of L d, V d and L within 2 %."""
    work = Work(tiny=False)
    axes = work.grid("S2")["blocks"][0]["axes"]
    sample, every = points(work.grid("S2-sample")), points(work.grid("S2"))
    cells = list(dict.fromkeys((p.V, p.d, p.L) for p in sample))
    assert [d for _, d, _ in cells] == axes["d"]
    assert sorted(V for V, _, _ in cells) == sorted([*axes["V"], *axes["V"]])
    assert {L for _, _, L in cells} == set(axes["L"])
    assert {p.point_id for p in sample} <= {p.point_id for p in every}
    assert len(sample) == 12 * len(cells)
    for cost in (lambda p: p.L * p.d, lambda p: p.V * p.d, lambda p: p.L):
        assert mean(map(cost, sample)) == pytest.approx(mean(map(cost, every)), 0.02)


def test_points_go_to_the_smallest_program_that_they_fit():
    sample = points(Work(tiny=False).grid("S2-sample"))
    shapes = ["512x32", "512x64", "256x64", "512x256"]
    groups = programs.by_program(sample, shapes)
    assert {shape: len(some) / 12 for shape, some in groups.items()} == {
        "512x32": 3,
        "256x64": 2,
        "512x256": 3,
    }


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
    monkeypatch.setattr(runner, "PROGRAMS", made)
    return Bench(Work(tiny=True), 2, lambda line: None, tmp_path)


HALF, WHOLE, ABSENT, SLOW = map(Program, ("half", "whole", "absent", "slow"))


def test_a_ratio_is_that_of_whole_works_and_names_what_is_missing(measuring):
    here, away = Ratio("R1", (HALF,), WHOLE, (HALF,)), Ratio("R1", (ABSENT,), WHOLE)
    programs = [*here.programs, *away.programs]
    found = runner.times(measuring, programs, lambda fields: {})
    row = runner.compared([here], found)
    assert row.values == [6 / 4]
    assert row.beside == "1.5x"
    assert row.note == "half: as told; whole: as told"
    assert set(row.seconds) == {"half", "whole"}
    assert runner.compared([here, away], found).values == []
    assert runner.compared([away], found).note.startswith("not run: torch")
    less = Ratio("R1", (HALF,), WHOLE, less_one=True)
    assert runner.compared([less], found).values == [pytest.approx(50)]


def test_a_ratio_at_each_point_is_summarised_and_listed(measuring):
    ratio, shown = Ratio("S1", (SLOW,), WHOLE), ("L", "embedding")
    asked = Each(ratio, shown, lambda found: found[::-1])
    row = runner.each(measuring, asked)
    assert row.values == [1.5, 1.0]
    about = {"L": 6, "embedding": "gaussian"}
    line = about | {"slow, s": 6, "whole, s": 4, "ratio": 1.5}
    assert json.loads(json.dumps(row.table))[1] == line


def accuracies(threshold, N, seeds, per_seed=None, noise=0.02):
    """Rows of seeds whose accuracy crosses 0.5 near ln N = threshold, more or less
    each.
    """
    g = np.random.default_rng(0)
    rows = []
    for seed in range(seeds):
        own = threshold + g.normal(0, 0.1)
        for n in per_seed(own) if per_seed else N:
            rows.append(
                {
                    "seed": seed,
                    "N": n,
                    "accuracy": (
                        0.5 + 0.3 * np.tanh(np.log(n) - own) + g.normal(0, noise)
                    ),
                }
            )
    return pd.DataFrame(rows)


def test_the_interval_covers_the_threshold_and_narrows_with_seeds():
    N = [2**k for k in range(4, 12)]
    truth = np.log(150)
    few, many = (
        search.interval(accuracies(truth, N, seeds), 0.5) for seeds in (8, 128)
    )
    for found in (few, many):
        assert found.lo < truth < found.hi
        assert found.ln_N == pytest.approx((found.lo + found.hi) / 2)
    # the seeds' own spread, t quantile of 127
    assert many.width == pytest.approx(2 * 1.98 * 0.1 / 128**0.5, rel=0.2)
    assert 2.5 < few.width / many.width < 8
    uneven = search.interval(
        accuracies(
            truth,
            N,
            128,
            per_seed=lambda own: [120, 128, 256] if own < truth else [64, 128],
        ),
        0.5,
    )
    # seeds that do not bracket the threshold count too
    assert uneven.lo < truth < uneven.hi


def test_an_interval_needs_a_crossing():
    with pytest.raises(ValueError, match="does not cross"):
        search.interval(accuracies(np.log(150), [8, 16, 32], 8), 0.5)
    with pytest.raises(ValueError, match="two seeds"):
        search.interval(accuracies(np.log(150), [64, 128, 256], 1), 0.5)


def test_designs_are_compared_at_equal_width():
    """Levels far from the crossing cost samples and tell nothing; more seeds of the
    same design change nothing.
    """
    dense = accuracies(np.log(150), [2**k for k in range(4, 12)], 128).assign(
        V=8, d=8, L=4
    )
    near = dense[dense["N"].isin([64, 128, 256])]
    wasted = dense["N"].sum() / near["N"].sum()
    assert search.samples_ratio(dense, near, 0.5)[0] == pytest.approx(wasted, rel=0.01)
    fewer, remarks = search.samples_ratio(dense, near[near["seed"] < 32], 0.5)
    assert fewer == pytest.approx(wasted, rel=0.4)
    assert len(remarks) == 1


def test_the_search_has_the_cells_of_the_dense_grid():
    for tiny in (True, False):
        dense = Work(tiny).grid("dense")
        cells = {(p.V, p.d, p.L) for p in points(dense)}
        grid = as_grid(search.search_grid(dense, 0.4))
        assert {(p.V, p.d, p.L) for p in grid.points} == cells
        assert grid.search.from_ == min(p.N for p in points(dense))


def test_bars_and_aims_are_read_from_their_text():
    asked = {row.key: row for row in ASKED}
    assert [reached(asked["R1"], [v]) for v in (79.4, 80, 200.0)] == [
        "neither",
        "bar",
        "aim",
    ]
    assert [reached(asked["memory"], [v]) for v in (1.11, 1.10, 1.024)] == [
        "neither",
        "bar",
        "aim",
    ]
    assert [reached(asked["programs"], v) for v in ([1, 9], [3, 4], [2, 4])] == [
        "neither",
        "bar",
        "aim",
    ]
    assert [reached(asked["fit"], v) for v in ([30.0, 5.0], [60.0, 1.0])] == [
        "neither",
        "bar",
    ]
    assert reached(asked["R2"], []) == ""


def test_the_guard_is_measured_over_its_whole_range():
    design = points(Work(tiny=False).grid("guard"))
    for size, ends in (
        ("V", (16, 1024)),
        ("d", (16, 2048)),
        ("L", (2, 512)),
        ("m", (0, 512)),
    ):
        assert (
            min(getattr(p, size) for p in design),
            max(getattr(p, size) for p in design),
        ) == ends
    guarded = [p for p in design if Shape.tight(p).fallback]
    assert len(guarded) > 0.6 * len(design)  # the others run in full at once
    assert {Shape.tight(p).form for p in guarded} == {"counts", "uniform", "pool"}
    assert any(p.diagnose for p in guarded)
    assert any(p.decoders for p in guarded)


def test_the_grids_of_the_estimates_are_of_twenty_kinds():
    shapes = {}
    for name, grid in Work(tiny=False).documents["estimates"].items():
        shapes[name] = {
            (s.form, str(s), s.diagnose, s.decoders)
            for s in map(Shape.tight, points(grid))
        }
    assert len(shapes) == 20
    assert {form for some in shapes.values() for form, *_ in some} == {
        "counts",
        "uniform",
        "full",
        "pool",
    }
    assert len(set(map(frozenset, shapes.values()))) > 16


def test_the_table_behind_a_worst_case_is_saved_and_printed(tmp_path):
    record = Record(tmp_path / "figures.md", tiny=False)
    table = [
        {"V": 16, "form": "counts", "guarded / full": 0.51234},
        {"V": 64, "form": "full", "guarded / full": 1.0},
    ]
    record.merge({"guard": Measured([1.0], table=table)}, ABOUT)
    text = (tmp_path / "figures.md").read_text()
    assert (
        "| V | form | guarded / full |\n| --- | --- | --- |\n| 16 | counts | 0.512 |\n|"
        " 64 | full | 1 |\n" in text
    )
    assert (
        json.loads((tmp_path / "figures.json").read_text())["rows"]["guard"]["table"]
        == table
    )


def test_partial_runs_merge_and_keep_what_was_measured(tmp_path):
    path = tmp_path / "saved" / "figures.md"
    Record(path, tiny=False).merge(
        {"R1": Measured([90.0]), "R2": Measured(note="not run: no torch")}, ABOUT
    )
    later = {**ABOUT, "machine": "another", "date": "2026-02-02T00:00+00:00"}
    record = Record(path, tiny=False)
    record.merge(
        {
            "R1": Measured(note="not run: no torch"),
            "R2": Measured([11.0], beside="9.9x"),
        },
        later,
    )
    rows = json.loads(path.with_suffix(".json").read_text())["rows"]
    assert (rows["R1"]["values"], rows["R1"]["machine"]) == ([90.0], "a machine")
    assert (rows["R2"]["values"], rows["R2"]["machine"]) == ([11.0], "another")
    text = path.read_text()
    assert "| R1, torch loop / jaxrecall | 80x | 200x | 90x | bar |  |" in text
    assert "| R2, torch loop / jaxrecall | 10x | 20x | 11x | bar | 9.9x |" in text
    assert "A: a machine; jax 1" in text
    assert "B: another; jax 1" in text
    with pytest.raises(ValueError, match="holds full figures"):
        Record(path, tiny=True)


def test_the_plan_for_scale_quotes_the_saved_file():
    section = (
        (ROOT / "docs/scaling.md")
        .read_text()
        .split("\n## A billion runs\n")[1]
        .split("\n## ")[0]
    )
    table = [line for line in section.splitlines() if line.startswith("|")]
    rows = json.loads((ROOT / "results/benchmarks.json").read_text())["rows"]
    if "bytes" not in rows:
        pytest.skip(
            "results/benchmarks.json has no figures of the folder: python -m benchmarks"
            " --only scale"
        )
    assert table == scale.plan(rows)


@pytest.mark.slow
def test_a_timed_process_needs_no_ray():
    """`make bench` installs neither."""
    code = (
        "import sys; from benchmarks.child import import_all; import_all(); assert"
        " 'ray' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=300)


@pytest.mark.slow
def test_everything_runs_in_small(tmp_path):
    """`python -m benchmarks --tiny`, end to end."""
    out = tmp_path / "figures.md"
    flags = (  # compiles in half the time
        "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    )
    quick = {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "XLA_FLAGS": flags}
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        "--tiny",
        "--repeats",
        "1",
        "--out",
        str(out),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **quick},
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    table = {
        line.split(" | ")[0].removeprefix("| "): line.split(" | ")
        for line in out.read_text().splitlines()
        if line.startswith("| ")
    }
    rows = json.loads(out.with_suffix(".json").read_text())["rows"]
    not_here = {"ray"} if "ray is not" in rows["ray"]["note"] else set()
    if any("torch is not installed" in row["note"] for row in rows.values()):
        not_here |= {
            "R1",
            "R1-full",
            "R2",
            "S1-warm",
            "S1-cold-torch",
            "S2-warm",
            "later",
        }
    for asked in ASKED:
        bar, aim, measured = table[asked.figure][1:4]
        assert (bar, aim) == (asked.bar, asked.aim)
        assert (measured == record.NOT_RUN) == (asked.key in not_here), asked.key
        assert rows[asked.key]["versions"]["jax"]
    assert rows["programs"]["values"] == [1, 1]
    assert rows["second"]["values"] == [0]
    assert {term["form"] for term in rows["R1-floor"]["floor"]} == {"guarded", "full"}


@pytest.mark.slow
def test_a_device_is_measured_in_small(tmp_path):
    """`python -m benchmarks.on_device --tiny`: every step has a line, and no step fails
    but that of an absent torch or a precision that a CPU lacks.
    """
    command = [
        sys.executable,
        "-m",
        "benchmarks.on_device",
        "--tiny",
        "--out",
        tmp_path,
    ]
    subprocess.run(command, cwd=ROOT, check=True, timeout=900)
    text = (tmp_path / "on-device.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    failed = [line for line in lines if "failed" in line]
    assert {line["step"] for line in failed} <= {"products", "peer"}
    compared = [line for line in lines if line["step"] == "rows"]
    assert len(compared) == len(on_device.FORMS)
    assert not any(line["unequal"] for line in compared)
    assert lines[-1]["step"] == "end"
    page = (tmp_path / "on-device.md").read_text()
    assert page == on_device_table.page(lines)
    for what in ("S1 by", "R1 |", "pool,", "a user's simulator at one", "the same by"):
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
    assert "| R1 | 1 |  | not run |  |  |" in page
    assert "0.2 |" not in page
    assert page.endswith("## Not run\n\n- R1: Error: no\n")


def test_a_profile_has_the_operations_of_the_device_alone():
    events = [
        {"name": "process_name", "pid": 1, "args": {"name": "/device:GPU:0"}},
        {"name": "process_name", "pid": 2, "args": {"name": "/host:CPU"}},
        {"name": "fusion", "ph": "X", "pid": 1, "dur": 2000},
        {"name": "fusion", "ph": "X", "pid": 1, "dur": 1000},
        {"name": "Execute", "ph": "X", "pid": 2, "dur": 9000},
    ]
    assert on_device.longest(events) == [("fusion", 2, 3.0)]
    assert on_device.longest(events[1:])[0] == ("Execute", 1, 9.0)


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
    assert cell.accuracy(truth, of_seed).mean() == pytest.approx(cell.theta, abs=0.01)
    runs = [cell.run(np.exp(truth), seed) for seed in range(1000)]
    assert np.mean(runs) == pytest.approx(cell.theta, abs=5 * np.std(runs) / 1000**0.5)
