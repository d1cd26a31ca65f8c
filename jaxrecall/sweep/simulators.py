"""What the engine asks of a simulator: that of this package,
and one of a user, a function of a point and a random key.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, make_dataclass
from dataclasses import fields as declared_fields
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..errors import PointError, Problem, UsageError, shown, suggest, where_to_run
from ..model.columns import CODE_VERSION, COLUMNS
from ..model.laws.array import Content, contents_of
from ..model.point import FIELDS, MAX_SEED, Point, checked_value, make_point, problem_in_workers
from ..model.values import as_number
from ..simulator.shape import Shape

TYPES = {int: "int64", float: "float64", bool: "bool", str: "string"}
"""Types of fields and columns, and their Arrow types."""

ARROW = {kind.__name__: arrow for kind, arrow in TYPES.items()}

BEFORE = {
    "point_id": ("string", "hash of the point: equal ids mean equal simulator, version and fields"),
    "seed": ("int64", "seed of the run; the independent unit of any statistics"),
}
AFTER = {
    "step": ("int64", "the step that this row is of; 1 where a run has one row"),
    "steps": ("int64", "the last step of the run"),
    "status": ("string", "ok; nonfinite: the accuracy is not finite, and null"),
    "seconds": ("float64", "wall time of the run without compilation; the time of a batch is divided by its runs"),
    "simulator": ("string", "module:name of the simulator"),
    "code_version": ("int64", "version of the simulator"),
    "jax_version": ("string", "version of JAX"),
    "device_kind": ("string", "device that it ran on, as JAX names it"),
    "precision": ("string", "precision of matrix products, and x64 where jax_enable_x64 was on"),
    "x64": ("bool", "whether jax_enable_x64 was on"),
}
RESERVED = (*BEFORE, *AFTER, "root_seed", "streams")

STEPS = "whole numbers from 0, in ascending order"

GAP = 0.03
"""Largest part of the attention that a locked cell may lose to noise tokens."""


class RecallSimulator:
    """The simulator of this package, and what the engine asks of any.

    Attributes:
        name: "jaxrecall", or module:name of a simulator of one's own.
        version: of its numbers; rows of two versions do not mix.
        fields: of its points, each with `type`, `default` and, as metadata, kind,
            symbol, legend and limits.
        columns: of its rows, in order: Arrow type and meaning.
        accuracy: the column that is drawn, fitted and searched, a fraction.
    """

    name: str = "jaxrecall"
    version: int = CODE_VERSION
    fields: Mapping[str, Field[Any]] = FIELDS
    columns: Mapping[str, tuple[str, str]] = COLUMNS
    accuracy: str = "accuracy"

    def precision(self, asked: str) -> str:
        """What rows say of their precision; rows of two do not mix."""
        return asked

    def make_point(self, values: Mapping[str, Any]) -> Point:
        """The point with these values of its fields; raises PointError."""
        return make_point(values)

    def about(self) -> dict[str, Any]:
        """What the metadata of its tables says of it."""
        return {}

    def program(self, point: Point) -> Shape:
        """The program of a point on its own."""
        return Shape.tight(point)

    def problem_in_workers(self, points: Iterable[Point]) -> str | None:
        """Why other processes cannot run these points, in one line; None if they can."""
        one_each = {(point.embedding, point.embedding_out, point.activation, point.tokens, point.noise_tokens): point for point in points}
        return next(filter(None, map(problem_in_workers, one_each.values())), None)

    def contents(self, points: Iterable[Point]) -> Mapping[str, Content]:
        """What workers are sent for these points: contents of the files that their laws name, by hash."""
        return contents_of(dict.fromkeys(law for point in points for law in point.embedding_laws))


RECALL = RecallSimulator()


class Simulator:
    """A simulator of one's own, for `jaxrecall.run(grid, simulator=...)` and for
    `simulator: module:name` in a grid file.

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
        steps: of which a run has a row each, in ascending order, or a function that
            gives those of a point. Then fn may return an array of as many numbers for a
            column; a single number is that of all steps. The steps enter the point's
            id.

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
        steps: Sequence[int] | Callable[[Any], Iterable[int]] | None = None,
    ):
        if lines := _problems(fn, fields, columns, accuracy, version, steps):
            raise UsageError(lines)
        self.fn, self.accuracy, self.version, self.jit = fn, accuracy, version, bool(jit)
        self.steps = steps if steps is None or callable(steps) else _as_steps(steps)
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
        """module:name. The module of a script is its file, so
        that the script and a grid file that names it share rows.
        """
        if not self._name:
            module: Any = sys.modules.get(self._module)
            file = getattr(module, "__file__", None) if self._module == "__main__" else None
            held = [name for name, value in vars(module).items() if value is self] if module else []
            self._name = f"{Path(file).stem if file else self._module}:{[*held, self.fn.__name__][0]}"
        return self._name

    def precision(self, asked: str) -> str:
        return f"{asked}, x64" if x64() else asked

    def make_point(self, values: Mapping[str, Any]) -> CustomPoint:
        problems = [Problem(name, f"is no field{suggest(name, self.fields)}") for name in values if name not in self.fields]
        lacking = [name for name, f in self.fields.items() if f.default is MISSING and name not in values]
        if problems or lacking:
            raise PointError(problems + [Problem(name, "is given nowhere") for name in lacking])
        return self.Point(**values)

    def about(self) -> dict[str, Any]:
        return {"simulator": self.name, "fields": list(self.fields), "accuracy": self.accuracy}

    def program(self, point: Any) -> Any:
        return point.program

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


