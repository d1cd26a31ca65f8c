"""Laws with parameters: their text, their axes and ids, and laws from outside the
package, in this process and in others.
"""

import copy
import dataclasses
import json
import math
import pickle

import attack
import jax
import numpy as np
import pytest
from helpers import ROOT, assert_same_metrics, combinations, drawn, python, streamed
from own_laws import Signs, Softplus, Tables

from jaxrecall import Point, realize, simulate, theory, three_step
from jaxrecall.errors import PointError, TheoryError
from jaxrecall.model import laws
from jaxrecall.model import point as points
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
    numpy_draws,
    register,
)
from jaxrecall.model.reference.metrics import measure
from jaxrecall.model.values import plain_type
from jaxrecall.simulator.arguments import arguments
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.sweep.grid import as_grid

SMALL = {"V": 12, "N": 90, "d": 16, "L": 4, "n_test": 300, "eta": 0.1}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("gaussian", "gaussian"),
        (Gaussian(), "gaussian"),
        (Gaussian, "gaussian"),
        ("equicorrelated", "equicorrelated"),
        ("equicorrelated()", "equicorrelated"),
        ("equicorrelated(rho=0)", "equicorrelated"),
        ("equicorrelated( 0.0 )", "equicorrelated"),
        ("equicorrelated(rho=.30)", "equicorrelated(rho=0.3)"),
        (Equicorrelated(0.1 + 0.2), "equicorrelated(rho=0.3)"),
        (
            "equicorrelated(rho=0.1234567890123456)",
            "equicorrelated(rho=0.123456789012)",
        ),
        ("own_laws:Signs", "own_laws:Signs"),
        (Signs(common=1), "own_laws:Signs(common=1)"),
    ],
)
def test_one_canonical_text(given, text):
    point = Point(**SMALL, embedding=given)
    assert point.embedding == text
    assert point.embedding_law == find_law(EmbeddingLaw, text)
    assert str(point.embedding_law) == text
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
    assert point.replace(N=9).embedding == point.embedding


@pytest.mark.parametrize(
    "law", ["low_rank(rank=3)", Signs(common=0.5), Equicorrelated(0.2)], ids=str
)
def test_a_point_is_pickled_with_its_laws(law):
    point = make_point({**SMALL, "embedding": law, "embedding_out": "sphere"})
    again = pickle.loads(pickle.dumps(point))
    assert (again, hash(again), again.point_id) == (point, hash(point), point.point_id)
    assert type(again.embedding) is type(point.embedding)
    assert again.as_given() == point.as_given()
    assert law_parameters(again) == law_parameters(point)
    assert copy.deepcopy(point) == copy.copy(point) == point


def test_a_point_of_a_law_of_a_function_is_a_grid_too():
    """Its text names what no import finds, but this process knows the class."""

    @dataclasses.dataclass(frozen=True)
    class Local(Signs):
        pass

    point = Point(**SMALL, embedding=Local(common=0.5))
    (again,) = as_grid([point]).points
    assert again == pickle.loads(pickle.dumps(point)) == point
    assert type(again.embedding) is Local


