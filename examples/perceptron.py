"""A simulator of one's own: how many samples does a perceptron need to learn a random
teacher in d dimensions?

python perceptron.py                                            # a sweep from Python,
    and N* for accuracy 0.8
jaxrecall sweep --grid perceptron.yaml --workers 2              # the same from a grid
    file that says simulator: perceptron:simulator
"""

import jax
import jax.numpy as jnp

import jaxrecall


def learned(point, key):
    """The student's overlap R with the teacher after N samples (x, sign teacher . x);
    it labels a new one right with 1 - arccos(R) / pi.
    """
    teacher = jax.random.normal(jax.random.fold_in(key, 0), (point.d,))

    def step(i, student):
        x = jax.random.normal(jax.random.fold_in(key, i + 1), (point.d,))
        y = jnp.sign(x @ teacher)
        if (
            point.rule == "perceptron"
        ):  # a static field: Python decides, once for each program
            y = jnp.where(y * (x @ student) > 0, 0.0, y)
        return student + point.rate * y * x

    student = jax.lax.fori_loop(0, point.N, step, jnp.zeros(point.d))
    overlap = student @ teacher / jnp.sqrt((student @ student) * (teacher @ teacher))
    return {
        "accuracy": 1 - jnp.arccos(jnp.clip(overlap, -1, 1)) / jnp.pi,
        "overlap": overlap,
    }


simulator = jaxrecall.Simulator(
    learned,
    fields={  # name: (type, default, low, high, "static" or "traced")
        "N": (int, None, 1, 10**9, "traced"),
        "d": (int, None, 1, 4096, "static"),
        "rate": (float, 1.0, 0.0, None, "traced"),
        "rule": (str, "perceptron", ("perceptron", "hebb"), None, "static"),
    },
    columns={  # name: (type, meaning)
        "accuracy": (
            float,
            "fraction of new samples that the student labels as the teacher does",
        ),
        "overlap": (float, "cosine between student and teacher"),
    },
    accuracy="accuracy",
)

GRID = {
    "name": "perceptron",
    "seeds": 32,
    "blocks": [{"axes": {"d": [8, 16, 32], "N": [16, 32, 64, 128, 256, 512]}}],
}

if __name__ == "__main__":
    df = jaxrecall.run(GRID, simulator=simulator)
    print(df.pivot_table("accuracy", "N", "d").round(3))
    search = {
        **GRID,
        "blocks": [{"axes": {"d": [8, 16, 32]}}],
        "search": {"axis": "N", "theta": 0.8, "from": 16, "to": 4096},
    }
    print(jaxrecall.thresholds(jaxrecall.run(search, seeds=200, simulator=simulator)))
