"""Random numbers: addressed, exact, uniform, and the same whatever surrounds them."""

import hashlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import python, quickly
from jax.extend.random import threefry_2x32

from jaxrecall import draws, simulate
from jaxrecall.errors import PointError, UsageError
from jaxrecall.model import keys
from jaxrecall.model.point import BLOCK, Point
from jaxrecall.model.reference import realization
from jaxrecall.model.reference.realization import realize

POINT = Point(V=50, N=700, d=8, L=5, m=6, n_test=100)


def test_words_are_threefry_of_the_stream_at_position_and_block():
    key = jax.random.key_data(jax.random.key(7))
    ours = keys.words(keys.blocks(key, 3, 2), jnp.array([11, 0]))
    for p, position in enumerate((11, 0)):
        for i in range(2):
            lanes = 256 * position + jnp.arange(256, dtype=jnp.uint32)
            theirs = threefry_2x32(
                key, jnp.concatenate([lanes, jnp.full(256, 3 + i, jnp.uint32)])
            )
            assert np.array_equal(ours[p, i * BLOCK : (i + 1) * BLOCK], theirs)


def test_fold_is_fold_in():
    key = jax.random.key(5)
    address = np.array([0, 1, 2**32 - 1], np.uint32)
    theirs = np.stack(
        [jax.random.key_data(jax.random.fold_in(key, a)) for a in address]
    )
    assert np.array_equal(
        keys.fold(jax.random.key_data(key), jnp.asarray(address)), theirs
    )
    assert np.array_equal(
        keys.fold_on_host(np.asarray(jax.random.key_data(key))[None], address), theirs
    )


def test_stream_keys_are_folded_from_root_seed_and_seed_and_point_id():
    ours = keys.run_streams([7, 2**32 - 1], [3, 4], [[1, 2], [5, 6]], [False, True])
    for i, addresses in enumerate(([3], [4, 5, 6])):
        key = jax.random.key((7, 2**32 - 1)[i])
        for address in addresses:
            key = jax.random.fold_in(key, address)
        for name, number in keys.STREAMS.items():
            assert np.array_equal(
                keys.stream(ours[i], name),
                jax.random.key_data(jax.random.fold_in(key, number)),
            )


@pytest.mark.parametrize("n", [1, 2, 3, 1000, 65535, 65536])
def test_below_is_the_floor_of_the_exact_product(n):
    edges = np.arange(n + 1, dtype=np.uint64) * 2**32 // n
    word = np.unique(
        np.concatenate([edges, edges + 1, edges - 1, [0, 2**32 - 1]]) % 2**32
    ).astype(np.uint32)
    assert np.array_equal(
        keys.below(jnp.asarray(word), n),
        word.astype(np.uint64) * np.uint64(n) >> np.uint64(32),
    )


def test_tokens_and_permutations_are_uniform():
    r = realize(Point(V=16, N=40960, d=2, L=4, n_test=1), 1)
    counts = np.bincount(r.train_tokens.ravel(), minlength=16)
    # chi-squared, 15 degrees of freedom, 0.1 %
    assert ((counts - 10240) ** 2 / 10240).sum() < 37.7
    positions = np.bincount(r.train_positions, minlength=4)
    assert ((positions - 10240) ** 2 / 10240).sum() < 16.3
    firsts = [
        realize(Point(V=4, N=1, d=2, L=1, n_test=1), seed).perm[0]
        for seed in range(200)
    ]
    assert ((np.bincount(firsts, minlength=4) - 50) ** 2 / 50).sum() < 16.3


def test_labels_follow_the_permutation_and_the_position():
    r = realize(POINT, 4)
    assert np.array_equal(np.sort(r.perm), np.arange(50))
    for tokens, positions, labels in (r[6:9], r[9:12]):
        assert np.array_equal(r.perm[tokens[np.arange(len(tokens)), positions]], labels)
    assert {a.dtype.name for a in r if a is not None} == {"float32", "int32"}


def test_common_streams_share_prefixes():
    r = realize(POINT, 4)
    more = realize(POINT.replace(N=1500, d=13, m=9, n_test=300), 4)
    longer = realize(POINT.replace(L=9), 4)
    assert np.array_equal(r.perm, more.perm)
    assert np.array_equal(r.train_tokens, more.train_tokens[:700])
    assert np.array_equal(r.test_labels, more.test_labels[:100])
    # the informative token is token 0 of the stream
    assert np.array_equal(r.train_labels, longer.train_labels)
    np.testing.assert_allclose(r.Z_in * np.sqrt(8 / 13), more.Z_in[:, :8], rtol=1e-6)
    np.testing.assert_allclose(r.W_in, more.W_in[:6, :8], rtol=1e-6)


def test_independent_streams_share_nothing_and_seeds_neither():
    base = POINT.replace(streams="independent")
    for other, seed in (
        (base.replace(N=701), 4),
        (base, 5),
        (POINT, 4),
        (base.replace(root_seed=1), 4),
    ):
        r, s = realize(base, 4), realize(other, seed)
        assert not np.array_equal(r.perm, s.perm)
        assert np.mean(r.train_tokens == s.train_tokens[:700]) < 0.05
        assert abs(np.corrcoef(r.Z_in.ravel(), s.Z_in.ravel())[0, 1]) < 0.2


def test_both_halves_of_the_point_id_count():
    streams = keys.run_streams([0] * 3, [1] * 3, [(1, 2), (3, 2), (1, 4)], [True] * 3)
    assert len({s.tobytes() for s in streams}) == 3
    assert np.array_equal(
        *keys.run_streams([0] * 2, [1] * 2, [(1, 2), (3, 2)], [False] * 2)
    )


