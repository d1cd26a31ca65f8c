"""The code of three pages, the notebook and a typed script, run and checked as a user
would.
"""

import ast
import importlib
import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path

import pytest
from conftest import PROGRAMS
from helpers import ROOT, process

PACKAGE = "jaxrecall"
NOTEBOOK = ROOT / "examples/recall.ipynb"
SCRIPT = ROOT / "tests/typed_script.py"


def modules(path: Path) -> dict[str, str]:
    """The blocks that a page introduces as a file of their own: "This module is
    `mylaws.py`:".
    """
    return (
        dict(re.findall(r"`(\w+\.py)`:\n\n```python\n(.*?)```", path.read_text(), re.S))
        if path.suffix == ".md"
        else {}
    )


def blocks(path: Path) -> list[str]:
    """The other pieces of Python code in a Markdown file or a notebook, in order."""
    if path.suffix == ".md":
        found = re.findall(r"```python\n(.*?)```", path.read_text(), re.S)
        return [block for block in found if block not in modules(path).values()]
    return [
        "".join(cell["source"])
        for cell in json.loads(path.read_text())["cells"]
        if cell["cell_type"] == "code"
    ]


def run(path: Path, folder: Path) -> None:
    """Runs the code of a file in a fresh process in a folder, every block in the same
    namespace.
    """
    for name, block in modules(path).items():
        (folder / name).write_text(block)
    code = f"names = {{}}\nfor i, block in enumerate({blocks(path)!r}):\n"
    code += f"    exec(compile(block, f'{path.name}, block {{i}}', 'exec'), names)\n"
    process("-W", "error", "-c", code, folder=folder, MPLBACKEND="agg")


TAUGHT = [ROOT / f"docs/{name}.md" for name in ("python", "functions", "laws")]
USERS = *TAUGHT, NOTEBOOK


@pytest.mark.slow
@pytest.mark.parametrize("path", USERS, ids=lambda path: path.name)
def test_code_for_users_runs(path, tmp_path):
    """They compile a program a block. Fast tests call what they call: test_api.py the
    functions that return tables, test_laws.py laws of one's own, test_functional.py and
    test_another_model.py the rest.
    """
    assert len(blocks(path)) >= 2
    run(path, tmp_path)


@pytest.mark.parametrize("path", TAUGHT, ids=lambda path: path.name)
def test_names_of_the_package_in_code_for_users_exist(path):
    found = [name for block in blocks(path) for name in names_of_the_package(block)]
    assert found
    for module, name in found:
        assert attrgetter(name)(importlib.import_module(module)), (module, name)


def names_of_the_package(block: str) -> Iterator[tuple[str, str]]:
    """Each module of the package, and a name in it that a block of code reads."""
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(PACKAGE):
            for imported in node.names:
                yield str(node.module), imported.name
        if isinstance(node, ast.Attribute):
            package, _, name = ast.unparse(node).partition(".")
            if package == PACKAGE:
                yield package, name


def test_the_notebook_is_executed_and_small():
    cells = [
        cell
        for cell in json.loads(NOTEBOOK.read_text())["cells"]
        if cell["cell_type"] == "code"
    ]
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    assert not [
        output
        for cell in cells
        for output in cell["outputs"]
        if output["output_type"] == "error"
    ]
    assert any(
        "image/png" in output.get("data", {})
        for cell in cells
        for output in cell["outputs"]
    )
    assert NOTEBOOK.stat().st_size < 200_000


SAME_ROWS = """
import jaxrecall, pandas as pd
grid = {"base": {"V": 20, "d": 12, "L": 3, "n_test": 200}, "blocks": [{"axes": {"N": [*range(100, 200, 10)]}}]}
rows = jaxrecall.run(grid, seeds=20).drop(columns="seconds")
pd.testing.assert_frame_equal(rows, pd.read_parquet("kernel.parquet").drop(columns="seconds"))
"""  # noqa: E501

IN_A_KERNEL = """
import sys
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="python3")
grid = '{"base": {"V": 20, "d": 12, "L": 3, "n_test": 200}, "blocks": [{"axes": {"N": [*range(100, 200, 10)]}}]}'


def say(code, act=lambda text: None):
    text = []

    def hear(message):
        content = message["content"]
        text.append(str(content.get("text") or content.get("data") or content.get("evalue") or ""))
        act(text[-1])

    client.execute_interactive(code, output_hook=hear, timeout=240)
    return "".join(text)


say("import jaxrecall")
assert "200/200 runs, 100 %" in say(f"df = jaxrecall.run({grid}, seeds=20)")
say("df.to_parquet('kernel.parquet')")
pressed = []


def stop(text):
    if "/200000 runs" in text and not text.count(" 0/") and not pressed:
        pressed.append(manager.interrupt_kernel())


heard = say(f"df = jaxrecall.run({grid}, seeds=20000)", stop)
assert "runs are finished; their rows are in `rows` of this exception (in a notebook: sys.last_value.rows)" in heard, heard
assert 0 < int(say("import sys; print(len(sys.last_value.rows))")) < 200000
client.stop_channels()
manager.shutdown_kernel(now=True)
"""  # noqa: E501


@pytest.mark.system  # starts a kernel
@pytest.mark.skipif(not find_spec("ipykernel"), reason="ipykernel is not installed")
def test_a_notebook_kernel_shows_a_bar_gives_the_rows_and_stops_when_asked(tmp_path):
    for code in (IN_A_KERNEL, SAME_ROWS):
        process("-c", code, folder=tmp_path, timeout=500)


@pytest.mark.slow  # mypy reads all that JAX is typed with
def test_a_users_script_passes_type_checkers_and_runs(tmp_path):
    pytest.importorskip("mypy")
    assert (ROOT / "jaxrecall/py.typed").exists()
    bad = tmp_path / "bad.py"
    bad.write_text(
        "import jaxrecall\ndrawn: int = jaxrecall.realize(jaxrecall.Point(V=8, N=9,"
        " d=4, L=2), 0)\njaxrecall.nothing\n"
    )
    options = ["--strict", "--follow-imports=silent", "--cache-dir", PROGRAMS / "mypy"]
    good, told = (
        process(
            *("-m", "mypy", *options, path),
            folder=tmp_path,
            exit_code=None,
            MYPYPATH=str(ROOT),
        )
        for path in (SCRIPT, bad)
    )
    assert good.returncode == 0, good.stdout
    assert "Incompatible types in assignment" in told.stdout
    assert 'Module has no attribute "nothing"' in told.stdout
    assert process(SCRIPT, folder=tmp_path).stdout == "True 4 1\n"