def x64() -> bool:
    """Whether jax_enable_x64 is on, here and now. Does not start JAX."""
    jax = sys.modules.get("jax")
    on = jax.config.jax_enable_x64 if jax else os.environ.get("JAX_ENABLE_X64", "")
    return str(on).lower() in ("1", "true", "t", "yes", "y", "on")


def _problems(fn: Any, fields: Any, columns: Any, accuracy: Any, version: Any, steps: Any) -> list[str]:
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
        elif of[0] is str and (of[4] != "static" or not isinstance(of[2], (tuple, list)) or not all(isinstance(one, str) for one in of[2])):
            lines.append(f"fields.{name}: got {shown(of)}; allowed: a text is static, and has its allowed values in place of low")
        else:
            lines += _wrong_limits(name, *of)
    for name, of in columns.items():
        if not isinstance(of, tuple) or len(of) != 2 or of[0] not in TYPES:
            lines.append(f"columns.{name}: got {shown(of)}; allowed: (type, meaning), {types}")
    if accuracy not in columns or columns[accuracy][0] not in (float, int):
        lines.append(f"accuracy: got {shown(accuracy)}; allowed: a column of numbers: {', '.join(map(str, columns))}")
    if steps is not None and not callable(steps) and not _as_steps(steps):
        lines.append(f"steps: got {shown(steps)}; allowed: {STEPS}, or a function of the point that gives them")
    return lines


def _wrong_limits(name: str, kind: type, default: Any, low: Any, high: Any, treated: str) -> list[str]:
    """What is wrong with the limits of a field, or with a default beyond them."""
    given = [limit for limit in (low, high) if limit is not None and kind in (int, float)]
    if any(not isinstance(limit, Real) or isinstance(limit, bool) or limit != limit for limit in given) or given != sorted(given):
        return [f"fields.{name}: got the limits {shown(low)} and {shown(high)}; allowed: two numbers, the lower first, or None for none"]
    problems: list[Problem] = []
    if default is not None:
        checked_value(name, default, kind.__name__, _declared(name, kind, default, low, high, treated)[2].metadata, problems)
    return [f"fields.{name}: default: {problem.message}" for problem in problems]


def _as_steps(given: Any) -> tuple[int, ...]:
    """Steps, if they are STEPS; else nothing."""
    found = tuple(as_number(step, int) for step in given) if hasattr(given, "__len__") else ()
    return found if None not in found and all(a < b for a, b in pairwise((-1, *found))) else ()


def _declared(name: str, kind: type, default: Any, low: Any, high: Any, treated: str) -> tuple[str, str, Any]:
    """The name, type and declaration of a field, as those of our points."""
    limits: dict[str, Any] = {"choices": lambda: tuple(low)} if kind is str else {}
    if kind in (int, float):
        limits = {"low": -math.inf if low is None else low, "high": math.inf if high is None else high}
    metadata = {"kind": treated, "symbol": "", "legend": name, **limits}
    return name, kind.__name__, field(default=MISSING if default is None else default, metadata=metadata)


class CustomPoint:
    """A point of a simulator of one's own."""

    simulator: ClassVar[Simulator]
    recorded_steps: ClassVar[tuple[int, ...]] = (1,)

    def __post_init__(self) -> None:
        problems: list[Problem] = []
        for name, f in self.simulator.fields.items():
            before, kind = len(problems), str(f.type)
            object.__setattr__(self, name, checked_value(name, getattr(self, name), kind, f.metadata, problems))
            if len(problems) == before and f.metadata["kind"] == "traced" and self.simulator.jit:
                problems += _not_held(name, getattr(self, name), kind)
        if problems:
            raise PointError(problems)
        if steps := self.simulator.steps:
            object.__setattr__(self, "recorded_steps", self._steps(steps) if callable(steps) else steps)

    def _steps(self, of: Callable[[Any], Iterable[int]]) -> tuple[int, ...]:
        """The steps that a function gives this point; raises PointError."""
        try:
            got = list(of(self))
        except Exception as error:  # whatever the function of a user raises
            raise PointError([Problem("steps", f"{type(error).__name__}: {error}; allowed: {STEPS}")]) from error
        if not (found := _as_steps(got)):
            raise PointError([Problem("steps", f"got {shown(got)}; allowed: {STEPS}")])
        return found

    @cached_property
    def point_id(self) -> str:
        """16 hex digits: a hash of the simulator, its version
        and all fields, floats to 12 significant digits.
        """
        values = {name: f"{value:.12g}" if isinstance(value, float) else value for name, value in self.as_given().items()}
        named = {"simulator": self.simulator.name, "version": self.simulator.version, "fields": values}
        named |= {"steps": self.recorded_steps} if self.simulator.steps else {}
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


