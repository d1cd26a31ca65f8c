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

from jaxrecall import Point, theory
from jaxrecall.errors import TheoryError, TheoryWarning
from jaxrecall.model.point import FIELDS
from jaxrecall.theory import Model
from jaxrecall.theory.__main__ import main
from jaxrecall.theory.tables import ADDED

SIZES = {"V": 32, "d": 48, "L": 6}
POINT = Point(**SIZES, N=500, m=16, activation="tanh", gamma=1e8, pool=64)
MODEL = Model(**SIZES)
SHORT = MODEL.replace(L=1)  # without attention: quick


def test_a_model_takes_a_point_or_its_fields():
    assert Model(POINT).kappa == POINT.kappa != 100
    assert Model(POINT, m=0, kappa=100, eta=0) == MODEL
    fields = {name: getattr(POINT, name) for name in FIELDS}
    assert Model(**fields) == Model(POINT)
    harmless = {"N": 7, "gamma2": 9.0, "pool": 8, "n_test": 9, "streams": "independent"}
    assert Model(**SIZES, **harmless) == MODEL


@pytest.mark.parametrize("axis", ["d", "V", "L"])
def test_a_critical_size_needs_no_size_along_its_axis(axis):
    sizes = SIZES if axis == "L" else SIZES | {"L": 1}
    others = {name: size for name, size in sizes.items() if name != axis}
    model = Model(**others)
    found = theory.critical(model, axis, N=600)
    assert 2 < found == theory.critical(Model(**sizes), axis, N=600) < math.inf
    with pytest.raises(TheoryError, match=f"^{axis}: not given"):
        theory.accuracy(model, 600)


def warned(formula, *arguments):
    """What a formula returns, and its warning or an empty text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = formula(*arguments)
    assert len(caught) <= 1
    for warning in caught:
        assert warning.category is TheoryWarning
        assert warning.filename == __file__
    return found, "".join(str(warning.message) for warning in caught)


QUADRATIC = {"m": 8, "activation": "quadratic"}
OFF = [
    ({"kappa": 3}, "kappa: got 3; theory holds from about 5 on.* 1.5 to 3 times"),
    # quadratic layers see little of the trigger
    (QUADRATIC | {"kappa": 10}, "kappa: got 10; .*about 18"),
    ({"embedding": "equicorrelated(rho=0.7)"}, "kappa: got 100.*from about 1.1"),
    ({"eta": 30, "gamma2": 20}, "gamma2: got 20; .*above eta first_steps = 30"),
]
NOT_OFF = [{"kappa": 5}, {"kappa": 3, "L": 1}, QUADRATIC | {"kappa": 20}]
NOT_OFF += [{"embedding": "equicorrelated(rho=0.4)"}, {"eta": 30, "gamma2": 40}]


@pytest.mark.parametrize(
    ("changes", "told"), [*OFF, *((changes, "^$") for changes in NOT_OFF)]
)
def test_settings_in_which_theory_was_off_by_a_factor_of_2_give_a_warning(
    changes, told
):
    _, warning = warned(lambda: theory.accuracy(Model(**SIZES | changes), 400))
    assert re.search(told, warning)


@pytest.mark.parametrize(
    ("d", "theta", "told"),
    [
        (64, 0.9, "theta: got 0.9; .*levels off.*V=64, d=64, L=1.* 3 times larger"),
        (63, 0.9, "theta: got 0.9; .*levels off"),  # critical N is infinite
        (40, 0.9, "^$"),  # far from it
        (64, 0.5, "^$"),
    ],
)
def test_a_theta_near_which_accuracy_levels_off_gives_a_warning(d, theta, told):
    star, warning = warned(theory.critical_N, Model(V=64, d=d, L=1), theta)
    assert (star == math.inf) == (theta == 0.9 and d < 64)
    assert re.search(told, warning)


def test_accuracy_and_sizes_along_other_axes_warn_once_of_a_small_kappa():
    layer = Model(V=30, d=32, L=6, embedding="orthogonal", kappa=2)
    for formula, rest in ((theory.critical_N, ()), (theory.critical, ("L", 0.5, 9))):
        assert "kappa: got 2" in warned(formula, layer, *rest)[1]
    # a bound does not depend on kappa, nor on eta
    assert theory.recall_ceiling(MODEL.replace(kappa=2), 9) > 0


ROWS = pd.DataFrame({"d": [48, 48, 48, 64], "N": [200, 200, 800, 800]})
ROWS = ROWS.assign(V=32, L=1, accuracy=0.5, seed=[0, 1, 0, 0], of_mine="x")
ROWS = ROWS.assign(embedding="equicorrelated(rho=0.2)", **{"embedding.rho": 0.2})
ROWS.index = [9, 8, 7, 6]
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


def test_accuracy_at_many_N_is_interpolated():
    rows = pd.DataFrame({"N": np.geomspace(20, 9000, 40)}).assign(V=32, d=48, L=8)
    exact = [theory.accuracy(Model(V=32, d=48, L=8), N) for N in rows["N"]]
    assert 0 < abs(theory.table(rows)[ADDED[0]] - exact).max() < 0.01


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


def answered(capsys, *words):
    """The exit code of the command, and its lines on stdout, or on stderr."""
    code = main(words)
    out, err = capsys.readouterr()
    assert bool(out) == (code == 0) != bool(err)
    return code, (out or err).splitlines()


ASKED = [{"pool": 16}, {"N": 1000}, {"trigger_in_value": False}]
ASKED += [{"V": 64, "d": 16}]  # no critical N


@pytest.mark.parametrize("changes", ASKED, ids=str)
def test_the_command_prints_what_the_functions_return(capsys, changes):
    fields = SIZES | {"L": 1} | changes
    words = [f"{name}={json.dumps(value)}" for name, value in fields.items()]
    code, [line] = answered(capsys, *words, "--json", "--theta", "0.6")
    model, samples = Model(**fields), changes.get("N", 2**50)
    star = theory.critical_N(model, 0.6)
    at = changes.get("N", min(star, samples))
    facts = {
        "critical_N": star if star < math.inf else None,
        "samples": samples,
        "accuracy": theory.accuracy(model, samples),
        "least_d": theory.critical(model, "d", 0.6, samples),
        "limiting_noise": theory.limiting_noise(model, at),
    }
    assert json.loads(line).items() >= facts.items()
    code, lines = answered(capsys, *words, "theta=0.6")
    assert code == 0
    told = dict(line.split() for line in lines[:6])
    assert told["critical_N"] == (f"{star:.6g}" if star < math.inf else "none")
    assert told["least_d"] == f"{facts['least_d']:.6g}"
    assert [line.partition(":")[0] for line in lines[6:]] == ["assumed", "measured"]


def test_the_command_finds_a_width(capsys):
    _, lines = answered(capsys, "V=32", "L=1", "N=600")
    width = theory.critical(Model(V=32, L=1), "d", N=600)
    assert lines[2].split() == ["least_d", f"{width:.6g}"]
