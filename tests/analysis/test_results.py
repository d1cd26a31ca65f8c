"""The committed studies: what the pages say is what the tables of their rows hold."""

import ast
import importlib
import json
import re

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from helpers import ROOT

import jaxrecall
from jaxrecall import Point
from jaxrecall.analysis.figures.theory_lines import model_of
from jaxrecall.errors import TheoryError
from jaxrecall.model.columns import CODE_VERSION
from jaxrecall.model.laws.tokens import shares
from jaxrecall.model.point import FIELDS
from jaxrecall.sweep.grid import read_grid
from jaxrecall.sweep.search import OUTCOMES

README, FRONT = (
    (ROOT / f"{folder}README.md").read_text() for folder in ("results/", "")
)
POOL, THEORY = ((ROOT / f"docs/{page}.md").read_text() for page in ("laws", "theory"))
REPORTED = ["capacity", "mlp", "bound", "phase"]
UNREPORTED = ["pool", "noise", "zipf", "phase-mlp", "map", "held-out-levels"]
SEARCHED = [
    "law",
    "law-exact",
    "law-long",
    "embeddings",
    "sensitivity",
    "width",
    "storage",
    "storage-long",
]
QUICK = [
    "embeddings",
    "activations",
    "sensitivity",
    "storage",
    "structure_sides",
    "zipf_mends",
]
QUICK += ["required_plane", "widths_by_samples", "widths_by_lengths"]
WITH_THEORY = ["capacity", "bound", "bound_slopes", "bound_exponents"]
WITH_THEORY += ["law_exponents", "law_lengths", "law_errors", "law_check"]
WITH_THEORY += [
    "law_without",
    "law_without_errors",
    "law_wide_exponents",
    "law_wide_errors",
]
WITH_THEORY += [
    "required_width",
    "structure_collapse",
    "structure_critical",
    "zipf_critical",
    "zipf_cause",
]
ERRORS = ["exhaustive", "critical_sizes", "held_out"]
OF_POOLS = ["pool_summary"]
SEARCHED += ["held-out", "orthogonal", "width-gaussian", "width-undecided"]
OF_RATES = ["first-steps", "first-steps-long", "first-steps-training-long"]
OF_RATES += ["first-steps-held-out"]
QUICK += ["label_counts", "precision", "precision_small"]
QUICK += ["rates_and_numbers", "first_steps_elsewhere", "last_steps"]
WITH_THEORY += ["twelve_cells", "dimension_by_length", "budget_checked", "along_L"]


@pytest.mark.parametrize("name", [*REPORTED, *UNREPORTED])
def test_a_study_holds_the_runs_of_its_grid(name):
    grid = read_grid(ROOT / f"sweeps/{name}.yaml")
    folder = ROOT / "results/study" / name
    rows = jaxrecall.load(folder)
    assert runs_of(rows) == {
        (p.point_id, seed) for p in grid.points for seed in grid.seeds
    }
    assert set(rows["code_version"]) == {CODE_VERSION}
    assert json.loads((folder / "manifest.json").read_text())["grid"]["name"] == name


def runs_of(rows):
    return set(zip(rows["point_id"], rows["seed"], strict=True))


