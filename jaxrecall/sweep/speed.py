"""How long this machine takes, compared with the estimates.

Estimates are those of a usual machine. Every sweep measures this machine, and keeps the
result beside the compiled programs. Only times that are shown depend on it: programs
and shares of a grid are the same on every machine.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ..cli.program_cache import OF_JAX, folder_of_programs, program_cache

FILE = f"speed-{platform.node()}.json"
"""The name of the file beside the compiled programs."""

LEAST_SECONDS = 2.0
"""The shortest time from which the speed of a machine is measured."""

MOST = 10.0
"""The largest factor that is kept. A sweep that takes longer was suspended, or repeated
runs for which memory was short, so its time says little about the next sweep.
"""


MAX_KEPT = 500
"""The largest number of factors that are kept."""

COMPILE, RUN = "compile", "run"


class Slowness(dict[str, float]):
    """The times of this machine, divided by those of a usual one.

    The key COMPILE is for compiling. RUN is for runs of all programs, and the label of
    a program is for its own runs. The latest keys are last. The dict is empty if no
    sweep has measured this machine.
    """

    def of(self, key: str) -> float:
        """The factor for COMPILE or for the runs of a program. If it was not measured,
        the factor is that of all runs.
        """
        return self.get(key, self.get(RUN, 1.0))


def slowness() -> Slowness:
    """Returns what earlier sweeps have measured here."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        factors = json.loads(Path(folder_of_programs(), FILE).read_text("utf-8"))
        return Slowness((name, float(factor)) for name, factor in factors.items())
    return Slowness()


def learn(
    run: tuple[float, float], compile: tuple[float, float], programs: Iterable[str]
) -> None:
    """Keeps the geometric mean of old and new factors, for later estimates.

    Nothing is kept if compiled programs are not.

    Args:
        run: the measured and the estimated number of seconds of all runs.
        compile: the same two numbers for compiling.
        programs: the labels of the programs of these runs.
    """
    factors = slowness()
    measured = {COMPILE: compile} | dict.fromkeys([RUN, *programs], run)
    for name, (seconds, estimate) in measured.items():
        if seconds >= LEAST_SECONDS and estimate:
            factor = min(seconds / estimate, MOST)
            before = factors.pop(name, factor)
            factors[name] = (before * factor) ** 0.5
    # nothing is written where others could place a link
    folder = program_cache(os.environ.get(OF_JAX)).folder
    if factors and folder:
        latest = dict(list(factors.items())[-MAX_KEPT:])
        with suppress(OSError):
            Path(folder, FILE).write_text(json.dumps(latest), "utf-8")
