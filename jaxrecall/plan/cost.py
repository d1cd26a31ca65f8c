"""What runs cost: counts of primitive operations, over the rates at which this machine was seen to do them.

Rates start from those of one 2-core x86-64 machine. Every sweep holds its measured batches against the counts and keeps what
it learned beside the compiled programs, so that the next plan and the next ETA are this machine's own.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np

from ..files import atomic_write
from ..simulator.shape import Shape
from ..simulator.work import PRIMITIVES, Amounts


@dataclass(frozen=True)
class Rates:
    """Operations per second of one run that has one core, field by field those of Amounts; and what it takes to get a program."""

    runs: float = 700.0
    normals: float = 2.0e8
    words: float = 8.0e8
    row_floats: float = 2.4e10
    lookups: float = 7.0e8
    scatters: float = 6.0e8
    exponentials: float = 2.5e9
    activations: float = 1.3e9
    logits: float = 1.4e9
    flops: float = 2.0e11
    decoded: float = 1.5e10
    compile_seconds: float = 3.5
    load_seconds: float = 1.0  # of one that was compiled before

    def seconds(self, amounts: Amounts) -> float:
        return sum(getattr(amounts, name) / getattr(self, name) for name in PRIMITIVES)

    def fitted(self, measured: Sequence[tuple[Amounts, float]]) -> Rates:
        """Rates that explain measured (amounts, seconds) best: least squares of relative errors, drawn to the present ones."""
        if not measured:
            return self
        now = np.array([getattr(self, name) for name in PRIMITIVES])
        share = np.array([amounts for amounts, _ in measured]) / now / np.array([[seconds] for _, seconds in measured])
        weight, pull = len(measured) ** -0.5, 0.03
        A = np.concatenate([weight * share, pull * np.eye(len(PRIMITIVES))])
        b = np.concatenate([np.full(len(measured), weight), np.full(len(PRIMITIVES), pull)])
        slower = np.linalg.lstsq(A, b)[0].clip(0.05, 20.0)
        return replace(self, **dict(zip(PRIMITIVES, map(float, now / slower), strict=True)))


def cache_folder() -> Path | None:
    """Where compiled programs and measured rates are kept: $JAXRECALL_CACHE (empty: nowhere), else jaxrecall in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.environ.get("JAXRECALL_CACHE", os.path.join(home, "jaxrecall"))
    return Path(folder) if folder else None


def node_cache() -> str:
    """A cache folder on this node's own disk, for workers whose home may be on the network; none if another user holds its name."""
    folder = Path(tempfile.gettempdir(), f"jaxrecall-{os.getuid()}")
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid == os.getuid():
            return str(folder)
    return ""


@dataclass(frozen=True)
class Calibration:
    """What this machine has shown: its rates, and the programs that are compiled already."""

    rates: Rates = Rates()
    programs: frozenset[Shape] = frozenset()

    def seconds_to_get(self, shape: Shape) -> float:
        return self.rates.load_seconds if shape in self.programs else self.rates.compile_seconds

    def after(self, measured: Sequence[tuple[Amounts, float]], compiled: Mapping[Shape, float | None]) -> Calibration:
        """With batches that were measured, and programs: the seconds each took to compile, None if it was only loaded."""
        rates = self.rates.fitted(measured)
        if times := [seconds for seconds in compiled.values() if seconds is not None]:
            rates = replace(rates, compile_seconds=sum(times) / len(times))
        return Calibration(rates, self.programs | set(compiled))

    def keep(self) -> None:
        """Keeps it for the next plan; where that is not possible, that plan is as good as this one was."""
        if path := _calibration_file():
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                known = {"rates": asdict(self.rates), "programs": [astuple(b) for b in sorted(self.programs)]}
                atomic_write(path, json.dumps(known).encode())

    @staticmethod
    def kept() -> Calibration:
        """What was kept last, or the usual rates and no programs."""
        path = _calibration_file()
        with suppress(OSError, ValueError, TypeError, KeyError):
            known = json.loads(path.read_bytes() if path else b"")
            if all(isinstance(x, float) and x > 0 for x in known["rates"].values()):
                return Calibration(Rates(**known["rates"]), frozenset(Shape(*sizes) for sizes in known["programs"]))
        return Calibration()


def _calibration_file() -> Path | None:
    folder = cache_folder()
    return folder and folder / f"calibration-jax-{version('jax')}.json"


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
