"""Structured embeddings: spectra and inner products of the laws, embeddings from a
file, and a law of its own for the output side.
"""

import json
import shutil
import struct
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
import surrogate
from helpers import ROOT, assert_same_metrics, combinations, streamed, traced

import jaxrecall
from jaxrecall import Point, descend, realize, simulate, theory, three_step
from jaxrecall.errors import GridError, PointError, TheoryError
from jaxrecall.model.columns import COLUMNS
from jaxrecall.model.law_parameters import make_point
from jaxrecall.model.laws import EmbeddingLaw, find_law
from jaxrecall.model.laws import array as array_law
from jaxrecall.model.reference.metrics import measure
from jaxrecall.simulator.arguments import arguments
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.sweep.grid import read_grid
from jaxrecall.sweep.store.table import of_rows, read_file
from jaxrecall.theory import Model

SMALL = {"V": 12, "N": 90, "d": 16, "L": 4, "n_test": 300, "eta": 0.1}
LAWS = [
    "low_rank(rank=3, noise=0.1)",
    "clustered(clusters=4, spread=0.2)",
    "power_law(alpha=1.2)",
]


def write_safetensors(path, **tensors):
    """As https://github.com/huggingface/safetensors#format says."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (kind, a) in tensors.items():
        header[name] = {
            "dtype": kind,
            "shape": a.shape,
            "data_offsets": [len(data), len(data) + a.nbytes],
        }
        data += a.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def learned_table(R=5000, D=300, seed=0):
    """A table with the features of a learned one: a power-law spectrum, unequal norms,
    a common direction.
    """
    rng = np.random.default_rng(seed)
    x = (
        rng.normal(size=(R, D))
        * np.arange(1, D + 1) ** -0.5
        * np.exp(0.3 * rng.normal(size=(R, 1)))
    )
    return (x + 0.5 * np.linspace(-1, 1, D)).astype(np.float32)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "table.npy"
    np.save(path, learned_table())
    return path


@pytest.fixture
def law(request, table):
    """The text of a law, where {table} is a path."""
    return request.param.format(table=table)


ALL = [*LAWS, "array(path='{table}')", "array(path='{table}', mean=1)"]


SWITCHES = {
    "attention": {},
    "mlp": {"m": 24, "activation": "tanh"},
    "pool": {"exact": "full", "pool": 8},
    "out": {"exact": "full", "embedding_out": "power_law(alpha=0.5)"},
}


@pytest.mark.parametrize(
    ("law", "kw"),
    combinations(
        ALL,
        SWITCHES,
        often=lambda *case: case == (ALL[0], "out"),
    ),
    indirect=["law"],
)
def test_rows_agree_with_the_reference(law, kw):
    """One law in the fast run: what programs draw by the others,
    test_padding_changes_no_draw_and_smaller_tables_are_prefixes compares.
    """
    point = Point(**SMALL | {"embedding": law} | SWITCHES[kw])
    r = realize(point, 0)
    learned, metrics = streamed(
        point, 0, Shape.sized(point, 16, 32, 32 if point.m else 0)
    )
    expected = three_step(r, point)
    for ours, theirs in zip(learned, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5 * np.abs(theirs).max())
    assert_same_metrics(metrics, measure(r, point, expected))


LATER = {
    "exact": {"exact": "full", "trains": "VWZ"},
    "guarded": {"eta": 1e-9, "kappa": 300.0},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "kw"),
    combinations(
        ALL,
        LATER,
        often=lambda *case: case == (ALL[0], "exact"),
    ),
    indirect=["law"],
)
def test_further_steps_agree_with_the_reference(law, kw):
    point = Point(
        **SMALL | {"gamma2": 10.0, "kappa": 20.0} | LATER[kw],
        embedding=law,
        steps=8,
        lr=0.3,
    )
    records = traced(point, 0, Shape.sized(point, 16, 16, 0))
    expected = descend(realize(point, 0), point)
    for record, judge in zip(records, expected, strict=True):
        np.testing.assert_allclose(
            record["params"]["V_mat"],
            judge.V_mat,
            atol=5e-5 * np.abs(judge.V_mat).max(),
        )
        assert record["test_loss"] == pytest.approx(judge.test_loss, rel=1e-4)


@pytest.mark.parametrize(
    "law",
    # the rows of the first are compared with the reference below
    combinations(ALL, often=lambda law: law != ALL[0]),
    indirect=True,
)
def test_padding_changes_no_draw_and_smaller_tables_are_prefixes(law):
    point = Point(**SMALL, embedding=law)
    whole = realize(point, 3)
    run = arguments([(point, 3)], Shape.sized(point, 32, 64, 0))
    padded = drawn(point, Shape.sized(point, 32, 64, 0))
    for name in ("Z_in", "Z_out"):
        Z = np.asarray(getattr(padded.e, name))
        np.testing.assert_allclose(
            Z[:12, :16], getattr(whole, name), rtol=1e-5, atol=1e-7
        )
        assert not Z[12:].any()
        assert not Z[:, 16:].any()
    assert run.streams.shape[0] == 1
    smaller = realize(point.replace(V=8, d=9), 3).Z_in
    scale = np.linalg.norm(whole.Z_in[:8, :9]) / np.linalg.norm(smaller)
    np.testing.assert_allclose(
        scale * smaller, whole.Z_in[:8, :9], rtol=1e-4, atol=1e-6
    )
    gaussian = realize(Point(**SMALL), 3)
    np.testing.assert_array_equal(whole.z_trig, gaussian.z_trig)
    np.testing.assert_array_equal(whole.z_eos, gaussian.z_eos)
    np.testing.assert_array_equal(whole.train_tokens, gaussian.train_tokens)


def drawn(point, shape):
    from helpers import drawn as world

    return world(point, 3, shape)


@pytest.mark.parametrize(
    "law",
    combinations(
        ["low_rank(rank=5, noise=1)", "clustered(spread=1)", "power_law(alpha=0)"],
        often=lambda law: law.startswith("low_rank"),
    ),
)
def test_no_structure_gives_the_gaussian_draws_bit_for_bit(law):
    plain, none = (
        realize(Point(**SMALL, embedding=text), 3) for text in ("gaussian", law)
    )
    for a, b in zip(plain, none, strict=True):
        np.testing.assert_array_equal(a, b)
    assert theory.accuracy(
        Model(V=64, d=32, L=8, embedding=law), 1024
    ) == theory.accuracy(Model(V=64, d=32, L=8), 1024)


def spectra(law, n_seeds=4, **kw):
    """The eigenvalues of the mean of z z^T over rows and seeds, falling, and the mean
    squared length.
    """
    point = Point(
        **{"V": 2000, "N": 4, "d": 40, "L": 2, "n_test": 8} | kw, embedding=law
    )
    every = [realize(point, seed) for seed in range(n_seeds)]
    Z = np.concatenate([*(r.Z_in for r in every), *(r.Z_out for r in every)])
    return np.linalg.eigvalsh(Z.T @ Z / len(Z))[::-1], np.mean(np.sum(Z * Z, axis=1))


def test_a_power_law_has_its_spectrum():
    for alpha in (0.5, 1.5):
        found, length = spectra(f"power_law(alpha={alpha})")
        expected = np.arange(1, 41.0) ** -alpha
        np.testing.assert_allclose(found, expected / expected.sum(), rtol=0.12)
        assert length == pytest.approx(1, rel=0.02)


@pytest.mark.slow
def test_low_rank_rows_are_near_their_directions():
    point = Point(
        V=3000, N=4, d=60, L=2, n_test=8, embedding="low_rank(rank=4, noise=0.2)"
    )
    lengths = []
    for seed in range(4):
        r = realize(point, seed)
        values = np.linalg.eigvalsh(r.Z_in.T @ r.Z_in / 3000)[::-1]
        lengths.append(values[4:].sum())
        assert values[3] > 5 * values[4]
        # the rest is the isotropic part, without its share of the four directions
        np.testing.assert_allclose(values[4:], 0.2 / 60, rtol=0.4)
        assert (
            abs(
                np.linalg.svd(
                    np.linalg.qr(r.Z_in.T @ r.Z_in)[0][:, :4].T
                    @ np.linalg.qr(r.Z_out.T @ r.Z_out)[0][:, :4]
                )[1]
            ).max()
            < 0.9
        )
    assert np.mean(lengths) == pytest.approx(0.2 * 56 / 60, rel=0.03)
    exact = realize(point.replace(embedding="low_rank(rank=4)"), 0).Z_in
    assert np.linalg.matrix_rank(exact, tol=1e-4) == 4
    _, length = spectra("low_rank(rank=4, noise=0.2)", 40, V=200, d=60)
    assert length == pytest.approx(1, rel=0.06)


def test_clusters_have_the_inner_products_that_they_should():
    point = Point(
        V=40, N=4, d=4000, L=2, n_test=8, embedding="clustered(clusters=8, spread=0.3)"
    )
    r = realize(point, 0)
    for Z in (r.Z_in, r.Z_out):
        gram = Z @ Z.T
        same = np.arange(40)[:, None] % 8 == np.arange(40)[None] % 8
        assert np.diag(gram).mean() == pytest.approx(1, abs=0.03)
        assert gram[same & ~np.eye(40, dtype=bool)].mean() == pytest.approx(
            0.7, abs=0.04
        )
        assert gram[~same].mean() == pytest.approx(0, abs=0.01)
    one, equi = (
        realize(Point(**SMALL, embedding=text), 2).Z_in
        for text in ("clustered(clusters=1, spread=0.4)", "equicorrelated(rho=0.6)")
    )
    np.testing.assert_allclose(one, equi, rtol=1e-6, atol=1e-7)


def test_an_array_keeps_the_inner_products_of_the_file(tmp_path):
    table = tmp_path / "table.npy"
    np.save(table, learned_table(R=400))
    x = learned_table(R=400).astype(np.float64)
    for mean in (0.0, 1.0):
        y = x - (1 - mean) * x.mean(0)
        y /= np.sqrt(np.mean(np.sum(y * y, axis=1)))
        point = Point(
            V=50,
            N=4,
            d=300,
            L=2,
            n_test=8,
            embedding=f"array(path='{table}', mean={mean})",
        )
        Z, out = (realize(point, seed).Z_in for seed in (0, 1))
        rows = match(Z, y)
        np.testing.assert_allclose(Z @ Z.T, y[rows] @ y[rows].T, atol=2e-5)
        assert len({*rows}) == 50
        assert len({*rows, *match(out, y)}) > 80, "each seed has rows of its own"
        narrow = [realize(point.replace(d=30), seed).Z_in for seed in range(20)]
        assert np.mean([np.sum(z * z) / 50 for z in narrow]) == pytest.approx(
            1, rel=0.1
        )


def match(Z, y):
    """The row of the file that each row is, by its length, which is as good as
    unique.
    """
    lengths = np.sum(y * y, axis=1)
    return np.argmin(
        np.abs(lengths[None] - np.sum(np.square(Z, dtype=np.float64), axis=1)[:, None]),
        axis=1,
    )


def test_all_rows_of_a_small_file_are_taken_in_random_order(tmp_path):
    np.save(tmp_path / "x.npy", np.diag(np.arange(1.0, 7)))
    point = Point(
        V=6,
        N=4,
        d=6,
        L=2,
        n_test=8,
        embedding=f"array(path='{tmp_path / 'x.npy'}', mean=1)",
    )
    orders = []
    for seed in range(60):
        r = realize(point, seed)
        for Z in (r.Z_in, r.Z_out):
            orders.append(np.argsort(np.linalg.norm(Z, axis=1)))
            np.testing.assert_allclose(
                np.sort(np.linalg.norm(Z, axis=1)),
                np.arange(1, 7) / np.sqrt(91 / 6),
                rtol=1e-5,
            )
    counts = np.array(
        [np.bincount(column, minlength=6) for column in np.transpose(orders)]
    )
    assert np.sum((counts - 20) ** 2 / 20) < 52.6  # chi-squared, 25: 1 in 1000


def test_the_same_rows_from_every_format(table, tmp_path):
    x = learned_table()
    np.savez(tmp_path / "x.npz", x)
    np.savez_compressed(tmp_path / "two.npz", a=x[:3], wte=x)
    write_safetensors(
        tmp_path / "x.safetensors", **{"b": ("F32", x[0]), "wte.weight": ("F32", x)}
    )
    np.save(tmp_path / "fortran.npy", np.asfortranarray(x.astype(">f8")))
    texts = [
        f"array(path='{tmp_path / name}')"
        for name in ("x.npz", "x.safetensors", "fortran.npy")
    ]
    texts.append(f"array(path='{tmp_path / 'two.npz'}', tensor='wte')")
    first = Point(**SMALL, exact="full", embedding=f"array(path='{table}')")
    row, r = simulate(first, 0), realize(first, 0)
    assert_same_metrics(row, measure(r, first, three_step(r, first)))
    for text in texts:
        point = first.replace(embedding=text)
        assert point.point_id == first.point_id
        np.testing.assert_array_equal(realize(point, 0).Z_in, r.Z_in)
        again = simulate(point, 0)
        assert {**again, "embedding": "", "embedding_out": ""} == {
            **row,
            "embedding": "",
            "embedding_out": "",
        }


def test_half_precision(tmp_path):
    x = learned_table(20, 8)
    upper = (x.view(np.uint32) >> 16).astype(np.uint16)
    write_safetensors(tmp_path / "x.safetensors", x=("BF16", upper))
    np.testing.assert_array_equal(
        array_law.read(tmp_path / "x.safetensors").view(np.uint32),
        upper.astype(np.uint32) << 16,
    )
    write_safetensors(tmp_path / "y.safetensors", x=("F16", x.astype(np.float16)))
    np.testing.assert_array_equal(
        array_law.read(tmp_path / "y.safetensors"),
        x.astype(np.float16).astype(np.float32),
    )


def test_what_numpy_makes_of_bfloat16_is_read(tmp_path):
    import ml_dtypes

    x = learned_table(20, 8)
    short = x.astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", short)
    np.save(tmp_path / "fortran.npy", np.asfortranarray(short))
    np.savez(tmp_path / "x.npz", w=short)
    write_safetensors(tmp_path / "x.safetensors", x=("BF16", short.view(np.uint16)))
    for name in ("x.npy", "fortran.npy", "x.npz", "x.safetensors"):
        np.testing.assert_array_equal(
            array_law.read(tmp_path / name), short.astype(np.float32), strict=True
        )


def test_of_several_arrays_one_is_named(tmp_path):
    x = learned_table(20, 8)
    np.savez(tmp_path / "x.npz", vocab=np.array([["a"], [None]]), w=x, bias=x[0])
    np.testing.assert_array_equal(array_law.read(tmp_path / "x.npz", "w"), x)
    for name, message in (
        ("", "3 arrays; allowed: tensor=, one of vocab, w, bias"),
        ("bias", r"an array of shape \(8,\); allowed: two dimensions"),
        ("vocab", "a file that cannot be read .*; allowed: .npz files"),
    ):
        with pytest.raises(ValueError, match=message):
            array_law.read(tmp_path / "x.npz", name)
    np.savez(tmp_path / "none.npz")
    with pytest.raises(
        ValueError, match="no array; allowed: a file that holds a matrix"
    ):
        array_law.read(tmp_path / "none.npz")


def test_a_moved_file_keeps_ids_and_a_changed_one_changes_them(
    table, tmp_path, monkeypatch
):
    path = tmp_path / "there" / "other name.npy"
    path.parent.mkdir()
    shutil.copy(table, path)
    before, moved = (
        Point(**SMALL, embedding=f"array(path='{file}')") for file in (table, path)
    )
    assert before.point_id == moved.point_id
    assert before.embedding != moved.embedding
    monkeypatch.chdir(path.parent)
    relative = Point(**SMALL, embedding="array(path='other name.npy')")
    assert relative.point_id == moved.point_id
    assert str(relative.embedding).startswith('array(path="other name.npy#')
    assert Point(**SMALL, embedding=relative.embedding) == relative
    assert Point(**relative.as_given()) == relative.replace()
    x = learned_table()
    x[7, 7] += 1
    np.save(path, x)
    assert (
        Point(**SMALL, embedding="array(path='other name.npy')").point_id
        != moved.point_id
    )
    monkeypatch.setattr(array_law, "contents", {})  # as in a new process
    array_law._hash.cache_clear()
    with pytest.raises(
        PointError,
        match=(
            r"embedding\.path: got 'other name\.npy#.*', no file with this content .*;"
            r" allowed: the file"
        ),
    ):
        relative.replace(N=91)
    simulate(before.replace(exact="full"), 0)
    assert (
        Point(**SMALL, embedding=f"array(path='{table}', mean=0.5)").point_id
        != before.point_id
    )


@pytest.mark.parametrize(
    ("name", "written", "message"),
    [
        (
            "missing.npy",
            None,
            r"no such file as .*missing\.npy; allowed: a file that is there",
        ),
        (
            "x.csv",
            b"1 2",
            r"a file with the suffix '\.csv'; allowed: \.npy, \.npz, \.safetensors",
        ),
        (
            "x.npy",
            b"<!doctype html><html>404</html>",
            "a file that holds no array of numbers; allowed: what",
        ),
        (
            "x.npz",
            b"<!doctype html><html>404</html>",
            "a file that holds no array of numbers; allowed: what",
        ),
        (
            "x.npy",
            np.eye(30) * 1e-60,
            "an array whose rows are all the same; allowed: rows that differ",
        ),
        (
            "x.npy",
            np.zeros((30, 40)),
            "an array whose rows are all the same; allowed: rows that differ",
        ),
        ("x.npy", b"", "a file that "),
        (
            "x.npy",
            b"no array",
            "a file that holds no array of numbers; allowed: what numpy.save and",
        ),
        ("x.npz", b"PK no zip", "a file that .*; allowed: "),
        (
            "x.safetensors",
            b"",
            "a file that cannot be read .*; allowed: .safetensors files",
        ),
        (
            "x.safetensors",
            struct.pack("<Q", 2**60) + b"{}",
            "no array; allowed: a file that holds a matrix",
        ),
        (
            "x.safetensors",
            struct.pack("<Q", 2) + b"{]",
            "a file that cannot be read .*; allowed: .safetensors files",
        ),
        (
            "x.safetensors",
            struct.pack("<Q", 2) + b"[]",
            "no array; allowed: a file that holds a matrix",
        ),
        (
            "x.npy",
            np.array([["a"]], object),
            "a file that holds no array of numbers; allowed: what numpy.save and",
        ),
        (
            "x.npy",
            np.ones((3, 4), complex),
            "numbers of type complex128; allowed: floats or whole numbers",
        ),
        (
            "x.npy",
            np.ones(3),
            r"an array of shape \(3,\); allowed: two dimensions, a row for each token",
        ),
        (
            "x.npy",
            np.ones((3, 0)),
            r"an array of shape \(3, 0\); allowed: two dimensions",
        ),
        (
            "x.npy",
            np.ones((30, 40)),
            "an array whose rows are all the same; allowed: rows that differ",
        ),
        (
            "x.npy",
            np.where(np.eye(30) > 0, np.nan, 1),
            r"nan in row 0, column 0; allowed: finite float32 numbers",
        ),
        (
            "x.npy",
            np.eye(30) * 1e300,
            r"1e\+300 in row 0, column 0; allowed: finite float32 numbers",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(
    tmp_path, name, written, message
):
    path = tmp_path / name
    if isinstance(written, bytes):
        path.write_bytes(written)
    elif written is not None:
        np.save(path, written)
    with pytest.raises(
        PointError, match=rf"^embedding\.path: got '.*{name}', {message}"
    ) as error:
        Point(**SMALL, embedding=f"array(path='{path}')")
    assert not any(word in str(error.value) for word in ("\n", "pickle", "unsafe"))


def test_a_damaged_tensor_is_refused(tmp_path):
    x = learned_table(20, 8)
    path = write_safetensors(
        tmp_path / "x.safetensors",
        a=("F32", x),
        the_emb=("F32", x),
        c=("I64", np.ones((2, 2), int)),
    )
    for tensor, message in (
        ("", "3 arrays; allowed: tensor=, one of the_emb, a, c"),
        ("d", "no array 'd'; allowed: tensor=, one of the_emb, a, c"),
        ("c", "a tensor of type I64; allowed: F64, F32, F16, BF16"),
    ):
        with pytest.raises(ValueError, match=message):
            array_law.read(path, tensor)
    whole = path.read_bytes()
    path.write_bytes(whole[:-64])
    assert array_law.read(path, "a").shape == (20, 8)
    path.write_bytes(whole[:-1000])
    with pytest.raises(
        ValueError, match=r"a file that cannot be read .*; allowed: \.safetensors files"
    ):
        array_law.read(path, "the_emb")
    for wrong in (
        b'{"a":{"dtype":"F32","shape":[20,8],"data_offsets":[-8,632]}}',
        b'{"a":{"shape":[1,2]}}',
        b'{"a":3}',
    ):
        path.write_bytes(struct.pack("<Q", len(wrong)) + wrong + bytes(700))
        with pytest.raises(ValueError, match="; allowed: "):
            array_law.read(path)
    big = {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}
    text = json.dumps({"a": big}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    with pytest.raises(ValueError, match="allowed: up to 536870912"):
        array_law.read(path)


def test_an_array_that_is_too_small_is_refused(table):
    for changes, message in (
        (
            {"V": 5001},
            (
                r"V: got 5001 with an array of 5000 rows and 300 columns; allowed: up"
                r" to its 5000 rows"
            ),
        ),
        (
            {"d": 301},
            (
                r"d: got 301 with an array of 5000 rows and 300 columns; allowed: up to"
                r" its 300 columns"
            ),
        ),
    ):
        with pytest.raises(PointError, match=message) as error:
            Point(**SMALL | changes, embedding=f"array(path='{table}')")
        assert error.value.problems[0].where
    for given in ("array", "array()", "array(mean=1)"):
        with pytest.raises(
            PointError,
            match=(
                r"embedding\.path: got nothing; array needs it, as in"
                r" array\(path=\"table\.npy\"\)"
            ),
        ):
            Point(**SMALL, embedding=given)
    with pytest.raises(PointError, match=r"embedding_out\.path: got nothing"):
        Point(**SMALL, embedding_out="array")


def test_the_output_side_may_have_another_law():
    same = Point(**SMALL, embedding="sphere", embedding_out="sphere")
    none = Point(**SMALL, embedding="sphere")
    assert same == none
    assert same.point_id == none.point_id
    assert none.embedding_out == "sphere"
    assert none.replace(embedding="gaussian").embedding_out == "gaussian"
    assert same.replace(embedding="gaussian").embedding_out == "sphere"
    point = Point(**SMALL, embedding_out="power_law")
    assert point.point_id not in (
        Point(**SMALL).point_id,
        Point(**SMALL, embedding="power_law").point_id,
    )
    r = realize(point, 0)
    plain = realize(Point(**SMALL), 0)
    other = realize(Point(**SMALL, embedding="power_law"), 0)
    np.testing.assert_array_equal(r.Z_in, plain.Z_in)
    np.testing.assert_array_equal(r.Z_out, other.Z_out)
    sphere = Point(**SMALL, embedding="sphere", embedding_out="gaussian")
    np.testing.assert_array_equal(realize(sphere, 0).Z_out, plain.Z_out)
    np.testing.assert_allclose(
        realize(sphere, 0).z_trig,
        realize(none, 0).z_trig,
        rtol=1e-6,  # two programs may round differently
    )


@pytest.mark.slow
def test_a_row_names_the_law_of_the_output_side():
    point = Point(**SMALL, exact="full", embedding_out="power_law")
    r, row = realize(point, 0), simulate(point, 0)
    assert_same_metrics(row, measure(r, point, three_step(r, point)))
    assert (row["embedding"], row["embedding_out"], row["embedding_out.alpha"]) == (
        "gaussian",
        "power_law",
        1.0,
    )
    assert "embedding.alpha" not in row


def test_ids_of_before_stay():
    assert Point(**SMALL).point_id == "309082d0d3a0683e"
    assert (
        Point(
            **SMALL,
            embedding="equicorrelated(rho=0.3)",
            embedding_out="equicorrelated(rho=0.3)",
        ).point_id
        == "acc413e8eb746537"
    )


def test_rows_of_before_have_one_law_for_both_sides(tmp_path):
    rows = [
        dict.fromkeys(COLUMNS) | simulate(Point(**SMALL, embedding=text), 0)
        for text in ("sphere", "gaussian")
    ]
    older = of_rows(rows).drop_columns("embedding_out")
    pq.write_table(older, tmp_path / "older.parquet")
    assert (
        read_file(tmp_path / "older.parquet")["embedding_out"].to_pylist()
        == older["embedding"].to_pylist()
    )


def test_parameters_of_the_output_side_by_dotted_name():
    point = make_point(
        {
            **SMALL,
            "embedding_out.rho": 0.5,
            "embedding": "equicorrelated",
            "embedding.rho": 0.2,
        }
    )
    assert (point.embedding, point.embedding_out) == (
        "equicorrelated(rho=0.2)",
        "equicorrelated(rho=0.5)",
    )
    with pytest.raises(
        PointError,
        match=r"^embedding_out\.rho: got 2; allowed: finite numbers from 0 to below 1",
    ):
        make_point({**SMALL, "embedding_out": "equicorrelated", "embedding_out.rho": 2})
    with pytest.raises(PointError, match=r"^embedding_out\.rho: got 2; allowed"):
        Point(**SMALL, embedding_out="equicorrelated(rho=2)")
    with pytest.raises(
        PointError, match=r"^embedding_out: got 'sphre'; did you mean sphere\?"
    ):
        Point(**SMALL, embedding_out="sphre")
    with pytest.raises(
        PointError, match=r"^d: got 12 with orthogonal embeddings"
    ) as error:
        Point(**SMALL | {"d": 12}, embedding_out="orthogonal")
    assert (
        error.value.problems[0].where == "d >= V + 2 or embedding_out != 'orthogonal'"
    )


def test_values_of_a_float_parameter_share_a_program(table):
    def shape(**laws):
        return Shape.sized(Point(**SMALL, **laws), 16, 16, 0)

    assert shape(embedding="power_law(alpha=0.5)") == shape(
        embedding="power_law(alpha=2)"
    )
    assert shape(embedding_out="power_law(alpha=0.5)") == shape(
        embedding_out="power_law(alpha=2)"
    )
    assert shape(embedding=f"array(path='{table}')").embedding == "array"
    assert shape(embedding="sphere", embedding_out="sphere") == shape()
    assert (
        len({shape(), shape(embedding_out="power_law"), shape(embedding="power_law")})
        == 3
    )


@pytest.mark.parametrize(
    "law",
    ["low_rank", "clustered", "power_law", "array(path='{table}')"],
    indirect=True,
    ids=str,
)
def test_formulas_refuse_what_gives_no_moments_and_the_surrogate_draws_it(law):
    with pytest.raises(
        TheoryError,
        match=(
            r"embedding: got .*; theory covers laws that give moments: gaussian,"
            r" sphere, orthogonal"
        ),
    ):
        theory.accuracy(Model(V=64, d=32, L=8, embedding=law), 1024)
    some, many = (
        surrogate.locked(Model(V=48, d=40, L=2, embedding=law), N, 4).mean()
        for N in (50, 5000)
    )
    assert some < many


def test_theory_refuses_an_output_side_of_its_own():
    with pytest.raises(
        TheoryError,
        match="embedding_out: got 'sphere'; covered by theory: that of embedding",
    ):
        Model.from_point(Point(**SMALL, embedding_out="sphere"))
    assert (
        Model.from_point(
            Point(**SMALL, embedding="sphere", embedding_out="sphere")
        ).embedding
        == "sphere"
    )


GRID = """
base: {{V: 12, N: 64, L: 4, d: 16, n_test: 64, embedding: "array(path='{path}')"}}
seeds: 2
blocks:
  - axes: {{embedding.mean: [0, 1]}}
  - axes: {{embedding: ["low_rank(rank=2)", "array(path='{path}')"], embedding_out: [gaussian, power_law]}}
