"""A simulator of one's own: a function of a point and a random key, swept as ours is."""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, make_dataclass
from dataclasses import fields as declared_fields
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ..errors import PointError, Problem, UsageError, shown, suggest
from ..model.point import MAX_SEED, Run, checked_value
from .calibration import Calibration
from .plan import CHUNK_RUNS, Chunk, Plan, Terms
from .settings import Settings

if TYPE_CHECKING:
    from .running.progress import Remarks, Traces
    from .running.recorder import Failure

TYPES = {int: "int64", float: "float64", bool: "bool", str: "string"}
"""Types of fields and columns, and their Arrow types."""

ARROW = {kind.__name__: arrow for kind, arrow in TYPES.items()}
WIDTH = 8
"""Runs that are vmapped together; fewer are filled up, so that each combination of static fields has one program."""

SECONDS = 0.01
"""What a run is said to take before any has run: sweeps of other simulators are not estimated."""

BEFORE = {
    "point_id": ("string", "hash of the point: equal ids mean equal simulator, version and fields"),
    "seed": ("int64", "seed of the run; the independent unit of any statistics"),
}
AFTER = {
    "step": ("int64", "1"),
    "steps": ("int64", "1"),
    "status": ("string", "ok; nonfinite: a number overflowed, and the columns of the simulator are null"),
    "seconds": ("float64", "wall time of the run without compilation; the time of a batch is divided by its runs"),
    "simulator": ("string", "module:name of the simulator"),
    "code_version": ("int64", "version of the simulator"),
    "jax_version": ("string", "version of JAX"),
    "device_kind": ("string", "device that it ran on, as JAX names it"),
    "precision": ("string", "precision of matrix products"),
}
RESERVED = (*BEFORE, *AFTER, "root_seed", "streams")


