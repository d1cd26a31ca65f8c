"""The README, the shipped grids and the layers: what is promised is run."""

import json
import re
import shlex
import subprocess

import pytest
import yaml
from helpers import ROOT, python

from jaxrecall.fit.__main__ import parser as fit_parser
from jaxrecall.grid import json_schema, read_grid
from jaxrecall.plan.shard import chosen
from jaxrecall.point import FIELDS
from jaxrecall.report.__main__ import parser as report_parser
from jaxrecall.run.engines.engine import engine
from jaxrecall.science.columns import COLUMNS, legend
from jaxrecall.sweep import main, parser

README = (ROOT / "README.md").read_text()
DOCS = "".join(path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
GRIDS = sorted((ROOT / "sweeps").glob("*.yaml"))


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.name)
def test_shipped_grids_read_and_name_their_schema(path, capsys):
    assert path.read_text().startswith("# yaml-language-server: $schema=grid.schema.json\n")
    assert read_grid(path).name == path.stem
    assert main(["--grid", str(path), "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    worst_case = path.stem.startswith("long")  # searches whose cells differ much: told is what they would take at the largest N
    assert path.stem.endswith("-gpu") or worst_case or told["est_seconds"] < 300


def test_the_shipped_schema_is_current():
    assert json.loads((ROOT / "sweeps/grid.schema.json").read_text()) == json_schema(), "run: python -m jaxrecall.sweep --print-schema"


def test_the_readme_names_every_column_symbol_and_flag():
    columns, legend = README.split("## The table")[1].split("## Legend")
    assert [name for name in COLUMNS if f"`{name}`" not in columns] == []
    assert [name for name in FIELDS if f"`{name}`" not in legend] == []
    actions = parser()._actions + fit_parser()._actions + report_parser()._actions
    flags = {option for action in actions for option in action.option_strings if option.startswith("--")}
    others = {"--slow", "--prune", "--from", "--replicates", "--repeats", "--only", "--exclude"}
    for flag in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", DOCS)) - others:
        assert flag in flags


def test_the_readme_legend_is_that_of_the_fields():
    section = README.split("## Legend")[1].split("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("|")] == legend()
    assert "| `eta` | rate of step 1 | > 0 | 0.001 |" in legend()
    assert "| `gamma` | rate of step 2; give this or kappa | >= 0 |  |" in legend()


def test_the_readme_grid_is_a_grid(tmp_path):
    (tmp_path / "grid.yaml").write_text(re.search(r"```yaml\n(.*?)```", README, re.S)[1])
    grid = read_grid(tmp_path / "grid.yaml")
    assert grid.axes == ("d", "N", "L", "V")


COMMAND = re.compile(r"python -m jaxrecall\.sweep ([^`'\"\n]*)")


@pytest.mark.parametrize("path", [*sorted((ROOT / "sweeps/launch").iterdir()), ROOT / "docs/cluster.md"], ids=lambda path: path.name)
def test_launch_files_and_docs_call_the_real_command_line(path):
    commands = [found.partition(" # ")[0] for found in COMMAND.findall(path.read_text())]
    assert commands
    for command in commands:
        values = {"${1:-sweeps/capacity.yaml}": "sweeps/capacity.yaml", "$SKYPILOT_NODE_RANK/$SKYPILOT_NUM_NODES": "3/4"}
        for name, value in values.items():
            command = command.replace(name, value)
        args = parser().parse_args(shlex.split(command))
        engine(args)
        assert args.grid == "grid.yaml" or (ROOT / args.grid).exists()
        assert args.shard in (None, "jax") or chosen(args.shard)


@pytest.mark.parametrize("path", sorted((ROOT / "sweeps/launch").iterdir()), ids=lambda path: path.name)
def test_launch_files_are_what_their_name_says(path):
    if path.suffix == ".yaml":
        assert isinstance(yaml.safe_load(path.read_text()), dict)
    else:
        assert subprocess.run(["bash", "-n", str(path)], capture_output=True).returncode == 0


def test_the_readme_python_runs(tmp_path, monkeypatch):
    pytest.importorskip("polars")
    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    small = ("--set", "seeds.count=1", "--set", "blocks.0.axes.N=[128, 512]", "--set", "blocks.0.axes.d=[16, 32]")
    assert main(["--grid", str(ROOT / "sweeps/quickstart.yaml"), *small]) == 0
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_the_package_lists_its_commands():
    told = python("import runpy, sys; runpy.run_module('jaxrecall', run_name='__main__'); assert 'jax' not in sys.modules").stdout
    commands = re.findall(r"python -m jaxrecall\.(\w+)", told)
    with_main = {path.stem for path in (ROOT / "jaxrecall").glob("*.py") if "\ndef main(" in path.read_text()}
    with_main |= {path.parent.name for path in (ROOT / "jaxrecall").glob("*/__main__.py")}
    assert set(commands) == with_main == {"sweep", "status", "compact", "fit", "report"}