"""  # noqa: E501


@pytest.mark.slow
def test_paths_in_a_grid_are_relative_to_its_folder_in_workers_too(table, tmp_path):
    (tmp_path / "grids").mkdir()
    shutil.copy(table, tmp_path / "grids/table.npy")
    # in the current folder, and not the one that is meant
    np.save(tmp_path / "table.npy", learned_table(seed=1))
    (tmp_path / "grids/grid.yaml").write_text(GRID.format(path="table.npy"))
    code = """
import jaxrecall
df = jaxrecall.run("grids/grid.yaml", workers=2, out="out", progress=False)
print(len(df), *sorted(set(df["point_id"])))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=with_root(),
    )
    n, *ids = done.stdout.split() or [done.stderr[-3000:]]
    assert n == "12"
    text = f"array(path='{table}')"
    base = {"V": 12, "N": 64, "L": 4, "d": 16, "n_test": 64}
    laws = [{"embedding": text}, {"embedding": f"array(path='{table}', mean=1)"}]
    laws += [
        {"embedding": a, "embedding_out": b}
        for a in ("low_rank(rank=2)", text)
        for b in ("gaussian", "power_law")
    ]
    points = [Point(**base, **each) for each in laws]
    assert ids == sorted(point.point_id for point in points)
    df = jaxrecall.load(tmp_path / "out")
    for point in points:
        found = df[(df["point_id"] == point.point_id) & (df["seed"] == 1)].iloc[0]
        assert found["n_correct"] == simulate(point, 1)["n_correct"]
    assert set(df["embedding.mean"].dropna()) == {0.0, 1.0}


