"""Random numbers: addressed, exact, uniform, and the same whatever surrounds them."""

import functools

import jax
import numpy as np
import pytest
from helpers import python, quickly
from jax.extend.random import threefry_2x32
from scipy.stats import chisquare
from tolerances import assert_close

from jaxrecall import Point, draws, realize, simulate
from jaxrecall.errors import UsageError
from jaxrecall.model import keys
from jaxrecall.model.point import BLOCK
from jaxrecall.model.reference import realization

POINT = Point(V=50, N=700, d=8, L=5, m=6, n_test=100)
KEY = np.array([7, 11], np.uint32)


def test_words_are_threefry_of_the_stream_at_position_and_block():
    positions, blocks = np.array([11, 0]), np.array([3, 4])
    ours = quickly(lambda key: keys.words(keys.blocks(key, 3, 2), positions))(KEY)
    lane = 256 * positions[:, None, None] + np.arange(256)
    block = np.broadcast_to(blocks[:, None], (2, 2, 256))
    counters = np.stack([np.broadcast_to(lane, block.shape), block])
    theirs = quickly(threefry_2x32)(KEY, counters.astype(np.uint32).ravel())
    theirs = np.asarray(theirs).reshape(2, 2, 2, 256)
    words = np.moveaxis(theirs, 0, 2)
    assert np.array_equal(np.asarray(ours).reshape(words.shape), words)
    assert ours.shape == (2, 2 * BLOCK)


fold_in = quickly(jax.random.fold_in)
"""What keys are held to."""


def test_fold_is_fold_in():
    address = np.array([0, 1, 2**32 - 1], np.uint32)
    theirs = [np.asarray(fold_in(KEY, one)) for one in address]
    assert np.array_equal(quickly(keys.fold)(KEY, address), theirs)
    assert np.array_equal(keys.fold_on_host(KEY[None], address), theirs)


def test_stream_keys_are_folded_from_root_seed_and_seed_and_point_id():
    ours = keys.run_streams([7, 2**32 - 1], [3, 4], [[1, 2], [5, 6]], [False, True])
    runs = ([0, 7], [3]), ([0, 2**32 - 1], [4, 5, 6])
    for streams, (root, addresses) in zip(ours, runs, strict=True):
        for name, number in keys.STREAMS.items():
            every = np.uint32([*addresses, number])
            theirs = functools.reduce(fold_in, every, np.uint32(root))
            assert np.array_equal(keys.stream(streams, name), theirs)


