"""Rows of simulators of one's own: what numbers may be, steps, float types and keys;
how their programs run; and what a plan can know of them.
"""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import python
from jax.experimental import io_callback
from tolerances import assert_close, assert_same_columns

import jaxrecall
from jaxrecall.errors import StoreError
from jaxrecall.simulator import custom_runs
from jaxrecall.status import main as status
from jaxrecall.sweep.__main__ import main

BOTH = pytest.mark.parametrize("jit", [True, False], ids=["compiled", "plain"])
FIELDS = {
    "N": (int, None, 1, 10**12, "traced"),
    "x": (float, 1.0, None, None, "traced"),
    "d": (int, 4, 1, 512, "static"),
}
COLUMNS = {
    "accuracy": (float, "fraction"),
    "other": (float, "another"),
    "whole": (int, "a whole number"),
}
GRID = {"blocks": [{"axes": {"N": [1, 2, 3, 4]}}]}


def noisy(point, key):
    """Accuracy rises with N, and differs between seeds."""
    rises = jnp.log(jnp.asarray(point.N, float) / 100) + 0.2 * jax.random.normal(key)
    return {"accuracy": jax.nn.sigmoid(rises), "other": point.x, "whole": point.N}


def made(fn, columns=COLUMNS, accuracy="accuracy", **options):
    return jaxrecall.Simulator(fn, FIELDS, columns, accuracy=accuracy, **options)


simulator = made(noisy)


pytestmark = pytest.mark.usefixtures("cwd")


def run(of=simulator, grid=GRID, seeds=2, **options):
    return jaxrecall.run(grid, simulator=of, seeds=seeds, progress=False, **options)


def parts(out="out") -> set[Path]:
    return {*Path(out, "parts").iterdir()}


# numbers

BY_N = {  # accuracy, other, whole
    1: (0.5, 1.0, 2.0),
    2: (1 + 1e-7, 1.0, 2.0),
    3: (0.5, math.inf, 2.0),
    4: (0.5, math.nan, 2.0),
    5: (0.5, 1.0, 2.5),
    6: (0.5, 1.0, 2.0**100),
    7: (55.0, 1.0, 2.0),
    8: (-0.01, 1.0, 2.0),
}


@pytest.fixture(scope="module", params=[True, False], ids=["compiled", "plain"])
def odd(request):
    """A simulator that returns the numbers of BY_N, and a column that is absent."""
    table, jit = np.float32([*BY_N.values()]), request.param

    def fn(point, key):
        row = (jnp.asarray(table) if jit else table)[point.N - 1]
        return {"accuracy": row[0], "other": row[1], "whole": row[2], "none": None}

    return made(fn, COLUMNS | {"none": (int, "absent")}, jit=jit)


@pytest.mark.filterwarnings("ignore:none. absent")
def test_numbers_that_are_not_finite_or_absent_are_null_alone_and_named(odd):
    """And an accuracy beyond 1 by rounding is 1."""
    told = r"^other: absent, not a number, .* in 4 of 8 rows, where it is null$"
    with pytest.warns(UserWarning, match=told):
        rows = run(odd, out="out")
    assert {*rows["status"]} == {"ok"}
    assert rows["other"].isna().tolist() == (rows["N"] > 2).tolist()
    assert rows[["accuracy", "whole"]].notna().all(axis=None)
    assert rows["accuracy"].max() == 1
    assert rows["none"].isna().all()
    before = parts()
    with pytest.warns(UserWarning, match=r"^other: absent"):
        run(odd, out="out")
    assert parts() == before, "its run is done"


@pytest.mark.filterwarnings("ignore:none. absent", "ignore:other. absent")
@pytest.mark.parametrize(
    ("N", "got"),
    [
        (5, "2.5 for the column whole; allowed: whole numbers of int64"),
        (6, "1.2676506002282294e+30 for the column whole; allowed: whole numbers"),
        (7, "55 for the column accuracy; allowed: fractions from 0 to 1"),
        (8, "-0.01 for the column accuracy; allowed: fractions from 0 to 1"),
    ],
)
def test_a_number_that_cannot_be_used_fails_its_own_run_alone(odd, N, got):
    with pytest.raises(jaxrecall.RunFailed) as failed:
        run(odd, {"blocks": [{"axes": {"N": [1, 2, N, 3]}}]}, out="out")
    assert sorted(failed.value.rows["N"]) == [1, 1, 2, 2, 3, 3]
    assert str(failed.value).count("the simulator returned ") == 1
    assert got in str(failed.value)
    (path,) = Path("out/failures").iterdir()
    assert [*map(len, json.loads(path.read_text())["runs"].values())] == [2]
    assert len(jaxrecall.load("out")) == 6


