"""Compiles every variant of the programs for accelerators that are not here.

The command is `python -m benchmarks.accelerators tpu`, or `cuda`. `make accelerators`
calls it in two environments whose wheels contain the compilers. The results are saved
in results/accelerators.json, and results/accelerators.md is written from that file. A
program is compiled again only if its code or the version of JAX has changed. Nothing is
run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

from jaxrecall.model.laws.law import plain
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.sweep.files import atomic_write

from . import accelerators_table as table
from .variants import further, name, variants

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "results/accelerators.json"

TARGETS = {
    "tpu": {
        "TPU v5e": {"topology_name": "v5e:2x2"},
        "TPU v4": {"topology_name": "v4:2x2x1"},
        "TPU v6e": {"topology_name": "v6e:2x2"},
    },
    "cuda": {
        "H100": {
            "target_config": Path(__file__).with_name("h100.textproto").read_text(),
            "topology": "1x1x1",
        }
    },
}
"""Platform -> accelerator -> its description for JAX."""

SIZE, WIDTH = 128, 16
"""V, d, m and pool of the programs, and the number of vmapped runs on each device.

A size of 128 fills the lanes of a TPU, which pads smaller sizes to 128.
"""

COMMON = [Shape(256, 128, 0, "none", "counts"), Shape(256, 128, 256, "relu", "uniform")]
"""Programs of a common size.

They are also compiled for COMMON_WIDTH vmapped runs, on the targets where that is
quick.
"""
COMMON_WIDTH = 64

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


def main(platform: str) -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # nothing runs on the accelerator
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ["XLA_FLAGS"] = (  # autotuning would time kernels on the GPU
        f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0"
    )
    from jax.experimental import topologies

    for target, about in TARGETS[platform].items():
        devices = topologies.get_topology_desc(platform=platform, **about).devices
        for key, (shape, width) in asked(target).items():
            known = recorded().get(key, {})
            entry = compiled(shape, width, devices, known)
            if entry["collectives"]:
                sys.exit(
                    f"{key}: {entry['collectives']} collectives; allowed: none, because"
                    " no run depends on another"
                )
            if entry is not known:
                atomic_write(
                    RECORD,
                    (
                        json.dumps(
                            {**recorded(), key: {"target": target, **entry}}, indent=1
                        )
                        + "\n"
                    ).encode(),
                )
                print(
                    key,
                    *(
                        f"{what} {entry[what]}"
                        for what in ("cpu_seconds", "temp_bytes")
                    ),
                    flush=True,
                )
            table.write(
                RECORD,
                [
                    key
                    for targets in TARGETS.values()
                    for target in targets
                    for key in asked(target)
                ],
            )


def asked(target: str) -> dict[str, tuple[Shape, int]]:
    """The programs to compile for an accelerator: key in the record -> (shape, width).

    The width is the number of vmapped runs on each device.
    """
    todo = [(shape, WIDTH) for shape in (*variants(SIZE), *further(SIZE))]
    if target in TARGETS["cuda"]:
        todo += [(shape, COMMON_WIDTH) for shape in COMMON]
    return {
        f"{target}, {name(shape)}, {shape}, {width}": (shape, width)
        for shape, width in todo
    }


def recorded() -> dict[str, dict[str, Any]]:
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def compiled(
    shape: Shape, width: int, devices: Any, known: dict[str, Any]
) -> dict[str, Any]:
    """Returns the resources that the compiler reserves for a program, and counts of
    operations.

    The program computes `width` vmapped runs on each device. Bytes are those of one
    run. If `known` has the same code and the same version of JAX, it is returned and
    nothing is compiled.
    """
    import jax
    import numpy as np
    from jax.sharding import Mesh

    from jaxrecall.simulator import program

    run, arguments = program.batch_function(
        shape, width, Mesh(np.array(devices), ("run",)), vmapped=True
    )
    with jax.default_matmul_precision("highest"):
        lowered = run.lower(*arguments)
    made_of = {
        "jax": jax.__version__,
        "code": hashlib.sha256(lowered.as_text().encode()).hexdigest()[:16],
    }
    if known.items() >= made_of.items():
        return known
    start, start_cpu = time.perf_counter(), time.process_time()
    done: Any = lowered.compile()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    memory, text = done.memory_analysis(), done.as_text()
    return {
        "shape": {
            field.name: plain(getattr(shape, field.name))
            for field in fields(shape)
            if field.name != "tile"
        },
        "width": width,
        "device_kind": devices[0].device_kind,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
        "temp_bytes": memory.temp_size_in_bytes // width,
        "argument_bytes": memory.argument_size_in_bytes // width,
        "output_bytes": memory.output_size_in_bytes // width,
        **{
            what: len(re.findall(rf"\s(?:{operations})\(", text))
            for what, operations in COUNTED.items()
        },
        **made_of,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
