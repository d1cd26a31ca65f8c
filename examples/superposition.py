"""Toy superposition (Elhage et al., arXiv:2209.10652): 20 sparse features are stored in
m dimensions, and read as relu(W^T W x + b).
"""

import jax
import jax.numpy as jnp
import optax

import jaxrecall

FEATURES = 20


@jaxrecall.simulator(measure="represented")
def superposition(key, *, m: int, active: float, updates: int = 1500):
    """The fraction of features whose column of W is longer than 1/2. A feature is
    uniform in [0, 1] with probability `active`, else 0; feature i weighs 0.9^i in the
    squared error.
    """
    is_dimension = (jnp.arange(FEATURES) < m)[:, None]  # so one program serves all m

    def loss(trained, x):
        W = jnp.where(is_dimension, trained["W"], 0.0)
        read = jax.nn.relu(x @ W.T @ W + trained["b"])
        return ((read - x) ** 2 @ 0.9 ** jnp.arange(FEATURES)).mean()

    def batch_of(step):
        keys = jax.random.split(jax.random.fold_in(key, step))
        is_active = jax.random.uniform(keys[0], (128, FEATURES)) < active
        return is_active * jax.random.uniform(keys[1], (128, FEATURES))

    normal = jax.random.normal(jax.random.fold_in(key, updates), (FEATURES, FEATURES))
    trained = {"W": normal / FEATURES**0.5, "b": jnp.zeros(FEATURES)}
    trained, _ = jaxrecall.train(loss, trained, batch_of, optax.adam(0.01), updates)
    W = jnp.where(is_dimension, trained["W"], 0.0)
    lengths = jnp.linalg.norm(W, axis=0)
    return {"represented": jnp.mean(lengths > 0.5), "per_dimension": (W**2).sum() / m}
