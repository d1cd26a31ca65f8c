"""The report: what it draws is what the table holds, its tables are those of the fit,
and bad input is refused in a line.
"""

import importlib
import itertools
import json
import re
import shlex
import shutil
import warnings
from functools import partial
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import python
from panels import bars, close, legend, lines, marks, titles  # noqa: F401
from test_fit import LEVELS, law, ours, table, uncovered
from tolerances import assert_close

import jaxrecall
from jaxrecall import plot, theory
from jaxrecall.analysis.figures.style import look, rounded
from jaxrecall.analysis.figures.table_of_runs import Runs
from jaxrecall.analysis.figures.theory_lines import Theory
from jaxrecall.analysis.fit.measure import LAST, at_steps, choose_along
from jaxrecall.analysis.fit.roles import roles_of
from jaxrecall.analysis.report import figures
from jaxrecall.fit import fit
from jaxrecall.sweep.__main__ import main as sweep
from jaxrecall.sweep.files import plain_name
from jaxrecall.sweep.store import Store

cli = importlib.import_module("jaxrecall.report")
fit_cli = importlib.import_module("jaxrecall.fit")


def drawn(frame, *names, options=""):
    """The figures of a report whose names begin so, or all of them, by name; nothing
    saved.
    """
    asked = cli.parser().parse_args(["t.parquet", *shlex.split(options)])
    last = at_steps(frame, LAST)
    roles = roles_of(last)
    runs = Runs.of(last, roles, choose_along(last, roles, None))
    with look():
        made = {
            name: chart.figure()
            for name, _, chart in figures(runs, runs.fitted([0.5]), asked, Theory(runs))
            if not names or name.startswith(names)
        }
        for figure in made.values() if options else ():
            figure.draw_without_rendering()
    return made


REPORT = ["--theta", "0.3", "0.9"]
SMALL_GRID = """
schema: 1
name: small
base: {V: 17, L: 2, n_test: 500}
seeds: {count: 6}
blocks: [{axes: {d: [10, 13, 16], N: [8, 40, 200, 1000, 8000]}}]
"""


@pytest.fixture(scope="session")
def swept(tmp_path_factory):
    """A results folder; its runs fit the program that other tests compile."""
    grid = tmp_path_factory.mktemp("grid") / "grid.yaml"
    grid.write_text(SMALL_GRID)
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
    REFERENCES = ("src", "href", "xlink:href", "data", "action")

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
            self.references += [value] * (name in self.REFERENCES)
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
    assert not {"script", "link", "img", "iframe", "object"} & {*page.tags}
    inside = {name for name in page.references if name[0] == "#"}
    outside = {*page.references} - inside
    assert all(name.startswith("data:image/png") for name in outside)
    assert "@import" not in text
    assert len(page.ids) == len({*page.ids})
    assert {name[1:] for name in inside} <= {*page.ids}
    assert len(text) < 2e6


def test_every_picture_is_on_the_page_and_in_both_files(folder):
    page = Tags((folder / "report.html").read_text())
    names = {"accuracy", "critical-n", "critical-n-0.9", "phase", "collapse"}
    assert names <= {*page.ids}
    assert page.tags.count("svg") == len(names)
    starts = {".pdf": b"%PDF", ".png": b"\x89PNG"}
    files = [*(folder / "report-figures").iterdir()]
    made = {(path.stem, path.suffix) for path in files}
    assert made == {*itertools.product(names, starts)}
    for path in files:
        content = path.read_bytes()
        assert content.startswith(starts[path.suffix])
        assert len(content) < 4e5


FACTS = """<th>N*</th>
cross 0.3, 0.9? The answer, N*, comes from 3 configurations, 90 rows
ok (90 rows)
6, from 0 to 5
jaxlib
python -m jaxrecall.report
--grid
name: small
prefers-color-scheme: dark"""


