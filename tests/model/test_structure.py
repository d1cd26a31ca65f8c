"""Structured embeddings: spectra and inner products of the laws, embeddings from a
file, and a law of its own for the output side. Against the reference:
test_exactness.py.
"""

import numpy as np
import pandas as pd
import pytest
from helpers import assert_same_metrics, python
from scipy.stats import chisquare
from tolerances import assert_close

import jaxrecall
from jaxrecall import Point, measure, realize, simulate, theory
from jaxrecall.errors import PointError
from jaxrecall.model.laws import array as array_law
from jaxrecall.model.reference import three_step

SMALL = {"V": 11, "N": 90, "d": 14, "L": 4, "n_test": 300, "eta": 0.1}
FEW = {"N": 4, "L": 2, "n_test": 8}


def learned_table(R=5000, D=300):
    """A table with the features of a learned one: a power-law spectrum, unequal norms,
    a common direction. Every float type has its numbers.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(R, D)) * np.arange(1, D + 1) ** -0.5
    x = x * np.exp(0.3 * rng.normal(size=(R, 1))) + 0.5 * np.linspace(-1, 1, D)
    return (np.round(32 * x).clip(-127, 127) / 32).astype(np.float32)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "table.npy"
    np.save(path, learned_table())
    return path


PAIRS = [
    ("low_rank(rank=3, noise=0.1)", "power_law(alpha=0.5)"),
    ("clustered(clusters=4)", "equicorrelated(rho=0.4)"),
    ("array(path='{table}', mean=1)", None),
]


@pytest.mark.parametrize(("law", "law_out"), PAIRS)
def test_smaller_tables_are_prefixes_and_other_draws_stay(law, law_out, table):
    point = Point(**SMALL, embedding=law.format(table=table), embedding_out=law_out)
    whole, smaller = realize(point, 3), realize(point.replace(V=8, d=9), 3)
    for Z, prefix in zip(whole[:2], smaller[:2], strict=True):
        cut = Z[:8, :9]
        scale = np.linalg.norm(cut) / np.linalg.norm(prefix)
        assert_close(scale * prefix, cut, "float32")
    gaussian = realize(Point(**SMALL), 3)
    for name in ("z_trig", "z_eos", "train_tokens"):
        assert_close(getattr(whole, name), getattr(gaussian, name), "float32", of=name)


@pytest.mark.parametrize(
    ("law", "law_out"),
    [
        ("low_rank(rank=5, noise=1)", "equicorrelated(rho=0)"),
        ("clustered(spread=1)", "power_law(alpha=0)"),
    ],
)
def test_no_structure_gives_the_gaussian_draws(law, law_out):
    none = realize(Point(**SMALL, embedding=law, embedding_out=law_out), 3)
    assert_close(none, realize(Point(**SMALL), 3), "float32")


def test_a_power_law_has_its_spectrum():
    point = Point(V=2000, d=40, embedding="power_law(alpha=1.5)", **FEW)
    tables = [Z for seed in range(4) for Z in realize(point, seed)[:2]]
    Z = np.concatenate(tables)
    spectrum = np.linalg.eigvalsh(Z.T @ Z / len(Z))[::-1]
    expected = np.arange(1, 41.0) ** -1.5
    assert_close(spectrum * expected.sum() / expected, np.ones(40), 0.2)
    assert_close(spectrum.sum(), 1.0, 0.04)


@pytest.mark.slow
def test_low_rank_rows_are_near_their_directions():
    point = Point(V=3000, d=60, embedding="low_rank(rank=4, noise=0.2)", **FEW)
    for seed in range(4):
        r = realize(point, seed)
        bases, rests = [], []
        for Z in (r.Z_in, r.Z_out):
            values, vectors = np.linalg.eigh(Z.T @ Z / 3000)
            bases.append(vectors[:, -4:])
            rests.append(values[:-4])
            assert values[-4] > 5 * values[-5]
        # the isotropic part, without its share of the four directions
        assert_close(np.mean(rests), 0.2 / 60, 0.0002)
        assert np.linalg.svd(bases[0].T @ bases[1])[1].max() < 0.9
    exact = realize(point.replace(embedding="low_rank(rank=4)"), 0).Z_in
    assert np.linalg.matrix_rank(exact, tol=1e-4) == 4


@pytest.mark.parametrize(
    ("law", "clusters", "product"),
    [
        ("clustered(clusters=8, spread=0.3)", 8, 0.7),
        ("equicorrelated(rho=0.4)", 1, 0.4),
    ],
)
def test_rows_have_the_inner_products_that_they_should(law, clusters, product):
    """Tables have directions of their own."""
    r = realize(Point(V=40, d=4000, embedding=law, **FEW), 0)
    group, ones = np.arange(40) % clusters, np.eye(40, dtype=bool)
    same = group[:, None] == group
    for Z in (r.Z_in, r.Z_out):
        gram = Z @ Z.T
        assert_close(np.diag(gram).mean(), 1.0, 0.06)
        assert_close(gram[same & ~ones].mean(), product, 0.08)
        if clusters > 1:
            assert_close(gram[~same].mean(), 0.0, 0.02)
        assert np.abs(Z @ np.array([r.z_trig, r.z_eos]).T).mean() < 0.06
    assert abs(r.Z_in.mean(0) @ r.Z_out.mean(0)) < 0.03


def test_one_cluster_is_equicorrelated():
    one_cluster = "clustered(clusters=1, spread=0.6)"
    one, equal = (
        realize(Point(**SMALL, embedding=PAIRS[1][0], embedding_out=law), 2).Z_out
        for law in (one_cluster, PAIRS[1][1])
    )
    assert_close(one, equal, "float32")


def test_an_array_keeps_the_inner_products_of_the_file(tmp_path):
    x = learned_table(R=400)
    np.save(tmp_path / "x.npy", x)
    law = f"array(path='{tmp_path / 'x.npy'}')"
    whole = law.replace(")", ", mean=1)")
    point = Point(V=50, d=300, embedding=law, embedding_out=whole, **FEW)

    def lengths(Z):
        """A row is known by its length, which is as good as unique."""
        return np.sum(np.square(Z, dtype=np.float64), axis=1)

    centred = x - x.mean(0, dtype=np.float64)
    for side, y in enumerate((centred, x.astype(np.float64))):
        y /= np.sqrt(lengths(y).mean())
        Z, other = (realize(point, seed)[side] for seed in (0, 1))
        rows, of_other = (
            np.abs(lengths(y) - lengths(each)[:, None]).argmin(1) for each in (Z, other)
        )
        assert_close(Z @ Z.T, y[rows] @ y[rows].T, "float32")
        assert len({*rows}) == 50
        assert len({*rows, *of_other}) > 80, "each seed has rows of its own"
    narrow = [realize(point.replace(d=30), seed)[:2] for seed in range(20)]
    assert_close(np.mean(np.square(narrow), axis=(0, 2, 3)) * 30, np.ones(2), 0.2)


def test_all_rows_of_a_small_file_are_taken_in_random_order(tmp_path):
    np.save(tmp_path / "x.npy", np.diag(np.arange(1.0, 7)))
    law = f"array(path='{tmp_path / 'x.npy'}', mean=1)"
    point = Point(V=6, d=6, embedding=law, **FEW)
    tables = [Z for seed in range(60) for Z in realize(point, seed)[:2]]
    lengths = np.linalg.norm(tables, axis=2)
    expected = np.arange(1, 7) / np.sqrt(91 / 6)
    assert_close(np.sort(lengths), np.broadcast_to(expected, (120, 6)), "float32")
    counts = [np.bincount(column, minlength=6) for column in lengths.argsort().T]
    assert chisquare(np.ravel(counts), ddof=10).pvalue > 1e-3


def test_every_format_and_type_gives_the_same_rows(table, cwd):
    x = learned_table()
    for name, a in (
        ("fortran", np.asfortranarray(x.astype(">f8"))),
        ("half", x.astype(np.float16)),
    ):
        np.save(f"{name}.npy", a)
    first = Point(**SMALL, exact="full", embedding=f"array(path='{table}')")
    r = realize(first, 0)
    for path in sorted(cwd.iterdir()):
        law = f"array(path='{path.name}')"
        point = Point(**SMALL, exact="full", embedding=law)
        assert point.point_id == first.point_id, path
    assert np.array_equal(realize(point, 0).Z_in, r.Z_in)
    expected = measure(r, first, three_step(r, first))
    assert_same_metrics(simulate(first, 0), expected)


def test_a_moved_file_keeps_ids_and_a_changed_one_changes_them(tmp_path, monkeypatch):
    def with_table(path, **parameters):
        return Point(**SMALL, embedding=array_law.Array(str(path), **parameters))

    x = learned_table(20, 20)
    (tmp_path / "there").mkdir()
    path = tmp_path / "there/other name.npy"
    for place in (tmp_path / "table.npy", path):
        np.save(place, x)
    before, moved = with_table(tmp_path / "table.npy"), with_table(path)
    assert before.point_id == moved.point_id
    assert before.embedding != moved.embedding
    assert with_table(path, mean=0.5).point_id != before.point_id
    monkeypatch.chdir(path.parent)
    relative = with_table("other name.npy")
    assert relative.point_id == moved.point_id
    assert str(relative.embedding).startswith('array(path="other name.npy#')
    assert Point(**SMALL, embedding=str(relative.embedding)) == relative
    assert Point(**relative.as_given()) == relative
    np.save(path, x + np.eye(20))
    assert with_table("other name.npy").point_id != moved.point_id
    monkeypatch.setattr(array_law, "contents", {})  # as in a new process
    array_law._hash.cache_clear()
    with pytest.raises(PointError, match=r"^embedding\.path: got 'other name\.npy#"):
        relative.replace(N=91)
    assert before.replace(N=91).embedding == before.embedding


def test_the_output_side_may_have_another_law():
    def point(**laws):
        return Point(**SMALL, **laws)

    none = point(embedding="sphere")
    same = point(embedding="sphere", embedding_out="sphere")
    assert same == none
    assert same.point_id == none.point_id
    assert none.embedding_out == "sphere"
    assert none.replace(embedding="gaussian").embedding_out == "gaussian"
    assert same.replace(embedding="gaussian").embedding_out == "sphere"
    mixed = point(embedding="sphere", embedding_out="gaussian")
    low_rank, power = PAIRS[0]
    both, out = point(embedding=power), point(embedding=low_rank, embedding_out=power)
    points = same, mixed, both, out, point()
    assert len({each.point_id for each in points}) == 5
    assert_close(realize(out, 0).Z_out, realize(both, 0).Z_out, "float32")
    assert_close(realize(mixed, 0).Z_out, realize(point(), 0).Z_out, "float32")
    assert_close(realize(mixed, 0).Z_in, realize(none, 0).Z_in, "float32")
    assert_close(realize(mixed, 0).z_trig, realize(none, 0).z_trig, "float32")
    assert theory.Model(same).embedding == "sphere"


def test_rows_of_before_have_one_law_for_both_sides_and_for_all_tokens(tmp_path):
    row = pd.DataFrame([simulate(Point(**SMALL, exact="full"), 0)])
    rows = pd.concat([row, row.assign(embedding="sphere", tokens="zipf", seed=1)])
    laws = ["embedding_out", "noise_tokens"]
    for left_out in (laws, [*laws, "tokens"]):
        rows.drop(columns=left_out).to_parquet(tmp_path / "older.parquet")
        read = jaxrecall.load(tmp_path / "older.parquet")
        assert read["embedding_out"].tolist() == ["gaussian", "sphere"]
        assert read["noise_tokens"].tolist() == read["tokens"].tolist()
    assert {*read["tokens"]} == {"uniform"}


GRID = """
base: {V: 12, N: 64, L: 4, d: 16, n_test: 64, embedding: "array(path='table.npy')"}
seeds: 2
blocks:
  - axes: {embedding.mean: [0, 1]}
  - axes:
      embedding: ["low_rank(rank=2)", "array(path='table.npy')"]
      embedding_out: [gaussian, power_law]