def test_below_is_the_floor_of_the_exact_product():
    sizes = np.array([1, 2, 3, 1000, 65535, 65536], np.uint64)
    edges = [np.arange(n + np.uint64(1)) * 2**32 // n for n in sizes]
    words = [
        np.concatenate([edge, edge + 1, edge - 1, [2**32 - 1]]) % 2**32
        for edge in edges
    ]
    n = np.repeat(sizes, [*map(len, words)])
    word = np.concatenate(words).astype(np.uint64)
    ours = quickly(keys.below)(word.astype(np.uint32), n.astype(np.uint32))
    assert np.array_equal(ours, word * n >> np.uint64(32))


def test_tokens_and_permutations_are_uniform():
    r = realize(Point(V=16, N=40960, d=2, L=4, n_test=1), 1)
    firsts = [
        realize(Point(V=4, N=1, d=2, L=1, n_test=1), seed).perm[0]
        for seed in range(200)
    ]
    for drawn in (r.train_tokens.ravel(), r.train_positions, firsts):
        assert chisquare(np.bincount(drawn)).pvalue > 1e-3


def test_labels_follow_the_permutation_and_the_position():
    r = realize(POINT, 4)
    assert np.array_equal(np.sort(r.perm), np.arange(50))
    for tokens, positions, labels in (r.batches[0], r.test):
        assert np.array_equal(r.perm[tokens[np.arange(len(tokens)), positions]], labels)
    assert {a.dtype.name for a in r if a is not None} == {"float32", "int32"}


def test_more_than_is_written_out_is_refused():
    point = Point(V=8, N=2**10, d=4, L=2**24, pool=16)
    with pytest.raises(ValueError, match=r"^N, L: got N=1024, L=16777216, .* tokens"):
        realize(point, 0)


def test_common_streams_share_prefixes():
    r = realize(POINT, 4)
    more = realize(POINT.replace(N=1500, d=13, m=9, n_test=300), 4)
    longer = realize(POINT.replace(L=9), 4)
    assert np.array_equal(r.perm, more.perm)
    assert np.array_equal(r.train_tokens, more.train_tokens[:700])
    assert np.array_equal(r.test_labels, more.test_labels[:100])
    # the informative token is token 0 of the stream
    assert np.array_equal(r.train_labels, longer.train_labels)
    assert_close(r.Z_in * np.sqrt(8 / 13), more.Z_in[:, :8], "float32")
    assert_close(r.W_in, more.W_in[:6, :8], "float32")


def test_independent_streams_share_nothing_and_seeds_neither():
    base = POINT.replace(streams="independent")
    r = realize(base, 4)
    others = (base.replace(N=701), 4), (base, 5), (POINT, 4), (base.replace(eta=1), 4)
    for other, seed in (*others, (base.replace(root_seed=1), 4)):
        s = realize(other, seed)
        assert not np.array_equal(r.perm, s.perm)
        assert np.mean(r.train_tokens == s.train_tokens[:700]) < 0.05
        assert abs(np.corrcoef(r.Z_in.ravel(), s.Z_in.ravel())[0, 1]) < 0.2


def test_fresh_batches_differ_and_the_first_is_the_shared_one():
    first, second, third = realize(POINT.replace(fresh_batches=True), 4).train_tokens
    assert np.array_equal(first, realize(POINT, 4).train_tokens)
    assert np.mean(first == second) < 0.05
    assert np.mean(second == third) < 0.05


def test_embedding_laws():
    sizes = {"V": 11, "N": 1, "d": 14, "L": 1, "n_test": 1}
    gaussian, sphere, orthogonal, mixed = (
        realize(Point(**sizes, embedding=law, embedding_out=law_out), 0)
        for law, law_out in (
            ("gaussian", None),
            ("sphere", None),
            ("orthogonal", None),
            ("orthogonal", "gaussian"),
        )
    )
    lengths = np.linalg.norm(gaussian.Z_in, axis=1)
    assert_close(np.linalg.norm(sphere.Z_in, axis=1), np.ones(11), "float32")
    assert_close(sphere.Z_in * lengths[:, None], gaussian.Z_in, "float32")
    many = [realize(Point(**sizes), seed)[:2] for seed in range(20)]
    assert_close(np.std(many) * np.sqrt(14), 1.0, 0.04)
    for r in (orthogonal, mixed):
        rows = np.vstack([r.Z_in, r.z_trig, r.z_eos])
        assert np.array_equal(rows @ rows.T, np.eye(13))
    assert np.array_equal(orthogonal.Z_out @ orthogonal.Z_out.T, np.eye(11))


SAME = """
import hashlib
from jaxrecall import Point, realize
r = realize(Point(V=50, N=700, d=8, L=5, m=6, n_test=100, fresh_batches=True), 4)
parts = [(a.dtype.name, a.shape, a.tobytes()) for a in r if a is not None]
same = hashlib.sha256(repr(parts).encode()).hexdigest()
"""


def test_realize_does_not_depend_on_x64():
    here: dict[str, str] = {}
    exec(SAME, here)
    there = python(f"{SAME}\nprint(same)", JAX_ENABLE_X64="1")
    assert there.stdout.strip() == here["same"], there.stderr


@pytest.mark.system  # a process of its own compiles the full form with 64-bit types
def test_rows_do_not_depend_on_x64():
    """Of the form that a point so small needs; the form whose guard it fails is not
    compiled.
    """
    sizes = {"V": 20, "N": 700, "d": 8, "L": 5, "n_test": 100, "exact": "full"}
    code = f"from jaxrecall import *; print(simulate(Point(**{sizes}), 4))"
    there = python(code, JAX_ENABLE_X64="1")
    assert there.stdout.strip() == str(simulate(Point(**sizes), 4)), there.stderr


def test_threefry_must_be_partitionable():
    with (
        jax.threefry_partitionable(False),
        pytest.raises(UsageError, match=r"^jax_threefry_partitionable: got False"),
    ):
        realize(POINT, 4)


DRAWN = {
    "independent": POINT.replace(fresh_batches=True, streams="independent"),
    "pool": POINT.replace(pool=16, root_seed=3, d=60, embedding="orthogonal"),
    "mlp and batches": POINT.replace(steps=9, lr=0.1, batch=600),
    "more than are drawn at once": POINT.replace(
        **{"V": 70, "N": 4700, "L": 37, "tokens": "zipf", "label_noise": 0.1},
        embedding="equicorrelated(rho=0.3)",
    ),
}


@pytest.mark.parametrize("point", DRAWN.values(), ids=DRAWN)
def test_draws_in_a_vmapped_function_are_those_of_realize(point):
    @quickly
    @jax.vmap
    def drawn(seed):
        key = jax.random.fold_in(jax.random.key(point.root_seed), seed)
        return tuple(draws(point, key))

    seeds = np.array([4, 5], np.uint32)
    both = drawn(seeds)
    for i, seed in enumerate(seeds.tolist()):
        expected = realize(point, seed)
        for name, ours, theirs in zip(expected._fields, both, expected, strict=True):
            if theirs is None:
                assert ours is None, name
            elif theirs.dtype == np.int32:
                assert np.array_equal(np.asarray(ours)[i], theirs), name
                assert ours.dtype == theirs.dtype
            else:
                assert_close(np.asarray(ours)[i], theirs, "float32", of=name)


def test_points_of_many_sizes_share_programs():
    drawn_by = realization._tokens, realization._padded, realization._permutation
    realize(Point(V=20, N=600, d=12, L=4, m=3, pool=3), 0)
    before = [program._cache_size() for program in drawn_by]
    realize(Point(V=33, N=900, d=40, L=9, m=64, pool=7), 1)
    assert [program._cache_size() for program in drawn_by] == before