def test_the_page_has_the_tables_and_their_origin_and_the_command_tells_its_progress(
    folder,
):
    text = (folder / "report.html").read_text()
    found = fit(jaxrecall.load(folder), [0.3, 0.9])
    stars = [rounded(value) for value in found.thresholds["N_star"].dropna()]
    laws = [f" d {value:.3g} [" for value in found.exponents["exponent"].dropna()]
    for fact in (*stars, *laws, *FACTS.splitlines()):
        assert fact in text
    assert "failed runs" not in text
    assert re.search(r"figure svg \{[^}]*background: #fff", text)
    told = (folder / "told.txt").read_text()
    assert "critical-n-0.9: Critical N at accuracy 0.9" in told
    progress = (folder / "progress.txt").read_text()
    assert re.search("^drawing accuracy$", progress, re.M)
    assert re.search("^fitting: 3 of 6 ", progress, re.M)


def test_a_page_asks_answers_and_says_where_it_comes_from_in_this_order(folder):
    text = (folder / "report.html").read_text()
    contents = re.search(r"<nav.*?</nav>", text, re.S)[0]
    headings = re.findall(r'<h2 id="(.*?)">(.*?)</h2>', text)
    assert re.findall(r'<a href="#(.*?)">(.*?)</a>', contents) == headings
    names = [name for name, _ in headings]
    order = ["question", "thresholds", "law", "provenance"]
    assert [name for name in names if "section-" in name] == [
        f"section-{name}" for name in order
    ]
    assert names[1] == "critical-n"
    assert not any("section-" in name for name in names[1:-3])


@pytest.mark.system  # a process of its own draws the report again
def test_the_same_rows_make_the_same_bytes(swept, folder, tmp_path):
    again = shutil.copytree(swept, tmp_path / "small")
    assert cli.main([str(again), *REPORT]) == 0

    def made(out):
        files = [out / "report.html", *(out / "report-figures").iterdir()]
        folder = str(out).encode()
        return {path.name: path.read_bytes().replace(folder, b"") for path in files}

    assert "accuracy.pdf" in made(again)
    assert made(again) == made(folder)


def test_a_results_folder_is_fitted_in_place_and_stays_one(swept, tmp_path, capsys):
    out = shutil.copytree(swept, tmp_path / "small")
    thresholds = []
    for _ in range(2):
        words = ["--theta", "0.3", "0.4"]
        assert fit_cli.main([str(out), *words]) == 0
        told = capsys.readouterr().out
        assert "theta = 0.4:" in told
        assert "theta = 0.3: 3 configurations: 1 undecided, 2 crosses" in told
        thresholds.append(pd.read_parquet(out / "thresholds.parquet"))
    assert thresholds[0].groupby(["d", "theta"])["record"].sum().tolist() == [1] * 6
    pd.testing.assert_frame_equal(*thresholds)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(jaxrecall.load(out)) == 3 * 5 * 6


@pytest.mark.parametrize("is_bent", [False, True])
def test_points_are_thresholds_and_lines_the_law_unless_the_fit_rejects_it(is_bent):
    def star(c):
        return law(c) * (4 if is_bent and c["d"] in (32, 256) else 1)

    frame = table({"d": [32, 64, 128, 256]}, star)
    ax = plot.critical_n(frame)
    thresholds, laws, _ = fit(frame, [0.5])
    sure = thresholds.query("0 < lo and hi < inf")
    assert {*sure[["lo", "hi"]].itertuples(index=False, name=None)} <= bars(ax)
    # a cell that does not surely cross has a second, open mark
    assert {x for x, _ in marks(ax, "o")} == {32, 64, 128, 256}
    assert len(lines(ax, "-")) == (not is_bent)
    for line in lines(ax, "-"):
        slope = np.diff(np.log(line[:, 1])) / np.log(2)
        assert_close(slope, np.full(3, laws["exponent"].iloc[0]))


def test_a_law_is_drawn_no_further_than_the_cells_that_cross():
    axes = {"d": [16, 32, 64, 128, 256]}
    frame = table(axes, lambda c: 1e7 if c["d"] < 64 else law(c))
    (line,) = lines(plot.critical_n(frame), "-")
    assert line[:, 0].min() == 64


