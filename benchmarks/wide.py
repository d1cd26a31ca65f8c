"""python -m benchmarks.wide: measures what limits a wide layer with a pool, on one
core.

The table compares the time of a run with the time of its hidden units alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrecall import Point
from jaxrecall.model.activations import Activation, activations
from jaxrecall.model.laws import find_law
from jaxrecall.model.point import Run
from jaxrecall.simulator import program
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.simulator.sources.pool_cost import products_of_steps

SIZES = {"V": 512, "d": 64, "L": 8, "m": 1024, "pool": 256, "N": 2**24}
REST = {
    "n_test": 1024,
    "eta": 1e-6,
    "kappa": 1e6,
    "embedding": "sphere",
    "trigger_in_value": False,
}
TRIES = 5


def fastest(call: Callable[[], Any]) -> float:
    """The seconds of the fastest of several calls, after a first call that compiles."""
    jax.block_until_ready(call())
    times = []
    for _ in range(TRIES):
        start = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - start)
    return min(times)


def seconds_of_run(activation: str) -> float:
    """The seconds of a run of this package."""
    point = Point(**SIZES, **REST, activation=activation)
    compiled = program.compiled(Shape.tight(point))
    return fastest(lambda: program.execute(compiled, [Run(point, 0)]))


def seconds_of_units(activation: str, V: int, K: int, m: int) -> float:
    """The least seconds of the hidden units of steps 1 and 2, over V K pairs with m
    units each.

    For an activation with coefficients, this is the time of as many matrix products.
    For any other, it is the time of two passes, each of which forms the units of each
    token, activates them and sums over the pool.
    """
    law = find_law(Activation, activation)
    coefficients = law.coefficients(jnp)
    weights, own, noise = (
        jax.random.normal(jax.random.key(i), shape)
        for i, shape in enumerate([(V, K), (V, m), (K, m)])
    )
    if coefficients:
        product = jax.jit(lambda a, b: a @ b)
        return products_of_steps(len(coefficients) - 1) * fastest(
            lambda: product(weights, noise)
        )

    def token(noise: jax.Array, rows: Any) -> tuple[jax.Array, jax.Array]:
        u, weight = rows
        act, _ = law.value_and_slope(u[None] / 8 + noise, jnp, jax.scipy.special.erf)
        return noise, weight @ act

    one_pass = jax.jit(
        lambda own, noise, weights: jax.lax.scan(token, noise, (own, weights))[1]
    )
    return 2 * fastest(lambda: one_pass(own, noise, weights))


def main() -> None:
    print(", ".join(f"{name} = {value}" for name, value in SIZES.items()))
    print("| activation | run, s | its hidden units alone, s |\n| --- | --- | --- |")
    for activation in activations():
        units = seconds_of_units(activation, SIZES["V"], SIZES["pool"], SIZES["m"])
        print(
            f"| {activation} | {seconds_of_run(activation):.3f} | {units:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
