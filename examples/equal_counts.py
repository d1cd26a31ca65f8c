"""Why N* grows as L^2: the recipe on samples in which each label occurs equally often.

jaxrecall sweep --grid equal_counts.yaml
"""

import jax.numpy as jnp

import jaxrecall
from jaxrecall import Point, draws, measure, rates, three_step


@jaxrecall.simulator(static=("N", "L", "V", "d"), measure="accuracy")
def equal_counts(
    key, *, N: int, L: int, V: int = 64, d: int = 64, counts_are_equal: bool = True
):
    """Accuracy after three steps with the trigger in the key only and a small first
    step. The informative tokens are 0, 1, ..., V - 1, 0, 1, ...: if V divides N,
    each label occurs N / V times. Noise tokens and tests are those of `simulate`.
    """
    point = Point(V=V, N=N, d=d, L=L, trigger_in_value=False, eta=1e-6, n_test=512)
    sample = draws(point, key)
    if counts_are_equal:
        informative = jnp.arange(N, dtype=sample.train_tokens.dtype) % V
        place = jnp.arange(N), sample.train_positions
        sample = sample._replace(
            train_tokens=sample.train_tokens.at[place].set(informative),
            train_labels=sample.perm[informative],
        )
    learned = three_step(sample, point, rates(point))
    measured = measure(sample, point, learned)
    columns = ("accuracy", "memory_accuracy", "attention_mass", "snr")
    return {name: measured[name] for name in columns}