def test_the_decoders_of_the_study_are_those_of_the_example(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    grid = read_grid(ROOT / "examples/decoders.yaml")
    rows = jaxrecall.load(ROOT / "results/study/decoders")
    assert runs_of(rows) == {
        (p.point_id, seed) for p in grid.points for seed in grid.seeds
    }
    first = rows[(rows["seed"] == 0) & (rows["d"] == 256)].nsmallest(1, "N").iloc[0]
    small = {
        "base": {name: int(first[name]) for name in ("V", "d", "L", "N")},
        "blocks": [{"axes": {"trigger_in_value": [True]}}],
    }
    again = jaxrecall.run(
        small,
        seeds=1,
        progress=False,
        simulator=importlib.import_module("decoders").simulator,
    ).iloc[0]
    for name in ("matched_accuracy", "whitened_accuracy", "assignment_accuracy"):
        # scores that are almost equal may round either way
        assert again[name] == pytest.approx(first[name], abs=0.005)


def is_refused(row):
    try:
        model_of(row)
    except TheoryError:
        return True
    return False


@pytest.mark.parametrize(
    "name", [*REPORTED, "late", "pool", "noise", "phase-mlp", "map", *SEARCHED]
)
@pytest.mark.filterwarnings("ignore:gamma2")
def test_theory_covers_every_point_of_a_study_that_ends_with_the_recipe(name):
    rows = jaxrecall.load(ROOT / "results/study" / name, last=True)
    rows = rows.drop_duplicates(
        [
            column
            for column in rows
            if column != "N" and (column in FIELDS or "." in column)
        ]
    )
    refused = list(map(is_refused, rows.to_dict("records")))
    assert refused == ((rows["steps"] > 3) | (rows["start"] == "zero")).tolist()


@pytest.mark.parametrize("name", [*SEARCHED, *OF_RATES, "structure"])
def test_a_search_has_finished_every_cell_of_its_grid(name):
    grid = read_grid(ROOT / f"sweeps/{name}.yaml")
    folder = ROOT / "results/study" / name
    found = json.loads((folder / "search.json").read_text())
    assert len(found["cells"]) == len(grid.points) * len(grid.search.theta)
    assert {cell["outcome"] for cell in found["cells"]} <= {*OUTCOMES} - {"unfinished"}
    rows = jaxrecall.load(folder)
    assert set(rows["code_version"]) == {CODE_VERSION}
    assert set(rows["seed"]) <= set(grid.seeds)


def test_figures_are_there_and_the_results_take_little_room():
    figures = re.findall(r"!\[[^]]*\]\(([^)]*)\)", README)
    assert len(figures) > 5
    for path in figures:
        assert (ROOT / "results" / path).exists(), path
    # other folders there are of whoever runs a sweep
    shipped = [
        *(ROOT / "results").glob("*"),
        *(ROOT / "results/study").rglob("*"),
    ]
    assert sum(path.stat().st_size for path in shipped if path.is_file()) < 25e6


@pytest.mark.parametrize(
    "table",
    [
        *QUICK,
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (*WITH_THEORY, *OF_POOLS, *ERRORS)
        ),
    ],
)
def test_the_tables_are_printed_by_the_script(monkeypatch, table):
    monkeypatch.syspath_prepend(ROOT / "results")
    tables = importlib.import_module("tables")
    page = (
        POOL
        if table in OF_POOLS
        else (
            THEORY
            if table in ERRORS
            else FRONT
            if table == "dimension_by_length"
            else README
        )
    )
    printed = tables.TABLES[table]()
    heading, _, *rows = printed.splitlines()
    shown = page.split(f"{heading}\n")[1].split("\n\n")[0].splitlines()[1:]
    assert shown, "a page shows some of the rows, in their order"
    assert [row for row in rows if row in shown] == shown


@pytest.fixture
def law(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "results")
    return importlib.import_module("law")


def test_an_infinite_prediction_is_an_error_of_theory(monkeypatch, law):
    sizes = {"V": [64, 64, 64], "d": [64, 64, 64], "L": [4, 8, 1024]}
    cells = pd.DataFrame(sizes).assign(
        theta=0.9,
        trigger_in_value=True,
        N_star=[100.0, 200.0, np.nan],
        error=0.1,
    )
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


@pytest.mark.slow
def test_the_front_page_has_the_exponents_of_the_fit(law):
    long = f"{law.INSIDE[True]} and {law.REGIMES[law.LONG]}"
    conditions = {
        f"{law.INSIDE[True]} and {law.REGIMES[law.SHORT]}": "Vd",
        long: "L",
        f"{long} and 2 * V >= d": "Vd",
        f"{long} and 2 * V < d": "Vd",
        f"{law.INSIDE[False]} and {law.REGIMES[law.LONG]}": "d",
    }
    found = law.laws("law", tuple(conditions)).loc[0.5]
    for condition, axes in conditions.items():
        for axis in axes:
            assert f"{axis}^{law.with_ends(found.loc[condition, axis])}" in FRONT


def test_a_cell_of_the_planes_says_what_keeps_accuracy_below_one_half(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "results")
    planes = importlib.import_module("planes")
    table = planes.cells()
    assert {"mlp", "bias", "gradient", "memory", "recall"} <= {*table["state"]}
    rows = (
        jaxrecall.load(ROOT / "results/study/phase-mlp")
        .set_index(planes.KEY)
        .sort_index()
    )
    for cell in table.sample(60, random_state=0).to_dict("records"):
        mine = rows.loc[tuple(cell[name] for name in planes.KEY)]
        parts = mine[
            ["noise_mlp", "noise_bias", "noise_gradient", "noise_leakage"]
        ].median()
        fails = mine["attention_top1"].mean() < 0.9
        below = parts.idxmax().removeprefix("noise_") if fails else "memory"
        assert cell["state"] == ("recall" if mine["accuracy"].mean() > 0.5 else below)
        p = mine["accuracy"].to_numpy()
        reach = scipy.stats.t.ppf(0.975, len(p) - 1) * p.std(ddof=1) / len(p) ** 0.5
        assert cell["undecided"] == (abs(p.mean() - 0.5) < reach)


