"""The shipped grids, the launch files and the list of commands."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from helpers import ROOT

from jaxrecall.sweep import plan
from jaxrecall.sweep.__main__ import parser
from jaxrecall.sweep.grid import json_schema, read_grid
from jaxrecall.sweep.plan import chosen_shard
from jaxrecall.sweep.running.engine import chosen as engine
from jaxrecall.sweep.running.job import prepare

GRIDS = [
    path
    for path in sorted((ROOT / "sweeps").glob("*.yaml"))
    if "\nsimulator:" not in path.read_text()
]


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.name)
def test_shipped_grids_read_and_name_their_schema(path):
    assert path.read_text().startswith(
        "# yaml-language-server: $schema=grid.schema.json\n"
    )
    assert read_grid(path).name == path.stem


def is_planned_slowly(path: Path) -> bool:
    """Planning a search makes every point that it may reach; grids for accelerators are
    large, and may take longer.
    """
    return "\nsearch:" in path.read_text() or path.stem.endswith("-gpu")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.slow if is_planned_slowly(path) else ())
        for path in GRIDS
    ],
    ids=lambda path: path.name,
)
def test_shipped_grids_take_less_than_ten_minutes(path, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "cores", lambda: 2)
    monkeypatch.setattr(plan, "MAX_LOADING", 4)
    grid = read_grid(path)
    told = prepare(grid, tmp_path).facts()
    # a search is told what it would take if every cell went to the largest values
    assert path.stem.endswith("-gpu") or grid.search or told["est_seconds"] < 600


def test_the_shipped_schema_is_current():
    assert (
        json.loads((ROOT / "sweeps/grid.schema.json").read_text()) == json_schema()
    ), "run: python -m jaxrecall.sweep --print-schema"


def test_an_editor_takes_every_shipped_grid_and_marks_typos():
    jsonschema = pytest.importorskip("jsonschema")
    grids = [*GRIDS, *ROOT.glob("sweeps/papers/*.yaml"), *ROOT.glob("examples/*.yaml")]
    validator = jsonschema.Draft202012Validator(json_schema())
    told = {path.name: yaml.safe_load(path.read_text()) for path in grids}
    assert sum("simulator" in grid for grid in told.values()) > 5
    assert [name for name, grid in told.items() if not validator.is_valid(grid)] == []
    assert not validator.is_valid({"base": {"dd": 4}})
    assert not validator.is_valid({"simulator": "a:b", "sedes": 4})


LAUNCH = sorted((ROOT / "sweeps/launch").iterdir())

VALUES = {
    "GRID": "sweeps/capacity.yaml",
    "grid": "sweeps/capacity.yaml",
    "SHARE": "0/4",
    "index": "0",
    "hosts": "4",
}
"""What the variables of launch files stand for."""


@pytest.mark.parametrize("path", LAUNCH, ids=lambda path: path.name)
def test_launch_files_call_the_real_command_line(path):
    called = re.findall(r"python -m jaxrecall\.sweep (.*)", path.read_text())
    assert called
    for text in called:
        if text.count('"') % 2:  # the command is quoted itself
            text = text.removesuffix('"')
        command, *_ = re.split(r" +(?:[&|]|#)", text)
        command = re.sub(r"\$\{\d:-(.*?)\}", r"\1", command)
        command = command.replace('"${@:3}"', "")
        command = re.sub(
            r"\$\{?(\w+)\}?", lambda found: VALUES.get(found[1], "x"), command
        )
        args = parser().parse_args(shlex.split(command))
        engine(args)
        assert args.grid == "grid.yaml" or (ROOT / args.grid).exists()
        assert args.shard is None or chosen_shard(args.shard)


@pytest.mark.parametrize("path", LAUNCH, ids=lambda path: path.name)
def test_launch_files_are_what_their_name_says(path):
    if path.suffix == ".yaml":
        assert isinstance(yaml.safe_load(path.read_text()), dict)
    else:
        assert (
            subprocess.run(["bash", "-n", str(path)], capture_output=True).returncode
            == 0
        )


def test_the_shell_commands_of_skypilot_are_shell():
    told = yaml.safe_load((ROOT / "sweeps/launch/skypilot.yaml").read_text())
    for name in ("setup", "run"):
        done = subprocess.run(["bash", "-n", "-c", told[name]], capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")


def test_ray_accepts_its_launch_file_and_asks_for_a_token():
    util = pytest.importorskip("ray.autoscaler._private.util")
    pytest.importorskip("jsonschema")
    told = yaml.safe_load((ROOT / "sweeps/launch/ray-cluster.yaml").read_text())
    whole = util.prepare_config(told)
    util.validate_config(whole)
    # a cluster without a token runs the code of anyone who reaches its ports
    assert any(
        "RAY_AUTH_MODE=token" in line for line in whole["initialization_commands"]
    )
    assert "/home/ubuntu/.ray/auth_token" in whole["file_mounts"]
