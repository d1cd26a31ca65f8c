"""Simulators, in the form that the sweep engine uses. A simulator of a user is a
function of a point and a random key. `simulator/custom_runs.py` computes the runs.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, make_dataclass, replace
from dataclasses import fields as declared_fields
from functools import cached_property, partial
from itertools import product
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from ...errors import (
    OutOfMemory,
    PointError,
    Problem,
    UsageError,
    imported,
    shown,
)
from ...model.columns import LIST, Declarations, Row
from ...model.point import MAX_SEED, Run
from ...model.source import source_digest
from ...model.values import checked_value, declared, to_12_digits
from ..running.progress import Failure
from . import OF_THRESHOLDS, Cost, Loaded, Outcomes, Program, Room

if TYPE_CHECKING:
    from ...simulator.custom_runs import Traced

ByName = Mapping[str, Any]
"""A mapping from names to what they stand for."""

TYPES = {int: "int64", float: "float64", bool: "bool", str: "string"}
"""A dict from Python types to the Arrow types of fields and columns."""

ALLOWED_TYPES = "with int, float, bool or str as the type"
ALLOWED_FIELD = (
    f'(type, default, low, high, "static" or "traced"), {ALLOWED_TYPES}, and a meaning'
    " as a sixth entry. low and high are numbers, the lower first, or None. A text is"
    " static, and has its allowed values in place of low"
)
TREATED = ("static", "traced")

X64 = ", x64"
"""The end of a precision that rows record if jax_enable_x64 was on."""

BEFORE = {
    "point_id": (
        "string",
        "hash of the point: equal ids mean equal simulator, version and fields",
    ),
    "seed": ("int64", "seed of the run; the independent unit of any statistics"),
}
AFTER = {
    "step": ("int64", "step of the row; 1 unless the function returns steps"),
    "steps": ("int64", "last step of the run"),
    "status": ("string", "ok; nonfinite: the accuracy is not finite, and null"),
    "seconds": (
        "float64",
        "wall time of the run without compilation; the time of a batch is divided by"
        " its runs",
    ),
    "simulator": ("string", "module:name of the simulator"),
    "code_version": ("int64", "version of the simulator"),
    "jax_version": ("string", "version of JAX"),
    "device_kind": ("string", "device, as JAX names it"),
    "precision": (
        "string",
        "precision of matrix products, and x64 where jax_enable_x64 was on",
    ),
    "x64": ("bool", "whether jax_enable_x64 was on"),
    "cpu_model": ("string", "processor model, if known"),
}
RESERVED = (*BEFORE, *AFTER, "root_seed", "streams", "zip")

OF_RESULTS = (*OF_THRESHOLDS, "regime", "part", "exponent", "outcome")
"""The columns of thresholds and laws. A field is a column of these tables, too, so it
must have another name.
"""

RUN_SECONDS = 0.01
"""The number of seconds that a plan assumes for a run. The true time is unknown."""

ROUNDING = 1e-6
"""The largest amount by which rounding may put a fraction below 0 or above 1. Such a
measure is replaced by 0 or 1.
"""

ACCURACY = "accuracy"
STEP = "step"
"""The column with which a function gives a run several rows, one for each step."""


class Declaration(NamedTuple):
    """The declaration that a user gives for a field of a simulator."""

    kind: type
    default: Any
    low: Any
    high: Any
    treated: str
    meaning: str = ""

    def field(self, name: str) -> Any:
        """Returns the field of a dataclass with this declaration, in the form of this
        package's own fields.
        """
        limits: dict[str, Any] = {}
        if self.kind is str:
            limits["choices"] = self.low
        elif self.kind is not bool:
            limits["low"] = -math.inf if self.low is None else self.low
            limits["high"] = math.inf if self.high is None else self.high
        default = MISSING if self.default is None else self.default
        return declared(self.treated, self.meaning or name, default, **limits)


class Simulator:
    """A simulator of your own. Pass it to `jaxrecall.run(grid, simulator=...)`, or name
    it in a grid file with `simulator: module:name`.

    Args:
        fn: a function of a point and a `jax.random` key. The function returns a dict
            with a number for every column. For a run with several rows, the dict also
            contains `step`, an array of ascending whole numbers, and every other entry
            is an array of the same length, or a number that all rows share. In the
            point, static fields are Python values and traced fields are arrays. The key
            is determined by root_seed and seed. All points have the same key unless the
            grid sets `streams: independent`.
        fields: the parameters of a point, `name: (type, default, low, high, "static" or
            "traced")`, and a meaning as a sixth entry, which figures show if it is
            given. The type is int, float, bool or str. If the default is None, the
            grid must give the parameter. low and high are limits; None means no limit.
            For text, low is the sequence of allowed values. Shapes may depend on static
            fields. Each combination of static values is compiled once.
        columns: the columns that fn returns, `name: (type, meaning)`. A third entry is
            the name of the axis of an array, as in `(float, "loss of each task",
            "task")`. The column then contains lists, and `explode` of a DataFrame gives
            each entry a row.
        accuracy: the column that figures, fits and searches use. It may be any measure,
            such as a loss. A column that is called accuracy contains fractions.
        version: a whole number. Increase it when fn returns other numbers, because rows
            of two versions must not be mixed.
        rises: whether the accuracy rises along a field, as in `{"N": False}`. A search
            along any other field expects that it rises. A fit along any other field
            compares the means at the two ends.
        jit: whether fn is compiled for each combination of static fields. If False, fn
            is plain Python and is called once for each run.
        name: the name after the colon in module:name. The default is the variable of
            the module that holds the simulator, or else the name of fn. A folder needs
            it if fn uses an object that cannot be pickled, such as a lock.

    Raises:
        UsageError: the message contains a line for every mistake.

    Examples:
        >>> import jax, jax.numpy as jnp, jaxrecall
        >>> def overlap(point, key):
        ...     a, b = jax.random.normal(key, (2, point.d))
        ...     return {"accuracy": jnp.abs(a @ b) / jnp.sqrt((a @ a) * (b @ b))}
        >>> fields = {"d": (int, 16, 1, 4096, "static")}
        >>> columns = {"accuracy": (float, "|cosine| of two vectors")}
        >>> cosine = jaxrecall.Simulator(overlap, fields, columns, accuracy="accuracy")
        >>> grid = {"blocks": [{"axes": {"d": [4, 16]}}]}
        >>> df = jaxrecall.run(grid, seeds=8, simulator=cosine)
    """

    costs_known: ClassVar[bool] = False
    """Whether the time and memory of a run are estimated before it runs."""

    loads_in_threads: bool = False
    """Whether threads may load programs, while others run. Threads do not have all the
    settings of JAX that a caller may have made in a `with` statement.
    """

    has_columns: bool = True
    """Whether the columns are known, before any point is made."""

    has_theory: ClassVar[bool] = False
    """Whether the formulas of `jaxrecall.theory` are about the points. The accuracy is
    then known to rise along the fields that are not in `rises`.
    """

    batched: bool = False
    """Whether a plain Python call of the function computes many runs."""

    other_rate: ClassVar[Mapping[str, str]] = {}
    """A dict from each of two fields that follow from each other to the other one."""

    def __init__(
        self,
        fn: Callable[..., ByName],
        fields: Mapping[str, tuple[type, Any, Any, Any, str]],
        columns: Mapping[str, tuple[type, str] | tuple[type, str, str]],
        accuracy: str,
        version: int = 1,
        jit: bool = True,
        rises: Mapping[str, bool] | None = None,
        name: str = "",
    ):
        rises = {} if rises is None else rises
        if hasattr(fn, "lower"):
            # a function under jit takes no point, and the sweep compiles it anyway
            fn = getattr(fn, "__wrapped__", fn)
        problems = _problems(fn, fields, version)
        problems += problems_of_columns(columns, fields, jit, "accuracy", accuracy)
        known = [*product(fields, (True, False))]
        if not isinstance(rises, Mapping) or any(
            item not in known for item in rises.items()
        ):
            problems.append(
                f"rises: got {shown(rises)}; allowed: a dict from fields"
                f" ({', '.join(map(str, fields))}) to True or False"
            )
        if name:
            problems += _problems_of_name("name", name)
        if problems:
            raise UsageError(problems)
        self.fn = fn
        self.accuracy = accuracy
        self.version = version
        self.rises = dict(rises)
        self.jit = jit
        self.given_name = name
        self._module = sys._getframe(1).f_globals.get("__name__", "__main__")
        declarations = {
            "root_seed": (int, 0, 0, MAX_SEED, "draws"),
            **fields,
            "streams": (str, "common", ("common", "independent"), None, "draws"),
        }
        self.static: list[str] = []
        self.traced: dict[str, str] = {}
        self.field_columns: Declarations = dict(BEFORE)
        self.labels: dict[str, str] = {}
        arguments: list[tuple[str, str, Any]] = []
        for name, given in declarations.items():
            declaration = Declaration(*given)
            kind, meaning = declaration.kind, declaration.meaning
            arguments.append((name, kind.__name__, declaration.field(name)))
            if declaration.treated == "static":
                self.static.append(name)
            elif declaration.treated == "traced":
                self.traced[name] = kind.__name__
            if meaning:
                self.labels[name] = meaning
            self.field_columns[name] = TYPES[kind], meaning or name
        self.set_columns(columns)
        self.Point = make_dataclass(
            "Point",
            arguments,
            bases=(CustomPoint,),
            frozen=True,
            kw_only=True,
            namespace={"simulator": self},
        )
        fields_of_point = declared_fields(self.Point)
        self.fields: Mapping[str, Field[Any]] = {f.name: f for f in fields_of_point}

    def set_columns(self, columns: Mapping[str, tuple[Any, ...]]) -> None:
        """Sets the columns that fn returns."""
        self.own_columns: Declarations = {}
        for name, (kind, meaning, *axis) in columns.items():
            prefix = LIST if axis else ""
            self.own_columns[name] = prefix + TYPES[kind], meaning
            self.labels[name] = meaning
        self.row_columns = self.field_columns | self.own_columns | AFTER

    def call(self, point: Any, key: Any) -> Any:
        """Returns what fn returns for a point and a key."""
        return self.fn(point, key)

    @cached_property
    def name(self) -> str:
        """The name of the simulator in the form module:name.

        If the simulator is made in a script, the module is the file name of the script
        without `.py`. The script can therefore share rows with a grid file that names
        the simulator.
        """
        module: Any = sys.modules.get(self._module)
        name = self._module
        file = getattr(module, "__file__", None)
        if name == "__main__" and file:
            name = Path(file).stem
        variables = vars(module) if module else {}
        for variable, value in variables.items():
            if value is self and not self.given_name:
                return f"{name}:{variable}"
        usual = getattr(self.fn, "__name__", type(self.fn).__name__)
        return f"{name}:{self.given_name or usual}"

    def precision(self, of_products: str) -> str:
        """Returns the precision that rows record. Rows of two precisions must not be
        mixed.
        """
        return of_products + X64 if x64() else of_products

    def about(self) -> dict[str, Any]:
        """Returns the entries that describe the simulator in the metadata of tables."""
        return {
            "simulator": self.name,
            "fields": list(self.fields),
            "accuracy": self.accuracy,
            "labels": self.labels,
            "rises": self.rises,
        }

    def point(self, values: ByName) -> Any:
        """Returns the point whose fields have these values, or raises PointError.

        A grid has checked the names. Other callers get a TypeError for a wrong name.
        """
        return self.Point(**values)

    def sources(self, points: Iterable[Any]) -> dict[str, str]:
        """Returns a dict of the user's own code that computes these points. The keys
        are names, and the values are digests.

        Raises UsageError if the code uses an object that has no digest, and the user
        has not named the simulator.
        """
        unknown = list[str]()
        digest = source_digest(self.fn, unknown)
        if unknown and not self.given_name:
            raise UsageError(
                f"simulator: {self.name} uses an object that cannot be compared with"
                f" that of earlier rows ({unknown[0]}); allowed with a results folder:"
                " Simulator(..., name=...), and another name for another object"
            )
        return {f"{self.name}, version {self.version},": digest}

    def program(self, point: Any, like: Any = None) -> Program:
        """Returns the program of one point. Its sizes are those of the point with
        little padding, or those of the program `like`.
        """
        return point.program

    def programs(self, points: Mapping[Any, int]) -> dict[Any, Program]:
        """Returns a dict from each point to its program. Points share programs where
        that saves time. The argument maps each point to its number of runs.
        """
        return {point: self.program(point) for point in points}

    def cost(self, program: Any, point: Any) -> Cost:
        """Returns the time and memory that one run takes."""
        return Cost(RUN_SECONDS, 0.0, 0)

    def start_seconds(self, program: Any) -> float:
        """Returns the estimated number of seconds until a program can run."""
        return program.compile_seconds

    def width(self, program: Any, seconds: float, room: Room) -> int:
        """Returns the number of runs to compute at the same time, if a run takes
        `seconds`. The number is limited by the available memory.
        """
        from ...simulator import custom_runs

        if self.batched:
            return room.batch or custom_runs.MAX_VMAPPED
        if not self.jit:
            return 1
        if self.trace(program, room.precision).in_turn:
            return 1
        return custom_runs.vmapped_width(room.n_started, room.batch)

    def trace(self, program: StaticProgram, precision: str) -> Traced:
        """Returns the function of a run as JAX traces it.

        Raises UsageError if the function can only be traced with more static fields.
        """
        from ...simulator import custom_runs

        def attempt(names: Iterable[str]) -> Traced | Exception:
            """Traces the function with further static fields."""
            values = [(name, getattr(program.point, name)) for name in names]
            with_values = replace(program, static=(*program.static, *values))
            try:
                return custom_runs.traced(self, with_values, precision, x64())
            except Exception as error:  # the user's function may raise anything
                return error

        trace = attempt(())
        if not isinstance(trace, Exception):
            return trace
        if isinstance(attempt(self.traced), Exception):
            raise trace
        needed = [
            name
            for name in self.traced
            if isinstance(attempt({*self.traced} - {name}), Exception)
        ]
        raise UsageError(
            f"static: got {tuple(self.static)}; {self.name} needs the value of"
            f" {' and '.join(needed)} when it is compiled, such as for a shape, a"
            f" Python if or NumPy; allowed: static={(*self.static, *needed)}, or"
            f" jax.numpy there ({Failure.of(trace).where})"
        ) from trace

    def run(self, program: Any, width: int, room: Room) -> Loaded:
        """Returns the program ready to run, after compiling it if necessary. Raises
        OutOfMemory if the memory does not suffice.
        """
        from ...simulator import custom_runs
        from ...simulator.device import on_cpu, provenance

        columns_of, most = partial(custom_runs.call_plain, self, room.precision), width
        if self.jit:
            columns_of, most = custom_runs.compile_simulator(
                self, program, width, room.precision, room.limit, x64()
            )
        provided = provenance() | {
            "simulator": self.name,
            "code_version": self.version,
            "precision": self.precision(room.precision),
            "x64": x64(),
        }
        # a batch of many runs has any number of them, in the order of the grid
        order = None if on_cpu() and not self.batched else lambda run: 0
        run = partial(self._batch, columns_of, provided)
        return Loaded(run, most, threads=0, order=order)

    def problem_in_workers(self, points: Iterable[Any]) -> str | None:
        """Returns a line that explains why other processes cannot run these points.
        Returns None if they can.
        """
        module = sys.modules.get(self._module)
        _, _, variable = self.name.partition(":")
        if self._module != "__main__" and getattr(module, variable, None) is self:
            return None
        return (
            f"simulator: {self.name} cannot be imported by other processes; put it into"
            " a variable of a module other than __main__"
        )

    def _batch(
        self,
        columns_of: Callable[[list[Run]], list[Row]],
        provided: Row,
        runs: Mapping[Run, float],
    ) -> Outcomes:
        """Returns a list that contains, for each run, the rows or the exception that
        prevented the rows.
        """
        start = time.perf_counter()
        try:
            columns = columns_of(list(runs))
        except OutOfMemory:
            raise
        except Exception as error:  # an error of the user's function
            if not type(error).__name__.endswith("FloatingPointError"):
                return [error] * len(runs)
            if len(runs) == 1:
                on = f"JAX_DEBUG_NANS or JAX_DEBUG_INFS is on: {error}"
                return [FloatingPointError(on)]
            # only the runs fail in which JAX finds such a number
            alone = partial(self._batch, columns_of, provided)
            return [outcome for run in runs for outcome in alone({run: runs[run]})]
        seconds = (time.perf_counter() - start) / len(runs)
        rows: Outcomes = []
        for run, of_run in zip(runs, columns, strict=True):
            try:
                steps = self._rows(run, of_run)
            except Exception as error:  # a wrong value from the user's function
                rows.append(error)
            else:
                rows.append([row | {"seconds": seconds} | provided for row in steps])
        return rows

    def _rows(self, run: Run, found: Row) -> list[Row]:
        """Returns the parts of a run's rows that depend on the run: the point, the
        seed, the step, the status, and the values that the user's function returned.

        Raises ValueError if a column cannot contain its value.
        """
        steps = _steps(found)
        rows = []
        for i, step in enumerate(steps):
            row = run.id._asdict() | run.point.as_given()
            for name, (kind, _) in self.own_columns.items():
                value, shape = found[name], np.shape(found[name])
                n_axes = 1 + kind.startswith(LIST)
                if STEP in found and len(shape) == n_axes and shape[0] == len(steps):
                    value = value[i]
                row[name] = _as_cell(name, kind, value)
            measure = _checked_measure(self.accuracy, row[self.accuracy])
            row[self.accuracy] = measure
            status = "nonfinite" if measure is None else "ok"
            rows.append(row | {"step": step, "steps": steps[-1], "status": status})
        return rows

    def __reduce__(self) -> Any:
        return named, (self.name,)

    def __repr__(self) -> str:
        return f"<simulator {self.name}, version {self.version}>"


def x64() -> bool:
    """Whether jax_enable_x64 is on in this process now. The function does not start
    JAX.
    """
    jax = sys.modules.get("jax")
    on = jax.config.jax_enable_x64 if jax else os.environ.get("JAX_ENABLE_X64", "")
    return str(on).lower() in ("1", "true", "t", "yes", "y", "on")


def _problems(fn: object, fields: ByName, version: object) -> list[str]:
    """Returns messages about mistakes in the function, the fields and the version of a
    simulator.
    """
    lines = []
    if not callable(fn):
        lines.append(f"fn: got {shown(fn)}; allowed: a function of a point and a key")
    if type(version) is not int or version < 1:
        lines.append(f"version: got {shown(version)}; allowed: whole numbers from 1")
    for name, given in fields.items():
        lines += _problems_of_name("fields", name)
        if name in OF_RESULTS:
            lines.append(
                f"fields.{name}: is a column of the thresholds of a fit; choose another"
                f" name. Such columns: {', '.join(OF_RESULTS)}"
            )
        lines += _problems_of_field(name, given)
    return lines


def problems_of_columns(
    columns: ByName,
    fields: ByName,
    jit: object,
    argument: str,
    measure: object,
) -> list[str]:
    """Returns messages about mistakes in the columns of a simulator, and in the
    argument that names its measure.
    """
    lines, numbers = [], []
    for name, given in columns.items():
        problems = _problems_of_name("columns", name)
        if not problems and name in fields:
            problems = [f"columns.{name}: is a field, too; choose another name"]
        lines += problems
        is_known = isinstance(given, tuple) and len(given) in (2, 3)
        if not is_known or given[0] not in [*TYPES]:
            lines.append(
                f"columns.{name}: got {shown(given)}; allowed: (type, meaning),"
                f" {ALLOWED_TYPES}, and the name of the axis of an array"
            )
        elif jit and given[0] is str:
            lines.append(
                f"columns.{name}: got a text, which no compiled function returns;"
                " allowed: int, float, bool, or jit=False"
            )
        elif len(given) == 3:
            lines += _problems_of_name("columns", given[2])
        elif given[0] in (float, int):
            numbers.append(name)
    if measure not in numbers:
        lines.append(
            f"{argument}: got {shown(measure)}; allowed: a column of numbers, for a"
            f" bool 1.0 times it: {', '.join(map(str, numbers))}"
        )
    return lines


def _problems_of_name(path: str, name: object) -> list[str]:
    """Returns messages about mistakes in the name of a field or a column."""
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        return [f"{path}: got the name {shown(name)}; allowed: letters, digits and _"]
    if name in RESERVED or hasattr(CustomPoint, name) or iskeyword(name):
        return [
            f"{path}.{name}: is reserved for the sweep; choose another name."
            f" Reserved: {', '.join(RESERVED)}"
        ]
    return []


def _problems_of_field(name: str, given: Any) -> list[str]:
    """Returns messages about mistakes in the declaration of a field."""
    problems: list[Problem] = []
    try:
        declaration = Declaration(*given)
        kind, default, low, _, treated, meaning = declaration
        limits = declaration.field(name).metadata
        is_right = kind in [*TYPES] and treated in TREATED and isinstance(meaning, str)
        if kind is str:
            choices = low if isinstance(low, tuple | list) else [low]
            is_right &= treated == "static" and set(map(type, choices)) == {str}
        elif kind is not bool:
            is_right &= limits["low"] - limits["high"] <= 0
        if is_right and default is not None:
            checked_value(name, default, kind.__name__, limits, problems)
    except TypeError:  # not a tuple of this length, or limits that are no numbers
        is_right = False
    if not is_right:
        return [f"fields.{name}: got {shown(given)}; allowed: {ALLOWED_FIELD}"]
    return [f"fields.{name}: default: {problem.message}" for problem in problems]


class CustomPoint:
    """A point of a user's simulator."""

    simulator: ClassVar[Simulator]

    def __post_init__(self) -> None:
        problems: list[Problem] = []
        for name, f in self.simulator.fields.items():
            n_problems = len(problems)
            kind = str(f.type)
            value = checked_value(name, getattr(self, name), kind, f.metadata, problems)
            object.__setattr__(self, name, value)
            is_array = self.simulator.jit and name in self.simulator.traced
            if is_array and len(problems) == n_problems:
                problems += _problems_of_array(name, value, kind)
        if problems:
            raise PointError(problems)

    @cached_property
    def point_id(self) -> str:
        """A hash of the simulator, its version and all fields, as 16 hex digits. Floats
        are rounded to 12 significant digits before the hash is computed.
        """
        values = self.as_given()
        for name, value in values.items():
            if isinstance(value, float):
                values[name] = to_12_digits(value)
        named = {
            "simulator": self.simulator.name,
            "version": self.simulator.version,
            "fields": values,
        }
        text = json.dumps(named, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def program(self) -> StaticProgram:
        """The program that is compiled for the point."""
        static = [(name, getattr(self, name)) for name in self.simulator.static]
        return StaticProgram(self.simulator.name, tuple(static), self)

    def as_given(self) -> dict[str, Any]:
        """Returns a dict of the arguments that create this point again."""
        return {name: getattr(self, name) for name in self.simulator.fields}

    def __reduce__(self) -> Any:
        return self.simulator.point, (self.as_given(),)


def _problems_of_array(name: str, value: Any, kind: str) -> list[Problem]:
    """Returns a list with a problem if an array of a compiled function cannot represent
    the number. The list is empty otherwise.
    """
    bits = 64 if x64() else 32
    if kind == "int":
        end = 2 ** (bits - 1)
        fits = -end <= value < end
        allowed = f"whole numbers of int{bits}"
    else:
        limits = np.finfo(f"float{bits}")
        least, most = float(limits.tiny), float(limits.max)
        fits = value == 0 or least <= abs(value) <= most
        allowed = f"0, and magnitudes of float{bits}, from {least:.3g} to {most:.3g}"
    if fits:
        return []
    if bits == 32:
        hint = "Make the field static, or set JAX_ENABLE_X64=1"
    else:
        hint = "Make the field static"
    got = f"got {shown(value)} for a traced field"
    return [Problem(name, got, allowed=f"{allowed}. {hint}")]


@dataclass(frozen=True, order=True)
class StaticProgram(Program):
    """A simulator with one combination of its static fields."""

    simulator: str
    static: tuple[tuple[str, Any], ...]
    point: CustomPoint = field(compare=False)
    """A point of the program."""

    def __str__(self) -> str:
        static = [f"{name}={value}" for name, value in self.static]
        return " ".join([self.simulator, *static])


def named(name: str) -> Simulator:
    """Returns the simulator that has the import path module:name. Raises UsageError if
    there is no such simulator.
    """
    allowed = (
        "allowed: module:name of a jaxrecall.Simulator, or of a function with"
        " @jaxrecall.simulator"
    )
    found = imported("simulator", name, allowed)
    if not isinstance(found, Simulator):
        raise UsageError(
            f"simulator: {name} is of type {type(found).__name__}; {allowed}"
        )
    return found


def add_to_path(folders: Iterable[str]) -> None:
    """Makes the modules in these folders importable. If two modules have the same name,
    the one that was importable before is used.
    """
    for folder in folders:
        if folder not in sys.path:
            sys.path.append(folder)


def _checked_measure(name: str, value: Any) -> Any:
    """Returns a measure after correcting small rounding errors of a fraction, which put
    it below 0 or above 1.

    Raises ValueError if the column is called accuracy and the value is no fraction.
    """
    if value is None or 0 <= value <= 1:
        return value
    if -ROUNDING <= value <= 1 + ROUNDING:
        return min(max(value, 0.0), 1.0)
    if name != ACCURACY:
        return value
    raise ValueError(
        f"the simulator returned {value:g} for the column {name}; allowed: fractions"
        " from 0 to 1, or another name for another measure"
    )


def _steps(found: Row) -> list[int]:
    """Returns the steps of a run's rows; [1] if the user's function gave none.

    Raises ValueError unless the steps are whole numbers in ascending order.
    """
    if STEP not in found:
        return [1]
    steps = np.asarray(found[STEP])
    are_whole = steps.ndim == 1 and len(steps) > 0 and steps.dtype.kind in "iu"
    if are_whole and steps[0] >= 0 and (np.diff(steps.astype(np.int64)) > 0).all():
        return steps.tolist()
    raise ValueError(
        f"the simulator returned {shown(steps)} for step; allowed: whole numbers from 0"
        " in ascending order"
    )


def _as_cell(name: str, kind: str, value: Any) -> Any:
    """Returns a value converted to the Arrow type of its column. Returns None if the
    value is None or not finite.

    Raises ValueError if the value cannot be converted.
    """
    shape, is_list = np.shape(value), kind.startswith(LIST)
    if len(shape) != is_list:
        allowed = "a list of numbers" if is_list else "one number"
        raise ValueError(
            f"the simulator returned {name} of shape {shape}; allowed: {allowed}"
        )
    if is_list:
        of_entry = kind.removeprefix(LIST)
        return [_as_cell(name, of_entry, entry) for entry in np.asarray(value)]
    if hasattr(value, "item"):
        value = value.item()
    if value is None:
        return None
    if kind == "string":
        return str(value)
    got = f"the simulator returned {shown(value)} for the column {name}; allowed:"
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # complex, a text, an object
        raise ValueError(f"{got} numbers of float64") from None
    if not math.isfinite(number):
        return None
    if kind == "int64":
        if not number.is_integer() or abs(number) >= 2**63:
            raise ValueError(f"{got} whole numbers of int64")
        return int(value)
    if kind == "bool":
        if number not in (0, 1):
            raise ValueError(f"{got} a bool")
        return bool(value)
    return number
