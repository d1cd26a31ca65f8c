"""Cases of tests as YAML, and which of them run with --slow alone."""

from __future__ import annotations

from typing import Any

import pytest
import yaml


def cases(often: str, seldom: str = "") -> list[Any]:
    """Parameters of a test from two lists in YAML; those of `seldom` run with --slow
    alone.
    """
    slow = [
        pytest.param(case, id=str(case), marks=pytest.mark.slow)
        for case in yaml.safe_load(seldom) or ()
    ]
    return [pytest.param(case, id=str(case)) for case in yaml.safe_load(often)] + slow
