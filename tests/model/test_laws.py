"""Laws with parameters: their text, their axes and ids, what optimisers say of
themselves, and laws from outside the package, in this process and in others. Against
the reference: test_exactness.py.
"""

import copy
import dataclasses
import json
import math
import pickle
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import yaml
from helpers import ROOT, drawn, fits, python, quickly
from own_laws import Signs, Tables
from surrogate import numpy_draws
from tolerances import assert_close

from jaxrecall import Point, realize
from jaxrecall.errors import PointError
from jaxrecall.model import laws
from jaxrecall.model.activations import Activation, activations
from jaxrecall.model.law_parameters import (
    law_parameters,
    make_point,
    problem_in_workers,
)
from jaxrecall.model.laws import (
    LAWS,
    EmbeddingLaw,
    Equicorrelated,
    Gaussian,
    find_law,
    register,
)
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.sweep import plan
from jaxrecall.sweep.grid import as_grid
from jaxrecall.sweep.grid.axes import Names

SMALL = {"V": 12, "N": 90, "d": 16, "L": 4, "n_test": 300, "eta": 0.1}
FURTHER = SMALL | {"steps": 20, "lr": 0.1}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("gaussian", "gaussian"),
        (Gaussian(), "gaussian"),
        (Gaussian, "gaussian"),
        ("equicorrelated()", "equicorrelated"),
        ("equicorrelated( 0.0 )", "equicorrelated"),
        ("equicorrelated(rho=.30)", "equicorrelated(rho=0.3)"),
        (Equicorrelated(0.1 + 0.2), "equicorrelated(rho=0.3)"),
        (Equicorrelated(0.1234567890123456), "equicorrelated(rho=0.123456789012)"),
        ("low_rank(rank=4.0)", "low_rank(rank=4)"),
        ("own_laws:Signs", "own_laws:Signs"),
        (Signs(common=1), "own_laws:Signs(common=1)"),
    ],
)
def test_one_canonical_text(given, text):
    point = Point(**SMALL, embedding=given)
    assert point.embedding == text
    assert point.embedding == find_law(EmbeddingLaw, text)
    assert str(point.embedding) == text
    assert point.point_id == Point(**SMALL, embedding=text).point_id


def test_a_point_has_the_law_which_equals_its_text():
    point = Point(**SMALL, embedding=Equicorrelated(rho=0.2))
    text = "equicorrelated(rho=0.2)"
    assert point.embedding is point.embedding_out
    assert point.embedding.rho == 0.2
    assert point.embedding == text == str(point.embedding)
    assert point.embedding in {text}
    assert text in {point.embedding}
    assert point.embedding != "equicorrelated(rho=0.20)"  # not its canonical text
    assert Equicorrelated(0.2) not in (Equicorrelated(0.3), Gaussian(), 0.2, None)
    assert point.values()["embedding"] is not point.embedding
    assert json.loads(json.dumps(point.as_given()))["embedding"] == text
    assert f"embedding='{text}'" in repr(point)


def local_law():
    """Its text names what no import finds, but this process knows the class."""

    @dataclasses.dataclass(frozen=True)
    class Local(Signs):
        pass

    return Local(common=0.5)


@pytest.mark.parametrize(
    "law", ["low_rank(rank=3)", Signs(common=0.5), local_law()], ids=str
)
def test_a_point_is_pickled_with_its_laws_and_is_a_grid(law):
    point = make_point(SMALL | {"embedding": law, "embedding_out": "sphere"})
    (of_grid,) = as_grid([point]).points
    for again in (pickle.loads(pickle.dumps(point)), of_grid, copy.deepcopy(point)):
        assert again == point
        assert (hash(again), again.point_id) == (hash(point), point.point_id)
        assert type(again.embedding) is type(point.embedding)
        assert again.as_given() == point.as_given()
        assert law_parameters(again) == law_parameters(point)


def test_an_alias_and_the_import_path_are_one_law(monkeypatch):
    monkeypatch.setitem(LAWS, "embedding", dict(LAWS["embedding"]))
    register(Signs, "signs")
    alias, path = "signs(common=0.5)", "own_laws:Signs(common=0.5)"
    assert Point(**SMALL, embedding=alias) == Point(**SMALL, embedding=path)
    with pytest.raises(ValueError, match=r"^embedding: got the name 'signs'"):
        register(Signs, "signs")
    laws.law._parsed.cache_clear()