@pytest.mark.parametrize("draw", [plot.critical_n, partial(plot.phase, x="d")])
def test_cells_without_a_threshold_are_marked_where_they_were_tried(draw):
    stars = {16: 1000, 32: 1e7, 64: 1000, 128: 5}
    ax = draw(
        table(
            {"d": [*stars]},
            lambda c: stars[c["d"]],
            ceiling=lambda c: 0.3 if c["d"] == 16 else 1.0,
        )
    )
    names = {"levels off before", "not reached, crosses above", "crosses below"}
    assert names <= {*legend(ax)}
    places = [[16, LEVELS[-1]]], [[32, LEVELS[-1]]], [[128, LEVELS[0]]]
    assert tuple(marks(ax, marker) for marker in "X^v") == places
    low, high = ax.get_ylim()
    assert low < LEVELS[0] < LEVELS[-1] < high


@pytest.mark.slow
def test_a_map_has_the_thresholds_and_theory_along_both_axes():
    frame = ours(table({"d": [32, 64]}, law, LEVELS[::2]))
    stars = fit(frame, [0.5]).thresholds.query("record")
    for axes in (["d", "N"], ["N", "d"]):
        ax = plot.phase(frame, *axes)
        names = [name.replace("N", "N_star") for name in axes]
        expected = np.array(sorted(stars[names].to_numpy(float).tolist()))
        assert_close(np.array(sorted(marks(ax, "o"))), expected)
        assert "theory" in legend(ax)


def test_theory_is_drawn_where_it_holds_and_says_what_it_assumes():
    foreign = table({"d": [64]}, law, LEVELS[::2])
    with pytest.warns(UserWarning, match="theory is not drawn"):
        assert "theory" not in legend(plot.accuracy(foreign, theory=True))
    models = [
        theory.Model(V=64, d=64, L=8, embedding=f"equicorrelated(rho={rho})")
        for rho in (0.1, 0.3)
    ]
    each = [
        ours(foreign).assign(embedding=str(model.embedding), **{"embedding.rho": rho})
        for model, rho in zip(models, (0.1, 0.3), strict=True)
    ]
    frame = pd.concat(each, ignore_index=True)
    ax = plot.accuracy(frame, lines="embedding.rho", theory=True)
    assert {"ρ = 0.1", "ρ = 0.3", "theory"} <= {*legend(ax)}
    for model, line in zip(models, lines(ax, "--"), strict=True):
        for N, p in line[::8]:
            assert_close(p, theory.accuracy(model, N), 0.01)
    other = uncovered(frame[frame["embedding.rho"] == 0.1])
    assert "theory" not in legend(plot.accuracy(other, theory=True))


def test_a_report_of_a_search_along_another_axis_shows_its_crossings(tmp_path):
    """N follows V; what a file knows of its search comes with it."""
    runs = table({"d": [32, 64, 128]}, law)
    frame = runs.rename(columns={"N": "V", "V": "N"}).assign(N=8 * runs["N"])
    frame["n_correct"] = frame["n_test"] - frame["n_correct"]  # it falls with V
    facts = {"axes": ["d", "V"], "searched": "V"}
    meta = {b"jaxrecall": json.dumps(facts).encode()}
    arrow = pa.Table.from_pandas(frame).replace_schema_metadata(meta)
    pq.write_table(arrow, tmp_path / "t.parquet")
    assert cli.main([str(tmp_path / "t.parquet"), "--format", "svg"]) == 0
    names = {path.stem for path in (tmp_path / "t-report-figures").iterdir()}
    assert names == {"accuracy", "critical-v", "collapse"}
    page = (tmp_path / "t-report.html").read_text()
    assert "how critical V scales" in page
    assert "<th>V*</th>" in page
    assert "N*" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    stars = fit(runs, [0.5]).thresholds["N_star"]
    assert all(f"<td>{rounded(star)}" in page for star in stars)


