"""The report: what it draws is what the table holds, its sentences' numbers can be recomputed, and what is missing is said."""

import importlib
import itertools
import json
import re
import shutil
import warnings
from html.parser import HTMLParser
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import python
from jaxrecall.analysis.figures.maps import Pixels, pixels
from jaxrecall.analysis.figures.paper import look
from jaxrecall.analysis.figures.study import roles, study
from test_fit import LEVELS, law, table

import jaxrecall
from jaxrecall.analysis.figures import critical, curves, maps, noise, predict
from jaxrecall.analysis.figures.axis import Axis
from jaxrecall.analysis.figures.grammar import Chart, arranged, averaged, where
from jaxrecall.analysis.figures.style import NotDrawn, distinguishing, rounded
from jaxrecall.analysis.fit import cells, fit
from jaxrecall.analysis.fit.axes import along_of
from jaxrecall.analysis.fit.runs import LAST, at_steps
from jaxrecall.analysis.report import PICTURES, draw
from jaxrecall.errors import FitError, TheoryError
from jaxrecall.sweep.__main__ import main as sweep
from jaxrecall.sweep.store import Store

cli = importlib.import_module("jaxrecall.report")
fit_cli = importlib.import_module("jaxrecall.analysis.fit.__main__")
GRID = {"d": [32, 64, 128], "L": [8, 16]}


def studied(frame, thetas=(0.5,), **choices):
    last = at_steps(frame, LAST)
    families, _ = cells.families(last, along_of(last, None))
    return study(last, families, thetas, 0, lambda *_: None, frame), roles(families, **choices)


def drawn(frame, *kinds, thetas=(0.5,), render=False, **choices):
    """The pictures of these kinds, or of all, by name, and what was left out and why; nothing saved."""
    found, left_out = {}, {}
    about = studied(frame, thetas, **choices)
    for what in kinds or PICTURES:
        pictures = PICTURES[what]
        try:
            with look():
                for picture in pictures(*about):
                    if render:
                        picture.figure.draw_without_rendering()
                    found[picture.name] = picture
        except NotDrawn as why:
            left_out[what] = str(why)
    return found, left_out


def labels(picture):
    return [text.get_text() for legend in picture.figure.legends for text in legend.get_texts()]