GIVEN = """
- [{}, {}]
- [{embedding: equicorrelated, activation.beta: null}, {embedding.rho: 0}]
- - {embedding: equicorrelated, embedding.rho: 0.2, embedding_out.rho: 0.5}
  - {embedding.rho: 0.2, embedding_out.rho: 0.5}
- [{embedding_out: power_law}, {embedding_out.alpha: 1}]
- [{optimizer: adam}, {}]
- [{optimizer: adam(b1=0.95)}, {optimizer.b1: 0.95}]
- [{optimizer: adam, optimizer.b1: 0.9}, {optimizer.b1: 0.9}]
"""
"""What a point is given, and the columns of its parameters."""


@pytest.mark.parametrize(("given", "columns"), yaml.safe_load(GIVEN), ids=str)
def test_parameters_are_given_by_dotted_name_and_are_columns(given, columns):
    """Those of an optimiser, off their defaults or if they are named."""
    point = make_point(FURTHER | given)
    assert law_parameters(point) == columns
    assert Point(**point.as_given()) == point


def test_a_dotted_name_of_no_law_is_refused():
    with pytest.raises(PointError, match=r"^colour\.hue: got 1; fields with"):
        make_point(SMALL | {"colour.hue": 1})


def test_a_search_along_a_whole_parameter_tries_whole_numbers():
    names = Names()
    assert not names.is_real("embedding.rank", 1, 64)
    assert not names.is_real("embedding_out.clusters", 1, 64)
    assert names.is_real("embedding.alpha", 1, 64)


@pytest.mark.parametrize(
    "texts",
    [
        ("equicorrelated(rho=0.1)", "equicorrelated(rho=0.5)"),
        ("power_law(alpha=0.5)", "power_law(alpha=2)"),
    ],
    ids=str,
)
@pytest.mark.parametrize("side", ["embedding", "embedding_out"])
def test_values_of_a_float_parameter_share_a_program(side, texts):
    one, other = (Shape.rounded(Point(**SMALL, **{side: law})) for law in texts)
    assert one == other != Shape.rounded(Point(**SMALL))


def test_laws_of_tokens_share_a_program_and_so_do_files(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(20))

    def shape(**given):
        return Shape.rounded(Point(**SMALL, **given))

    of_tables = {shape(tokens=law) for law in ("zipf", "zipf(s=2)", "own_laws:Zipf")}
    assert len(of_tables) == 1
    assert len(of_tables | {shape(), shape(noise_tokens="zipf")}) == 3
    assert shape(embedding=f"array(path='{tmp_path}/x.npy')").embedding == "array"


def test_a_law_knows_its_table():
    """Seen before: laws saw one index for all tables, so z_trig and z_eos came out as
    the last token and Z_in as Z_out.
    """
    r = realize(Point(**SMALL, embedding=Tables()), 0)
    tokens = np.arange(12)[:, None] + np.ones(16)
    assert np.array_equal(r.Z_in, tokens)
    assert np.array_equal(r.Z_out, tokens + 1)
    plain = realize(Point(**SMALL), 0)
    assert_close(r.z_trig, plain.z_trig, "float32")
    assert_close(r.z_eos, plain.z_eos, "float32")


SHIPPED = [*activations(), "mixed(linear=-0.5)", "mixed(linear=0)"]


def test_the_slope_of_every_activation_is_that_of_its_value():
    u = np.linspace(-3, 3, 50) + 1e-3
    every = [find_law(Activation, law) for law in (*SHIPPED, "own_laws:Softplus")]

    def value(law, x):
        return law.value_and_slope(x, jnp, jax.scipy.special.erf)[0]

    @quickly
    def slopes(u):
        return [
            jax.vmap(jax.grad(lambda x, law=law: value(law, x)))(u) for law in every
        ]

    with jax.enable_x64(True):
        by_jax = slopes(u)
    erf = np.vectorize(math.erf)
    assert_close([law.value_and_slope(u, np, erf)[1] for law in every], by_jax)


def test_rows_of_every_law_have_mean_square_length_one(tmp_path):
    V, d, rng = 30, 64, np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=(40, 80)))
    shipped = [law() for name, law in LAWS["embedding"].items() if name != "array"]
    of_file = LAWS["embedding"]["array"](str(tmp_path / "x.npy"))
    for law in (*shipped, of_file, Equicorrelated(0.5), Signs()):
        rows, normals = np.arange(V)[:, None], rng.normal(size=(V, d))
        draws = numpy_draws(law, "Z_in", rows, normals, (V, d), rng)
        lengths = np.sum(law.rows(draws, np) ** 2, axis=1)
        assert_close(lengths.mean(), 1.0, 0.5, of=str(law))


