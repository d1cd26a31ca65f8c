"""The theory's limits and known values, and the locked-attention surrogate against the
simulator's own draws.
"""

import importlib
import math
import re

import numpy as np
import pandas as pd
import pytest
import surrogate
import yaml
from helpers import ROOT, combinations
from scipy.stats import kurtosis, poisson, skew
from tolerances import assert_close

from jaxrecall import Point, realize, reference, theory
from jaxrecall.errors import TheoryError, TheoryWarning
from jaxrecall.model.point import FIELDS
from jaxrecall.model.reference.steps import attend, features
from jaxrecall.sweep.grid import read_grid
from jaxrecall.theory import Model
from jaxrecall.theory.locked import recalled_by_node
from jaxrecall.theory.noise import shared_terms
from jaxrecall.theory.open_attention import score_distribution
from jaxrecall.theory.overlaps import Reading, key_overlaps

LAWS = yaml.safe_load("""
- {}
- {trigger_in_value: false}
- {embedding: sphere}
- {embedding: orthogonal, d: 50}
- {embedding: equicorrelated(rho=0.4)}
- {embedding: equicorrelated(rho=0.4), trigger_in_value: false}
- {m: 48, activation: relu}
- {m: 48, activation: gelu, trigger_in_value: false}
- {m: 48, activation: quadratic, embedding: sphere}
""")
SMALL = Model(V=10, d=10, L=4)


@pytest.mark.parametrize(
    "law", combinations(LAWS, often=lambda law: law in (LAWS[5], LAWS[6]))
)
def test_the_surrogate_predicts_what_the_simulator_learns_from_the_same_counts(law):
    """kappa so large that the softmax weight of the informative token is 1: no logit
    may then differ but by a scale.
    """
    sizes = {"V": 24, "N": 700, "d": 40, "L": 2, "n_test": 64}
    point = Point(**sizes | law, kappa=1e7, eta=1e-9)
    r = realize(point, 3)
    learned = reference.three_step(r, point)
    exact = r.astype(np.float64)
    samples = np.arange(point.N), r.train_positions
    mass = attend(exact, point, r.train_tokens, r.train_positions, learned.w)[1]
    assert mass[samples].min() > 1 - 1e-9
    counts = np.bincount(r.train_tokens[samples], minlength=point.V)
    assert len({*counts}) > 5
    ours = surrogate.logits_from_counts(
        counts,
        *exact[:3],
        r.perm,
        exact.W_in,
        trigger_in_value=point.trigger_in_value,
        activation=point.activation,
    )
    phi = features(exact, point, exact.Z_in + point.trigger_in_value * exact.z_trig)[0]
    theirs = phi @ learned.V2.T @ exact.Z_out.T
    scale = (ours * theirs).sum() / (theirs**2).sum()
    assert_close(theirs * scale, ours, "float32")


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_locked_accuracy_follows_the_surrogate(law):
    """24 seeds at V = 48: their standard error is up to 0.03, and the formula may be
    off by as much again.
    """
    model = Model(**{"V": 48, "d": 40, "L": 2} | law)
    for N in (48, 400, 4000):
        drawn = surrogate.locked(model, N, 24)
        off = theory.locked_accuracy(model, N) - drawn.mean()
        assert abs(off) < 0.03 + 2 * drawn.std() / 24**0.5, N


def test_orthogonal_accuracy_is_the_probability_that_it_says():
    """V = 2: without the trigger a label never seen is won by chance; with it, summed
    over the counts of both labels.
    """
    two = Model(V=2, d=4, L=2, embedding="orthogonal")
    alone = theory.locked_accuracy(two.replace(trigger_in_value=False), 2)
    assert_close(alone, 1 - 1 / 4 + 1 / 8)
    own, other = np.arange(40)[:, None], np.arange(80)
    chances = poisson.pmf(own, 3) * poisson.pmf(other, 3)
    won = chances * ((2 * own > other) + (2 * own == other) / 2)
    assert_close(theory.locked_accuracy(two, 6), won.sum(), "roots")
    assert_close(theory.locked_accuracy(two.replace(V=64, d=66), 10**12), 1, "roots")


