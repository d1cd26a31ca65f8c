"""Grokking (after arXiv:2301.02679): a network learns addition modulo p on its training
pairs long before it is right on others. jaxrecall sweep --grid grokking.yaml
"""

import jax
import jax.numpy as jnp
import optax

import jaxrecall


@jaxrecall.simulator(static=("p", "width"), measure="test_accuracy")
def grokking(key, *, share: float, decay: float = 0.1, p: int = 23, width: int = 128):
    """Accuracy on the share of all pairs that is trained on, and on the rest, after
    every 10 updates of AdamW on all training pairs at once. Activations are squares.
    """
    keys = jax.random.split(key)
    a, b = jnp.divmod(jnp.arange(p * p), p)
    is_trained = jax.random.permutation(keys[0], p * p) < share * p * p
    tables = jax.random.normal(keys[1], (3, p, width)) / width**0.5

    def logits(tables):
        return (tables[0][a] + tables[1][b]) ** 2 @ tables[2].T

    def loss(tables, _):
        cross_entropy = optax.softmax_cross_entropy_with_integer_labels
        return cross_entropy(logits(tables), (a + b) % p).mean(where=is_trained)

    step = 10 * jnp.arange(1, 101)
    optimizer = optax.adamw(0.01, weight_decay=decay)
    _, recorded = jaxrecall.train(loss, tables, lambda t: t, optimizer, 1000, step)
    is_right = jax.vmap(logits)(recorded).argmax(axis=2) == (a + b) % p
    return {
        "step": step,
        "train_accuracy": jnp.mean(is_right, axis=1, where=is_trained),
        "test_accuracy": jnp.mean(is_right, axis=1, where=~is_trained),
    }
