"""A digest of a user's own code, which tells whether the code has changed.

The digest of a function covers its syntax tree, the values that it carries, and the
functions, classes and constants that it names in the user's modules. Comments,
docstrings, formatting and positions do not count. Code of this package, of the standard
library and of installed packages counts by its name.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import inspect
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.machinery import PathFinder
from io import BytesIO
from pickle import Pickler
from textwrap import dedent
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from ..errors import in_one_line

PACKAGE = __name__.partition(".")[0]


def source_digest(value: object, unknown: list[str]) -> str:
    """Returns the digest of a function, a class or another object.

    An object that cannot be pickled has no digest of its own. The reason is added to
    `unknown`.
    """
    contents = BytesIO()
    pickler = _Source(contents, 4)
    # equal objects are written alike, whether or not they are one object
    pickler.fast = True
    pickler.written = []
    try:
        pickler.dump(value)
    except Exception as error:  # an object may raise anything
        unknown.append(in_one_line(error))
    # versions of Python differ in the quotes with which they write a syntax tree
    written = contents.getvalue().replace(b'"', b"'")
    return hashlib.sha256(written).hexdigest()[:16]


@dataclass(frozen=True)
class BySource:
    """A function that equals each function with the same digest, such as a closure that
    is made anew. A function without a digest equals no other function.
    """

    fn: Callable[..., Any] = field(compare=False)
    digest: str | int
    has_digest: bool

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)


def by_source(fn: Callable[..., Any]) -> BySource:
    """Returns the function in a form that is compared by its source."""
    unknown = list[str]()
    digest = source_digest(fn, unknown)
    return BySource(fn, id(fn) if unknown else digest, not unknown)


class _Source(Pickler):
    """Pickles objects, with the source of functions and classes in place of their
    names. Nothing reads the pickle.
    """

    written: list[object]

    def persistent_id(self, value: Any) -> Any:
        """Returns what is written in place of an object. None means the object."""
        match value:
            case FunctionType():
                return self._definition(value, value.__globals__.get("__name__", ""))
            case type():
                return self._definition(value, value.__module__)
            case ModuleType():
                return value.__name__
            case CellType():
                return [value.cell_contents]
            case CodeType():
                return value.co_code, value.co_names, value.co_consts
            case set() | frozenset():
                return sorted(map(repr, value))
        if callable(value) and hasattr(value, "__wrapped__"):  # a jitted function, say
            return type(value), value.__wrapped__
        return None

    def _definition(self, value: Any, module: str) -> Any:
        if value in self.written:
            return self.written.index(value)
        self.written.append(value)
        closure = getattr(value, "__closure__", None)
        if _is_installed(module):
            return module, value.__qualname__, closure
        text = _text(value)
        shape = re.sub(r"\n +None$", "", text, flags=re.MULTILINE)
        if isinstance(value, FunctionType):
            code = value.__code__
            carried = value.__defaults__, value.__kwdefaults__, closure
            return shape or code, carried, _named(code, value.__globals__)
        if text and "<locals>" not in value.__qualname__:
            code = compile(text, "", "exec")
            inside = _named(code, vars(sys.modules[module]))
        else:
            inside = [*filter(inspect.isfunction, vars(value).values())]
        return shape, value.__bases__, inside


def _is_installed(module: str) -> bool:
    """Whether a module belongs to this package, the standard library or an installed
    package. The module is not imported.
    """
    top = module.partition(".")[0]
    spec = PathFinder.find_spec(top)
    file = str(spec and spec.origin)
    is_here = "site-packages" in file or "dist-packages" in file
    return is_here or top in (PACKAGE, *sys.stdlib_module_names)


def _text(definition: Any) -> str:
    """Returns the source of a function or class without comments, and with None in
    place of docstrings. The text is empty if there is no source, and for a lambda,
    which may share its line.
    """
    try:
        tree = ast.parse(dedent(inspect.getsource(definition)))
    except (OSError, TypeError, SyntaxError):
        return ""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                node.value = ast.Constant(None)
    return "" if definition.__name__ == "<lambda>" else ast.unparse(tree)


def _named(code: CodeType, variables: dict[str, Any]) -> list[tuple[str, object]]:
    """Returns the names that code takes from modules, and their values."""
    values, names, codes = list[tuple[str, Any]](), set[str](), [code]
    for each in codes:
        codes += filter(inspect.iscode, each.co_consts)
        names.update(each.co_names)
        for instruction in dis.get_instructions(each):
            name = instruction.argval
            match instruction.opname:
                case "LOAD_GLOBAL" | "LOAD_NAME" if name in variables:
                    values.append((name, variables[name]))
                case "IMPORT_NAME" if not _is_installed(name):
                    with suppress(Exception):  # the function fails in the same way
                        values.append((name, import_module(name)))
    modules = list[ModuleType]()
    for _, value in values:
        if inspect.ismodule(value) and value not in modules:
            modules.append(value)
            inside = {} if _is_installed(value.__name__) else vars(value)
            values += [(name, inside[name]) for name in sorted(names & inside.keys())]
    return values
