"""Decoders of the first gradient: cases solved by hand, the column that one of them
must equal, and why these were chosen.
"""

import itertools
import tracemalloc

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from jaxrecall import Point, measure, realize, simulate
from jaxrecall.model.reference import decoders, three_step
from jaxrecall.simulator.cost import peak_bytes
from jaxrecall.simulator.program_shape import Shape

NAMES = ("matched_accuracy", "whitened_accuracy", "assignment_accuracy")
POINT = Point(V=30, N=900, d=12, L=7, n_test=100, eta=1e-6, decoders=True)


def by_hand(point: Point, seed: int):
    """What decoders are told, in float64: point, permutation, G1, Z_in, Z_out,
    z_trig.
    """
    r = realize(point, seed).astype(np.float64)
    return point, r.perm, three_step(r, point).V1 / point.eta, r.Z_in, r.Z_out, r.z_trig


@pytest.mark.parametrize(
    "changes",
    [
        {},
        *(
            pytest.param(changes, marks=pytest.mark.slow)
            for changes in (
                {"exact": "full", "trigger_in_value": False},
                {"embedding": "sphere", "fresh_batches": True},
                {"V": 10, "embedding": "orthogonal"},
            )
        ),
    ],
    ids=str,
)
def test_the_row_is_that_of_the_reference_gradient(changes):
    point = POINT.replace(**changes)
    for seed, row in enumerate(simulate(point, range(3))):
        known = decoders.decoder_columns(*by_hand(point, seed))
        assert {name: row[name] for name in NAMES} == known
        assert row["matched_accuracy"] == row["step1_memory_accuracy"]
    assert known["whitened_accuracy"] > 0.2


@pytest.mark.parametrize("trigger_in_value", [True, False])
def test_orthogonal_embeddings_and_many_samples_tell_everything(trigger_in_value):
    """And are recalled, by the reference, whose rows are those of the simulator."""
    sizes = {"V": 20, "N": 16384, "d": 22, "L": 4, "embedding": "orthogonal"}
    point = Point(**sizes, trigger_in_value=trigger_in_value, decoders=True)
    r = realize(point, 1)
    row = measure(r, point, three_step(r, point))
    row |= decoders.decoder_columns(*by_hand(point, 1))
    recall = "accuracy", "memory_accuracy", "train_accuracy", "attention_top1"
    assert {row[name] for name in (*NAMES, *recall)} == {1}
    assert row["attention_mass"] > 0.99


def test_one_to_one_mends_what_is_best_one_by_one():
    """Unit vectors, L = 1: scores are the entries of G1 less their mean over labels.
    Token 0 looks like label 1, but so does token 1, and more.
    """
    point = Point(V=3, N=300, d=3, L=1, trigger_in_value=False, decoders=True)
    labels_by_tokens = np.array([[0.9, 0.2, 0.0], [1.0, 2.0, 0.0], [0.1, 0.0, 2.0]]) / 3
    eye = np.eye(3)
    found = decoders.decoder_columns(
        point, np.arange(3), labels_by_tokens, eye, eye, np.zeros(3)
    )
    assert list(found.values()) == [2 / 3, 2 / 3, 1]


def test_where_d_exceeds_V_the_gradient_tells_what_the_counts_tell():
    """Gaussian embeddings are then independent, and least squares reads off the counts
    of (label, token) themselves.
    """
    point = Point(V=20, N=200, d=40, L=6, decoders=True)
    right = []
    for seed in range(8):
        told, r = by_hand(point, seed), realize(point, seed)
        counts = np.zeros((20, 20))
        np.add.at(counts, (r.train_labels[:, None], r.train_tokens), 1)
        counted = (counts / counts.sum(1, keepdims=True)).T
        scores = (
            decoders.matched(*told[2:5]),
            decoders.whitened(*told[:1], *told[2:]),
            counted,
        )
        right.append([table.argmax(1) == r.perm for table in scores])
    matched, whitened, counted = np.moveaxis(right, 1, 0)
    assert matched.mean() + 0.1 < counted.mean()
    # of 160 tokens, few that one of the two alone recovers
    assert (whitened != counted).mean() < 0.1


CHOSEN = [
    Point(V=64, d=32, L=8, N=512),
    Point(V=64, d=64, L=8, N=256),
    Point(V=64, d=64, L=2, N=128),
    Point(V=64, d=24, L=8, N=4096),
]


