"""Laws with parameters, and the text by which points, grids and rows name them.

A law is a frozen dataclass; its fields are its parameters. `equicorrelated(rho=0.3)` is
the text of one: the name of the class, then the parameters that are off their default,
in the order of their declaration, numbers to 12 digits. A class from outside the
package has its import path for a name, as in `mymodule:MyLaw(a=2)`, so that any process
finds it.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass, replace
from functools import lru_cache
from importlib import import_module
from typing import Any, ClassVar, Self, TypeVar

from ...errors import PointError, Problem, shown, suggest, where_to_run
from ..values import Numbers, checked_value, to_12_digits

PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True)
class Law:
    """A law, whose text a field of a point holds: embedding, tokens, activation or
    optimizer.

    Raises PointError for a parameter that is out of range or of the wrong type. Limits
    are declared with `parameter`.
    """

    field: ClassVar[str]
    name: ClassVar[str] = ""
    """Short name of a law of this package, where it is not that of the class in small
    letters.
    """

    reads_file: ClassVar[bool] = False
    """Whether its text may name a file that holds something else
    the next time; then the law's own text says what it held.
    """

    always_columns: ClassVar[bool] = True
    """Whether rows have columns of all its numbers; else of those off their defaults,
    or named by a grid.
    """

    def __post_init__(self) -> None:
        problems: list[Problem] = []
        for f in fields(self):
            kind = f.type if isinstance(f.type, str) else f.type.__name__
            value = checked_value(
                f"{self.field}.{f.name}",
                getattr(self, f.name),
                kind,
                f.metadata,
                problems,
            )
            if isinstance(value, float):
                value = float(to_12_digits(value))
            object.__setattr__(self, f.name, value)
        if problems:
            raise PointError(problems)

    def __str__(self) -> str:
        changed = [
            f"{f.name}={_literal(value)}"
            for f in fields(self)
            if (value := getattr(self, f.name)) != f.default
        ]
        return class_name(type(self)) + (f"({', '.join(changed)})" if changed else "")

    def identity(self) -> str:
        """What of the law enters the id of a point."""
        return str(self)

    @classmethod
    def source(cls) -> object:
        """What its numbers come from: the class, or the function that made it."""
        return cls

    def static_text(self) -> str:
        """The text without the values of traced parameters: what a compiled program
        depends on.

        These are at their defaults, or at a value that stands for any.
        """
        return str(
            replace(
                self,
                **{f.name: _any_value(f) for f in fields(self) if self._is_traced(f)},
            )
        )

    def _is_traced(self, f: Field[float]) -> bool:
        """Whether a parameter is a float that is not declared static."""
        return (
            isinstance(getattr(self, f.name), float)
            and f.metadata.get("kind") != "static"
        )

    def traced(self, of: str = "") -> dict[str, float]:
        """The float parameters by dotted name, as "embedding.rho", but static ones.

        One compiled program serves all their values.

        `of` is the field of the point, where it is another one than that of the class,
        as embedding_out is.
        """
        return {
            f"{of or self.field}.{f.name}": getattr(self, f.name)
            for f in fields(self)
            if self._is_traced(f)
        }

    def numbers(
        self, of: str = "", named: Collection[str] = ()
    ) -> dict[str, tuple[float, str, str]]:
        """The parameters that are columns of a row by dotted name: value, legend and
        unit.

        Those in `named` are columns even at their defaults.
        """
        every = {
            f"{of or self.field}.{f.name}": (getattr(self, f.name), f)
            for f in fields(self)
        }
        return {
            name: (
                float(value),
                f.metadata.get("legend") or "parameter of a law",
                f.metadata.get("unit", "1"),
            )
            for name, (value, f) in every.items()
            if isinstance(value, int | float)
            and (self.always_columns or name in named or value != f.default)
        }

    def with_traced(self, values: Mapping[str, Numbers], of: str = "") -> Self:
        """A copy with these float parameters, arrays of a traced program, which are not
        checked.
        """
        other = copy.copy(self)
        for name in self.traced(of):
            object.__setattr__(other, name.partition(".")[2], values[name])
        return other


AnyLaw = TypeVar("AnyLaw", bound=type[Law])

SAME_AS = {"embedding_out": "embedding", "noise_tokens": "tokens"}
"""Fields of a point that hold a law, and the field whose law they have unless given."""

LAWS: dict[str, dict[str, type[Law]]] = {
    "embedding": {},
    "tokens": {},
    "activation": {},
    "optimizer": {},
}
"""The laws of each field by short name: those of the package, and aliases that
`register` added.
"""

OF_FUNCTIONS: dict[str, Callable[[Callable[..., object], str, str], type[Law]]] = {}
"""Fields whose law may be a function, and what makes a class of it and of its module
and name.
"""

_local: dict[str, type[Law]] = {}
"""Classes that were used as objects, by `module:Class`: the latest
of those that a notebook defines again, or a function makes.
"""


def register(law: AnyLaw, name: str | None = None) -> AnyLaw:
    """Adds a short name for a law, by default its own; usable as a decorator.

    Texts and rows name a law from outside the package by its import path whatever its
    alias. Raises ValueError if the name is taken.
    """
    known, alias = LAWS[law.field], name or _short_name(law)
    if alias in known:
        raise ValueError(
            f"{law.field}: got the name {alias!r} a second time; allowed: a name other"
            f" than {', '.join(known)}"
        )
    known[alias] = law
    return law


def _short_name(law: type[Law]) -> str:
    return law.name or law.__name__.lower()


def class_name(law: type[Law]) -> str:
    """The name of a law in texts: the short one of a law of this package, else
    `module:Class`.
    """
    if law.__module__.partition(".")[0] == PACKAGE:
        return _short_name(law)
    return f"{law.__module__}:{law.__qualname__}"


def source_digest(of: Any) -> str:
    """A hash of the source of a function or a class."""
    try:
        source = inspect.getsource(of)
    except (OSError, TypeError):  # it has no file
        codes = [
            each.__code__
            for each in (of, *vars(of).values())
            if inspect.isfunction(each)
        ]
        source = " ".join(
            f"{code.co_code!r} {code.co_names} {code.co_consts}" for code in codes
        )
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def law_names(field: str) -> tuple[str, ...]:
    """The names that texts have for the registered laws of a field."""
    return tuple(dict.fromkeys(map(class_name, LAWS[field].values())))


def find_law(field: str, given: object) -> Any:
    """The law that a text, an alias or an object names.

    Args:
        field: embedding, tokens, activation or optimizer, or a field that has a law of
            one of them.
        given: a text such as "equicorrelated(rho=0.3)" or "mymodule:MyLaw", a law, its
            class, or, for an optimizer, a function.

    Raises:
        PointError: there is no such law, it has no such parameter, or the value of one
            is not allowed.
    """
    if field in SAME_AS:
        try:
            return find_law(SAME_AS[field], given)
        except PointError as error:
            raise PointError(renamed(error.problems, field)) from None
    if field in OF_FUNCTIONS and inspect.isfunction(given):
        given = OF_FUNCTIONS[field](given, given.__module__, given.__qualname__)
    if isinstance(given, type) and issubclass(given, Law):
        given = _made(given, {})
    if isinstance(given, Law):
        if given.field != field or not is_dataclass(given):
            raise _error(field, given)
        name = class_name(type(given))
        if ":" in name and _local.get(name) is not type(given):
            _local[name] = type(given)
        return given
    if not isinstance(given, str):
        raise _error(field, given)
    head = given.partition("(")[0].strip()
    named = LAWS[field].get(head) or _imported(field, head, given)
    law = _parsed(named, given)
    return _parse(named, given) if law.reads_file and str(law) != given else law


def _parse(law: type[Law], text: str) -> Law:
    """The law of this class with the arguments of the text."""
    _, bracket, arguments = text.partition("(")
    given: dict[str, object] = {}
    if bracket:
        try:
            given = _arguments(law, f"law({arguments}")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise _error(law.field, text) from None
    return _made(law, given)


_parsed = lru_cache(4096)(_parse)


def _arguments(law: type[Law], text: str) -> dict[str, object]:
    """The literal arguments of a call, by parameter.

    Raises ValueError or SyntaxError for anything else.
    """
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError("not one call")
    places = [f for f in fields(law) if not f.kw_only]
    given = {
        f.name: ast.literal_eval(value)
        for f, value in zip(places, call.args, strict=False)
    }
    given |= {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    if len(given) != len(call.args) + len(call.keywords):
        raise ValueError("an argument too many")
    return given


def not_imported(text: object) -> str:
    """The module that a text names a law of and that is not imported yet.

    Empty if there is none.
    """
    module, colon, _ = str(text).partition("(")[0].strip().partition(":")
    return module if colon and module not in sys.modules else ""


def with_parameters(law: Law, values: Mapping[str, object]) -> Law:
    """The law with other values of some parameters; raises PointError."""
    return _made(type(law), asdict(law) | dict(values))


def _made(law: type[Law], values: Mapping[str, object]) -> Law:
    """A law of this class with these parameters, the others at their defaults.

    Raises PointError.
    """
    names, text = [f.name for f in fields(law)], class_name(law)
    allowed = ", ".join(names) or "none, it has no parameters"
    problems = [
        Problem(
            f"{law.field}.{name}",
            f"got {shown(value)}; parameters of {text}:"
            f" {allowed}{suggest(name, names)}",
        )
        for name, value in values.items()
        if name not in names
    ]
    problems += [
        Problem(
            f"{law.field}.{f.name}",
            f"got nothing; {text} needs it, as in {text}({f.name}=1)",
        )
        for f in fields(law)
        if f.name not in values and f.default is MISSING
    ]
    if problems:
        raise PointError(problems)
    return law(**values)


def _imported(field: str, path: str, text: str) -> type[Law]:
    """The class of a law from outside the package, `module:Class` or
    `module:function`.
    """
    module, colon, name = path.partition(":")
    if path in _local:
        return _local[path]
    if not colon or not name:
        raise _error(field, text)
    try:
        found: Any = sys.modules.get(module) or import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever a module does when it is imported
        raise _error(
            field,
            text,
            f", which cannot be imported: {error}{where_to_run(module, error)}",
        ) from None
    if field in OF_FUNCTIONS and inspect.isfunction(found):
        return OF_FUNCTIONS[field](found, module, name)
    if not (
        isinstance(found, type)
        and issubclass(found, Law)
        and getattr(found, "field", None) == field
    ):
        raise _error(field, text)
    return found


def _error(field: str, given: object, why: str = "") -> PointError:
    name = given.partition("(")[0].strip() if isinstance(given, str) else ""
    why = why or (
        suggest(name, LAWS[field]) if name and name not in LAWS[field] else ""
    )
    allowed = (
        f"{', '.join(LAWS[field])}, or your own as"
        f" module:Class{' or module:function' if field in OF_FUNCTIONS else ''}"
    )
    return PointError([Problem(field, f"got {shown(given)}{why}; allowed: {allowed}")])


def renamed(problems: Iterable[Problem], field: str) -> list[Problem]:
    """Problems of a law by the field that has it, as embedding_out.rho for
    embedding.rho.
    """
    law = SAME_AS.get(field, field)
    return [
        replace(
            p,
            argument=re.sub(rf"^{law}\b", field, p.argument),
            where=p.where and p.where.replace(law, field),
        )
        for p in problems
    ]


def _any_value(f: Field[float]) -> float:
    """The default of a float parameter, or else an allowed value."""
    if f.default is not MISSING:
        return f.default
    low, high = f.metadata.get("low", 0.0), f.metadata.get("high")
    return low + 1.0 if high is None else (low + high) / 2


def _literal(value: object) -> str:
    if isinstance(value, float):
        return to_12_digits(value)
    return (
        json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
    )