def _not_held(name: str, value: Any, kind: str) -> list[Problem]:
    """The problem of a number that the arrays of a compiled function would change."""
    bits = 64 if x64() else 32
    if kind == "int":
        held, allowed = -(2 ** (bits - 1)) <= value < 2 ** (bits - 1), f"whole numbers of int{bits}"
    else:
        least, most = (float(getattr(np.finfo(f"float{bits}"), end)) for end in ("tiny", "max"))
        held, allowed = not value or least <= abs(value) <= most, f"0, and magnitudes of float{bits}, from {least:.3g} to {most:.3g}"
    hint = ". Make the field static" + ", or set JAX_ENABLE_X64=1" * (bits == 32)
    return [] if held else [Problem(name, f"got {shown(value)} for a traced field; allowed: {allowed}{hint}")]


@dataclass(frozen=True, order=True)
class StaticProgram:
    """A simulator at one combination of its static fields."""

    simulator: str
    static: tuple[tuple[str, Any], ...]
    fallback: ClassVar[None] = None

    def __str__(self) -> str:
        return " ".join([self.simulator, *(f"{name}={value}" for name, value in self.static)])


def named(name: str) -> Simulator:
    """The simulator that a grid file names as module:name; raises UsageError."""
    module, _, attribute = name.partition(":")
    allowed = "allowed: module:name of a jaxrecall.Simulator, such as perceptron:simulator"
    if not attribute or not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise UsageError(f"simulator: got {name!r}; {allowed}")
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:  # whatever the module of a user raises
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"simulator: {name} cannot be imported ({why}){where_to_run(module, error)}; {allowed}") from error
    if not isinstance(found, Simulator):
        raise UsageError(f"simulator: {name} is of type {type(found).__name__}; {allowed}")
    return found


def add_to_path(folders: Iterable[str]) -> None:
    """Makes modules in the folders importable, after everything that is importable already."""
    sys.path += [folder for folder in folders if folder not in sys.path]


def trusted(module: str) -> None:
    """Imports a module that `--trust` names, or its .py file, so that laws of it are known; raises UsageError."""
    path = Path(module)
    if path.suffix == ".py":
        add_to_path([str(path.absolute().parent)])
        module = path.stem
    try:
        import_module(module)
    except Exception as error:  # whatever the module of a user raises
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"--trust: got {path}, which cannot be imported ({why}); allowed: a module, or its .py file") from error


def not_finite(rows: Any, simulator: RecallSimulator | Simulator) -> Iterator[str]:
    """Lines about rows without finite metrics, or without
    a number in single columns of a user's simulator."""
    own = simulator.own_columns if isinstance(simulator, Simulator) else ()
    if nonfinite := list(rows["status"]).count("nonfinite"):
        why = f"{simulator.accuracy} is not finite, and null" if own else "a number overflowed, and their metrics are null"
        yield f"{nonfinite} of {len(rows)} rows have the status nonfinite: {why}"
    for name in own:
        if name != simulator.accuracy and (missing := list(rows[name].isna()).count(True)):
            yield f"{name}: absent or not finite in {missing} of {len(rows)} rows, where it is null"


def limited_by_kappa(rows: Any, axes: Iterable[str], along: str = "N") -> str:
    """A line about the cells in which a larger kappa would raise recall, empty if there are none.

    `attention_top1` is the part of the sequences in which the informative token has the
    largest score, and `attention_mass` the attention that it gets. Where scores are
    right but too small, the first exceeds the second. Runs that train on are left out:
    they find attention by themselves.

    Args:
        rows: one row per run, as `load` returns them.
        axes: what varies between points.
        along: the axis whose values make up a cell; its largest value is judged.
    """
    columns = ["attention_top1", "attention_mass"]
    if not {along, "kappa", "steps", *columns} <= {*rows}:
        return ""
    rows = rows[rows["steps"] == 3]
    cell = [axis for axis in axes if axis in rows and axis != along and rows[axis].nunique(dropna=False) > 1]
    means = rows.groupby([*cell, along], dropna=False)[columns].mean().reset_index().sort_values(along, kind="stable")
    last = means.groupby(cell, dropna=False).tail(1) if cell else means.tail(1)
    gaps = last["attention_top1"] - last["attention_mass"]
    if not (open_ := gaps > GAP).any():
        return ""
    worst = last.loc[gaps.idxmax()]
    at = ", ".join(f"{axis} = {worst[axis] if isinstance(worst[axis], str) else format(worst[axis], 'g')}" for axis in [*cell, along])
    top1, mass = (worst[column] for column in columns)
    return (
        f"attention is limited by kappa in {open_.sum()} of {len(last)} cells, at {at} most: there attention_top1 is {top1:.2f} and "
        f"attention_mass {mass:.2f}, so recall is understated. Raise kappa until the two agree"
    )
