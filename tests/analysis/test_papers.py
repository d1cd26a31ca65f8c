"""The page on neighbouring papers: its tables are those that scripts print from the
committed tables of rows.
"""

import runpy
import sys

import pytest
from helpers import ROOT

PAGE = (ROOT / "docs/papers.md").read_text()
SECTIONS = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}
SCRIPTS = {
    "Muon and SGD on the associative memory": "muon",
    "What a memory stores": "rows",
    "Does the optimiser change what attention learns?": "spectral",
    "Embeddings of a real model": "real",
}


LONG = (
    "Does the optimiser change what attention learns?",
    "Muon and SGD on the associative memory",
)
"""Their scripts take many seconds; test_papers_spectral.py and test_papers_muon.py test
what they compute.
"""


@pytest.mark.parametrize(
    "heading",
    [
        pytest.param(heading, marks=pytest.mark.slow if heading in LONG else ())
        for heading in SECTIONS
    ],
)
def test_the_table_of_a_section_is_printed_by_its_script(heading, monkeypatch, capsys):
    script = ROOT / f"results/papers/{SCRIPTS[heading]}.py"
    monkeypatch.syspath_prepend(script.parent)
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    printed = {line.strip() for line in capsys.readouterr().out.splitlines()}
    rows = [
        line
        for line in SECTIONS[heading].splitlines()
        if line.startswith("| ") and "---" not in line
    ]
    assert len(rows) > 5
    assert [row for row in rows[1:] if row not in printed] == []
