"""The report: what it draws is what the table holds, its tables are those of the fit,
and bad input is refused in a line.
"""

import importlib
import itertools
import json
import re
import shutil
import warnings
from argparse import Namespace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import python
from test_fit import LEVELS, law, ours, table, uncovered

import jaxrecall
from jaxrecall import theory
from jaxrecall.analysis import report
from jaxrecall.analysis.figures.style import look, rounded
from jaxrecall.analysis.figures.table_of_runs import Runs
from jaxrecall.analysis.figures.theory_lines import Theory, model_of
from jaxrecall.analysis.fit import fit
from jaxrecall.analysis.fit.roles import roles_of
from jaxrecall.analysis.fit.runs import LAST, along_of, at_steps
from jaxrecall.analysis.report import Picture, _replace, figures, question
from jaxrecall.errors import UsageError
from jaxrecall.sweep.__main__ import main as sweep
from jaxrecall.sweep.files import plain_name
from jaxrecall.sweep.store import Store

cli = importlib.import_module("jaxrecall.report")
fit_cli = importlib.import_module("jaxrecall.fit")
GRID = {"d": [32, 64, 128], "L": [8, 16]}


def drawn(frame, *names, thetas=(0.5,), render=False, **choices):
    """The figures of a report whose names begin so, or all of them, by name; nothing
    saved.
    """
    asked = Namespace(
        **{"x": None, "lines": None, "panels": [], "phase": [], "theta": [*thetas]}
        | choices
    )
    last = at_steps(frame, LAST)
    roles = roles_of(last)
    runs = Runs.of(last, roles, along_of(last, roles, None))
    with look():
        every = figures(runs, runs.fitted(asked.theta), asked, Theory(runs))
        found = {
            name: chart.figure()
            for name, _, chart in every
            if not names or name.startswith(names)
        }
        for figure in found.values() if render else ():
            figure.draw_without_rendering()
    return found


