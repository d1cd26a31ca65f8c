"""Laws of the tokens: their draws, their fields and columns. Against the reference:
test_exactness.py.
"""

import dataclasses

import numpy as np
import pytest
from helpers import quickly
from scipy.stats import chisquare

import jaxrecall
from jaxrecall import Point, measure, realize
from jaxrecall.errors import PointError
from jaxrecall.model import keys, task
from jaxrecall.model.law_parameters import law_parameters, make_point
from jaxrecall.model.laws import TokenLaw, Uniform, Zipf
from jaxrecall.model.laws.tokens import (
    WORDS,
    alias_table,
    rare_and_frequent,
    token_probabilities,
)
from jaxrecall.model.reference import three_step

SMALL = {"V": 12, "N": 90, "d": 16, "L": 4, "n_test": 300, "eta": 0.1}
OWN = "own_laws:Zipf(s=1.5)"


@dataclasses.dataclass(frozen=True)
class Chosen(TokenLaw):
    """Probabilities as given."""

    p: tuple = ()

    def __post_init__(self):
        """No parameter is checked."""

    def probabilities(self, V, xp):
        return xp.asarray(self.p)


@pytest.mark.parametrize(
    "law",
    [
        {"tokens": "zipf"},
        {"noise_tokens": "zipf(s=1.5)"},
        {"tokens": OWN, "noise_tokens": "uniform"},
    ],
    ids=str,
)
def test_tokens_follow_their_law(law):
    """Informative ones and noise, of samples and of test sequences, each by their own
    law and by no other.
    """
    point = Point(V=40, N=20000, d=4, L=4, n_test=20000, **law)
    r = realize(point, 0)
    p_informative, p_noise = (token_probabilities(law, 40) for law in point.token_laws)

    def probability(counts, p):
        return chisquare(counts, counts.sum() * p / p.sum()).pvalue

    for tokens, positions, _ in (r.batches[0], r.test):
        informative = tokens[np.arange(20000), positions]
        of_informative, of_all = (
            np.bincount(drawn.ravel(), minlength=40) for drawn in (informative, tokens)
        )
        assert probability(of_informative, p_informative) > 1e-3
        assert probability(of_all - of_informative, p_noise) > 1e-3
        # a law nearby is told apart
        assert probability(of_informative, token_probabilities(Zipf(0.9), 40)) < 1e-3


