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
    point = Point(V=8, N=16, d=4, L=2, pool=3, trigger_in_value=False)
    assert known_fields.unknown_fields(point, KNOWN) == ("pool", "trigger_in_value")
    assert known_fields.unknown_fields(point, KNOWN | {"pool"}) == ("trigger_in_value",)
    assert known_fields.unknown_fields(Point(V=8, N=16, d=4, L=2), KNOWN) == ()
    assert known_fields.unknown_fields(
        Point(V=8, N=16, d=4, L=2, m=8, n_test=7), KNOWN
    ) == ("m", "n_test")
    assert (
        known_fields.unknown_fields(
            point.replace(n_test=7),
            KNOWN | {"pool", "trigger_in_value"} | known_fields.EVALUATION,
        )
        == ()
    )


@pytest.mark.parametrize(
    ("value", "unknown"), [(0.6, ("rho",)), (0.0, ()), (None, ()), (float("nan"), ())]
)
def test_a_field_that_is_added_later_is_unknown(value, unknown, monkeypatch):
    monkeypatch.setitem(known_fields.FIELDS, "rho", field(default=0.0))
    assert known_fields.unknown_names({"V": 8, "rho": value}, KNOWN) == unknown


def test_a_column_that_is_no_field_is_unknown():
    assert known_fields.unknown_names({"V": 8, "temperature": 2.0}, KNOWN) == (
        "temperature",
    )


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
    before = next(
        line
        for line in source.splitlines()
        if line.startswith(f"    {LAST[request.param]}: ")
    )
    toy = '    toy: float = declared("traced", "what nobody has looked at", 0.0)\n'
    module = types.ModuleType("jaxrecall.model.with_toy")
    module.__package__ = "jaxrecall.model"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(source.replace(before, toy + before), module.__dict__)
    assert module.FIELDS.keys() - known_fields.FIELDS.keys() == {"toy"}
    module.small = {
        "V": 8,
        "N": 16,
        "d": 4,
        "L": 2,
        **({"steps": 9, "lr": 1} if request.param == "Training" else {}),
    }
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
    with_toy.Point(**fields)  # at its default
    with pytest.raises(
        PointError,
        match=r"toy: got 0\.3; allowed where toy == 0\.0, all that gradients cover",
    ):
        with_toy.Point(**fields, toy=0.3)
    for other in with_toy.COVERED.keys() - {part}:
        monkeypatch.setitem(with_toy.COVERED, other, with_toy.COVERED[other] | {"toy"})
    with pytest.raises(PointError) as error:
        with_toy.Point(**fields, toy=0.3)
    refused = [
        problem
        for problem in error.value.problems
        if "toy" in problem.message or problem.argument == "toy"
    ]
    assert len(refused) == 1
    told = (
        " with toy=0.3; allowed where toy == 0.0"
        if part in known_fields.FIELDS
        else f"toy == 0.0, all that {part} cover"
    )
    assert told in refused[0].message
    assert (refused[0].argument, refused[0].where.partition(" or ")[0]) == (
        part if part in known_fields.FIELDS else "toy",
        "toy == 0.0",
    )


def test_shortcuts_and_theory_do_not_take_a_field_that_all_parts_cover(
    with_toy, monkeypatch
):
    for part, covered in with_toy.COVERED.items():
        monkeypatch.setitem(with_toy.COVERED, part, covered | {"toy"})
    monkeypatch.setattr(forms, "unknown_fields", with_toy.unknown_fields)
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


def test_settings_of_an_optimizer_that_does_nothing_are_no_concern_of_any_part():
    idle = {"optimizer": "adam", "lr": 0.3, "batch": 4}
    for part in ("pool", "diagnose", "decoders"):
        Point(V=8, N=16, d=4, L=2, **idle, **TAKES[part])


def test_what_is_covered_are_fields_and_every_field_is_covered():
    for part in ("gradients", "metrics"):
        assert known_fields.COVERED[part] == known_fields.FIELDS.keys()
    assert all(
        covered <= known_fields.FIELDS.keys()
        for covered in known_fields.COVERED.values()
    )
    assert known_fields.COVERED.keys() == TAKES.keys()


@pytest.mark.parametrize(
    ("fields", "told", "where"),
    [
        (
            {"m": 4, "decoders": True},
            "decoders: got true with m=4; allowed where m == 0",
            "m == 0 or not decoders",
        ),
        (
            {"pool": 4, "decoders": True},
            "decoders: got true with pool=4; allowed where not pool",
            "not pool or not decoders",
        ),
        (
            {"pool": 4, "batch": 5, "steps": 9, "lr": 1},
            "pool: got 4 with batch=5; allowed where not batch",
            "not batch or not pool",
        ),
        (
            {"diagnose": True, "steps": 9, "lr": 1},
            "diagnose: got true with steps=9; allowed where steps == 3",
            "steps == 3 or not diagnose",
        ),
        (
            {"diagnose": True, "start": "zero", "lr": 1},
            "diagnose: got true with start='zero'; allowed where start == 'three_step'",
            "start == 'three_step' or not diagnose",
        ),
        (
            {"diagnose": True, "noise_tokens": "zipf"},
            (
                "diagnose: got true with noise_tokens='zipf'; allowed where"
                " noise_tokens == tokens"
            ),
            "noise_tokens == tokens or not diagnose",
        ),
    ],
    ids=str,
)
def test_what_a_part_does_not_cover_is_named_with_its_value_and_what_is_allowed(
    fields, told, where
):
    with pytest.raises(PointError) as error:
        Point(V=8, N=16, d=4, L=2, **fields)
    assert (str(error.value), error.value.problems[0].where) == (told, where)
