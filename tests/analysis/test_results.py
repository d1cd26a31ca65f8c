"""The committed studies: what the pages say is what the tables of their rows hold."""

import importlib
import json
import re
from graphlib import TopologicalSorter

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import yaml
from helpers import FINDINGS, ROOT, combinations
from tolerances import assert_close

import jaxrecall
from jaxrecall import Point
from jaxrecall.model.columns import CODE_VERSION
from jaxrecall.model.laws.tokens import token_probabilities
from jaxrecall.sweep.grid import read_grid
from jaxrecall.sweep.search import OUTCOMES

SECTIONS = {
    f"{page}: {section.splitlines()[0]}": section
    for page, text in FINDINGS.items()
    for section in re.split("^#+ ", text, flags=re.M)[1:]
}
"""The sections of the pages about the studies, by page and heading."""

DOCS = "\n".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
NAMES = yaml.safe_load("""
studies: [capacity, mlp, bound, phase, pool, noise, zipf, phase-mlp, map,
  held-out-levels, steps-training-rates]
searches: [law, law-exact, law-long, embeddings, sensitivity, width, storage,
  storage-long, held-out, orthogonal, width-gaussian, width-undecided, structure,
  first-steps, first-steps-long, first-steps-held-out,
  steps, steps-wide, steps-long, many-steps, steps-training]
sections whose tables take seconds:
- "results/steps.md: One or many first and last steps"
- "results/steps.md: Short sequences"
- "results/embeddings.md: Orthogonal, Gaussian and normalised"
- "results/mlp.md: Phase diagram"
- "results/bound.md: Rounding the gradient"
""")
STUDIES, SEARCHES, QUICK = NAMES.values()


@pytest.fixture
def script(monkeypatch):
    """Imports a script of the results."""
    monkeypatch.syspath_prepend(ROOT / "results")
    return importlib.import_module


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_holds_the_runs_of_its_grid(name):
    grid = read_grid(ROOT / f"sweeps/{name}.yaml")
    folder = ROOT / "results/study" / name
    rows = jaxrecall.load(folder)
    assert runs_of(rows) == runs_of_grid(grid)
    assert {*rows["code_version"]} == {CODE_VERSION}
    assert json.loads((folder / "manifest.json").read_text())["grid"]["name"] == name


def runs_of(rows):
    return {*zip(rows["point_id"], rows["seed"], strict=True)}


def runs_of_grid(grid):
    return {(p.point_id, seed) for p in grid.points for seed in grid.seeds}


