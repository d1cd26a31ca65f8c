"""What the package says about itself, and what a wheel of it contains."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from helpers import ROOT

import jaxrecall
from jaxrecall.cli import command
from jaxrecall.model.columns import CODE_VERSION

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_citation_and_the_changelog_are_of_this_version():
    told = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert told["version"] == jaxrecall.__version__
    release = f"{told['version']} ({told['date-released']}), code_version"
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert f"{release} {CODE_VERSION}" in headings


def test_the_readme_cites_the_paper_of_the_citation_file():
    told = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    (entry,) = re.findall(
        r"```bibtex\n(.*?)```", (ROOT / "README.md").read_text(), re.S
    )
    [reference] = told["references"]
    for author in reference["authors"]:
        assert f"{author['family-names']}, {author['given-names']}" in entry
    for value in (
        reference["title"],
        str(reference["year"]),
        reference["identifiers"][0]["value"],
    ):
        assert value in entry


def test_the_citation_file_lacks_nothing_but_the_address():
    told = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    known = "abstract authors cff-version date-released keywords license message"
    known = {*known.split(), "references", "title", "type", "version"}
    assert known <= told.keys() <= known | {"repository-code", "url", "doi"}


LOCK = {
    package["name"]: package
    for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]
}


def test_the_lock_file_is_of_these_requirements():
    """As pyproject.toml has them: `make lock` after a change."""
    extras = PROJECT["project"]["optional-dependencies"]
    declared = [
        line.replace(" ", "")
        for lines in (PROJECT["project"]["dependencies"], *extras.values())
        for line in lines
    ]
    locked = {
        entry["name"] + entry.get("specifier", "")
        for entry in LOCK["jaxrecall"]["metadata"]["requires-dist"]
    }
    assert {re.sub(r"\[.*\]", "", line) for line in declared} == locked | {"jaxrecall"}
    assert set(LOCK["jaxrecall"]["metadata"]["provides-extras"]) == set(extras)


def test_the_constraints_are_those_of_the_lock_file():
    lines = [
        line.partition(" ;")[0]
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    ]
    assert sorted(lines) == sorted(
        f"{name}=={package['version']}"
        for name, package in LOCK.items()
        if name != "jaxrecall"
    )
    assert "PIP_CONSTRAINT=$PWD/constraints.txt" in (ROOT / ".ci/run").read_text()


@pytest.fixture
def clone(tmp_path):
    """A repository of one commit, and what calls git in it."""

    def git(*words: str) -> str:
        identity = (
            "-c",
            "user.name=n",
            "-c",
            "user.email=e",
            "-c",
            "core.hooksPath=/dev/null",
        )
        return subprocess.run(
            ["git", "-C", tmp_path, *identity, *words],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    if not shutil.which("git"):
        pytest.skip("needs git")
    git("init", "--quiet")
    (tmp_path / "code.py").write_text("1")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    return tmp_path, git


def test_the_commit_of_a_clone_is_known(clone):
    folder, git = clone
    head = git("rev-parse", "HEAD")
    assert command.commit.__wrapped__(folder) == head
    (folder / "code.py").write_text("2")
    assert command.commit.__wrapped__(folder) == f"{head}-dirty"
    (folder / "inside").mkdir()
    # as if the package were in somebody else's clone
    assert command.commit.__wrapped__(folder / "inside") is None


def test_without_git_there_is_no_commit(clone, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert command.commit.__wrapped__(clone[0]) is None


def test_every_requirement_is_among_the_versions():
    direct = {
        re.split(r"[^\w-]", line)[0] for line in PROJECT["project"]["dependencies"]
    }
    found = command.versions()
    assert direct <= found.keys()
    assert next(iter(found)) == "jaxrecall"
    assert found["jax"] == version("jax")
    assert "ray" not in found  # an extra


def test_ci_runs_on_every_python_that_is_claimed():
    claimed = re.findall(
        r"Python :: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"])
    )
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    ci = jobs["ci"]
    assert ci["strategy"]["matrix"]["python-version"] == claimed
    assert ci["steps"][-1] == {"run": ".ci/run"}
    versions = jobs["versions"]["strategy"]["matrix"]["versions"]
    assert re.findall(r"-(3\.\d+)\.\d+", " ".join(versions)) == claimed
    makefile = (ROOT / "Makefile").read_text()
    assert f"VERSIONS := {' '.join(versions)}\n" in makefile
    assert PROJECT["project"]["requires-python"] == f">={claimed[0]}"


def test_the_entry_point_exists():
    module, _, name = PROJECT["project"]["scripts"]["jaxrecall"].partition(":")
    assert callable(getattr(import_module(module), name))


@pytest.mark.system  # builds a wheel, for which pip fetches hatchling
def test_a_wheel_runs_an_example_in_an_empty_folder(tmp_path, monkeypatch):
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path / "dist", ROOT],
        check=True,
        timeout=300,
    )
    (wheel,) = (tmp_path / "dist").iterdir()
    subprocess.run(
        [*pip, "install", "--no-deps", "--target", tmp_path / "site", wheel],
        check=True,
        timeout=300,
    )
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")

    def jaxrecall(*words: str) -> str:
        command = [sys.executable, tmp_path / "site/bin/jaxrecall", *words]
        env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
        return subprocess.run(
            command, check=True, timeout=300, capture_output=True, text=True, env=env
        ).stdout

    assert "quickstart " in jaxrecall("examples")
    assert "To run it: jaxrecall sweep --grid quickstart.yaml" in jaxrecall(
        "examples", "quickstart"
    )
    assert "copied tpu-pod.sh." in jaxrecall("examples", "tpu-pod")
    assert os.access("tpu-pod.sh", os.X_OK)
    assert "To run it: jupyter lab recall.ipynb" in jaxrecall("examples", "recall")
    small = (
        "--set",
        "seeds=1",
        "--set",
        "blocks.0.axes.N=[128, 512]",
        "--set",
        "blocks.0.axes.d=[16, 32]",
    )
    assert "4 runs of this grid" in jaxrecall(
        "sweep", "--grid", "quickstart.yaml", *small
    )
    assert Path("results/quickstart/accuracy.png").exists()
