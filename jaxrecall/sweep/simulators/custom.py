"""A simulator of a user's, a function of a point and a random key, as the sweep engine
sees it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, make_dataclass
from dataclasses import fields as declared_fields
from functools import cached_property, partial
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from ...errors import (
    OutOfMemory,
    PointError,
    Problem,
    UsageError,
    imported,
    shown,
    suggest,
)
from ...model.columns import Row
from ...model.point import MAX_SEED, Run, checked_value
from . import Cost, Facts, Loaded, Room, Rows, grouped

TYPES = {int: "int64", float: "float64", bool: "bool", str: "string"}
"""Types of fields and columns, and their Arrow types."""

ARROW = {kind.__name__: arrow for kind, arrow in TYPES.items()}

BEFORE = {
    "point_id": (
        "string",
        "hash of the point: equal ids mean equal simulator, version and fields",
    ),
    "seed": ("int64", "seed of the run; the independent unit of any statistics"),
}
AFTER = {
    "step": ("int64", "1: a run has one row"),
    "steps": ("int64", "1"),
    "status": ("string", "ok; nonfinite: the accuracy is not finite, and null"),
    "seconds": (
        "float64",
        (
            "wall time of the run without compilation; the time of a batch is divided"
            " by its runs"
        ),
    ),
    "simulator": ("string", "module:name of the simulator"),
    "code_version": ("int64", "version of the simulator"),
    "jax_version": ("string", "version of JAX"),
    "device_kind": ("string", "device that it ran on, as JAX names it"),
    "precision": (
        "string",
        "precision of matrix products, and x64 where jax_enable_x64 was on",
    ),
    "x64": ("bool", "whether jax_enable_x64 was on"),
}
RESERVED = (*BEFORE, *AFTER, "root_seed", "streams")

WIDTH = 8
"""Runs that are vmapped together; fewer are filled up, so that each combination of
static fields has one program.
"""

RUN_SECONDS = 0.01
"""Nobody knows what a run costs: it counts as so much."""

ROUNDING = 1e-6
"""An accuracy beyond 0 or 1 by no more is that."""


class Simulator:
    """A simulator of one's own.

    For `jaxrecall.run(grid, simulator=...)` and for `simulator: module:name` in a grid
    file.

    Args:
        fn: takes a point and a `jax.random` key, and returns a dict with a number for
            every column. The point has static fields as Python values and traced ones
            as arrays. The key follows from root_seed and seed; it is the same for every
            point unless the grid has `streams: independent`.
        fields: the parameters of a point, `name: (type, default, low, high, "static" or
            "traced")`. The type is int, float, bool or str; a default of None means
            that the grid must give it; low and high are limits, or None. A text has its
            allowed values in place of low. A static field may decide shapes; each
            combination of static values is compiled once.
        columns: what fn returns, `name: (type, meaning)`.
        accuracy: the column that is drawn, fitted and searched, a fraction.
        version: to be raised when numbers change: rows of two versions do not mix.
        jit: whether fn is compiled and vmapped over runs of equal static fields. With
            False it is called once for each run, and is plain Python.

    Raises:
        UsageError, with a line for everything that is wrong.

    Examples:
        >>> import jax, jax.numpy as jnp, jaxrecall
        >>> def overlap(point, key):
        ...     a, b = jax.random.normal(key, (2, point.d))
        ...     return {"accuracy": jnp.abs(a @ b) / jnp.sqrt((a @ a) * (b @ b))}
        >>> fields = {"d": (int, 16, 1, 4096, "static")}
        >>> cosine = jaxrecall.Simulator(overlap, fields, {"accuracy": (float, "|cosine|
            of two vectors")}, accuracy="accuracy")
        >>> df = jaxrecall.run({"blocks": [{"axes": {"d": [4, 16]}}]}, seeds=8,
            simulator=cosine)
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
        self.fn, self.accuracy, self.version, self.jit = (
            fn,
            accuracy,
            version,
            bool(jit),
        )
        self._module = sys._getframe(1).f_globals.get("__name__", "__main__")
        declared = {
            "root_seed": (int, 0, 0, MAX_SEED, "draws"),
            **fields,
            "streams": (str, "common", ("common", "independent"), None, "draws"),
        }
        made = [_declared(name, *given) for name, given in declared.items()]
        self.Point = make_dataclass(
            "Point",
            made,
            bases=(CustomPoint,),
            frozen=True,
            kw_only=True,
            namespace={"simulator": self},
        )
        self.fields: dict[str, Field[Any]] = {
            f.name: f for f in declared_fields(self.Point)
        }
        self.own_columns = {
            name: (TYPES[kind], meaning) for name, (kind, meaning) in columns.items()
        }
        self.traced = {
            name: str(f.type)
            for name, f in self.fields.items()
            if f.metadata["kind"] == "traced"
        }
        self._name = ""

    @property
    def name(self) -> str:
        """module:name.

        The module of a script is its file, so that the script and a grid file that
        names it share rows.
        """
        if not self._name:
            module: Any = sys.modules.get(self._module)
            file = (
                getattr(module, "__file__", None)
                if self._module == "__main__"
                else None
            )
            held = (
                [name for name, value in vars(module).items() if value is self]
                if module
                else []
            )
            self._name = f"{Path(file).stem if file else self._module}:{[*held, self.fn.__name__][0]}"  # noqa: E501
        return self._name

    @property
    def facts(self) -> Facts:
        of_point = {
            name: (ARROW[str(f.type)], f.metadata["legend"])
            for name, f in self.fields.items()
        }
        columns = BEFORE | of_point | self.own_columns | AFTER
        return Facts(
            self.name,
            self.fields,
            columns,
            self.version,
            self.accuracy,
            dict.fromkeys(self.own_columns, ""),
            x64(),
        )

    def point(self, values: Mapping[str, Any]) -> CustomPoint:
        problems = [
            Problem(name, f"is no field{suggest(name, self.fields)}")
            for name in values
            if name not in self.fields
        ]
        lacking = [
            name
            for name, f in self.fields.items()
            if f.default is MISSING and name not in values
        ]
        if problems or lacking:
            raise PointError(
                problems + [Problem(name, "is given nowhere") for name in lacking]
            )
        return self.Point(**values)

    def sources(self, points: Iterable[Any]) -> dict[str, str]:
        return {}

    def programs(
        self,
        points: Mapping[CustomPoint, int],
        sizes: tuple[int, int, int] | StaticProgram | Literal["own"] | None = None,
    ) -> dict[StaticProgram, list[CustomPoint]]:
        """One for each combination of static fields."""
        if isinstance(sizes, tuple):
            raise UsageError(
                "--bucket: got with a simulator of your own; allowed: without it"
            )
        return grouped(points, lambda point: point.program)

    def cost(self, program: StaticProgram, point: CustomPoint) -> Cost:
        return Cost(RUN_SECONDS, 0.0, 0)

    def width(self, program: StaticProgram, seconds: float, room: Room) -> int:
        return WIDTH if self.jit else 1

    def run(self, program: StaticProgram, width: int, room: Room) -> Loaded:
        from ...simulator import vmapped

        vmapped.start()
        numbers = self._called
        if self.jit:
            numbers = partial(
                self._vmapped,
                vmapped.compiled(
                    self, program.static, width, room.precision, room.limit, x64()
                ),
                width,
            )
        return Loaded(partial(self._batch, numbers, room.precision), width, 0)

    def problem_in_workers(self, points: Iterable[CustomPoint]) -> str | None:
        where = f"simulator: {self.name} "
        if self._module == "__main__":
            return (
                f"{where}is made in __main__, which other processes cannot import; put"
                " it into a module"
            )
        if (
            getattr(sys.modules.get(self._module), self.name.partition(":")[2], None)
            is not self
        ):
            return (
                f"{where}is no variable of its module, so other processes cannot import"
                " it; give it a name there"
            )
        return None

    def _called(self, runs: list[Run], precision: str) -> list[Row]:
        """The columns of runs by a function that is plain Python."""
        from ...simulator import vmapped

        return [
            vmapped.called(
                self.fn, run.point, list(self.own_columns), _words(run), precision
            )
            for run in runs
        ]

    def _vmapped(
        self, compiled: Callable[..., Any], width: int, runs: list[Run], precision: str
    ) -> list[Row]:
        """The columns of runs by a compiled function; the last run is repeated where
        they are fewer than are vmapped.
        """
        from ...simulator import vmapped

        padded = runs + [runs[-1]] * (width - len(runs))
        values = {
            name: (kind, [getattr(run.point, name) for run in padded])
            for name, kind in self.traced.items()
        }
        found = compiled(*vmapped.arguments(values, [_words(run) for run in padded]))
        return [{name: of[i] for name, of in found.items()} for i in range(len(runs))]

    def _batch(
        self,
        numbers: Callable[[list[Run], str], list[Row]],
        precision: str,
        runs: Mapping[Run, float],
    ) -> list[Rows | Exception | None]:
        """The rows of runs, or why there are none."""
        start = time.perf_counter()
        try:
            found = numbers(list(runs), precision)
        except OutOfMemory:
            raise
        except Exception as error:  # of the user's function
            return [error] * len(runs)
        seconds = (time.perf_counter() - start) / len(runs)
        rows: list[Rows | Exception | None] = []
        for run, of_run in zip(runs, found, strict=True):
            try:
                rows.append(self._rows(run, of_run, seconds, precision))
            except Exception as error:  # of a value that a user's function returned
                rows.append(error)
        return rows

    def _rows(self, run: Run, found: Row, seconds: float, precision: str) -> Rows:
        """The row of a run; raises ValueError for a value that a column cannot hold."""
        from ...simulator import vmapped

        facts, main = self.facts, self.accuracy
        numbers = {
            name: _as_cell(name, kind, found[name])
            for name, (kind, _) in self.own_columns.items()
        }
        numbers[main] = _as_fraction(main, numbers[main])
        about = {
            "step": 1,
            "steps": 1,
            "status": "nonfinite" if numbers[main] is None else "ok",
            "seconds": seconds,
            "simulator": facts.name,
            "code_version": facts.version,
            "precision": facts.precision(precision),
            "x64": facts.x64,
            **vmapped.provenance(),
        }
        return [{**run.id._asdict(), **run.point.as_given(), **numbers, **about}]

    def __reduce__(self) -> Any:
        return named, (self.name,)

    def __repr__(self) -> str:
        return f"<simulator {self.name}, version {self.version}>"


def x64() -> bool:
    """Whether jax_enable_x64 is on, here and now. Does not start JAX."""
    jax = sys.modules.get("jax")
    on = jax.config.jax_enable_x64 if jax else os.environ.get("JAX_ENABLE_X64", "")
    return str(on).lower() in ("1", "true", "t", "yes", "y", "on")


def _problems(
    fn: object,
    fields: Mapping[str, Any],
    columns: Mapping[str, Any],
    accuracy: str,
    version: object,
) -> list[str]:
    """What is wrong with the arguments of a simulator."""
    lines = (
        []
        if callable(fn)
        else [f"fn: got {shown(fn)}; allowed: a function of a point and a key"]
    )
    if type(version) is not int or version < 1:
        lines.append(f"version: got {shown(version)}; allowed: whole numbers from 1")
    for path, name in [("fields", name) for name in fields] + [
        ("columns", name) for name in columns
    ]:
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
            lines.append(
                f"{path}: got the name {shown(name)}; allowed: letters, digits and _"
            )
        elif name in RESERVED or hasattr(CustomPoint, name):
            lines.append(
                f"{path}.{name}: is reserved for the sweep; choose another name."
                f" Reserved: {', '.join(RESERVED)}"
            )
        elif path == "columns" and name in fields:
            lines.append(f"columns.{name}: is a field, too; choose another name")
    types = "with int, float, bool or str as the type"
    for name, of in fields.items():
        if (
            not isinstance(of, tuple)
            or len(of) != 5
            or of[0] not in TYPES
            or of[4] not in ("static", "traced")
        ):
            lines.append(
                f"fields.{name}: got {shown(of)}; allowed: (type, default, low, high,"
                f' "static" or "traced"), {types}'
            )
        elif of[0] is str and (
            of[4] != "static"
            or not isinstance(of[2], (tuple, list))
            or not all(isinstance(one, str) for one in of[2])
        ):
            lines.append(
                f"fields.{name}: got {shown(of)}; allowed: a text is static, and has"
                " its allowed values in place of low"
            )
        else:
            lines += _wrong_limits(name, *of)
    for name, of in columns.items():
        if not isinstance(of, tuple) or len(of) != 2 or of[0] not in TYPES:
            lines.append(
                f"columns.{name}: got {shown(of)}; allowed: (type, meaning), {types}"
            )
    if accuracy not in columns or columns[accuracy][0] not in (float, int):
        lines.append(
            f"accuracy: got {shown(accuracy)}; allowed: a column of numbers:"
            f" {', '.join(map(str, columns))}"
        )
    return lines


def _wrong_limits(
    name: str, kind: type, default: Any, low: Any, high: Any, treated: str
) -> list[str]:
    """What is wrong with the limits of a field, or with a default beyond them."""
    given = [
        limit for limit in (low, high) if limit is not None and kind in (int, float)
    ]
    if any(
        not isinstance(limit, Real) or isinstance(limit, bool) or limit != limit
        for limit in given
    ) or given != sorted(given):
        return [
            f"fields.{name}: got the limits {shown(low)} and {shown(high)}; allowed:"
            " two numbers, the lower first, or None for none"
        ]
    problems: list[Problem] = []
    if default is not None:
        checked_value(
            name,
            default,
            kind.__name__,
            _declared(name, kind, default, low, high, treated)[2].metadata,
            problems,
        )
    return [f"fields.{name}: default: {problem.message}" for problem in problems]


def _declared(
    name: str, kind: type, default: Any, low: Any, high: Any, treated: str
) -> tuple[str, str, Any]:
    """The name, type and declaration of a field, as those of our points."""
    limits: dict[str, Any] = {"choices": lambda: tuple(low)} if kind is str else {}
    if kind in (int, float):
        limits = {
            "low": -math.inf if low is None else low,
            "high": math.inf if high is None else high,
        }
    metadata = {"kind": treated, "symbol": "", "legend": name, **limits}
    return (
        name,
        kind.__name__,
        field(default=MISSING if default is None else default, metadata=metadata),
    )


class CustomPoint:
    """A point of a simulator of one's own."""

    simulator: ClassVar[Simulator]
    recorded_steps: ClassVar[tuple[int, ...]] = (1,)

    def __post_init__(self) -> None:
        problems: list[Problem] = []
        for name, f in self.simulator.fields.items():
            before, kind = len(problems), str(f.type)
            object.__setattr__(
                self,
                name,
                checked_value(name, getattr(self, name), kind, f.metadata, problems),
            )
            if (
                len(problems) == before
                and f.metadata["kind"] == "traced"
                and self.simulator.jit
            ):
                problems += _not_held(name, getattr(self, name), kind)
        if problems:
            raise PointError(problems)

    @cached_property
    def point_id(self) -> str:
        """16 hex digits: a hash of the simulator, its version and all fields, floats to
        12 significant digits.
        """
        values = {
            name: f"{value:.12g}" if isinstance(value, float) else value
            for name, value in self.as_given().items()
        }
        named = {
            "simulator": self.simulator.name,
            "version": self.simulator.version,
            "fields": values,
        }
        return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[
            :16
        ]

    @cached_property
    def program(self) -> StaticProgram:
        """What is compiled for it."""
        static = [
            (name, getattr(self, name))
            for name, f in self.simulator.fields.items()
            if f.metadata["kind"] == "static"
        ]
        return StaticProgram(self.simulator.name, tuple(static))

    def as_given(self) -> dict[str, Any]:
        """Arguments that rebuild this point."""
        return {name: getattr(self, name) for name in self.simulator.fields}

    def replace(self, **changes: Any) -> CustomPoint:
        """A changed copy."""
        return self.simulator.point(self.as_given() | changes)

    def __reduce__(self) -> Any:
        return Simulator.point, (self.simulator, self.as_given())


def _not_held(name: str, value: Any, kind: str) -> list[Problem]:
    """The problem of a number that the arrays of a compiled function would change."""
    bits = 64 if x64() else 32
    if kind == "int":
        held, allowed = (
            -(2 ** (bits - 1)) <= value < 2 ** (bits - 1),
            f"whole numbers of int{bits}",
        )
    else:
        least, most = (
            float(getattr(np.finfo(f"float{bits}"), end)) for end in ("tiny", "max")
        )
        held, allowed = (
            not value or least <= abs(value) <= most,
            f"0, and magnitudes of float{bits}, from {least:.3g} to {most:.3g}",
        )
    hint = ". Make the field static" + ", or set JAX_ENABLE_X64=1" * (bits == 32)
    return (
        []
        if held
        else [
            Problem(
                name, f"got {shown(value)} for a traced field; allowed: {allowed}{hint}"
            )
        ]
    )


@dataclass(frozen=True, order=True)
class StaticProgram:
    """A simulator at one combination of its static fields."""

    simulator: str
    static: tuple[tuple[str, Any], ...]
    fallback: ClassVar[None] = None
    compile_seconds: ClassVar[float] = 0.0
    kin: ClassVar[tuple[Any, ...]] = ()
    choices: ClassVar[Mapping[str, Any]] = {}

    @property
    def label(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return " ".join(
            [self.simulator, *(f"{name}={value}" for name, value in self.static)]
        )


def named(name: str) -> Simulator:
    """The simulator that a grid file names as module:name; raises UsageError."""
    allowed = (
        "allowed: module:name of a jaxrecall.Simulator, such as perceptron:simulator"
    )
    found = imported("simulator", name, allowed)
    if not isinstance(found, Simulator):
        raise UsageError(
            f"simulator: {name} is of type {type(found).__name__}; {allowed}"
        )
    return found


def add_to_path(folders: Iterable[str]) -> None:
    """Makes modules in the folders importable, after everything that is importable
    already.
    """
    sys.path += [folder for folder in folders if folder not in sys.path]


def trusted(module: str) -> None:
    """Imports a module that `--trust` names, or its .py file, so that laws of it are
    known; raises UsageError.
    """
    path = Path(module)
    if path.suffix == ".py":
        add_to_path([str(path.absolute().parent)])
        module = path.stem
    try:
        import_module(module)
    except Exception as error:  # whatever the module of a user raises
        why = f"{type(error).__name__}: {error}"
        raise UsageError(
            f"--trust: got {path}, which cannot be imported ({why}); allowed: a module,"
            " or its .py file"
        ) from error


def _words(run: Run) -> tuple[int, int, int]:
    """What the key of a run is made of: root seed, seed, and the point where streams
    are independent.
    """
    point = run.point
    return (
        point.root_seed,
        run.seed,
        int(point.point_id[:8], 16) if point.streams == "independent" else 0,
    )


def _as_fraction(name: str, value: Any) -> Any:
    """An accuracy as it is, but for rounding; raises ValueError if it is no
    fraction.
    """
    if value is None or 0 <= value <= 1:
        return value
    if -ROUNDING <= value <= 1 + ROUNDING:
        return min(max(value, 0.0), 1.0)
    raise ValueError(
        f"the simulator returned {value:g} for the column {name}; allowed: fractions"
        " from 0 to 1"
    )


def _as_cell(name: str, kind: str, value: Any) -> Any:
    """A value as a column of this Arrow type holds it; None if there is none, or it is
    not finite. Raises ValueError.
    """
    if (shape := np.shape(value)) != ():
        raise ValueError(
            f"the simulator returned {name} of shape {shape}; allowed: one number"
        )
    value = value.item() if hasattr(value, "item") else value
    if value is None or kind == "string":
        return None if value is None else str(value)
    number = float(value)
    if not math.isfinite(number):
        return None
    if (kind == "int64" and not (number.is_integer() and abs(number) < 2**63)) or (
        kind == "bool" and number not in (0, 1)
    ):
        allowed = "whole numbers of int64" if kind == "int64" else "a bool"
        raise ValueError(
            f"the simulator returned {number} for the column {name}; allowed: {allowed}"
        )
    return {"int64": int, "bool": bool, "float64": float}[kind](value)
