"""The fast implementation of the model, which uses padded float32 arrays and streams
samples. The module `program` compiles the model for batches of runs.

`@jaxrecall.simulator(static=..., measure=...)` is a decorator, which makes a simulator
of a function of yours; `jaxrecall.sweep.simulators.function` explains its arguments:

    >>> import jax, jax.numpy as jnp, jaxrecall
    >>> @jaxrecall.simulator(static="d", measure="overlap")
    ... def cosine(key, *, d):
    ...     a, b = jax.random.normal(key, (2, d))
    ...     return {"overlap": jnp.abs(a @ b) / jnp.sqrt((a @ a) * (b @ b))}
    >>> df = jaxrecall.run(cosine, axes={"d": [4, 16]}, seeds=8)
"""