@pytest.mark.parametrize("embedding", ["gaussian", "sphere"])
def test_accuracy_grows_with_every_step_of_N_but_for_rounding_of_counts(embedding):
    """Seen before: counts lumped at the middle of their range made it fall by 0.09 from
    N = 460 to 500.
    """
    model = Model(V=64, d=256, L=8, embedding=embedding)
    by_N = [theory.locked_accuracy(model, N) for N in range(380, 720, 20)]
    assert np.diff(by_N).min() > -0.003


@pytest.mark.parametrize(
    ("V", "d", "embedding"), [(64, 256, "sphere"), (128, 48, "gaussian")]
)
def test_scores_along_the_mean_bias_are_distributed_as_theory_says(V, d, embedding):
    """400 draws of the embeddings, whose scores K (K 1 - mean) are compared with the
    moments of sections 2.2 and 4.2.
    """
    model, rng = Model(V=V, d=d, L=16, embedding=embedding), np.random.default_rng(0)
    variance, shape, exposed = [], [], []
    for _ in range(400):
        Z = rng.normal(size=(V + 1, d)) / d**0.5
        Z /= np.linalg.norm(Z, axis=1, keepdims=True) if embedding == "sphere" else 1
        x = Z[:V] @ Z[:V].sum(0)
        w = Z[:V].T @ (x - x.mean())
        scores = Z[:V] @ w
        variance.append(scores.var())
        shape.append([skew(scores), kurtosis(scores) + 6 / (V + 1)])
        exposed.append(Z[V] / np.linalg.norm(Z[V]) @ w)
    of = score_distribution(model, theory.ScoreNoise(1.0, 0.0, 0.0, 0.0))
    assert_close(np.mean(variance) / (shared_terms(model, 1024).M3 * V**3), 1, 0.1)
    spread = np.std(np.log(variance)) / 2
    assert_close(spread / np.hypot(of.variation, (2 * V) ** -0.5), 1, 0.15)
    length = 2 / d if embedding == "gaussian" else 0
    exposure = np.std(exposed) / np.mean(variance) ** 0.5
    assert_close(exposure / (of.exposure**2 - length) ** 0.5, 1, 0.12)
    skewness, excess = np.mean(shape, axis=0)
    assert_close(skewness, of.skewness, 0.04)
    assert_close(excess, of.kurtosis, 0.2)


@pytest.mark.parametrize("trigger", [True, False])
def test_a_wide_identity_mlp_is_attention_only(trigger):
    none = Model(V=8, d=64, L=2, trigger_in_value=trigger)
    wide = none.replace(m=10**9, activation="identity")
    for ours, theirs in zip(key_overlaps(wide), key_overlaps(none), strict=True):
        assert np.abs(ours - theirs).max() < 1e-3
    # Wishart, to O(1/m)
    narrow = key_overlaps(wide.replace(m=32)).spread
    assert_close(np.mean(narrow / key_overlaps(none).spread), 1 + 65 / 32, 0.3)


def test_the_quadratic_kernel_is_the_square_of_the_overlap():
    """Infinite width, no trigger, unit keys: kappa = rho^2, mean 1/d over tokens to
    leading order, variance 2/d^2.
    """
    sizes = Model(V=8, d=100, L=2, m=10**9, trigger_in_value=False)
    kernel = key_overlaps(sizes.replace(embedding="sphere", activation="quadratic"))
    ones = np.ones_like(kernel.own)
    assert_close(kernel.own + kernel.shared, ones, 2e-3)
    assert_close(kernel.shared * 100, ones, 0.02)
    assert_close(kernel.spread * 100**2 / 2, ones, 0.04)


