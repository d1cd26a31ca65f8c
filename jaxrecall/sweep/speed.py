"""How long this machine takes, compared with the estimates.

Estimates are those of a usual machine. Every sweep measures this machine, and keeps the
result beside the compiled programs. Only times that are shown depend on it: programs
and shares of a grid are the same on every machine.
"""

from __future__ import annotations

import json
import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..cli.program_cache import OF_JAX, folder_of_programs, program_cache

FILE = f"speed-{platform.node()}.json"
"""The name of the file beside the compiled programs."""

LEAST_SECONDS = 2.0
"""The shortest time from which the speed of a machine is measured."""

MOST = 10.0
"""The largest factor that is kept. A sweep that takes longer was suspended, or repeated
runs for which memory was short, so its time says little about the next sweep.
"""


class Slowness(NamedTuple):
    """The times of this machine, divided by those of a usual one."""

    run: float = 1.0
    compile: float = 1.0


USUAL = Slowness()


def slowness() -> Slowness:
    """Returns what earlier sweeps have measured here, or USUAL if there were none."""
    with suppress(OSError, ValueError, TypeError):
        run, compile = json.loads(Path(folder_of_programs(), FILE).read_text("utf-8"))
        return Slowness(float(run), float(compile))
    return USUAL


def learn(**measured: tuple[float, float]) -> None:
    """Keeps the geometric mean of old and new factors, for later estimates.

    Each argument is a measured and an estimated number of seconds. Nothing is kept if
    programs are not.
    """
    before, factors = slowness(), {}
    for name, (seconds, estimate) in measured.items():
        if seconds >= LEAST_SECONDS and estimate:
            factor = min(seconds / estimate, MOST)
            if before is not USUAL:
                factor = (factor * getattr(before, name)) ** 0.5
            factors[name] = factor
    # nothing is written where others could place a link
    folder = program_cache(os.environ.get(OF_JAX)).folder
    if factors and folder:
        with suppress(OSError):
            text = json.dumps(before._replace(**factors))
            Path(folder, FILE).write_text(text, "utf-8")
