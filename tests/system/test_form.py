"""The form of the package's code: what a reader would have to take apart is refused.
Each check is shown to refuse a small bad text.
"""

import ast
import inspect
from collections.abc import Callable
from itertools import chain

import pytest
from helpers import ROOT

COMPREHENSION = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)

COLUMNS = 88
"""Columns of a line. A longer line counts as several."""

MAX_LINES = 60
"""Lines of a function, with its docstring, beyond which it is long."""

MAX_LONG = 10
"""How many functions of the package may be long."""

REFERS_BACK = {"It", "Its", "They", "Their", "That", "Those", "Of", "And", "Or", "As"}
"""First words of a paragraph that means nothing without the one before."""


def dense_comprehensions(text: str) -> list[int]:
    """The lines of comprehensions with two or more `for` and an `if`."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, COMPREHENSION):
            continue
        conditions = [part.ifs for part in node.generators]
        if len(conditions) > 1 and any(conditions):
            found.append(node.lineno)
    return found


def nested_conditionals(text: str) -> list[int]:
    """The lines of conditional expressions that contain another one."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.IfExp):
            inside = chain.from_iterable(map(ast.walk, ast.iter_child_nodes(node)))
            if any(isinstance(part, ast.IfExp) for part in inside):
                found.append(node.lineno)
    return found


def long_functions(text: str) -> list[int]:
    """The lines on which long functions begin."""
    lines = text.splitlines()
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, FUNCTION):
            body = lines[node.lineno - 1 : node.end_lineno]
            if sum(max(1, -(-len(line) // COLUMNS)) for line in body) > MAX_LINES:
                found.append(node.lineno)
    return found


def orphans(text: str) -> list[int]:
    """The lines of docstrings, and of texts that document a name above them, whose
    second paragraph is the end of the first: a single sentence that refers back to it.
    """
    found = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(documentation))):
                paragraphs = inspect.cleandoc(documentation).split("\n\n")
                if len(paragraphs) > 1 and is_orphan(paragraphs[1]):
                    found.append(node.lineno)
    return found


def is_orphan(paragraph: str) -> bool:
    words = paragraph.split()
    sentences = " ".join(words).split(". ")
    return words[0] in REFERS_BACK and len(sentences) == 1


def offenders(check: Callable[[str], list[int]]) -> list[str]:
    """Places in the package, as file:line."""
    found = []
    for path in sorted((ROOT / "jaxrecall").rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        found += [f"{place}:{line}" for line in check(path.read_text())]
    return found


def test_no_comprehension_has_two_loops_and_a_condition():
    assert offenders(dense_comprehensions) == [], "write the loops, or name a step"


def test_no_conditional_expression_is_inside_another():
    assert offenders(nested_conditionals) == [], "write `if` statements"


def test_few_functions_are_long():
    assert len(offenders(long_functions)) <= MAX_LONG, offenders(long_functions)


def test_no_docstring_is_a_sentence_cut_short():
    assert offenders(orphans) == [], "write one sentence, or two that stand alone"


def function(lines: int, line: str = "    x = 1") -> str:
    """A function of so many lines."""
    return "\n".join(["def f():", *[line] * (lines - 1)])


def documented(paragraph: str) -> str:
    return f'"""The sum of a row.\n\n{paragraph}\n"""\n'


@pytest.mark.parametrize(
    ("check", "bad", "good"),
    [
        (
            dense_comprehensions,
            "x = [b for a in y for b in a if b]",
            "x = [b for a in y for b in a]\nz = [a for a in y if a]",
        ),
        (
            dense_comprehensions,
            "f(b for a in y if a for b in a)",
            "f(b for b in (a for a in y if a))",
        ),
        (
            nested_conditionals,
            "x = 1 if a else 2 if b else 3",
            "x = 1 if a else 2\nz = 3 if b else 4",
        ),
        (
            nested_conditionals,
            "x = (f(1 if a else 2)) if b else 3",
            "x = 1 if a else 2",
        ),
        (long_functions, function(61), function(60)),
        (long_functions, function(31, f"    x = {'1' * 88}"), function(31)),
        (orphans, documented("It is over columns."), documented("Columns are summed.")),
        (
            orphans,
            "x = 1\n" + documented("Of its columns, not\nof its rows."),
            documented("It is a long story. Rows are short."),
        ),
    ],
)
def test_a_check_refuses_a_bad_text(check, bad, good):
    assert len(check(bad)) == 1
    assert check(good) == []