@BOTH
@pytest.mark.parametrize(
    ("value", "got"),
    [
        (np.zeros(4), r"accuracy of shape \(4,\); allowed: one number"),
        (1j, "1j for the column accuracy; allowed: numbers of float64"),
    ],
    ids=["several", "complex"],
)
def test_a_column_of_no_single_real_number_is_a_failed_run(jit, value, got):
    def odd(point, key):
        return {"accuracy": value, "other": 0.0, "whole": 0}

    with pytest.raises(jaxrecall.RunFailed, match=f"the simulator returned {got}"):
        run(made(odd, jit=jit))


EXTREME = {"N": [3 * 10**9, 1, 1, 1], "x": [1.0, 1e-50, -1e300, 0.0]}


def test_numbers_that_arrays_would_change_stay_as_they_are():
    """In plain Python, and in 64 bits. In 32 bits they are refused."""

    def same(point, key):
        return {"accuracy": 0.5, "other": point.x, "whole": point.N}

    grid = {"blocks": [{"axes": {"zip": EXTREME}}]}
    called = run(made(same, jit=False), grid, seeds=1)
    with jax.enable_x64(True):
        compiled = run(grid=grid, seeds=1)
    for rows in (called, compiled):
        assert sorted(rows["whole"]) == sorted(EXTREME["N"])
        assert sorted(rows["other"]) == sorted(EXTREME["x"])
    run(grid={"base": {"N": 1, "x": 0.0}})


STEPS = [0, 1, 2, 4, 8, 16, 32, 64]
LOSSES = {"loss": (float, "mean squared error"), "rate": (float, "the same rate")}


@BOTH
def test_a_run_may_have_rows_of_several_steps(jit):
    def falls(point, key):
        loss = 3 * (jnp if jit else np).exp(-np.float32(STEPS) * point.x / 20)
        return {"step": np.array(STEPS), "loss": loss, "rate": point.x}

    of_losses = made(falls, LOSSES, "loss", jit=jit)
    grid = {"base": {"N": 1}, "blocks": [{"axes": {"x": [1.0, 2.0, 4.0]}}]}
    rows = run(of_losses, grid, seeds=6, out="out")
    assert len(rows) == 3 * 6 * 8
    assert {*rows["steps"]} == {64}
    first = rows[(rows["x"] == 2) & (rows["seed"] == 0)]
    assert first["step"].tolist() == STEPS
    assert {*first["rate"]} == {2.0}
    assert len(run(of_losses, grid, seeds=6, out="out")) == len(rows)
    assert len(jaxrecall.load("out", last=True)) == 18
    (law,) = jaxrecall.fit.fit(rows, 1.0, along="step").exponents.itertuples()
    assert_close(law.exponent, -1, 0.2)


@pytest.mark.parametrize("steps", [[2, 1], [0.5, 1.0], [], [[1]], [-1, 2]])
def test_steps_that_are_no_ascending_whole_numbers_fail_their_run(steps):
    def fn(point, key):
        return {"step": np.array(steps), "loss": np.zeros(len(steps)), "rate": 1.0}

    with pytest.raises(jaxrecall.RunFailed, match="for step; allowed: whole numbers"):
        run(made(fn, LOSSES, "loss", jit=False), seeds=1)


# keys and float types


def test_keys_are_of_one_kind_whatever_jax_has_for_a_default():
    def words(point, key):
        data = np.asarray(jax.random.key_data(key))
        return {"accuracy": 0.5, "other": data.sum(), "whole": 0}

    of_key = made(words, jit=False)
    usual = run(of_key)
    with jax.default_prng_impl("rbg"):
        again = run(of_key)
    assert again["other"].equals(usual["other"])


def test_rows_of_two_float_types_do_not_mix(capsys):
    rows = run(out="out")
    assert rows["cpu_model"][0] in Path("/proc/cpuinfo").read_text()
    assert not rows["x64"].any()
    to_match = (
        "holds 8 runs of code_version 1, precision highest{}; .* set JAX_ENABLE_X64"
    )
    with jax.enable_x64(True):
        with pytest.raises(StoreError, match=to_match.format("")):
            run(out="out", seeds=4)
        doubles = run(out="doubles")
        run(out="doubles")
    assert doubles["x64"].all()
    assert {*doubles["precision"]} == {"highest, x64"}
    assert (doubles["accuracy"] != doubles["accuracy"].astype(np.float32)).all()
    with pytest.raises(StoreError, match=to_match.format(", x64")):
        run(out="doubles")
    with pytest.warns(UserWarning, match="8 were of another code_version or precision"):
        jaxrecall.load(["out", "doubles"])
    assert status(["doubles"]) == 0
    assert "8 done" in capsys.readouterr().out


