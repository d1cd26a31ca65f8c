"""The folders of the package: who imports whom, and who may start JAX. Each check is
shown to refuse a small bad tree.
"""

import ast
import re
from pathlib import Path

import pytest
from helpers import ROOT, process

ORDER = [
    "errors.py",
    "cli/",
    "model/",
    "theory/",
    "simulator/",
    "sweep/",
    "analysis/",
    "fit.py report.py status.py compact.py",
    "__init__.py __init__.pyi",
    "__main__.py",
]
"""Entries of jaxrecall/ in import order. CONTRIBUTING.md has the same list."""

STARTS_JAX = ("model", "simulator")
WITHOUT_JAX = (
    "model",
    "model.point",
    "model.activations",
    "model.laws",
    "model.columns",
    "simulator.forms",
    "simulator.program_shape",
)
COMPILES = (
    "simulator/device.py",
    "simulator/program.py",
    "simulator/custom_runs.py",
    "reference/realization.py",
    "reference/descent.py",
    "model/keys.py",
)
"""The last of them has the cipher alone, which is traced once for all places in a
program that use it.
"""


def sources(*packages: Path) -> dict[str, Path]:
    """Module name -> file, of all modules of some packages."""
    found = {}
    for package in packages:
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(files: dict[str, Path]) -> dict[str, set[str]]:
    """Module -> those of `files` that it imports, at the top, in functions or under
    TYPE_CHECKING.

    Importing a.b runs a/__init__.py first, so that a counts too, unless the importing
    module lives in a itself.
    """
    graph: dict[str, set[str]] = {}
    for module, path in files.items():
        names: set[str] = set()
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = (
                    package.split(".")[: len(package.split(".")) - node.level + 1]
                    if node.level
                    else []
                )
                source = ".".join([*base, *([node.module] if node.module else [])])
                names |= {
                    name if (name := f"{source}.{alias.name}") in files else source
                    for alias in node.names
                }
        around = {name[: i.start()] for name in names for i in re.finditer(r"\.", name)}
        graph[module] = {
            name
            for name in names
            | {a for a in around if not f"{module}.".startswith(f"{a}.")}
            if name in files
        } - {module}
    return graph


def against_order(files: dict[str, Path], order: list[str]) -> list[str]:
    """Imports of a module in a later entry of `order`, and modules that are in none."""
    ranks = {
        name.removesuffix(".py").rstrip("/"): rank
        for rank, names in enumerate(order)
        for name in names.split()
    }

    def rank(module: str) -> int | None:
        inside = module.split(".")[1:]
        return ranks.get(inside[0] if inside else "__init__")

    unknown = [
        f"{module} is in no entry of the order"
        for module in files
        if rank(module) is None
    ]
    if unknown:
        return unknown
    return [
        f"{module} imports {other}"
        for module, others in imported(files).items()
        for other in sorted(others)
        if rank(other) > rank(module)
    ]


def cycles(files: dict[str, Path]) -> list[list[str]]:
    """Groups of modules that import one another, directly or not: strongly connected
    components of two or more.
    """
    graph = imported(files)

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for other in graph[todo.pop()] - seen:
                seen.add(other)
                todo.append(other)
        return seen

    reach = {module: reached(module) for module in graph}
    groups = {
        frozenset(other for other in reach[module] if module in reach[other])
        for module in graph
    }
    return sorted(sorted(group) for group in groups if group)


def first_to_start_jax(files: dict[str, Path]) -> str:
    """The first module that starts JAX although it must not: all those are imported,
    one after the other, in a fresh process.
    """
    package, *_ = files
    shall_not = [
        name
        for name in files
        if name.removeprefix(f"{package}.").split(".")[0] not in STARTS_JAX
    ]
    shall_not += [
        name for inside in WITHOUT_JAX if (name := f"{package}.{inside}") in files
    ]
    code = f"""
import sys
from importlib import import_module
sys.path.insert(0, {str(files[package].parent.parent)!r})
for name in {shall_not!r}:
    import_module(name)
    if "jax" in sys.modules:
        sys.exit(name)
"""
    done = process("-c", code, exit_code=None)
    return done.stderr.strip() if done.returncode else ""


def compile_elsewhere(files: dict[str, Path]) -> list[str]:
    """Files that name jit, shard_map or devices and are not among those that may."""
    uses = re.compile(r"\bjax\.jit\b|\bimport jit\b|shard_map|devices\(")
    return [
        module
        for module, path in files.items()
        if uses.search(path.read_text()) and not path.as_posix().endswith(COMPILES)
    ]


def beside_the_door(files: dict[str, Path]) -> list[str]:
    """Imports of a simulator's insides in the engine: modules of sweep/ that ask them
    instead of sweep/simulators/.
    """
    graph = imported(files)
    engine = [
        module
        for module in files
        if ".sweep." in f"{module}." and ".sweep.simulators." not in f"{module}."
    ]
    # simulator.device is left out: it starts JAX
    inside = re.compile(r"^\w+\.(theory\b|simulator\.(?!device$))")
    return [
        f"{module} imports {other}"
        for module in engine
        for other in sorted(graph[module])
        if inside.match(other)
    ]


def entries(folder: Path) -> list[str]:
    return sorted(
        path.name
        for path in folder.iterdir()
        if path.name not in ("__pycache__", "py.typed")
    )


