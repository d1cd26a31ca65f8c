"""Theory is drawn only where it holds, and says what it assumes; a report says no sentence twice and has no empty panel."""

import importlib
import re
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from test_fit import law, table
from test_report import drawn, labels, simple_theory, studied

from jaxrecall import theory
from jaxrecall.analysis.figures import predict
from jaxrecall.analysis.figures.grammar import ASIDE

cli = importlib.import_module("jaxrecall.report")
LEVELS = (64, 256, 1024, 4096, 16384)
LOCKED_NAME = "theory, assumes locked attention"


def with_mlp(**columns):
    """Cells with an MLP and embeddings that do not overlap, whose score noise no formula covers."""
    frame = table({"d": [128, 256], "m": [32]}, lambda c: 1000.0, LEVELS, seeds=2)
    return frame.assign(activation="relu", embedding="orthogonal", **columns)


@pytest.mark.parametrize("value", [1.0, "zipf"])
def test_no_theory_over_a_table_with_a_setting_that_no_formula_knows(value, tmp_path, capsys):
    frame = table({"d": [32, 64]}, law, LEVELS, seeds=2).assign(s=value)
    frame.to_parquet(tmp_path / "t.parquet")
    assert cli.main([str(tmp_path / "t.parquet"), "--resamples", "100", "--surrogate", "0"]) == 0
    page = (tmp_path / "t-report.html").read_text()
    assert "Theory does not cover 2 of 2 cells (s: got" in page
    pictures, left_out = drawn(frame)
    assert not any("theory" in label for picture in pictures.values() for label in labels(picture))
    assert left_out["predicted against observed critical N"] == "theory covers no cell that crosses"


def test_what_was_measured_or_named_by_the_grid_does_not_stop_theory():
    frame = table({"d": [32, 64]}, law, LEVELS, seeds=2)
    measured = frame.assign(score=frame["n_correct"] / 7 + frame["seed"])
    named = frame.assign(md=1.0)
    named.attrs = {"axes": ["d", "N"]}
    for given in (measured, named):
        assert "theory" in labels(drawn(given, "accuracy against N")[0]["accuracy"])


def test_a_formula_that_assumes_locked_attention_says_so():
    for frame in (with_mlp(), with_mlp(attention_mass=0.99)):
        pictures, _ = drawn(frame, "accuracy against N", "critical N", "phase diagram")
        for name in ("accuracy", "critical-n", "phase"):
            assert LOCKED_NAME in labels(pictures[name]), name
            assert "theory" not in labels(pictures[name])
    assert predict.assumes_locked({"V": 64, "d": 128, "L": 8, "m": 32, "activation": "relu", "embedding": "orthogonal"})
    covered = {"V": 64, "d": 128, "L": 8, "m": 32, "activation": "relu", "embedding": "gaussian"}
    assert not predict.assumes_locked(covered)


@pytest.mark.parametrize("column", ["attention_mass", "attention_top1"])
def test_it_is_not_drawn_where_attention_is_measured_open(column):
    frame = with_mlp()
    lock = np.where(frame["d"] == 256, 20_000, 500)
    frame[column] = np.where(frame["N"] > lock, 0.99, 0.4)
    about, _ = studied(frame)
    assert about.cells["locked_from"].tolist() == [1024.0, np.inf]
    picture = drawn(frame, "accuracy against N")[0]["accuracy"]
    dotted = [np.asarray(line.get_xydata(), float) for ax in picture.figure.axes for line in ax.lines if len(line.get_xydata()) == 49]
    assert [(line[:, 0].min(), line[:, 0].max()) for line in dotted] == [pytest.approx((1024, 16384))]
    assert np.isnan(about.predicted_accuracy.to_numpy(float)).tolist() == [True, True, False, False, False] + [True] * 5
    assert predict.critical_N(about.cells.iloc[1].to_dict(), 0.5) is None
    at = about.cells.iloc[0].to_dict()
    star = theory.critical_N(theory.Model(V=64, d=128, L=8, m=32, activation="relu", embedding="orthogonal"), 0.5)
    assert predict.critical_N(at, 0.5) == (None if star < 1024 else star)


def test_attention_that_is_locked_again_and_again_counts_from_the_last_time():
    frame = table({"d": [64]}, law, LEVELS, seeds=2)
    for masses, first in (([0.99] * 5, 0.0), ([0.99, 0.5, 0.99, 0.99, 0.99], 1024.0), ([0.99] * 4 + [0.9], np.inf)):
        frame["attention_mass"] = frame["N"].map(dict(zip(LEVELS, masses, strict=True)))
        assert studied(frame)[0].cells["locked_from"].tolist() == [first]


def rich(frame):
    accuracy = frame["n_correct"] / frame["n_test"]
    noise = {"noise_leakage": 0.1, "noise_bias": 100.0 / frame["N"], "attention_mass": 0.97, "snr": 3.0}
    return frame.assign(accuracy=accuracy, matched_accuracy=accuracy / 2, **noise)


def test_no_sentence_stands_twice_on_a_report(tmp_path, monkeypatch):
    simple_theory(monkeypatch)
    frame = rich(table({"d": [32, 64], "L": [8, 16]}, law, LEVELS[1:], seeds=2))
    frame.to_parquet(tmp_path / "t.parquet")
    more = ["--theta", "0.5", "0.9", "--phase", "d", "N", "--phase", "d", "L", "--phase", "L", "N", "--x", "d * L"]
    assert cli.main([str(tmp_path / "t.parquet"), "--resamples", "100", "--surrogate", "0", *more]) == 0
    page = (tmp_path / "t-report.html").read_text()
    said = re.findall(r"<p>(.*?)</p>|<figcaption>(.*?)<span|<li>(.*?)</li>", page, re.S)
    texts = [re.sub(r"<[^>]*>", "", "".join(one)) for one in said if "<a " not in "".join(one)]
    sentences = Counter(sentence.strip(" .") for text in texts for sentence in re.split(r"(?<=\.) (?=[A-Z])", text))
    assert len(sentences) > 20
    assert [sentence for sentence, n in sentences.items() if n > 1 and sentence] == []


def test_a_cell_of_one_level_has_no_panel_among_the_noises():
    frame = rich(table({"d": [32, 64]}, law, LEVELS, seeds=2))
    frame = pd.concat([frame, rich(table({"d": [96, 128]}, law, (256,), seeds=2))], ignore_index=True)
    picture = drawn(frame, "dominating noise")[0]["noise-lines"]
    assert [ax.get_title() for ax in picture.figure.axes] == ["d = 32", "d = 64"]
    assert "2 of 4 cells are drawn" in picture.caption


def test_marks_stand_beside_their_place_by_a_tenth_of_a_step_at_most():
    frame = table({"d": [32, 64, 128], "L": [4, 8, 16, 32, 64]}, lambda c: 1e9 if c["d"] == 64 else 1000.0, LEVELS, seeds=2)
    picture = drawn(frame, "critical N", x="d", lines="L")[0]["critical-n"]
    marks = [line for line in picture.figure.axes[0].lines if line.get_marker() in "^osDv" and line.get_linestyle() == "None"]
    at = {float(x) for line in marks for x in np.atleast_1d(line.get_xdata())}
    off = [min(abs(np.log2(x) - np.log2(d)) for d in (32, 64, 128)) for x in at]
    assert len(off) == 15
    assert 0.05 < max(off) <= ASIDE == 0.1