class Simulator:
    """A simulator of one's own, for `jaxrecall.run(grid, simulator=...)` and for `simulator: module:name` in a grid file.

    Args:
        fn: takes a point and a `jax.random` key, and returns a dict with a number for every column. The point has static fields as
            Python values and traced ones as arrays. The key follows from root_seed and seed; it is the same for every point unless the
            grid has `streams: independent`.
        fields: the parameters of a point, `name: (type, default, low, high, "static" or "traced")`. The type is int, float, bool or str;
            a default of None means that the grid must give it; low and high are limits, or None. A text has its allowed values in place
            of low. A static field may decide shapes; each combination of static values is compiled once.
        columns: what fn returns, `name: (type, meaning)`.
        accuracy: the column that is drawn, fitted and searched, a fraction.
        version: to be raised when numbers change: rows of two versions do not mix.
        jit: whether fn is compiled and vmapped over runs of equal static fields. With False it is called once for each run, and is plain
            Python.

    Raises:
        UsageError, with a line for everything that is wrong.

    Examples:
        >>> import jax, jax.numpy as jnp, jaxrecall
        >>> def overlap(point, key):
        ...     a, b = jax.random.normal(key, (2, point.d))
        ...     return {"accuracy": jnp.abs(a @ b) / jnp.sqrt((a @ a) * (b @ b))}
        >>> fields = {"d": (int, 16, 1, 4096, "static")}
        >>> cosine = jaxrecall.Simulator(overlap, fields, {"accuracy": (float, "|cosine| of two vectors")}, accuracy="accuracy")
        >>> df = jaxrecall.run({"blocks": [{"axes": {"d": [4, 16]}}]}, seeds=8, simulator=cosine)
    """

    def __init__(
        self,
        fn: Callable[[Any, Any], Mapping[str, Any]],
        fields: Mapping[str, tuple[type, Any, Any, Any, str]],
        columns: Mapping[str, tuple[type, str]],
        accuracy: str,
        version: int = 1,
        jit: bool = True,
    ):
        if lines := _problems(fn, fields, columns, accuracy, version):
            raise UsageError(lines)
        self.fn, self.accuracy, self.version, self.jit = fn, accuracy, version, bool(jit)
        self._module = sys._getframe(1).f_globals.get("__name__", "__main__")
        declared = {
            "root_seed": (int, 0, 0, MAX_SEED, "draws"),
            **fields,
            "streams": (str, "common", ("common", "independent"), None, "draws"),
        }
        made = [_declared(name, *given) for name, given in declared.items()]
        self.Point = make_dataclass("Point", made, bases=(CustomPoint,), frozen=True, kw_only=True, namespace={"simulator": self})
        self.fields: dict[str, Field[Any]] = {f.name: f for f in declared_fields(self.Point)}
        self.own_columns = {name: (TYPES[kind], meaning) for name, (kind, meaning) in columns.items()}
        of_point = {name: (ARROW[str(f.type)], f.metadata["legend"]) for name, f in self.fields.items()}
        self.columns: dict[str, tuple[str, str]] = BEFORE | of_point | self.own_columns | AFTER
        self._name = ""

    @property
    def name(self) -> str:
        """module:name. The module of a script is its file, so that the script and a grid file that names it share rows."""
        if not self._name:
            module: Any = sys.modules.get(self._module)
            file = getattr(module, "__file__", None) if self._module == "__main__" else None
            held = [name for name, value in vars(module).items() if value is self] if module else []
            self._name = f"{Path(file).stem if file else self._module}:{[*held, self.fn.__name__][0]}"
        return self._name

    def make_point(self, values: Mapping[str, Any]) -> CustomPoint:
        problems = [Problem(name, f"is no field{suggest(name, self.fields)}") for name in values if name not in self.fields]
        lacking = [name for name, f in self.fields.items() if f.default is MISSING and name not in values]
        if problems or lacking:
            raise PointError(problems + [Problem(name, "is given nowhere") for name in lacking])
        return self.Point(**values)

    def about(self) -> dict[str, Any]:
        return {"simulator": self.name, "fields": list(self.fields), "accuracy": self.accuracy}

    def plan(
        self,
        runs: Iterable[Run],
        settings: Settings,
        pad_to: Any = None,
        limit: int | None = None,
        calibration: Calibration | None = None,
    ) -> Plan:
        if pad_to:
            raise UsageError("--bucket: got with a simulator of your own; allowed: without it")
        groups: dict[Any, list[Run]] = {}
        for run in runs:
            groups.setdefault(cast(Any, run.point).program, []).append(run)
        pieces = [(program, group[i : i + CHUNK_RUNS]) for program, group in groups.items() for i in range(0, len(group), CHUNK_RUNS)]
        chunks = tuple(Chunk(program, tuple(piece), SECONDS * len(piece)) for program, piece in pieces)
        n_runs = sum(map(len, groups.values()))
        terms = CustomTerms(settings, limit or 0, Calibration(), None, n_runs, dict.fromkeys(groups, SECONDS), self)
        return CustomPlan(chunks, 0.0, SECONDS * n_runs, SECONDS * n_runs, terms)

    def plan_round(self, runs: Sequence[Run], settings: Settings, limit: int | None, program: Any, batch: int) -> Plan:
        return self.plan(runs, settings)

    def program(self, point: Any) -> Any:
        return point.program

    def seconds(self, point: Any, program: Any) -> float:
        return SECONDS

    def cost(self, runs: Sequence[tuple[Any, int]], program: Any) -> tuple[float, float]:
        return SECONDS * sum(n for _, n in runs), 0.0

    def runner(self, terms: Terms, remarks: Remarks) -> CustomRunner:
        return CustomRunner(self, terms, remarks)

    def problem_in_workers(self, points: Iterable[Any]) -> str | None:
        where = f"simulator: {self.name} "
        if self._module == "__main__":
            return f"{where}is made in __main__, which other processes cannot import; put it into a module"
        if getattr(sys.modules.get(self._module), self.name.partition(":")[2], None) is not self:
            return f"{where}is no variable of its module, so other processes cannot import it; give it a name there"
        return None

    def contents(self, points: Iterable[Any]) -> Mapping[str, Any]:
        return {}

    def __reduce__(self) -> Any:
        return named, (self.name,)

    def __repr__(self) -> str:
        return f"<simulator {self.name}, version {self.version}>"


def _problems(fn: Any, fields: Any, columns: Any, accuracy: Any, version: Any) -> list[str]:
    """What is wrong with the arguments of a simulator."""
    lines = [] if callable(fn) else [f"fn: got {shown(fn)}; allowed: a function of a point and a key"]
    if type(version) is not int or version < 1:
        lines.append(f"version: got {shown(version)}; allowed: whole numbers from 1")
    for path, name in [("fields", name) for name in fields] + [("columns", name) for name in columns]:
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
            lines.append(f"{path}: got the name {shown(name)}; allowed: letters, digits and _")
        elif name in RESERVED or hasattr(CustomPoint, name):
            lines.append(f"{path}.{name}: is reserved for the sweep; choose another name. Reserved: {', '.join(RESERVED)}")
        elif path == "columns" and name in fields:
            lines.append(f"columns.{name}: is a field, too; choose another name")
    types = "with int, float, bool or str as the type"
    for name, of in fields.items():
        if not isinstance(of, tuple) or len(of) != 5 or of[0] not in TYPES or of[4] not in ("static", "traced"):
            lines.append(f'fields.{name}: got {shown(of)}; allowed: (type, default, low, high, "static" or "traced"), {types}')
        elif of[0] is str and (of[4] != "static" or not isinstance(of[2], (tuple, list))):
            lines.append(f"fields.{name}: got {shown(of)}; allowed: a text is static, and has its allowed values in place of low")
    for name, of in columns.items():
        if not isinstance(of, tuple) or len(of) != 2 or of[0] not in TYPES:
            lines.append(f"columns.{name}: got {shown(of)}; allowed: (type, meaning), {types}")
    if accuracy not in columns or columns[accuracy][0] not in (float, int):
        lines.append(f"accuracy: got {shown(accuracy)}; allowed: a column of numbers: {', '.join(map(str, columns))}")
    return lines