def cells(law, V):
    """Of each token, the first word of its cell, the first that draws another token,
    the first of the next cell, and which other token.
    """
    bound, other = alias_table(law, V).astype(np.int64)
    starts = -(-np.arange(V + 1, dtype=np.int64) * WORDS // V)
    bound = np.where(other == np.arange(V), starts[1:], bound)
    return starts[:-1], bound, starts[1:], other


@pytest.mark.parametrize("V", [2, 3, 100, 4097, 65536])
@pytest.mark.parametrize(
    "law", [Uniform(), Zipf(0.0), Zipf(0.3), Zipf(), Zipf(8.0)], ids=str
)
def test_each_probability_is_right_to_a_word(law, V):
    """Words are counted from the table, cell by cell."""
    start, bound, end, other = cells(law, V)
    assert (start <= bound).all()
    words = bound - start + np.bincount(other, end - bound, minlength=V)
    assert words.sum() == WORDS
    assert np.abs(words / WORDS - token_probabilities(law, V)).max() <= 1 / WORDS


@pytest.mark.parametrize("V", [3, 65536])
def test_words_at_both_ends_of_a_cell_draw_what_the_table_says(V, monkeypatch):
    start, bound, end, other = cells(Zipf(), V)
    token = np.arange(V)
    words = np.stack([start, bound - 1, bound, end - 1])
    in_cell = (start <= words) & (words < end)
    # words in lanes of which the last may be empty
    in_cell &= words // (WORDS // V + 1) <= V
    monkeypatch.setattr(keys, "words", lambda *_: words.astype(np.uint32).ravel())
    table = alias_table(Zipf(), V)
    draw = quickly(lambda tables: task.tokens(keys.Blocks(None, None), 0, V, tables))
    drawn = np.asarray(draw(table[None])).reshape(words.shape)
    expected = np.where(words < bound, token, other)
    assert np.array_equal(drawn[in_cell], expected[in_cell])
    assert in_cell.sum() > 3 * V


def test_no_word_draws_a_token_of_probability_0():
    start, bound, _, other = cells(Chosen((0.0, 1.0, 0.0, 3.0, 0.0)), 5)
    assert np.flatnonzero(bound > start).tolist() == [1, 3]
    assert {*other.tolist()} <= {1, 3}


@pytest.mark.parametrize("p", [(1.0,), (0.0, 0.0), (1.0, -1.0), (1.0, 1e999)], ids=str)
def test_probabilities_that_are_none_are_refused(p):
    with pytest.raises(ValueError, match=r"^tokens: got .*Chosen"):
        alias_table(Chosen(p), 2)
    with pytest.raises(PointError, match=r"^noise_tokens: got .*Chosen"):
        Point(**SMALL | {"V": 2}, noise_tokens=Chosen(p))


def reference(law):
    point = Point(**SMALL | {"V": 48, "N": 400, "d": 24, "eta": 1e-6}, tokens=law)
    r = realize(point, 0)
    return measure(r, point, three_step(r, point))


def test_exponent_0_is_uniform_and_the_package_has_the_law_of_a_users_own():
    uniform, zero = reference("uniform"), reference("zipf(s=0)")
    assert uniform == zero
    assert zero["rare_memory_accuracy"] is None
    assert reference(OWN) == reference("zipf(s=1.5)")


def test_recall_of_rare_and_of_frequent_tokens():
    """Equally frequent tokens count by their number."""
    rare, frequent = rare_and_frequent(Chosen((1, 3, 1, 2, 1, 1, 1, 1, 1, 1, 1.0)), 11)
    assert np.flatnonzero(rare).tolist() == [6, 7, 8, 9, 10]
    assert np.flatnonzero(frequent).tolist() == [1, 3]
    metrics = reference("zipf")
    names = "rare_memory_accuracy", "memory_accuracy", "frequent_memory_accuracy"
    rare, all_tokens, frequent = (metrics[name] for name in names)
    assert rare < all_tokens < frequent


def test_noise_may_have_another_law():
    same, none = (
        Point(**SMALL, tokens="zipf", noise_tokens="zipf"),
        Point(**SMALL, tokens="zipf"),
    )
    assert same == none
    assert same.point_id == none.point_id
    assert none.noise_tokens == "zipf"
    assert none.replace(tokens="uniform").noise_tokens == "uniform"
    assert same.replace(tokens="uniform").noise_tokens == "zipf"
    noise = Point(**SMALL, noise_tokens="zipf")
    others = (
        Point(**SMALL),
        noise,
        Point(**SMALL, tokens="zipf", noise_tokens="uniform"),
    )
    assert len({point.point_id for point in (none, *others)}) == 4
    assert law_parameters(noise) == {"noise_tokens.s": 1.0}
    given = {"noise_tokens.s": 2, "tokens": "zipf", "tokens.s": 0.5}
    point = make_point(SMALL | given)
    assert (point.tokens, point.noise_tokens) == ("zipf(s=0.5)", "zipf(s=2)")


@pytest.mark.slow  # test_custom.py searches along a field of a simulator
def test_a_search_along_the_parameter_of_a_law(tmp_path):
    """Whether accuracy crosses does not matter here."""
    base = SMALL | {"N": 2000, "tokens": "zipf(s=0.5)", "eta": 1e-6}
    search = {"axis": "tokens.s", "theta": 0.3, "from": 0.1, "to": 4, "rises": False}
    grid = {"base": base, "search": search, "blocks": [{}]}
    df = jaxrecall.run(grid, seeds=40, out=tmp_path)
    assert jaxrecall.thresholds(df)["axis"].tolist() == ["tokens.s"]
    assert {*jaxrecall.load(tmp_path)["tokens.s"]} == {*df["tokens.s"]}
    assert df["tokens.s"].nunique() > 2
