"""Rows as labelled arrays: every number is where its coordinates say, and nothing is where there is no row."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers import python
from test_store import rows

from jaxrecall import run
from jaxrecall.errors import StoreError
from jaxrecall.model.columns import COLUMNS, FIELDS, is_parameter
from jaxrecall.sweep.store import Store
from jaxrecall.sweep.store.load import labelled, load

xr = pytest.importorskip("xarray")


def table(axes, points, seeds=(0, 1), **shared):
    """Rows of points, each a dict of fields, whose accuracy is a number of its own."""
    one = {name: value for name, value in rows(0)[0].items() if name != "draw_check"}
    made = [one | shared | point | {"seed": seed} for point in points for seed in seeds]
    frame = pd.DataFrame([row | {"accuracy": i / 1000, "n_correct": i} for i, row in enumerate(made)])
    frame.attrs["axes"] = axes
    return frame


def dataset(frame):
    return labelled(frame, [*FIELDS, *filter(is_parameter, frame)], {})


def test_every_row_is_found_by_its_coordinates():
    frame = table(["d", "N"], [{"d": d, "N": N} for d in (64, 32) for N in (100, 10)], V=50)
    ds = dataset(frame)
    assert dict(ds.sizes) == {"d": 2, "N": 2, "seed": 2}
    assert ds["d"].values.tolist() == [32, 64]
    for row in frame.to_dict("records"):
        found = ds.sel({name: row[name] for name in ("d", "N", "seed")})
        for name in ("accuracy", "n_correct", "status", "point_id"):
            assert found[name].item() == row[name]
    assert ds["V"].item() == 50
    assert ds["V"].dims == ()
    assert "V" in ds.coords
    assert set(ds.variables) == set(map(str, frame))
    assert ds["n_correct"].dtype == np.int64
    assert ds["accuracy"].attrs == {"long_name": COLUMNS["accuracy"][1], "units": "1"}
    assert ds["N"].attrs == {"long_name": "samples that each gradient step averages over", "units": "samples"}
    assert ds["trigger_score"].attrs["units"] == "nats"
    assert "units" not in ds["embedding"].attrs
    assert json.loads(ds.attrs["axes"]) == ["d", "N"]


def test_runs_that_are_not_there_are_missing():
    points = [{"d": 32, "N": 10}, {"d": 64, "N": 10}, {"d": 64, "N": 100}]
    ds = dataset(table(["d", "N"], points))
    assert int(ds["accuracy"].isnull().sum()) == int(ds["n_correct"].isnull().sum()) == 2
    assert ds["n_correct"].dtype == float
    assert pd.isna(ds["status"].sel(d=32, N=100, seed=0).item())
    assert bool(ds["accuracy"].sel(d=64, N=100, seed=1) == 0.005)


def test_axes_that_move_together_share_a_dimension():
    ds = dataset(table(["L", "V", "N"], [{"L": 4 * i, "V": 10 * i, "kappa": N / i, "N": N} for i in (1, 2, 3) for N in (5, 7)]))
    assert dict(ds.sizes) == {"L": 3, "N": 2, "seed": 2}
    assert ds["V"].dims == ("L",)
    assert ds["V"].values.tolist() == [10, 20, 30]
    assert ds["kappa"].dims == ("L", "N", "seed")


def test_a_missing_value_of_an_axis_comes_last():
    points = [{"pool": pool, "d": d} for pool in (None, 64, 16) for d in (8, 9)]
    ds = dataset(table(["pool", "d"], points).astype({"pool": "Int64"}))
    assert ds["pool"].values[:2].tolist() == [16, 64]
    assert np.isnan(ds["pool"].values[2])
    assert ds["accuracy"].sel(d=8).isel(pool=2, seed=0) == 0


def test_without_listed_axes_the_fields_that_tell_rows_apart_are_found():
    points = [{"d": d, "eta": eta, "gamma": d * 3.0, "kappa": 1 / eta} for d in (8, 16) for eta in (0.1, 0.2)]
    frame = table([], points)
    del frame.attrs["axes"]
    assert dict(dataset(frame).sizes) == {"d": 2, "eta": 2, "seed": 2}
    frame.attrs["axes"] = ["d"]  # rows of two grids, of which eta is not varied by either
    assert dict(dataset(frame).sizes) == {"d": 2, "eta": 2, "seed": 2}
    rates = table([], [{"kappa": kappa, "gamma": kappa * 7.0} for kappa in (1.0, 2.0)])
    del rates.attrs["axes"]
    assert dict(dataset(rates).sizes) == {"kappa": 2, "seed": 2}


def test_steps_are_a_dimension_where_there_are_several():
    frame = table(["d"], [{"d": d, "step": step, "steps": 30} for d in (8, 16) for step in (3, 30)])
    assert dict(dataset(frame).sizes) == {"d": 2, "seed": 2, "step": 2}


def test_what_makes_no_array_is_refused():
    frame = table(["d"], [{"d": 8}, {"d": 8}])
    with pytest.raises(StoreError, match="as_xarray: several rows have the same seed; allowed: one"):
        dataset(frame)
    names, n = ("d", "N", "L"), 1500
    values = np.random.default_rng(0).integers(1, 200, (n, 3)).tolist()
    scattered = table([*names], [dict(zip(names, each, strict=True)) for each in dict.fromkeys(map(tuple, values))], (0,))
    with pytest.raises(StoreError, match=r"as_xarray: 1[0-9]{3} rows are too few for arrays of d 199 x N 199 x L 199 x seed 1; allowed: a"):
        dataset(scattered)


def test_load_gives_it(tmp_path):
    store = Store(tmp_path / "sweep")
    store.prepare({"name": "sweep"})
    store.about = {"axes": ["N"], "searched": "", "fixed": {}}
    store.write(rows(*range(6)))
    frame, ds = load(store.folder), load(store.folder, as_xarray=True)
    assert isinstance(ds, xr.Dataset)
    back = ds.to_dataframe().reset_index().dropna(subset="point_id").merge(frame, on=["point_id", "seed"], suffixes=("", "_row"))
    assert len(back) == len(frame)
    assert (back["accuracy"] == back["accuracy_row"]).all()


KEEPS = {
    "base": {"V": 16, "L": 3, "n_test": 64},
    "keep": ["alpha", "kind"],
    "blocks": [
        {"axes": {"zip": {"d": [4, 8], "kind": ["narrow", "wide"]}, "alpha": [1, 2.5]}, "derive": {"N": "round(8 * alpha)"}},
        {"axes": {"d": [4], "N": [50]}},
    ],
}


def test_helpers_that_a_grid_keeps_are_columns(tmp_path):
    plain = {name: value for name, value in KEEPS.items() if name != "keep"}
    plain["blocks"] = [{**KEEPS["blocks"][0], "where": ["kind != alpha"]}, KEEPS["blocks"][1]]
    before = run(plain, seeds=2, progress=False)
    after = run(KEEPS, seeds=2, out=tmp_path / "kept", progress=False)
    assert after["point_id"].tolist() == before["point_id"].tolist()
    assert [*after.columns] == [*before.columns, "alpha", "kind"]
    assert after.drop(columns=["alpha", "kind", "seconds"]).equals(before.drop(columns="seconds"))
    found = {row["N"]: (row["alpha"], row["kind"]) for row in after[after["d"] == 4].to_dict("records")}
    assert found[8] == (1.0, "narrow")
    assert found[20] == (2.5, "narrow")
    assert all(map(pd.isna, found[50]))
    assert load(tmp_path / "kept").equals(after)
    ds = load(tmp_path / "kept", as_xarray=True)
    assert ds["kind"].dims == ("d", "N", "seed")
    assert ds["alpha"].attrs == {"long_name": "helper of the grid", "units": "1"}
    assert ds["alpha"].dims == ("N",)
    more = {**KEEPS, "blocks": [{**KEEPS["blocks"][0], "axes": {**KEEPS["blocks"][0]["axes"], "alpha": [1, 4]}}]}
    with pytest.warns(UserWarning, match="runs that are not of this grid"):
        grown = run(more, seeds=2, out=tmp_path / "kept", progress=False)
    assert sorted(grown["alpha"].unique()) == [1, 4]
    assert "alpha" not in run(plain, seeds=2, out=tmp_path / "plain", progress=False)
    resumed = run(KEEPS, seeds=3, out=tmp_path / "plain", progress=False)
    assert resumed["alpha"].isna().sum() == len(before) + 3 - 2


def test_a_search_keeps_helpers_of_every_level(tmp_path):
    grid = {"base": {"V": 16, "L": 3, "n_test": 64}, "keep": ["edge", "beta"], "blocks": [{"axes": {"beta": [1, 2]}}]}
    grid["blocks"][0]["derive"] = {"d": "8 * beta", "edge": "N // 2"}
    grid["search"] = {"axis": "N", "from": 16, "to": 256, "max_runs": 40, "width": 1}
    df = run(grid, seeds=20, progress=False)
    assert (df["edge"] == df["N"] // 2).all()
    assert (df["beta"] * 8 == df["d"]).all()


def test_without_xarray_the_error_names_the_extra(tmp_path):
    code = "import sys; sys.modules['xarray'] = None; import jaxrecall; jaxrecall.load('nowhere', as_xarray=True)"
    done = python(code)
    assert "UsageError: as_xarray: got True, and xarray is not installed; to install it: pip install 'jaxrecall[xarray]'" in done.stderr
