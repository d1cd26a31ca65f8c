"""Where commands are run: folders that are gone, settings of matplotlib and XLA, odd
files, encodings, and memory that workers share.
"""

import json
import os
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from attack import within
from helpers import ROOT, process
from test_any_folder import GRID, make_results

import jaxrecall
from jaxrecall import compact, report
from jaxrecall.__main__ import main as command
from jaxrecall.errors import PointError
from jaxrecall.model.point import Point
from jaxrecall.simulator.cost import peak_bytes
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.sweep.__main__ import main
from jaxrecall.sweep.store.table import read_facts

IN_A_FOLDER_THAT_IS_GONE = """
import os, sys
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_results(tmp_path_factory.mktemp("made"))


@pytest.fixture
def results(made, tmp_path) -> Path:
    """A results folder, and its grid beside it."""
    (tmp_path / "tiny.yaml").write_text(GRID)
    return shutil.copytree(made, tmp_path / "tiny")


COMMANDS = {
    "dry run": "sweep --grid {0}.yaml --out {0} --dry-run",
    "sweep": "sweep --grid {0}.yaml --out {0}",
    "status": "status {0}",
    "fit": "fit {0} --theta 0.1",
    "report": "report {0} --format svg",
    "compact": "compact {0}",
    "examples": "examples",
}


@pytest.mark.system  # the next test has all commands, in this process
def test_the_folder_that_a_process_starts_in_may_be_gone(results):
    """All paths are absolute. Nothing is missing, so no sweep starts JAX."""
    words = "-m", "jaxrecall", *COMMANDS["sweep"].format(results).split()
    done = process("-c", IN_A_FOLDER_THAT_IS_GONE, *words, folder=results.parent)
    assert "Traceback" not in done.stderr


@pytest.fixture
def gone(results, monkeypatch) -> None:
    """The current folder is no more."""
    folder = results.parent / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_current_folder_may_be_gone(results, gone, name):
    assert command(COMMANDS[name].format(results).split()) == 0


def test_a_run_from_a_folder_that_is_gone(results, gone):
    assert len(jaxrecall.run(f"{results}.yaml", out=results, progress=False)) == len(
        jaxrecall.load(results)
    )


def test_a_relative_path_from_a_folder_that_is_gone_is_refused(results, gone, capsys):
    for words in (
        ["sweep", "--grid", "tiny.yaml"],
        ["sweep", "--grid", f"{results}.yaml"],
        ["fit", "tiny"],
    ):
        assert command(words) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(
        PointError, match=r"no such file as x\.npy; allowed: a file that is there"
    ):
        Point(V=8, N=8, d=4, L=2, embedding='array(path="x.npy")')


@pytest.mark.parametrize(
    "setting", ["MPLBACKEND", pytest.param("MATPLOTLIBRC", marks=pytest.mark.slow)]
)
def test_settings_that_matplotlib_cannot_use_cost_no_row_and_no_exit_code(
    results, setting
):
    (results.parent / "bad").write_bytes(b"figure.dpi: \xff\n")
    env = {
        setting: "nosuch" if setting == "MPLBACKEND" else str(results.parent / "bad")
    }
    words = ["-m", "jaxrecall", "sweep", "--grid", "tiny.yaml", "--out", "tiny"]
    done = process(*words, folder=results.parent, **env)
    assert "the figure could not be made: " in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    words = ["-m", "jaxrecall.report", "tiny"]
    done = process(*words, folder=results.parent, exit_code=2, **env)
    line = done.stderr.splitlines()[-1]
    assert line.startswith("matplotlib: cannot be imported (")
    assert line.endswith("; set MPLBACKEND and matplotlibrc to what it can use")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_an_embedding_file_is_a_regular_file(cwd, capsys, kind):
    path = cwd / "f.npy"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    law = json.dumps('array(path="f.npy")')
    (cwd / "g.yaml").write_text(f"base: {{V: 8, N: 8, d: 4, L: 2, embedding: {law}}}\n")
    with within(20):
        assert main(["--grid", "g.yaml", "--dry-run"]) == 2
    assert (
        "a file that cannot be read (not a regular file); allowed: ."
        in capsys.readouterr().err
    )


ENCODED = """
import sys, warnings
warnings.filterwarnings("error", category=EncodingWarning, module=r"jaxrecall\\b")
from jaxrecall.__main__ import main
sys.exit(any([main(words.split()) for words in sys.argv[1:]]))
"""


def test_no_text_is_read_or_written_in_the_encoding_of_the_locale(results):
    commands = (words.format(results) for words in COMMANDS.values())
    words = "-X", "warn_default_encoding", "-c", ENCODED, *commands
    done = process(*words, folder=results.parent)
    assert f"{ROOT}/jaxrecall/" not in done.stderr


@pytest.fixture
def call(tmp_path) -> list[str]:
    """The options of a sweep of the grid into the folder `out`."""
    (tmp_path / "tiny.yaml").write_text(GRID)
    return ["--grid", str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out")]


def test_workers_share_the_memory_limit(call, capsys, monkeypatch):
    """As many start as have room for a run each; a dry run counts the memory of all."""
    monkeypatch.setattr("jaxrecall.sweep.plan.cores", lambda: 4)

    def planned(*words: str) -> tuple[int, int, list[str], list[str]]:
        dry = [*call, *words, "--dry-run"]
        assert main([*dry, "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert main(dry) == 0
        told = capsys.readouterr()
        return (
            facts["est_peak_bytes"],
            facts["workers"],
            told.out.splitlines(),
            told.err.splitlines(),
        )

    one, *_ = planned("--set", "seeds=1", "--set", "blocks=[{axes: {N: [16]}}]")
    assert planned()[:2] == (4 * one, None)
    assert planned("--workers", "2")[:2] == (4 * one, 2)  # two runs at a time in each
    assert planned("--workers", "4")[:2] == (4 * one, 4)
    tight = ["--set", f"limits.max_bytes={int(2.5 * one)}"]
    # it would be 4 runs without the limit
    assert planned(*tight, "--workers", "2")[:2] == (
        2 * one,
        2,
    )
    peak, workers, said, warned = planned(*tight, "--workers", "3")
    assert (peak, workers) == (2 * one, 2)
    assert any(line.endswith(" MiB of memory in 2 workers") for line in said)
    assert "runs in 2 workers of this machine" in said
    assert len(warned) == 1
    assert warned[0].startswith("--workers: got 3; 2 start, as the memory limit of ")


def test_workers_on_accelerators_are_as_many_as_asked_for(call, capsys, monkeypatch):
    monkeypatch.setattr(
        "jaxrecall.sweep.running.engine.accelerators", lambda environment: ["0"]
    )
    least = peak_bytes(
        Shape.rounded(Point(V=16, L=4, d=4, N=64, n_test=256, exact="full"))
    )
    limit = ["--set", f"limits.max_bytes={least}"]
    assert main([*call, *limit, "--workers", "3", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workers"] == 3


def test_options_of_xla_are_in_the_provenance(call, tmp_path, monkeypatch):
    """Some of them change digits. XLA has started, so that these change nothing
    here.
    """
    out = tmp_path / "out"

    def flags(files: str) -> list[list[str]]:
        facts = [read_facts(pq.read_schema(path)) for path in out.glob(files)]
        return sorted(each.get("xla_flags", ["none"]) for each in facts)

    call += ["--set", "run.part_seconds=600"]  # one part on a slow machine too
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert main([*call, "--set", "seeds=1"]) == 0
    assert "xla_flags" not in json.loads((out / "manifest.json").read_text())
    assert flags("parts/*") == [["none"]]
    monkeypatch.setenv("XLA_FLAGS", "--xla_b=2   --xla_a=1")
    assert main(call) == 0
    both = "--xla_a=1 --xla_b=2"
    assert json.loads((out / "manifest.json").read_text())["xla_flags"] == both
    assert flags("parts/*") == [both.split(), ["none"]]
    assert compact.main([str(out), "--prune"]) == 0
    assert flags("table.parquet") == [both.split()]
    assert report.main([str(out), "--format", "svg"]) == 0
    page = (out / "report.html").read_text()
    assert re.search(rf"<td>xla_flags</td>\s*<td>{both}</td>", page)
