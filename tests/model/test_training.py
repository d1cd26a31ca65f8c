"""Optimisers as laws: what they say of themselves, those of one's own, sizes of their
programs, and ids that stay.
"""

import types

import pytest

from jaxrecall import Point, descend, measure, realize, simulate
from jaxrecall.errors import PointError
from jaxrecall.model.law_parameters import (
    law_parameters,
    make_point,
    problem_in_workers,
)
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.sweep import plan
from jaxrecall.sweep.simulators import program_of
from jaxrecall.sweep.simulators.shipped import RECALL

SMALL = {"V": 12, "N": 300, "d": 10, "L": 4, "steps": 20, "lr": 0.1}


def test_an_optimiser_of_which_nothing_is_said_trains_w_kq_in_full_and_reads_its_samples():  # noqa: E501
    point = Point(
        V=8,
        N=40,
        d=12,
        L=3,
        n_test=50,
        gamma2=10.0,
        kappa=300.0,
        steps=5,
        lr=0.02,
        optimizer="optax:rmsprop",
    )
    row = simulate(point, 0)
    draws = realize(point, 0)
    judge = measure(draws, point, descend(draws, point)[-1])
    for name in ("loss", "test_loss", "V_norm", "W_norm", "trigger_score", "score_std"):
        assert row[name] == pytest.approx(judge[name], rel=1e-4), name
    assert "locked descent" not in row["form"]


def test_the_id_of_an_optimiser_is_that_from_before_it_was_a_law():
    point = Point(**SMALL, optimizer="adam")
    assert point.point_id == "50476693c02ddd1f"
    assert Point(**SMALL, optimizer="adam(b1=0.9)") == point
    assert Point(**SMALL, optimizer="adam(0.95)").optimizer == "adam(b1=0.95)"


def test_a_row_has_columns_of_parameters_off_their_defaults_or_named_by_a_grid():
    assert law_parameters(Point(**SMALL, optimizer="adam")) == {}
    assert law_parameters(Point(**SMALL, optimizer="adam(b1=0.95)")) == {
        "optimizer.b1": 0.95
    }
    assert law_parameters(
        make_point({**SMALL, "optimizer": "adam", "optimizer.b1": 0.9})
    ) == {"optimizer.b1": 0.9}


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (
            "adam(b1=2)",
            r"optimizer\.b1: got 2; allowed: finite numbers from 0 to below 1",
        ),
        (
            "adam(schedule='cosin')",
            (
                r"optimizer\.schedule: got 'cosin'; did you mean cosine\?; allowed:"
                r" constant, linear, cosine"
            ),
        ),
        ("optax:chain", "optimizer: got 'optax:chain.*; allowed: a function of a rate"),
        (
            "lino",
            (
                r"did you mean lion\?; allowed: sgd, .*, or your own as module:Class or"
                r" module:function"
            ),
        ),
    ],
)
def test_what_is_no_optimiser_is_refused(optimizer, message):
    with pytest.raises(PointError, match=message):
        Point(**SMALL, optimizer=optimizer)


def test_an_optimiser_that_padding_changes_runs_in_a_program_of_its_own_sizes():
    narrow, wide = (
        Point(
            V=48,
            N=512,
            d=20,
            L=8,
            m=m,
            activation="gelu",
            steps=30,
            lr=0.03,
            optimizer="muon",
        )
        for m in (36, 96)
    )
    assert [
        (shape.V, shape.d, shape.m)
        for shape in plan.make_plan([(narrow, 0), (wide, 0)]).peaks
    ] == [(48, 20, 36), (48, 20, 96)]
    own = Shape.tight(narrow)
    for program in (
        Shape.rounded(narrow),
        program_of(RECALL, narrow, Shape.tight(wide)),
        *plan.make_plan([(narrow, 0)], (64, 32, 128)).peaks,
    ):
        assert program == own
    assert own.fits(narrow)
    assert not Shape.tight(wide).fits(narrow)
    assert Shape.tight(narrow.replace(optimizer="polar")).m == 48


def test_a_function_of_ones_own_notices_when_it_is_defined_again(monkeypatch):
    def made(factor):
        def doubled(rate, k=2.0):
            import optax

            return optax.sgd(rate * k * factor)

        doubled.__qualname__ = "doubled"
        return doubled

    module = types.ModuleType("own_optimizer")
    monkeypatch.setitem(__import__("sys").modules, "own_optimizer", module)
    points, programs = [], []
    for factor in (1, 2):
        monkeypatch.setattr(module, "doubled", made(factor), raising=False)
        points.append(Point(**SMALL, optimizer="own_optimizer:doubled(k=3)"))
        programs.append([*map(type, Shape.tight(points[-1]).laws.values())])
    assert points[0].point_id == points[1].point_id
    assert programs[0] != programs[1]
    assert problem_in_workers(points[0]) is None


def test_other_processes_cannot_import_an_optimiser_of_a_function():
    def mine(rate):
        import optax

        return optax.sgd(rate)

    assert (
        "other processes need a function or a class at the top of a module of its own"
        in (problem_in_workers(Point(**SMALL, optimizer=mine)) or "")
    )
