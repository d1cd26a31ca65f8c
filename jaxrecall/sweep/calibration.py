"""The time of runs: counts of primitive operations divided by the measured rates of this machine.

The default rates are those of one 2-core x86-64 machine. Every sweep keeps, beside the
compiled programs, how long the runs of each program took, and the next plan and the
next ETA use the rates that explain all programs that were measured on this machine. On
a CPU it learns from CPU time, which other programs hardly change. What another version
has learned is ignored.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ..cli.command import cache_folder
from ..model.training import TRAINS
from ..simulator.forms import FORMS
from ..simulator.shape import LIGHT_COMPILE, Shape
from .cost import PRIMITIVES, Amounts, Work, operations
from .files import atomic_write, read_json
from .machine import cores

TRAINING_COMPILE = 1.7
"""Time to compile a program of runs that train on, over that of one without further steps."""


@dataclass(frozen=True)
class Rates:
    """Operations per second of a run on one core, with the fields
    of Amounts; and the seconds to compile or load a program.
    """

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

    def on_all_cores(self, amounts: Amounts) -> float:
        """Seconds of wall time if all cores of this machine share the work, except that
        of decoders: they run on the host, where Python's lock lets one thread work at a
        time."""
        alone = amounts.decoded / self.decoded
        return (self.seconds(amounts) - alone) / cores() + alone

    def fitted(self, measured: Sequence[tuple[Amounts, float]]) -> Rates:
        """Rates that best explain measured (amounts, seconds): all faster or slower by
        one factor, then each by one of its own.

        Least squares of relative errors, regularised: what few programs cannot tell
        apart stays as it is.
        """
        if not measured:
            return self
        now = np.array([getattr(self, name) for name in PRIMITIVES])
        share = np.array([amounts for amounts, _ in measured]) / now / np.array([[seconds] for _, seconds in measured])
        common = np.exp(-np.log(share.sum(axis=1)).mean())
        weight, pull = len(measured) ** -0.5, 0.1
        A = np.concatenate([weight * common * share, pull * np.eye(len(PRIMITIVES))])
        b = np.concatenate([np.full(len(measured), weight), np.full(len(PRIMITIVES), pull)])
        slower = common * np.linalg.lstsq(A, b)[0].clip(0.05, 20.0)
        return replace(self, **dict(zip(PRIMITIVES, map(float, now / slower), strict=True)))


Measured = Mapping[Shape, tuple[Amounts, float]]
"""The operations of the runs that programs have made, and the seconds that they took."""


def add_times(to: dict[Shape, tuple[Amounts, float]], new: Measured) -> None:
    """Adds the operations and seconds of the programs in `new`."""
    for shape, (amounts, seconds) in new.items():
        before, so_far = to.get(shape, (Amounts(), 0.0))
        to[shape] = before + amounts, so_far + seconds


CAUTION = 2.0
"""How much longer than by default a machine may take to compile on which nothing was ever compiled."""

REMEMBERED = 64
"""Programs whose times are kept: those that were measured last."""


def node_cache() -> str:
    """A cache folder on this node's own disk, for workers whose
    home may be on the network; none if another user holds its name.
    """
    folder = Path(tempfile.gettempdir(), f"jaxrecall-{os.getuid()}")
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid == os.getuid():
            return str(folder)
    return ""


@dataclass(frozen=True)
class Calibration:
    """What was measured on this machine: its rates, the programs
    that are already compiled, and the times that the rates explain.
    """

    rates: Rates = Rates()
    programs: frozenset[Shape] = frozenset()
    measured: Measured = field(default_factory=dict)

    def seconds_to_get(self, shape: Any) -> float:
        """To compile or load a program; 0 for one of another simulator, of which nothing is known."""
        if not isinstance(shape, Shape):
            return 0.0
        return self.rates.load_seconds if shape in self.programs else self.rates.compile_seconds * _compile_share(shape)

    def compilation(self, programs: Iterable[Any]) -> float:
        """Seconds to get programs, for an estimate: cautious where none was ever compiled."""
        return sum(map(self.seconds_to_get, programs)) * (1.0 if self.programs else CAUTION)

    def after(self, measured: Measured, compiled: Mapping[Shape, float | None]) -> Calibration:
        """With the times of programs, and the seconds that each took to compile, None
        if it was only loaded.

        The rates are fitted anew to the last times of all programs: a grid of one kind
        must not spoil the rates of another.
        """
        new = {shape: times for shape, times in measured.items() if times[1] > 0}
        others = {shape: times for shape, times in self.measured.items() if shape not in new}
        known = dict([*others.items(), *new.items()][-REMEMBERED:])
        fitted = Rates().fitted(list(known.values()))
        rates = replace(fitted, compile_seconds=self.rates.compile_seconds, load_seconds=self.rates.load_seconds)
        if times := [seconds / _compile_share(shape) for shape, seconds in compiled.items() if seconds is not None]:
            # the geometric mean with earlier calls: one call on a busy machine must not decide all later estimates
            rates = replace(rates, compile_seconds=math.sqrt(rates.compile_seconds * sum(times) / len(times)))
        return Calibration(rates, self.programs | set(compiled), known)

    def keep(self) -> None:
        """Keeps it for the next plan, if the folder can be written."""
        if path := _calibration_file():
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                programs = [asdict(shape) for shape in sorted(self.programs)]
                measured = [
                    {"program": asdict(shape), "amounts": amounts._asdict(), "seconds": seconds}
                    for shape, (amounts, seconds) in self.measured.items()
                ]
                known = {"learned_by": learner(), "rates": asdict(self.rates), "programs": programs, "measured": measured}
                atomic_write(path, json.dumps(known).encode())

    @staticmethod
    def kept() -> Calibration:
        """What was kept last by this version, or the default rates
        and no programs. Programs of other fields are left out.
        """
        path = _calibration_file()
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            known = read_json(path) if path else {}
            programs = [shape for named in known["programs"] if (shape := _shape(named))]
            measured = {
                shape: (Amounts(**entry["amounts"]), entry["seconds"]) for entry in known["measured"] if (shape := _shape(entry["program"]))
            }
            numbers = [*known["rates"].values(), *(x for amounts, seconds in measured.values() for x in (float(sum(amounts)), seconds))]
            if known["learned_by"] == learner() and all(isinstance(x, float) and 0 < x < math.inf for x in numbers):
                return Calibration(Rates(**known["rates"]), frozenset(programs), measured)
        return Calibration()


def _shape(named: dict[str, Any]) -> Shape | None:
    """The shape of fields by name; None if they are not those of this version."""
    return Shape(**named) if named.keys() == {f.name for f in fields(Shape)} else None


def learner() -> dict[str, str]:
    """Who can use what is learned: this version of jaxrecall, and the cost model, named
    by a hash of what it counts.

    Where a form counts other operations than before, a rate that was fitted to the old
    counts would be wrong.
    """
    work = Work(*(1000 * i for i, _ in enumerate(Work._fields, 1)))
    recipe = [Shape(96, 48, m, "none", name, diagnose, not m, pool=32) for name in FORMS for m in (0, 64) for diagnose in (False, True)]
    later = [replace(recipe[0], pool=pool, optimizer="sgd", trains=trains) for pool in (0, 32) for trains in TRAINS]
    counted = [(shape.form, operations(shape, work)._asdict()) for shape in recipe + later]
    return {"jaxrecall": version("jaxrecall"), "cost_model": hashlib.sha256(repr(counted).encode()).hexdigest()[:12]}


def _compile_share(shape: Shape) -> float:
    """Time to compile the program, over that of one that is neither light nor trains on."""
    return (LIGHT_COMPILE if shape.light else 1.0) * (TRAINING_COMPILE if shape.optimizer else 1.0)


def _calibration_file() -> Path | None:
    folder = cache_folder()
    return folder and folder / f"calibration-jax-{version('jax')}.json"
