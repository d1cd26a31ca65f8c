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
    loaded = jaxrecall.load(tmp_path / "out", explode="task")
    long = jaxrecall.explode(frame, "task")
    assert long.equals(loaded)
    assert long["task"].tolist() == [1, 2, 3] * len(frame)
    assert long.attrs["axes"] == ["width", "N", "task"]
    assert len(swept(tmp_path / "out")) == len(frame), "no run is repeated"

    found = jaxrecall.fit.fit(long, 0.3, along="width", of="task_loss").thresholds
    first = found.set_index(["N", "task"])["critical"]
    assert 1.1 < first[1000, 1] < 1.5
    assert first[1000, 2] > 1.8 * first[1000, 1]
    drawn = jaxrecall.plot.figure(long, "task_loss", x="width", lines="task", rows="N")
    assert len(drawn.axes[0].lines) == 3


def test_an_array_may_name_its_entries_and_follow_the_size_of_a_run():
    def named(key, *, width, N, n_tasks=3):
        return parities(key, width=width, N=N, n_tasks=n_tasks) | {
            "task": 10 * jnp.arange(n_tasks)
        }

    arrays = ARRAYS | {"task": "task"}
    long = jaxrecall.explode(
        swept(fn=named, arrays=arrays, n_tasks=[2, 4], width=[1.0]), "task"
    )
    assert long[long["n_tasks"] == 2]["task"].unique().tolist() == [0, 10]
    assert long[long["n_tasks"] == 4]["task"].unique().tolist() == [0, 10, 20, 30]


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


def test_an_axis_that_no_array_has_is_refused():
    with pytest.raises(UsageError, match=r"explode: got 'token'; allowed: .*task"):
        jaxrecall.explode(swept(), "token")