@pytest.mark.slow
def test_a_report_takes_axes_of_its_figures():
    frame = table({"d": [32, 64], "m": [16, 64]}, lambda c: 125 * c["d"] / c["m"])
    each = [frame.assign(activation=name) for name in ("gelu", "relu")]
    both = uncovered(pd.concat(each, ignore_index=True))
    made = drawn(both, options="--x m --lines d --panels activation")
    assert [*made] == ["critical-n", "accuracy", "phase", "collapse"]
    assert made["critical-n"].get_supxlabel().startswith("m: ")
    panels = ["activation = gelu", "activation = relu"]
    assert titles(made["critical-n"])[:2] == panels
    assert "d = 64" in legend(made["accuracy"])


PLAIN = re.compile("[A-Za-z0-9_-][A-Za-z0-9._-]*")
MARKUP = "</title></style>--><script>x</script>\"'><img src=x onerror=x>{{ 7 * 191 }}"


def own_table(folder, along, other):
    """The folder of a foreign simulator whose columns have these names."""
    runs = [*itertools.product((1.0, 2.0, 4.0), (1, 2), range(3))]
    rows = pd.DataFrame(runs, columns=[along, other, "seed"])
    rows["point_id"] = [f"p{value}-{cell}" for value, cell, _ in runs]
    rows["hits"] = rows[along] / 4 / rows[other]
    rows = rows.assign(step=1, steps=1, status="ok", seconds=0.1, code_version=1)
    rows = rows.assign(x64=False, jax_version="1", precision=MARKUP, device_kind=MARKUP)
    facts = {"simulator": "a:b", "fields": [along, other], "axes": [along, other]}
    facts |= {"accuracy": "hits", "searched": along, "fixed": {}}
    made = pa.Table.from_pandas(rows, preserve_index=False)
    made = made.replace_schema_metadata({b"jaxrecall": json.dumps(facts).encode()})
    (folder / "parts").mkdir(parents=True)
    pq.write_table(made, folder / "parts" / "x.parquet")
    manifest = {"grid": {"name": MARKUP}, "commit": MARKUP, "versions": {MARKUP: 1}}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_page_counts_failed_runs_and_text_of_its_folder_is_no_markup_and_no_path(
    tmp_path,
):
    folder = tmp_path / "home" / "results"
    own_table(folder, f"../../../../x{MARKUP}", "a/b")
    (folder / "report-figures" / "critical-").mkdir(parents=True)
    failure = {"runs": [["0" * 16, 7]], "error": f"Boom\n{MARKUP}", "host": MARKUP}
    Store(folder).note("failures/x", failure | {"bucket": "16x8", "repeat": MARKUP})
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
    row = "<td>failed runs</td><td>1, which the command status lists</td>"
    assert row in re.sub(r">\s+<", "><", page)
    tags = Tags(page)
    assert tags.open == []
    assert not {"script", "img"} & {*tags.tags}
    assert tags.tags.count("title") == 1
    assert "onerror" not in re.sub(r"(?s)&[^<]*", "", page)
    assert "1337" not in page
    assert all(PLAIN.fullmatch(name) for name in tags.ids)
    assert len(tags.ids) == len({*tags.ids})


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
    assert len({*names}) == len(ODD)
    assert plain_name("embedding.rho_2") == "embedding.rho_2"


LISTED = """t&amp;t-figures/accuracy.png, .svg
t&amp;t-figures/../mine.png
t&amp;t-figures/../t&amp;t-figures/mine.png
{0}/mine.png
other-figures/mine.png
t&amp;t-figures/mine.txt"""


@pytest.fixture
def reported(tmp_path):
    """A page that lists figures, its folder, which contains others, too, and a call
    that reports there.
    """
    names = LISTED.format(tmp_path).splitlines()
    listed = [f'<span class="file">{name}</span>' for name in names]
    start = '<!DOCTYPE html>\n<html lang="en"><head><!-- jaxrecall: {"rows": 1} -->'
    page, figures = tmp_path / "t&t.html", tmp_path / "t&t-figures"
    page.write_text(start + "".join(listed))
    figures.mkdir()
    for name in ("accuracy.png", "accuracy.svg", "mine.png", "mine.txt"):
        (figures / name).write_text("old")
    (tmp_path / "mine.png").write_text("old")
    rows = tmp_path / "rows" / "t.parquet"
    rows.parent.mkdir()
    stars = {16: 1e7, 128: 5}
    frame = table({"d": [16, 32, 64, 128]}, lambda c: stars.get(c["d"], 1000))
    uncovered(ours(frame)).to_parquet(rows)
    return page, figures, [str(rows), "--format", "svg", "--out"]