MODULE = """
import jax.numpy as jnp, jaxrecall
fields = {
    "N": (int, 1, 1, 10**12, "traced"),
    "d": (int, 4, 1, 4096, "static"),
}
columns = {"a": (float, ""), "time": (float, "")}
shares = jaxrecall.Simulator(
    lambda p, k: {"a": p.N / (p.N + 1), "time": 1.0}, fields, columns, "a"
)
timed = jaxrecall.Simulator(
    lambda p, k: {"a": p.d / (p.d + 50), "time": 1.0 if p.N > 1 else float("inf")},
    fields, columns, "a", jit=False,
)
"""


@pytest.fixture
def module(cwd, monkeypatch):
    (cwd / "timed_and_shares.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(cwd))


@pytest.mark.system  # starts processes
def test_workers_have_the_float_type_of_the_call(module):
    grid = {"blocks": [{"axes": {"N": [1, 10**11]}}]}
    with jax.enable_x64(True):
        rows = run("timed_and_shares:shares", grid, seeds=4, workers=2)
    assert rows["x64"].all()
    assert {*rows["precision"]} == {"highest, x64"}
    assert rows["a"].max() == 1e11 / (1e11 + 1)


# plans

UNKNOWN = {"est_seconds": None, "est_flops": None, "est_peak_bytes": None}
SIMULATOR = "simulator: timed_and_shares:timed\n"


def test_what_is_unknown_of_a_simulator_is_not_estimated(module, capsys):
    def dry(grid, *more):
        Path("grid.yaml").write_text(SIMULATOR + grid)
        assert main(["--grid", "grid.yaml", "--out", "out", "--dry-run", *more]) == 0
        return capsys.readouterr().out

    grid = "blocks: [{axes: {d: [2, 3], N: [1, 2]}}]"
    text = dry(grid)
    assert "  program timed_and_shares:timed d=2: 2 points, 2 runs, 1 chunk\n" in text
    assert "time and memory are unknown until the first batch has run\n" in text
    assert "about" not in text
    facts = json.loads(dry(grid, "--json"))
    assert facts | UNKNOWN == facts
    of_program = facts["program_list"][0]
    assert of_program["est_seconds"] is of_program["est_peak_bytes"] is None

    search = "seeds: 60\nblocks: [{axes: {%s: [2, 3]}}]\n"
    search += "search: {axis: %s, from: 4, to: 64}"
    levels = len({round(2 ** (k / 8)) for k in range(16, 49)})
    for names, n_programs in ((("d", "N"), 2), (("N", "d"), levels)):
        text = dry(search % names)
        assert f"800 to do in {n_programs} programs\ntime and memory are unk" in text
        assert "about" not in text
        facts = json.loads(dry(search % names, "--json"))
        assert facts["programs"] == len(facts["program_list"]) == n_programs
        assert facts | UNKNOWN == facts
    assert main(["--grid", "grid.yaml", "--out", "out"]) == 0
    found = jaxrecall.thresholds("out")
    assert found["samples"].equals(found["N"] * found["runs"])


def test_the_command_line_names_columns_without_a_number(module, capsys):
    grid = "seeds: 2\nblocks: [{axes: {N: [1, 2]}}]"
    Path("grid.yaml").write_text(SIMULATOR + grid)
    assert main(["--grid", "grid.yaml", "--out", "out"]) == 0
    told = capsys.readouterr().out
    assert "4 to do in 1 program, time and memory are unknown until" in told
    assert re.search("time: absent, not a number, .* in 2 of 4 rows", told)


# programs


def square(point, key):
    """Squares 512 x 512 numbers, and needs some 4 MiB."""
    drawn = jax.random.normal(key, (512, 512))
    accuracy = jnp.tanh(jnp.abs((drawn @ drawn).mean()))
    return {"accuracy": accuracy, "other": 0, "whole": 0}


squares = made(square)


@pytest.fixture
def accelerator(monkeypatch):
    """Runs are vmapped, as on an accelerator."""
    monkeypatch.setattr(custom_runs, "on_cpu", lambda: False)


@pytest.mark.usefixtures("accelerator")
def test_vmapped_runs_are_halved_down_to_the_memory_of_the_device(capsys, monkeypatch):
    monkeypatch.setattr(custom_runs, "memory_of_device", lambda: 12 * 2**20)
    # a simulator is traced once, for one kind of device
    rows = jaxrecall.run({"base": {"N": 1}}, seeds=4, simulator=made(square))
    assert len(rows) == 4
    told = re.findall(
        r"(\d) at a time need .* of memory; allowed: 12 MiB .*; continuing with (\d)",
        capsys.readouterr().err,
    )
    assert told == [("4", "2")]


@pytest.mark.usefixtures("accelerator")
def test_runs_that_do_not_fit_one_at_a_time_fail():
    grid = {"base": {"N": 1}, "limits": {"max_bytes": 20_480}}
    told = r"2 runs failed, .*:square d=4: .*1 at a time need .* allowed: 0\.0195 MiB"
    with pytest.raises(jaxrecall.RunFailed, match=told) as failed:
        run(made(square), grid)
    assert not len(failed.value.rows)


@pytest.mark.usefixtures("accelerator")
def test_an_accelerator_vmaps_the_runs_that_there_are_or_a_batch():
    given = ((3, None), (10**6, None), (100, 24))
    widths = [custom_runs.vmapped_width(*each) for each in given]
    assert widths == [4, custom_runs.MAX_VMAPPED, 24]


@pytest.mark.usefixtures("accelerator")
def test_rows_of_an_accelerator_do_not_depend_on_the_width():
    one, eight = run(seeds=1), run(seeds=8)
    assert_same_columns(one, eight.query("seed == 0"), COLUMNS)
    assert custom_runs.compile_simulator.cache_info().currsize >= 2


def products(point, key):
    """Small products, which XLA sums in another order if more runs are vmapped."""
    a = jax.random.normal(key, (32, 32)) / jnp.sqrt(32)
    x = jax.lax.fori_loop(0, 150, lambda i, x: jnp.tanh(a @ x), jnp.eye(32))
    return {"accuracy": jnp.abs(x).mean(), "other": x.sum(), "whole": 0}


@pytest.mark.parametrize("of", [made(products), squares], ids=["small", "large"])
def test_on_a_cpu_the_number_of_runs_changes_no_digit_and_a_loop_needs_memory_for_one(
    of, capsys
):
    grid = {"base": {"N": 1}, "limits": {"max_bytes": 2**23}}
    one, many = (
        jaxrecall.run(grid, seeds=seeds, simulator=of).query("seed == 0")
        for seeds in (1, 9)
    )
    assert one[["accuracy", "other"]].equals(many[["accuracy", "other"]])
    assert "at a time" not in capsys.readouterr().err


def loops(of, d: int) -> bool:
    program = replace(of.point({"N": 1}).program, static=(("d", d),))
    return of.trace(program, "highest").in_turn


def walk(point, key):
    """A loop of small steps, beside one large array."""
    table = jax.random.normal(key, (point.d, point.d))

    def step(i, x):
        return jnp.sin(x) + 0.1 * jax.random.normal(jax.random.fold_in(key, i))

    end = jax.lax.fori_loop(0, point.N, step, 0.0)
    return {"accuracy": jax.nn.sigmoid(end), "other": table.mean(), "whole": 0}


def test_a_cpu_loops_over_runs_whose_idle_slots_would_take_time():
    assert loops(squares, d=4)
    assert not loops(simulator, d=4)
    assert not loops(made(walk), d=100), "its small steps take the time"
    assert loops(made(walk), d=4000)


@pytest.mark.parametrize(
    "kind", ["debug", "ordered", pytest.param("io", marks=pytest.mark.slow)]
)
def test_prints_and_callbacks_happen_once_for_each_run(kind):
    heard = []

    def listen(N):
        heard.append(int(N))

    def told(point, key):
        if kind == "debug":
            jax.debug.callback(listen, point.N)
        else:
            io_callback(listen, None, point.N, ordered=kind == "ordered")
        return {"accuracy": 0.5, "other": 0.0, "whole": 0}

    run(made(told), seeds=3)
    jax.effects_barrier()
    assert sorted(heard) == sorted([1, 2, 3, 4] * 3)


ON_DEVICES = """
import json, sys
sys.path[:0] = ["tests", "tests/sweep"]
import jax, jaxrecall
import test_custom_rows as t
assert len(jax.local_devices()) == 4
found = {}
for of in (t.simulator, t.squares):
    found[of.name] = t.run(of, seeds=9)["accuracy"].tolist()
    program = of.point({"N": 1, "d": 4}).program
    made = t.custom_runs.compile_simulator(of, program, 8, "highest", 2**40, False)
    assert made[1] == 4 * 8
print(json.dumps(found))
"""


@pytest.mark.system  # a process with four devices
def test_all_devices_are_used_and_change_no_row():
    out = python(ON_DEVICES, XLA_FLAGS="--xla_force_host_platform_device_count=4")
    found = json.loads(out.stdout)
    for of in (simulator, squares):
        assert run(of, seeds=9)["accuracy"].tolist() == found[of.name]