@pytest.mark.parametrize("law", [LAWS[0], LAWS[1], LAWS[2], LAWS[6]], ids=str)
def test_accuracy_grows_with_N_and_d_and_falls_with_V(law):
    model = Model(**{"V": 64, "d": 48, "L": 8} | law)
    by_N = [theory.accuracy(model, N) for N in (64, 256, 1024, 4096, 2**30)]
    by_d = [theory.accuracy(model.replace(d=d), 2048) for d in (16, 32, 64, 128)]
    by_V = [theory.accuracy(model.replace(V=V), 2048) for V in (256, 128, 64, 32)]
    for rising in (by_N, by_d, by_V):
        assert rising == sorted(rising)


@pytest.mark.filterwarnings("ignore:kappa")
def test_accuracy_is_locked_accuracy_where_attention_is_right_and_chance_where_it_is_not():  # noqa: E501
    model = Model(V=64, d=64, L=4)

    def at(N=4096, **changes):
        return theory.accuracy(model.replace(**changes), N)

    locked = theory.locked_accuracy(model, 4096)
    assert at(L=1) == locked
    assert_close(at(), locked, 1e-3)
    assert 0.15 < at(kappa=1e-3) < 0.25, "one of four tokens that weigh the same"
    assert at(kappa=0.0) == 0, "attention stays uniform"
    assert at(kappa=1e200) == at(kappa=1e6)
    assert at(256, L=512) < 0.2 * theory.locked_accuracy(model, 256)
    silent = {"m": 32, "activation": "relu", "embedding": "orthogonal"}
    other = model.replace(V=24, d=26, **silent)
    with pytest.warns(TheoryWarning, match="m=32; theory assumes .* locked"):
        found = theory.accuracy(other, 512)
    assert found == theory.locked_accuracy(other, 512)


@pytest.mark.parametrize(
    "law", [*LAWS[:2], {"kappa": 30.0}, LAWS[1] | {"m": 256, "activation": "relu"}]
)
def test_critical_N_is_where_accuracy_crosses(law):
    model = Model(V=64, d=64, L=8, **law)
    N = theory.critical_N(model, 0.5)
    assert theory.accuracy(model, N * 0.98) < 0.5 < theory.accuracy(model, N * 1.02)


@pytest.mark.parametrize(("d", "theta"), [(24, 0.5), (48, 0.9)])
def test_critical_N_is_infinite_where_accuracy_never_crosses(d, theta):
    model = Model(V=64, d=d, L=8)
    assert theory.critical_N(model, theta) == math.inf
    assert theory.critical_N(model.replace(d=64), 0.5) < math.inf
    easy = model.replace(V=8, d=400, L=2, trigger_in_value=False)
    assert theory.critical_N(easy, 0.05) == 1.0


QUADRATIC = Model(V=256, d=64, L=64, m=256, activation="quadratic", kappa=1e7)
QUADRATIC = QUADRATIC.replace(embedding="sphere", trigger_in_value=False)


ALONG = ["relu m", "quadratic V", "quadratic L", "quadratic d", "quadratic m"]


@pytest.mark.parametrize("case", combinations(ALONG, often=ALONG[:3].__contains__))
def test_a_critical_size_is_where_accuracy_crosses(case):
    """Widths of relu layers too, some of whose neurons are all silent on a token."""
    activation, axis = case.split()
    model = QUADRATIC.replace(activation=activation)
    rising = 1 if axis in "dm" else -1
    size = theory.critical(model, axis, N=2e7)
    for factor in (0.95, 1.05):
        accuracy = theory.accuracy(model.replace(**{axis: round(size * factor)}), 2e7)
        assert rising * (accuracy - 0.5) * (factor - 1) > 0
    assert rising * theory.critical(model, axis, 0.6, N=2e7) > rising * size


