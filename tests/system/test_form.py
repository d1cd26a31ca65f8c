"""The form of the package's code: what a reader would have to take apart is refused.
Each check is shown to refuse a small bad text.
"""

import ast
import functools
import inspect
from collections.abc import Callable
from itertools import chain

import pytest
from helpers import ROOT

COMPREHENSION = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
CALLED = (*FUNCTION, ast.Lambda, ast.GeneratorExp)

COLUMNS = 88
"""Columns of a line. A longer line counts as several."""

MAX_LINES = 60
"""Lines of a function, with its docstring, beyond which it is long."""

MAX_LONG = 10
"""How many functions of the package may be long."""

EVERYWHERE = ["benchmarks", "examples", "jaxrecall", "results", "sweeps", "tests"]
"""The folders with code that users or tests run."""


@functools.lru_cache(maxsize=1)
def nodes(text: str) -> list[ast.AST]:
    """Of the tree of a text, in the order of `ast.walk`."""
    return [*ast.walk(ast.parse(text))]


REFERS_BACK = {"It", "Its", "They", "Their", "That", "Those", "Of", "And", "Or", "As"}
"""First words of a paragraph that means nothing without the one before."""


def dense_comprehensions(text: str) -> list[int]:
    """The lines of comprehensions with two or more `for` and an `if`."""
    found = []
    for node in nodes(text):
        if not isinstance(node, COMPREHENSION):
            continue
        conditions = [part.ifs for part in node.generators]
        if len(conditions) > 1 and any(conditions):
            found.append(node.lineno)
    return found


def nested_conditionals(text: str) -> list[int]:
    """The lines of conditional expressions that contain another one."""
    found = []
    for node in nodes(text):
        if isinstance(node, ast.IfExp):
            inside = chain.from_iterable(map(ast.walk, ast.iter_child_nodes(node)))
            if any(isinstance(part, ast.IfExp) for part in inside):
                found.append(node.lineno)
    return found


def long_functions(text: str) -> list[int]:
    """The lines on which long functions begin."""
    lines = text.splitlines()
    found = []
    for node in nodes(text):
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
    for node in nodes(text):
        match node:
            case ast.Expr(value=ast.Constant(value=str(documentation))):
                paragraphs = inspect.cleandoc(documentation).split("\n\n")
                if len(paragraphs) > 1 and is_orphan(paragraphs[1]):
                    found.append(node.lineno)
    return found


class Names(ast.NodeVisitor):
    """The names of one function, without those of functions inside it.

    `variables` has the names that a list, set or dict comprehension loops over, with
    their lines. `read` has the names that such a comprehension takes from elsewhere.
    `local` has the variables of the function itself.
    """

    def __init__(self, function: ast.AST) -> None:
        self.variables: dict[str, int] = {}
        self.read: set[str] = set()
        self.local: set[str] = set()
        self.looped_over: set[str] | None = None  # None outside comprehensions
        self.generic_visit(function)

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.DictComp) -> None:
        outside = self.looped_over
        own = set()
        for part in node.generators:
            own |= {n.id for n in ast.walk(part.target) if isinstance(n, ast.Name)}
        self.variables |= dict.fromkeys(own, node.lineno)
        self.looped_over = own | (outside or set())
        self.generic_visit(node)
        self.looped_over = outside

    visit_SetComp = visit_DictComp = visit_ListComp

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in (self.looped_over or ()):
            return
        if not isinstance(node.ctx, ast.Load):
            self.local.add(node.id)
        elif self.looped_over is not None:
            self.read.add(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        self.local.add(node.arg)

    def visit_alias(self, node: ast.alias) -> None:
        self.local.add(node.asname or node.name)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        self.local.add(node.name)

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda | ast.GeneratorExp) -> None:
        """Passes over a function inside the function."""

    visit_GeneratorExp = visit_Lambda


def ambiguous_names(text: str) -> list[int]:
    """The lines of comprehensions that loop over a name which another comprehension of
    the function takes from outside the function. CPython 3.12.1 raises
    UnboundLocalError there.
    """
    found = []
    for node in nodes(text):
        if isinstance(node, CALLED):
            names = Names(node)
            both = names.variables.keys() & names.read - names.local
            found += [names.variables[name] for name in both]
    return found


OTHER_TOLERANCES = {"allclose", "approx", "assert_allclose", "isclose"}


def other_tolerances(text: str) -> list[int]:
    """The lines that compare numbers with tolerances of their own."""
    called = [node.func for node in nodes(text) if isinstance(node, ast.Call)]
    return [
        function.lineno
        for function in called
        if ast.unparse(function).rpartition(".")[2] in OTHER_TOLERANCES
    ]


def is_orphan(paragraph: str) -> bool:
    words = paragraph.split()
    sentences = " ".join(words).split(". ")
    return words[0] in REFERS_BACK and len(sentences) == 1


Check = Callable[[str], list[int]]

OF_PACKAGE = [dense_comprehensions, nested_conditionals, long_functions, orphans]


@functools.cache
def offenders() -> dict[Check, list[str]]:
    """Places as file:line, by check. Each file is parsed once for all checks."""
    every = [*OF_PACKAGE, ambiguous_names, other_tolerances]
    found = {check: [] for check in every}
    for folder in EVERYWHERE:
        checks = [ambiguous_names]
        if folder == "jaxrecall":
            checks += OF_PACKAGE
        if folder == "tests":
            checks.append(other_tolerances)
        for path in sorted((ROOT / folder).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            text = path.read_text()
            for check in checks:
                found[check] += [f"{place}:{line}" for line in check(text)]
    return found


def test_no_comprehension_has_two_loops_and_a_condition():
    assert offenders()[dense_comprehensions] == [], "write the loops, or name a step"


def test_no_conditional_expression_is_inside_another():
    assert offenders()[nested_conditionals] == [], "write `if` statements"


def test_few_functions_are_long():
    found = offenders()[long_functions]
    assert len(found) <= MAX_LONG, found


def test_no_docstring_is_a_sentence_cut_short():
    assert offenders()[orphans] == [], "write one sentence, or two that stand alone"


def test_no_name_means_two_things_to_the_comprehensions_of_a_function():
    found = offenders()[ambiguous_names]
    assert found == [], "rename the variable; CPython 3.12.1 takes both for one"


def test_all_tests_share_one_table_of_tolerances():
    assert offenders()[other_tolerances] == [], "call tolerances.assert_close"


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
        (other_tolerances, "np.isclose(a, b)", "assert_close(a, b)\nx = np.isclose"),
        (long_functions, function(31, f"    x = {'1' * 88}"), function(31)),
        (orphans, documented("It is over columns."), documented("Columns are summed.")),
        (
            orphans,
            "x = 1\n" + documented("Of its columns, not\nof its rows."),
            documented("It is a long story. Rows are short."),
        ),
        (
            ambiguous_names,
            "def f(y):\n    a = [b for b in y]\n    return {b(x) for x in a}",
            "def f(y):\n    a = [c for c in y]\n    return {b(x) for x in a}",
        ),
        (
            ambiguous_names,
            "def f(y):\n    return [[b(x) for x in y] for _ in [b for b in y]]",
            "def f(y, b):\n    return [[b(x) for x in y] for _ in [b for b in y]]",
        ),
        (
            ambiguous_names,
            "f = lambda y: [b(x) for x in [b for b in y]]",
            "f = lambda y: [b(x) for x in (b for b in y)]",
        ),
    ],
)
def test_a_check_refuses_a_bad_text(check, bad, good):
    assert len(check(bad)) == 1
    assert check(good) == []
