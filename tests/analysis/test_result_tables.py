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


def lines(text):
    return [line[2:-2].split(" | ") for line in text.splitlines()]


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
        """Accuracy by law."""
        return ROWS

    assert accuracies() == ACCURACIES
    assert accuracies.__name__ == "accuracies"
    assert accuracies.__doc__ == "Accuracy by law."


def test_heads_of_the_same_axis_take_turns_and_texts_are_filled_with_means(table):
    cells = {"mean": "{accuracy:.2f}", "L {L}": len, "L {L}: d": "{d}"}
    found = table.as_table(["law"], cells)(lambda: ROWS)
    heads, _, _, gaussian = lines(found())
    assert heads[:4] == ["law", "mean", "L 8", "L 8: d"]
    assert gaussian == ["gaussian", "0.75", "1", "64", "1", "32", "", ""]


def test_without_cells_the_columns_are_shown_and_without_index_the_rows(table):
    rows = [{"N": 2.0, "is it": True}, {"N": 0.5}, {"N": 2e12, "is it": False}]
    shown = table.as_table()(lambda: rows)()
    assert lines(shown)[2:] == [["2", "yes"], ["0.5", ""], ["2e12", "no"]]
    single = table.as_table(cells={"N": "{N:.1f}"})(lambda: rows[:2])
    assert lines(single())[2:] == [["2.0"], ["0.5"]]


NUMBERS = {86.7: "87 87", 1234.0: "1.23e3 1,230", 2e12: "2e12 2.00e12"}


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_have_three_digits(table, number):
    shown = table.filled("{N:short} {N:commas}", {"N": number})
    assert shown == NUMBERS[number]


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


def test_rows_of_several_parts_are_repeated(table):
    parts = {"wide": "d > 32", "all": "d > 0"}
    found = table.stacked(ROWS, "part", parts)
    assert found["part"].value_counts(sort=False).to_dict() == {"wide": 1, "all": 4}


def test_infinite_errors_count_in_the_median_alone(table):
    rows = pd.DataFrame({"off": [0.1, -0.3, np.inf, np.inf]})
    texts = [cell(rows) for cell in table.ERRORS.values()]
    assert texts == [4, "inf", "-0.100", "-0.30"]


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
