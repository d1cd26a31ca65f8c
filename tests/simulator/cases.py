"""Cases of tests as YAML, the recipe against the reference, and vmapped runs."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from helpers import assert_same_metrics, streamed
from tolerances import assert_close

from jaxrecall import Point, measure, realize
from jaxrecall.model.point import Run
from jaxrecall.model.reference import three_step
from jaxrecall.simulator import program
from jaxrecall.simulator.program_shape import Shape


def cases(often: str, seldom: str = "") -> list[Any]:
    """Parameters of a test from two lists in YAML; those of `seldom` run with --slow
    alone.
    """
    slow = [
        pytest.param(case, id=str(case), marks=pytest.mark.slow)
        for case in yaml.safe_load(seldom) or ()
    ]
    return [pytest.param(case, id=str(case)) for case in yaml.safe_load(often)] + slow


def sized(point: Point) -> Shape:
    """Sizes of most programs, so that points share what is compiled."""
    return Shape.sized(point, 32, 32, 32 if point.m else 0)


def check_recipe(point: Point, seed: int, shape: Shape) -> tuple[dict, dict]:
    """The three steps and the metrics of a program are those of the reference. Returns
    the metrics, and those of the reference.
    """
    r = realize(point, seed)
    expected = three_step(r, point)
    reference = measure(r, point, expected)
    learned, metrics = streamed(point, seed, shape)
    if point.is_memory:
        assert not learned.w.any()
        expected = expected._replace(w=learned.w)
    assert_close(learned, expected, "float32")
    assert_same_metrics(metrics, reference)
    return metrics, reference


def check_vmapped(shape: Shape, runs: list[Run]) -> list[Any]:
    """Vmapped runs, as on an accelerator, have the rows of runs one after the other.
    Returns the rows of each run; None where a guard turns it away.
    """
    looped = program.execute(program.compiled(shape), runs)[0]
    vmapped = program.compiled(shape, len(runs), vmapped=True)
    for rows, others in zip(looped, program.execute(vmapped, runs)[0], strict=True):
        for row, other in zip(rows or (), others or (), strict=True):
            assert other["form"] == row["form"]
            assert_same_metrics(other, row)
            if "loss" in row:
                assert_close(other["loss"], row["loss"], "float32")
    return looped
