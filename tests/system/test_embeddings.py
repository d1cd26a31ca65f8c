"""`jaxrecall embeddings`: what it says of tables whose law is known, what it refuses,
and that it starts no JAX.
"""

import json

import numpy as np
import pytest
from helpers import python
from tolerances import assert_close

from jaxrecall.embeddings import facts, main
from jaxrecall.model.laws import EmbeddingLaw, find_law, numpy_draws

V, D = 3000, 64


def table(law, V=V, d=D):
    """V rows of a law."""
    rng = np.random.default_rng(0)
    law = find_law(EmbeddingLaw, law)
    return law.make(
        numpy_draws(
            law, "Z_in", np.arange(V)[:, None], rng.standard_normal((V, d)), (V, d), rng
        ),
        np,
    )


@pytest.mark.parametrize(
    ("law", "V", "closest"),
    [
        ("gaussian", V, "gaussian"),
        ("gaussian", 96, "gaussian"),
        ("gaussian", 40, "gaussian"),
        ("sphere", V, "sphere"),
        ("equicorrelated(rho=0.2)", V, "equicorrelated"),
        ("power_law(alpha=0.7)", V, "power_law"),
        ("power_law(alpha=0.7)", 96, "power_law"),
    ],
)
def test_a_table_of_a_law_is_told_to_be_closest_to_it(law, V, closest):
    found = find_law(EmbeddingLaw, facts(table(law, V))["law"])
    assert str(found).partition("(")[0] == closest
    for name in ("rho", "alpha"):
        if hasattr(found, name):
            value = getattr(find_law(EmbeddingLaw, law), name)
            assert_close(getattr(found, name), value, 0.2 * value)


def test_orthonormal_rows_are_told_to_be_closest_to_orthogonal():
    assert facts(np.eye(D))["law"] == "orthogonal"


def test_the_numbers_are_those_of_their_formulas():
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((50, 8)) * np.arange(1, 9) + 2) * rng.uniform(
        0.5, 1.5, (50, 1)
    )
    about, centred = facts(x), x - x.mean(0)
    for name, rows in (("d_eff", x), ("d_eff_centred", centred)):
        S = rows.T @ rows / 50
        assert_close(about[name], np.trace(S) ** 2 / np.trace(S @ S))
    different = ~np.eye(50, dtype=bool)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    assert_close(about["cosine"], (unit @ unit.T)[different].mean(), scale=1)
    common = (x @ x.T)[different].mean() / np.mean(np.sum(x**2, axis=1))
    assert_close(about["common"], common, scale=1)
    spectrum = np.linalg.eigvalsh(np.cov(centred.T))[::-1]
    assert_close(about["spectrum"], spectrum / spectrum.mean())
    # more columns than rows: the same by the matrix of inner products
    wide = facts(x.T)
    assert_close(wide["d_eff"], about["d_eff"])
    power = np.arange(1, 9) ** -about["alpha"]
    squares = (centred @ centred.T)[different]  # d_eff by different rows alone
    expected = np.mean(np.sum(centred**2, axis=1)) ** 2 / np.mean(squares**2)
    assert_close(power.sum() ** 2 / np.sum(power**2), expected, "roots")


def test_the_command_prints_them_and_the_same_as_json(tmp_path, capsys):
    np.savez(tmp_path / "two.npz", rows=table("power_law(alpha=0.7)"), emb=np.eye(4))
    assert main([str(tmp_path / "two.npz"), "--tensor", "rows"]) == 0
    printed = capsys.readouterr().out
    assert main([str(tmp_path / "two.npz"), "--tensor", "rows", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert printed.startswith(
        f"V, d       {V} rows, {D} columns\nd_eff      {about['d_eff']:.4g}, of centred"
        " rows"
    )
    assert f"\nclosest    {about['law']}, with d_eff" in printed


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absent.npy", "no such file as "),
        (
            "text.txt",
            "a file with the suffix '.txt'; allowed: .npy, .npz, .safetensors",
        ),
        ("broken.npy", "a file that holds no array of numbers; allowed: "),
        ("two.npz", "2 arrays; allowed: tensor=, one of a, b"),
        ("line.npy", "an array of shape (3,); allowed: two dimensions"),
        ("nan.npy", "nan in row 0, column 1; allowed: finite float32 numbers"),
        ("same.npy", "a table whose rows are all the same; allowed: rows that differ"),
        ("one.npy", "a table whose rows are all the same; allowed: rows that differ"),
        ("zero.npy", "a table whose rows are all the same; allowed: rows that differ"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path, capsys, name, said):
    (tmp_path / "text.txt").write_text("1 2")
    (tmp_path / "broken.npy").write_bytes(b"no numbers")
    np.savez(tmp_path / "two.npz", a=np.eye(2), b=np.eye(2))
    tables = {
        "line": np.ones(3),
        "nan": np.array([[1, np.nan]]),
        "same": np.ones((3, 2)),
        "one": np.ones((1, 2)),
        "zero": np.zeros((3, 2)),
    }
    for stem, rows in tables.items():
        np.save(tmp_path / f"{stem}.npy", rows)
    assert main([str(tmp_path / name)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"FILE: got '{tmp_path / name}', {said}")
    assert err.count("\n") == 1


def test_it_starts_neither_jax_nor_pandas(tmp_path):
    np.save(tmp_path / "t.npy", table("gaussian", 50))
    called = (
        "import sys; from jaxrecall.embeddings import main; assert"
        f" main([{str(tmp_path / 't.npy')!r}]) == 0"
    )
    done = python(f"{called}; assert not {{'jax', 'pandas'}} & set(sys.modules)")
    assert done.returncode == 0, done.stderr
