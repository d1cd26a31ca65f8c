"""The simulators in examples/: the numbers of the package where they meet it, and
swept, killed, resumed and searched by real processes.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from helpers import ROOT, quickly
from pandas.testing import assert_frame_equal
from tolerances import assert_close, assert_same_columns

import jaxrecall
from jaxrecall.sweep.grid import read_grid

sys.path.append(str(ROOT / "examples"))
import heads
import subject_relation

SMALL = {"V": 16, "d": 16, "L": 4, "n_test": 256}
SHARED = ["accuracy", "attention_mass", "trigger_score", "score_std", "test_margin"]
NAMES = ["heads", "subject_relation"]


@pytest.fixture(autouse=True)
def fewer_samples(monkeypatch):
    for module in (heads, subject_relation):
        monkeypatch.setattr(module, "N_MAX", 1024)
    with jax.numpy_dtype_promotion("standard"):  # optax mixes types
        yield


def run(simulator, grid, **options):
    return jaxrecall.run(grid, simulator=simulator, progress=False, **options)


def own(base, **axes):
    return {"base": base, "blocks": [{"axes": axes}]}


@pytest.mark.parametrize(
    ("base", "axes"),
    [
        # the same code in another size
        pytest.param(
            {"V": 64, "d": 32, "L": 8},
            {"N": [100, 1000], "trigger_in_value": [True, False]},
            marks=pytest.mark.slow,
        ),
        (SMALL, {"N": [512, 1024], "kappa": [2.0, 100.0]}),
    ],
    ids=["default", "small"],
)
def test_one_head_without_positions_gives_the_rows_of_the_package(base, axes):
    """Same seed, same draws, same recipe; one side by jax.grad of the loss, the other
    by closed forms.
    """
    base = {"n_test": 1024} | base
    ours = jaxrecall.run(own(base | {"exact": "full"}, **axes), seeds=3, progress=False)
    theirs = run(heads.simulator, own(base, **axes), seeds=3)
    keys = [*axes, "seed"]
    theirs, ours = theirs.sort_values(keys), ours.sort_values(keys)
    assert_same_columns(theirs, ours, [*keys, *SHARED])
    assert ours["accuracy"].nunique() > 6


@pytest.mark.parametrize(
    ("optimizer", "lr"),
    [("sgd", 4.0), ("adam", 0.02)],
)
@pytest.mark.slow
def test_further_steps_are_those_of_the_package(optimizer, lr):
    base = SMALL | {"gamma2": 16.0, "optimizer": optimizer, "lr": lr}
    ours = jaxrecall.run(
        own(base | {"exact": "full", "steps": 23}, N=[512]), seeds=3, progress=False
    ).query("step == 23")
    theirs = run(heads.simulator, own(base | {"further": 20}, N=[512]), seeds=3)
    # adam magnifies gradients that are all rounding
    untouched = {"trigger_score", "score_std"} if optimizer == "adam" else set()
    for name in {*SHARED, "loss"} - untouched:
        assert_close(theirs[name], ours[name], "float32", of=name)


def point_of(simulator, **given):
    return simulator.point(given)


@pytest.mark.slow
def test_samples_beyond_N_are_not_read(monkeypatch):
    point = point_of(
        heads.simulator, **SMALL, N=500, H=2, positions="sinusoidal", kappa=2.0
    )

    def learned(point):
        return quickly(lambda key: heads.learned(point, key))(jax.random.key(1))

    few = learned(point)
    monkeypatch.setattr(heads, "N_MAX", 512)
    assert few["accuracy"] == pytest.approx(float(learned(point)["accuracy"]), abs=0.01)
    fewer = learned(point.replace(N=400))
    assert abs(float(fewer["test_margin"]) / float(few["test_margin"]) - 1) > 1e-3


def test_positions_and_value_maps_are_their_definitions():
    point = point_of(heads.simulator, N=1, d=6, L=5, positions="sinusoidal")
    angles = np.array([[j / 10000 ** (2 * i / 6) for i in range(3)] for j in range(5)])
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    key = jax.random.key(0)
    np.testing.assert_allclose(
        quickly(partial(heads.positions, point))(key), expected / 3**0.5, atol=1e-6
    )
    assert not quickly(partial(heads.positions, point.replace(positions="none")))(
        key
    ).any()
    random = quickly(
        partial(heads.positions, point.replace(positions="random", d=400))
    )(key)
    np.testing.assert_allclose(np.linalg.norm(random, axis=1), 1, atol=0.2)

    parts = quickly(partial(heads.value_maps, point.replace(H=3)))(key)
    assert parts.shape == (3, 2, 6)
    assert np.array_equal(parts.reshape(6, 6), np.eye(6))
    turned = np.asarray(
        quickly(partial(heads.value_maps, point.replace(H=3, d_head=4)))(key)
    )
    np.testing.assert_allclose(
        turned @ turned.transpose(0, 2, 1), np.stack([np.eye(4)] * 3), atol=1e-6
    )
    assert abs(turned[0] - turned[1]).max() > 0.1


def test_a_sequence_holds_one_subject_one_relation_and_their_answer():
    point = point_of(subject_relation.simulator, S=5, R=3, D=4, noise=7, L=6)
    answers = jnp.arange(15, dtype=jnp.int32).reshape(5, 3)
    words = jax.random.bits(jax.random.key(0), (3000, 10))
    tokens, r, right = quickly(
        jax.vmap(partial(subject_relation.sample, point, answers))
    )(words)
    subject, relation = tokens < 5, (tokens >= 5) & (tokens < 8)
    assert (subject.sum(1) == 1).all()
    assert (relation.sum(1) == 1).all()
    assert np.array_equal(tokens[relation] - 5, r)
    assert np.array_equal(tokens[subject] * 3 + r, right)
    pairs = np.bincount(
        np.argmax(subject, axis=1) * 6 + np.argmax(relation, axis=1), minlength=36
    ).reshape(6, 6)
    assert not pairs.diagonal().any()
    off = pairs[~np.eye(6, dtype=bool)]
    # chi-squared, 29 degrees of freedom, 0.1 %
    assert ((off - 100) ** 2 / 100).sum() < 58.3
    facts = np.bincount(right, minlength=15)
    assert ((facts - 200) ** 2 / 200).sum() < 36.1


@pytest.mark.slow  # what the example finds, not what it does
def test_relations_are_learned_before_facts_and_facts_with_width():
    rows = run(
        subject_relation.simulator,
        own({"S": 8, "R": 3, "D": 6}, d=[8, 32], updates=[0, 10, 400]),
        seeds=4,
    )
    found = rows.groupby(["d", "updates"])[["accuracy", "relation_accuracy"]].mean()
    assert found.loc[(8, 0), "accuracy"] < 0.15
    assert (
        found.loc[(32, 10), "relation_accuracy"] > found.loc[(32, 10), "accuracy"] + 0.1
    )
    assert (
        found.loc[(32, 400), "accuracy"] > 0.95 > found.loc[(8, 400), "accuracy"] + 0.1
    )


@pytest.mark.parametrize("name", NAMES)
def test_its_grid_is_read_and_is_small(name):
    grid = read_grid(ROOT / f"examples/{name}.yaml")
    assert grid.name == name
    assert len({point.program for point in grid.points}) <= 6
    assert grid.n_runs < 250
    assert len((ROOT / f"examples/{name}.py").read_text().splitlines()) <= 270


@pytest.mark.parametrize(
    ("simulator", "base", "theta"),
    [
        pytest.param(
            heads.simulator,
            SMALL | {"trigger_in_value": False},
            0.5,
            marks=pytest.mark.slow,
        ),
        (
            subject_relation.simulator,
            {
                "S": 8,
                "R": 2,
                "D": 2,
                "d": 16,
                "updates": 50,
                "batch": 32,
                "n_test": 128,
            },
            0.75,
        ),
    ],
    ids=NAMES,
)
def test_a_search_finds_critical_N(simulator, base, theta, tmp_path):
    search = {
        "base": base,
        "search": {"axis": "N", "theta": theta, "from": 4, "to": 1024, "width": 0.5},
    }
    found = jaxrecall.thresholds(run(simulator, search, seeds=40, out=tmp_path / "out"))
    assert list(found["outcome"]) == ["found"]
    assert 4 < found["lo"][0] < found["N_star"][0] < found["hi"][0] < 1024
    again = run(simulator, search, seeds=40, out=tmp_path / "out")
    assert_frame_equal(jaxrecall.thresholds(again), found)


@pytest.mark.system  # sweeps of several processes, some killed
@pytest.mark.parametrize("name", NAMES)
def test_workers_resume_after_a_kill_with_the_rows_of_one_process(name, tmp_path):
    for suffix in (".py", ".yaml"):
        shutil.copy(ROOT / f"examples/{name}{suffix}", tmp_path)
    grid = yaml.safe_load((tmp_path / f"{name}.yaml").read_text())
    grid["blocks"][0]["axes"] = {"N": [256, 512, 1024]} | (
        {"H": [1, 2]} if name == "heads" else {"d": [8, 16]}
    )
    grid["seeds"] = 24
    (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(grid))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def sweep(out, *options):
        command = [
            sys.executable,
            "-m",
            "jaxrecall.sweep",
            "--grid",
            f"{name}.yaml",
            "--out",
            out,
            *options,
        ]
        with open(tmp_path / "told", "w") as told:
            return subprocess.Popen(
                command, cwd=tmp_path, env=environment, stdout=told, stderr=told
            )

    def rows(out):
        return jaxrecall.load(tmp_path / out).drop(columns="seconds")

    def finished(process):
        code = process.wait(300)
        return code, (tmp_path / "told").read_text()

    code, told = finished(sweep("alone"))
    assert code == 0, told
    killed, parts = sweep("shared", "--workers", "2"), tmp_path / "shared/parts"
    deadline = time.monotonic() + 240
    while (
        not (parts.is_dir() and any(parts.iterdir()))
        and killed.poll() is None
        and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait(60)
    before = rows("shared")
    assert 0 < len(before) < 144, "killed too early or too late"
    code, told = finished(sweep("shared", "--workers", "2"))
    assert code == 0, told
    assert f"{len(before)} of 144 runs done" in told
    assert_frame_equal(rows("shared"), rows("alone"))
    assert (tmp_path / "shared/accuracy.png").stat().st_size > 5000
