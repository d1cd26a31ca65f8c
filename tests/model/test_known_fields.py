"""A field that a formula does not know is named, whatever it is."""

from dataclasses import field

import pytest

from jaxrecall import Point
from jaxrecall.model import point as known_fields

KNOWN = {"V", "N", "d", "L", "eta", "gamma", "gamma2", "kappa"}


def test_fields_off_their_default_are_unknown_unless_they_are_listed():
    point = Point(V=8, N=16, d=4, L=2, pool=3, trigger_in_value=False)
    assert known_fields.unknown_fields(point, KNOWN) == ("pool", "trigger_in_value")
    assert known_fields.unknown_fields(point, KNOWN | {"pool"}) == ("trigger_in_value",)
    assert known_fields.unknown_fields(Point(V=8, N=16, d=4, L=2), KNOWN) == ()
    assert known_fields.unknown_fields(Point(V=8, N=16, d=4, L=2, m=8, n_test=7), KNOWN) == ("m", "n_test")
    assert known_fields.unknown_fields(point.replace(n_test=7), KNOWN | {"pool", "trigger_in_value"} | known_fields.EVALUATION) == ()


@pytest.mark.parametrize(("value", "unknown"), [(0.6, ("rho",)), (0.0, ()), (None, ()), (float("nan"), ())])
def test_a_field_that_is_added_later_is_unknown(value, unknown, monkeypatch):
    monkeypatch.setitem(known_fields.FIELDS, "rho", field(default=0.0))
    assert known_fields.unknown_names({"V": 8, "rho": value}, KNOWN) == unknown


def test_a_column_that_is_no_field_is_unknown():
    assert known_fields.unknown_names({"V": 8, "temperature": 2.0}, KNOWN) == ("temperature",)