def test_an_alias_and_the_import_path_are_one_law(monkeypatch):
    monkeypatch.setitem(LAWS, "embedding", dict(LAWS["embedding"]))
    register(Signs, "signs")
    assert Point(**SMALL, embedding="signs(common=0.5)") == Point(
        **SMALL, embedding="own_laws:Signs(common=0.5)"
    )
    with pytest.raises(
        ValueError, match="embedding: got the name 'signs' a second time"
    ):
        register(Signs, "signs")
    laws.law._parsed.cache_clear()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"embedding": "gausian"},
            r"embedding: got 'gausian'; did you mean gaussian\?; allowed: gaussian,"
            r" sphere, orthogonal, equicorrelated, "
            "clustered, low_rank, power_law, array, or",
        ),
        (
            {"embedding": "equicorrelated(rho=1)"},
            r"embedding\.rho: got 1; allowed: finite numbers from 0 to below 1",
        ),
        (
            {"embedding": "equicorrelated(rho='a')"},
            r"embedding\.rho: got 'a'; allowed: finite numbers",
        ),
        (
            {"embedding": "equicorrelated(roh=0.1)"},
            (
                r"embedding\.roh: got 0\.1; parameters of equicorrelated: rho; did you"
                r" mean rho\?"
            ),
        ),
        (
            {"embedding": "equicorrelated(0.1, 0.2)"},
            r"embedding: got 'equicorrelated\(0\.1, 0\.2\)'; allowed",
        ),
        ({"embedding": "equicorrelated(rho=__import__('os'))"}, "embedding: got"),
        ({"embedding": "gaussian()()"}, "embedding: got"),
        ({"embedding": "gaussian(1)"}, "embedding: got"),
        (
            {"embedding": "no_such_module:Law"},
            "cannot be imported: No module named 'no_such_module'",
        ),
        (
            {"embedding": "no_such.module:Law"},
            (
                "No module named 'no_such'; run in the folder that holds"
                " no_such/module.py, or put it on PYTHONPATH; allowed"
            ),
        ),
        ({"embedding": "own_laws:Missing"}, "has no attribute 'Missing'; allowed"),
        (
            {"embedding": "own_laws:Missing"},
            "cannot be imported: module 'own_laws' has no attribute 'Missing'",
        ),
        (
            {"embedding": "own_laws:Softplus"},
            "embedding: got 'own_laws:Softplus'; allowed",
        ),
        ({"embedding": Softplus()}, "embedding: got Softplus"),
        ({"embedding": 3}, "embedding: got 3"),
        (
            {"activation": "own_laws:Softplus(beta=0)", "m": 8},
            r"activation\.beta: got 0; allowed: finite numbers greater than 0",
        ),
    ],
)
def test_what_is_no_law_is_refused_by_name(changes, message):
    with pytest.raises(PointError, match=message):
        Point(**SMALL, **changes)


def test_parameters_by_dotted_name():
    point = make_point(
        {
            **SMALL,
            "embedding": "equicorrelated",
            "embedding.rho": 0.3,
            "activation.beta": None,
        }
    )
    assert point.embedding == "equicorrelated(rho=0.3)"
    assert law_parameters(point) == {"embedding.rho": 0.3}
    assert law_parameters(Point(**SMALL)) == {}
    for wrong, message in (
        (
            {"embedding.rho": 0.3},
            r"embedding\.rho: got 0\.3; parameters of gaussian: none",
        ),
        (
            {"colour.hue": 1},
            (
                r"colour\.hue: got 1; fields with parameters: tokens, noise_tokens,"
                r" embedding, embedding_out, activation, optimizer"
            ),
        ),
        (
            {"embedding": "equicorrelated", "embedding.rho": 2},
            r"embedding\.rho: got 2; allowed",
        ),
    ):
        with pytest.raises(PointError, match=message):
            make_point({**SMALL, **wrong})


@pytest.mark.slow
def test_no_correlation_gives_the_gaussian_draws_bit_for_bit():
    plain, zero = (
        realize(Point(**SMALL, embedding=law), 3)
        for law in ("gaussian", "equicorrelated(rho=0)")
    )
    for a, b in zip(plain, zero, strict=True):
        np.testing.assert_array_equal(a, b)
    a, b = (
        simulate(Point(**SMALL, embedding=law, exact="full"), 3)
        for law in ("gaussian", "equicorrelated")
    )
    assert a["n_correct"] == b["n_correct"]
    assert a["snr"] == pytest.approx(b["snr"], rel=1e-5)
    assert (a.get("embedding.rho"), b["embedding.rho"]) == (None, 0.0)


def test_rows_have_the_mean_inner_product_rho_and_tables_directions_of_their_own():
    point = Point(
        V=60, N=16, d=4000, L=2, n_test=8, embedding="equicorrelated(rho=0.4)"
    )
    r = realize(point, 0)
    for Z in (r.Z_in, r.Z_out):
        gram = Z @ Z.T
        assert np.diag(gram).mean() == pytest.approx(1, abs=0.03)
        assert (gram.sum() - np.trace(gram)) / 60 / 59 == pytest.approx(0.4, abs=0.03)
    assert abs(r.Z_in.mean(0) @ r.Z_out.mean(0)) < 0.03
    assert (
        max(abs(Z.mean(0) @ z) for Z in (r.Z_in, r.Z_out) for z in (r.z_trig, r.z_eos))
        < 0.06
    )
    smaller = realize(point.replace(V=20, d=1000), 0)
    np.testing.assert_allclose(
        smaller.Z_in, 2 * r.Z_in[:20, :1000], rtol=1e-5, atol=1e-7
    )


MODELS = [{}, {"m": 24, "activation": "own_laws:Softplus(beta=2)"}]
EMBEDDINGS = ["equicorrelated(rho=0.6)", "own_laws:Signs(common=0.4)"]


