"""The shipped grids, the launch files and the list of commands."""

import json
import re
import shlex
import subprocess

import pytest
import yaml
from helpers import ROOT

from jaxrecall.sweep.__main__ import parser
from jaxrecall.sweep.grid import json_schema, read_grid
from jaxrecall.sweep.plan import chosen_shard
from jaxrecall.sweep.running.engine import chosen as engine
from jaxrecall.sweep.running.job import prepare

GRIDS = sorted((ROOT / "sweeps").glob("*.yaml"))


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.name)
def test_shipped_grids_read_and_name_their_schema(path, tmp_path):
    assert path.read_text().startswith(
        "# yaml-language-server: $schema=grid.schema.json\n"
    )
    grid = read_grid(path)
    assert grid.name == path.stem
    told = prepare(grid, tmp_path).facts()
    # a search is told what it would take if every cell went to the largest values
    assert path.stem.endswith("-gpu") or grid.search or told["est_seconds"] < 600


def test_the_shipped_schema_is_current():
    assert (
        json.loads((ROOT / "sweeps/grid.schema.json").read_text()) == json_schema()
    ), "run: python -m jaxrecall.sweep --print-schema"


COMMAND = re.compile(r"python -m jaxrecall\.sweep ([^`'\"\n]*)")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "sweeps/launch").iterdir()), ids=lambda path: path.name
)
def test_launch_files_call_the_real_command_line(path):
    text = path.read_text()
    arguments = {
        '"${1:-sweeps/capacity.yaml}"': "sweeps/capacity.yaml",
        '"${2:-results/capacity}"': "results/capacity",
        ' "${@:3}"': "",
    }
    for name, value in arguments.items():
        text = text.replace(name, value)
    commands = [found.partition(" # ")[0] for found in COMMAND.findall(text)]
    assert commands
    for command in commands:
        values = {
            "$SKYPILOT_NODE_RANK/$SKYPILOT_NUM_NODES": "3/4",
        }
        values["\\$(.venv/bin/python -c "] = "3/4"
        for name, value in values.items():
            command = command.replace(name, value)
        args = parser().parse_args(shlex.split(command))
        engine(args)
        assert args.grid == "grid.yaml" or (ROOT / args.grid).exists()
        assert args.shard is None or chosen_shard(args.shard)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "sweeps/launch").iterdir()), ids=lambda path: path.name
)
def test_launch_files_are_what_their_name_says(path):
    if path.suffix == ".yaml":
        assert isinstance(yaml.safe_load(path.read_text()), dict)
    else:
        assert (
            subprocess.run(["bash", "-n", str(path)], capture_output=True).returncode
            == 0
        )