REPORT = ["--theta", "0.3", "0.9", "--surrogate", "4", "--resamples", "100"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A results folder; its runs fit the program that other tests compile."""
    grid = tmp_path_factory.mktemp("grid") / "grid.yaml"
    base, axes = "{V: 17, L: 2, n_test: 500}", "{d: [10, 13, 16], N: [8, 40, 200, 1000, 8000]}"
    grid.write_text(f"schema: 1\nname: small\nbase: {base}\nseeds: {{count: 6}}\nblocks:\n  - axes: {axes}\n")
    out = tmp_path_factory.mktemp("small")
    assert sweep(["--grid", str(grid), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def folder(swept, tmp_path_factory):
    """The same with its report, made by the command in an interpreter of its own."""
    out = shutil.copytree(swept, tmp_path_factory.mktemp("report") / "small")
    call = f"import sys; from jaxrecall.report import main; code = main({[str(out), *REPORT]!r})"
    ran = python(f"{call}; assert 'jax' not in sys.modules; sys.exit(code)")
    assert ran.returncode == 0, ran.stderr
    (out / "told.txt").write_text(ran.stdout)
    return out


@pytest.fixture
def one_kind(monkeypatch):
    """Reports with one kind of pictures, where they are not the subject."""
    monkeypatch.setattr("jaxrecall.analysis.report.PICTURES", {"accuracy against N": PICTURES["accuracy against N"]})


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
            self.references += [value] * (name in ("src", "href", "xlink:href", "data", "action"))
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
    assert [reference for reference in page.references if not reference.startswith(("#", "data:image/png"))] == []
    assert "@import" not in text
    assert len(page.ids) == len(set(page.ids))
    assert {reference[1:] for reference in page.references if reference[0] == "#"} <= set(page.ids)
    assert len(text) < 2e6


def test_every_picture_is_on_the_page_and_in_both_files(folder):
    page = Tags((folder / "report.html").read_text())
    figures = folder / "report-figures"
    names = {path.stem for path in figures.iterdir()}
    assert {"accuracy", "critical-n", "critical-n-0.9", "phase", "noise-lines", "collapse"} <= names <= set(page.ids)
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
        assert f"{value:.3f}" in text
    assert "<th>exponent</th>" in text
    assert "<th>N*</th>" in text
    assert "Method: local logistic regression" in text
    for fact in ("90 (90 ok)", "6, from 0 to 5", "jaxlib", "No chunk has failed", "python -m jaxrecall.report", "--grid", "name: small"):
        assert fact in text
    assert "decoders of the initial gradient: the table has no accuracy of a decoder" in (folder / "told.txt").read_text()


@pytest.mark.system  # a process of its own draws the report again
def test_the_same_rows_make_the_same_bytes(swept, folder, tmp_path):
    again = shutil.copytree(swept, tmp_path / "small")
    assert cli.main([str(again), *REPORT]) == 0

    def made(out):
        files = [out / "report.html", *sorted((out / "report-figures").iterdir())]
        return {path.name: path.read_bytes().replace(str(out).encode(), b"") for path in files}

    assert "accuracy.pdf" in made(again)
    assert made(again) == made(folder)


def test_a_results_folder_is_fitted_in_place_and_stays_one(swept, tmp_path, capsys):
    thresholds = []
    for name in ("once", "again"):
        out = shutil.copytree(swept, tmp_path / name)
        capsys.readouterr()
        assert fit_cli.main([str(out), "--theta", "0.3", "0.4", "--resamples", "100"]) == 0
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


def test_failures_and_old_pictures(folder, tmp_path, one_kind):
    out = tmp_path / "copy"
    shutil.copytree(folder, out)
    Store(out).record_failure(
        "x", {"runs": [["0" * 16, 7]], "error": "Boom\nat line 3", "host": "box7", "bucket": "16x8", "repeat": "python -m again"}
    )
    figures = out / "report-figures"
    (figures / "decoders.pdf").write_text("of an earlier call")
    (figures / "mine.txt").write_text("of the user")
    assert cli.main([str(out), "--resamples", "100", "--surrogate", "0"]) == 0
    text = (out / "report.html").read_text()
    for said in ("Boom", "box7", "python -m again"):
        assert f"<td>{said}</td>" in text
    assert not (figures / "decoders.pdf").exists()
    assert not (figures / "critical-n-0.9.pdf").exists()
    assert (figures / "mine.txt").exists()


def test_the_sentence_on_critical_N_has_the_numbers_of_the_fit():
    frame = table(GRID, lambda c: law(c) * (c["L"] / 8) ** 0.2 * (1.3 if (c["d"], c["L"]) == (64, 16) else 1.0))
    caption = drawn(frame, "critical N")[0]["critical-n"].caption
    fitted = fit(frame, [0.5], 100)
    reported = fitted.exponents.query("record").set_index("axis")
    for axis, row in reported.iterrows():
        assert f"{axis}^{row['exponent']:.2f} [{row['lo']:.2f}, {row['hi']:.2f}]" in caption
    y = np.log(fitted.thresholds.query("record").set_index(["d", "L"])["N_star"])
    design = np.column_stack([np.ones(6), np.log(y.index.to_frame())])
    off = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    assert f"the cell farthest from the law is d = 64, L = 16, at {np.exp(off[64, 16]):.2f} times its law" in caption.replace("The", "the")


def test_the_sentence_on_agreement_has_numbers_of_all_cells_by_attention(monkeypatch):
    frame = table(GRID, lambda c: law(c) * (2 if c["L"] == 16 else 1))
    frame["attention_mass"] = np.where(frame["L"] == 16, 0.9, 0.99)
    monkeypatch.setattr(predict, "critical_N", lambda at, theta: law(at) * (1.1 if at["d"] == 64 else 1.5) if at["d"] > 32 else None)
    picture = drawn(frame, "predicted against observed critical N")[0]["agreement"]
    assert labels(picture)[:2] == ["attention locked (2)", "attention not locked (2)"]
    star = fit(frame, [0.5], 100).thresholds.query("record").set_index(["d", "L"])["N_star"]
    theirs = {d: law({"V": 64, "d": d}) * f for d, f in ((64, 1.1), (128, 1.5))}
    off = np.median([abs(np.log(theirs[d] / star[d, 8])) for d in (64, 128)])
    assert f"2 cells with attention locked: median |ln(predicted / observed)| {off:.3f}" in picture.caption
    assert f"the largest at d = 128, L = 8, predicted / observed = {theirs[128] / star[128, 8]:.2f}" in picture.caption
    assert "2 cells that cross have no prediction" in picture.caption


def test_attention_is_taken_at_the_crossing():
    frame = table({"d": [32, 64]}, law)
    frame["attention_mass"] = 0.9 + 0.1 * (np.log(frame["N"]) - np.log(LEVELS[0])) / np.log(LEVELS[-1] / LEVELS[0])
    about, _ = studied(frame)
    compared = critical.compare(about, 0.5, lambda at, theta: 1.0)
    expected = 0.9 + 0.1 * np.log(compared["N_star"] / LEVELS[0]) / np.log(LEVELS[-1] / LEVELS[0])
    np.testing.assert_allclose(compared["attention"], expected, atol=1e-9)
    assert compared["locked"].tolist() == (expected > 0.95).tolist()


def test_cells_without_a_threshold_are_marked_where_they_were_tried():
    frame = table(
        {"d": [16, 32, 64, 128]}, lambda c: {16: 1000, 32: 1e7, 64: 1000, 128: 5}[c["d"]], ceiling=lambda c: 0.3 if c["d"] == 16 else 1.0
    )
    pictures, _ = drawn(frame, "critical N", "phase diagram", "accuracy against N")
    for name in ("critical-n", "phase"):
        assert {"levels off before", "not reached, crosses above", "crosses below"} <= set(labels(pictures[name]))
        ax = pictures[name].figure.axes[0]
        marks = {line.get_marker(): line.get_xydata().tolist() for line in ax.lines if line.get_marker() in "X^v" and len(line.get_xdata())}
        assert marks == {"X": [[16, LEVELS[-1]]], "^": [[32, LEVELS[-1]]], "v": [[128, LEVELS[0]]]}
        low, high = ax.get_ylim()
        assert low < LEVELS[0] < LEVELS[-1] < high
    assert (
        "Accuracy 0.5: of 4 cells 1 cross (levels off before: 1; not reached, crosses above: 1; crosses below: 1)"
        in pictures["accuracy"].caption
    )


def test_what_was_not_tested_is_hatched_and_not_filled_in():
    frame = table(GRID, law)
    full = drawn(frame, "phase diagram")[0]["phase"]
    assert "not tested" not in labels(full)
    gap = frame[~((frame["d"] == 64) & (frame["L"] == 8) & frame["N"].isin(LEVELS[3:5]))]
    picture = drawn(gap, "phase diagram")[0]["phase"]
    assert "not tested" in labels(picture)
    ax = picture.figure.axes[0]
    assert ax.patch.get_hatch()
    levels = studied(gap)[0].levels
    x, y = (Axis.make(name, levels) for name in ("d", "N"))
    boxes = [(*x.data(np.array(box[:2])), *y.data(np.array(box[2:]))) for box, _ in pixels(x, y, levels[levels["L"] == 8])]
    for d in (32, 64, 128):
        for level, N in enumerate(LEVELS):
            inside = [1 for x0, x1, y0, y1 in boxes if x0 < d < x1 and y0 < N < y1]
            assert len(inside) == (0 if d == 64 and level in (3, 4) else 1), (d, N)
    assert len(ax.collections[0].get_paths()) == len(boxes)


def test_colours_are_mean_accuracies_and_the_contour_is_of_thresholds():
    frame = table(GRID, law)
    about, _ = studied(frame)
    picture = drawn(frame, "phase diagram")[0]["phase"]
    shown = picture.figure.axes[0].collections[0].get_array()
    means = frame[frame["L"] == 8].assign(p=lambda f: f["n_correct"] / f["n_test"]).groupby(["d", "N"])["p"].mean()
    np.testing.assert_allclose(sorted(shown), sorted(means), atol=1e-12)
    reach = (frame.assign(p=lambda f: f["n_correct"] / f["n_test"]).groupby(["d", "L", "N"])["p"].mean() >= 0.5).sum()
    assert f"{reach} of {6 * len(LEVELS)} tested points reach accuracy 0.5" in picture.caption
    dots = next(line for line in picture.figure.axes[0].lines if line.get_marker() == "o").get_ydata()
    np.testing.assert_allclose(dots, about.thresholds(0.5).query("L == 8")["N_star"])


def test_a_line_breaks_where_there_is_no_crossing_and_at_no_mlp(monkeypatch):
    frame = table({"m": [0, 16, 64, 256]}, lambda c: 300 + c["m"])
    monkeypatch.setattr(predict, "critical_N", lambda at, theta: np.inf if at["m"] < 40 else 1000.0 + at["m"])
    pictures, _ = drawn(frame, "critical N", "phase diagram", phases=[("m", "N"), ("m * d", "N")])
    for name in ("critical-n", "phase", "phase-mxd-N"):
        ax = pictures[name].figure.axes[0]
        x, y = next(line.get_data() for line in ax.lines if line.is_dashed())
        known = np.isfinite(y)
        factor = 32 if name == "phase-mxd-N" else 1
        assert min(x[known]) >= 40 * factor
        assert (max(x[known]), y[known][-1]) == (pytest.approx(256 * factor), pytest.approx(1256))
    fitted = next(line for line in pictures["phase"].figure.axes[0].lines if line.get_linestyle() == "-" and line.get_marker() == "None")
    assert np.isnan(fitted.get_ydata()).tolist() == [True, False, False, False]
    names = table({"embedding": ["gaussian", "sphere"]}, lambda c: 500.0)
    assert not any(line.is_dashed() for line in drawn(names, "phase diagram")[0]["phase"].figure.axes[0].lines)


def simple_theory(monkeypatch):
    """A formula in the place of theory, which takes seconds where there are many cells."""
    monkeypatch.setattr(predict, "accuracy", lambda at, N: N / (N + law(at)))
    monkeypatch.setattr(predict, "critical_N", lambda at, theta: law(at) * theta / (1 - theta))


def test_a_phase_diagram_over_any_two_axes(monkeypatch):
    simple_theory(monkeypatch)
    frame = table({"d": [32, 64], "m": [16, 64], "V": [64, 128]}, lambda c: law(c) * 50 / c["m"])
    pictures, _ = drawn(frame, "phase diagram", phases=[("m * d", "N"), ("d", "V")])
    assert {"phase-mxd-N", "phase-d-V"} <= set(pictures)
    about, _ = studied(frame)
    over = maps.over(about, "m * d", "N", [Pixels(about.levels)])
    assert over.x.values == (512, 1024, 2048, 4096)
    assert over.panels == ["V"]
    others = drawn(frame, "phase diagram", phases=[("N / d", "N"), ("N", "d"), ("N / d", "V")])[0]
    assert {"phase-N-by-d-N", "phase-N-d", "phase-N-by-d-V"} <= set(others)
    assert [0.5] in [list(shown.levels) for shown in others["phase-N-d"].figure.axes[0].collections if hasattr(shown, "levels")]


def test_a_pixel_never_holds_two_cells(monkeypatch):
    simple_theory(monkeypatch)
    same = table({"d": [32, 64], "m": [0, 32, 64]}, law)  # m * d = 2048 twice, 0 twice
    about, _ = studied(same)
    over = maps.over(about, "m * d", "N", [Pixels(about.levels)])
    assert over.panels == ["d"]
    boxes = [[corners for corners, _ in pixels(over.x, over.y, where(about.levels, values))] for values in over.parts]
    assert sum(map(len, boxes)) == len(about.levels)
    assert all(len(set(corners)) == len(corners) for corners in boxes)
    caption = drawn(same, "phase diagram", phases=[("m * d", "N")])[0]["phase-mxd-N"].caption
    assert "tested points reach accuracy" in caption


def test_the_leading_noise_and_one_that_never_leads():
    frame = table({"d": [32, 64]}, law)
    frame["noise_leakage"], frame["noise_mlp"], frame["noise_gradient"] = 0.1, 0.05, 0.01
    frame["noise_bias"] = 100.0 / frame["N"]
    pictures, _ = drawn(frame, "dominating noise")
    bias = sum(100.0 / N > 0.1 for N in LEVELS) * 2
    led = f"is led by trigger leakage at {18 - bias}, mean bias at {bias}; never by MLP noise or gradient noise"
    assert f"measured noise (the largest part, medians over seeds) {led}" in pictures["noise"].caption
    assert labels(pictures["noise"]) == ["trigger leakage", "mean bias"]
    frame = frame.drop(columns="noise_bias")
    pictures, _ = drawn(frame.drop(columns=[n for n in frame if n.startswith("noise")]), "dominating noise")
    assert "predicted noise is led by trigger leakage at 18;" in pictures["noise-lines"].caption
    assert "noise" not in pictures  # a map of one colour shows nothing
    about, _ = studied(frame)
    at, N = about.cells.loc[about.levels["cell"][0]], float(about.levels["N"][0])
    assert noise.predicted_noise(about).loc[0, "leakage"] == predict.score_noise(at, N)["leakage"]


def test_decoders_stand_beside_the_three_steps():
    frame = table({"d": [32, 64]}, law)
    frame["accuracy"] = frame["n_correct"] / frame["n_test"]
    frame["matched_accuracy"], frame["assignment_accuracy"] = frame["accuracy"] * 0.5, 1.0
    pictures, left_out = drawn(frame, "decoders of the initial gradient")
    assert "decoders of the initial gradient" not in left_out
    gain, said = frame.groupby(["d", "N"])["accuracy"].mean(), pictures["decoders"].caption
    assert labels(pictures["decoders"])[:3] == ["three steps, test accuracy", "matched filter", "assignment"]
    assert f"assignment {(1 - gain).mean():+.2f} in the mean of {len(gain)}, at the farthest {(1 - gain).max():+.2f}" in said
    assert f"matched filter {(-gain / 2).mean():+.2f} in the mean of {len(gain)}, at the farthest {(-gain / 2).min():+.2f}" in said


def test_neighbouring_levels_of_a_search_are_drawn_as_one():
    frame = table({"d": [32, 64]}, law)
    frame["N"] = (frame["N"] * 2 ** (frame["seed"] / 40)).round().astype(int)
    about, _ = studied(frame)
    assert len(about.levels) == 2 * len(LEVELS)
    assert (about.levels["n_seeds"] == 8).all()
    pictures, _ = drawn(frame, "accuracy against N")
    assert "of 2 cells 2 cross" in pictures["accuracy"].caption
    few = frame[(frame["seed"] == 0) | (frame["N"] > 500)]
    assert "few seeds" in labels(drawn(few, "accuracy against N")[0]["accuracy"])


# widths are close together, as theory is asked at every whole number between them, 17 at the most
ODD = {
    "nothing varies": table(),
    "one level": table({"d": [32, 64]}, law, levels=(1000,)),
    "one seed": table(GRID, law, seeds=1),
    "one run": table(levels=(64,), seeds=1),
    "none right": table(GRID, lambda c: 1e12),
    "all right": table(GRID, lambda c: 1e-9),
    "names": table({"embedding": ["gaussian", "sphere"], "d": [32, 36]}, law),
    "a switch": table({"trigger_in_value": [True, False]}),
    "own column": table({"my axis": [-1.5, 0.0, 2.0], "d": [32, 36]}, law),
    "m = 0 too": table({"m": [0, 16, 20]}, lambda c: 1000 + c["m"]),
    "ragged": pd.concat([table({"V": [48], "d": [64, 68]}, law), table({"d": [64, 68], "L": [8, 64]}, law)], ignore_index=True),
    "many": table({"d": [32, 34, 36, 38, 40], "V": [32, 33, 34, 35]}, law, LEVELS[::3], seeds=2),
}


TWO_THETAS = ("nothing varies", "one level", "a switch")
MANY_CELLS = ("one seed", "none right", "all right", "ragged", "many")


@pytest.mark.parametrize("case", ODD)
def test_any_table_that_can_be_fitted_gives_a_report(case, monkeypatch):
    if case in MANY_CELLS:
        simple_theory(monkeypatch)
    pictures, left_out = drawn(ODD[case], thetas=(0.5, 0.9) if case in TWO_THETAS else (0.5,), render=True)
    assert "accuracy" in pictures
    assert all(pictures[name].caption[-1:] in (".", "") for name in pictures)
    if case == "nothing varies":
        assert left_out["critical N"] == left_out["phase diagram"] == "no axis but N varies"
    if case == "none right":
        assert left_out["data collapse"] == "fewer than two cells cross accuracy 0.5"
    if case == "own column":
        assert "phase-myaxis-N" in drawn(ODD[case], "phase diagram", phases=[("my axis", "N")])[0]


def test_rows_without_a_number_are_left_out(tmp_path, capsys, one_kind):
    frame = table({"d": [32, 64]}, law).astype({"n_correct": "Int64"})
    frame["status"], frame["attention_mass"] = "ok", 0.99
    gone = (frame["seed"] == 3) & (frame["N"] > 5000)
    frame.loc[gone, ["n_correct", "attention_mass"]] = None, np.nan
    frame.loc[gone, "status"] = "nonfinite"
    frame.to_parquet(tmp_path / "t.parquet")
    assert cli.main([str(tmp_path / "t.parquet"), "--resamples", "100", "--surrogate", "0"]) == 0
    assert f"{gone.sum()} of {len(frame)} rows have no n_correct" in (tmp_path / "t-report.html").read_text()
    assert f"({len(frame) - gone.sum()} ok, {gone.sum()} nonfinite)" in (tmp_path / "t-report.html").read_text()


def test_roles_have_good_defaults_and_can_be_chosen():
    families, _ = cells.families(table({"V": [64, 128], "d": [32, 64], "L": [8, 16]}, law))
    chosen = roles(families)
    assert (chosen.x, chosen.lines, chosen.panels, chosen.phases) == ("d", "L", ("V",), (("d", "N"),))
    chosen = roles(families, x="V", panels=["d"], phases=[("L", "N"), ("V", "d")])
    assert (chosen.x, chosen.lines, chosen.panels, chosen.phases) == ("V", "L", ("d",), (("L", "N"), ("V", "d")))


def test_zero_stands_apart_from_a_log_axis():
    axis = Axis.make("m", pd.DataFrame({"m": [0, 32, 128]}))
    assert axis.place([0, 32, 128]).tolist() == [0, 32, 128]
    zero, least, most = axis.spots([0, 32, 128])
    assert (least, most) == (5, 7)
    assert zero < least - 1.5 * (most - least)
    np.testing.assert_allclose(axis.data(axis.spots([0, 1, 31, 32, 100])), [0, 1, 31, 32, 100])
    frame = table({"m": [0, 32, 128]}, lambda c: 300 + c["m"])
    ax = drawn(frame, "critical N")[0]["critical-n"].figure.axes[0]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0", "32", "128"]
    assert any(len(line.get_xdata()) == 2 and 0 < min(line.get_xdata()) < max(line.get_xdata()) < 32 for line in ax.lines)
    left, middle, right = ax.transData.transform([(m, 1.0) for m in (0, 32, 128)])[:, 0]
    assert middle - left > 1.5 * (right - middle)


def test_tick_labels_and_headings_do_not_collide():
    def overlaps(boxes):
        return [(a, b) for a, b in itertools.combinations(boxes, 2) if a.overlaps(b)]

    d = [48, 64, 72, 96, 128, 192, 256, 384]
    frame = table({"d": d, "V": [64, 128, 256, 512, 1024], "trigger_in_value": [True, False]}, lambda c: 1000.0, LEVELS[::4], seeds=2)
    frame["embedding"] = np.where(frame["V"] > 100, "gaussian", "orthogonal")
    for picture in drawn(frame, "phase diagram", "accuracy against N", x="V")[0].values():
        figure = picture.figure
        figure.draw_without_rendering()
        panels = [ax for ax in figure.axes if ax.get_visible() and ax.get_title()]
        assert len(panels) > 4
        assert overlaps([ax.title.get_window_extent() for ax in panels]) == []
        for ax in panels:
            for axis in (ax.xaxis, ax.yaxis):
                shown = [tick.label1 for tick in axis.get_major_ticks() if tick.label1.get_visible() and tick.label1.get_text()]
                assert overlaps([text.get_window_extent() for text in shown]) == []


def test_panels_of_one_line_each_become_the_lines_of_one_panel():
    pairs = [{"kappa": kappa, "gamma2": gamma2} for kappa, gamma2 in ((1.0, 0.1), (2.0, 0.2), (5.0, 0.5), (10.0, 1.0), (10.0, 9.0))]
    frame = pd.concat([table({name: [value] for name, value in pair.items()}) for pair in pairs], ignore_index=True)
    frame["accuracy"] = frame["n_correct"] / frame["n_test"]
    levels = averaged(frame, ["kappa", "gamma2", "N"], "accuracy")
    figure = curves.chart(levels, "N", *arranged(levels, "kappa", ["gamma2"])).figure()
    assert len(figure.axes) == 1
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert named == [f"kappa = {pair['kappa']:g}, gamma2 = {pair['gamma2']:g}" for pair in pairs]


def test_a_heading_names_what_differs_between_panels():
    groups = [{"V": 64, "L": L, "embedding": "gaussian"} for L in (8, 16)]
    assert distinguishing(groups, [*groups[0]]) == ["L"]


def test_no_line_for_a_law_that_the_fit_rejects():
    straight = table({"d": [32, 64, 128, 256]}, law)
    bent = table({"d": [32, 64, 128, 256]}, lambda c: law(c) * (4 if c["d"] in (32, 256) else 1))
    for frame, rejected in ((straight, False), (bent, True)):
        pictures, _ = drawn(frame, "critical N", "data collapse")
        critical = pictures["critical-n"]
        assert ("do not follow a single power law, so none is drawn" in critical.caption) == rejected
        assert ("law, fitted" in labels(critical)) != rejected
        assert ("so there is no collapse by the law" in pictures["collapse"].caption) == rejected
        assert len(pictures["collapse"].figure.axes) == (1 if rejected else 2)


def test_noise_takes_medians_over_seeds_and_the_size_of_snr():
    frame = table({"d": [32, 64]}, law)
    frame["snr"] = np.where(frame["seed"] == 0, -1e-3, np.where(frame["seed"] % 2, -2.0, 4.0))
    frame["noise_leakage"], frame["noise_mlp"] = 0.1, 0.01
    frame["noise_bias"] = np.where(frame["seed"] == 0, 1e4, 1.0)
    about, _ = studied(frame)
    np.testing.assert_allclose(noise.measured_noise(about)["whole"], 0.5)
    assert noise.measured_noise(about)["mean_bias"].eq(1.0).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pictures, _ = drawn(frame, "dominating noise", render=True)
    caption = pictures["noise-lines"].caption
    assert "one exceeds the whole at 18 of 18 levels, at most 2.00 times" in caption
    assert "The parts are correlated" in caption


def test_bands_stand_where_seeds_vary():
    frame = table({"d": [32, 64]}, law)
    frame["accuracy"] = frame["n_correct"] / frame["n_test"]
    frame["matched_accuracy"] = frame["accuracy"] * 0.5
    frame["noise_leakage"] = 0.1 * (1 + frame["seed"])
    pictures, _ = drawn(frame, "decoders of the initial gradient", "dominating noise")
    ax = pictures["decoders"].figure.axes[0]
    mine = frame[(frame["d"] == 32) & (frame["N"] == 1024)]["matched_accuracy"]
    ends = {round(float(y), 6) for band in ax.collections for path in band.get_paths() for x, y in path.vertices if x == 1024}
    assert {round(mine.mean() + sign * mine.std(ddof=0), 6) for sign in (-1, 1)} <= ends
    lower = [path.vertices[:, 1].min() for band in pictures["noise-lines"].figure.axes[0].collections for path in band.get_paths()]
    assert pytest.approx(0.275) in lower  # the first quartile of 0.1 to 0.8


def test_a_search_marks_its_thresholds_in_the_picture_of_the_sweep(tmp_path):
    frame = table({"d": [32, 64]}, law)
    frame["accuracy"] = frame["n_correct"] / frame["n_test"]
    marks = [
        {"d": 32, "theta": 0.5, "axis": "N", "critical": 1000.0, "lo": 800.0, "hi": 1300.0},
        {"d": 64, "theta": 0.5, "axis": "N", "critical": None, "lo": None, "hi": None},
    ]
    figures, drawn_figure = [], Chart.figure
    with mock.patch.object(Chart, "figure", lambda *a: figures.append(drawn_figure(*a)) or figures[-1]):
        assert curves.draw_sweep(frame, ["d", "N"], "search", tmp_path / "accuracy.png", marks) is None
    (figure,) = figures
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    diamonds = [line.get_xydata().tolist() for line in figure.axes[0].lines if line.get_marker() == "d" and len(line.get_xdata())]
    assert diamonds == [[[1000.0, 0.5]]]
    assert any(line.get_xdata().tolist() == [800.0, 1300.0] for line in figure.axes[0].lines if len(line.get_xdata()))
    assert "N* and 95 % interval" in [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def falling(cell):
    """V at which accuracy crosses: it falls along V."""
    return 3 * cell["d"]


def along_V():
    """A results table of a search along V, for which N follows V; what it knows of its search comes with the file."""
    rows = [
        {"V": V, "N": 8 * V, "d": d, "L": 8, "m": 0, "seed": seed, "n_test": 1000}
        | {"n_correct": round(1000 / (1 + (V / falling({"d": d})) ** 2 * np.exp(0.1 * (seed - 3.5))))}
        for d in (16, 32, 64) for V in (16, 23, 32, 45, 64, 91, 128, 181, 256, 362) for seed in range(8)
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    frame.attrs.update(axes=["d", "V"], searched="V")
    return frame


def test_a_report_of_a_search_along_another_axis_shows_its_crossings(tmp_path):
    frame = along_V()
    meta = {b"jaxrecall": json.dumps(frame.attrs).encode()}
    pq.write_table(pa.Table.from_pandas(frame).replace_schema_metadata(meta), tmp_path / "t.parquet")
    assert cli.main([str(tmp_path / "t.parquet"), "--resamples", "100"]) == 0
    written = {path.stem for path in (tmp_path / "t-report-figures").glob("*.png")}
    assert written == {"accuracy", "critical-v", "phase", "collapse"}
    page = (tmp_path / "t-report.html").read_text()
    assert "how critical V scales" in page
    assert "V* ~ " not in page.partition("<svg")[0]
    assert "<th>V*</th>" in page
    assert "N*" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    about = studied(frame)[0]
    stars = about.thresholds(0.5).set_index("d")["critical"]
    assert all(abs(np.log(stars / [48, 96, 192])) < 0.05)
    picture = drawn(frame, "critical N")[0]["critical-v"]
    ax = picture.figure.axes[0]
    assert ax.get_ylabel() == "critical V* at accuracy 0.5"
    marks = [line.get_ydata() for line in ax.lines if line.get_marker() == "o" and len(line.get_ydata()) == 3]
    np.testing.assert_allclose(marks[0], stars)
    assert re.search(r"m = 0: V\* ~ d\^(0\.9\d|1\.0\d)", picture.caption)
    levels = about.levels[about.levels["V"] == 16]
    assert (levels["accuracy"] > 0.8).all(), "accuracy, not its complement, though it falls"
    _, left_out = drawn(frame, "predicted against observed critical N", "dominating noise", "decoders of the initial gradient")
    assert {*left_out.values()} == {critical.ALONG_N}


def test_levels_with_few_seeds_are_not_joined():
    frame = table(levels=LEVELS[:5])
    frame["accuracy"] = frame["n_correct"] / frame["n_test"]
    few = frame[(frame["seed"] == 0) | ~frame["N"].isin(LEVELS[1:3])]
    ax = curves.chart(averaged(few, ["N"], "accuracy"), "N", [], []).figure().axes[0]
    joined = [line.get_xdata().tolist() for line in ax.lines if line.get_linestyle() == "-" and len(line.get_xdata()) > 1]
    assert joined == [[LEVELS[0], *LEVELS[3:5]], [*LEVELS[3:5]]]  # a faint line past them, and the others


def test_the_page_has_contents_and_a_dark_mode(folder):
    text = (folder / "report.html").read_text()
    contents = re.search(r"<nav.*?</nav>", text, re.S)[0]
    headings = re.findall(r'<h2 id="(.*?)">(.*?)</h2>', text)
    assert len(headings) > 8
    assert re.findall(r'<a href="#(.*?)">(.*?)</a>', contents) == headings
    assert "prefers-color-scheme: dark" in text
    assert re.search(r"figure svg \{[^}]*background: #fff", text)


def test_progress_names_what_is_drawn(tmp_path):
    about = studied(table({"d": [32, 64]}, law))
    steps = []
    draw(*about, tmp_path, lambda *step: steps.append(step))
    assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps)
    assert {f"drawing {what}" for what in PICTURES} | {"drawing critical-n", "drawing phase"} <= {what for what, _, _ in steps}
    assert {of for _, _, of in steps} == {len(PICTURES)}


def test_the_command_tells_how_far_it_is(tmp_path, monkeypatch, capsys, one_kind):
    monkeypatch.setattr(cli, "COUNT_EVERY_SECONDS", 0.0)
    table({"d": [32, 64]}, law).to_parquet(tmp_path / "t.parquet")
    assert cli.main([str(tmp_path / "t.parquet"), "--resamples", "100", "--surrogate", "0"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert "drawing accuracy against N: 0 of 1 done" in said
    assert any(line.startswith("fitting: 2 of ") for line in said)


def test_theory_along_a_line_is_what_theory_says_at_its_points(monkeypatch):
    at = {"V": 64, "d": 64, "L": 64, "m": 0, "embedding": "gaussian"}
    N, p = predict.accuracy_curve(at, np.array([200.0, 800.0, 3200.0]))
    for n in (200.0, 900.0, 3200.0):
        assert np.interp(n, N, p) == pytest.approx(predict.accuracy(at, n), abs=0.01)
    d, star = predict.critical_curve(at, "d", [32, 64, 128], 0.5)
    known = np.isfinite(star)
    for value in (50, 64, 100):
        assert np.interp(value, d[known], star[known]) == pytest.approx(predict.critical_N({**at, "d": value}, 0.5), rel=0.03)


def test_theory_is_not_drawn_where_it_does_not_know_a_setting(tmp_path, capsys, one_kind):
    frame = table({"d": [32, 64], "rho": [0.0, 0.6]}, law)
    pictures, left_out = drawn(frame, "accuracy against N", "critical N", "phase diagram", "predicted against observed critical N")
    assert left_out == {"predicted against observed critical N": "theory covers no cell that crosses"}
    assert "theory" not in labels(pictures["accuracy"]) + labels(pictures["critical-n"]) + labels(pictures["phase"])
    assert "theory does not cover these cells" in pictures["accuracy"].caption
    cell = studied(frame)[0].cells.iloc[1].to_dict()
    assert predict.critical_N(cell, 0.5) is predict.surrogate_N(cell, 0.5, 4) is None
    frame.to_parquet(tmp_path / "t.parquet")
    assert cli.main([str(tmp_path / "t.parquet"), "--resamples", "100", "--surrogate", "0"]) == 0
    assert "Theory does not cover 4 of 4 cells (rho: got 0.0; " in (tmp_path / "t-report.html").read_text()
    known = drawn(table({"d": [32, 64]}, law), "accuracy against N")[0]["accuracy"]
    assert "theory" in labels(known)


def test_a_law_is_predicted_with_its_numbers(monkeypatch):
    asked = []

    def refused(values, any_training):
        asked.append(values)
        raise TheoryError("a toy")

    monkeypatch.setattr(predict.Model, "from_fields", refused)
    predict.accuracy({"V": 64, "d": 32, "L": 8, "embedding": "toy", "embedding.rho": 0.3, "embedding.s": 2.0, "tokens.s": np.nan}, 77.0)
    assert asked == [{"V": 64, "d": 32, "L": 8, "embedding": "toy(rho=0.3, s=2.0)"}]


REFUSED = {
    "no such axis": (["--x", "foo"], "x: 'foo'; allowed, as these vary: d, L"),
    "it does not vary": (["--lines", "V"], "lines: 'V'; allowed, as these vary: d, L"),
    "twice": (["--x", "d", "--panels", "d"], "x, lines, panels: d more than once"),
    "unknown in a phase": (["--phase", "m * width", "N"], "phase: 'm * width' has no width; allowed: N, V, d, L, m and arithmetic"),
    "no expression": (["--phase", "m *", "N"], "phase: 'm *': is no expression"),
    "no number": (["--phase", "d / m", "N"], "phase: 'd / m': division by zero, at d=32, m=0"),
    "same axis": (["--phase", "d", "d"], "phase: 'd' twice; allowed: two axes"),
    "theta": (["--theta", "1.5"], "theta: got 1.5; allowed: fractions between 0 and 1, up to 1000 of them"),
    "surrogate": (["--surrogate", "-1"], "--surrogate: -1; allowed: a number of seeds, or 0 for none"),
    "a folder for a page": (["--out", "."], "--out: . is a folder; allowed: a file"),
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


def test_a_column_with_a_name_of_ours_is_refused():
    with pytest.raises(FitError, match="cell has a meaning of its own"):
        studied(table().assign(cell=1))