@pytest.mark.parametrize(
    ("mlp", "law"),
    combinations(
        MODELS,
        EMBEDDINGS,
        often=lambda *case: case == (MODELS[-1], EMBEDDINGS[-1]),
    ),
)
def test_the_simulator_agrees_with_the_reference(law, mlp):
    point = Point(**SMALL, **mlp, embedding=law, exact="guarded" if mlp else "full")
    r = realize(point, 0)
    learned, metrics = streamed(point, 0, Shape.sized(point, 16, 16, 32 if mlp else 0))
    expected = three_step(r, point)
    for ours, theirs in zip(learned, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5 * np.abs(theirs).max())
    assert_same_metrics(metrics, measure(r, point, expected))


def test_a_parameter_reaches_the_program():
    """Seen before: a traced float was cast to an integer, so that rho = 0.6 simulated
    rho = 0.
    """
    base = {**SMALL, "N": 2000, "eta": 1e-3, "exact": "full"}
    accuracy = [
        simulate(Point(**base, embedding=f"equicorrelated(rho={rho})"), range(8))
        for rho in (0, 0.9)
    ]
    none, strong = (
        np.mean([row["memory_accuracy"] for row in rows]) for rows in accuracy
    )
    assert none > strong + 0.2


def test_arguments_have_every_traced_field_in_the_type_of_its_annotation():
    """Seen before: every traced field became an int32."""
    point = Point(**SMALL, label_noise=0.6)
    run = arguments([points.Run(point, 0)], Shape.sized(point, 16, 16, 0))
    kinds = {
        "int": np.int32,
        "str": np.int32,
        "bool": np.bool_,
        "float": np.float32,
    }
    traced = points.of_kind("size", "traced")
    assert {name: getattr(run, name).dtype for name in traced} == {
        name: kinds[plain_type(points.FIELDS[name])] for name in traced
    }
    assert run.label_noise[0] == np.float32(0.6)


def test_values_of_a_float_parameter_share_a_program():
    shapes = {
        Shape.sized(Point(**SMALL, embedding=f"equicorrelated(rho={rho})"), 16, 16, 0)
        for rho in (0.1, 0.5)
    }
    assert len(shapes) == 1
    assert shapes != {Shape.sized(Point(**SMALL), 16, 16, 0)}


def test_a_law_knows_its_table():
    """Seen before: laws saw one index for all tables, so z_trig and z_eos came out as
    the last token and Z_in as Z_out.
    """
    r = realize(Point(V=5, N=4, d=3, L=2, n_test=4, embedding=Tables()), 0)
    np.testing.assert_array_equal(
        r.Z_in, np.repeat(np.arange(5)[:, None] + 1.0, 3, axis=1)
    )
    np.testing.assert_array_equal(r.Z_out, r.Z_in + 1)
    plain = realize(Point(V=5, N=4, d=3, L=2, n_test=4), 0)
    np.testing.assert_allclose(r.z_trig, plain.z_trig, rtol=1e-6)
    np.testing.assert_allclose(r.z_eos, plain.z_eos, rtol=1e-6)


@pytest.mark.parametrize("activation", [*activations(), "own_laws:Softplus(beta=3)"])
def test_the_slope_of_every_activation_is_that_of_its_value(activation):
    u = np.linspace(-3, 3, 50) + 1e-3
    law = find_law(Activation, activation)
    with jax.enable_x64(True):
        value = jax.vmap(
            jax.grad(
                lambda x: law.value_and_slope(x, jax.numpy, jax.scipy.special.erf)[0]
            )
        )(u)
    slope = law.value_and_slope(u, np, np.vectorize(math.erf))[1]
    np.testing.assert_allclose(slope, value, atol=1e-12)


@pytest.mark.parametrize(
    "activation", [*activations(), "mixed(linear=-0.5)", "mixed(linear=0)"]
)
def test_the_coefficients_of_every_polynomial_are_those_of_its_value(activation):
    """An activation that has none is not a polynomial of degree 8 or less."""
    u = np.linspace(-3, 3, 41)
    law = find_law(Activation, activation)
    value = law.value_and_slope(u, np, np.vectorize(math.erf))[0]
    coefficients = law.coefficients(np)
    if coefficients:
        np.testing.assert_allclose(
            np.polynomial.Polynomial([float(c) for c in coefficients])(u),
            value,
            atol=1e-6,
        )
    else:
        assert np.abs(np.polynomial.Polynomial.fit(u, value, 8)(u) - value).max() > 1e-5