def test_fresh_batches_differ_and_the_first_is_the_shared_one():
    fresh = realize(POINT.replace(fresh_batches=True), 4)
    assert fresh.train_tokens.shape == (3, 700, 5)
    assert np.array_equal(fresh.train_tokens[0], realize(POINT, 4).train_tokens)
    assert np.mean(fresh.train_tokens[0] == fresh.train_tokens[1]) < 0.05
    assert np.mean(fresh.train_tokens[1] == fresh.train_tokens[2]) < 0.05


def test_embedding_laws():
    gaussian, sphere = realize(POINT, 0), realize(POINT.replace(embedding="sphere"), 0)
    np.testing.assert_allclose(np.linalg.norm(sphere.Z_in, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(
        sphere.Z_in * np.linalg.norm(gaussian.Z_in, axis=1)[:, None],
        gaussian.Z_in,
        rtol=1e-5,
        atol=1e-7,
    )
    wide = realize(Point(V=400, N=1, d=100, L=1, n_test=1), 0)
    assert abs(wide.Z_in.std() * 10 - 1) < 0.02
    o = realize(Point(V=6, N=1, d=9, L=1, n_test=1, embedding="orthogonal"), 0)
    rows = np.vstack([o.Z_in, o.z_trig, o.z_eos])
    assert np.array_equal(rows @ rows.T, np.eye(8))
    assert np.array_equal(o.Z_out @ o.Z_out.T, np.eye(6))


DIGEST = """
import hashlib, json
from jaxrecall import Point, realize
r = realize(Point(V=50, N=700, d=8, L=5, m=6, n_test=100, fresh_batches=True), 4)
print(json.dumps([(a.dtype.name, a.shape, hashlib.sha256(a.tobytes()).hexdigest()) for a in r if a is not None]))
"""  # noqa: E501


def test_realize_does_not_depend_on_x64():
    r = realize(POINT.replace(fresh_batches=True), 4)
    here = [
        [a.dtype.name, list(a.shape), hashlib.sha256(a.tobytes()).hexdigest()]
        for a in r
        if a is not None
    ]
    there = python(DIGEST, JAX_ENABLE_X64="1")
    assert json.loads(there.stdout) == here, there.stderr


@pytest.mark.system  # a process of its own compiles the full form with 64-bit types
def test_rows_do_not_depend_on_x64():
    """Of the form that a point so small needs; the form whose guard it fails is not
    compiled.
    """
    sizes = {"V": 20, "N": 700, "d": 8, "L": 5, "n_test": 100, "exact": "full"}
    code = (
        "import json; from jaxrecall import Point, simulate;"
        f" print(json.dumps(simulate(Point(**{sizes}), 4)))"
    )
    there = python(code, JAX_ENABLE_X64="1")
    assert json.loads(there.stdout) == json.loads(
        json.dumps(simulate(Point(**sizes), 4))
    ), there.stderr


def test_threefry_must_be_partitionable():
    with (
        jax.threefry_partitionable(False),
        pytest.raises(
            UsageError, match="jax_threefry_partitionable: got False; allowed: True"
        ),
    ):
        realize(Point(V=5, N=7, d=8, L=5), 4)


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "0", True])
def test_seed_is_checked(seed):
    with pytest.raises(
        PointError, match=r"seed: got .*; allowed: whole numbers from 0 to 4294967295"
    ):
        realize(POINT, seed)


DRAWN = [
    POINT,
    POINT.replace(m=0, d=60, embedding="orthogonal"),
    POINT.replace(fresh_batches=True, streams="independent"),
    POINT.replace(pool=16, root_seed=3),
    POINT.replace(steps=9, lr=0.1, batch=600, embedding="equicorrelated(rho=0.3)"),
    # more than are drawn at once
    POINT.replace(V=70, N=4700, L=37, tokens="zipf", label_noise=0.1),
]


@pytest.mark.parametrize(
    "point", DRAWN, ids=["mlp", "orthogonal", "independent", "pool", "batches", "large"]
)
def test_draws_in_a_compiled_function_are_those_of_realize(point):
    key = jax.random.fold_in(jax.random.key(point.root_seed), 4)
    found = quickly(lambda key: tuple(draws(point, key)))(key)
    expected = realize(point, 4)
    for name, a, b in zip(expected._fields, found, expected, strict=True):
        if b is None:
            assert a is None, name
        elif b.dtype == np.int32:
            assert np.array_equal(a, b), name
            assert a.dtype == b.dtype
        else:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=name)
    assert isinstance(draws(point, key).Z_in, jax.Array)


def test_points_of_many_sizes_share_programs():
    def n_programs():
        return [
            f._cache_size()
            for f in (
                realization._some_tokens,
                realization._gaussian,
                realization._permutation,
            )
        ]  # type: ignore[attr-defined]

    realize(Point(V=20, N=100, d=12, L=4, m=3), 0)
    before = n_programs()
    realize(Point(V=33, N=900, d=40, L=9, m=64, pool=7), 1)
    assert n_programs() == before


def test_draws_are_vmapped_over_keys():

    @quickly
    @jax.vmap
    def found_of(seed):
        return tuple(draws(POINT, jax.random.fold_in(jax.random.key(0), seed))[5:12])

    found = found_of(jnp.arange(3, dtype=jnp.uint32))
    for seed in range(3):
        for a, b in zip(found, realize(POINT, seed)[5:12], strict=True):
            assert np.array_equal(a[seed], b)


def test_draws_refuse_what_realize_refuses():
    with pytest.raises(
        ValueError, match=r"N, L: got .* tokens to write out; allowed: up to 67108864"
    ):
        draws(Point(V=8, N=2**10, d=4, L=2**24, pool=16), jax.random.key(0))
