"""The arithmetic that a grid file may hold, such as "round(alpha * d * L)" or "N >= d".

`parse` reads the text with `ast` and refuses everything that is not on a short list. In
what is left, every operator and function becomes a call of one that takes numbers and
gives a number below 2^1024, and Python compiles it. So no expression takes long or
fills the memory.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from ...errors import shown

MAX_TEXT, MAX_BITS = 500, 1024

Value = bool | int | float | str


def _power(base: float, exponent: float) -> complex:
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1 and (base.bit_length() - 1) * exponent >= MAX_BITS:
        raise OverflowError
    return base**exponent


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "round": round, "floor": math.floor, "ceil": math.ceil, "int": int, "sqrt": math.sqrt, "log": math.log, "log2": math.log2,
    "log10": math.log10, "exp": math.exp, "abs": abs, "min": min, "max": max,
}  # fmt: skip
_OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "Div": operator.truediv, "FloorDiv": operator.floordiv,
    "Mod": operator.mod, "UAdd": operator.pos, "USub": operator.neg, "Pow": _power,
}  # fmt: skip
_HINTS = {ast.BitXor: "; a power is **", ast.BitAnd: "; write and", ast.BitOr: "; write or", ast.Invert: "; write not"}
_ALLOWED = "allowed: numbers, names, quoted text, true, false, + - * / // % **, == != < <= > >=, in [..], and, or, not"
_FAULTS = {
    OverflowError: "a number past 1e308",
    ZeroDivisionError: "division by zero",
    TypeError: "cannot order text and numbers",
}
_NO_CALLS = 'no calls here; define a helper, derive: {edge: "V * log(V)"}, and use it, where: ["N >= edge"]'


def _bounded(function: Callable[..., Any]) -> Callable[..., float]:
    """The function for numbers alone, with a result that is a number and not too large."""

    def run(*numbers: Value) -> float:
        for value in numbers:
            if not isinstance(value, (int, float)):
                raise ValueError(f"got {value!r} where a number is needed")
        try:
            result = function(*numbers)
        except ValueError:
            raise ValueError(f"{function.__name__}({', '.join(map(repr, numbers))}) is not a number") from None
        if isinstance(result, complex):
            raise ValueError("the root of a negative number")
        if result.bit_length() > MAX_BITS if isinstance(result, int) else not math.isfinite(result):
            raise OverflowError("a number past 1e308")
        return result

    return run


_SCOPE: dict[str, Callable[..., float]] = {f"{name}()": _bounded(function) for name, function in (FUNCTIONS | _OPERATORS).items()}
"""What a compiled expression calls; no name of a value ends in ()."""


@dataclass(frozen=True)
class Expression:
    """A parsed expression: its text, the names that it uses, the quoted texts in it."""

    text: str
    names: frozenset[str]
    strings: frozenset[str]
    _code: CodeType = field(repr=False, compare=False)

    def evaluate(self, values: Mapping[str, Value | None]) -> Value:
        """The value of the expression at `values`.

        Raises ValueError, which shows the expression and the values that it used.
        """
        used = {name: values[name] for name in sorted(self.names) if values.get(name) is not None}
        try:
            if lacking := self.names - used.keys():
                raise ValueError(f"{min(lacking)} has no value")
            return eval(self._code, _SCOPE, used)
        except (ArithmeticError, TypeError, ValueError) as error:
            message = _FAULTS.get(type(error), str(error))
        at = ", ".join(f"{name}={value!r}" for name, value in used.items())
        raise ValueError(f"{self.text!r}: {message}" + (f", at {at}" if at else ""))


def parse(text: str, calls: bool) -> Expression:
    """`text` as an Expression; `calls` says whether functions such as round and log may be used.

    A name may be that of a law's parameter, such as embedding.rho. Raises ValueError,
    which shows the expression, what was received and what is allowed.
    """
    checker = _Checker(calls)
    try:
        if len(text) > MAX_TEXT:
            raise ValueError(f"got {len(text)} characters; allowed: up to {MAX_TEXT}")
        checked = ast.Expression(checker.checked(tree(text)))
        code = compile(ast.fix_missing_locations(checked), "expression", "eval")
    except (ValueError, OverflowError, RecursionError) as error:
        message = "is nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"{shown(text, 40 if len(text) > MAX_TEXT else MAX_TEXT)}: {message}") from None
    return Expression(text, frozenset(checker.names), frozenset(checker.strings), code)


def tree(text: str) -> ast.expr:
    """The syntax tree of an expression, whatever is in it; raises ValueError."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(text.strip().replace("\n", " "), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        hint = "; compare with ==" if re.search(r"(?<![=!<>])=(?!=)", text) else ""
        raise ValueError(f"is no expression; {_ALLOWED}{hint}") from None


