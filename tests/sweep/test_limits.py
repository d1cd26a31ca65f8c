"""A file that would take any memory or time is refused from its size or its footer."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jaxrecall import load
from jaxrecall.analysis.fit.reading import read_tables
from jaxrecall.compact import compact
from jaxrecall.errors import FitError, StoreError
from jaxrecall.report import main as report
from jaxrecall.sweep import machine
from jaxrecall.sweep.store.survey import survey

TEXTS = pa.DictionaryArray.from_arrays(pa.array([0] * 2000), ["x" * 10**6])
AXES = {"jaxrecall": json.dumps({"axes": ["x"] * 5001})}
BOMBS = {
    "10000000 rows of 1 columns, which take": pa.table({"x": pa.nulls(10**7)}),
    "2000 rows of 1 columns, which take": pa.table({"x": TEXTS}),
    "1 rows of 1 columns, which take": pa.table(
        {"x": pa.ListArray.from_arrays([0, 2000], TEXTS)}
    ),
    "5001 columns; allowed: up to 5000": pa.table({str(i): [1] for i in range(5001)}),
    "301 characters in the name": pa.table({"x" * 301: [1]}),
    "5001 entries of axes": pa.table({"x": [1]}).replace_schema_metadata(AXES),
}


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "2000")
    machine.memory.cache_clear()
    yield
    machine.memory.cache_clear()


@pytest.mark.parametrize("told", BOMBS)
def test_every_command_names_a_part_that_does_not_fit(tmp_path, little_memory, told):
    (tmp_path / "parts").mkdir()
    part = tmp_path / "parts/x.parquet"
    pq.write_table(BOMBS[told], part)
    for command in (load, compact):
        with pytest.raises(StoreError, match=told):
            command(tmp_path)
    assert told in survey(tmp_path)["unreadable"][0]["reason"]
    with pytest.raises(FitError, match=told):
        read_tables(part)


def test_a_sparse_file_is_not_read(tmp_path, capsys):
    (tmp_path / "parts").mkdir()
    (tmp_path / "report.html").write_text('<!-- jaxrecall: {"rows": 1} -->')
    for name in ("report.html", "parts/x.parquet", "table.parquet"):
        with open(tmp_path / name, "ab") as file:
            file.truncate(2**40)
            if name == "table.parquet":
                file.seek(0, 2)
                file.write(b"\xff\xff\xff\xffPAR1")
    with pytest.raises(StoreError, match="4294967295 bytes in the footer; allowed"):
        compact(tmp_path)
    assert report([str(tmp_path)]) == 2
    assert "report.html has more than 67108864 bytes" in capsys.readouterr().err


def test_a_footer_that_lies_is_not_believed(tmp_path):
    n, path = 2**22, tmp_path / "x.parquet"
    zeros = pa.ListArray.from_arrays([0, n], pa.array(np.zeros(n, np.int8)))
    pq.write_table(pa.table({"x": zeros}), path)
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    # 2 n and 20, as Thrift has them
    footer = data[start:].replace(b"\x80\x80\x80\x04", b"\x94\x80\x80\x00")
    path.write_bytes(data[:start] + footer)
    assert pq.read_metadata(path).row_group(0).column(0).num_values == 10
    with pytest.raises(FitError, match="more values than the footer says"):
        read_tables(path)
