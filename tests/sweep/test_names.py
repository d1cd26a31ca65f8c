"""Helpers that a grid keeps: columns of the rows, and names of the cells of a search
and of a fit.
"""

import json
import re

import pytest

from jaxrecall import fit, load, run, thresholds
from jaxrecall.sweep.__main__ import main

BASE = {"L": 4, "d": 16, "n_test": 64, "pool": 16}
SEARCH = {
    "base": BASE,
    "seeds": 16,
    "search": {"axis": "V", "from": 8, "to": 32, "max_runs": 40, "width": 2},
}


def names(cells, *columns):
    return [tuple(row) for row in cells[[*columns]].itertuples(index=False)]


@pytest.mark.slow
def test_a_kept_helper_names_the_cells_of_a_search(tmp_path, capsys):
    blocks = [{"axes": {"per": [8, 64]}, "derive": {"N": "per * V"}}]
    path, out = tmp_path / "grid.yaml", tmp_path / "out"
    path.write_text(json.dumps(SEARCH | {"keep": ["per"], "blocks": blocks}))
    assert main(["--grid", str(path), "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert re.findall(r"^([01]) +(\d+) +.*0\.5", told, re.M) == [
        ("0", "8"),
        ("1", "64"),
    ]
    assert names(thresholds(out), "per") == [(8,), (64,)]
    cells = json.loads((out / "search.json").read_text())["cells"]
    assert [cell["per"] for cell in cells] == [8, 64]


def test_a_text_that_is_kept_names_the_cells_of_a_fit(tmp_path):
    """A label of one's own: it moves no id."""
    blocks = [
        {"axes": {"label": [f"width {d}"], "d": [d], "N": [64, 256, 1024, 4096]}}
        for d in (8, 12, 16)
    ]
    grid = {"base": {**BASE, "V": 16}, "seeds": 6, "keep": ["label"], "blocks": blocks}
    run(grid, progress=False, out=tmp_path / "out")
    df = load(tmp_path / "out")
    assert df.attrs["kept"] == ["label"]
    found = fit.fit(df)
    assert names(found.thresholds, "d", "label") == [
        (8, "width 8"),
        (12, "width 12"),
        (16, "width 16"),
    ]
    assert [*found.exponents["axis"]] == ["d"]
    other = [{"axes": {"label": ["other"], "d": [8], "N": [64]}}]
    plain = run(grid | {"blocks": other}, progress=False)
    assert {*plain["point_id"]} <= {*df["point_id"]}
