"""Cases of tests as YAML, and the recipe against the reference."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from helpers import assert_same_metrics, streamed
from tolerances import assert_close

from jaxrecall import Point, measure, realize, three_step
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
