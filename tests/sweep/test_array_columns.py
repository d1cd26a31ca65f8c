"""Columns that are arrays: one list a row, which the name of an axis spreads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import assert_close

import jaxrecall
from jaxrecall.errors import UsageError

ARRAYS = {"task_loss": "task"}


def parities(key, *, width, N, n_tasks=3):
    tasks = jnp.arange(1, n_tasks + 1, dtype=jnp.float32)
    noise = 0.01 * jax.random.uniform(key, (n_tasks,))
    loss = jnp.exp(-width / tasks) + 1 / N + noise
    return {"loss": loss.mean(), "task_loss": loss}


def swept(out=None, fn=parities, arrays=ARRAYS, **axes):
    axes = {"width": [1.0, 2.0, 4.0], "N": [10.0, 1000.0]} | axes
    return jaxrecall.run(
        fn,
        axes=axes,
        static="n_tasks",
        measure="loss",
        arrays=arrays,
        seeds=6,
        out=out,
        progress=False,
    )


def test_an_array_is_saved_and_spread_as_a_further_axis(tmp_path):
    frame = swept(tmp_path / "out")
    assert frame["task_loss"].map(len).eq(3).all()
    assert_close(frame["task_loss"].map(np.mean), frame["loss"], "float32")
    long = frame.explode("task_loss", ignore_index=True)
    long["task"] = long.groupby(["point_id", "seed"]).cumcount() + 1
    long["task_loss"] = long["task_loss"].astype(float)
    assert len(swept(tmp_path / "out")) == len(frame), "no run is repeated"

    found = jaxrecall.fit.fit(
        long, 0.3, along="width", of="task_loss", axes=["N", "task"]
    ).thresholds
    first = found.set_index(["N", "task"])["critical"]
    assert 1.1 < first[1000, 1] < 1.5
    assert first[1000, 2] > 1.8 * first[1000, 1]
    drawn = jaxrecall.plot.figure(long, "task_loss", x="width", lines="task", rows="N")
    assert len(drawn.axes[0].lines) == 3


def test_the_long_form_and_rows_of_several_steps_have_arrays():
    def descend(point, key):
        steps = jnp.array([1, 10])
        each = 1 / (steps[:, None] + jnp.arange(3)[None]).astype(jnp.float32)
        return {"step": steps, "loss": each.mean(axis=1), "each": each}

    columns = {"loss": (float, "mean"), "each": (float, "of a class", "class_")}
    fields = {"d": (int, 1, 1, 9, "traced")}
    long_form = jaxrecall.Simulator(descend, fields, columns, accuracy="loss")
    frame = jaxrecall.run({}, simulator=long_form, progress=False)
    assert_close(frame["each"][1], [1 / 10, 1 / 11, 1 / 12], "float32")


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        ({}, "an array with a name for its axis"),
        ({"task_loss": "seed"}, "seed"),
        (3, "arrays"),
    ],
)
def test_an_array_without_a_name_for_its_axis_is_refused(arrays, named):
    with pytest.raises(UsageError, match=named):
        swept(arrays=arrays)