def test_the_counts_of_the_planes_are_those_of_the_page(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "results")
    planes = importlib.import_module("planes")
    line = planes.leading().splitlines()[-1].strip("| ").split(" | ")
    mlp, bias, gradient, memory, recall, leakage, others = map(int, line[2:])
    fails = mlp + bias + gradient + leakage
    cells = fails + memory + recall
    assert f"one half in {fails} of {cells} cells" in README.replace("\n  ", " ")
    parts = f"{mlp}, at small m; mean bias in {bias}, at large m; gradient noise in"
    assert f"{parts} {gradient}," in README.replace("\n  ", " ")
    assert f"In {others} more cells attention fails" in README


def test_a_study_without_figures_is_refused(monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT / "results")
    figures = importlib.import_module("figures")
    assert {key.partition("/")[0] for key in figures.chosen(["law", "map"])} == {
        "law",
        "map",
    }
    assert figures.chosen([]) == figures.FIGURES
    with pytest.raises(SystemExit) as refused:
        figures.chosen(["law", "laws"])
    assert refused.value.code == 2
    assert "no figures of laws; there are law, embeddings," in capsys.readouterr().err


@pytest.fixture
def structure(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "results")
    return importlib.import_module("structure")


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("V", [7, 60])
def test_the_effective_dimension_is_that_of_the_eigenvalues(structure, V, centred):
    Z = np.random.default_rng(V).normal(size=(V, 20)) * np.arange(1, 21) ** -0.7 + 0.3
    S = np.cov(Z.T, bias=True) if centred else Z.T @ Z / V
    eigenvalues = np.linalg.eigvalsh(S)
    assert structure.effective_dimension(Z, centred) == pytest.approx(
        eigenvalues.sum() ** 2 / (eigenvalues**2).sum()
    )


def test_the_effective_dimension_of_independent_rows(structure):
    Z = np.random.default_rng(0).normal(size=(300, 200))
    assert 1 / structure.effective_dimension(Z) == pytest.approx(
        1 / 300 + 1 / 200, rel=0.02
    )


def test_the_given_table_of_the_study_is_what_its_script_writes(structure):
    kept = np.load(ROOT / "sweeps/structure.npy")
    np.testing.assert_allclose(
        kept.astype(np.float32), structure.learned_table().astype(np.float32), rtol=2e-3
    )


@pytest.mark.parametrize("inside", [True, False])
def test_the_gradient_of_infinitely_many_samples_is_that_of_many(monkeypatch, inside):
    monkeypatch.syspath_prepend(ROOT / "results")
    zipf = importlib.import_module("zipf")
    point = Point(
        V=6,
        N=200000,
        d=8,
        L=3,
        n_test=1,
        eta=1e-9,
        tokens="zipf",
        noise_tokens="zipf(s=0.5)",
        trigger_in_value=inside,
    )
    r = jaxrecall.realize(point, 0)
    many = jaxrecall.three_step(r, point).w
    tables = tuple(
        np.asarray(table, np.float64)
        for table in (r.Z_in, r.Z_out[r.perm], r.z_trig, r.z_eos)
    )
    p, q = (shares(law, 6) for law in point.token_laws)
    endless = (
        zipf.population_w(tables, p, q, 3, inside, "uniform")
        * point.kappa
        * 9
        * 6
        * (tables[3] @ tables[3])
    )
    np.testing.assert_allclose(many, endless, atol=0.02 * np.linalg.norm(endless))
    known = zipf.population_w(tables, p, q, 3, inside, "frequencies")
    assert abs(known @ endless) < 0.99 * np.linalg.norm(known) * np.linalg.norm(endless)


JUDGES = {"coverage"}
"""Scripts that judge parts of the package, which they import from inside."""


def test_scripts_of_results_use_the_public_interface_alone_and_import_in_no_circle():
    """A script may import the package, its modules that `jaxrecall.__all__` names, and
    scripts that do not lead back to it.
    """
    scripts = {
        path.stem: ast.parse(path.read_text())
        for path in (ROOT / "results").glob("*.py")
    }
    modules = {
        name: (
            {
                alias.name
                for node in ast.walk(tree)
                if isinstance(node, ast.Import)
                for alias in node.names
            }
            | {
                str(node.module)
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom)
            }
        )
        for name, tree in scripts.items()
    }
    public = {"jaxrecall", *(f"jaxrecall.{name}" for name in jaxrecall.__all__)}
    for name in scripts:
        own = {
            module
            for module in modules[name]
            if module.partition(".")[0] == "jaxrecall"
        }
        assert own <= public or name in JUDGES, name
        reached, todo = set(), [*modules[name] & {*scripts}]
        while todo:
            if (other := todo.pop()) not in reached:
                reached.add(other)
                todo += modules[other] & {*scripts}
        assert name not in reached
