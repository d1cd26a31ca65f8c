"""The warning about attention that kappa limits: in the sweep's last lines, in a fit,
and where it is not due.
"""

import jaxrecall
from jaxrecall.sweep.__main__ import main
from jaxrecall.sweep.store.load import limited_by_kappa

GRID = """
name: small
base: {V: 16, d: 32, L: 4, n_test: 200}
seeds: 3
blocks:
  - axes: {kappa: [4, 1000], N: [4, 4096]}
"""


def test_cells_with_right_but_small_scores_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(GRID)
    assert main(["--grid", "small.yaml"]) == 0
    told = "kappa limits attention in 1 of 2 configurations, at kappa = 4, N = 4096"
    assert f"warning: {told}" in capsys.readouterr().out
    rows = jaxrecall.load("results/small")
    assert limited_by_kappa(rows, ["kappa", "N"]).startswith(told)
    assert any(
        told in text for text in jaxrecall.fit.fit(rows, [0.5], 100).diagnostics["text"]
    )
    locked = rows[rows["kappa"] > 500]
    assert (
        limited_by_kappa(locked, ["N"])
        == limited_by_kappa(rows.drop(columns="kappa"), ["N"])
        == ""
    )
    assert limited_by_kappa(rows[rows["kappa"] < 5].assign(steps=100), ["N"]) == ""
