"""The lines of code of each folder may fall, and rise only where something was worth it."""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

from helpers import ROOT

NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)

MOST = {
    "jaxrecall": 512,
    "jaxrecall/analysis/figures": 989,
    "jaxrecall/analysis/fit": 972,
    "jaxrecall/analysis/report": 159,
    "jaxrecall/cli": 272,
    "jaxrecall/model": 1040,
    "jaxrecall/model/laws": 756,
    "jaxrecall/model/reference": 448,
    "jaxrecall/simulator": 2035,
    "jaxrecall/sweep": 1018,
    "jaxrecall/sweep/grid": 1104,
    "jaxrecall/sweep/running": 1130,
    "jaxrecall/sweep/simulators": 711,
    "jaxrecall/sweep/store": 495,
    "jaxrecall/theory": 752,
}
"""Lines of code of each folder, without blank lines, comments and docstrings. This file, run as a script, prints them as they are."""

MOST_FILES = 102


def lines_of_code(text: str) -> int:
    """Lines with a token that is neither a comment nor part of a docstring."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {line for token in tokens if token.type not in NO_CODE for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def sizes(package: Path) -> dict[str, int]:
    """Lines of code by folder."""
    found: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        found[path.parent.relative_to(package.parent).as_posix()] += lines_of_code(path.read_text())
    return dict(sorted((folder, n) for folder, n in found.items() if n))


def test_no_folder_has_grown():
    now = sizes(ROOT / "jaxrecall")
    assert {folder: n for folder, n in now.items() if n > MOST.get(folder, 0)} == {}, "take something out, or say why it is worth more"
    assert len(list((ROOT / "jaxrecall").rglob("*.py"))) <= MOST_FILES


def test_code_is_counted_without_comments_and_docstrings():
    text = '"""A module."""\n\n# why\nx = (1,\n     2)  # here\n\n\ndef f():\n    """What."""\n    return """a\n    b"""\n'
    assert lines_of_code(text) == 5


if __name__ == "__main__":
    print(sizes(ROOT / "jaxrecall"))