@pytest.mark.filterwarnings("ignore:kappa")
def test_critical_sizes_end_at_what_is_enough_everywhere_or_nowhere():
    assert theory.critical(QUADRATIC, "N") == theory.critical_N(QUADRATIC)
    # attention fails, whatever the width
    assert theory.critical(QUADRATIC, "m", N=1000) == math.inf
    # attention stays uniform
    assert theory.critical(QUADRATIC.replace(kappa=0.0), "L", N=1e5) == 0
    easy = Model(V=4, d=512, L=2, trigger_in_value=False)
    assert theory.critical(easy, "L", 0.01, N=1e9) == math.inf
    assert theory.critical(easy.replace(L=1, V=8), "V", 0.001, N=1e9) == math.inf
    # narrower models are not covered
    smallest = theory.critical(easy, "d", 0.1, N=1e9)
    assert theory.accuracy(easy.replace(d=math.ceil(smallest)), 1e9) > 0.1
    with pytest.raises(TheoryError, match=r"^d: got"):
        theory.accuracy(easy.replace(d=math.floor(smallest)), 1e9)
    assert theory.critical(easy.replace(m=8), "m", 0.1, N=1e9) == 1
    assert theory.critical(easy.replace(kappa=0.0), "V", N=1e9) == 0


def test_what_limits_recall_has_a_name():
    narrow = QUADRATIC.replace(m=54)
    assert theory.limiting_noise(narrow, 1e7) == "width"
    assert theory.limiting_noise(narrow.replace(L=4, m=149), 320) == "counts"
    assert theory.limiting_noise(narrow.replace(L=256, m=1024), 1000) == "mean_bias"
    assert theory.limiting_noise(Model(V=64, d=24, L=1), 1e9) == "overlaps"
    assert theory.locked_fraction(narrow, 1e7) > 0.99
    assert theory.locked_fraction(narrow.replace(L=256), 1000) < 0.1


def test_theory_is_close_to_simulated_sizes():
    """The page has what results/tables.py prints, which a test of results checks."""
    page = (ROOT / "docs/theory.md").read_text()
    median = re.search(r"\| N\*, trigger out, all \| \d+ \| ([\d.]+)", page)[1]
    assert float(median) <= 0.08


@pytest.mark.slow
def test_far_above_the_edge_critical_N_goes_like_V2_over_d():
    """Well above d = 2 sqrt(V log V): the exponent of V nears 2, with the trigger out
    of the value path 1.
    """
    slope = []
    for law in LAWS[:2]:
        model = Model(V=1024, d=65536, L=8, **law)
        twice = theory.critical_N(model.replace(V=2048))
        slope.append(math.log2(twice / theory.critical_N(model)))
    # d >> V: the count noise no longer interferes, N* ~ V log V
    assert 1 < slope[0] < 1.3
    assert 0.95 < slope[1] < 1.05
    small, large = (
        theory.critical_N(Model(V=V, d=d, L=8)) * d
        for V, d in ((512, 339), (2048, 750))  # d = 6 sqrt(V log V)
    )
    assert 1.8 < math.log(large / small, 4) < 2.4


def test_score_noise_has_its_limits():
    model = Model(V=128, d=64, L=16)

    def noise(N, **changes):
        return theory.score_noise(model.replace(**changes), N)

    endless = noise(10**9)
    assert endless.leading == "leakage"
    assert_close(endless.snr, 8, 0.16)
    assert endless.mlp == 0
    assert noise(256, d=16, L=128).leading == "mean_bias"
    assert noise(1024, d=130, embedding="orthogonal").leading == "gradient"
    narrow, wide = (noise(4096, V=64, d=256, m=m).mlp for m in (16, 256))
    assert narrow > 3 * wide > 0
    # L^2/(N V) sqrt(c + 3 c^2 + c^3)
    bias = 15 / 16 * 256 / (2**20 * 128) * math.sqrt(2 + 3 * 4 + 8)
    assert_close(noise(2**20).mean_bias / bias, 1, 0.05)
    fresh, same = (noise(2048, L=96, fresh_batches=each) for each in (True, False))
    assert fresh.mean_bias < 0.25 * same.mean_bias
    assert fresh.snr > 1.3 * same.snr


