"""Laws with parameters, and the text of a law in grids and rows.

A law is a frozen dataclass, and its fields are its parameters. An example of the text
of a law is `equicorrelated(rho=0.3)`. The text consists of the name of the class and
the parameters that are off their default, in the order of their declaration, with
numbers to 12 digits. The name of a class from outside the package is its import path,
as in `mymodule:MyLaw(a=2)`, so that any process finds the class. Points and programs
contain the laws themselves. `find_law` converts a text to a law as soon as a user gives
it.
"""

from __future__ import annotations

import ast
import inspect
import json
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from functools import cached_property, lru_cache
from importlib import import_module
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from ...errors import PointError, Problem, shown, suggest, where_to_run
from ..values import Numbers, checked_value, plain_type, to_12_digits

PACKAGE = __name__.partition(".")[0]


class LawColumn(NamedTuple):
    """A parameter of a law as a column of a row."""

    value: float
    legend: str
    unit: str


@dataclass(frozen=True, eq=False)
class Law:
    """A law of the embeddings, tokens, activation or optimizer: the value of a field.

    A law equals its text and has the same hash: `Gaussian() == "gaussian"`. Two laws
    are equal if they have the same class and the same text.

    Raises PointError for a parameter that is out of range or of the wrong type. Limits
    are declared with `parameter`.
    """

    field: ClassVar[str]
    family: ClassVar[type[Law]]
    """The class of all laws of the field."""

    name: ClassVar[str]
    """The short name. The default is the name of the class in lower case."""

    reads_file: ClassVar[bool] = False
    """Whether the law reads a file whose path is in the text of the law. The content of
    the file may change, so the law adds a hash of the content to its text.
    """

    of_function: ClassVar[Callable[..., type[Law]] | None] = None
    """A callable that makes a law class, if the law of the field may be a function. The
    arguments of the callable are the function, its module and its name.
    """

    always_columns: ClassVar[bool] = True
    """Whether rows have a column for every number of the law. Otherwise they have
    columns only for numbers that are off their default or that a grid sets.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = vars(cls).get("name", cls.__name__.lower())
        if Law in cls.__bases__:
            cls.family = cls
        # a dataclass generates its own methods unless the class defines them
        cls.__eq__ = Law.__eq__
        cls.__hash__ = Law.__hash__

    def __post_init__(self) -> None:
        problems: list[Problem] = []
        for f in fields(self):
            name, value = f"{self.field}.{f.name}", getattr(self, f.name)
            value = checked_value(name, value, plain_type(f), f.metadata, problems)
            if isinstance(value, float):
                value = float(to_12_digits(value))
            object.__setattr__(self, f.name, value)
        if problems:
            raise PointError(problems)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Law):
            return type(self) is type(other) and self._text == other._text
        return self._text == other if isinstance(other, str) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)

    def __str__(self) -> str:
        return self._text

    def __reduce__(self) -> tuple[Any, ...]:
        return find_law, (self.family, self._text)

    @cached_property
    def _text(self) -> str:
        changed = []
        for f in fields(self):
            value = getattr(self, f.name)
            if value != f.default:
                changed.append(f"{f.name}={_literal(value)}")
        name = class_name(type(self))
        return f"{name}({', '.join(changed)})" if changed else name

    def identity(self) -> str:
        """Returns the text of the law that enters the id of a point."""
        return str(self)

    @classmethod
    def source(cls) -> object:
        """Returns the object that defines the law's numbers: the class, or the function
        that the class wraps.
        """
        return cls

    @cached_property
    def static(self) -> Self:
        """The law with default values for its traced parameters. A compiled program
        depends only on this law.

        A traced parameter without a default is NaN, which represents any value.
        """
        usual: dict[str, Numbers] = {}
        for f in self._traced_fields():
            usual[f.name] = math.nan if f.default is MISSING else f.default
        return self._with(usual) if usual else self

    def _traced_fields(self) -> list[Field[float]]:
        """Returns the float parameters that are not declared static."""
        traced = []
        for f in fields(self):
            is_static = f.metadata.get("kind") == "static"
            if isinstance(getattr(self, f.name), float) and not is_static:
                traced.append(f)
        return traced

    def traced(self, of: str) -> dict[str, float]:
        """Returns a dict from dotted name, such as "embedding.rho", to value. It
        contains the float parameters that are not static.

        One compiled program serves all values of these parameters. `of` is the field of
        the point, such as embedding or embedding_out.
        """
        return {f"{of}.{f.name}": getattr(self, f.name) for f in self._traced_fields()}

    def with_traced(self, values: Mapping[str, Numbers], of: str = "") -> Self:
        """Returns a copy with these float parameters. They are arrays of a traced
        program and are not checked. `of` is as in `traced`. The default is the field of
        the class.
        """
        prefix = of or self.field
        names = [f.name for f in self._traced_fields()]
        return self._with({name: values[f"{prefix}.{name}"] for name in names})

    def _with(self, values: Mapping[str, Numbers]) -> Self:
        """Returns a copy with these values of parameters. The values are not
        checked.
        """
        other = object.__new__(type(self))
        for f in fields(self):
            value = values.get(f.name, getattr(self, f.name))
            object.__setattr__(other, f.name, value)
        return other

    def columns(self, of: str, named: Collection[str]) -> dict[str, LawColumn]:
        """Returns a dict from dotted name to column. It contains the numeric parameters
        that are columns of a row.

        Parameters in `named` are columns even at their defaults. `of` is as in
        `traced`.
        """
        columns = {}
        for f in fields(self):
            name, value = f"{of}.{f.name}", getattr(self, f.name)
            shows = self.always_columns or name in named or value != f.default
            if shows and isinstance(value, int | float):
                legend = f.metadata.get("legend") or "parameter of a law"
                unit = f.metadata.get("unit", "1")
                columns[name] = LawColumn(float(value), legend, unit)
        return columns


AnyLaw = TypeVar("AnyLaw", bound=Law)
LawClass = TypeVar("LawClass", bound=type[Law])
LAWS: dict[str, dict[str, type[Law]]] = {
    "embedding": {},
    "tokens": {},
    "activation": {},
    "optimizer": {},
}
"""The laws of each field by short name: those of the package, and those added by
`register`.
"""

_local: dict[str, type[Law]] = {}
"""The latest classes and functions that were defined inside a function, by
`module:name`. They cannot be imported.
"""


def register(law: LawClass, name: str | None = None) -> LawClass:
    """Adds a short name for a law and returns the law. The default is the law's own
    name. The function can be used as a decorator.

    Texts and rows contain the import path of a law from outside the package, even if
    the law has an alias. Raises ValueError if the name is taken.
    """
    known, alias = LAWS[law.field], name or law.name
    if alias in known:
        raise ValueError(
            f"{law.field}: got the name {alias!r} a second time; allowed: a name other"
            f" than {', '.join(known)}"
        )
    known[alias] = law
    return law


def class_name(law: type[Law]) -> str:
    """Returns the name of a law in texts: the short name for a law of this package,
    else `module:Class`.
    """
    if law.__module__.partition(".")[0] == PACKAGE:
        return law.name
    return f"{law.__module__}:{law.__qualname__}"


def law_names(field: str) -> tuple[str, ...]:
    """Returns the names of the registered laws of a field as they appear in texts."""
    return tuple(dict.fromkeys(map(class_name, LAWS[field].values())))


def find_law(family: type[AnyLaw], given: object) -> AnyLaw:
    """Returns the law that a text, an alias or an object represents.

    Args:
        family: EmbeddingLaw, TokenLaw, Activation or OptimizerLaw.
        given: a text such as "equicorrelated(rho=0.3)" or "mymodule:MyLaw", a law, the
            class of a law, or, for an optimizer, a function.

    Raises:
        PointError: there is no such law, it has no such parameter, or the value of a
            parameter is not allowed.
    """
    if isinstance(given, str):
        name = given.partition("(")[0].strip()
        law = LAWS[family.field].get(name) or _imported(family, name, given)
        parse = _parse if law.reads_file else _parsed
        return parse(law, given)  # type: ignore[return-value]
    if inspect.isfunction(given) and family.of_function:
        given = family.of_function(given, given.__module__, given.__qualname__)
    if isinstance(given, type) and issubclass(given, family):
        given = made(given, {})
    if not isinstance(given, family):
        raise _error(family, given)
    if "<locals>" in type(given).__qualname__:
        _local[class_name(type(given))] = type(given)
    return given


def _parse(law: type[Law], text: str) -> Law:
    """Returns the law of this class with the arguments in the text."""
    _, bracket, arguments = text.partition("(")
    try:
        given = _arguments(law, f"law({arguments}" if bracket else "law()")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        why = "; write parameters as in name(a=1, b='text')"
        raise _error(law, text, why) from None
    return made(law, given)


_parsed = lru_cache(4096)(_parse)


def _arguments(law: type[Law], text: str) -> dict[str, object]:
    """Returns the literal arguments of a call, by parameter.

    Raises ValueError or SyntaxError for anything else.
    """
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError("not one call")
    places = [f.name for f in fields(law) if not f.kw_only]
    nodes = dict(zip(places, call.args, strict=False))
    nodes |= {str(word.arg): word.value for word in call.keywords}
    if len(nodes) != len(call.args) + len(call.keywords):
        raise ValueError("an argument too many")
    return {name: ast.literal_eval(node) for name, node in nodes.items()}


def not_imported(text: object) -> str:
    """Returns the name of the module that contains the law in a text. The result is an
    empty text if this module is imported already.
    """
    module, colon, _ = str(text).partition("(")[0].strip().partition(":")
    return module if colon and module not in sys.modules else ""


def made(law: type[AnyLaw], values: Mapping[str, object]) -> AnyLaw:
    """Returns a law of this class with these parameters. All other parameters have
    their defaults.

    Raises PointError.
    """
    parameters, text = {f.name: f for f in fields(law)}, class_name(law)
    allowed = ", ".join(parameters) or "none, it has no parameters"
    problems = []
    for name, value in values.items():
        if name not in parameters:
            message = (
                f"got {name}={shown(value)}; parameters of {text}:"
                f" {allowed}{suggest(name, parameters)}"
            )
            problems.append(Problem(f"{law.field}.{name}", message))
    for name, f in parameters.items():
        if name not in values and f.default is MISSING:
            message = f"got nothing; {text} needs it, as in {text}({name}=1)"
            problems.append(Problem(f"{law.field}.{name}", message))
    if problems:
        raise PointError(problems)
    return law(**values)


def _imported(family: type[Law], path: str, text: str) -> type[Law]:
    """Returns the class of a law from outside the package, or raises PointError.

    The path is `module:Class` or `module:function`.
    """
    module, _, name = path.partition(":")
    if not name:
        raise _error(family, text)
    try:
        law: Any = _local.get(path) or attrgetter(name)(import_module(module))
    except Exception as error:  # importing a module may raise anything
        why = f", which cannot be imported: {error}{where_to_run(module, error)}"
        raise _error(family, text, why) from None
    if family.of_function and inspect.isfunction(law):
        return family.of_function(law, module, name)
    if not isinstance(law, type) or not issubclass(law, family):
        raise _error(family, text)
    return law


def _error(law: type[Law], given: object, why: str = "") -> PointError:
    field = law.field
    if isinstance(given, str) and not why:
        why = suggest(given.partition("(")[0].strip(), LAWS[field])
    path = "module:Class"
    if law.of_function:
        path += " or module:function, as optax:lion"
    allowed = f"{', '.join(LAWS[field])}, or your own as {path}"
    return PointError([Problem(field, f"got {shown(given)}{why}", allowed=allowed)])


def rename_problems(
    problems: Iterable[Problem], law: Law | type[Law], field: str
) -> list[Problem]:
    """Returns the problems of a law, with the name of its usual field replaced by the
    field that contains the law.

    For example, embedding.rho becomes embedding_out.rho.
    """
    moved = []
    for problem in problems:
        argument = re.sub(rf"^{law.field}\b", field, problem.argument)
        where = problem.where and problem.where.replace(law.field, field)
        moved.append(replace(problem, argument=argument, where=where))
    return moved


def plain(value: Any) -> Any:
    """Returns the value of a field in the form that files and rows contain. A law is
    converted to its text.
    """
    return str(value) if isinstance(value, Law) else value


def _literal(value: object) -> str:
    if isinstance(value, float):
        return to_12_digits(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
