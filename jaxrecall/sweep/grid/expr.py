"""The arithmetic that a grid file may contain, such as "round(alpha * d * L)" or "N >=
d".

`parse` parses the text with `ast` and refuses every node that is not on a short list.
Python then compiles the expression. The size of a power is checked before the power is
computed, and every value must be below 2^1024. Therefore no line of a file can take
long to compute or fill the memory.
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

Scalar = bool | int | float | str


def _power(base: float, exponent: float) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1:
        bits = (base.bit_length() - 1) * exponent
        if bits >= MAX_BITS:
            raise OverflowError
    return base**exponent


ARITHMETIC = "+ - * / // % **"
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
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
    *_OPERATORS,
    ast.Constant,
    ast.Name,
    ast.Attribute,
    ast.Load,
    ast.UnaryOp,
    ast.Not,
    ast.UAdd,
    ast.USub,
    ast.BinOp,
    ast.BoolOp,
    ast.boolop,
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
    'no calls here; define a variable, derive: {edge: "V * log(V)"}, and use it, where:'
    ' ["N >= edge"]'
)


def _of_numbers(
    operation: Callable[[Any, Any], Any],
) -> Callable[[object, object], Any]:
    """Returns a version of the operation that raises ValueError unless both operands
    are numbers.

    Without this restriction, a line of a file could make Python repeat a text or a list
    any number of times.
    """

    def checked(left: object, right: object) -> Any:
        for operand in (right, left):
            if not isinstance(operand, (int, float)):
                raise ValueError(
                    f"got {shown(operand)}; allowed: {ARITHMETIC} of numbers"
                )
        return operation(left, right)

    return checked


_SCOPE = {f"{name}()": function for name, function in FUNCTIONS.items()}
_SCOPE |= {f"{kind.__name__}()": _of_numbers(f) for kind, f in _OPERATORS.items()}
"""The functions that a compiled expression calls. The keys end in (), so they never
clash with the names of values.
"""


@dataclass(frozen=True)
class Expression:
    """A parsed expression: its text, and the names that it uses."""

    text: str
    names: frozenset[str]
    _code: CodeType = field(repr=False, compare=False)

    def evaluate(self, values: Mapping[str, Scalar | None]) -> Scalar:
        """Returns the value of the expression for these values of the names.

        Raises ValueError. The message shows the expression and the values that were
        used.
        """
        used = {}
        for name in sorted(self.names):
            if values.get(name) is not None:
                used[name] = values[name]
        lacking = self.names - used.keys()
        try:
            if lacking:
                raise ValueError(f"{min(lacking)} has no value")
            return _checked(eval(self._code, _SCOPE, used))
        except (ArithmeticError, TypeError, ValueError) as error:
            message = _FAULTS.get(type(error), str(error))
        at = ", ".join(f"{name}={value!r}" for name, value in used.items())
        raise ValueError(f"{self.text!r}: {message}" + (f", at {at}" if at else ""))


def names_in(expressions: Iterable[Expression]) -> set[str]:
    """Returns the set of names that at least one of these expressions uses."""
    return set[str]().union(*(expression.names for expression in expressions))


def _checked(value: object) -> Scalar:
    """Returns the value if it is text, true, false, or a number that is not too large.

    Raises ValueError or OverflowError for any other value.
    """
    if isinstance(value, complex):
        raise ValueError("the root of a negative number")
    if not isinstance(value, (int, float, str)):
        raise ValueError(
            f"gives {shown(value)}; allowed: a number, text, true or false"
        )
    if is_too_large(value):
        raise OverflowError
    return value


def is_too_large(value: object) -> bool:
    """Whether a value is a number past 1e308, an infinity, or nan."""
    if isinstance(value, int):
        return value.bit_length() > MAX_BITS
    return isinstance(value, float) and not math.isfinite(value)


def parse(text: str, calls: bool) -> Expression:
    """Returns the Expression that the text describes.

    A name in the text may be a parameter of a law, such as embedding.rho.

    Args:
        text: a text of up to MAX_TEXT characters.
        calls: whether functions such as round and log may be used.

    Raises:
        ValueError: the message shows the expression, what was received and what is
            allowed.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(
            f"{shown(text, 40)}: got {len(text)} characters; allowed: up to {MAX_TEXT}"
        )
    reader = _ExpressionReader(calls)
    try:
        checked = ast.Expression(reader.visit(_tree(text)))
        code = compile(ast.fix_missing_locations(checked), "expression", "eval")
    except ValueError as error:
        raise ValueError(f"{shown(text, MAX_TEXT)}: {error}") from None
    except (RecursionError, MemoryError):  # MemoryError comes from Python's parser
        raise ValueError(
            f"{shown(text, 40)}: too many operations within each other; allowed: a"
            " shorter expression, or one of several variables"
        ) from None
    return Expression(text, frozenset(reader.names), code)


def _tree(text: str) -> ast.expr:
    """Returns the syntax tree of an expression without checking its nodes. Raises
    ValueError if the text is no expression.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(text.strip().replace("\n", " "), mode="eval").body
    except (SyntaxError, ValueError):
        hint = "; compare with ==" if re.search(r"(?<![=!<>])=(?!=)", text) else ""
        raise ValueError(f"is no expression; {_ALLOWED}{hint}") from None


class _ExpressionReader(ast.NodeTransformer):
    """Checks the nodes of an expression, and collects its names."""

    def __init__(self, calls: bool):
        self.calls = calls
        self.names = set[str]()

    def visit(self, node: ast.AST) -> Any:
        """Returns the node in the form that is compiled. Raises ValueError if the node
        is not allowed.
        """
        for part in (node, *ast.iter_child_nodes(node)):
            allowed = isinstance(part, _NODES)
            if isinstance(part, ast.Constant):
                allowed = isinstance(part.value, (int, float, str))
            if not allowed:
                hint = _HINTS.get(type(part), "")
                raise ValueError(f"got {ast.unparse(node)}; {_ALLOWED}{hint}")
        return super().visit(node)

    def visit_Name(self, node: ast.Name | ast.Attribute) -> ast.expr:
        name = ast.unparse(node)
        if name in ("true", "false"):
            return ast.Constant(name == "true")
        self.names.add(name)
        return ast.Name(name, ast.Load())

    visit_Attribute = visit_Name

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        return self._call(type(node.op).__name__, [node.left, node.right])

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = ast.unparse(node.func)
        if not self.calls:
            raise ValueError(_NO_CALLS)
        if name not in FUNCTIONS:
            raise ValueError(
                f"got a call of {name}; allowed functions: {', '.join(FUNCTIONS)}"
            )
        return self._call(name, node.args)

    def _call(self, name: str, arguments: list[ast.expr]) -> ast.Call:
        function = ast.Name(f"{name}()", ast.Load())
        return ast.Call(function, list(map(self.visit, arguments)), [])