SCALARS = [name for name in theory.__all__ if name[0].islower() and name != "table"]


@pytest.mark.parametrize("name", SCALARS)
def test_every_formula_refuses_a_point_and_a_law_without_moments(name):
    formula = getattr(theory, name)
    rest = {"critical_N": [], "critical": ["d", 0.5, 100]}.get(name, [512])
    low_rank = Model(V=24, d=40, L=4, embedding="low_rank(rank=8)")
    for argument, start in (
        (Point(V=64, N=1024, d=32, L=8), "model: got Point"),
        (low_rank, "embedding: got 'low_rank"),
    ):
        if argument is low_rank and name == "recall_ceiling":
            assert 0 < formula(low_rank, *rest) < math.inf
        else:
            with pytest.raises(TheoryError, match=f"^{start}"):
                formula(argument, *rest)


def test_the_page_of_theory_names_tests_and_formulas_that_exist():
    page = (ROOT / "docs/theory-derivations.md").read_text()
    names = ("theory/test_theory", "theory/test_bounds", "simulator/test_physics")
    tests = "".join((ROOT / f"tests/{name}.py").read_text() for name in names)
    assert all(f"def {name}(" in tests for name in re.findall(r"`(test_\w+)`", page))
    front = (ROOT / "docs/theory.md").read_text()
    assert all(name in front for name in theory.__all__ if name != "ScoreNoise")
    sections = {*re.findall(r"^##+ ([\d.]*\d)", page, re.M)}
    cited = r"theory-derivations\.md,\s+sections? ([\d.]*\d)(?: and ([\d.]*\d))?"
    for path in (ROOT / "jaxrecall/theory").glob("*.py"):
        for pair in re.findall(cited, path.read_text()):
            assert {*pair} <= sections | {""}, path.name


def test_a_model_has_the_fields_and_the_defaults_of_a_point():
    fields = {"m": 8, "activation": "tanh", "kappa": 3.0, "fresh_batches": True}
    for changes in ({}, {"m": 8}, fields):
        point = Point(V=10, N=100, d=10, L=4, **changes)
        assert Model(point) == Model(V=10, d=10, L=4, eta=1e-3, **changes)
    # as tables hold them
    types = {"V": np.int32(10), "d": 12.0, "trigger_in_value": np.bool_(False)}
    model = Model(L=4, activation="tanh", **types)
    read = model.V, model.d, model.trigger_in_value, model.activation
    assert repr(read) == "(10, 12, False, NoActivation())"
    assert model.replace(m=8).activation == "relu"
    assert model.replace(m=8, activation="gelu").replace(V=5).activation == "gelu"
    row = {"V": 10, "d": 10, "L": 4, "n_test": 7, "seed": 3, "accuracy": 0.5}
    nothing = {"m": None, "kappa": math.nan, "activation": pd.NA}
    assert Model.from_fields(row | nothing) == SMALL


def test_the_first_row_of_a_trace_is_that_of_the_recipe():
    point = Point(V=10, N=100, d=10, L=4, steps=50, lr=0.1)
    row = {name: getattr(point, name) for name in FIELDS}
    assert Model.from_fields(row | {"step": 3}) == SMALL.replace(eta=1e-3)


NO_FORMULA = {
    "structure": {"low_rank", "clustered", "power_law", "array"},
    "theory-held-out": {"low_rank", "power_law"},
}
"""Embedding laws of shipped grids that give no moments, so that no formula covers them;
the surrogate does.
"""
TELLING = {*NO_FORMULA, "zipf", "late", "first-steps", "embeddings"}
"""Grids with all laws, and all ways to train, of the shipped ones."""


