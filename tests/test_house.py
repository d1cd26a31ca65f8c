"""The README, the shipped grids and the layers: what is promised is run."""

import ast
import json
import re
from pathlib import Path

import pytest
from helpers import ROOT, python

from jaxrecall.fit.__main__ import parser as fit_parser
from jaxrecall.grid import json_schema, read_grid
from jaxrecall.point import FIELDS
from jaxrecall.report.__main__ import parser as report_parser
from jaxrecall.row import COLUMNS
from jaxrecall.sweep import main, parser

README = (ROOT / "README.md").read_text()
GRIDS = sorted((ROOT / "sweeps").glob("*.yaml"))
NO_JAX = [
    "activation",
    "information",
    "locked",
    "surrogate",
    "point",
    "errors",
    "row",
    "bucket",
    "cost",
    "decoders",
    "plan",
    "saver",
    "status",
    "store",
    "table",
    "theory",
    "rounds",
    "search",
    "threshold",
    "progress",
    "interrupts",
    "sweep",
    "compact",
    "__main__",
]


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.name)
def test_shipped_grids_read_and_name_their_schema(path, capsys):
    assert path.read_text().startswith("# yaml-language-server: $schema=grid.schema.json\n")
    assert read_grid(path).name == path.stem
    assert main(["--grid", str(path), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["est_seconds"] < 300


def test_the_shipped_schema_is_current():
    assert json.loads((ROOT / "sweeps/grid.schema.json").read_text()) == json_schema(), "run: python -m jaxrecall.sweep --print-schema"


def test_the_readme_names_every_column_symbol_and_flag():
    columns, legend = README.split("## The table")[1].split("## Legend")
    assert [name for name in COLUMNS if f"`{name}`" not in columns] == []
    assert [name for name in FIELDS if f"`{name}`" not in legend] == []
    actions = parser()._actions + fit_parser()._actions + report_parser()._actions
    flags = {option for action in actions for option in action.option_strings if option.startswith("--")}
    for flag in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)) - {"--slow", "--prune", "--replicates", "--repeats"}:
        assert flag in flags


def test_the_readme_grid_is_a_grid(tmp_path):
    (tmp_path / "grid.yaml").write_text(re.search(r"```yaml\n(.*?)```", README, re.S)[1])
    grid = read_grid(tmp_path / "grid.yaml")
    assert grid.axes == ("d", "N", "L", "V")


def test_the_readme_python_runs(tmp_path, monkeypatch):
    pytest.importorskip("polars")
    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    small = ("--set", "seeds.count=1", "--set", "blocks.0.axes.N=[128, 512]")
    assert main(["--grid", str(ROOT / "sweeps/quickstart.yaml"), *small]) == 0
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def imports_of(path: Path) -> set[str]:
    """Modules imported when `path` is, not within its functions or under TYPE_CHECKING."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").split(".")[0]} if node.module else {alias.name for alias in node.names}
    return found


def test_planning_storing_and_reading_import_no_jax():
    packages = [path for name in ("grid", "fit", "report") for path in (ROOT / "jaxrecall" / name).glob("*.py")]
    modules = [ROOT / "jaxrecall" / f"{name}.py" for name in NO_JAX] + packages
    science = {path.stem for path in (ROOT / "jaxrecall").glob("*.py")} - {*NO_JAX, "__init__"}
    for path in modules:
        assert not imports_of(path) & ({"jax", "equinox", "optax"} | science), path


def test_science_knows_no_jit_devices_grid_or_file():
    for name in ("keys", "task", "embed", "model", "steps", "metrics", "stream", "evaluate", "shortcuts", "noise", "diagnosis", "decoders"):
        text = (ROOT / "jaxrecall" / f"{name}.py").read_text()
        assert not re.search(r"jax\.jit|shard_map|devices\(", text), name
        assert not imports_of(ROOT / "jaxrecall" / f"{name}.py") & {"grid", "plan", "store", "program", "runner", "sweep"}, name


def test_the_package_lists_its_commands():
    told = python("import runpy, sys; runpy.run_module('jaxrecall', run_name='__main__'); assert 'jax' not in sys.modules").stdout
    commands = re.findall(r"python -m jaxrecall\.(\w+)", told)
    with_main = {path.stem for path in (ROOT / "jaxrecall").glob("*.py") if "\ndef main(" in path.read_text()}
    with_main |= {path.parent.name for path in (ROOT / "jaxrecall").glob("*/__main__.py")}
    assert set(commands) == with_main == {"sweep", "status", "compact", "fit", "report"}
