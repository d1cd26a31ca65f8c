"""Names of cells: labels of blocks, lines of derive, kept helpers. They tell cells apart wherever a threshold is shown, and run nothing."""

import json

import pandas as pd
import pytest

import jaxrecall
from jaxrecall import fit, latex, load, run, thresholds
from jaxrecall.errors import GridError
from jaxrecall.sweep.__main__ import WIDEST, cut, main
from jaxrecall.sweep.grid import as_grid, rebuilt

BASE = {"L": 4, "d": 16, "n_test": 64, "pool": 16}
SEARCH = {"base": BASE, "seeds": 16, "search": {"axis": "V", "from": 8, "to": 64, "max_runs": 40, "width": 2}}
EIGHT = {"derive": {"per": "8", "N": "per * V"}}
MANY = {"derive": {"per": "64", "N": "per * V"}}
V = {"axes": {"V": [8, 16, 32, 64]}}


def names(cells, *columns):
    return [tuple(row) for row in cells[[*columns]].itertuples(index=False)]


def test_cells_that_differ_in_derive_alone_have_a_name():
    df = run(SEARCH | {"blocks": [EIGHT, MANY]}, progress=False)
    found = thresholds(df)
    assert names(found, "derive.per") == [("8",), ("64",)]
    assert "derive.N" not in found, "the same line in both blocks tells nothing apart"
    table = latex(found)
    assert "derive.per & $V^*$" in table
    assert [row.split(" & ")[0].strip() for row in table.splitlines() if row.endswith(r"\\")] == ["derive.per", "8", "64"]


def test_a_kept_helper_stands_in_the_thresholds_in_place_of_its_line(tmp_path, capsys):
    path = tmp_path / "grid.yaml"
    path.write_text(json.dumps(SEARCH | {"keep": ["per"], "blocks": [EIGHT, MANY]}))
    assert main(["--grid", str(path), "--out", str(tmp_path / "out")]) == 0
    told = capsys.readouterr().out
    found = thresholds(tmp_path / "out")
    assert names(found, "per") == [(8,), (64,)]
    assert not [name for name in found if name.startswith("derive.")]
    assert [line.split()[:2] for line in told.splitlines() if line[:1] in "01" and "0.5" in line] == [["0", "8"], ["1", "64"]]
    assert [cell["per"] for cell in json.loads((tmp_path / "out/search.json").read_text())["cells"]] == [8, 64]
    assert names(fit.fit(load(tmp_path / "out")).thresholds, "per") == [(8,), (64,)]


def test_an_axis_of_one_block_that_follows_in_another_tells_its_cells_apart():
    grid = as_grid(SEARCH | {"blocks": [{"derive": {"N": "8 * V"}}, {"axes": {"N": [100, 1000]}}]})
    assert [line.names for line in grid.lines] == [{"derive.N": "8 * V"}, {"derive.N": "100"}, {"derive.N": "1000"}]


def test_lines_of_derive_that_no_field_follows_by_are_no_names():
    where = [{"derive": {"edge": f"{c} * V"}, "where": ["d >= edge"], "axes": {"V": [8]}} for c in (1, 2)]
    grid = as_grid(SEARCH | {"search": {"axis": "N"}, "blocks": where})
    assert [line.names for line in grid.lines] == [{}]
    assert grid.n_duplicates == 1


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """A search of three blocks, of which two hold the same points, and its folder."""
    out = tmp_path_factory.mktemp("labelled") / "out"
    grid = SEARCH | {"blocks": [{"label": "few", **EIGHT}, {"label": "many", **MANY}, {"label": "as many", **MANY}]}
    return grid, out, run(grid, out=out, progress=False)


def test_two_cells_of_the_same_points_share_their_runs(labelled):
    grid, out, df = labelled
    found = thresholds(out)
    assert names(found, "label", "derive.per") == [("few", "8"), ("many", "64"), ("as many", "64")]
    assert found.drop(columns="label").iloc[1].equals(found.drop(columns="label").iloc[2])
    alone = run({**grid, "blocks": grid["blocks"][:2]}, progress=False)
    assert set(zip(df["point_id"], df["seed"], strict=True)) == set(zip(alone["point_id"], alone["seed"], strict=True))
    fitted = fit.fit(load(out)).thresholds
    assert sorted(names(fitted, "label", "derive.per")) == sorted(names(found, "label", "derive.per"))
    assert fitted.set_index("label")["n_seeds"].loc[["many", "as many"]].nunique() == 1