@pytest.mark.filterwarnings("ignore:gamma2")
@pytest.mark.parametrize(
    "name",
    combinations(
        sorted(
            path.stem
            for path in (ROOT / "sweeps").glob("*.yaml")
            if "\nsimulator:" not in path.read_text()
        ),
        often=lambda name: name in TELLING,
    ),
)
def test_theory_covers_every_point_of_the_shipped_grids_but_laws_without_moments(name):
    models = {}
    for point in read_grid(ROOT / f"sweeps/{name}.yaml").points:
        if point.embedding_out != point.embedding:
            with pytest.raises(TheoryError, match=r"^embedding_out: got"):
                Model(point)
            continue
        if {point.tokens, point.noise_tokens} != {"uniform"}:
            with pytest.raises(TheoryError, match=r"^(noise_)?tokens: got"):
                Model(point)
            continue
        if point.trains_on:
            if point.trains != "V":
                with pytest.raises(
                    TheoryError, match=r"^(lr_attention|optimizer|start): got"
                ):
                    Model(point)
            point = point.replace(steps=3, start="three_step", lr=None)
        # the first steps limit some sizes only
        model = Model(point).replace(eta=0, first_steps=1)
        models[str(model.embedding)] = model
    without = NO_FORMULA.get(name, set())
    assert without <= {law.partition("(")[0] for law in models}
    for law, model in models.items():
        if law.partition("(")[0] in without:
            with pytest.raises(TheoryError, match=f"^embedding: got '{re.escape(law)}"):
                theory.locked_accuracy(model, 1024)
        else:
            assert 0 <= theory.locked_accuracy(model, 1024) <= 1


ODD = ["0.5", None, [0.5], 0.5j, np.array([0.5, 0.6]), math.nan, 10**400]


@pytest.mark.parametrize("wrong", ODD, ids=lambda wrong: repr(wrong)[:20])
def test_an_argument_of_a_wrong_type_is_refused_in_one_line_that_names_it(wrong):
    sizes = {"V": 8, "d": 4, "L": 2}
    for argument, call in (
        ("theta", lambda: theory.critical_N(SMALL, wrong)),
        ("N", lambda: theory.critical(SMALL, "d", N=wrong)),
        ("N", lambda: theory.accuracy(SMALL, wrong)),
        ("steps", lambda: Model.from_fields(sizes | {"steps": [wrong]})),
        ("axis", lambda: theory.critical(SMALL, wrong, N=10)),
        ("kappa", lambda: Model(**sizes, kappa=wrong)),
    ):
        with pytest.raises(TheoryError, match=f"^{argument}: (got|not given)") as told:
            call()
        assert len(str(told.value)) < 300
        assert "\n" not in str(told.value)


@pytest.mark.parametrize("rho", [0.1, 0.4])
def test_the_mean_bias_along_a_common_direction_is_that_of_drawn_rows(rho):
    """w along the centred covariance times the mean embedding, which is mostly the
    common direction.
    """
    V, d, L, N, squares = 96, 64, 200, 5000, []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        own, common = rng.normal(size=(V, d)), rng.normal(size=d)
        Z = (np.sqrt(1 - rho) * own + np.sqrt(rho) * common) / d**0.5
        centred = Z - Z.mean(0)
        w = L * (L - 1) * V / N * centred.T @ centred @ Z.mean(0) / V
        # the overlap of a token with itself carries the signal
        squares.append((Z @ w).var() / (1 - rho) ** 2)
    embedding = f"equicorrelated(rho={rho})"
    model = Model(V=V, d=d, L=L, embedding=embedding, trigger_in_value=False)
    bias = theory.score_noise(model, N).mean_bias
    assert_close(bias / np.mean(squares) ** 0.5, 1, 0.07)


OPEN = [(64, 1024, False, 3), (4, 4096, True, 1.5)]
OPEN += [(64, 16384, True, 6), (16, 16384, True, 5), (4, 1024, False, 1.5)]