@pytest.mark.parametrize(
    "law",
    [
        *(law() for name, law in LAWS["embedding"].items() if name != "array"),
        Equicorrelated(0.5),
        Signs(),
    ],
    ids=str,
)
def test_rows_of_every_law_have_mean_square_length_one(law):
    V, d, rng = 30, 64, np.random.default_rng(0)
    draws = numpy_draws(
        law, "Z_in", np.arange(V)[:, None], rng.normal(size=(V, d)), (V, d), rng
    )
    assert np.mean(np.sum(law.rows(draws, np) ** 2, axis=1)) == pytest.approx(
        1, abs=0.25
    )


@pytest.mark.parametrize("law", ["low_rank(rank=3)", "own_laws:Signs"])
def test_theory_refuses_a_law_that_supplies_no_moments(law):
    with pytest.raises(
        TheoryError,
        match=(
            r"embedding: got .*; theory covers laws that give moments: gaussian,"
            r" sphere, orthogonal"
        ),
    ):
        theory.accuracy(theory.Model(V=64, d=32, L=8, embedding=law), 1024)


@dataclasses.dataclass(frozen=True)
class Lookup(EmbeddingLaw):
    """Rows from an array of `n`."""

    n: int

    def rows(self, draws, xp):
        return xp.ones((self.n, draws.normals.shape[1]), draws.normals.dtype)[
            draws.row[:, 0]
        ]


def test_a_law_that_lacks_rows_is_refused():
    """Seen before: a compiled program took the last row in place of those beyond the
    table.
    """
    assert realize(Point(**SMALL, embedding=Lookup(12)), 0).Z_in.shape == (12, 16)
    with pytest.raises(
        PointError,
        match=(
            r"embedding: got .*Lookup\(n=11\), of which rows \[0, 11\] of Z_in are"
            r" IndexError"
        ),
    ):
        Point(**SMALL, embedding=Lookup(11))


def test_a_parameter_without_default_must_be_given():
    assert Point(**SMALL, embedding=Lookup(20)).embedding == f"{__name__}:Lookup(n=20)"
    for given in (Lookup, f"{__name__}:Lookup", f"{__name__}:Lookup()"):
        with pytest.raises(
            PointError, match=r"embedding\.n: got nothing; .*Lookup needs it"
        ):
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

    for value in (0.25, 0.5):
        point = defined(value)
        r = realize(point, 0)
        # d = 16
        np.testing.assert_allclose(
            r.Z_in, value * 4 * realize(Point(**SMALL), 0).Z_in, rtol=1e-6
        )
        world = drawn(point, 0, Shape.sized(point, 16, 16, 0))
        np.testing.assert_allclose(world.e.Z_in[:12], r.Z_in, rtol=1e-5, atol=1e-7)
        if attack.full_counts:
            row, expected = simulate(point, 0), measure(r, point, three_step(r, point))
            assert row["trigger_score"] == pytest.approx(
                expected["trigger_score"], rel=1e-4
            )


def test_what_other_processes_cannot_import_is_told():
    @dataclasses.dataclass(frozen=True)
    class Local(Signs):
        pass

    assert problem_in_workers(Point(**SMALL, embedding="own_laws:Signs")) is None
    assert "defined in a function; other processes need" in (
        problem_in_workers(Point(**SMALL, embedding=Local())) or ""
    )
    assert Point(**SMALL, embedding=Local(common=0.5)).embedding_law == Local(
        common=0.5
    )


@pytest.mark.system  # starts two workers
def test_a_sweep_with_an_axis_of_a_law_of_ones_own_in_workers(tmp_path):
    code = """
import jaxrecall
base = {"V": 12, "d": 16, "L": 4, "N": 64, "n_test": 300, "embedding": "own_laws:Signs"}
grid = {"base": base, "blocks": [{"axes": {"embedding.common": [0, 0.5]}}]}
df = jaxrecall.run(grid, seeds=2, workers=2, progress=False)
print(sorted(set(df["embedding"])), sorted(set(df["embedding.common"])), len(df))
"""
    done = python(code, PYTHONPATH=str(ROOT / "tests"))
    assert (
        done.stdout.split("\n")[0]
        == "['own_laws:Signs', 'own_laws:Signs(common=0.5)'] [0.0, 0.5] 4"
    ), done.stderr[-2000:]