def test_editing_a_label_runs_nothing_again(labelled, tmp_path):
    grid, _, df = labelled
    edited = {**grid, "blocks": [{**block, "label": f"{block['label']} again"} for block in grid["blocks"]]}
    assert [p.point_id for line in as_grid(edited).lines for p in line.levels.values()] == [
        p.point_id for line in as_grid(grid).lines for p in line.levels.values()
    ]
    out = tmp_path / "out"
    run(grid, out=out, progress=False)
    before = sorted((path.name, path.stat().st_mtime_ns) for path in (out / "parts").iterdir())
    after = run(edited, out=out, progress=False)
    assert sorted((path.name, path.stat().st_mtime_ns) for path in (out / "parts").iterdir()) == before
    assert after.drop(columns=["label", "seconds"]).equals(df.drop(columns=["label", "seconds"]))
    assert [*thresholds(out)["label"]] == ["few again", "many again", "as many again"]
    assert {*load(out)["label"]} == {"few again", "many again"}
    run({**grid, "blocks": [EIGHT, MANY]}, out=out, progress=False)
    assert "label" not in load(out)
    assert "label" not in thresholds(out)


def test_a_search_with_labels_is_drawn_with_a_line_for_each(labelled):
    from jaxrecall.analysis.figures import curves

    _, out, df = labelled
    drawn = []
    means = curves.means
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "means", lambda *args, **more: drawn.append(means(*args, **more)) or drawn[-1])
        curves.draw_sweep(df, ["V"], "search", out / "drawn.png", thresholds(out).to_dict("records"), "V")
    kinds = drawn[0].table[[*drawn[0].lines, *drawn[0].panels]].drop_duplicates()
    assert {*kinds["label"]} == {"few", "many", "as many"}


PLAIN = {
    "base": BASE,
    "seeds": 6,
    "blocks": [
        {"label": "few", **V, "derive": {"N": "8 * V"}},
        {"label": "many", **V, "derive": {"N": "min(64 * V, 512)"}},
        {"label": "as few", **V, "derive": {"N": "8 * V"}},
    ],
}


def test_a_run_of_two_labelled_blocks_serves_both_cells_of_a_fit(tmp_path):
    df = run(PLAIN, out=tmp_path / "out", progress=False)
    assert not df.duplicated(["point_id", "seed"]).any()
    assert {*df["label"]} == {"few", "many"}
    assert load(tmp_path / "out").equals(df)
    for frame in (df, load(tmp_path / "out"), df[df["seed"] < 4]):
        found = fit.fit(frame, along="V").thresholds
        assert sorted(names(found, "label", "derive.N")) == [
            ("as few", "8 * V"),
            ("few", "8 * V"),
            ("many", "min(64 * V, 512)"),
        ]
        assert (found["n_levels"] == 4).all(), "the point at V = 64 is one of all three cells"
        assert found["copy_of"].notna().sum() == 1
    ax = jaxrecall.plot.accuracy(df, x="V", theta=0.5)
    told = {text.get_text() for legend in [ax.get_legend(), *ax.figure.legends] if legend for text in legend.get_texts()}
    assert all(any(name in text for text in told) for name in ("as few", "few", "many")), told
    jaxrecall.plot.figure(found, "critical", x="label")


def test_a_label_that_follows_an_axis_is_a_column_and_no_axis():
    blocks = [{"label": f"width {d}", "axes": {"d": [d], "N": [64, 256, 1024, 4096]}} for d in (8, 16, 32)]
    found = fit.fit(run({"base": {**BASE, "V": 16}, "seeds": 6, "blocks": blocks}, progress=False))
    assert names(found.thresholds, "d", "label") == [(8, "width 8"), (16, "width 16"), (32, "width 32")]
    assert [*found.exponents["axis"]] == ["d"]
    assert "width 16" in latex(found.thresholds)


def test_one_label_beside_others_of_the_same_axis_along_it():
    """Blocks that share some of their levels are cells of their own, each with all of its levels."""
    blocks = [{"label": "low", "axes": {"N": [16, 64, 256]}}, {"label": "high", "axes": {"N": [256, 1024]}}, {"axes": {"N": [64, 2048]}}]
    found = fit.fit(run({"base": {**BASE, "V": 16}, "seeds": 4, "blocks": blocks}, progress=False)).thresholds
    assert {row.label: row.n_levels for row in found.itertuples()} == {"": 2, "high": 2, "low": 3}


def test_lines_of_the_axis_itself_are_no_names_of_a_cell():
    blocks = [{"axes": {"a": [1, 4]}, "derive": {"N": f"{c} * a * V"}} for c in (4, 8)]
    found = fit.fit(run({"base": {**BASE, "V": 16}, "seeds": 4, "blocks": blocks}, progress=False)).thresholds
    assert len(found) == 1
    assert "derive.N" not in found


def test_names_are_read_from_what_the_grid_says():
    grid = as_grid(PLAIN)
    assert rebuilt(grid.resolved).names() == grid.names()
    assert grid.n_duplicates == 5
    assert as_grid({**PLAIN, "blocks": [V | {"derive": {"N": "8 * V"}}]}).names() == {}


