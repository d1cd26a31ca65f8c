"""Programs for accelerators: they lower for all platforms, they were compiled for real
ones, and what they reserve bounds their width.
"""

import itertools
import json
import re

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from benchmarks.accelerators import RECORD, SIZE, TARGETS, WIDTH
from benchmarks.accelerators_table import page, planned
from benchmarks.variants import further, name, variants
from jaxrecall.simulator import program
from jaxrecall.simulator.forms import FORMS
from jaxrecall.simulator.program_shape import VMAPPED_SAMPLES, Shape

ENTRIES = json.loads(RECORD.read_text())
COLLECTIVE = re.compile(r"stablehlo\.(?:all_|collective_|reduce_scatter|send|recv)")


OFTEN = "pool with gelu MLP diagnose"
"""Its program has those of plain runs, of a pool and of an MLP in it."""

SHAPES = [
    pytest.param(shape, marks=() if name(shape) == OFTEN else pytest.mark.slow)
    for shape in variants(16) + further(16)
]


@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_every_variant_lowers_for_cpu_cuda_and_tpu(shape):
    device = Mesh(np.array(jax.local_devices()[:1]), ("run",))
    run, arguments = program.batch_function(shape, 2, device, vmapped=True)
    lowered = jax.export.export(run, platforms=["cpu", "cuda", "tpu"])(*arguments)
    assert not COLLECTIVE.search(lowered.mlir_module())


def test_the_variants_have_every_form():
    shapes = variants(16)
    assert {shape.form for shape in shapes} == set(FORMS)
    assert len(set(shapes)) == len(shapes) == 22


def test_the_tile_is_limited_only_where_samples_have_arrays():
    counts = Shape(1024, 128, 0, "none", "counts").vmapped(1)
    full = Shape(1024, 128, 0, "none", "full").vmapped(1)
    assert counts.tile == VMAPPED_SAMPLES
    assert full.tile * 1024 == 2**22


def test_the_page_is_that_of_the_record():
    known = {
        f"{target}, {name(shape)}, {shape}, {WIDTH}"
        for target in itertools.chain(*TARGETS.values())
        for shape in (*variants(SIZE), *further(SIZE))
    }
    assert set(ENTRIES) <= known
    assert RECORD.with_suffix(".md").read_text() == page(ENTRIES), "make accelerators"


def test_compiled_programs_have_no_collective_and_reserve_little_more_than_planned():
    """The number of vmapped runs is then reduced by what the compiler says; a formula
    far too low would compile many times.
    """
    for key, entry in ENTRIES.items():
        assert entry["collectives"] == 0, key
        reserved = entry["temp_bytes"] + entry["argument_bytes"]
        assert 0.8 * reserved <= planned(entry) <= 40 * entry["temp_bytes"], key


@pytest.mark.slow
def test_a_program_that_reserves_more_than_half_of_a_device_has_fewer_runs(monkeypatch):
    """As on an accelerator, and with memory for two batches of four runs but not for
    two of eight.
    """
    shape = Shape(16, 16, 0, "none", "counts", tile=512)
    four = program.compiled(shape, 4, vmapped=True)
    monkeypatch.setattr(
        program, "memory_of_device", lambda: 2 * program.reserved_bytes(four.run)
    )
    assert program.compiled(shape, 8, vmapped=True).batch == 4
    assert program.compiled(shape, 4, vmapped=True) is four