def content(folder):
    """What files contain, and "new" of those that a report wrote."""
    texts = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
    return {name: text if text == "old" else "new" for name, text in texts.items()}


def test_a_report_replaces_the_figures_that_its_page_lists_and_no_others(reported):
    page, figures, call = reported
    # it writes through no link
    (figures / "accuracy.svg").unlink()
    (figures / "accuracy.svg").symlink_to(page.parent / "mine.png")
    assert cli.main([*call, str(page)]) == 0
    drawn = ("accuracy", "critical-n", "phase", "collapse")
    new = {f"{name}.svg": "new" for name in drawn}
    assert content(figures) == new | {"mine.png": "old", "mine.txt": "old"}
    assert content(page.parent) == {"mine.png": "old", "t&t.html": "new"}
    assert not (figures / "accuracy.svg").is_symlink()
    told = page.read_text()
    assert "theory: no prediction: s: got 1.0; " in told
    assert re.search(": .*1 not reached", told)
    assert re.search(": .*1 above", told)


def test_a_figure_of_the_user_is_not_replaced(reported, capsys):
    page, figures, call = reported
    (figures / "phase.svg").write_text("old")
    assert cli.main([*call, str(page)]) == 2
    assert re.search(r"--out: .*phase\.svg is not a figure", capsys.readouterr().err)
    assert {*content(figures).values()} == {"old"}
    assert "<svg" not in page.read_text()


PLACES = {
    "page": "is not a page that jaxrecall wrote",
    "link to a page": "is not a page that jaxrecall wrote",
    "link to a folder": "is a link to",
}


@pytest.mark.parametrize("kind", PLACES)
def test_a_place_that_is_not_a_report_is_refused(kind, reported, capsys):
    earlier, figures, call = reported
    page = earlier.with_name("thesis.html")
    if kind == "link to a folder":
        page.with_name("thesis-figures").symlink_to(figures)
    elif kind == "link to a page":
        page.symlink_to(earlier)
    else:
        page.write_text("<!DOCTYPE html><html></html>")
    before = {path: path.read_bytes() for path in earlier.parent.glob("**/*.*g")}
    assert cli.main([*call, str(page)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert PLACES[kind] in told
    after = {path: path.read_bytes() for path in earlier.parent.glob("**/*.*g")}
    assert after == before


def test_a_report_of_another_column_and_another_summary(tmp_path):
    frame = table({"d": [32, 64]}, law)
    frame = frame.assign(hits=frame["n_correct"] / frame["n_test"], n_correct=0)
    frame.to_parquet(tmp_path / "t.parquet")
    asked = ["--of", "hits", "--summary", "above 0.7", "--format", "svg"]
    assert cli.main([str(tmp_path / "t.parquet"), *asked]) == 0
    page = (tmp_path / "t-report.html").read_text()
    assert "At which N does the fraction of seeds with hits from 0.7 cross 0.5?" in page
    found = fit(frame, [0.5], of="hits", summary="above 0.7")
    assert all(rounded(star) in page for star in found.thresholds["critical"])
    assert "<th>theory</th>" not in page


@pytest.mark.slow
def test_theory_is_a_column_for_rows_of_ours_and_its_warnings_are_told(
    tmp_path, capsys
):
    frame = ours(table({"d": [64, 128]}, law, LEVELS[::3], seeds=6)).assign(kappa=2.0)
    frame.to_parquet(tmp_path / "t.parquet")
    assert cli.main([str(tmp_path / "t.parquet"), "--format", "svg"]) == 0
    page = (tmp_path / "t-report.html").read_text()
    assert "<th>theory</th>" in page
    told = "theory: kappa: got 2; theory holds from"
    assert f"note: {told}" in capsys.readouterr().out
    assert f"<li>{told}" in page
