"""Points: resolved, checked, and named by a hash that must never move."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

from jaxrecall import Point
from jaxrecall.errors import PointError
from jaxrecall.model.laws.embedding import Equicorrelated
from jaxrecall.model.point import EXTRAS, FIELDS, TRAINING
from jaxrecall.model.values import as_plain

SMALL = {"V": 64, "N": 1000, "d": 32, "L": 8}

FROZEN = yaml.safe_load("""
74ce457887505b25: {}
00d292c4ccb96b85: {m: 256}
eeb93cdefb33f422: {gamma: -0.0}
e200615ffdca1883: {gamma: 1.0e+38, embedding: sphere, fresh_batches: true}
309082d0d3a0683e: {V: 12, N: 90, d: 16, L: 4, n_test: 300, eta: 0.1,
  tokens: uniform(), noise_tokens: uniform}
acc413e8eb746537: {V: 12, N: 90, d: 16, L: 4, n_test: 300, eta: 0.1,
  embedding: equicorrelated(rho=0.3), embedding_out: equicorrelated(rho=0.3)}
c3d1a0890323a581: {V: 12, N: 90, d: 16, L: 4, n_test: 300, eta: 0.1,
  tokens: own_laws:Zipf(s=1.5)}
50476693c02ddd1f: {V: 12, N: 300, d: 10, L: 4, steps: 20, lr: 0.1,
  optimizer: adam(b1=0.9)}
""")


@pytest.mark.parametrize(("point_id", "changes"), FROZEN.items())
def test_ids_never_move(point_id, changes):
    assert Point(**SMALL | changes).point_id == point_id


def test_resolution():
    point = Point(**SMALL)
    rate = 100 * 64 * 64 / 1e-3
    assert (point.kappa, point.gamma, point.gamma2) == (100, rate, rate)
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
    array = np.array([0.1, 0.2, 0.3, 1024.0, 6e-4]).astype(jnp.dtype(kind))
    given = [*array] if kind == "float64" else jax.device_put([*array])
    assert as_plain(array) == [0.1, 0.2, 0.3, 1024, 6e-4]
    point = Point(**SMALL | {"N": given[3]}, eta=given[4])
    assert point.point_id == Point(**SMALL | {"N": 1024}, eta=6e-4).point_id
    assert str(Equicorrelated(rho=given[0])) == "equicorrelated(rho=0.1)"
    with pytest.raises(PointError, match="N: got"):
        Point(**SMALL | {"N": given[0]})


def test_whole_numbers_of_float32_are_counts_and_others_stay_what_they_are():
    assert Point(**SMALL | {"N": np.float32(2**30)}).N == 2**30
    assert as_plain(np.float32(1e11)) == 1e11
    assert as_plain(np.array([1, 2], np.int8)) == [1, 2]
    assert np.isnan(as_plain(np.float16("nan")))
    assert as_plain(np.float16(65504)) == 65504
    assert as_plain(np.array(["a"])) == ["a"]


def test_the_id_is_the_science():
    point = Point(**SMALL)
    same = [
        Point(**SMALL, kappa=100),
        Point(**SMALL, gamma=point.gamma * (1 + 1e-14)),
        Point(**{k: np.int64(v) for k, v in SMALL.items()}),
        Point(**{**SMALL, "N": 1e3}),
        Point(**SMALL, activation="tanh"),  # no MLP, no activation
    ]
    assert {p.point_id for p in same} == {point.point_id}


def test_all_that_is_wrong_is_told_at_once():
    Point(**SMALL, n_test=1)  # equals True, which is no number
    wrong = {"V": 0, "N": 0, "L": 0, "n_test": True}
    with pytest.raises(PointError) as error:
        Point(**wrong)
    assert {problem.argument for problem in error.value.problems} == {*SMALL, "n_test"}
    assert error.value.problems[0].where == "V >= 2"


def another(name, value):
    """An allowed value of the field other than `value`."""
    choices = FIELDS[name].metadata.get("choices", tuple)()
    names = {*choices} - {value, "none", "orthogonal", "array", "VWZM"}
    if names:
        return max(names)
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
    idle = {"lr": 0.3, "lr_attention": 0.1, "optimizer": "adam", "trains": "V"}
    point = recipe.replace(**idle, batch=4, start="three_step")
    assert point.point_id == recipe.point_id
    assert all(getattr(point, name) == getattr(recipe, name) for name in FIELDS)
