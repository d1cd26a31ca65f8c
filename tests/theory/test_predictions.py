"""Theory for users: models from points, warnings of settings in which theory was
measured to be off, tables with predictions, and the command.
"""

import json
import math
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from helpers import python

from jaxrecall import theory
from jaxrecall.errors import TheoryError, TheoryWarning
from jaxrecall.model.columns import COLUMNS
from jaxrecall.model.point import FIELDS, Point
from jaxrecall.theory import Model
from jaxrecall.theory.__main__ import main
from jaxrecall.theory.tables import ADDED

POINT = Point(V=32, N=500, d=48, L=6, m=16, activation="tanh", gamma=1e8, pool=64)
MODEL = Model(V=32, d=48, L=6)
SIZES = {"V": 32, "d": 48, "L": 6}
SHORT = MODEL.replace(L=1)  # without attention: quick


def test_a_model_takes_a_point_or_its_fields():
    assert Model(POINT) == Model.from_point(POINT)
    assert Model(POINT).kappa == POINT.kappa != 100
    assert Model(POINT, m=0, kappa=100, eta=0) == MODEL
    fields = {name: getattr(POINT, name) for name in FIELDS}
    assert Model(**fields) == Model(POINT)
    harmless = {"N": 7, "gamma2": 9.0, "pool": 8, "n_test": 9, "streams": "independent"}
    assert Model(**SIZES, **harmless) == MODEL


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"kapa": 3}, "kapa: got 3; .*no such field; did you mean kappa"),
        ({"kapa": None}, "kapa: got None; .*did you mean kappa"),
        (
            {"gamma": 2.0},
            r"gamma: got 2\.0 without kappa; allowed: kappa = gamma eta f",
        ),
        ({"label_noise": 0.1}, r"label_noise: got 0\.1; covered by theory: 0\.0"),
        ({"steps": 9}, "steps: got 9; covered by theory: 3"),
        ({"embedding_out": "sphere"}, "embedding_out: got 'sphere'; .*that of embed"),
        ({"pool": [1, 2]}, r"pool: got \[1, 2\]; allowed: one value"),
    ],
)
def test_a_model_refuses_what_no_formula_covers(given, refusal):
    with pytest.raises(TheoryError, match=f"^{refusal}") as refused:
        Model(**SIZES, **given)
    assert len(refused.value.lines) == 1
    with pytest.raises(TheoryError, match=r"^point: got 3; allowed: a Point"):
        Model(3)


@pytest.mark.parametrize("axis", ["d", "V", "L"])
def test_a_critical_size_needs_no_size_along_its_axis(axis):
    sizes = SIZES if axis == "L" else SIZES | {"L": 1}
    others = {name: size for name, size in sizes.items() if name != axis}
    model = Model(**others)
    found = theory.critical(model, axis, N=600)
    assert 2 < found == theory.critical(Model(**sizes), axis, N=600) < math.inf
    other = next(iter(others))
    for formula in (
        lambda: theory.critical(model, other, N=600),
        lambda: theory.critical_N(model),
        lambda: theory.accuracy(model, 600),
        lambda: theory.seen(model, 600),
    ):
        with pytest.raises(TheoryError, match=f"^{axis}: not given; theory needs V, d"):
            formula()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kappa": 3}, "kappa: got 3; theory holds from about 5 on.* 1.5 to 3 times"),
        ({"kappa": 5}, ""),
        ({"kappa": 3, "L": 1}, ""),
        # quadratic layers see little of the trigger
        ({"m": 8, "activation": "quadratic", "kappa": 10}, "kappa: got 10; .*about 18"),
        ({"m": 8, "activation": "quadratic", "kappa": 20}, ""),
        ({"embedding": "equicorrelated(rho=0.7)"}, "kappa: got 100.*from about 1.1"),
        ({"embedding": "equicorrelated(rho=0.4)"}, ""),
        ({"eta": 30, "gamma2": 20}, "gamma2: got 20; .*above eta first_steps = 30"),
        ({"eta": 30, "gamma2": 40}, ""),
    ],
)
def test_settings_in_which_theory_was_off_by_a_factor_of_2_give_a_warning(
    changes, told
):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        theory.accuracy(Model(**SIZES | changes), 400)
    assert [warning.category for warning in caught] == [TheoryWarning] * bool(told)
    for warning in caught:
        assert re.search(told, str(warning.message))
        assert warning.filename == __file__