def labels(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def marks(ax, marker):
    """The points of the lines of a panel that have this marker."""
    return [
        xy
        for line in ax.lines
        if line.get_marker() == marker
        for xy in np.asarray(line.get_xydata(), float).tolist()
    ]


REPORT = ["--theta", "0.3", "0.9"]


@pytest.fixture(scope="session")
def swept(tmp_path_factory):
    """A results folder; its runs fit the program that other tests compile."""
    grid = tmp_path_factory.mktemp("grid") / "grid.yaml"
    base = "{V: 17, L: 2, n_test: 500}"
    axes = "{d: [10, 13, 16], N: [8, 40, 200, 1000, 8000]}"
    grid.write_text(
        f"schema: 1\nname: small\nbase: {base}\nseeds: {{count: 6}}\nblocks:\n  - axes:"
        f" {axes}\n"
    )
    out = tmp_path_factory.mktemp("small")
    assert sweep(["--grid", str(grid), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="session")
def folder(swept, tmp_path_factory):
    """The same with its report, made by the command in an interpreter of its own."""
    out = shutil.copytree(swept, tmp_path_factory.mktemp("report") / "small")
    call = (
        "import sys; import jaxrecall.report as report; report.COUNT_EVERY_SECONDS ="
        f" 0.0; code = report.main({[str(out), *REPORT]!r})"
    )
    ran = python(f"{call}; assert 'jax' not in sys.modules; sys.exit(code)")
    assert ran.returncode == 0, ran.stderr
    (out / "told.txt").write_text(ran.stdout)
    (out / "progress.txt").write_text(ran.stderr)
    return out


class Tags(HTMLParser):
    """Start tags that are open, and everything that a page refers to."""

    VOID = ("meta", "br", "hr", "img", "link", "input")

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.references, self.tags = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open += [tag] * (tag not in self.VOID)
        for name, value in attrs:
            self.ids += [value] * (name == "id")
            self.references += [value] * (
                name in ("src", "href", "xlink:href", "data", "action")
            )
            self.references += re.findall(r"url\((.*?)\)", value or "")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_from_outside(folder):
    text = (folder / "report.html").read_text()
    page = Tags(text)
    assert page.open == []
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert [
        reference
        for reference in page.references
        if not reference.startswith(("#", "data:image/png"))
    ] == []
    assert "@import" not in text
    assert len(page.ids) == len(set(page.ids))
    assert {
        reference[1:] for reference in page.references if reference[0] == "#"
    } <= set(page.ids)
    assert len(text) < 2e6


def test_every_picture_is_on_the_page_and_in_both_files(folder):
    page = Tags((folder / "report.html").read_text())
    figures = folder / "report-figures"
    names = {path.stem for path in figures.iterdir()}
    assert (
        {"accuracy", "critical-n", "critical-n-0.9", "phase", "collapse"}
        == names
        <= set(page.ids)
    )
    for name in names:
        assert (figures / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert (figures / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (figures / f"{name}.png").stat().st_size < 4e5
    assert page.tags.count("svg") == len(names)


def test_the_page_has_the_tables_and_where_they_come_from(folder):
    text = (folder / "report.html").read_text()
    rows = fit(jaxrecall.load(folder), [0.3, 0.9])
    for value in rows.thresholds["N_star"].dropna():
        assert rounded(value) in text
    for value in rows.exponents["exponent"].dropna():
        assert f"d^{value:.2f} [" in text
    assert "<th>N*</th>" in text
    assert "cross 0.3, 0.9? The answer, N*, comes from 3 cells, 90 rows" in text
    for fact in (
        "ok (90 rows)",
        "6, from 0 to 5",
        "jaxlib",
        "python -m jaxrecall.report",
        "--grid",
        "name: small",
    ):
        assert fact in text
    assert "failed runs" not in text
    assert (
        "critical-n-0.9: Critical N at accuracy 0.9"
        in (folder / "told.txt").read_text()
    )


@pytest.mark.system  # a process of its own draws the report again
def test_the_same_rows_make_the_same_bytes(swept, folder, tmp_path):
    again = shutil.copytree(swept, tmp_path / "small")
    assert cli.main([str(again), *REPORT]) == 0

    def made(out):
        files = [out / "report.html", *sorted((out / "report-figures").iterdir())]
        return {
            path.name: path.read_bytes().replace(str(out).encode(), b"")
            for path in files
        }

    assert "accuracy.pdf" in made(again)
    assert made(again) == made(folder)


def test_a_results_folder_is_fitted_in_place_and_stays_one(swept, tmp_path, capsys):
    thresholds = []
    for name in ("once", "again"):
        out = shutil.copytree(swept, tmp_path / name)
        capsys.readouterr()
        assert (
            fit_cli.main([str(out), "--theta", "0.3", "0.4", "--resamples", "100"]) == 0
        )
        told = capsys.readouterr().out
        assert "theta = 0.4:" in told
        assert "theta = 0.3: 3 cells: 3 cross" in told
        thresholds.append(pd.read_parquet(out / "thresholds.parquet"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(jaxrecall.load(out)) == 3 * 5 * 6
    assert len(thresholds[0]) == 3 * 2
    assert thresholds[0].groupby(["d", "theta"])["record"].sum().eq(1).all()
    pd.testing.assert_frame_equal(*thresholds)


def test_failures_and_old_pictures(folder, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(folder, out)
    Store(out).note(
        "failures/x",
        {
            "runs": [["0" * 16, 7]],
            "error": "Boom\nat line 3",
            "host": "box7",
            "bucket": "16x8",
            "repeat": "python -m again",
        },
    )
    figures = out / "report-figures"
    for name in ("accuracy-final.pdf", "phase-mine.svg", "mine.txt"):
        (figures / name).write_text("of the user")
    assert (
        cli.main(
            [str(out), "--resamples", "100", "--surrogate", "0", "--format", "svg"]
        )
        == 0
    )
    assert (
        "<td>failed runs</td><td>1, which the command status lists</td>"
        in (out / "report.html").read_text()
    )
    assert {path.name for path in figures.iterdir()} == {
        *("accuracy-final.pdf", "phase-mine.svg", "mine.txt"),
        *("accuracy.svg", "critical-n.svg", "phase.svg"),
    }


def test_points_are_thresholds_and_lines_the_law_unless_the_fit_rejects_it():
    straight = uncovered(table({"d": [32, 64, 128, 256]}, law))
    bent = uncovered(
        table(
            {"d": [32, 64, 128, 256]},
            lambda c: law(c) * (4 if c["d"] in (32, 256) else 1),
        )
    )
    for frame, rejected in ((straight, False), (bent, True)):
        figure = drawn(frame, "critical")["critical-n"]
        found = fit(frame, [0.5])
        stars = found.thresholds.query("record")["N_star"]
        # a cell that does not surely cross has a second, open mark
        shown = np.unique(marks(figure.axes[0], "o"), axis=0)
        np.testing.assert_allclose(shown, np.column_stack([[32, 64, 128, 256], stars]))
        ends = {
            tuple(path.vertices[:, 1])
            for bars in figure.axes[0].collections
            for path in bars.get_paths()
        }
        assert {
            (row.lo, row.hi)
            for row in found.thresholds.itertuples()
            if 0 < row.lo < row.hi < np.inf
        } <= ends
        assert ("law, fitted" in labels(figure)) != rejected
        assert figure.axes[0].get_ylabel() == "N* at accuracy 0.5 (samples)"
    (line,) = [
        line.get_ydata()
        for line in drawn(straight, "critical")["critical-n"].axes[0].lines
        if line.get_linestyle() == "-"
    ]
    exponent = fit(straight, [0.5]).exponents["exponent"].iloc[0]
    np.testing.assert_allclose(np.diff(np.log(line)), exponent * np.log(2))


def test_cells_without_a_threshold_are_marked_where_they_were_tried():
    frame = table(
        {"d": [16, 32, 64, 128]},
        lambda c: {16: 1000, 32: 1e7, 64: 1000, 128: 5}[c["d"]],
        ceiling=lambda c: 0.3 if c["d"] == 16 else 1.0,
    )
    for name, figure in drawn(frame, "critical", "phase").items():
        assert {
            "levels off before",
            "not reached, crosses above",
            "crosses below",
        } <= set(labels(figure)), name
        ax = figure.axes[0]
        assert [marks(ax, marker) for marker in "X^v"] == [
            [[16, LEVELS[-1]]],
            [[32, LEVELS[-1]]],
            [[128, LEVELS[0]]],
        ]
        low, high = ax.get_ylim()
        assert low < LEVELS[0] < LEVELS[-1] < high


def test_what_was_not_tested_is_hatched_and_not_filled_in():
    frame = uncovered(table(GRID, law))
    assert "not tested" not in labels(drawn(frame, "phase")["phase"])
    gap = frame[
        ~((frame["d"] == 64) & (frame["L"] == 8) & frame["N"].isin(LEVELS[3:5]))
    ]
    figure = drawn(gap, "phase")["phase"]
    assert "not tested" in labels(figure)
    ax = figure.axes[0]
    assert ax.patch.get_hatch()
    means = (
        gap[gap["L"] == 8]
        .assign(p=lambda f: f["n_correct"] / f["n_test"])
        .groupby(["N", "d"])["p"]
        .mean()
        .unstack()
    )
    shown = ax.collections[0].get_array()
    assert shown.mask.tolist() == means.isna().to_numpy().tolist()
    np.testing.assert_allclose(shown.compressed(), means.to_numpy()[means.notna()])
    assert shown.mask.sum() == 2


@pytest.mark.slow
def test_a_map_has_the_thresholds_and_theory_along_N_and_else_a_contour():
    frame = ours(table({"d": [32, 64], "V": [64, 128]}, law, LEVELS[::2]))
    figures = drawn(
        frame,
        "phase",
        phase=[("d", "N"), ("N", "d"), ("N / d", "d"), ("d", "V")],
        render=True,
    )
    assert [*figures] == ["phase", "phase-N-d", "phase-N-by-d-d", "phase-d-V"]
    stars = fit(frame, [0.5]).thresholds.query("record and V == 64")
    np.testing.assert_allclose(
        marks(figures["phase"].axes[0], "o"), stars[["d", "N_star"]]
    )
    np.testing.assert_allclose(
        sorted(marks(figures["phase-N-d"].axes[0], "o")),
        sorted(stars[["N_star", "d"]].to_numpy().tolist()),
    )
    assert all("theory" in labels(figures[name]) for name in figures)
    shown = [ax for ax in figures["phase-d-V"].axes if ax.get_visible()]
    # a panel for each N, and the scale of the colours
    assert len(shown) == len(LEVELS[::2]) + 1
    assert any(
        hasattr(shown, "levels")
        for ax in figures["phase-d-V"].axes
        for shown in ax.collections
    )


def test_a_pixel_never_holds_two_cells():
    # m * d = 2048 twice, 0 twice
    same = uncovered(table({"d": [32, 64], "m": [0, 32, 64]}, law, LEVELS[::3]))
    figure = drawn(same, "phase", phase=[("m * d", "N")], render=True)["phase-mxd-N"]
    panels = [ax for ax in figure.axes if ax.get_title()]
    assert [ax.get_title() for ax in panels] == ["d = 32", "d = 64"]
    assert (
        sum((~np.ma.getmaskarray(ax.collections[0].get_array())).sum() for ax in panels)
        == 6 * 3
    )


def traced(axes, steps=(3, 10, 100), levels=LEVELS[3:5]):
    """Rows of runs that train on: N* falls as 1 / sqrt(step), the loss too."""
    each = [
        table(axes, lambda c, less=step**-0.5: 4 * law(c) * less, levels).assign(
            step=step, loss=step**-0.5
        )
        for step in steps
    ]
    return pd.concat(each, ignore_index=True).assign(
        steps=steps[-1], start="three_step", trains="VW"
    )


def test_runs_that_train_on_are_drawn_at_the_last_step():
    frame = traced({"d": [32, 64]})
    figures = drawn(frame, render=True)
    mean = (
        frame.assign(p=frame["n_correct"] / frame["n_test"])
        .groupby(["N", "d", "step"])["p"]
        .mean()
    )
    np.testing.assert_allclose(
        figures["accuracy"].axes[0].lines[0].get_ydata(),
        mean.unstack("N").loc[(32, 100)],
    )
    assert "theory" not in labels(figures["accuracy"])


def test_theory_is_drawn_where_it_holds_and_says_what_it_assumes():
    foreign = table({"d": [32, 64]}, law)
    assert "theory" not in labels(drawn(foreign, "accuracy")["accuracy"])
    frame = ours(foreign)
    known = drawn(frame, "accuracy")["accuracy"]
    assert "theory" in labels(known)
    dashed = [
        np.asarray(line.get_xydata())
        for line in known.axes[0].lines
        if line.is_dashed()
    ]
    for N, p in dashed[0][::50]:
        at = {"V": 64, "d": 32, "L": 8, "m": 0, "N": N}
        assert p == pytest.approx(theory.accuracy(model_of(at), N), abs=0.01)
    assert not any(
        "theory" in label
        for figure in drawn(uncovered(frame)).values()
        for label in labels(figure)
    )
    rows = uncovered(frame)
    runs = Runs.of(rows, roles_of(rows), "N")
    asked = question(runs, [0.5], Theory(runs))
    assert "Theory does not cover 2 of 2 cells (s: got 1.0; " in asked


@pytest.mark.slow
def test_theory_that_assumes_locked_attention_is_not_drawn_where_it_was_measured_open():
    frame = table(
        {"d": [128, 256], "m": [32]}, lambda c: 1000.0, (64, 256, 1024, 4096), seeds=2
    )
    frame = ours(frame).assign(activation="relu", embedding="orthogonal")
    name = "theory, assumes locked attention"
    assert all(
        name in labels(figure)
        for figure in drawn(frame, "accuracy", "critical", "phase").values()
    )
    frame["attention_mass"] = np.where(
        (frame["d"] == 256) & (frame["N"] > 256), 0.99, 0.4
    )
    ax = drawn(frame, "accuracy")["accuracy"].axes[0]
    dashed = [line.get_xdata() for line in ax.lines if line.is_dashed()]
    (places,) = [np.asarray(x) for x in dashed if len(x)]
    assert places.min() == pytest.approx(1024)
    assert places.max() == pytest.approx(4096)
    assert "theory ends: not covered" in labels(ax.figure)
    assert name not in labels(drawn(frame, "critical")["critical-n"])


def test_a_law_is_predicted_with_its_numbers():
    at = {
        "V": 64,
        "d": 32,
        "L": 8,
        "embedding": "equicorrelated",
        "embedding.rho": 0.3,
        "tokens.s": np.nan,
        "N": 77,
    }
    assert "rho=0.3" in str(model_of(at).embedding)


def along_V():
    """A results table of a search along V, for which N follows V; what it knows of its
    search comes with the file.
    """
    rows = [
        {"V": V, "N": 8 * V, "d": d, "L": 8, "m": 0, "seed": seed, "n_test": 1000}
        | {
            "n_correct": round(
                1000 / (1 + (V / (3 * d)) ** 2 * np.exp(0.1 * (seed - 3.5)))
            )
        }
        for d in (16, 32, 64)
        for V in (16, 23, 32, 45, 64, 91, 128, 181, 256, 362)
        for seed in range(8)
    ]
    frame = pd.DataFrame(rows)
    frame.attrs.update(axes=["d", "V"], searched="V")
    return frame


def test_a_report_of_a_search_along_another_axis_shows_its_crossings(tmp_path):
    frame = along_V()
    meta = {b"jaxrecall": json.dumps(frame.attrs).encode()}
    pq.write_table(
        pa.Table.from_pandas(frame).replace_schema_metadata(meta),
        tmp_path / "t.parquet",
    )
    assert cli.main([str(tmp_path / "t.parquet"), "--format", "svg"]) == 0
    assert {path.name for path in (tmp_path / "t-report-figures").iterdir()} == {
        "accuracy.svg",
        "critical-v.svg",
        "phase.svg",
        "collapse.svg",
    }
    page = (tmp_path / "t-report.html").read_text()
    assert "how critical V scales" in page
    assert "<th>V*</th>" in page
    assert "N*" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    found = np.array(marks(drawn(frame, "critical")["critical-v"].axes[0], "o"))
    np.testing.assert_allclose(found, [[16, 48], [32, 96], [64, 192]], rtol=0.05)


@pytest.mark.slow
def test_a_report_takes_panels_and_arithmetic_along_x():
    frame = table(
        {"d": [32, 64], "m": [0, 16, 64]},
        lambda c: 1000 * c["d"] / 32 / max(1, c["m"] / 8),
    )
    both = [frame[frame["m"] > 0].assign(activation=name) for name in ("gelu", "relu")]
    frame = uncovered(
        pd.concat(
            [frame[frame["m"] == 0].assign(activation="none"), *both], ignore_index=True
        )
    )
    figures = drawn(
        frame,
        "critical",
        "accuracy-against",
        x="m * d",
        lines="d",
        panels=["activation"],
        render=True,
    )
    for name in ("critical-n", "accuracy-against"):
        assert [ax.get_title() for ax in figures[name].axes if ax.get_visible()][
            :3
        ] != []
        assert figures[name].get_supxlabel() == "m * d"
    assert [
        ax.get_title() for ax in figures["critical-n"].axes if ax.get_visible()
    ] == [f"activation = {name}" for name in ("gelu", "none", "relu")]


def test_the_page_has_contents_and_a_dark_mode(folder):
    text = (folder / "report.html").read_text()
    contents = re.search(r"<nav.*?</nav>", text, re.S)[0]
    headings = re.findall(r'<h2 id="(.*?)">(.*?)</h2>', text)
    assert len(headings) >= 8
    assert re.findall(r'<a href="#(.*?)">(.*?)</a>', contents) == headings
    assert "prefers-color-scheme: dark" in text
    assert re.search(r"figure svg \{[^}]*background: #fff", text)


def test_the_command_tells_how_far_it_is(folder):
    said = (folder / "progress.txt").read_text().splitlines()
    assert "drawing accuracy" in said
    assert any(line.startswith("fitting: 3 of 6 ") for line in said)


PLAIN = re.compile("[A-Za-z0-9_-][A-Za-z0-9._-]*")
MARKUP = "</title></style>--><script>x</script>\"'><img src=x onerror=x>{{ 7 * 191 }}"


def own_table(folder, along, other, accuracy="hits"):
    """The folder of a foreign simulator whose columns have these names."""
    rows = []
    for value, cell, seed in itertools.product((1.0, 2.0, 4.0), (1, 2), range(3)):
        row = {"point_id": f"p{value}-{cell}", "seed": seed, "step": 1, "steps": 1}
        row |= {"status": "ok", "seconds": 0.1, "code_version": 1, "x64": False}
        row |= {"precision": MARKUP, "jax_version": "1", "device_kind": MARKUP}
        row |= {along: value, other: cell, accuracy: value / 4 / cell}
        rows.append(row)
    facts = {"simulator": "a:b", "fields": [along, other], "axes": [along, other]}
    facts |= {"accuracy": accuracy, "searched": along, "fixed": {}}
    made = pa.Table.from_pylist(rows)
    made = made.replace_schema_metadata({b"jaxrecall": json.dumps(facts).encode()})
    (folder / "parts").mkdir(parents=True)
    pq.write_table(made, folder / "parts" / "x.parquet")
    manifest = {"grid": {"name": MARKUP}, "commit": MARKUP, "versions": {MARKUP: 1}}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_text_of_a_folder_is_no_markup_and_no_path(tmp_path):
    folder = tmp_path / "home" / "results"
    own_table(folder, f"../../../../x{MARKUP}", "a/b")
    (folder / "report-figures" / "critical-").mkdir(parents=True)
    before = {*tmp_path.rglob("*")}
    assert cli.main([str(folder), "--format", "svg"]) == 0
    made = {*tmp_path.rglob("*")} - before
    figures = folder / "report-figures"
    assert {path.parent for path in made} == {folder, figures}
    assert all(PLAIN.fullmatch(path.name) for path in made)
    for path in figures.glob("*.svg"):
        svg = path.read_text()
        assert "<!--" not in svg
        assert "onerror" not in svg
    page = (folder / "report.html").read_text()
    found = Tags(page)
    assert found.open == []
    assert not {"script", "img"} & set(found.tags)
    assert found.tags.count("title") == 1
    assert "onerror" not in re.sub(r"(?s)&[^<]*", "", page)
    assert "1337" not in page
    assert all(PLAIN.fullmatch(name) for name in found.ids)
    assert len(found.ids) == len(set(found.ids))


def test_names_of_figures_are_plain_and_occur_once(monkeypatch):
    words = [["phase", "m * d", "N"], ["phase", "m*d", "n"], ["phase", "mxd-N"]]
    charts = [(each, "", None) for each in words]
    monkeypatch.setattr(report, "_charts", lambda *given: iter(charts))
    names = [name for name, _, _ in figures(None, None, None, None)]
    assert names == ["phase-mxd-N", "phase-mxd-n-2", "phase-mxd-N-2-2"]


ODD = [
    "",
    ".",
    "..",
    "/",
    "../x",
    "x\0",
    "x\n",
    "é",
    "è",
    "a" * 300,
    "a" * 301,
    "\ud800",
]


def test_any_text_has_a_plain_name_of_its_own():
    names = [*map(plain_name, ODD)]
    assert all(PLAIN.fullmatch(name) and len(name) < 80 for name in names)
    assert len(set(names)) == len(ODD)
    assert plain_name("embedding.rho_2") == "embedding.rho_2"


def picture(name):
    return Picture(name, "", "", "30", "<svg></svg>", {f"{name}.png": b"new"})


@pytest.fixture
def reported(tmp_path):
    """A page that lists figures, and its folder, which contains others, too."""
    listed = "".join(
        f'<span class="file">{name}</span>'
        for name in (
            "t&amp;t-figures/accuracy.png, .pdf",
            "t&amp;t-figures/../mine.png",
            "t&amp;t-figures/../t&amp;t-figures/mine.png",
            f"{tmp_path}/mine.png",
            "other-figures/mine.png",
            "t&amp;t-figures/mine.txt",
        )
    )
    start = '<!DOCTYPE html>\n<html lang="en"><head><!-- jaxrecall: {"rows": 1} -->'
    page, figures = tmp_path / "t&t.html", tmp_path / "t&t-figures"
    page.write_text(start + listed)
    figures.mkdir()
    for name in ("accuracy.png", "accuracy.pdf", "mine.png", "mine.txt"):
        (figures / name).write_text("old")
    (tmp_path / "mine.png").write_text("old")
    return page, figures


def content(folder):
    files = [path for path in folder.iterdir() if path.is_file()]
    return {path.name: path.read_text(errors="replace") for path in files}


def test_a_report_replaces_the_figures_that_its_page_lists_and_no_others(reported):
    page, figures = reported
    _replace(page, "new", figures, [picture("accuracy"), picture("phase")])
    new = {"accuracy.png": "new", "phase.png": "new"}
    assert content(figures) == {**new, "mine.png": "old", "mine.txt": "old"}
    assert content(page.parent) == {"mine.png": "old", "t&t.html": "new"}


def test_a_figure_of_the_user_is_not_replaced(reported):
    page, figures = reported
    before = content(figures)
    with pytest.raises(
        UsageError, match=r"^--out: .*mine\.png is not a figure that t&t"
    ):
        _replace(page, "new", figures, [picture("accuracy"), picture("mine")])
    assert content(figures) == before
    assert page.read_text() != "new"


def test_a_report_writes_through_no_link(reported):
    page, figures = reported
    for name in ("accuracy.png", "accuracy.pdf"):
        (figures / name).unlink()
        (figures / name).symlink_to(page.parent / "mine.png")
    _replace(page, "new", figures, [picture("accuracy")])
    assert not (figures / "accuracy.png").is_symlink()
    assert not (figures / "accuracy.pdf").is_symlink()
    assert (page.parent / "mine.png").read_text() == "old"


@pytest.mark.parametrize("kind", ["page", "text", "link to a page", "link to a folder"])
def test_a_place_that_is_not_a_report_is_refused(kind, reported, tmp_path, capsys):
    table(GRID, law).to_parquet(tmp_path / "t.parquet")
    earlier, figures = reported
    page = tmp_path / "thesis.html"
    if kind == "link to a folder":
        (tmp_path / "thesis-figures").symlink_to(figures)
    elif kind == "link to a page":
        page.symlink_to(earlier)
    else:
        page.write_text("<!DOCTYPE html><html></html>" if kind == "page" else "mine")
    before = content(figures), content(tmp_path)
    assert cli.main([str(tmp_path / "t.parquet"), "--out", str(page)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    if kind == "link to a folder":
        assert f"{tmp_path / 'thesis-figures'}: is a link to {figures}" in told
    else:
        assert told.startswith(f"--out: {page} is not a page that jaxrecall wrote")
    assert (content(figures), content(tmp_path)) == before


REFUSED = {
    "no such axis": (
        ["--x", "foo"],
        "x: got 'foo', but no column foo; allowed: N, V, d, L, m and arithmetic",
    ),
    "it does not vary": (
        ["--lines", "V"],
        "lines: got 'V'; allowed: an axis that varies, of d, L",
    ),
    "twice": (["--x", "d", "--panels", "d"], "x, lines, panels: d more than once"),
    "unknown in a phase": (
        ["--phase", "m * width", "N"],
        (
            "phase: got 'm * width', but no column width; allowed: N, V, d, L, m and"
            " arithmetic"
        ),
    ),
    "unknown along x": (
        ["--x", "m * width"],
        (
            "x: got 'm * width', but no column width; allowed: N, V, d, L, m and"
            " arithmetic, as in 'm * d'"
        ),
    ),
    "size": (
        ["--size", "3"],
        "size: got '3'; allowed: column, text, or inches as in 3.4x2.6, each 1.5 to 20",
    ),
    "too large": (["--size", "900x2"], "size: got '900x2'"),
    "style": (
        ["--style", "no.mplstyle"],
        (
            "style: got 'no.mplstyle'; no such file, nor a style of matplotlib;"
            " allowed: a .mplstyle file"
        ),
    ),
    "no expression": (["--phase", "m *", "N"], "phase: 'm *': is no expression"),
    "no number": (
        ["--phase", "d / m", "N"],
        "phase: 'd / m': division by zero, at d=32, m=0",
    ),
    "same axis": (
        ["--phase", "d", "d"],
        "phase: x and y are both 'd'; give two different axes",
    ),
    "theta": (
        ["--theta", "1.5"],
        "theta: got 1.5; allowed: fractions between 0 and 1, up to 1000 of them",
    ),
    "a folder for a page": (["--out", "."], "--out: . is a folder; give a file"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_use_that_makes_no_sense_is_refused_in_a_line(case, tmp_path, capsys):
    table(GRID, law).to_parquet(tmp_path / "t.parquet")
    flags, said = REFUSED[case]
    assert cli.main([str(tmp_path / "t.parquet"), *flags]) == 2
    told = capsys.readouterr()
    assert told.err.startswith(said)
    assert told.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.parquet"]


@pytest.mark.parametrize("make", ["missing", "empty", "column", "text"])
def test_a_table_that_cannot_be_fitted_is_refused_in_a_line(make, tmp_path, capsys):
    path = tmp_path / "t.parquet"
    if make == "empty":
        table().iloc[:0].to_parquet(path)
    if make == "column":
        table().drop(columns="n_test").to_parquet(path)
    if make == "text":
        path.write_text("no parquet")
    assert cli.main([str(path)]) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    assert "Traceback" not in told.err
    assert not (tmp_path / "t-report.html").exists()


def blocks(page):
    return re.findall(r'<h2 id="(.*?)"', page)


def test_a_page_asks_answers_and_says_where_it_comes_from_in_this_order(folder):
    found = blocks((folder / "report.html").read_text())
    sections = [name for name in found if name.startswith("section-")]
    order = ("question", "thresholds", "law", "censored", "provenance")
    assert sections == [f"section-{name}" for name in order]
    figures = found[1:-4]
    assert figures[0] == "critical-n"
    assert not {*figures} & {*sections}


def test_a_report_of_another_column_and_another_summary(tmp_path):
    frame = table({"d": [32, 64]}, law)
    frame["hits"] = frame["n_correct"] / frame["n_test"]
    frame["n_correct"] = 0
    frame.to_parquet(tmp_path / "t.parquet")
    asked = ["--of", "hits", "--summary", "above 0.7", "--format", "svg"]
    assert cli.main([str(tmp_path / "t.parquet"), *asked]) == 0
    page = (tmp_path / "t-report.html").read_text()
    assert "At which N does the share of seeds with hits from 0.7 cross 0.5?" in page
    found = fit(frame, [0.5], of="hits", summary="above 0.7")
    for star in found.thresholds["critical"]:
        assert rounded(star) in page
    options = {**vars(fit_cli.parser())["_option_string_actions"]}
    mine = vars(cli.parser())["_option_string_actions"]
    for name in ("--of", "--summary"):
        assert mine[name].help == options[name].help


@pytest.mark.slow
def test_theory_is_a_column_only_for_rows_of_ours_and_its_warnings_are_told(
    tmp_path, capsys
):
    small = table({"d": [64, 128]}, law, LEVELS[::3], seeds=6)
    for frame, is_ours in ((small, False), (ours(small).assign(kappa=2.0), True)):
        frame.to_parquet(tmp_path / "t.parquet")
        assert cli.main([str(tmp_path / "t.parquet"), "--format", "svg"]) == 0
        page = (tmp_path / "t-report.html").read_text()
        assert ("<th>theory</th>" in page) == is_ours
        told = "theory: kappa: got 2; theory holds from"
        assert (f"note: {told}" in capsys.readouterr().out) == is_ours
        assert (f"<li>{told}" in page) == is_ours


def test_what_is_censored_is_counted():
    frame = uncovered(
        table({"d": [16, 32, 64, 128]}, lambda c: {16: 1e7, 128: 5}.get(c["d"], 1000))
    )
    runs = Runs.of(frame, roles_of(frame), "N")
    found = report.censored(runs, runs.fitted([0.5]))
    assert found.rows == [
        ["0.5", "crosses theta", 2],
        ["0.5", "theta not reached at the largest level", 1],
        ["0.5", "theta crossed below the smallest level", 1],
    ]


def test_a_law_is_drawn_no_further_than_the_cells_that_cross():
    frame = uncovered(
        table(
            {"d": [16, 32, 64, 128, 256]},
            lambda c: 1e7 if c["d"] < 64 else law(c),
        )
    )
    (ax,) = drawn(frame, "critical")["critical-n"].axes
    (line,) = [line for line in ax.lines if line.get_linestyle() == "-"]
    assert min(line.get_xdata()) == 64
