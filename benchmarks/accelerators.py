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


def main(platform: str) -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # nothing runs on the accelerator
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    flags = os.environ.get("XLA_FLAGS", "")  # autotuning would time kernels on the GPU
    os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_autotune_level=0"
    from jax.experimental import topologies

    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for target, about in TARGETS[platform].items():
        devices = topologies.get_topology_desc(platform=platform, **about).devices
        for shape in (*variants(SIZE), *further(SIZE)):
            key = f"{target}, {name(shape)}, {shape}, {WIDTH}"
            entry = compiled(shape, devices, record.get(key, {}))
            if entry is not record.get(key):
                record[key] = {"target": target, **entry}
                text = json.dumps(record, indent=1)
                atomic_write(RECORD, f"{text}\n".encode())
                seconds, reserved = entry["cpu_seconds"], entry["temp_bytes"]
                print(key, f"CPU s {seconds}, temporary bytes {reserved}", flush=True)
            table.write(RECORD)


def compiled(shape: Shape, devices: Any, known: dict[str, Any]) -> dict[str, Any]:
    """Returns the resources that the compiler reserves for a program, and counts of
    operations.

    The program computes WIDTH vmapped runs on each device. Bytes are those of one
    run. If `known` has the same code and the same version of JAX, it is returned and
    nothing is compiled.
    """
    import jax
    import numpy as np
    from jax.sharding import Mesh

    from jaxrecall.simulator import program

    mesh = Mesh(np.array(devices), ("run",))
    run, arguments = program.batch_function(shape, WIDTH, mesh, vmapped=True)
    with jax.default_matmul_precision("highest"):
        lowered = run.lower(*arguments)
    code = hashlib.sha256(lowered.as_text().encode()).hexdigest()[:16]
    made_of = {"jax": jax.__version__, "code": code}
    if known.items() >= made_of.items():
        return known
    start, start_cpu = time.perf_counter(), time.process_time()
    done: Any = lowered.compile()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    memory, text = done.memory_analysis(), done.as_text()
    counts = {
        what: len(re.findall(rf"\s(?:{operations})\(", text))
        for what, operations in table.COUNTED.items()
    }
    sizes = {each.name: getattr(shape, each.name) for each in fields(shape)}
    del sizes["tile"]
    return {
        "shape": {field: plain(value) for field, value in sizes.items()},
        "width": WIDTH,
        "device_kind": devices[0].device_kind,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
        "temp_bytes": memory.temp_size_in_bytes // WIDTH,
        "argument_bytes": memory.argument_size_in_bytes // WIDTH,
        "output_bytes": memory.output_size_in_bytes // WIDTH,
        **counts,
        **made_of,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