def _declared(name: str, kind: type, default: Any, low: Any, high: Any, treated: str) -> tuple[str, str, Any]:
    """The name, type and declaration of a field, as those of our points."""
    most = 2**31 - 1 if kind is int and treated == "traced" else math.inf
    limits: dict[str, Any] = {"choices": lambda: tuple(low)} if kind is str else {}
    if kind in (int, float):
        limits = {"low": -most if low is None else low, "high": most if high is None else high}
    metadata = {"kind": treated, "symbol": "", "legend": name, **limits}
    return name, kind.__name__, field(default=MISSING if default is None else default, metadata=metadata)


class CustomPoint:
    """A point of a simulator of one's own."""

    simulator: ClassVar[Simulator]
    recorded_steps: ClassVar[tuple[int, ...]] = (1,)

    def __post_init__(self) -> None:
        problems: list[Problem] = []
        for name, f in self.simulator.fields.items():
            object.__setattr__(self, name, checked_value(name, getattr(self, name), str(f.type), f.metadata, problems))
        if problems:
            raise PointError(problems)

    @cached_property
    def point_id(self) -> str:
        """16 hex digits: a hash of the simulator, its version and all fields, floats to 12 significant digits."""
        values = {name: f"{value:.12g}" if isinstance(value, float) else value for name, value in self.as_given().items()}
        named = {"simulator": self.simulator.name, "version": self.simulator.version, "fields": values}
        return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:16]

    @cached_property
    def program(self) -> StaticProgram:
        """What is compiled for it."""
        static = [(name, getattr(self, name)) for name, f in self.simulator.fields.items() if f.metadata["kind"] == "static"]
        return StaticProgram(self.simulator.name, tuple(static))

    def as_given(self) -> dict[str, Any]:
        """Arguments that rebuild this point."""
        return {name: getattr(self, name) for name in self.simulator.fields}

    def replace(self, **changes: Any) -> CustomPoint:
        """A changed copy."""
        return self.simulator.make_point(self.as_given() | changes)

    def __reduce__(self) -> Any:
        return Simulator.make_point, (self.simulator, self.as_given())


@dataclass(frozen=True)
class StaticProgram:
    """A simulator at one combination of its static fields."""

    simulator: str
    static: tuple[tuple[str, Any], ...]
    peak_bytes: ClassVar[int] = 0
    fallback: ClassVar[None] = None

    def __str__(self) -> str:
        return " ".join([self.simulator, *(f"{name}={value}" for name, value in self.static)])


@dataclass(frozen=True)
class CustomTerms(Terms):
    """The terms of a plan of a simulator of one's own."""

    simulator: Simulator

    def seconds_of(self, run: Run, shape: Any) -> float:
        return SECONDS


class CustomPlan(Plan):
    """A plan whose cost nobody knows."""

    @property
    def peak_bytes(self) -> int:
        return 0

    def describe(self) -> list[dict[str, Any]]:
        found = []
        for program in self.shapes:
            mine = [chunk for chunk in self.chunks if chunk.shape == program]
            runs = [run for chunk in mine for run in chunk.runs]
            counts = {"points": len({run.point for run in runs}), "runs": len(runs), "chunks": len(mine)}
            found.append({"bucket": str(program), **counts, "est_seconds": SECONDS * len(runs), "est_peak_bytes": 0})
        return found