@pytest.mark.parametrize("case", combinations(OPEN, often=OPEN[:2].__contains__))
def test_recall_with_open_attention_is_that_of_drawn_sequences(case):
    """The same attention on every noise token, in training and at the test: 12 seeds,
    float64.
    """
    L, N, trigger_in_value, rival = case
    V, d, recalled = 64, 96, []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        Z_in, Z_out, z_trig = (rng.normal(size=(n, d)) / d**0.5 for n in (V, V, 1))

        def values(tokens, rng=rng, Z_in=Z_in, z_trig=z_trig):
            counts = rng.multinomial(L - 1, np.full(V, 1 / V), size=len(tokens))
            noise = rival / (L - 1) * counts @ Z_in
            return Z_in[tokens] + trigger_in_value * z_trig + noise

        tokens, tested = rng.integers(V, size=N), rng.integers(V, size=512)
        written = np.eye(V)[tokens].T @ values(tokens)
        logits = values(tested) @ written.T @ (Z_out - Z_out.mean(0)) @ Z_out.T
        recalled.append(np.mean(logits.argmax(1) == tested))
    model = Model(V=V, d=d, L=L, trigger_in_value=trigger_in_value)
    at = Reading(rival=rival, stray=rival**2 / (L - 1))
    found = recalled_by_node(model, N, at).mean()
    assert -0.01 < found - np.mean(recalled) < 0.12
    assert theory.locked_accuracy(model, N) - found > 0.05


@pytest.mark.filterwarnings("ignore:kappa", "ignore:theta")
def test_kappa_matters_below_ten_and_not_above():
    """Section 4.4: 3 nats leave attention open, 10 lock it."""
    model = Model(V=48, d=72, L=24, trigger_in_value=False)
    small, ten, large = (
        theory.critical_N(model.replace(kappa=kappa)) for kappa in (2, 10, 1000)
    )
    assert small > 1.5 * ten
    assert abs(np.log(ten / large)) < 0.35
    # simulated: 0.29(3); tokens stored alike would give 0.7
    assert 0.1 < theory.accuracy(Model(V=64, d=96, L=64, kappa=3), 2**24) < 0.5


@pytest.mark.parametrize(("s", "trigger_in_value"), [(0.5, True), (1.5, False)])
def test_scores_with_zipf_tokens_are_those_of_infinitely_many_samples(
    s, trigger_in_value, monkeypatch
):
    """The gradients of step 1 and 2 as sums over labels and tokens, 300 tables,
    float64.
    """
    monkeypatch.syspath_prepend(ROOT / "results")
    zipf = importlib.import_module("zipf")
    V, d, L, drawn = 24, 32, 6, []
    p = zipf.frequencies(V, s)
    for seed in range(300):
        rng = np.random.default_rng(seed)
        Z_in, Z_out, z_trig = (rng.normal(size=(n, d)) / d**0.5 for n in (V, V, 1))
        values = Z_in + trigger_in_value * z_trig
        mean = p @ Z_in
        centred = Z_out - Z_out.mean(0)
        h = values / L + (1 - 1 / L) * mean
        b = centred @ (centred.T @ (p[:, None] * h))
        # the mean value of a sample, given one of its noise tokens, is h + (that token
        # - mean) / L
        informative = p * (b * (values - h)).sum(1)
        given = Z_in[None] - h[:, None] - (Z_in - mean)[None] / L
        noise = (L - 1) * p * np.einsum("v,vd,vud->u", p, b, given)
        w = informative @ (Z_in + z_trig) + noise @ Z_in
        drawn.append(np.concatenate([Z_in @ w, z_trig @ w]) * L * V)
    mean, deviation, trigger, exposure = zipf.token_scores(
        V, d, L, p, p, trigger_in_value, N=1e12, kappa=1
    )
    error = np.std(drawn, axis=0) / len(drawn) ** 0.5
    off = np.abs(np.mean(drawn, axis=0) - np.append(mean, trigger))
    assert (off < 4 * error + 0.1 * trigger).all()
    ratio = np.append(deviation, exposure) / np.std(drawn, axis=0)
    assert 0.6 < np.median(ratio) < 1.4