def with_root():
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_a_grid_names_the_line_of_a_file_that_cannot_be_used(tmp_path):
    (tmp_path / "grid.yaml").write_text(GRID.format(path="none.npy"))
    with pytest.raises(GridError) as error:
        read_grid(tmp_path / "grid.yaml")
    assert [line.split(": got")[0] for line in error.value.lines] == [
        f"{tmp_path}/grid.yaml:2: base.embedding",
        f"{tmp_path}/grid.yaml:6: blocks.1.axes.embedding.1",
    ]


def test_a_search_along_a_whole_parameter_tries_whole_numbers():
    from jaxrecall.sweep.grid.axes import Names

    names = Names()
    assert not names.is_real("embedding.rank", 1, 64)
    assert not names.is_real("embedding_out.clusters", 1, 64)
    assert names.is_real("embedding.alpha", 1, 64)
    assert find_law(EmbeddingLaw, "low_rank(rank=4.0)").rank == 4


def test_a_file_that_moved_during_a_sweep_is_one_value_of_an_axis():
    import pandas as pd

    from jaxrecall.analysis.fit.roles import roles_of
    from jaxrecall.analysis.fit.table_axes import as_given

    texts = [
        f'array(path="{path}#0123456789abcdef")'
        for path in ("/a b/x.npy", "x.npy", "../x.npy")
    ]
    ours = roles_of(pd.DataFrame(columns=["V", "N", "d", "L", "m"]))
    frame = as_given(
        pd.DataFrame(
            {
                "embedding": [*texts, "gaussian"],
                "embedding_out": [*texts, "sphere"],
                "embedding.mean": 0.0,
            }
        ),
        ours,
    )
    assert frame["embedding"].nunique() == frame["embedding_out"].nunique() == 2
    same = as_given(pd.DataFrame({"embedding": texts, "embedding_out": texts}), ours)
    assert "embedding_out" not in same
