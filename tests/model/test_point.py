"""Points: resolved, checked, and named by a hash that must never move."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrecall import Point
from jaxrecall.errors import PointError
from jaxrecall.model.laws.embedding import Equicorrelated
from jaxrecall.model.point import EXTRAS, FIELDS, TRAINING
from jaxrecall.model.values import as_plain

SMALL = {"V": 64, "N": 1000, "d": 32, "L": 8}

FROZEN = {
    "74ce457887505b25": {},
    "00d292c4ccb96b85": {"m": 256},
    "e200615ffdca1883": {"gamma": 1e38, "embedding": "sphere", "fresh_batches": True},
}


def test_resolution():
    point = Point(**SMALL)
    assert (point.kappa, point.gamma, point.gamma2) == (
        100,
        100 * 64 * 64 / 1e-3,
        100 * 64 * 64 / 1e-3,
    )
    assert (point.activation, point.p, Point(**SMALL, m=5).p) == ("none", 32, 5)
    given = Point(**SMALL, gamma=5, gamma2=0, eta=0.5)
    assert (given.gamma, given.gamma2, given.kappa) == (5, 0, 5 * 0.5 / 64 / 64)


def test_replace_keeps_what_was_given_and_follows_the_rest():
    assert Point(**SMALL).replace(L=16) == Point(**{**SMALL, "L": 16})
    assert Point(**SMALL, gamma=5.0).replace(L=16).gamma == 5
    assert Point(**SMALL, gamma=5.0).replace(kappa=3).kappa == 3
    assert Point(**SMALL, kappa=5.0).replace(gamma=3).gamma == 3
    assert Point(**SMALL).replace(m=4).activation == "relu"
    assert Point(**SMALL, m=4, activation="tanh").replace(d=5).activation == "tanh"


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_a_number_of_any_float_type_is_the_decimal_that_was_written(kind):
    numbers = jnp.asarray if kind == "bfloat16" else np.asarray
    given = numbers([0.1, 0.2, 0.3, 1024.0, 6e-4], dtype=kind)
    assert as_plain(given) == [0.1, 0.2, 0.3, 1024, 6e-4]
    point = Point(**SMALL | {"N": given[3]}, eta=given[4])
    assert point.point_id == Point(**SMALL | {"N": 1024}, eta=6e-4).point_id
    law = Equicorrelated(rho=given[0])
    assert str(law) == "equicorrelated(rho=0.1)"
    with pytest.raises(PointError, match="N: got"):
        Point(**SMALL | {"N": given[0]})


def test_whole_numbers_of_float32_are_counts_and_others_stay_what_they_are():
    whole = np.float32(2**30)
    assert Point(**SMALL | {"N": whole}).N == 2**30
    assert as_plain(np.float32(1e11)) == 1e11
    assert as_plain(np.array([1, 2], np.int8)) == [1, 2]
    assert np.isnan(as_plain(np.float16("nan")))
    assert as_plain(np.float16(65504)) == 65504
    assert as_plain(np.array(["a"])) == ["a"]


@pytest.mark.parametrize(("point_id", "changes"), FROZEN.items())
def test_ids_never_move(point_id, changes):
    assert Point(**SMALL, **changes).point_id == point_id


def test_the_id_is_the_science():
    point = Point(**SMALL)
    same = [
        Point(**SMALL, kappa=100),
        Point(**SMALL, gamma=point.gamma),
        Point(**SMALL, gamma=point.gamma * (1 + 1e-14)),
        Point(**{k: np.int64(v) for k, v in SMALL.items()}),
        Point(**{**SMALL, "N": 1e3}),
        Point(**SMALL, activation="tanh"),  # no MLP, no activation
    ]
    assert {p.point_id for p in same} == {point.point_id}
    changes = [
        {"V": 65},
        {"N": 1001},
        {"d": 33},
        {"L": 9},
        {"m": 1},
        {"embedding": "sphere"},
        {"trigger_in_value": False},
    ]
    changes += [
        {"fresh_batches": True},
        {"eta": 2e-3},
        {"kappa": 101},
        {"gamma2": 1.0},
        {"streams": "independent"},
        {"root_seed": 1},
    ]
    changes += [{"n_test": 1}, {"exact": "full"}]
    assert (
        len({point.replace(**change).point_id for change in changes} | {point.point_id})
        == len(changes) + 1
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"V": 1}, "V: got 1; allowed: whole numbers from 2 to 65536"),
        ({"V": 65537}, "V: got 65537; allowed: whole numbers from 2 to 65536"),
        ({"N": -5}, "N: got -5; allowed: whole numbers from 1 to 1073741824"),
        ({"d": 2.5}, "d: got 2.5; allowed: whole numbers"),
        ({"L": "8"}, "L: got '8'; allowed: whole numbers"),
        ({"L": True}, "L: got True; allowed: whole numbers"),
        ({"m": None}, "m: got None; allowed: whole numbers"),
        ({"eta": 0}, "eta: got 0; allowed: finite numbers greater than 0"),
        ({"eta": float("nan")}, "eta: got nan; allowed: finite numbers greater than 0"),
        ({"kappa": -1.0}, "kappa: got -1.0; allowed: finite numbers from 0"),
        (
            {"kappa": 1e-45},
            "kappa: resolves to 1e-45; allowed: 0, and numbers from 1.2e-38",
        ),
        ({"gamma2": float("inf")}, "gamma2: got inf; allowed: finite numbers from 0"),
        ({"kappa": 1, "gamma": 2}, "kappa: got kappa=1.0 and gamma=2.0; give one"),
        ({"kappa": 1e300, "eta": 1e-300}, "gamma: resolves to inf"),
        (
            {"embedding": "gauss"},
            (
                "embedding: got 'gauss'; did you mean gaussian?; allowed: gaussian,"
                " sphere, orthogonal"
            ),
        ),
        (
            {"embedding": "orthogonal"},
            "d: got 32 with orthogonal embeddings and V=64; allowed: d >= V + 2 = 66",
        ),
        (
            {"activation": "none", "m": 4},
            "activation: got 'none' with m=4; allowed with an MLP: relu, gelu",
        ),
        ({"trigger_in_value": 1}, "trigger_in_value: got 1; allowed: true, false"),
        ({"exact": "yes"}, "exact: got 'yes'; allowed: guarded, full"),
    ],
)
def test_bad_arguments(changes, message):
    with pytest.raises(PointError) as error:
        Point(**{**SMALL, **changes})
    assert message in str(error.value)


def test_all_that_is_wrong_is_told_at_once():
    with pytest.raises(PointError) as error:
        Point(V=0, N=0, d=0, L=0, m=-1, n_test=0)
    assert [problem.argument for problem in error.value.problems] == [
        "V",
        "N",
        "L",
        "d",
        "m",
        "n_test",
    ]
    assert error.value.problems[0].where == "V >= 2"


def test_a_name_that_is_no_field_is_told_with_the_nearest_one():
    with pytest.raises(PointError) as error:
        Point(**SMALL, embeding="sphere", colour=3)
    found = [str(problem).partition("; allowed")[0] for problem in error.value.problems]
    assert found == [
        "embeding: is no field; did you mean embedding?",
        "colour: is no field",
    ]
    with pytest.raises(PointError, match=r"L_: is no field; did you mean L\?"):
        Point(**SMALL).replace(L_=3)


def another(name, value):
    """An allowed value of the field other than `value`."""
    if names := [
        one
        for one in FIELDS[name].metadata.get("choices", tuple)()
        if one not in (value, "none", "orthogonal", "array", "VWZM")
    ]:
        return names[-1]
    if str(FIELDS[name].type) == "bool":
        return not value
    return 7 if value is None else value + 1


@pytest.mark.parametrize(
    "name", [name for name in FIELDS if name not in ("kappa", "optimizer", "tokens")]
)
def test_every_field_enters_the_id_of_a_run_beyond_the_recipe_or_of_the_recipe_alone(
    name,
):
    """kappa enters as gamma; an optimizer is there beyond the recipe alone; there is
    one law of tokens.
    """
    recipe = Point(**SMALL, m=3)
    on = recipe.replace(steps=9, lr=0.1)
    bases = [on] if name in TRAINING else [recipe, on]
    if name in EXTRAS:
        bases = [recipe.replace(m=0)]
    for base in bases:
        other = base.replace(**{name: another(name, getattr(base, name))})
        assert getattr(other, name) != getattr(base, name)
        assert other.point_id != base.point_id


def test_settings_of_an_optimizer_that_does_nothing_are_not_kept():
    """What the id leaves out, the row leaves out too: two rows that differ never have
    one id.
    """
    recipe = Point(**SMALL)
    idle = recipe.replace(
        lr=0.3,
        lr_attention=0.1,
        optimizer="adam",
        trains="V",
        batch=4,
        start="three_step",
    )
    assert idle.point_id == recipe.point_id
    assert {name: getattr(idle, name) for name in FIELDS} == {
        name: getattr(recipe, name) for name in FIELDS
    }
