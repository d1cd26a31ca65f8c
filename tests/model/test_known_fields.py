"""A field that a formula or a part of the simulation does not know is named, whatever
it is.
"""

import sys
import types
from dataclasses import field
from pathlib import Path

import pytest

from jaxrecall import Point, theory
from jaxrecall.errors import PointError, TheoryError
from jaxrecall.model import point as known_fields
from jaxrecall.simulator import forms

KNOWN = {"V", "N", "d", "L", "eta", "gamma", "gamma2", "kappa"}


def test_fields_off_their_default_are_unknown_unless_they_are_listed():
    def unknown(known=frozenset(), **changes):
        point = Point(V=8, N=16, d=4, L=2, **changes)
        return known_fields.unknown_fields(point, KNOWN | known)

    changes = {"pool": 3, "trigger_in_value": False}
    assert unknown() == ()
    assert unknown(**changes) == ("pool", "trigger_in_value")
    assert unknown({"pool"}, **changes) == ("trigger_in_value",)
    assert unknown(m=8, n_test=7) == ("m", "n_test")
    assert unknown(known_fields.EVALUATION, n_test=7) == ()


@pytest.mark.parametrize(
    ("value", "unknown"), [(0.6, ("rho",)), (0.0, ()), (None, ()), (float("nan"), ())]
)
def test_a_field_that_is_added_later_is_unknown_and_so_is_a_column_that_is_no_field(
    value, unknown, monkeypatch
):
    monkeypatch.setitem(known_fields.FIELDS, "rho", field(default=0.0))
    row = {"V": 8, "rho": value, "temperature": 2.0}
    assert known_fields.unknown_names(row, KNOWN) == (*unknown, "temperature")


# --- a field that somebody adds to a record in point.py, and that no code reads

LAST = {
    "Data": "pool",
    "Architecture": "trigger_in_value",
    "Recipe": "exact",
    "Training": "batch",
    "Evaluation": "decoders",
}
TAKES = {
    "gradients": {},
    "metrics": {},
    "steps": {"start": "zero", "lr": 1},  # three steps, all of them the optimiser's
    "pool": {"pool": 4},
    "diagnose": {"diagnose": True},
    "decoders": {"decoders": True},
}
"""A point that takes each part of the simulation, and no other but those of every
point.
"""


@pytest.fixture(params=LAST)
def with_toy(request, monkeypatch):
    """point.py with one more line, in each of its records."""
    source = Path(known_fields.__file__).read_text()
    before = f"\n    {LAST[request.param]}: "
    toy = '\n    toy: float = declared("traced", "what nobody has looked at", 0.0)'
    module = types.ModuleType("jaxrecall.model.with_toy")
    module.__package__ = "jaxrecall.model"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(source.replace(before, toy + before), module.__dict__)
    assert module.FIELDS.keys() - known_fields.FIELDS.keys() == {"toy"}
    module.small = {"V": 8, "N": 16, "d": 4, "L": 2}
    if request.param == "Training":
        module.small |= {"steps": 9, "lr": 1}
    return module


@pytest.mark.parametrize(
    ("with_toy", "part"),
    [
        (record, part)
        for record in LAST
        for part in TAKES
        if record != "Training" or part not in ("diagnose", "decoders")
    ],
    indirect=["with_toy"],
)
def test_every_part_refuses_a_new_field_until_it_covers_it(with_toy, part, monkeypatch):
    fields = with_toy.small | TAKES[part]

    def refused():
        with pytest.raises(PointError) as error:
            with_toy.Point(**fields, toy=0.3)
        return [
            problem
            for problem in error.value.problems
            if "toy" in problem.message or problem.argument == "toy"
        ]

    with_toy.Point(**fields)  # at its default
    assert "all that gradients cover" in refused()[0].message
    for other in with_toy.COVERED.keys() - {part}:
        monkeypatch.setitem(with_toy.COVERED, other, with_toy.COVERED[other] | {"toy"})
    (problem,) = refused()
    is_field = part in known_fields.FIELDS
    assert problem.argument == (part if is_field else "toy")
    assert problem.where.partition(" or ")[0] == "toy == 0.0"
    assert is_field or f"all that {part} cover" in problem.message


def test_shortcuts_and_theory_do_not_take_a_field_that_all_parts_cover(
    with_toy, monkeypatch
):
    for part, covered in with_toy.COVERED.items():
        monkeypatch.setitem(with_toy.COVERED, part, covered | {"toy"})
    for kw, exact in (({}, "full"), ({"pool": 4}, "pool-full")):
        usual, toy = (
            with_toy.Point(**with_toy.small, **kw, eta=1e-6, toy=value)
            for value in (0.0, 0.3)
        )
        assert not forms.form_for(usual, 16).exact
        assert forms.form_for(toy, 16).name == exact
        assert forms.may_group_steps(usual) == usual.trains_on
        assert not forms.may_group_steps(toy)
    monkeypatch.setitem(known_fields.FIELDS, "toy", with_toy.FIELDS["toy"])
    with pytest.raises(TheoryError, match=r"^toy: got 0\.3; covered by theory: 0\.0$"):
        theory.Model.from_fields({"V": 8, "d": 4, "L": 2, "toy": 0.3})


def test_what_is_covered_are_fields_and_every_field_is_covered():
    for part in ("gradients", "metrics"):
        assert known_fields.COVERED[part] == known_fields.FIELDS.keys()
    assert all(
        covered <= known_fields.FIELDS.keys()
        for covered in known_fields.COVERED.values()
    )
    assert known_fields.COVERED.keys() == TAKES.keys()


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"m": 4, "decoders": True}, "m == 0 or not decoders"),
        ({"pool": 4, "batch": 5, "steps": 9, "lr": 1}, "not batch or not pool"),
        ({"diagnose": True, "steps": 9, "lr": 1}, "steps == 3 or not diagnose"),
    ],
    ids=str,
)
def test_what_a_part_does_not_cover_is_named_with_where_it_is_allowed(fields, where):
    with pytest.raises(PointError) as error:
        Point(V=8, N=16, d=4, L=2, **fields)
    assert [problem.where for problem in error.value.problems] == [where]
