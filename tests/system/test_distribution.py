"""What the package says about itself, and what a wheel of it contains."""

import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from helpers import ROOT

import jaxrecall
from jaxrecall.model.columns import CODE_VERSION

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_citation_and_the_changelog_are_of_this_version():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == jaxrecall.__version__
    newest, *older = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    released = older[0] if newest == f"Unreleased (code_version {CODE_VERSION})" else newest
    assert released.startswith(f"code_version {CODE_VERSION}: jaxrecall {jaxrecall.__version__} ")


def test_ci_runs_on_every_python_that_is_claimed():
    claimed = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"]))
    ci = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["ci"]
    assert ci["strategy"]["matrix"]["python-version"] == claimed
    assert ci["steps"][-1] == {"run": ".ci/run"}
    assert PROJECT["project"]["requires-python"] == f">={claimed[0]}"


def test_the_entry_point_exists():
    module, _, name = PROJECT["project"]["scripts"]["jaxrecall"].partition(":")
    assert callable(getattr(import_module(module), name))


@pytest.mark.system  # builds a wheel, for which pip fetches hatchling
def test_a_wheel_runs_an_example_in_an_empty_folder(tmp_path, monkeypatch):
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path / "dist", ROOT], check=True, timeout=300)
    (wheel,) = (tmp_path / "dist").iterdir()
    subprocess.run([*pip, "install", "--no-deps", "--target", tmp_path / "site", wheel], check=True, timeout=300)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")

    def jaxrecall(*words: str) -> str:
        command = [sys.executable, tmp_path / "site/bin/jaxrecall", *words]
        env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
        return subprocess.run(command, check=True, timeout=300, capture_output=True, text=True, env=env).stdout

    assert "quickstart " in jaxrecall("examples")
    assert "To run it: jaxrecall sweep --grid quickstart.yaml" in jaxrecall("examples", "quickstart")
    small = ("--set", "seeds=1", "--set", "blocks.0.axes.N=[128, 512]", "--set", "blocks.0.axes.d=[16, 32]")
    assert "4 runs of this grid" in jaxrecall("sweep", "--grid", "quickstart.yaml", *small)
    assert Path("results/quickstart/accuracy.png").exists()
