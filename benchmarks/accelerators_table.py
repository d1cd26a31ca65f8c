"""Writes results/accelerators.md from the record of `accelerators`.

The tables compare the memory that compilers reserve for a run with the planner's
formula.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxrecall.simulator.cost import peak_bytes
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.sweep.files import atomic_write

from .record import table
from .variants import name

COUNTED = {
    "fusions": "fusion",
    "loops": "while",
    "branches": "conditional",
    "scatters": "scatter",
    "gathers": "gather",
    "products": "dot|convolution",
    "collectives": (
        "(?:all|ragged)-[a-z-]+|collective-[a-z-]+|reduce-scatter(?:-[a-z]+)?|send|recv"
    ),
}
"""Count -> a pattern for the names of the operations in an optimised program."""

HEAD = """# Compiled for accelerators

Written by `make accelerators`. The programs were compiled on a machine without accelerators. Nothing was run, so there are no speeds
here. JAX compiles for a device that is not there, if the wheel with its compiler is installed. The command installs `jax[tpu]` and
`jax[cuda12]` into environments of their own (`.venv-tpu` and `.venv-cuda`, seven gigabytes), compiles every variant of the programs
for a TPU v4, v5e and v6e and for an H100. A test fails if a program needs a collective operation. Programs whose code has not changed are
not compiled again.

- `vmapped` is how many runs a device computes at a time; a run's share of the memory is given.
- `temporaries` is what the compiler reserves for a run besides its arguments. `planned` is the formula that the planner starts from.
- `CPU s` is the CPU time of the compilation, which does not depend on what else the machine does.
- The other columns count operations in the optimised program. A collective would make devices wait for each other: there is none.

## How runs share an accelerator

Many runs are computed at a time, by `jax.vmap`. The rows are those of a CPU within float tolerance; the tests force this path on a CPU
and compare.

- **Loops are shared.** Runs differ in N, L and V. All go through the longest loop, and masks leave the others as they are. If every
  run ended its loop by itself, each iteration would copy all that the loop carries.
- **Counting tokens** takes 16 positions of a sequence per iteration where a CPU takes one.
- **Tiles.** The device reads about 131,072 samples at a time: 2048 of each of 64 runs, or 8192 of each of 16.
- **Branches** that differ between runs cost both sides. A run with locked attention reads no samples in the branch for open attention.
- **Memory.** As many runs are vmapped as were asked or as make up half a second's work, if two batches fit into memory. The planner
  starts from its formula, then takes what the compiler says (`memory_analysis`), and halves the number of runs while that is too much.

In the attention-only program for 64 runs on an H100 (V 256, d 128), for one tile of samples with L = 32:

| | each run ends its own loops | shared loops |
| --- | ---: | ---: |
| operations started in the loops over positions of the three steps | 480 | 82 |
| V x V tables of counts copied for each run | 64 | 0 |
| temporary memory of a run | 1.64 MiB | 1.44 MiB |

What is left: a TPU adds to scattered places one after the other, and the programs of the attention-only form have six scatters. Where
draws are Gaussian for some runs of a batch and counted one by one for others, both are computed for all.
"""  # noqa: E501


HEADS = ("variant", "size", "vmapped", "CPU s", "arguments", "temporaries", "planned")
HEADS += ("planned / temporaries",)


def write(record: Path) -> None:
    """Writes the tables beside the record."""
    text = page(json.loads(record.read_text()))
    atomic_write(record.with_suffix(".md"), text.encode())


def page(record: Mapping[str, Any]) -> str:
    """Returns the tables in Markdown."""
    parts = [HEAD.strip()]
    of_target: dict[str, list[dict[str, Any]]] = {}
    for entry in record.values():
        of_target.setdefault(entry["target"], []).append(entry)
    for target, entries in of_target.items():
        versions = ", ".join(dict.fromkeys(f"jax {entry['jax']}" for entry in entries))
        rows = table((*HEADS, *COUNTED), map(cells, entries), 2)
        about = f"{len(entries)} programs; {entries[0]['device_kind']}; {versions}"
        parts += [f"## {target}", about, "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def cells(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    shape, reserved, assumed = shape_of(entry), entry["temp_bytes"], planned(entry)
    return (
        name(shape),
        shape,
        entry["width"],
        f"{entry['cpu_seconds']:.0f}",
        f"{entry['argument_bytes']} B",
        f"{reserved / 2**20:.2f} MiB",
        f"{assumed / 2**20:.2f} MiB",
        f"{assumed / reserved:.2f}",
        *(entry[count] for count in COUNTED),
    )


def planned(entry: Mapping[str, Any]) -> int:
    """The bytes that the planner assumes for a run of the entry."""
    return peak_bytes(shape_of(entry).vmapped(entry["width"]))


def shape_of(entry: Mapping[str, Any]) -> Shape:
    """The shape of the entry, with tuples in place of JSON's lists. A field without
    a value has its default.
    """
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in entry["shape"].items()
        if value not in (None, "")
    }
    return Shape(**values)