class _Checker:
    """Checks the nodes of an expression, and collects names and quoted texts on the way."""

    def __init__(self, calls: bool):
        self.calls, self.names, self.strings = calls, set[str](), set[str]()

    def checked(self, node: ast.expr) -> ast.expr:
        """The node with bounded arithmetic; raises ValueError or OverflowError."""
        match node:
            case ast.Constant(value=str() as text):
                self.strings.add(text)
            case ast.Constant(value=bool() | int() | float() as number):
                _SCOPE["UAdd()"](number)
            case ast.Name(id="true" | "false" as name):
                return ast.Constant(name == "true")
            case ast.Name() | ast.Attribute(value=ast.Name()):
                self.names.add(ast.unparse(node))
                return ast.Name(ast.unparse(node), ast.Load())
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return ast.UnaryOp(ast.Not(), self.checked(operand))
            case ast.UnaryOp(op=op, operand=operand) if type(op).__name__ in _OPERATORS:
                return self._call(type(op).__name__, [operand])
            case ast.BinOp(left=left, op=op, right=right) if type(op).__name__ in _OPERATORS:
                return self._call(type(op).__name__, [left, right])
            case ast.BoolOp(op=op, values=values):
                return ast.BoolOp(op, [self.checked(value) for value in values])
            case ast.Compare(left=left, ops=ops, comparators=rights):
                return ast.Compare(self.checked(left), ops, [self._right(*each) for each in zip(ops, rights, strict=True)])
            case ast.Call(func=function, args=arguments):
                return self._call(self._function(node, ast.unparse(function)), arguments)
            case _:
                text = ast.unparse(node)
                hint = _HINTS.get(type(getattr(node, "op", None)), "")
                raise ValueError(f"got {text}; {_ALLOWED}{hint}")
        return node

    def _call(self, name: str, arguments: Iterable[ast.expr]) -> ast.expr:
        return ast.Call(ast.Name(f"{name}()", ast.Load()), [self.checked(argument) for argument in arguments], [])

    def _right(self, op: ast.cmpop, node: ast.expr) -> ast.expr:
        """The right side of a comparison."""
        if isinstance(op, (ast.Is, ast.IsNot)):
            raise ValueError("got is; allowed: ==, !=")
        if not isinstance(op, (ast.In, ast.NotIn)):
            return self.checked(node)
        if not isinstance(node, (ast.List, ast.Tuple)):
            raise ValueError(f"got {ast.unparse(node)} after in; allowed: a list such as [1, 2]")
        return ast.List([self.checked(item) for item in node.elts], ast.Load())

    def _function(self, node: ast.Call, name: str) -> str:
        if not self.calls:
            raise ValueError(_NO_CALLS)
        if name not in FUNCTIONS:
            raise ValueError(f"got a call of {name}; allowed functions: {', '.join(FUNCTIONS)}")
        many = name in ("min", "max")
        if node.keywords or (len(node.args) < 2 if many else len(node.args) != 1):
            raise ValueError(f"{name} takes {'two or more arguments' if many else 'one argument'}")
        return name
