"""How much code there is, counted in tokens.

Tokens do not depend on where lines are broken, so nothing is gained by packing them.
"""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

import pytest
from helpers import ROOT

NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
CLOSING = (")", "]", "}")

MOST = {"jaxrecall": 189_900, "tests": 228_950, "benchmarks": 16_000}
"""Tokens of each tree, without comments and docstrings. Folders may borrow from each
other. These bounds are not a change's to raise. This file, run as a script, prints the
sizes.
"""

ADVICE = (
    "a concept goes for one that comes: take out a feature that few use, or a second"
    " way to do one thing. If nothing can go, say what could not and why, and leave"
    " the bound as it is"
)


def docstring_lines(tree: ast.AST) -> set[int]:
    """The lines of docstrings, and of texts that document a name above them."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                lines |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    return lines


def code(text: str) -> list[str]:
    """The tokens of code in a text, the same however its lines are broken.

    Texts that follow each other, which Python joins, are one token, and so is an
    f-string. A comma before a closing bracket is none.
    """
    documented = docstring_lines(ast.parse(text))
    found: list[str] = []
    inside = 0  # of how many f-strings: Python >= 3.12 gives their parts
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        inside += kind == "FSTRING_START"
        is_text = inside > 0 or token.type == tokenize.STRING
        inside -= kind == "FSTRING_END"
        lines = range(token.start[0], token.end[0] + 1)
        if token.type in NO_CODE or not documented.isdisjoint(lines):
            continue
        if token.string in CLOSING and not is_text and found[-1] == ",":
            found.pop()
        if not is_text:
            found.append(token.string)
        elif not found or found[-1] != "text":
            found.append("text")
    return found


def sizes(tree: Path) -> dict[str, int]:
    """Tokens by folder."""
    found: Counter[str] = Counter()
    for path in tree.rglob("*.py"):
        folder = path.parent.relative_to(tree.parent).as_posix()
        found[folder] += len(code(path.read_text()))
    return {folder: n for folder, n in sorted(found.items()) if n}


@pytest.mark.parametrize("tree", MOST)
def test_no_tree_has_outgrown_its_bound(tree):
    size = sum(sizes(ROOT / tree).values())
    assert size <= MOST[tree], ADVICE


def test_code_is_counted_without_comments_and_docstrings():
    text = (
        '"""A module."""\n\n# why\nx = (1,\n     2)  # here\n\n\ndef f():\n'
        '    """What."""\n    return """a\n    b"""\n'
    )
    x = ["x", "=", "(", "1", ",", "2", ")"]
    assert code(text) == [*x, "def", "f", "(", ")", ":", "return", "text"]
    assert code("x = (\n    1,\n    2,\n)\n") == x
    assert code("x = f'{y:{2}}' 'a' f\"{f'{z}'}\"\n") == ["x", "=", "text"]


if __name__ == "__main__":
    for tree, most in MOST.items():
        by_folder = sizes(ROOT / tree)
        print(tree, sum(by_folder.values()), "of", most)
        for folder, n in by_folder.items():
            print(f"  {folder} {n}")
