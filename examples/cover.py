"""How many random patterns can a perceptron store? By Cover (1965) half of all
labellings of P patterns in N dimensions are separable at the load P / N = 2.
"""

import jax
import jax.numpy as jnp

import jaxrecall


@jaxrecall.simulator(static="N", measure="stored", rises={"load": False})
def cover(key, *, N: int, load: float, updates: int = 4000):
    """Whether one perceptron gives round(load N) patterns their random labels, for
    loads up to 4, within so many updates of the smooth perceptron (Soheili and Pena,
    2012): each adds a softmin over patterns in place of the one of smallest margin.
    """
    # Each row is a pattern times its label, stored if its margin is positive. All loads
    # draw the same number of patterns, so that one program serves them.
    patterns = jax.random.normal(key, (4 * N, N))
    patterns /= jnp.linalg.norm(patterns, axis=1, keepdims=True)
    is_in_run = jnp.arange(4 * N) < jnp.round(load * N)

    def softmin(weights, temperature):
        return jax.nn.softmax(-patterns @ weights / temperature, where=is_in_run)

    def update(k, state):
        weights, mix, temperature = state
        rate = 2 / (k + 3)
        weights_step = rate * mix + rate**2 / (1 - rate) * softmin(weights, temperature)
        weights = (1 - rate) * (weights + weights_step @ patterns)
        temperature *= 1 - rate
        mix = (1 - rate) * mix + rate * softmin(weights, temperature)
        return weights, mix, temperature

    weights = is_in_run @ patterns / is_in_run.sum()
    state = weights, softmin(weights, 2.0), 2.0
    weights, _, _ = jax.lax.fori_loop(0, updates, update, state)
    return {"stored": 1.0 * jnp.all(patterns @ weights > 0, where=is_in_run)}
