"""Opting in to physics: a field that a formula does not know is named, whatever it is."""

from dataclasses import field

import pytest

from jaxrecall import Point
from jaxrecall.model import physics

KNOWN = {"V", "N", "d", "L", "eta", "gamma", "gamma2", "kappa"}


def test_fields_off_their_default_are_unknown_unless_they_are_listed():
    point = Point(V=8, N=16, d=4, L=2, pool=3, trigger_in_value=False)
    assert physics.unknown_fields(point, KNOWN) == ("pool", "trigger_in_value")
    assert physics.unknown_fields(point, KNOWN | {"pool"}) == ("trigger_in_value",)
    assert physics.unknown_fields(Point(V=8, N=16, d=4, L=2), KNOWN) == ()
    assert physics.unknown_fields(Point(V=8, N=16, d=4, L=2, m=8, n_test=7), KNOWN) == ("m", "n_test")
    assert physics.unknown_fields(point.replace(n_test=7), KNOWN | {"pool", "trigger_in_value"} | physics.EVALUATION) == ()


@pytest.mark.parametrize(("value", "unknown"), [(0.6, ("rho",)), (0.0, ()), (None, ()), (float("nan"), ())])
def test_a_field_that_is_added_later_is_unknown(value, unknown, monkeypatch):
    monkeypatch.setitem(physics.FIELDS, "rho", field(default=0.0))
    assert physics.unknown_names({"V": 8, "rho": value}, KNOWN) == unknown


def test_a_column_that_is_no_field_is_unknown():
    assert physics.unknown_names({"V": 8, "temperature": 2.0}, KNOWN) == ("temperature",)
