"""Rows of simulators of one's own: what numbers may be, float types and keys; and what
a plan can know of them.
"""

import itertools
import json
import math
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers import python
from jax.experimental import io_callback
from pandas.testing import assert_frame_equal

import jaxrecall
from jaxrecall.errors import GridError, StoreError
from jaxrecall.simulator import custom_runs
from jaxrecall.status import main as status
from jaxrecall.sweep.__main__ import main

mpl.use("agg")
pytestmark = pytest.mark.usefixtures("with_figures")

BOTH = pytest.mark.parametrize("jit", [True, False], ids=["compiled", "plain"])
ANY = {
    "N": (int, None, 1, 10**6, "traced"),
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
    return {
        "accuracy": jax.nn.sigmoid(rises),
        "other": jnp.asarray(point.x, float),
        "whole": point.N,
    }


def made(fn, fields=ANY, **options):
    return jaxrecall.Simulator(fn, fields, COLUMNS, accuracy="accuracy", **options)


simulator = made(noisy)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(of=simulator, grid=GRID, seeds=2, **options):
    return jaxrecall.run(grid, simulator=of, seeds=seeds, progress=False, **options)


def odd(**at_3):
    """A simulator of ordinary numbers, but at N = 3."""
    usual = {"accuracy": 0.5, "other": 1.0, "whole": 2.0}

    def fn(point, key):
        return {
            name: jnp.where(point.N == 3, jnp.asarray(at_3.get(name, value)), value)
            for name, value in usual.items()
        }

    return fn


@BOTH
@pytest.mark.parametrize(
    ("at_3", "message"),
    [
        (
            {"whole": 2.5},
            (
                "the simulator returned 2.5 for the column whole; allowed: whole"
                " numbers of int64"
            ),
        ),
        ({"whole": 1e30}, "for the column whole; allowed: whole numbers of int64"),
        (
            {"accuracy": 55.0},
            (
                "the simulator returned 55 for the column accuracy; allowed: fractions"
                " from 0 to 1"
            ),
        ),
        (
            {"accuracy": -0.01},
            (
                "the simulator returned -0.01 for the column accuracy; allowed:"
                " fractions from 0 to 1"
            ),
        ),
    ],
)
def test_a_number_that_cannot_be_used_fails_its_own_run_alone(jit, at_3, message):
    with pytest.raises(jaxrecall.RunFailed) as failed:
        run(made(odd(**at_3), jit=jit), out="out")
    assert sorted(failed.value.rows["N"]) == [1, 1, 2, 2, 4, 4]
    assert str(failed.value).count(message) == 1
    (path,) = Path("out/failures").iterdir()
    assert list(map(len, json.loads(path.read_text())["runs"].values())) == [2]
    assert len(jaxrecall.load("out")) == 6


def test_an_accuracy_beyond_1_by_rounding_is_1():
    assert run(made(odd(accuracy=1 + 1e-7)))["accuracy"].max() == 1


@BOTH
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_metric_that_is_not_finite_is_null_alone_and_named(jit, value):
    with pytest.warns(
        UserWarning,
        match=r"^other: absent or not finite in 2 of 8 rows, where it is null$",
    ):
        rows = run(made(odd(other=value), jit=jit), out="out")
    assert set(rows["status"]) == {"ok"}
    assert rows["other"].isna().tolist() == (rows["N"] == 3).tolist()
    assert rows[["accuracy", "whole"]].notna().all(axis=None)
    parts = set(Path("out/parts").iterdir())
    with pytest.warns(UserWarning, match=r"^other: absent"):
        run(made(odd(other=value), jit=jit), out="out")
    assert set(Path("out/parts").iterdir()) == parts, "its run is done"


@BOTH
@pytest.mark.filterwarnings("ignore:other. absent", "ignore:whole. absent")
def test_a_metric_may_be_absent(jit):
    def fn(point, key):
        return {"accuracy": 0.5, "other": None, "whole": None}

    rows = run(made(fn, jit=jit))
    assert rows[["other", "whole"]].isna().all(axis=None)
    assert set(rows["status"]) == {"ok"}


@pytest.mark.parametrize(
    ("base", "message"),
    [
        (
            {"N": 3 * 10**9},
            "N: got 3000000000 for a traced field; allowed: whole numbers of int32",
        ),
        (
            {"N": 1, "x": 1e-50},
            (
                "x: got 1e-50 for a traced field; allowed: 0, and magnitudes of"
                " float32, from 1.18e-38 to 3.4e"
            ),
        ),
        ({"N": 1, "x": -1e300}, r"x: got -1e\+300 for a traced field"),
    ],
)
def test_numbers_that_arrays_would_change_are_refused_with_the_grid(base, message):
    fields = ANY | {"N": (int, None, 1, 10**12, "traced")}
    with pytest.raises(GridError, match=message):
        run(made(noisy, fields), {"base": base})
    held = run(
        made(
            lambda point, key: {"accuracy": 0.5, "other": point.x, "whole": point.N},
            fields,
            jit=False,
        ),
        {"base": base},
        seeds=1,
    )
    assert (held["whole"] == base["N"]).all(), (
        "a function that is plain Python takes any number"
    )
    assert (held["other"] == base.get("x", 1.0)).all()
    with jax.enable_x64(True):
        held = run(made(noisy, fields), {"base": base}, seeds=1)
    assert (held["whole"] == base["N"]).all()
    assert (held["other"] == base.get("x", 1.0)).all()
    run(made(noisy, fields), {"base": {"N": 1, "x": 0.0}})


def test_keys_are_of_one_kind_whatever_jax_has_for_a_default():
    usual = run()
    with jax.default_prng_impl("rbg"):
        assert_frame_equal(run().drop(columns="seconds"), usual.drop(columns="seconds"))


def test_rows_of_two_float_types_do_not_mix(capsys):
    rows = run(out="out")
    assert rows.columns[-1] == "x64"
    assert not rows["x64"].any()
    with jax.enable_x64(True):
        with pytest.raises(StoreError) as refused:
            run(out="out", seeds=4)
        doubles = run(out="doubles")
        run(out="doubles")
    assert (
        str(refused.value)
        == "out: holds 8 runs of code_version 1, precision highest; this call would add"
        " code_version 1, precision highest, x64. Choose another --out, set"
        " JAX_ENABLE_X64 to match, or move the old rows away."
    )
    assert doubles["x64"].all()
    assert set(doubles["precision"]) == {"highest, x64"}
    assert (doubles["accuracy"] != doubles["accuracy"].astype(np.float32)).all()
    with pytest.raises(
        StoreError,
        match=(
            r"holds 8 runs of code_version 1, precision highest, x64; .* set"
            r" JAX_ENABLE_X64 to match"
        ),
    ):
        run(out="doubles")
    with pytest.warns(UserWarning, match="8 were of another code_version or precision"):
        jaxrecall.load(["out", "doubles"])
    assert status(["doubles"]) == 0
    assert "8 done" in capsys.readouterr().out


def test_rows_without_the_column_count_as_float32():
    run(out="out")
    for path in Path("out/parts").iterdir():
        pq.write_table(pq.read_table(path).drop_columns(["x64"]), path)
    older = {path.name for path in Path("out/parts").iterdir()}
    rows = run(out="out", seeds=3)
    assert older < {path.name for path in Path("out/parts").iterdir()}
    assert rows["x64"].tolist() == [False] * 12
    assert rows["x64"].dtype == bool
    with (
        jax.enable_x64(True),
        pytest.raises(StoreError, match="set JAX_ENABLE_X64 to match"),
    ):
        run(out="out")


@pytest.mark.system  # starts processes
def test_workers_have_the_float_type_of_the_call():
    module = Path("module.py")
    module.write_text(
        "import jaxrecall\nfields = {'N': (int, None, 1, 10**12, 'traced')}\nsimulator"
        " = jaxrecall.Simulator(lambda p, k: {'a': p.N / (p.N + 1)}, fields, {'a':"
        " (float, '')}, accuracy='a')\n"
    )
    with jax.enable_x64(True):
        rows = jaxrecall.run(
            {"blocks": [{"axes": {"N": [1, 10**11]}}]},
            seeds=4,
            simulator="module:simulator",
            workers=2,
            progress=False,
        )
    assert rows["x64"].all()
    assert set(rows["precision"]) == {"highest, x64"}
    assert rows["a"].max() == 1e11 / (1e11 + 1)


@BOTH
def test_a_column_of_several_numbers_is_a_failed_run(jit):
    def several(point, key):
        return noisy(point, key) | {"accuracy": jnp.zeros(4)}

    with pytest.raises(
        jaxrecall.RunFailed,
        match=r"returned accuracy of shape \(4,\); allowed: one number",
    ):
        run(made(several, jit=jit))


def test_what_is_unknown_of_a_simulator_is_not_estimated(folder, capsys):
    (folder / "unknown_costs.py").write_text(
        "import jaxrecall\nfields = {'d': (int, 4, 1, 4096, 'static'), 'M': (int, 4, 1,"
        " 4096, 'traced')}\nsimulator = jaxrecall.Simulator(lambda p, k: {'a': p.d /"
        " (p.d + 50.0)}, fields, {'a': (float, '')}, accuracy='a')\n"
    )
    Path("grid.yaml").write_text(
        "simulator: unknown_costs:simulator\nblocks: [{axes: {d: [2, 3], M: [1, 2]}}]\n"
    )
    search = (
        "simulator: unknown_costs:simulator\nseeds: 60\nblocks: [{axes: {%s: [2,"
        " 3]}}]\nsearch: {axis: %s, from: 4, to: 64}\n"
    )
    Path("search.yaml").write_text(search % ("M", "d"))
    Path("traced.yaml").write_text(search % ("d", "M"))
    unknown = {"est_seconds": None, "est_flops": None, "est_peak_bytes": None}
    levels = len({round(2 ** (k / 8)) for k in range(16, 49)})

    def dry(name, *more):
        assert main(["--grid", name, "--out", "out", "--dry-run", *more]) == 0
        return capsys.readouterr().out

    text = dry("grid.yaml")
    assert "  program unknown_costs:simulator d=2: 2 points, 2 runs, 1 chunk\n" in text
    assert "time and memory are unknown until the first batch has run\n" in text
    assert "about" not in text
    facts = json.loads(dry("grid.yaml", "--json"))
    assert {name: facts[name] for name in unknown} == unknown
    assert (
        facts["program_list"][0]["est_seconds"]
        is facts["program_list"][0]["est_peak_bytes"]
        is None
    )
    for name, programs in (("search.yaml", levels), ("traced.yaml", 2)):
        text = dry(name)
        assert (
            f"at most 800 to do in {programs} programs\ntime and memory are unknown"
            in text
        )
        assert "about" not in text
        facts = json.loads(dry(name, "--json"))
        assert facts["programs"] == len(facts["program_list"]) == programs
        assert {name: facts[name] for name in unknown} == unknown
    assert main(["--grid", "search.yaml", "--out", "out"]) == 0
    assert jaxrecall.thresholds("out")["samples"].isna().all(), "there is no N to sum"
    assert main(["--grid", "grid.yaml", "--out", "grid"]) == 0
    assert (
        "4 to do in 2 programs, time and memory are unknown until"
        in capsys.readouterr().out
    )


LIMITS = {"64MiB": [8], "24MiB": [8, 4], "12MiB": [8, 4, 2], "20KiB": [8, 4, 2, 1]}


def square(point, key):
    """Squares 512 x 512 numbers, and needs some 4 MiB."""
    drawn = jax.random.normal(key, (512, 512))
    return {
        "accuracy": jnp.tanh(jnp.abs((drawn @ drawn).mean())),
        "other": 0,
        "whole": 0,
    }


@pytest.fixture
def accelerator(monkeypatch) -> None:
    """Runs are vmapped, as on an accelerator."""
    monkeypatch.setattr(custom_runs, "on_cpu", lambda: False)


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize("source", ["limits", "device"])
@pytest.mark.parametrize(("limit", "widths"), LIMITS.items())
def test_programs_stay_below_the_limit_of_memory(
    limit, widths, source, capsys, monkeypatch
):
    grid, refused = {"base": {"N": 1}, "limits": {"max_bytes": limit}}, ""
    if source == "device":
        memory = int(float(limit[:-3]) * {"K": 2**10, "M": 2**20}[limit[-3]])
        del grid["limits"]
        monkeypatch.setattr(custom_runs, "memory_of_device", lambda: memory)
    try:
        rows = jaxrecall.run(grid, seeds=8, simulator=made(square))
    except jaxrecall.RunFailed as failed:
        rows, refused = failed.rows, str(failed).splitlines()[-1]
    line = (
        r"(\d) at a time need .* MiB of memory; allowed: .* MiB"
        r" \(limits.max_bytes, or that of the device\); continuing with (\d)"
    )
    told = re.findall(line, capsys.readouterr().err)
    assert [(int(before), int(after)) for before, after in told] == list(
        itertools.pairwise(widths)
    )
    assert len(rows) == (0 if refused else 8)
    assert bool(refused) == (limit == "20KiB")
    if refused:
        program = "test_custom_rows:square d=4"
        assert f"8 runs failed, the first of program {program}: " in refused
        assert "1 at a time need" in refused
        assert "allowed: 0.0195 MiB (limits.max_bytes, or that" in refused


def test_a_loop_over_runs_needs_the_memory_of_one(capsys):
    grid = {"base": {"N": 1}, "limits": {"max_bytes": "8MiB"}}
    assert len(jaxrecall.run(grid, seeds=8, simulator=made(square))) == 8
    assert "at a time" not in capsys.readouterr().err
    grid["limits"]["max_bytes"] = "20KiB"
    with pytest.raises(jaxrecall.RunFailed, match="1 at a time need"):
        jaxrecall.run(grid, seeds=8, simulator=made(square))


def test_the_number_of_vmapped_runs_fits_what_an_accelerator_has_to_do(
    accelerator, monkeypatch
):
    wide = [custom_runs.vmapped_width(n, None) for n in (1, 2, 3, 8, 9, 10**6)]
    assert wide == [1, 2, 4, 8, 16, custom_runs.MAX_VMAPPED]
    assert custom_runs.vmapped_width(100, 24) == 24
    monkeypatch.setattr(jax, "local_device_count", lambda: 4)
    assert [custom_runs.vmapped_width(n, None) for n in (4, 5, 33)] == [1, 2, 16]


@pytest.mark.usefixtures("accelerator")
def test_rows_of_an_accelerator_do_not_depend_on_the_width():
    some = {n: jaxrecall.run(GRID, seeds=n, simulator=simulator) for n in (1, 8)}
    first = some[8].query("seed == 0")
    for name in ("accuracy", "other", "whole"):
        np.testing.assert_allclose(some[1][name], first[name], rtol=1e-6)
    assert custom_runs.compiled.cache_info().currsize >= 2


def products(point, key):
    """Small products, which XLA sums in another order if more runs are vmapped."""
    a = jax.random.normal(key, (32, 32)) / jnp.sqrt(32)
    x = jax.lax.fori_loop(0, 150, lambda i, x: jnp.tanh(a @ x), jnp.eye(32))
    return {"accuracy": jnp.abs(x).mean(), "other": x.sum(), "whole": 0}


@pytest.mark.parametrize("fn", [products, square], ids=["small", "large"])
def test_on_a_cpu_the_number_of_runs_changes_no_digit(fn):
    one, many = (
        jaxrecall.run({"base": {"N": 1}}, seeds=n, simulator=made(fn)).query(
            "seed == 0"
        )
        for n in (1, 9)
    )
    for name in ("accuracy", "other"):
        assert list(one[name]) == list(many[name])


def loops(fn, d: int) -> bool:
    return custom_runs.traced(made(fn), (("d", d),), "highest", False).in_turn


def walk(point, key):
    """A loop of small steps, beside one large array."""
    table = jax.random.normal(key, (point.d, point.d))

    def step(i, x):
        return jnp.sin(x) + 0.1 * jax.random.normal(jax.random.fold_in(key, i))

    end = jax.lax.fori_loop(0, point.N, step, 0.0)
    return {"accuracy": jax.nn.sigmoid(end), "other": table.mean(), "whole": 0}


def test_a_cpu_loops_over_runs_whose_idle_slots_would_take_time():
    assert loops(square, d=4)
    assert not loops(noisy, d=4)
    assert not loops(walk, d=100), "its small steps take the time"
    assert loops(walk, d=4000)


@pytest.mark.parametrize("kind", ["debug", "io", "ordered"])
def test_prints_and_callbacks_happen_once_for_each_run(kind):
    heard = []

    def listen(N):
        heard.append(int(N))

    def told(point, key):
        if kind == "debug":
            jax.debug.callback(listen, point.N)
        else:
            io_callback(listen, None, point.N, ordered=kind == "ordered")
        return noisy(point, key)

    jaxrecall.run(GRID, seeds=3, simulator=made(told))
    jax.effects_barrier()
    assert sorted(heard) == sorted([1, 2, 3, 4] * 3)


def test_the_function_is_traced_once_for_each_combination_of_static_fields():
    traced = []

    def counted(point, key):
        traced.append(point.d)
        return noisy(point, key)

    grid = {"blocks": [{"axes": {"N": [1, 2, 3], "d": [4, 5]}}]}
    jaxrecall.run(grid, seeds=9, simulator=made(counted))
    assert traced == [4, 5]


ON_DEVICES = """
import json, sys
sys.path[:0] = ["tests", "tests/sweep"]
import jax, jaxrecall
import test_custom_rows as t
assert len(jax.local_devices()) == 4
found = {}
for fn in (t.noisy, t.square):
    rows = jaxrecall.run(t.GRID, seeds=9, simulator=t.made(fn), progress=False)
    found[fn.__name__] = rows["accuracy"].tolist()
    made = t.custom_runs.compiled(t.made(fn), (("d", 4),), 8, "highest", 2**40, False)
    assert made[1] == 4 * 8
print(json.dumps(found))
"""


@pytest.mark.system  # a process with four devices
def test_all_devices_are_used_and_change_no_row():
    out = python(ON_DEVICES, XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert out.returncode == 0, out.stderr
    for name, accuracy in json.loads(out.stdout).items():
        fn = {"noisy": noisy, "square": square}[name]
        rows = jaxrecall.run(GRID, seeds=9, simulator=made(fn))
        assert rows["accuracy"].tolist() == accuracy


BATCH = (
    "import jax.numpy as jnp, jaxrecall\nfields = {'N': (int, None, 1, 100,"
    " 'traced')}\ncolumns = {'a': (float, ''), 'time': (float, '')}\nsimulator ="
    " jaxrecall.Simulator(lambda p, k: {'a': 0.5, 'time': jnp.where(p.N == 2, jnp.inf,"
    " 1.0)}, fields, columns, accuracy='a')\n"
)


def test_the_command_line_names_columns_without_a_number(capsys):
    Path("batch.py").write_text(BATCH)
    Path("grid.yaml").write_text(
        "simulator: batch:simulator\nseeds: 2\nblocks: [{axes: {N: [1, 2]}}]\n"
    )
    assert main(["--grid", "grid.yaml", "--out", "out"]) == 0
    assert (
        "warning: time: absent or not finite in 2 of 4 rows, where it is null"
        in capsys.readouterr().out
    )