PACKAGE = sources(ROOT / "jaxrecall")
EVERYTHING = sources(ROOT / "jaxrecall", ROOT / "benchmarks")


def test_modules_import_only_their_own_folder_and_earlier_ones():
    upward = against_order(PACKAGE, ORDER)
    assert not upward, "\n".join(upward)


def test_no_modules_import_one_another_in_a_cycle():
    found = cycles(EVERYTHING)
    assert not found, "\n".join(map(" ".join, found))


def test_benchmarks_are_imported_by_no_module_of_the_package():
    graph = imported(EVERYTHING)
    assert [
        module
        for module in PACKAGE
        if any(name.split(".")[0] == "benchmarks" for name in graph[module])
    ] == []


def test_the_engine_asks_simulators_through_one_door():
    assert beside_the_door(PACKAGE) == []


def test_only_the_simulation_starts_jax():
    assert first_to_start_jax(PACKAGE) == ""


def test_science_handles_one_point_and_one_seed():
    """jit, vmap over runs and devices are in one place for each implementation."""
    assert compile_elsewhere(PACKAGE) == []


def test_the_package_has_at_most_twelve_entries_of_its_own():
    assert len({*entries(ROOT / "jaxrecall")} - {*" ".join(ORDER[-2:]).split()}) <= 12
    assert {name for names in ORDER for name in names.split()} == {
        name if "." in name else f"{name}/" for name in entries(ROOT / "jaxrecall")
    }


def test_contributing_has_the_same_list_in_the_same_order():
    section = (
        (ROOT / "CONTRIBUTING.md")
        .read_text()
        .split("## Where things live")[1]
        .split("\n## ")[0]
    )
    listed = re.findall(r"^    ((?:[\w/.]+ )*[\w/.]+)(?:  |$)", section, re.M)
    assert [name for name in listed if not name.startswith("..")] == ORDER


@pytest.fixture
def tree(tmp_path):
    """Writes a small package and gives its files: `tree({"a/b.py": "text", ...})`."""

    def write(texts: dict[str, str]) -> dict[str, Path]:
        for name, text in {"__init__.py": "", **texts}.items():
            path = tmp_path / "small" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return sources(tmp_path / "small")

    return write


SMALL = ["low.py", "middle/", "high.py", "__init__.py"]


@pytest.mark.parametrize(
    "bad",
    [
        "from ..high import x",
        "from .. import high",
        "import small.high",
        "from small import high",
        "def f():\n    from .. import high",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..high import x",
    ],
)
def test_an_import_upward_is_found(tree, bad):
    good = {
        "low.py": "",
        "middle/__init__.py": "from .a import x",
        "middle/a.py": "from ..low import y\nimport re",
        "high.py": "x = 0",
    }
    assert against_order(tree(good), SMALL) == []
    assert against_order(tree(good | {"middle/a.py": bad}), SMALL) == [
        "small.middle.a imports small.high"
    ]
    assert against_order(tree(good | {"stray.py": ""}), SMALL) == [
        "small.stray is in no entry of the order"
    ]


def test_a_cycle_is_found(tree):
    good = {
        "a.py": "from . import b",
        "b.py": "from .c import x",
        "c/__init__.py": "from .d import x",
        "c/d.py": "x = 0",
    }
    assert cycles(tree(good)) == []
    assert cycles(tree(good | {"c/d.py": "def f():\n    from ..a import y"})) == [
        ["small.a", "small.b", "small.c", "small.c.d"]
    ]
    assert cycles(tree(good | {"c/d.py": "from . import x"})) == [
        ["small.c", "small.c.d"]
    ]


def test_an_import_beside_the_door_is_found(tree):
    good = {
        "theory.py": "",
        "simulator/program_shape.py": "",
        "sweep/plan.py": "",
        "sweep/simulators/ours.py": "from ...simulator.program_shape import Shape",
    }
    assert beside_the_door(tree(good)) == []
    for bad in (
        "from ..simulator.program_shape import Shape",
        "from .. import theory",
        "def f():\n    from ..simulator import program_shape",
    ):
        assert len(beside_the_door(tree(good | {"sweep/plan.py": bad}))) == 1


def test_a_module_that_starts_jax_is_found(tree):
    """A stand-in for JAX, so that this takes no second."""
    good = {
        "model/__init__.py": "",
        "model/a.py": "import jax",
        "model/columns.py": "",
        "plan.py": "def f():\n    import jax",
    }
    files = tree(good)
    (files["small"].parent.parent / "jax.py").write_text("")
    assert first_to_start_jax(files) == ""
    assert (
        first_to_start_jax(tree(good | {"plan.py": "from .model import a"}))
        == "small.plan"
    )
    assert (
        first_to_start_jax(tree(good | {"model/columns.py": "from . import a"}))
        == "small.model.columns"
    )


@pytest.mark.parametrize(
    "bad",
    [
        "f = jax.jit(g)",
        "from jax import jit",
        "jax.shard_map(f)",
        "jax.local_devices()",
        "@jax.jit\ndef f(): ...",
    ],
)
def test_a_file_that_compiles_is_found(tree, bad):
    good = {
        "simulator/program.py": "f = jax.jit(g)",
        "reference/realization.py": "@jax.jit\ndef f(): ...",
        "science/a.py": "jax.vmap(f)",
    }
    assert compile_elsewhere(tree(good)) == []
    assert compile_elsewhere(tree(good | {"science/a.py": bad})) == ["small.science.a"]