def least_squares(G1, Z_in, Z_c, ridge):
    """Scores (tokens, labels) by whitening with one ridge along all directions."""
    B, A = (np.linalg.inv(Z.T @ Z + ridge * np.eye(Z.shape[1])) for Z in (Z_in, Z_c))
    return Z_in @ B @ G1.T @ A @ Z_c.T


def test_no_other_ridge_recovers_more():
    """Over points on both sides of d = V / 2 and N = L V: a ridge along g alone,
    against one along all directions and none.
    """
    recovered: dict[str, list[float]] = {}
    for point, seed in itertools.product(CHOSEN, range(3)):
        _, perm, G1, Z_in, Z_out, z_trig = by_hand(point, seed)
        Z_c = Z_out - Z_out.mean(0)
        ridge = point.V / point.d * min(1.0, point.L * point.V / point.N)
        scores = {
            "matched": decoders.matched(G1, Z_in, Z_out),
            "along g": decoders.whitened(point, G1, Z_in, Z_out, z_trig),
            "none": least_squares(G1, Z_in, Z_c, 1e-6),
            "some": least_squares(G1, Z_in, Z_c, 0.1 * ridge),
            "all": least_squares(G1, Z_in, Z_c, ridge),
        }
        for name, table in scores.items():
            recovered.setdefault(name, []).append(
                float((table.argmax(1) == perm).mean())
            )
            recovered.setdefault(name + ", assigned", []).append(
                float((linear_sum_assignment(table, maximize=True)[1] == perm).mean())
            )
    mean = {name: float(np.mean(values)) for name, values in recovered.items()}
    for other in ("matched", "none", "some", "all"):
        assert mean["along g"] > mean[other] + 0.03, other
        assert mean["along g, assigned"] > mean[other + ", assigned"] + 0.03, other
    assert mean["along g, assigned"] > mean["along g"] + 0.03


def test_long_embeddings_are_not_favoured():
    """With endless samples G1 = Z_c^T permutation Z_in / (L V): least squares then errs
    towards tokens and labels it knows well.
    """
    point, found = Point(V=128, d=32, L=16, N=2**30, trigger_in_value=False), []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        Z_in, Z_out = rng.normal(size=(2, point.V, point.d)) / np.sqrt(point.d)
        perm, Z_c = rng.permutation(point.V), Z_out - Z_out.mean(0)
        G1 = Z_c[perm].T @ Z_in / (point.L * point.V)
        scores = (
            least_squares(G1, Z_in, Z_c, 1e-6),
            decoders.whitened(point, G1, Z_in, Z_out, np.zeros(point.d)),
        )
        found.append([(table.argmax(1) == perm).mean() for table in scores])
    assert np.diff(np.mean(found, axis=0)) > 0.03


@pytest.mark.parametrize(
    "changes",
    [
        {"V": 2},
        {"d": 1},
        {"L": 1},
        {"N": 1},
        {"V": 2, "d": 1, "L": 1, "N": 1},
        {"d": 200},
    ],
    ids=str,
)
def test_small_sizes_have_an_answer(changes):
    found = decoders.decoder_columns(*by_hand(POINT.replace(**changes), 0))
    assert all(0 <= value <= 1 for value in found.values())


def test_a_gradient_that_overflowed_tells_nothing():
    point, perm, G1, *rest = by_hand(POINT, 0)
    G1[0, 0] = np.inf
    assert decoders.decoder_columns(point, perm, G1, *rest) == dict.fromkeys(NAMES)


@pytest.mark.parametrize("sizes", [(400, 48), (64, 400)], ids=str)
def test_the_plan_counts_what_the_host_takes(sizes):
    V, d = sizes
    rng = np.random.default_rng(0)
    G1, Z_in, Z_out = (
        rng.normal(size=shape).astype(np.float32) for shape in ((d, d), (V, d), (V, d))
    )
    point = Point(V=V, N=1000, d=d, L=4, decoders=True)
    tracemalloc.start()
    decoders.decoder_columns(point, rng.permutation(V), G1, Z_in, Z_out, Z_in[0])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    told = peak_bytes(Shape(V, d, 0, "none", "counts", decoders=True)) - peak_bytes(
        Shape(V, d, 0, "none", "counts")
    )
    assert peak <= told <= 3 * peak
