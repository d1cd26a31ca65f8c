"""Programs as users compile them, against the reference: a thorough one in the fast
tests, light ones of the other forms with --slow. Other fast tests compile in less
time, without optimisation.
"""

from dataclasses import replace

import pytest
from helpers import assert_same_metrics

from jaxrecall import Point, measure, realize
from jaxrecall.model.point import Run
from jaxrecall.model.reference import three_step
from jaxrecall.simulator import program
from jaxrecall.simulator.forms import FORMS
from jaxrecall.simulator.program_shape import Shape

SMALL = Point(V=12, N=300, d=10, L=4, n_test=200, kappa=20.0)
EVEN = SMALL.replace(eta=1e-9)
POINTS = {
    "counts": EVEN,
    "uniform": EVEN.replace(m=16, activation="tanh"),
    "full": SMALL.replace(exact="full"),
    "pool": EVEN.replace(pool=24),
    "pool-full": SMALL.replace(pool=24, exact="full"),
    "memory": SMALL.replace(L=1),
}
FAST = "full"


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, marks=() if form == FAST else pytest.mark.slow)
        for form in FORMS
    ],
)
def test_a_program_of_users_agrees_with_the_reference(optimised, form):
    """All but one are light, as are those of small sweeps."""
    point = POINTS[form]
    # sizes of its own: no other test compiled it
    shape = Shape.sized(point, 17, 19, 23 if point.m else 0)
    users = program.compiled(replace(shape, light=form != FAST))
    [[row]], _ = program.execute(users, [Run(point, 0)])
    assert row["form"].partition("+")[0] == form
    r = realize(point, 0)
    assert_same_metrics(row, measure(r, point, three_step(r, point)))
