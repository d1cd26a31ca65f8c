"""A script as a user would write it: type checkers accept it, mypy in its strict mode,
and it runs.
"""

from pathlib import Path

import numpy as np

import jaxrecall
from jaxrecall import Point, Realization, ThreeStep


def label_margin(draws: Realization, learned: ThreeStep) -> float:
    """The mean over tokens of the logit of the right label minus the mean logit, with
    attention exactly on the token.
    """
    logits = (draws.Z_in + draws.z_trig) @ learned.V2.T @ draws.Z_out.T
    right = np.asarray(logits)[range(len(logits)), draws.perm]
    return float(right.mean() - logits.mean())


def n_finished(folder: Path, seeds: int) -> int:
    grid = {
        "base": {"V": 20, "L": 3, "n_test": 200},
        "blocks": [{"axes": {"d": [12], "N": [100, 600]}}],
    }
    try:
        rows = jaxrecall.run(grid, seeds=seeds, out=folder, workers=1, progress=False)
    except jaxrecall.Interrupted as stop:
        rows = stop.rows
    return len(rows)


point = Point(V=20, N=600, d=12, L=3, n_test=200)
accuracies: list[float] = [
    row["accuracy"] for row in jaxrecall.simulate(point, seed=[0, 1])
]
draws = jaxrecall.realize(point, seed=0)
learned = jaxrecall.three_step(draws, point)
print(
    label_margin(draws, learned) > 0,
    n_finished(Path("out"), seeds=2),
    len(jaxrecall.load("out", grid=point)),
)