@pytest.mark.parametrize(
    ("label", "said"),
    [
        (5, "blocks.0.label: got 5; allowed: text of 1 to 200 characters in one line (put a number in quotes)"),
        (" ", "blocks.0.label: got ' '; allowed: text of 1 to 200 characters in one line"),
        ("a\nb", "blocks.0.label: got 'a\\nb'; allowed: text of 1 to 200 characters in one line"),
    ],
)
def test_wrong_labels(label, said):
    with pytest.raises(GridError) as refused:
        as_grid({**PLAIN, "blocks": [{**V, "label": label, "axes": {"V": [8], "N": [8]}}]})
    assert said in str(refused.value)


def test_a_label_and_a_helper_of_that_name():
    blocks = [{"label": "few", "axes": {"V": [8], "N": [8]}}, {"axes": {"V": [8], "label": [1, 2]}, "derive": {"N": "label * V"}}]
    with pytest.raises(GridError, match=r"blocks\.0\.label: is given, and so is a field or a helper of this name; rename that"):
        as_grid({**PLAIN, "blocks": blocks})


@pytest.mark.parametrize(
    "text", ["{", "[]", "7", '{"cells": [1]}', '{"cells": [{"label": []}]}', '{"cells": [{"points": 3}], "following": {"V": 2}}', "null"]
)
def test_names_that_cannot_be_read_are_left_out(text, tmp_path):
    out = tmp_path / "out"
    rows = run({**PLAIN, "seeds": 2}, out=out, progress=False)
    (out / "names.json").write_text(text)
    with pytest.warns(UserWarning, match=r"names.json: cannot be used"):
        frame = load(out)
    assert frame.equals(rows.drop(columns="label"))


def test_foreign_columns_in_names_replace_nothing(tmp_path):
    out = tmp_path / "out"
    rows = run({**PLAIN, "seeds": 2}, out=out, progress=False)
    ids = " ".join(rows["point_id"].unique())
    (out / "names.json").write_text(json.dumps({"cells": [{"accuracy": 1, "row": 3, "n_correct": 5, "point_id": "x", "points": ids}]}))
    assert load(out).equals(rows.drop(columns="label"))
    assert (fit.fit(load(out)).thresholds["critical"].fillna(0) != 1).all()


def test_merged_folders_keep_their_names(tmp_path):
    from jaxrecall.compact import compact

    run({**PLAIN, "blocks": PLAIN["blocks"][:1]}, out=tmp_path / "a", progress=False)
    run({**PLAIN, "blocks": PLAIN["blocks"][1:2]}, out=tmp_path / "b", progress=False)
    compact(tmp_path / "both", others=[tmp_path / "a", tmp_path / "b"])
    with pytest.warns(UserWarning, match="dropped 6 rows"):
        both = load([tmp_path / "a", tmp_path / "b"])
    assert {*load(tmp_path / "both")["label"]} == {*both["label"]} == {"few", "many"}


LONG = 'array(path="minilm/model.safetensors#97d6177f6a1b", tensor="embeddings.word_embeddings.weight", mean={})'


@pytest.mark.parametrize(
    "texts",
    [
        [LONG.format(0), LONG.format(1), "gaussian"],
        [LONG.replace("97d6", "97d7"), LONG],
        ["a" * 50 + b + "a" * 60 for b in "xyz"] + ["a" * 111],
        ["a" * 60, "a" * 61, "a" * (WIDEST // 2) + "..." + "a" * (WIDEST // 2 - 3)],
        ["short", ""],
    ],
)
def test_long_values_are_cut_in_the_middle_and_stay_different(texts):
    column = pd.Series(texts)
    short = cut(column)
    assert short.nunique() == len(texts)
    for text, shown in zip(texts, short, strict=True):
        assert shown == text or (len(shown) < len(text) and text.startswith(shown[:10]) and text.endswith(shown[-10:]))
    assert max(map(len, cut(column[:1]))) <= WIDEST
    assert cut(pd.Series([1, 2.5, None])).equals(pd.Series([1, 2.5, None]))


def test_tables_in_the_terminal_cut_them_so(tmp_path, capsys):
    labels = [f"{'x' * 80} mean={i}" for i in range(2)]
    path = tmp_path / "grid.yaml"
    blocks = [{"label": label, **block} for label, block in zip(labels, (EIGHT, MANY), strict=True)]
    path.write_text(json.dumps(SEARCH | {"blocks": blocks}))
    assert main(["--grid", str(path), "--out", str(tmp_path / "out")]) == 0
    told = capsys.readouterr().out
    assert "mean=0" in told
    assert "mean=1" in told
    assert labels[0] not in told