@pytest.mark.parametrize(
    ("d", "theta", "told"),
    [
        (64, 0.9, "theta: got 0.9; .*levels off.*V=64, d=64, L=1.* 3 times larger"),
        (63, 0.9, "theta: got 0.9; .*levels off"),  # critical N is infinite
        (40, 0.9, ""),  # far from it
        (64, 0.5, ""),
    ],
)
def test_a_theta_near_which_accuracy_levels_off_gives_a_warning(d, theta, told):
    model = Model(V=64, d=d, L=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = theory.critical_N(model, theta)
    assert (found == math.inf) == (theta == 0.9 and d < 64)
    assert len(caught) == bool(told)
    for warning in caught:
        assert re.search(told, str(warning.message))


def test_accuracy_and_sizes_along_other_axes_warn_once_of_a_small_kappa():
    layer = Model(V=30, d=32, L=6, embedding="orthogonal", kappa=2)
    for ask in (
        lambda: theory.critical_N(layer),
        lambda: theory.critical(layer, "L", N=9),
    ):
        with pytest.warns(TheoryWarning, match="kappa: got 2") as caught:
            ask()
        assert len(caught) == 1
    # a bound does not depend on kappa, nor on eta
    assert theory.recall_ceiling(MODEL.replace(kappa=2), 9) > 0
    late = Point(**SIZES, N=9, eta=1e4, steps=9, lr=0.1)
    assert Model.from_point(late, any_training=True) == MODEL


ROWS = pd.DataFrame(
    {
        "V": 32,
        "d": [48, 48, 48, 64],
        "L": 1,
        "N": [200, 200, 800, 800],
        "embedding": "equicorrelated(rho=0.2)",
        "embedding.rho": 0.2,
        "accuracy": 0.5,
        "seed": [0, 1, 0, 0],
        "of_mine": "x",
    },
    index=[9, 8, 7, 6],
)
ALIKE = Model(V=32, d=48, L=1, embedding="equicorrelated(rho=0.2)")


def test_a_table_gets_the_predictions_of_its_rows():
    found = theory.table(ROWS, 0.4)
    assert list(found) == [*ROWS, *ADDED]
    pd.testing.assert_frame_equal(found[[*ROWS]], ROWS)
    models = [ALIKE, ALIKE, ALIKE, ALIKE.replace(d=64)]
    expected = list(map(theory.accuracy, models, ROWS["N"]))
    assert found["theory_accuracy"].tolist() == expected
    expected = [theory.critical_N(model, 0.4) for model in models]
    assert found["theory_critical"].tolist() == expected
    # as tables of thresholds hold laws
    stripped = ROWS.assign(embedding="equicorrelated").drop(columns="N")
    found = theory.table(stripped, 0.4)
    assert found["theory_critical"].tolist() == expected
    assert found["theory_accuracy"].isna().all()
    assert not [name for name in COLUMNS if name.startswith("theory")]


def test_a_table_gets_sizes_along_the_axis_of_its_search():
    rows = ROWS.assign(d=[32, 40, 48, 64])
    rows.attrs["searched"] = "d"
    found = theory.table(rows)
    sizes = [theory.critical(ALIKE, "d", N=N) for N in ROWS["N"]]
    assert found["theory_critical"].tolist() == sizes
    assert found["theory_accuracy"].nunique() == 4
    # a cell has no size of its own along the axis
    cells = theory.table(ROWS.drop(columns="d"), along="d")
    assert cells["theory_critical"].tolist() == sizes


def test_a_row_that_theory_does_not_cover_is_null_and_told():
    rows = ROWS.assign(label_noise=[0.0, 0.0, 0.3, np.nan])
    with pytest.warns(TheoryWarning, match=r"no prediction: label_noise: got 0\.3"):
        found = theory.table(rows)
    assert found[[*ADDED]].isna().all(axis=1).tolist() == [False, False, True, False]
    for other in (rows.assign(simulator="mine:net"), rows.copy()):
        other.attrs["accuracy"] = "accuracy"
        with pytest.raises(TheoryError, match="table: got rows of another simulator"):
            theory.table(other)
    with pytest.raises(TheoryError, match="columns: no V, L; theory needs V, d and L"):
        theory.table(ROWS[["d", "N"]])


def answered(capsys, *words):
    """The exit code of the command, and its lines on stdout, or on stderr."""
    code = main(words)
    out, err = capsys.readouterr()
    assert bool(out) == (code == 0) != bool(err)
    return code, (out or err).splitlines()


@pytest.mark.parametrize(
    ("words", "model", "N"),
    [
        (["V=32", "d=48", "L=1", "pool=16"], SHORT, None),
        (["V=32", "d=48", "L=1", "N=1e3"], SHORT, 1000),
        (
            ["V=32", "d=48", "L=1", "trigger_in_value=false"],
            SHORT.replace(trigger_in_value=False),
            None,
        ),
        (["V=64", "d=16", "L=1"], Model(V=64, d=16, L=1), None),  # no critical N
    ],
)
def test_the_command_prints_what_the_functions_return(capsys, words, model, N):
    code, [line] = answered(capsys, *words, "--json", "--theta", "0.6")
    facts, star = json.loads(line), theory.critical_N(model, 0.6)
    assert facts["critical_N"] == (star if star < math.inf else None)
    samples = N or 2**50
    assert facts["samples"] == samples
    assert facts["accuracy"] == theory.accuracy(model, samples)
    assert facts["least_d"] == theory.critical(model, "d", 0.6, samples)
    at = N or min(star, samples)
    assert facts["limiting_noise"] == theory.limiting_noise(model, at)
    code, lines = answered(capsys, *words, "theta=0.6")
    assert code == 0
    told = dict(line.split() for line in lines[:6])
    assert told["critical_N"] == (f"{star:.6g}" if star < math.inf else "none")
    assert told["least_d"] == f"{facts['least_d']:.6g}"
    assert [line.partition(":")[0] for line in lines[6:]] == ["assumed", "measured"]


def test_the_command_finds_a_width_and_tells_warnings(capsys):
    _, lines = answered(capsys, "V=32", "L=1", "N=600")
    found = f"{theory.critical(Model(V=32, L=1), 'd', N=600):.6g}"
    assert lines[2].split() == ["least_d", found]
    code, lines = answered(capsys, "V=32", "d=48", "L=1", "N=600", "eta=1e3")
    assert code == 2
    assert lines[0].startswith("eta: got 1000 with first_steps=1")


def test_the_command_adds_predictions_to_a_grid_and_a_table(capsys, tmp_path):
    grid = tmp_path / "small.yaml"
    grid.write_text(
        "base: {V: 32, L: 1}\n"
        "blocks: [{axes: {eta: [0.000001, 1000], d: [48, 64], N: [200, 800]}}]"
    )
    code, lines = answered(capsys, "--grid", str(grid))
    assert code == 0
    assert lines[0].split() == ["N", "d", "eta", *ADDED]
    first = [200, 48, 1e-6, theory.accuracy(SHORT, 200), theory.critical_N(SHORT)]
    assert list(map(float, lines[1].split())) == pytest.approx(first, rel=1e-3)
    assert lines[5].split() == ["200", "48", "1000.000000", "NaN", "NaN"]
    assert any(line.startswith("warning: no prediction: eta: got") for line in lines)

    path = tmp_path / "rows.parquet"
    ROWS.to_parquet(path)
    code, [line] = answered(capsys, str(path), "--json")
    rows = json.loads(line)["rows"]
    expected = theory.table(ROWS)
    for name in (*ADDED, "of_mine"):
        assert [row[name] for row in rows] == pytest.approx(expected[name].tolist())
    code, lines = answered(capsys, str(path), "d=48")
    assert lines[0].split() == ["N", "accuracy", *ADDED]  # a field replaces theirs


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ([], "V, L: not given; theory needs V, d and L"),
        (["V=1", "d=3", "L=4"], "V: got 1; allowed: whole numbers from 2"),
        (["V=" + "9" * 5000, "d=3", "L=4"], "V: got '999.*allowed: whole numbers"),
        (["V=9", "d=9", "L=4", "kapa=3"], "kapa: got 3; .*did you mean kappa"),
        (["V=9", "d=9", "L=4", "--theta", "2"], "theta: got 2.0; allowed: fractions"),
        (["nowhere"], "nowhere: there is no such file or folder"),
        (["nowhere", "kapa=3"], "kapa: got 3"),
        (["--grid", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
    ],
)
def test_the_command_refuses_in_one_line(capsys, words, refusal):
    code, lines = answered(capsys, *words)
    assert code == 2
    assert pd.Series(lines).str.match(refusal).tolist() == [True]


def test_theory_is_loaded_on_use_and_starts_no_jax():
    done = python(
        "import sys; from jaxrecall.__main__ import main\n"
        "assert main(['--help']) == 0\n"
        "assert not {'jaxrecall.theory', 'pandas', 'scipy'} & {*sys.modules}\n"
        "assert main(['theory', 'V=32', 'd=48', 'L=1']) == 0\n"
        "assert 'jax' not in sys.modules"
    )
    assert done.returncode == 0, done.stderr
    assert "jaxrecall theory V=.. d=.. L=.." in done.stdout