def test_the_decoders_of_the_study_are_those_of_the_example(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    rows = jaxrecall.load(ROOT / "results/study/decoders")
    assert runs_of(rows) == runs_of_grid(read_grid(ROOT / "examples/decoders.yaml"))
    first = rows.query("seed == 0 and d == 256").nsmallest(1, "N").iloc[0]
    sizes = {name: int(first[name]) for name in ("V", "d", "L", "N")}
    grid = {"base": sizes, "blocks": [{"axes": {"trigger_in_value": [True]}}]}
    decoders = importlib.import_module("decoders").simulator
    again = jaxrecall.run(grid, seeds=1, progress=False, simulator=decoders).iloc[0]
    for name in ("matched_accuracy", "whitened_accuracy", "assignment_accuracy"):
        # scores that are almost equal may round either way
        assert_close(again[name], first[name], 0.01)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_has_finished_every_cell_of_its_grid(name):
    grid = read_grid(ROOT / f"sweeps/{name}.yaml")
    folder = ROOT / "results/study" / name
    found = json.loads((folder / "search.json").read_text())
    assert len(found["cells"]) == len(grid.points) * len(grid.search.theta)
    assert {cell["outcome"] for cell in found["cells"]} <= {*OUTCOMES} - {"unfinished"}
    rows = jaxrecall.load(folder)
    assert {*rows["code_version"]} == {CODE_VERSION}
    assert {*rows["seed"]} <= {*grid.seeds}


def test_the_results_take_little_room():
    # other folders there are of whoever runs a sweep
    shipped = [*(ROOT / "results").glob("*"), *(ROOT / "results/study").rglob("*")]
    assert sum(path.stat().st_size for path in shipped if path.is_file()) < 25e6


INTERVAL = re.compile(r"-?\d[\d,.e]* \[[^]]+\](?!\()")


@pytest.mark.parametrize("section", combinations(SECTIONS, often=QUICK.__contains__))
def test_a_section_says_what_the_tables_that_it_names_print(script, section):
    tables, text = script("tables").TABLES, SECTIONS[section].replace("+", "")
    code = " ".join(re.findall("`([^`]+)`", text))
    named = {*re.findall(r"\w+", code)} & {*tables}
    printed = "\n".join(tables[name]() for name in named).replace("+", "")
    if not section.startswith("results/README.md"):  # its tables are written by hand
        assert {*re.findall(r"^\|.*", text, re.M)} <= {*printed.splitlines()}
    if named:
        assert {*INTERVAL.findall(text)} <= {*INTERVAL.findall(printed)}


@pytest.mark.parametrize("table", ["critical_sizes", "pool_summary"])
@pytest.mark.slow
def test_the_tables_in_docs_are_printed(script, table):
    printed = script("tables").TABLES[table]().splitlines()
    shown = DOCS.split(f"{printed[0]}\n")[1].split("\n\n")[0]
    assert {*shown.splitlines()} <= {*printed}


@pytest.fixture
def law(script):
    return script("law")


def test_an_infinite_prediction_is_an_error_of_theory(monkeypatch, law):
    sizes = {"V": [64, 64, 64], "d": [64, 64, 64], "L": [4, 8, 1024]}
    cells = pd.DataFrame(sizes).assign(theta=0.9, trigger_in_value=True, error=0.1)
    cells["N_star"] = [100.0, 200.0, np.nan]
    theirs = [150.0, np.inf, np.inf]
    monkeypatch.setattr(law, "searched", lambda study: cells)
    monkeypatch.setattr(law, "on_all_cores", lambda function, *arguments: theirs)
    law.predicted.cache_clear()
    line = law.law_errors().splitlines()[2]
    law.predicted.cache_clear()
    numbers = "2 | inf | +0.405 | +0.41 (V 64, d 64, L 4) | 1 | 0.10 |"
    assert line == f"| 0.9 | short sequences | {numbers}"


def test_the_regimes_are_those_of_their_conditions(law):
    table = pd.DataFrame({"V": 64, "d": 64, "L": [4, 64, 65536]}, dtype="int32")
    assert law.regime(table).tolist() == [law.SHORT, law.BETWEEN, law.LONG]


def test_a_cell_of_the_planes_says_what_keeps_accuracy_below_one_half(script):
    planes = script("planes")
    table = planes.cells()
    rows = jaxrecall.load(ROOT / "results/study/phase-mlp")
    rows = rows.set_index(planes.KEY).sort_index()
    noises = ["noise_mlp", "noise_bias", "noise_gradient", "noise_leakage"]
    for cell in table.sample(60, random_state=0).to_dict("records"):
        mine = rows.loc[tuple(cell[name] for name in planes.KEY)]
        leading = mine[noises].median().idxmax().removeprefix("noise_")
        below = leading if mine["attention_top1"].mean() < 0.9 else "memory"
        p = mine["accuracy"].to_numpy()
        assert cell["state"] == ("recall" if p.mean() > 0.5 else below)
        reach = scipy.stats.t.ppf(0.975, len(p) - 1) * p.std(ddof=1) / len(p) ** 0.5
        assert cell["undecided"] == (abs(p.mean() - 0.5) < reach)


def test_the_counts_of_the_planes_are_those_of_the_page(script):
    line = script("planes").leading().splitlines()[-1].strip("| ").split(" | ")
    mlp, bias, gradient, memory, recall, leakage, _ = map(int, line[2:])
    fails = mlp + bias + gradient + leakage
    page = " ".join(SECTIONS["results/mlp.md: Phase diagram"].split())
    assert f"one half at {fails} of {fails + memory + recall} points" in page
    assert f"MLP noise at {mlp} of these points" in page
    assert f"Mean bias is the largest noise at {bias} points" in page
    assert f"Gradient noise is the largest at {gradient} points" in page
    assert f"leakage at {leakage} point (" in page


def test_a_study_without_figures_is_refused(script, capsys):
    figures = script("figures")
    assert len(figures.chosen(["law"])) < len(figures.FIGURES)
    assert figures.chosen([]) == figures.FIGURES
    with pytest.raises(SystemExit, match="2"):
        figures.chosen(["law", "laws"])
    assert "no figures of laws; there are law, embeddings," in capsys.readouterr().err


@pytest.mark.parametrize("centred", [False, True])
def test_the_effective_dimension_is_that_of_the_eigenvalues(script, centred):
    V = 60
    Z = np.random.default_rng(V).normal(size=(V, 20)) * np.arange(1, 21) ** -0.7 + 0.3
    eigenvalues = np.linalg.eigvalsh(np.cov(Z.T, bias=True) if centred else Z.T @ Z / V)
    expected = eigenvalues.sum() ** 2 / (eigenvalues**2).sum()
    assert_close(script("structure").effective_dimension(Z, centred), expected)


def test_the_given_table_of_the_study_is_what_its_script_writes(script):
    kept = np.load(ROOT / "sweeps/structure.npy").astype(np.float64)
    made = script("structure").learned_table().astype(np.float64)
    assert_close(kept, made, 2e-3 * np.abs(made).max())


@pytest.mark.parametrize("inside", [True, False])
def test_the_gradient_of_infinitely_many_samples_is_that_of_many(script, inside):
    laws = {"tokens": "zipf", "noise_tokens": "zipf(s=0.5)"}
    point = Point(V=6, N=200000, d=8, L=3, n_test=1, eta=1e-9, **laws)
    point = point.replace(trigger_in_value=inside)
    r = jaxrecall.realize(point, 0)
    many = jaxrecall.three_step(r, point).w
    r = r.astype(np.float64)
    tables = r.Z_in, r.Z_out[r.perm], r.z_trig, r.z_eos
    p, q = (token_probabilities(law, 6) for law in point.token_laws)
    population_w = script("zipf").population_w
    scale = point.kappa * 9 * 6 * (r.z_eos @ r.z_eos)
    endless = population_w(tables, p, q, 3, inside, "uniform") * scale
    size = np.linalg.norm(endless)
    assert_close(many / size, endless / size, 0.02)
    known = population_w(tables, p, q, 3, inside, "frequencies")
    assert abs(known @ endless) < 0.99 * np.linalg.norm(known) * size


JUDGES = {"coverage"}
"""Scripts that judge parts of the package, which they import from inside."""


IMPORTED = re.compile(r"^ *(?:from|import) ([\w.]+)", re.M)


def test_scripts_of_results_use_the_public_interface_alone_and_import_in_no_circle():
    """A script may import the package, its modules that `jaxrecall.__all__` names, and
    scripts that do not lead back to it.
    """
    modules = {
        path.stem: {*IMPORTED.findall(path.read_text())}
        for path in (ROOT / "results").glob("*.py")
    }
    public = {"jaxrecall", *(f"jaxrecall.{name}" for name in jaxrecall.__all__)}
    for name, imported in modules.items():
        own = {each for each in imported if each.partition(".")[0] == "jaxrecall"}
        assert own <= public or name in JUDGES, name
    of_results = {name: modules[name] & {*modules} for name in modules}
    TopologicalSorter(of_results).prepare()  # raises CycleError