class CustomRunner:
    """Runs chunks of a simulator of one's own. Creating one starts JAX."""

    def __init__(self, simulator: Simulator, terms: Terms, remarks: Remarks):
        from ..simulator import vmapped

        vmapped.start()
        self.simulator, self.terms, self.remarks, self.vmapped = simulator, terms, remarks, vmapped
        self.measured: dict[Any, Any] = {}
        self.compiled: dict[Any, float | None] = {}
        self.width = WIDTH
        self.programs: dict[tuple[StaticProgram, int], Any] = {}

    def rows(self, chunk: Chunk) -> Iterator[tuple[list[Run], Traces | Failure]]:
        """Runs of the chunk and their rows, or how they failed; an exception while a program is made is raised.

        Where memory runs out, the batches are halved.
        """
        from .running.recorder import Failure

        left = list(chunk.runs)
        while left:
            width = self.width if self.simulator.jit else 1
            runs = left[:width]
            try:
                execute = self._compiled(chunk.shape, runs, width) if self.simulator.jit else self._called
                try:
                    start = time.perf_counter()
                    numbers = execute(runs)
                    seconds = (time.perf_counter() - start) / len(runs)
                    found: Traces | Failure = [[self._row(run, of_run, seconds)] for run, of_run in zip(runs, numbers, strict=True)]
                except self.vmapped.OutOfMemory:
                    raise
                except Exception as error:  # of the user's function
                    found = Failure.of(error)
            except self.vmapped.OutOfMemory:
                if width == 1:
                    raise
                self.width = width // 2
                self.remarks.message(f"program {chunk.shape}: out of memory with {width} runs; continuing with {self.width}")
            else:
                yield runs, found
                del left[:width]

    def _called(self, runs: list[Run]) -> list[dict[str, Any]]:
        """The columns of runs, by a function that is plain Python."""
        own, precision = self.simulator, self.terms.settings.precision
        return [self.vmapped.called(own.fn, run.point, list(own.own_columns), _words(run), precision) for run in runs]

    def _compiled(self, program: Any, runs: list[Run], width: int) -> Callable[[list[Run]], list[dict[str, Any]]]:
        """A function that returns the columns of runs, compiled for `width` of them, the last of which are repeated."""
        own, precision, columns = self.simulator, self.terms.settings.precision, list(self.simulator.own_columns)
        traced = {name: str(f.type) for name, f in own.fields.items() if f.metadata["kind"] == "traced"}

        def given(runs: list[Run]) -> Any:
            padded = runs + [runs[-1]] * (width - len(runs))
            values = {name: (kind, [getattr(run.point, name) for run in padded]) for name, kind in traced.items()}
            return self.vmapped.arguments(values, [_words(run) for run in padded])

        if (program, width) not in self.programs:
            self.remarks.compiling(str(program))
            start = time.perf_counter()
            made = self.vmapped.compiled(own.fn, dict(program.static), columns, given(runs), precision)
            self.programs[program, width] = made
            self.remarks.compiled(str(program), time.perf_counter() - start)
        execute = self.programs[program, width]

        def together(runs: list[Run]) -> list[dict[str, Any]]:
            found = execute(*given(runs))
            return [{name: values[i] for name, values in found.items()} for i in range(len(runs))]

        return together

    def _row(self, run: Run, found: dict[str, Any], seconds: float) -> dict[str, Any]:
        numbers = {name: _as_column(name, kind, found[name]) for name, (kind, _) in self.simulator.own_columns.items()}
        finite = None not in numbers.values()
        status = {"step": 1, "steps": 1, "status": "ok" if finite else "nonfinite", "seconds": seconds}
        source = {"simulator": self.simulator.name, "code_version": self.simulator.version, "precision": self.terms.settings.precision}
        own = numbers if finite else dict.fromkeys(numbers)
        return {**run.id._asdict(), **run.point.as_given(), **own, **status, **source, **self.vmapped.provenance()}


def _words(run: Run) -> tuple[int, int, int]:
    """What the key of a run is made of: root seed, seed, and the point where streams are independent."""
    point = run.point
    return point.root_seed, run.seed, int(point.point_id[:8], 16) if point.streams == "independent" else 0


def _as_column(name: str, kind: str, value: Any) -> Any:
    """A value as a column of this Arrow type holds it; None if it is not finite. Raises ValueError."""
    if kind == "string":
        return str(value)
    number = float(value)
    if not math.isfinite(number):
        return None
    if (kind == "int64" and not number.is_integer()) or (kind == "bool" and number not in (0, 1)):
        raise ValueError(
            f"the simulator returned {number} for the column {name}; allowed: {'whole numbers' if kind == 'int64' else 'a bool'}"
        )
    return {"int64": int, "bool": bool, "float64": float}[kind](value)


def named(name: str) -> Simulator:
    """The simulator that a grid file names as module:name; raises UsageError."""
    module, _, attribute = name.partition(":")
    allowed = "allowed: module:name of a jaxrecall.Simulator, such as perceptron:simulator"
    if not attribute or not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise UsageError(f"simulator: got {name!r}; {allowed}")
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:  # whatever the module of a user raises
        raise UsageError(f"simulator: {name} cannot be imported ({type(error).__name__}: {error}); {allowed}") from error
    if not isinstance(found, Simulator):
        raise UsageError(f"simulator: {name} is of type {type(found).__name__}; {allowed}")
    return found


def add_to_path(folders: Iterable[str]) -> None:
    """Makes modules in the folders importable, after everything that is importable already."""
    sys.path += [folder for folder in folders if folder not in sys.path]
