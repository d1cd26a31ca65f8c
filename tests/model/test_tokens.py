"""Laws of the tokens: their draws, their fields and columns, and runs against the
reference under each of them.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers import (
    assert_same_metrics,
    combinations,
    quickly,
    relative,
    streamed,
    traced,
)
from own_laws import Zipf as OwnZipf
from scipy.stats import chi2

import jaxrecall
from jaxrecall import Point, descend, realize, simulate, theory, three_step
from jaxrecall.errors import PointError, TheoryError
from jaxrecall.model import keys, task
from jaxrecall.model.columns import COLUMNS
from jaxrecall.model.law_parameters import make_point
from jaxrecall.model.laws import TokenLaw, Uniform, Zipf, find_law
from jaxrecall.model.laws.tokens import WORDS, alias_table, rare_and_frequent, shares
from jaxrecall.model.reference.metrics import measure
from jaxrecall.simulator import forms
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.sweep.store.table import of_rows, read_file

SMALL = {"V": 12, "N": 90, "d": 16, "L": 4, "n_test": 300, "eta": 0.1}
OWN = "own_laws:Zipf(s=1.5)"
LAWS = [
    {"tokens": "zipf"},
    {"noise_tokens": "zipf(s=1.5)"},
    {"tokens": OWN, "noise_tokens": "uniform"},
]
MLP = {"m": 24, "activation": "tanh"}


@dataclasses.dataclass(frozen=True)
class Chosen(TokenLaw):
    """Probabilities as given."""

    p: tuple = ()

    def __post_init__(self):
        """No parameter is checked."""

    def probabilities(self, V, xp):
        return xp.asarray(self.p)


def chi_square(counts: np.ndarray, p: np.ndarray) -> float:
    """The probability of counts as far from their law."""
    expected = counts.sum() * p
    return float(chi2.sf(np.sum((counts - expected) ** 2 / expected), len(p) - 1))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_tokens_follow_their_law(law):
    """Informative ones and noise, of samples and of test sequences, each by their own
    law and by no other.
    """
    point = Point(V=40, N=20000, d=4, L=4, n_test=20000, **law)
    r = realize(point, 0)
    p_informative, p_noise = (shares(law, 40) for law in point.token_laws)
    for x, ell in (
        (r.train_tokens, r.train_positions),
        (r.test_tokens, r.test_positions),
    ):
        informative = np.take_along_axis(x, ell[:, None], axis=1)
        of_informative, of_all = (
            np.bincount(a.ravel(), minlength=40) for a in (informative, x)
        )
        assert chi_square(of_informative, p_informative) > 1e-3
        assert chi_square(of_all - of_informative, p_noise) > 1e-3
        # a law nearby is told apart
        assert chi_square(of_informative, shares(Zipf(0.9), 40)) < 1e-3


@pytest.mark.parametrize("V", [2, 3, 100, 4097, 65536])
@pytest.mark.parametrize(
    "law", [Uniform(), Zipf(0.0), Zipf(0.3), Zipf(), Zipf(8.0)], ids=str
)
def test_each_probability_is_right_to_a_word(law, V):
    """Words are counted from the table, cell by cell."""
    first, other = alias_table(law, V).astype(np.int64)
    starts = -(-np.arange(V + 1, dtype=np.int64) * WORDS // V)
    full = other == np.arange(V)
    kept = np.where(full, starts[1:], first) - starts[:-1]
    words = kept + np.bincount(other, np.diff(starts) - kept, minlength=V).astype(
        np.int64
    )
    assert words.sum() == WORDS
    assert (0 <= kept).all()
    assert np.abs(words / WORDS - shares(law, V)).max() <= 1 / WORDS


@pytest.mark.parametrize("V", [3, 100, 65536])
def test_words_at_both_ends_of_a_cell_draw_what_the_table_says(V, monkeypatch):
    table = alias_table(Zipf(), V)
    first, other = table.astype(np.int64)
    cell = np.flatnonzero(first)
    words = np.concatenate([first[cell] - 1, first[cell]])
    words = words[words // (WORDS // V + 1) <= V].astype(np.uint32)
    monkeypatch.setattr(keys, "words", lambda *_: jnp.asarray(words))
    drawn = np.asarray(
        quickly(lambda tables: task.tokens(keys.Blocks(None, None), 0, V, tables))(
            table[None]
        )
    )
    kept = drawn[: len(cell)] == cell
    # the last word below the bound draws the cell, unless no part of it is its own
    assert (kept | (first[cell] - 1 < -(-cell * WORDS // V))).all()
    np.testing.assert_array_equal(drawn[len(cell) :], other[cell])


def test_no_word_draws_a_token_of_probability_0():
    p = (0.0, 1.0, 0.0, 3.0, 0.0)
    first, other = alias_table(Chosen(p), 5).astype(np.int64)
    starts = -(-np.arange(5) * WORDS // 5)
    assert first[[0, 2, 4]].tolist() == starts[[0, 2, 4]].tolist()
    assert {*other.tolist()} <= {1, 3}


@pytest.mark.parametrize("p", [(1.0,), (0.0, 0.0), (1.0, -1.0), (1.0, 1e999)], ids=str)
def test_probabilities_that_are_none_are_refused(p):
    with pytest.raises(
        ValueError,
        match=(
            r"tokens: got .*Chosen.*; allowed: V=2 finite numbers from 0 on, not all 0"
        ),
    ):
        alias_table(Chosen(p), 2)
    with pytest.raises(
        PointError,
        match=(
            r"^noise_tokens: got .*Chosen.*; allowed: (V=2 finite|uniform, zipf, or"
            r" your own)"
        ),
    ):
        Point(**SMALL | {"V": 2}, noise_tokens=Chosen(p))


def test_exponent_0_is_uniform_to_the_last_bit():
    uniform, zipf = (
        simulate(Point(**SMALL, tokens=law), 0) for law in ("uniform", "zipf(s=0)")
    )
    other = {"point_id", "tokens", "noise_tokens"}
    assert {name: uniform[name] for name in uniform.keys() - other} == {
        name: zipf[name] for name in uniform.keys() - other
    }
    assert (zipf["rare_memory_accuracy"], zipf["tokens.s"]) == (None, 0.0)


FRESH = {"fresh_batches": True, "trigger_in_value": False}


PROGRAMS = [("guarded", {}), ("full", MLP), ("guarded", MLP), ("full", {})]
OFTEN = {("guarded", ""): LAWS[0], ("full", "tanh"): LAWS[2]}


def by_turns(program: tuple, law: dict, kw: dict) -> bool:
    """One program for tokens and noise of one law, another for laws of their own."""
    exact, mlp = program
    return law == OFTEN.get((exact, mlp.get("activation", "")))


@pytest.mark.parametrize(
    ("program", "law", "kw"), combinations(PROGRAMS, LAWS, [{}, FRESH], often=by_turns)
)
def test_rows_agree_with_the_reference(program, law, kw):
    exact, mlp = program
    point = Point(**SMALL | mlp | kw | law | {"eta": 1e-7}, exact=exact)
    r = realize(point, 0)
    learned, metrics = streamed(point, 0, Shape.sized(point, 16, 16, 32 if mlp else 0))
    assert (metrics["form"] == "full") == (exact == "full")
    expected = three_step(r, point)
    for ours, theirs in zip(learned, expected, strict=True):
        assert relative(ours, theirs) < 2e-5
    assert_same_metrics(metrics, measure(r, point, expected))


LATER = [{}, MLP, {"batch": 64, "trains": "VWZ"}]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "kw"),
    combinations(LAWS, LATER, often=lambda law, kw: law == LAWS[0] and kw == {}),
)
def test_further_steps_agree_with_the_reference(law, kw):
    point = Point(**SMALL | {"gamma2": 10.0, "kappa": 4.0} | law | kw, steps=8, lr=0.05)
    records = traced(point, 0, Shape.sized(point, 16, 16, 32 if point.m else 0))
    expected = descend(realize(point, 0), point)
    for record, judge in zip(records, expected, strict=True):
        np.testing.assert_allclose(
            record["params"]["V_mat"],
            judge.V_mat,
            atol=5e-5 * np.abs(judge.V_mat).max(),
        )
        assert record["test_loss"] == pytest.approx(judge.test_loss, rel=1e-4)


EMBEDDINGS = [
    "equicorrelated(rho=0.3)",
    "low_rank(rank=3, noise=0.1)",
    "clustered(clusters=4)",
    "power_law(alpha=1.2)",
    "array(path='{table}')",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "embedding"),
    combinations(
        LAWS, EMBEDDINGS, often=lambda *case: case == (LAWS[0], EMBEDDINGS[0])
    ),
)
def test_rows_agree_with_the_reference_with_structured_embeddings(
    law, embedding, tmp_path
):
    table = tmp_path / "table.npy"
    np.save(
        table, np.random.default_rng(0).normal(size=(40, 20)) * np.arange(1, 21) ** -0.5
    )
    point = Point(
        **SMALL | law | {"eta": 1e-7}, embedding=embedding.format(table=table)
    )
    r = realize(point, 0)
    learned, metrics = streamed(point, 0, Shape.sized(point, 16, 16, 0))
    expected = three_step(r, point)
    for ours, theirs in zip(learned, expected, strict=True):
        assert relative(ours, theirs) < 2e-5
    assert_same_metrics(metrics, measure(r, point, expected))


def test_recall_of_rare_and_of_frequent_tokens():
    """Equally frequent tokens count by their number."""
    rare, frequent = rare_and_frequent(
        Chosen((1.0, 3.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)), 11
    )
    assert (np.flatnonzero(rare).tolist(), np.flatnonzero(frequent).tolist()) == (
        [6, 7, 8, 9, 10],
        [1, 3],
    )
    row = simulate(
        Point(**SMALL | {"V": 48, "N": 400, "d": 24, "eta": 1e-6}, tokens="zipf"), 0
    )
    assert (
        row["rare_memory_accuracy"]
        < row["memory_accuracy"]
        < row["frequent_memory_accuracy"]
    )


def test_rows_have_the_parameter_of_a_token_law_and_laws_share_a_program():
    rows = [
        simulate(Point(**SMALL, tokens=f"own_laws:Zipf(s={s})"), 0) for s in (0.5, 1.5)
    ]
    assert [row["tokens.s"] for row in rows] == [0.5, 1.5]
    assert rows[0]["draw_check"] != rows[1]["draw_check"]
    shapes = {
        Shape.rounded(Point(**SMALL, tokens=law)) for law in ("zipf", "zipf(s=2)", OWN)
    }
    assert len(shapes) == 1
    assert (
        len(
            shapes
            | {Shape.rounded(Point(**SMALL, tokens="uniform"))}
            | {Shape.rounded(Point(**SMALL, noise_tokens="zipf"))}
        )
        == 3
    )


def test_the_package_has_the_law_of_a_users_own():
    ours, own = (
        simulate(Point(**SMALL, tokens=law), 0) for law in ("zipf(s=1.5)", OWN)
    )
    assert {name for name in ours if ours[name] != own[name]} == {
        "point_id",
        "tokens",
        "noise_tokens",
    }


@pytest.mark.parametrize("kw", [{"diagnose": True}, {"decoders": True}], ids=str)
@pytest.mark.parametrize("name", ["tokens", "noise_tokens"])
def test_what_knows_uniform_tokens_alone_refuses_others(name, kw):
    with pytest.raises(
        PointError,
        match=(
            rf"got .* with {name}='zipf\(s=2\)'; allowed where {name} =="
            r" ('uniform'|tokens)$"
        ),
    ) as error:
        Point(**SMALL, **kw, **{name: "zipf(s=2)"})
    assert len(error.value.problems) == 1


@pytest.mark.slow
def test_noise_may_have_another_law():
    same = Point(**SMALL, tokens="zipf", noise_tokens="zipf")
    none = Point(**SMALL, tokens="zipf")
    assert same == none
    assert same.point_id == none.point_id
    assert (none.noise_tokens, none.replace(tokens="uniform").noise_tokens) == (
        "zipf",
        "uniform",
    )
    assert same.replace(tokens="uniform").noise_tokens == "zipf"
    points = [
        Point(**SMALL),
        none,
        Point(**SMALL, noise_tokens="zipf"),
        Point(**SMALL, tokens="zipf", noise_tokens="uniform"),
    ]
    assert len({point.point_id for point in points}) == 4
    row = simulate(points[2], 0)
    assert (
        row["tokens"],
        row["noise_tokens"],
        row["noise_tokens.s"],
        "tokens.s" in row,
    ) == ("uniform", "zipf", 1.0, False)
    point = make_point(
        {**SMALL, "noise_tokens.s": 2, "tokens": "zipf", "tokens.s": 0.5}
    )
    assert (point.tokens, point.noise_tokens) == ("zipf(s=0.5)", "zipf(s=2)")
    with pytest.raises(PointError, match=r"^noise_tokens\.s: got -1; allowed"):
        make_point({**SMALL, "noise_tokens": "zipf", "noise_tokens.s": -1})


def test_ids_of_before_stay():
    assert (
        Point(**SMALL).point_id
        == Point(**SMALL, tokens="uniform()", noise_tokens="uniform").point_id
        == "309082d0d3a0683e"
    )
    assert Point(**SMALL, tokens=OwnZipf(1.5)).point_id == "c3d1a0890323a581"


def test_rows_of_before_have_one_law_for_informative_tokens_and_noise(tmp_path):
    older = of_rows(
        [
            dict.fromkeys(COLUMNS) | simulate(Point(**SMALL, tokens=text), 0)
            for text in ("uniform", "zipf")
        ]
    )
    for left_out in (["noise_tokens"], ["tokens", "noise_tokens"]):
        pq.write_table(older.drop_columns(left_out), tmp_path / "older.parquet")
        read = read_file(tmp_path / "older.parquet")
        assert read["noise_tokens"].to_pylist() == read["tokens"].to_pylist()
    assert {*read["tokens"].to_pylist()} == {"uniform"}


def test_shortcuts_list_the_laws_and_theory_knows_their_attention_alone():
    assert {"tokens", "noise_tokens"} <= forms.KNOWN
    for laws in ({"tokens": OwnZipf(1.0)}, {"noise_tokens": "zipf"}):
        model = theory.Model.from_point(Point(**SMALL, **laws))
        assert 0 < theory.locked_fraction(model, 1000) <= 1
        with pytest.raises(
            TheoryError,
            match=r"tokens: got .*covered, but by locked_fraction: .uniform.",
        ):
            theory.accuracy(model, 1000)
    assert find_law(TokenLaw, "zipf") == Zipf(1.0)


@pytest.mark.parametrize(
    "axis", [pytest.param("N", marks=pytest.mark.slow), "tokens.s"]
)
def test_searches(axis):
    """Along N, and along s, where whether accuracy crosses does not matter here."""
    base = {**SMALL, "N": 2000, "tokens": "zipf(s=0.5)", "eta": 1e-6}
    limits = (
        {"from": 4, "to": 65536}
        if axis == "N"
        else {"from": 0.1, "to": 4, "rises": False}
    )
    if axis == "N":
        del base["N"]
    found = jaxrecall.thresholds(
        jaxrecall.run(
            {
                "base": base,
                "search": {"axis": axis, "theta": 0.3, **limits},
                "blocks": [{}],
            },
            seeds=40,
        )
    )
    assert found["axis"].tolist() == [axis]
    assert axis == "tokens.s" or 4 < found["critical"][0] < 65536
