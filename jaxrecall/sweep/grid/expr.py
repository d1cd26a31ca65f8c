"""The arithmetic that a grid file may hold, such as "round(alpha * d * L)" or "N >= d".

`parse` reads the text with `ast`, refuses everything that is not on a short list, and
lets Python compile the rest. A power is bounded before it is taken, and a value must be
below 2^1024, so that no line of a file takes long or fills the memory.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from ...errors import shown

MAX_TEXT, MAX_BITS = 500, 1024

Value = bool | int | float | str

ARITHMETIC = "+ - * / // % **"
_OPERATORS = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Div": operator.truediv,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "Pow": operator.pow,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "round": lambda number: round(number),
    "floor": math.floor,
    "ceil": math.ceil,
    "int": int,
    "sqrt": math.sqrt,
    "log": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "exp": math.exp,
    "abs": abs,
    "min": min,
    "max": max,
}
_NODES = (
    ast.Constant,
    ast.Name,
    ast.Attribute,
    ast.Load,
    ast.UnaryOp,
    ast.Not,
    ast.UAdd,
    ast.USub,
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Pow,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.Compare,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.In,
    ast.NotIn,
    ast.List,
    ast.Tuple,
    ast.Call,
)
_HINTS = {
    ast.BitXor: "; a power is **",
    ast.BitAnd: "; write and",
    ast.BitOr: "; write or",
    ast.Invert: "; write not",
}
_ALLOWED = (
    f"allowed: numbers, names, quoted text, true, false, {ARITHMETIC}, == != < <= > >=,"
    " in [..], and, or, not"
)
_FAULTS = {OverflowError: "a number past 1e308", ZeroDivisionError: "division by zero"}
_NO_CALLS = (
    'no calls here; define a helper, derive: {edge: "V * log(V)"}, and use it, where:'
    ' ["N >= edge"]'
)


def _arithmetic(name: str, left: object, right: object) -> Any:
    """The result for two numbers: Python would repeat a text or a list as often as a
    line of a file says.
    """
    if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
        raise ValueError(
            f"got {shown(left if isinstance(right, (int, float)) else right)}; allowed:"
            f" {ARITHMETIC} of numbers"
        )
    if (
        name == "Pow"
        and isinstance(left, int)
        and isinstance(right, int)
        and abs(left) > 1
        and (left.bit_length() - 1) * right >= MAX_BITS
    ):
        raise OverflowError
    return _OPERATORS[name](left, right)


_SCOPE = {
    f"{name}()": function
    for name, function in (FUNCTIONS | {"arithmetic": _arithmetic}).items()
}
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
        used = {
            name: values[name]
            for name in sorted(self.names)
            if values.get(name) is not None
        }
        try:
            if lacking := self.names - used.keys():
                raise ValueError(f"{min(lacking)} has no value")
            return _checked(eval(self._code, _SCOPE, used))
        except (ArithmeticError, TypeError, ValueError) as error:
            message = _FAULTS.get(type(error), str(error))
        at = ", ".join(f"{name}={value!r}" for name, value in used.items())
        raise ValueError(f"{self.text!r}: {message}" + (f", at {at}" if at else ""))


def _checked(value: object) -> Value:
    """A value that is text, true or false, or a number that is not too large; raises
    ValueError or OverflowError.
    """
    if isinstance(value, complex):
        raise ValueError("the root of a negative number")
    if not isinstance(value, (bool, int, float, str)):
        raise ValueError(
            f"gives {shown(value)}; allowed: a number, text, true or false"
        )
    if (isinstance(value, int) and value.bit_length() > MAX_BITS) or (
        isinstance(value, float) and not math.isfinite(value)
    ):
        raise OverflowError
    return value


def parse(text: str, calls: bool) -> Expression:
    """`text` as an Expression; `calls` says whether functions such as round and log may
    be used.

    A name may be that of a law's parameter, such as embedding.rho. Raises ValueError,
    which shows the expression, what was received and what is allowed.
    """
    reader = _Reader(calls)
    try:
        if len(text) > MAX_TEXT:
            raise ValueError(f"got {len(text)} characters; allowed: up to {MAX_TEXT}")
        checked = ast.Expression(reader.visit(tree(text)))
        code = compile(ast.fix_missing_locations(checked), "expression", "eval")
    except (ValueError, RecursionError) as error:
        message = "is nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(
            f"{shown(text, 40 if len(text) > MAX_TEXT else MAX_TEXT)}: {message}"
        ) from None
    return Expression(text, frozenset(reader.names), frozenset(reader.strings), code)


def tree(text: str) -> ast.expr:
    """The syntax tree of an expression, whatever is in it; raises ValueError."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(text.strip().replace("\n", " "), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        hint = "; compare with ==" if re.search(r"(?<![=!<>])=(?!=)", text) else ""
        raise ValueError(f"is no expression; {_ALLOWED}{hint}") from None


class _Reader(ast.NodeTransformer):
    """Checks the nodes of an expression, and collects names and quoted texts on the
    way.
    """

    def __init__(self, calls: bool):
        self.calls, self.names, self.strings = calls, set[str](), set[str]()

    def visit(self, node: ast.AST) -> Any:
        """The node as it is compiled; raises ValueError."""
        for each in (node, *ast.iter_child_nodes(node)):
            if not isinstance(each, _NODES) or (
                isinstance(each, ast.Constant)
                and not isinstance(each.value, (int, float, str))
            ):
                raise ValueError(
                    f"got {ast.unparse(node)}; {_ALLOWED}{_HINTS.get(type(each), '')}"
                )
        return super().visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, str):
            self.strings.add(node.value)
        return node

    def visit_Name(self, node: ast.Name | ast.Attribute) -> ast.expr:
        if (name := ast.unparse(node)) in ("true", "false"):
            return ast.Constant(name == "true")
        self.names.add(name)
        return ast.Name(name, ast.Load())

    visit_Attribute = visit_Name

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        name = ast.Constant(type(node.op).__name__)
        return ast.Call(
            ast.Name("arithmetic()", ast.Load()),
            [name, self.visit(node.left), self.visit(node.right)],
            [],
        )

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = ast.unparse(node.func)
        if not self.calls:
            raise ValueError(_NO_CALLS)
        if name not in FUNCTIONS:
            raise ValueError(
                f"got a call of {name}; allowed functions: {', '.join(FUNCTIONS)}"
            )
        return ast.Call(
            ast.Name(f"{name}()", ast.Load()),
            [self.visit(each) for each in node.args],
            [],
        )