@dataclasses.dataclass(frozen=True)
class Lookup(EmbeddingLaw):
    """Rows from an array of `n`."""

    n: int

    def rows(self, draws, xp):
        shape = self.n, draws.normals.shape[1]
        return xp.ones(shape, draws.normals.dtype)[draws.row[:, 0]]


def test_a_law_that_lacks_rows_or_a_parameter_is_refused():
    """Seen before: a compiled program took the last row in place of those beyond the
    table.
    """
    point = Point(**SMALL, embedding=Lookup(12))
    assert point.embedding == f"{__name__}:Lookup(n=12)"
    assert realize(point, 0).Z_in.shape == (12, 16)
    with pytest.raises(PointError, match=r"^embedding: got .*rows \[0, 11\] of Z_in"):
        Point(**SMALL, embedding=Lookup(11))
    for given in (Lookup, f"{__name__}:Lookup", f"{__name__}:Lookup()"):
        with pytest.raises(PointError, match=r"^embedding\.n: got nothing"):
            Point(**SMALL, embedding=given)


def test_a_class_that_is_defined_again_takes_the_place_of_the_first():
    """Seen before: after a cell of a notebook was changed, points still ran the law as
    it was at first.
    """

    def defined(value):
        @dataclasses.dataclass(frozen=True)
        class Again(EmbeddingLaw):
            def rows(self, draws, xp):
                return value * draws.normals

        return Point(**SMALL, embedding=Again(), exact="full")

    gaussian = realize(Point(**SMALL), 0).Z_in
    for value in (0.25, 0.5):
        point = defined(value)
        Z_in = realize(point, 0).Z_in
        assert_close(Z_in, value * 4 * gaussian, "float32")  # d = 16
        world = drawn(point, 0, Shape.sized(point, 16, 16, 0))
        assert_close(np.asarray(world.e.Z_in)[:12], Z_in, "float32")


def test_a_function_that_is_defined_again_takes_the_place_of_the_first(monkeypatch):
    def made(factor):
        def doubled(rate, k=2.0):
            return optax.sgd(rate * k * factor)

        doubled.__qualname__ = "doubled"
        return doubled

    module = types.ModuleType("own_optimizer")
    monkeypatch.setitem(sys.modules, "own_optimizer", module)
    points, programs = [], []
    for factor in (1, 2):
        module.doubled = made(factor)
        points.append(Point(**FURTHER, optimizer="own_optimizer:doubled(k=3)"))
        programs.append([*map(type, Shape.tight(points[-1]).laws.values())])
    assert points[0].point_id == points[1].point_id
    assert programs[0] != programs[1]
    assert problem_in_workers(points[0]) is None


def test_what_other_processes_cannot_import_is_told():
    def mine(rate):
        return optax.sgd(rate)

    assert problem_in_workers(Point(**SMALL, embedding="own_laws:Signs")) is None
    for law in ({"embedding": local_law()}, {"optimizer": mine}):
        problem = problem_in_workers(Point(**FURTHER, **law)) or ""
        assert "defined in a function; other processes need" in problem


@pytest.mark.system  # starts two workers
def test_a_sweep_with_an_axis_of_a_law_of_ones_own_in_workers():
    code = """
import jaxrecall
base = {"V": 12, "d": 16, "L": 4, "N": 64, "n_test": 300, "embedding": "own_laws:Signs"}
grid = {"base": base, "blocks": [{"axes": {"embedding.common": [0, 0.5]}}]}
df = jaxrecall.run(grid, seeds=2, workers=2, progress=False)
print(sorted(set(df["embedding"])), sorted(set(df["embedding.common"])), len(df))
"""
    done = python(code, PYTHONPATH=str(ROOT / "tests"))
    printed = "['own_laws:Signs', 'own_laws:Signs(common=0.5)'] [0.0, 0.5] 4"
    assert done.stdout.split("\n")[0] == printed, done.stderr[-2000:]


def test_an_optimiser_that_padding_changes_runs_in_a_program_of_its_own_sizes():
    narrow = Point(
        **FURTHER | {"V": 48, "d": 20}, m=36, activation="gelu", optimizer="muon"
    )
    wide, own = narrow.replace(m=96), Shape.tight(narrow)
    peaks = plan.make_plan([(narrow, 0), (wide, 0)]).peaks
    sizes = [(shape.V, shape.d, shape.m) for shape in peaks]
    assert sizes == [(48, 20, 36), (48, 20, 96)]
    padded = plan.make_plan([(narrow, 0)], (64, 32, 128)).peaks
    assert {Shape.rounded(narrow), *padded} == {own}
    assert fits(own, narrow)
    assert not fits(Shape.tight(wide), narrow)
    assert Shape.tight(narrow.replace(optimizer="polar")).m == 48
