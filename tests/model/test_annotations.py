"""Shapes and dtypes that the records are annotated with hold wherever the tests make
one.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest
from helpers import drawn
from jaxtyping import TypeCheckError

from jaxrecall import Point, Realization, realize
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.simulator.world import Trained

POINT = Point(V=8, N=16, d=4, L=3, n_test=4)


@pytest.fixture(scope="module")
def r():
    return realize(POINT, 0)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("Z_out", lambda a: a[:, :3]),  # a d of its own
        ("z_trig", lambda a: a[None]),
        ("W_in", lambda _: np.zeros((5, 3), np.float32)),
        ("perm", lambda a: a.astype(np.float32)),
        # fresh batches for one of three arrays
        (
            "train_tokens",
            lambda a: np.stack([a] * 3),
        ),
        ("train_labels", lambda a: a[1:]),
        ("test_positions", lambda a: list(a)),
    ],
)
def test_a_wrong_array_of_a_realization_is_refused(r, field, change):
    with pytest.raises(TypeCheckError, match="checking the parameters of"):
        r._replace(**{field: change(getattr(r, field))})
    with pytest.raises(TypeCheckError):
        Realization(**{**r._asdict(), field: change(getattr(r, field))})


def test_a_realization_of_any_point_is_accepted(r):
    assert r._replace(Z_in=r.Z_in.astype(np.float64)).Z_in.dtype == np.float64
    fresh = realize(POINT.replace(m=5, fresh_batches=True), 0)
    assert (fresh.W_in.shape, fresh.train_tokens.shape) == ((5, 4), (3, 16, 3))


def test_a_wrong_array_of_the_simulator_is_refused():
    world = drawn(POINT, 0, Shape.sized(POINT, 32, 32, 0))
    V2 = world.e.Z_in  # (V, d), which fits no w but one of V numbers
    w, one = jax.device_put((np.zeros(len(V2), np.float32), np.float32(1)))
    trained = Trained(V2, w, V2, one, one, one)
    with pytest.raises(TypeCheckError):
        replace(trained, w=trained.w[1:])
    with pytest.raises(TypeCheckError):
        replace(world, perm=world.perm[1:])
    with pytest.raises(TypeCheckError):
        replace(world.e, z_eos=world.e.Z_in)
    with pytest.raises(TypeCheckError):
        replace(world.run, streams=np.zeros((9, 2), np.uint32))
