"""Tables of studies as data, `results/table.py`: lines, columns, cells and texts."""

import importlib
import sys

import numpy as np
import pandas as pd
import pytest
import yaml
from helpers import ROOT

RUNS = [("sphere", 32, 256, 0.25), ("sphere", 32, 8, 0.5)]
RUNS += [("gaussian", 32, 64, 0.7), ("gaussian", 64, 8, 0.8)]
ROWS = pd.DataFrame(RUNS, columns=["law", "d", "L", "accuracy"])


@pytest.fixture
def table(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "results")
    return importlib.import_module("table")


ACCURACIES = """
| law | d | L = 8 | L = 64 | L = 256 |
| --- | --- | --- | --- | --- |
| sphere | 32 | 0.50 | not run | 0.25 |
| gaussian | 32 | not run | 0.70 | not run |
| gaussian | 64 | 0.80 | not run | not run |
""".strip()


def test_a_line_is_a_group_and_a_column_is_a_value(table):
    @table.as_table(["law", "d"], {"L = {L}": "{accuracy:.2f}"}, missing="not run")
    def accuracies():
        return ROWS

    assert accuracies() == ACCURACIES


CELLS = yaml.safe_load("""
1.23e3 [1e3, 2e3]: {critical: 1234.0, lo: 1000.0, hi: 2000.0}
87, no interval: {critical: 87.0}
levels off: {outcome: plateau}
none to 512: {outcome: right}
under 16: {censored: left}
undecided: {outcome: undecided}
""")


@pytest.mark.parametrize("text", CELLS)
def test_a_critical_value_has_an_interval_or_the_reason_why_not(table, text):
    row = dict.fromkeys(["critical", "lo", "hi"], np.nan) | CELLS[text]
    rows = pd.DataFrame([row | {"N_above": 16, "N_below": 512}])
    assert table.with_interval()(rows) == text


def test_tables_that_the_command_line_names_are_printed(table, monkeypatch, capsys):
    def two():
        """Two."""
        return ROWS[:2]

    tables = {"two": table.as_table()(two), "all": table.as_table()(lambda: ROWS)}
    monkeypatch.setattr(sys, "argv", ["tables.py", "two", "--draw"])
    table.print_tables(tables)
    assert capsys.readouterr().out == f"two: Two.\n\n{tables['two']()}\n\n"
    monkeypatch.setattr(sys, "argv", ["tables.py", "three"])
    with pytest.raises(SystemExit, match="no table three; there are two, all"):
        table.print_tables(tables)
