"""Programs of every form as users compile them, against the reference. Other tests
compile in less time, without optimisation.
"""

import pytest
from helpers import METRICS

from jaxrecall import Point, descend, measure, realize, three_step
from jaxrecall.model.point import Run
from jaxrecall.simulator import program
from jaxrecall.simulator.program_shape import Shape

SMALL = {"V": 12, "N": 300, "d": 10, "L": 4, "n_test": 200, "kappa": 20.0}
UNIFORM = {**SMALL, "eta": 1e-9}
MLP = {"m": 16, "activation": "tanh"}


@pytest.mark.parametrize(
    ("form", "fields"),
    [
        pytest.param("full", {**SMALL, **MLP, "exact": "full"}, marks=pytest.mark.slow),
        ("counts+counts", UNIFORM),
        pytest.param("uniform+uniform", {**UNIFORM, **MLP}, marks=pytest.mark.slow),
        pytest.param("pool+pool", {**UNIFORM, "pool": 24}, marks=pytest.mark.slow),
        pytest.param(
            "pool-full", {**SMALL, "pool": 24, "exact": "full"}, marks=pytest.mark.slow
        ),
        pytest.param(
            "full, descent",
            {**SMALL, "exact": "full", "gamma2": 10.0, "steps": 10, "lr": 0.3},
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_program_of_users_agrees_with_the_reference(optimised, form, fields):
    point = Point(**fields)
    # sizes of its own: no other test compiled it
    ours = program.compiled(Shape.sized(point, 17, 19, 23 if point.m else 0))
    rows = program.execute(ours, [Run(point, 0)])[0][0]
    r = realize(point, 0)
    learned = descend(r, point) if point.trains_on else [three_step(r, point)]
    assert [row["form"] for row in rows] == [form] * len(learned)
    for row, judge in zip(
        rows, (measure(r, point, now) for now in learned), strict=True
    ):
        assert {name: row[name] for name in METRICS} == pytest.approx(
            {name: judge[name] for name in METRICS}, rel=1e-4, abs=1e-6
        )
