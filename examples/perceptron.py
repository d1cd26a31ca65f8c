"""A simulator of one's own: how many samples does a perceptron need to learn a random
teacher in d dimensions?

python perceptron.py                                            # a sweep from Python,
    and N* for accuracy 0.8
jaxrecall sweep --grid perceptron.yaml --workers 2              # the same from a grid
    file that says simulator: perceptron:simulator
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp

import jaxrecall
from jaxrecall import field


@jaxrecall.simulator(static="d", measure="accuracy")
def simulator(
    key,
    *,
    N: Annotated[int, field(low=1, high=10**9, meaning="samples")],
    d: Annotated[int, field(low=1, high=4096, meaning="dimensions")],
    rate: Annotated[float, field(low=0)] = 1.0,
    rule: Literal["perceptron", "hebb"] = "perceptron",
):
    """The student's overlap R with the teacher after N samples (x, sign teacher . x);
    it labels a new one right with 1 - arccos(R) / pi.
    """
    teacher = jax.random.normal(jax.random.fold_in(key, 0), (d,))

    def step(i, student):
        x = jax.random.normal(jax.random.fold_in(key, i + 1), (d,))
        y = jnp.sign(x @ teacher)
        if rule == "perceptron":  # texts are static: Python decides, once per program
            y = jnp.where(y * (x @ student) > 0, 0.0, y)
        return student + rate * y * x

    student = jax.lax.fori_loop(0, N, step, jnp.zeros(d))
    overlap = student @ teacher / jnp.sqrt((student @ student) * (teacher @ teacher))
    return {
        "accuracy": 1 - jnp.arccos(jnp.clip(overlap, -1, 1)) / jnp.pi,
        "overlap": overlap,
    }


AXES = {"d": [8, 16, 32], "N": [16, 32, 64, 128, 256, 512]}

if __name__ == "__main__":
    df = jaxrecall.run(simulator, axes=AXES, seeds=32)
    print(df.pivot_table("accuracy", "N", "d").round(3))
    search = {
        "blocks": [{"axes": {"d": [8, 16, 32]}}],
        "search": {"axis": "N", "theta": 0.8, "from": 16, "to": 4096},
    }
    print(jaxrecall.thresholds(jaxrecall.run(search, seeds=200, simulator=simulator)))
