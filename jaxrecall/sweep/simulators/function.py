"""A simulator made from a function of a key and of named parameters. The signature of
the function declares the fields, and what the function returns declares the columns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial, update_wrapper
from inspect import Parameter
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import numpy as np

from ...errors import UsageError, as_list, closest, expect, in_one_line, shown
from ...model.point import Run
from ...model.source import by_source
from ..running.progress import Failure
from .custom import (
    RESERVED,
    STEP,
    TYPES,
    ByName,
    Declaration,
    Simulator,
    problems_of_columns,
)

ALLOWED = "a function of a key and of named parameters: def f(key, *, N, lam=1.0)"

TYPED = (
    "the annotation int, float, bool or Literal of texts, or a default of such a type"
)

KINDS = {"b": bool, "i": int, "u": int, "f": float, "V": float, "O": float, "U": str}
"""A dict from the kinds of NumPy's types to the types of columns. JAX's floats of 8 and
16 bits have the kind V, and None has the kind O.
"""


class field(NamedTuple):
    """The limits and the meaning of a parameter, for its annotation:
    `N: Annotated[int, jaxrecall.field(low=1, meaning="samples")]`.
    """

    low: float | None = None
    high: float | None = None
    meaning: str = ""


class FunctionSimulator(Simulator):
    """A simulator that can also be called like the function of which it is made.

    The columns are known when the first point has been made.
    """

    has_columns = False

    def __init__(
        self,
        fn: Callable[..., ByName],
        static: Iterable[str] | str,
        measure: str | None,
        axes: ByName | None = None,
        arrays: Mapping[str, str] | None = None,
        batched: bool = False,
        **options: Any,
    ):
        self.batched = batched
        allowed = "the name of a number that the function returns"
        measure = str(expect("measure", measure, str, allowed))
        fields = _declarations(fn, static, axes)
        if isinstance(fn, partial) and not fn.args:
            # what it binds are defaults of fields, so that rows have them
            fn = fn.func
        self.parameters = tuple(fields)
        allowed = "a dict from a column to the name of its axis"
        self.array_axes = expect("arrays", arrays or {}, Mapping, allowed)
        super().__init__(fn, fields, {measure: (float, "")}, measure, **options)
        self._module = inspect.unwrap(fn).__module__
        self.function = fn
        update_wrapper(self, fn, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @cached_property
    def _compiled(self) -> tuple[Any, ...]:
        """What programs depend on. `run` makes a simulator anew for each call, and
        equal simulators share programs.
        """
        return by_source(self.fn), str(self.field_columns)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, FunctionSimulator) and self._compiled == other._compiled
        )

    def __hash__(self) -> int:
        return hash(self._compiled)

    def call(self, point: Any, key: Any) -> Any:
        return self.fn(key, **{name: getattr(point, name) for name in self.parameters})

    def point(self, values: ByName) -> Any:
        point = super().point(values)
        if not self.has_columns:
            self.set_columns(self._columns_at(point))
            self.has_columns = True
        return point

    def _columns_at(self, point: Any) -> dict[str, tuple[Any, ...]]:
        """Returns the columns that the function returns at a point. Starts JAX.

        Raises UsageError if the function fails there, or returns no such columns.
        """
        from ...simulator import custom_runs
        from ...simulator.device import start

        start()
        precision = "highest"  # as in a grid without other settings
        where = f"simulator: {self.name}"
        try:
            if self.jit:
                returned = self.trace(point.program, precision).columns
            else:
                [returned] = custom_runs.call_plain(self, precision, [Run(point, 0)])
        except UsageError:
            raise
        except Exception as error:  # the user's function may raise anything
            line = Failure.of(error).line
            raise UsageError(f"{where} fails at its first point: {line}") from error
        columns, lines = {}, []
        steps = np.shape(returned.get(STEP, 0))
        for name, value in returned.items():
            kind, shape = _kind_of_column(value), np.shape(value)
            axis = [self.array_axes[name]] if name in self.array_axes else []
            if kind and shape[: len(shape) - len(axis)] in ((), steps):
                columns[name] = kind, name, *axis
            else:
                example = f"arrays={{{name!r}: 'task'}}"
                lines.append(
                    f"{where} returned {name} = {shown(value)}; allowed: one number, or"
                    f" an array with a name for its axis, as in {example}"
                )
        columns.pop(STEP, None)
        lines = lines or problems_of_columns(
            columns, self.fields, self.jit, "measure", self.accuracy
        )
        if lines:
            raise UsageError(lines)
        return columns


def simulator(
    *,
    static: Iterable[str] | str = (),
    measure: str,
    arrays: Mapping[str, str] | None = None,
    version: int = 1,
    rises: Mapping[str, bool] | None = None,
    jit: bool = True,
    batched: bool = False,
) -> Callable[[Callable[..., ByName]], FunctionSimulator]:
    """Makes a simulator of a function of a key and of named parameters, as a decorator.

    A grid file names the simulator as module:function. The simulator can still be
    called like the function.

    Args:
        static: the numbers that a shape or a Python `if` needs. Each combination of
            their values is compiled once. Text and bools are always static, and other
            numbers are arrays in the function.
        measure: the returned number that figures, fits and searches use.
        arrays: the returned arrays, each with the name of its axis, as in
            `{"task_loss": "task"}`. The column then contains lists.
        version, rises, jit: as for `Simulator`. If jit is False, the function is called
            once at the first point to find its columns.
        batched: whether one call computes n runs, in NumPy or `torch.func.vmap` say.
            The function is then not compiled. It receives keys (n,) and arrays (n,) of
            the parameters that are not static, and the first axis of all that it
            returns is that of the runs, except for `step`.

    The annotation of a parameter is int, float, bool or `Literal` of texts. It may be
    in `Annotated[int, jaxrecall.field(low=1, meaning="samples")]`. Without annotation,
    the type is that of the default. A static parameter that has neither is an int.

    Raises:
        UsageError: the message contains a line for every mistake.

    Examples:
        >>> import jax, jax.numpy as jnp, jaxrecall
        >>> @jaxrecall.simulator(static="d", measure="overlap")
        ... def cosine(key, *, d, noise=0.0):
        ...     a, b = jax.random.normal(key, (2, d))
        ...     b += noise
        ...     return {"overlap": jnp.abs(a @ b) / jnp.sqrt((a @ a) * (b @ b))}
        >>> df = jaxrecall.run(cosine, axes={"d": [4, 16]}, seeds=8)
    """
    return partial(
        FunctionSimulator,
        static=static,
        measure=measure,
        arrays=arrays,
        batched=batched,
        version=version,
        rises=rises,
        jit=jit and not batched,
    )


def _declarations(
    fn: Callable[..., Any],
    static: Iterable[str] | str,
    axes: ByName | None,
) -> dict[str, tuple[Any, ...]]:
    """Returns the declaration of each field, from the parameters of a function.

    Args:
        fn: the function.
        static: the names of the static parameters.
        axes: the values of the axes, which decide types that neither an annotation nor
            a default tells. None if they are unknown.

    Raises:
        UsageError: the message contains a line for every mistake.
    """
    try:
        _, *parameters = inspect.signature(fn, eval_str=True).parameters.values()
    except Exception as error:  # annotations may be any expressions
        got = f"{shown(fn)} ({in_one_line(error)})"
        raise UsageError(f"fn: got {got}; allowed: {ALLOWED}") from None
    named = {each.name: each for each in parameters}
    static = [static] if isinstance(static, str) else static
    allowed = f"parameters of the function: {', '.join(named)}"
    static, lines = as_list("static", static, allowed), []
    for name in static:
        if name not in named:
            lines.append(f"static: got {shown(name)}; allowed: {allowed}")
    unknown = sorted({*map(str, axes or ())} - {*named, *RESERVED})
    fields = {}
    for name, parameter in named.items():
        values = None if axes is None else _plain_values(axes.get(name, ()))
        declared = _declaration(parameter, name in static, values)
        if declared.kind not in [*TYPES]:
            line = f"fn: the type of {name} is unknown; allowed: {TYPED}"
            if typo := closest(name, unknown):
                line = f"axes: got {typo!r}; did you mean {name}?; allowed: {allowed}"
            lines.append(line)
        fields[name] = declared
    if lines:
        raise UsageError(lines)
    return fields


def _declaration(
    parameter: Parameter, is_static: bool, values: list[Any] | None
) -> Declaration:
    """Returns the declaration of a parameter. The type is that of the annotation, or of
    the default, or of the values on its axis. It is None if none of them has a type.
    """
    kind: Any = parameter.annotation
    notes = [note for note in get_args(kind) if isinstance(note, field)]
    low, high, meaning = notes[0] if notes else field()
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    default = None if parameter.default is Parameter.empty else parameter.default
    if kind is Parameter.empty:
        kinds = set(map(type, values or () if default is None else [default]))
        if kinds == {int, float}:
            kinds = {float}
        elif not kinds and is_static:
            kinds = {int}
        kind = kinds.pop() if len(kinds) == 1 else None
    if get_origin(kind) is Literal:
        low = get_args(kind)
        kind = str if set(map(type, low)) == {str} else None
    elif kind is str:
        # no Literal lists the allowed texts, so they are the default and the axis
        texts = dict.fromkeys([default, *(values or ())])
        texts.pop(None, None)
        low = tuple(texts)
        kind = str if low and values is not None else None
    treated = "static" if is_static or kind in (bool, str) else "traced"
    return Declaration(kind, default, low, high, treated, meaning)


def _plain_values(on_axis: Any) -> list[Any]:
    """Returns the values of an axis as Python values, and of a range only the first."""
    if isinstance(on_axis, range):
        on_axis = on_axis[:1]
    given = np.array(on_axis, object).flat
    return [each.item() if hasattr(each, "item") else each for each in given]


def _kind_of_column(value: Any) -> type | None:
    """Returns the type of the column for a returned value, or None if it has none."""
    dtype = value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
    return KINDS.get(getattr(dtype, "kind", ""))
