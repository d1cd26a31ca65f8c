"""Names, values and expressions of the axes as LaTeX."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...model.columns import is_parameter
from ...model.point import FIELDS
from ...model.values import is_missing
from ...sweep.grid.expr import parse, tree

SCIENTIFIC = 1e7
"""Numbers from here on are written with a power of ten."""

LETTERS = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega"
GREEK = {name: rf"\{name}" for name in LETTERS.split()} | {"gamma2": r"\gamma_2"}
OTHER = {"embedding_out": r"_{\mathrm{out}}", "noise_tokens": r"_{\mathrm{noise}}"}
"""Indices of parameters of laws that have the same in another law."""

ESCAPES = {ord(sign): rf"\{sign}" for sign in "&%$#_{}"} | {ord("\\"): r"\textbackslash{}", ord("~"): r"\~{}", ord("^"): r"\^{}"}
ESCAPES |= {ord(sign): f"${sign}$" for sign in "<>"}

COMPARISONS: dict[type, str] = {ast.Eq: "=", ast.NotEq: r"\ne", ast.Lt: "<", ast.LtE: r"\le", ast.Gt: ">", ast.GtE: r"\ge"}
COMPARISONS |= {ast.In: r"\in", ast.NotIn: r"\notin"}
ARITHMETIC: dict[type, tuple[str, int]] = {ast.Add: (" + ", 4), ast.Sub: (" - ", 4), ast.Mult: (r" \, ", 6), ast.Mod: (r" \bmod ", 6)}
"""Signs with their level: an operand of a lower level than its operator takes brackets."""

OR, AND, NOT, COMPARE, SIGN, POWER, ATOM = 0, 1, 2, 3, 5, 7, 8
AROUND = {"sqrt": (r"\sqrt{", "}"), "abs": ("|", "|"), "floor": (r"\lfloor ", r" \rfloor"), "ceil": (r"\lceil ", r" \rceil")}
CALLED = {"log": r"\ln", "log2": r"\log_2", "log10": r"\log_{10}", "exp": r"\exp", "min": r"\min", "max": r"\max"}

Typeset = tuple[str, int]
"""A formula, and the level of its outermost operator."""


def formula(text: str) -> str:
    r"""An expression of the axes as a formula, as it is given to --where; as text where it is none.

    >>> formula("L**2 >= 10 * V**1.5")  # '$L^{2} \\ge 10 \\, V^{1.5}$'
    """
    try:
        parse(text, calls=True)
    except ValueError:
        return escaped(text)
    return f"${_typeset(tree(text))[0]}$"


def _typeset(node: ast.expr) -> Typeset:
    match node:
        case ast.BoolOp(op=op, values=values):
            level, word = (AND, "and") if isinstance(op, ast.And) else (OR, "or")
            return rf" \mbox{{ {word} }} ".join(_operand(value, level + 1) for value in values), level
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return rf"\mbox{{not }} {_operand(operand, NOT)}", NOT
        case ast.UnaryOp(op=op, operand=operand):
            return f"{'-' if isinstance(op, ast.USub) else '+'}{_operand(operand, SIGN + 1)}", SIGN
        case ast.Compare(left=left, ops=ops, comparators=rights):
            signs = (COMPARISONS[type(op)] for op in ops)
            rest = (f" {sign} {_operand(right, COMPARE + 1)}" for sign, right in zip(signs, rights, strict=True))
            return _operand(left, COMPARE + 1) + "".join(rest), COMPARE
        case ast.BinOp(left=left, op=op, right=right):
            return _binary(left, op, right)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _call(name, arguments)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return rf"\{{{', '.join(_operand(item, OR) for item in items)}\}}", ATOM
        case ast.Constant(value=value) if not isinstance(value, str | bool):
            return number(value).strip("$"), ATOM
        case ast.Constant(value=value):
            return rf"\mbox{{{spelled(value)}}}", ATOM
    name = ast.unparse(node)
    return rf"\mbox{{{name}}}" if name in ("true", "false") else in_formula(name), ATOM


def _operand(node: ast.expr, least: int) -> str:
    """The formula of an operand, in brackets if its level is too low."""
    made, level = _typeset(node)
    return made if level >= least else f"({made})"


def _binary(left: ast.expr, op: ast.operator, right: ast.expr) -> Typeset:
    if isinstance(op, ast.Div | ast.FloorDiv):
        ratio = rf"\frac{{{_operand(left, OR)}}}{{{_operand(right, OR)}}}"
        return (ratio, POWER) if isinstance(op, ast.Div) else (rf"\lfloor {ratio} \rfloor", ATOM)
    if isinstance(op, ast.Pow):
        return f"{_operand(left, ATOM)}^{{{_operand(right, OR)}}}", POWER
    sign, level = ARITHMETIC[type(op)]
    factor = _operand(right, level + 1)
    if isinstance(op, ast.Mult) and factor[0].isdigit():
        sign = r" \cdot "
    return f"{_operand(left, level)}{sign}{factor}", level


def _call(name: str, arguments: Sequence[ast.expr]) -> Typeset:
    inside = ", ".join(_operand(argument, OR) for argument in arguments)
    if name in AROUND:
        return inside.join(AROUND[name]), POWER
    return CALLED.get(name, rf"\mathrm{{{name}}}") + f"({inside})", POWER


def in_formula(name: str) -> str:
    """The symbol of an axis, of a parameter of a law without the law, or its name, within a formula."""
    law, _, own = name.partition(".") if is_parameter(name) else ("", "", name)
    symbol = (FIELDS[name].metadata["symbol"] if name in FIELDS else "") or own
    return (GREEK.get(symbol) or (symbol if len(symbol) == 1 else rf"\mathrm{{{escaped(symbol)}}}")) + OTHER.get(law, "")


def spelled(value: Any) -> str:
    """A value of an axis in full, or text."""
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return str(value).lower()
    if is_missing(value):
        return "--"
    return escaped(value) if isinstance(value, str) else number(value)


def number(value: Any) -> str:
    """A number in full, with a power of ten where it is large or small."""
    if abs(value) >= SCIENTIFIC or 0 < abs(value) < 1e-3:
        digits, _, power = np.format_float_scientific(value, trim="-").partition("e")
        factor = "" if digits == "1" else rf"{digits} \times "
        return f"${factor}10^{{{int(power)}}}$"
    return grouped(f"{value:.6f}".rstrip("0").rstrip(".") if value != int(value) else f"{int(value)}")


def grouped(digits: str) -> str:
    """Thin spaces between thousands, from five digits on."""
    whole, dot, rest = digits.partition(".")
    return (f"{int(whole):,}".replace(",", r"\,") if len(whole) > 4 else whole) + dot + rest


def escaped(text: str) -> str:
    """Text with LaTeX's special signs written out."""
    return str(text).translate(ESCAPES)
