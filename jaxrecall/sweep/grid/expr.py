"""The arithmetic that a grid file may hold, such as "round(alpha * d * L)" or "N >= d", without `eval`.

`parse` reads the text with `ast`, refuses everything that is not on a short list, and compiles the rest to plain functions.
Numbers stay below 2^1024, and length and depth of a text are limited, so that no expression takes long or fills the memory.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from typing import Any

from ...errors import shown

MAX_TEXT, MAX_DEPTH, MAX_BITS = 500, 100, 1024

Number = bool | int | float
Value = Number | str

_Evaluate = Callable[[Mapping[str, Any]], Any]
"""A node of an expression as a function of the values of the names."""


def _power(base: Number, exponent: Number) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1 and (base.bit_length() - 1) * exponent >= MAX_BITS:
        raise OverflowError
    return base**exponent


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool]:
    def holds(one: Value, two: Value) -> bool:
        if isinstance(one, str) != isinstance(two, str):
            raise ValueError(f"cannot order {one!r} and {two!r}")
        return compare(one, two)

    return holds


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "round": round, "floor": math.floor, "ceil": math.ceil, "int": int, "sqrt": math.sqrt, "log": math.log, "log2": math.log2,
    "log10": math.log10, "exp": math.exp, "abs": abs, "min": min, "max": max,
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.UAdd: operator.pos, ast.USub: operator.neg, ast.Pow: _power,
}  # fmt: skip
_COMPARISONS = {
    ast.Lt: _ordered(operator.lt), ast.LtE: _ordered(operator.le), ast.Gt: _ordered(operator.gt), ast.GtE: _ordered(operator.ge),
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.In: lambda one, many: one in many, ast.NotIn: lambda one, many: one not in many,
}  # fmt: skip
_HINTS = {ast.BitXor: "; a power is **", ast.BitAnd: "; write and", ast.BitOr: "; write or", ast.Invert: "; write not"}
_ALLOWED = "allowed: numbers, names, quoted text, true, false, + - * / // % **, == != < <= > >=, in [..], and, or, not"
_NO_CALLS = 'no calls here; define a helper, derive: {edge: "V * log(V)"}, and use it, where: ["N >= edge"]'


@dataclass(frozen=True)
class Expression:
    """A parsed expression: its text, the names that it uses, the quoted texts in it."""

    text: str
    names: frozenset[str]
    strings: frozenset[str]
    _run: _Evaluate = field(repr=False, compare=False)

    def evaluate(self, values: Mapping[str, Any]) -> Value:
        """The value of the expression at `values`.

        Raises ValueError, which shows the expression and the values that it used.
        """
        try:
            for name in self.names:
                if values.get(name) is None:
                    raise ValueError(f"{name} has no value")
            return self._run(values)
        except OverflowError:
            message = "a number past 1e308"
        except ZeroDivisionError:
            message = "division by zero"
        except ValueError as error:
            message = str(error)
        used = ", ".join(f"{name}={values[name]!r}" for name in sorted(self.names) if values.get(name) is not None)
        raise ValueError(f"{self.text!r}: {message}" + (f", at {used}" if used else ""))


def parse(text: str, calls: bool) -> Expression:
    """`text` as an Expression; `calls` says whether functions such as round and log may be used.

    A name may be that of a law's parameter, such as embedding.rho. Raises ValueError, which shows the expression, what was
    received and what is allowed.
    """
    compiler = _Compiler(calls)
    try:
        run = compiler.compile(_tree(text), 0)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{shown(text, 40 if len(text) > MAX_TEXT else MAX_TEXT)}: {error}") from None
    return Expression(text, frozenset(compiler.names), frozenset(compiler.strings), run)


def _tree(text: str) -> ast.expr:
    if len(text) > MAX_TEXT:
        raise ValueError(f"got {len(text)} characters; allowed: up to {MAX_TEXT}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.strip().replace("\n", " "), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        hint = "; compare with ==" if re.search(r"(?<![=!<>])=(?!=)", text) else ""
        raise ValueError(f"is no expression; {_ALLOWED}{hint}") from None


class _Compiler:
    """Turns the allowed nodes into functions of the values, and collects names and quoted texts on the way."""

    def __init__(self, calls: bool):
        self.calls, self.names, self.strings = calls, set[str](), set[str]()

    def compile(self, node: ast.expr, depth: int) -> _Evaluate:
        if depth > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} deep")

        def sub(child: ast.expr) -> _Evaluate:
            return self.compile(child, depth + 1)

        match node:
            case ast.Constant(value=bool() | int() | float() | str() as value):
                self.strings |= {value} if isinstance(value, str) else set()
                constant = value if isinstance(value, str) else _bounded(value)
                return lambda values: constant
            case ast.Name(id="true" | "false" as name):
                return lambda values: name == "true"
            case ast.Name() | ast.Attribute(value=ast.Name()):
                name = ast.unparse(node)
                self.names.add(name)
                return lambda values: values[name]
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = sub(operand)
                return lambda values: not inner(values)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _ARITHMETIC:
                return _applied(_ARITHMETIC[type(op)], [sub(operand)])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return _applied(_ARITHMETIC[type(op)], [sub(left), sub(right)])
            case ast.BoolOp(op=ast.And(), values=children):
                return reduce(_and, [sub(child) for child in children])
            case ast.BoolOp(values=children):
                return reduce(_or, [sub(child) for child in children])
            case ast.Compare(left=left, ops=ops, comparators=rights):
                steps = zip(pairwise([left, *rights]), ops, strict=True)
                return reduce(_and, [_comparison(op, one, two, sub) for (one, two), op in steps])
            case ast.Call(func=function, args=arguments):
                return _applied(self._function(node, ast.unparse(function)), [sub(a) for a in arguments])
        text = ast.unparse(node)
        hint = _HINTS.get(type(getattr(node, "op", None)), "")
        raise ValueError(f"got {text if len(text) < 60 else text[:57] + '...'}; {_ALLOWED}{hint}")

    def _function(self, node: ast.Call, name: str) -> Callable[..., Any]:
        if not self.calls:
            raise ValueError(_NO_CALLS)
        if name not in FUNCTIONS:
            raise ValueError(f"got a call of {name}; allowed functions: {', '.join(FUNCTIONS)}")
        many = name in ("min", "max")
        if node.keywords or (len(node.args) < 2 if many else len(node.args) != 1):
            raise ValueError(f"{name} takes {'two or more arguments' if many else 'one argument'}")
        return FUNCTIONS[name]


def _applied(function: Callable[..., Any], arguments: list[_Evaluate]) -> _Evaluate:
    """A function of numbers, whose result is one that is not too large."""

    def run(values: Mapping[str, Any]) -> Number:
        numbers = [_number(a(values)) for a in arguments]
        try:
            result = function(*numbers)
        except ValueError:
            raise ValueError(f"{function.__name__}({', '.join(map(repr, numbers))}) is not a number") from None
        return _bounded(result)

    return run


def _and(one: _Evaluate, two: _Evaluate) -> _Evaluate:
    return lambda values: one(values) and two(values)


def _or(one: _Evaluate, two: _Evaluate) -> _Evaluate:
    return lambda values: one(values) or two(values)


def _comparison(op: ast.cmpop, left: ast.expr, right: ast.expr, sub: Callable[[ast.expr], _Evaluate]) -> _Evaluate:
    if type(op) not in _COMPARISONS:
        raise ValueError("got is; allowed: ==, !=")
    holds, one = _COMPARISONS[type(op)], sub(left)
    if not isinstance(op, (ast.In, ast.NotIn)):
        two = sub(right)
        return lambda values: holds(one(values), two(values))
    if not isinstance(right, (ast.List, ast.Tuple)):
        raise ValueError(f"got {ast.unparse(right)} after in; allowed: a list such as [1, 2]")
    items = [sub(item) for item in right.elts]
    return lambda values: holds(one(values), [item(values) for item in items])


def _number(value: Value) -> Number:
    if isinstance(value, (int, float)):
        return value
    raise ValueError(f"got {value!r} where a number is needed")


def _bounded(value: Number | complex) -> Number:
    if isinstance(value, complex):
        raise ValueError("the root of a negative number")
    if value.bit_length() > MAX_BITS if isinstance(value, int) else not math.isfinite(value):
        raise OverflowError("a number past 1e308")
    return value