"""


@pytest.mark.slow
def test_paths_in_a_grid_are_relative_to_its_folder_in_workers_too(tmp_path):
    (tmp_path / "grids").mkdir()
    np.save(tmp_path / "grids/table.npy", learned_table())
    # in the current folder, and not the one that is meant
    np.save(tmp_path / "table.npy", learned_table(R=50))
    (tmp_path / "grids/grid.yaml").write_text(GRID)
    code = f"""
import os, jaxrecall
os.chdir({str(tmp_path)!r})
jaxrecall.run("grids/grid.yaml", workers=2, out="out", progress=False)
"""
    python(code)
    df = jaxrecall.load(tmp_path / "out")
    base = {"V": 12, "N": 64, "L": 4, "d": 16, "n_test": 64}
    law = f"array(path='{tmp_path}/grids/table.npy')"
    point = Point(**base, embedding=law, embedding_out="power_law")
    row = df[(df["point_id"] == point.point_id) & (df["seed"] == 1)].iloc[0]
    assert row["n_correct"] == simulate(point, 1)["n_correct"]
    assert len(df) == 12
    assert {*df["embedding.mean"].dropna()} == {0.0, 1.0}


def test_a_file_that_moved_during_a_sweep_is_one_value_of_an_axis():
    from jaxrecall.analysis.fit.roles import roles_of
    from jaxrecall.analysis.fit.table_axes import as_given

    paths = "/a b/x.npy", "x.npy", "../x.npy"
    texts = [f'array(path="{path}#0123456789abcdef")' for path in paths]
    laws = {"embedding": [*texts, "gaussian"], "embedding_out": [*texts, "sphere"]}
    roles = roles_of(pd.DataFrame(columns=["V", "N", "d", "L", "m"]))
    frame = as_given(pd.DataFrame(laws).assign(**{"embedding.mean": 0.0}), roles)
    assert frame["embedding"].nunique() == frame["embedding_out"].nunique() == 2
    same = as_given(pd.DataFrame({"embedding": texts, "embedding_out": texts}), roles)
    assert "embedding_out" not in same
