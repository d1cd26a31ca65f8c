"""Whether a folder takes rows of a simulator of one's own whose code has changed."""

import importlib
import json
import linecache
import sys
import threading
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers import process

import jaxrecall
from jaxrecall.errors import StoreError, UsageError

HELPERS = """
import numpy as np
RATES = np.arange(3.0)
def unit(x):
    return 1 + 0 * x
def late(x):
    return 1 + 0 * x
def unused(x):
    return x
"""
SIMULATOR = '''
import functools
import jaxrecall
import source_helpers
from source_helpers import RATES as renamed
GAIN, SPEED = 0.25, 0.1
KINDS = {"alpha", "beta", "gamma", "delta"}
class Base:
    offset = 0.0
class Model(Base):
    """A model."""
    def __init__(self, level):
        self.level = level
    @property
    def half(self):
        return lower(self.level)
    def __call__(self, power, point, key):
        """Returns a row."""
        return {"accuracy": self.half**power + shift(point.n) + self.offset}
@functools.cache
def lower(x):
    return x / 2
def make(width):
    def inner(n, scale=SPEED):
        from source_helpers import late
        known = len(KINDS) + renamed[1]
        return 0 * width * scale * known * late(n) * (lambda x: 1.0)(n)
    return inner
wide = make(3)
def shift(n):
    return GAIN * wide(n) * source_helpers.unit(n)
simulator = jaxrecall.Simulator(
    functools.partial(Model(0.5), 2), {"n": (int, 1, 0, 9, "static")},
    {"accuracy": (float, "a")}, "accuracy", jit=False)
'''
CHANGES = {
    "a constant": ("= 0.25,", "= 0.5,"),
    "a set": ('"delta"', '"epsilon"'),
    "a base class": ("offset = 0.0", "offset = 0.1"),
    "an attribute": ("Model(0.5)", "Model(0.25)"),
    "an argument of a partial": (", 2), {", ", 3), {"),
    "a cached helper": ("x / 2", "x / 4"),
    "a closure": ("make(3)", "make(4)"),
    "a default": ("0.25, 0.1", "0.25, 0.2"),
    "a lambda": ("lambda x: 1.0", "lambda x: 2.0"),
    "an imported array": ("arange(3.0)", "arange(1.0, 4.0)"),
    "an imported module": ("unit(x):\n    return 1 +", "unit(x):\n    return 2 +"),
    "a late import": ("late(x):\n    return 1 +", "late(x):\n    return 2 +"),
}
HARMLESS = {
    "a comment": ("    return x / 2", "    # half\n    return x / 2  # of it"),
    "a docstring": ('"""Returns a row."""', '"""Returns another."""'),
    "a new docstring": ("class Base:", 'class Base:\n    """A base."""'),
    "formatting": ("x / 2", "(\n        x/2\n    )"),
    "positions": ("GAIN, SPEED", "\n\nGAIN, SPEED"),
    "a function that is not used": ("    return x\n", "    return 2 * x\n"),
}


@pytest.fixture(autouse=True)
def folder(cwd, monkeypatch) -> Path:
    monkeypatch.syspath_prepend(str(cwd))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return cwd


def run(seeds, *change, **options):
    assert not change or change[0] in HELPERS + SIMULATOR
    for name, text in (("helpers", HELPERS), ("simulator", SIMULATOR)):
        changed = text.replace(*change) if change else text
        Path(f"source_{name}.py").write_text(changed)
        sys.modules.pop(f"source_{name}", None)
    linecache.checkcache()
    importlib.invalidate_caches()
    simulator = importlib.import_module("source_simulator").simulator
    grid = {"blocks": [{"axes": {"n": [1]}}]}
    return jaxrecall.run(
        grid, seeds=seeds, simulator=simulator, out="out", progress=False, **options
    )


@pytest.mark.parametrize("change", CHANGES)
def test_other_code_is_refused_until_it_is_said_to_be_the_same(change):
    run(1)
    with pytest.raises(StoreError, match="source_simulator:simulator, version 1, from"):
        run(2, *CHANGES[change])
    run(2, *CHANGES[change], same_source=True)
    assert len(run(3, *CHANGES[change])) == 3


@pytest.mark.parametrize("change", HARMLESS)
def test_a_change_that_computes_the_same_is_not_refused(change):
    run(1)
    assert len(run(2, *HARMLESS[change])) == 2


def test_rows_of_an_older_version_have_no_digest_and_are_added_to():
    run(1)
    (part,) = Path("out/parts").iterdir()
    table = pq.read_table(part)
    facts = json.loads(table.schema.metadata[b"jaxrecall"])
    facts["sources"] = facts.pop("digests")
    metadata = {b"jaxrecall": json.dumps(facts)}
    pq.write_table(table.replace_schema_metadata(metadata), part)
    Path("out/manifest.json").unlink()
    assert len(run(2, *CHANGES["a constant"])) == 2
    with pytest.raises(StoreError, match="from other source"):
        run(3)


def of_level(point, key, level, lock=None):
    return {"accuracy": level}


def level(fn, out=None, **options):
    """The accuracy of a simulator that no variable holds."""
    columns = {"accuracy": (float, "a")}
    simulator = jaxrecall.Simulator(fn, {}, columns, "accuracy", jit=False, **options)
    rows = jaxrecall.run({}, simulator=simulator, out=out, progress=False)
    return rows["accuracy"].item()


def test_two_partials_of_a_function_do_not_share_rows():
    low, high = partial(of_level, level=0.1), partial(of_level, level=0.9)
    assert [level(low), level(high)] == [0.1, 0.9]
    assert level(low, "out") == level(partial(of_level, level=0.1), "out") == 0.1
    with pytest.raises(StoreError, match="from other source"):
        level(high, "out")


def test_an_object_without_a_digest_needs_a_name():
    locked = partial(of_level, level=0.1, lock=threading.Lock())
    assert level(locked) == 0.1
    with pytest.raises(UsageError, match=r"cannot pickle '_thread.lock' object"):
        level(locked, "out")
    assert level(locked, "out", name="low") == 0.1
    assert set(jaxrecall.load("out")["simulator"]) == {"test_source:low"}


TYPED = """
import jaxrecall
def fn(point, key):
    inner = lambda: point.kind in {"alpha", "beta", "gamma", "delta"}
    return {"a": 0.5 if inner() else 0.1}
fields = {"kind": (str, "alpha", ("alpha", "other"), None, "static")}
sim = jaxrecall.Simulator(fn, fields, {"a": (float, "x")}, accuracy="a", jit=False)
print(len(jaxrecall.run({}, seeds=SEEDS, simulator=sim, out="typed", progress=False)))
"""


def test_code_without_a_file_resumes_in_any_process(folder):
    for n in "12":
        code = f"exec({TYPED.replace('SEEDS', n)!r})"
        done = process("-c", code, folder=folder, PYTHONHASHSEED=n)
        assert done.stdout == f"{n}\n"
