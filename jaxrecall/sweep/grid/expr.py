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
from typing import Any

MAX_TEXT, MAX_DEPTH, MAX_BITS = 500, 100, 1024

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "round": round, "floor": math.floor, "ceil": math.ceil, "int": int, "sqrt": math.sqrt, "log": math.log, "log2": math.log2,
    "log10": math.log10, "exp": math.exp, "abs": abs, "min": min, "max": max,
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.UAdd: operator.pos, ast.USub: operator.neg,
}  # fmt: skip
_ORDER = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}
_HINTS = {ast.BitXor: "; a power is **", ast.BitAnd: "; write and", ast.BitOr: "; write or", ast.Invert: "; write not"}
_BOOLEANS = {"true": True, "false": False}
_ALLOWED = "allowed: numbers, names, quoted text, true, false, + - * / // % **, == != < <= > >=, in [..], and, or, not"
_NO_CALLS = 'no calls here; define a helper, derive: {edge: "V * log(V)"}, and use it, where: ["N >= edge"]'

Number = bool | int | float
Value = Number | str

_Evaluate = Callable[[Mapping[str, Any]], Any]
"""A node of an expression as a function of the values of the names."""


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

    Raises ValueError, which shows the expression, what was received and what is allowed.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"{text[:40] + '...'!r}: got {len(text)} characters; allowed: up to {MAX_TEXT}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip().replace("\n", " "), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        hint = "; compare with ==" if re.search(r"(?<![=!<>])=(?!=)", text) else ""
        raise ValueError(f"{text!r}: is no expression; {_ALLOWED}{hint}") from None
    compiler = _Compiler(calls)
    try:
        run = compiler.compile(tree.body, 0)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r}: {error}") from None
    return Expression(text, frozenset(compiler.names), frozenset(compiler.strings), run)


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
                if isinstance(value, str):
                    self.strings.add(value)
                else:
                    _bounded(value)
                return lambda values: value
            case ast.Name(id=name) if name in _BOOLEANS:
                return lambda values: _BOOLEANS[name]
            case ast.Name(id=name):
                self.names.add(name)
                return lambda values: values[name]
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = sub(operand)
                return lambda values: not inner(values)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _ARITHMETIC:
                inner, unary = sub(operand), _ARITHMETIC[type(op)]
                return lambda values: _bounded(unary(_number(inner(values))))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC or isinstance(op, ast.Pow):
                one, two, binary = sub(left), sub(right), _ARITHMETIC.get(type(op), _power)
                return lambda values: _bounded(binary(_number(one(values)), _number(two(values))))
            case ast.BoolOp(op=op, values=children):
                return _short_circuit([sub(c) for c in children], stop=isinstance(op, ast.Or))
            case ast.Compare(left=left, ops=ops, comparators=rights):
                return self._comparison(sub(left), ops, rights, sub)
            case ast.Call():
                return self._call(node, sub)
        shown = ast.unparse(node)
        hint = _HINTS.get(type(getattr(node, "op", None)), "")
        raise ValueError(f"got {shown if len(shown) < 60 else shown[:57] + '...'}; {_ALLOWED}{hint}")

    def _comparison(self, left: _Evaluate, ops: list[ast.cmpop], rights: list[ast.expr], sub: Callable[[ast.expr], _Evaluate]) -> _Evaluate:
        steps: list[tuple[Callable[[Any, Any], Any], _Evaluate]] = []
        for op, right in zip(ops, rights, strict=True):
            if isinstance(op, (ast.In, ast.NotIn)):
                items = [sub(item) for item in _items(right)]
                wanted = isinstance(op, ast.In)
                steps.append((lambda a, b, w=wanted: (a in b) is w, lambda values, items=items: [i(values) for i in items]))
            elif isinstance(op, (ast.Eq, ast.NotEq)):
                steps.append((operator.eq if isinstance(op, ast.Eq) else operator.ne, sub(right)))
            elif type(op) in _ORDER:
                order = _ORDER[type(op)]
                steps.append((lambda a, b, order=order: order(*_comparable(a, b)), sub(right)))
            else:
                raise ValueError("got is; allowed: ==, !=")

        def run(values: Mapping[str, Any]) -> bool:
            one = left(values)
            for holds, right in steps:
                two = right(values)
                if not holds(one, two):
                    return False
                one = two
            return True

        return run

    def _call(self, node: ast.Call, sub: Callable[[ast.expr], _Evaluate]) -> _Evaluate:
        if not self.calls:
            raise ValueError(_NO_CALLS)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS:
            raise ValueError(f"got a call of {ast.unparse(node.func)}; allowed functions: {', '.join(FUNCTIONS)}")
        many = name in ("min", "max")
        if node.keywords or (len(node.args) < 2 if many else len(node.args) != 1):
            raise ValueError(f"{name} takes {'two or more arguments' if many else 'one argument'}")
        function, arguments = FUNCTIONS[name], [sub(a) for a in node.args]

        def run(values: Mapping[str, Any]) -> Number:
            numbers = [_number(a(values)) for a in arguments]
            try:
                return _bounded(function(*numbers))
            except ValueError:
                raise ValueError(f"{name}({', '.join(map(repr, numbers))}) is not a number") from None

        return run


def _short_circuit(parts: list[_Evaluate], stop: bool) -> _Evaluate:
    """`and` (stop at the first false) or `or` (stop at the first true), with Python's values."""

    def run(values: Mapping[str, Any]) -> Any:
        result = None
        for part in parts:
            result = part(values)
            if bool(result) is stop:
                break
        return result

    return run


def _items(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, (ast.List, ast.Tuple)):
        return node.elts
    raise ValueError(f"got {ast.unparse(node)} after in; allowed: a list such as [1, 2]")


def _power(base: Number, exponent: Number) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1 and (base.bit_length() - 1) * exponent >= MAX_BITS:
        raise OverflowError
    return base**exponent


def _number(value: Value) -> Number:
    if isinstance(value, (int, float)):
        return value
    raise ValueError(f"got {value!r} where a number is needed")


def _comparable(one: Value, two: Value) -> tuple[Any, Any]:
    if isinstance(one, str) != isinstance(two, str):
        raise ValueError(f"cannot order {one!r} and {two!r}")
    return one, two


def _bounded(value: Number | complex) -> Number:
    if not isinstance(value, complex):
        if value.bit_length() > MAX_BITS if isinstance(value, int) else not math.isfinite(value):
            raise OverflowError("a number past 1e308")
        return value
    raise ValueError("the root of a negative number")
