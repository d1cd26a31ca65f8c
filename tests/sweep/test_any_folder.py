"""Results folders damaged in any way: every command reads what it can, or says in a
line what is wrong; a sweep makes them whole.
"""

import json
import os
import shutil
import warnings
from pathlib import Path

import attack
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attack import Calls, examples, mutated, odd, texts, trees
from helpers import NO_FIGURE
from hypothesis import given
from hypothesis import strategies as st

from jaxrecall import compact, fit, load, report, status
from jaxrecall.errors import StoreError
from jaxrecall.sweep import __main__ as sweep
from jaxrecall.sweep.api import thresholds
from jaxrecall.sweep.files import read_json
from jaxrecall.sweep.store import Store

GRID = """
name: tiny
base: {V: 16, L: 4, d: 4, n_test: 256, exact: full}
seeds: 2
blocks: [{axes: {N: [16, 64]}}]
"""
CALLS = Calls("folders")
OTHERS = [
    "manifest.json",
    "search.json",
    "failures/a.json",
    "failures/b",
    "_staging/1-00000000-x",
    "accuracy.png",
    "parts/readme",
    "parts/.x",
]


def make_results(folder: Path) -> Path:
    """A results folder of two parts with every kind of file, and GRID beside it as
    tiny.yaml.
    """
    for seeds, figure in (("1", NO_FIGURE), ("2", ())):
        (folder / "tiny.yaml").write_text(GRID.replace("seeds: 2", f"seeds: {seeds}"))
        assert (
            sweep.main(
                [
                    "--grid",
                    str(folder / "tiny.yaml"),
                    "--out",
                    str(folder / "tiny"),
                    *figure,
                ]
            )
            == 0
        )
    run = load(folder / "tiny").iloc[0]
    (folder / "tiny/failures").mkdir()
    record = {
        "runs": [[run["point_id"], int(run["seed"])]],
        "error": "e",
        "host": "h",
        "bucket": "16x4",
        "repeat": "r",
    }
    (folder / "tiny/failures/a.json").write_text(json.dumps(record))
    found = {
        "outcome": "found",
        "d": 4,
        "theta": 0.5,
        "N_star": 30.0,
        "lo": 20.0,
        "hi": 40.0,
        "point": {"V": 16, "L": 4, "m": 0},
    }
    (folder / "tiny/search.json").write_text(json.dumps({"cells": [found]}))
    return folder / "tiny"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    yield make_results(tmp_path_factory.mktemp("folder"))
    print(CALLS.report())


def parts(folder: Path) -> list[Path]:
    return [*sorted((folder / "parts").glob("*.parquet")), folder / "table.parquet"]


@st.composite
def bytes_of(draw, data: bytes) -> bytes:
    """The bytes of a file with some of them changed, cut off, added or repeated."""
    kind = draw(
        st.sampled_from(
            ["flip", "flip near the end", "cut", "add", "zero", "insert", "any"]
        )
    )
    at = draw(st.integers(0, max(0, len(data) - 1)))
    if kind == "flip near the end":
        at = max(0, len(data) - 1 - at % 400)
    if kind.startswith("flip"):
        changed = bytearray(data or b"a")
        changed[at] ^= 1 << draw(st.integers(0, 7))
        return bytes(changed)
    junk = draw(st.binary(max_size=20))
    length = draw(st.integers(1, 64))
    made = {
        "cut": data[:at],
        "add": data + junk,
        "zero": data[:at] + bytes(length) + data[at + length :],
        "insert": data[:at] + junk + data[at:],
    }
    return made.get(kind, junk)


def replaced(path: Path, kind: str, folder: Path) -> None:
    """Another kind of file in the place of `path`."""
    path.parent.mkdir(exist_ok=True)
    (
        shutil.rmtree(path)
        if path.is_dir() and not path.is_symlink()
        else path.unlink(missing_ok=True)
    )
    links = {
        "loop": path.name,
        "dangling": "nowhere",
        "itself": "..",
        "null": "/dev/null",
        "zero": "/dev/zero",
        "manifest": folder / "manifest.json",
    }
    if kind in links:
        path.symlink_to(links[kind])
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "sparse":
        with open(path, "wb") as file:
            file.truncate(3 * 2**30)
    elif kind == "other table":
        pd.DataFrame({"V": [1]}).to_parquet(path)
    elif kind == "no rows":
        pq.write_table(pa.table({}), path)


KINDS = [
    "loop",
    "dangling",
    "itself",
    "null",
    "zero",
    "manifest",
    "folder",
    "pipe",
    "sparse",
    "other table",
    "no rows",
    "nothing",
]


@st.composite
def any_json(draw, document) -> bytes:
    """JSON: the document with some entries changed, or anything else; in places not
    JSON.
    """
    made = draw(mutated([document], odd()) | trees)
    text = draw(
        st.sampled_from(
            [
                json.dumps(made),
                json.dumps(made, ensure_ascii=False),
                "[" * 3000 + "]" * 3000,
                "1" * 5000,
                "",
            ]
        )
    )
    data = text.encode("utf-8", "surrogatepass")
    return draw(bytes_of(data)) if draw(st.integers(0, 5)) == 5 else data


def changed_table(draw, table: pa.Table) -> pa.Table:
    """The rows of a part with a column, its name, its type, its rows or the metadata
    changed.
    """
    if not table.column_names:
        return table
    name = draw(st.sampled_from(table.column_names))
    at = table.column_names.index(name)
    kind = draw(
        st.sampled_from(["metadata", "value", "remove", "rename", "add", "rows"])
    )
    if kind == "metadata":
        value = json.dumps(
            draw(
                st.sampled_from(
                    [[1], 5, {"columns": 5}, {"columns": None}, {"columns": [1]}]
                )
                | trees
            )
        )
        key = draw(st.sampled_from([b"pandas", b"jaxrecall", b"ARROW:schema"]))
        return table.replace_schema_metadata(
            {
                **(table.schema.metadata or {}),
                key: draw(st.sampled_from([value.encode(), b"\xff", b"{"])),
            }
        )
    table = table.replace_schema_metadata(None)
    if kind == "remove":
        return table.remove_column(at)
    if kind == "rename":
        return table.rename_columns(
            [
                draw(texts.filter(_is_text)) if other == name else other
                for other in table.column_names
            ]
        )
    if kind == "rows":
        return draw(
            st.sampled_from(
                [
                    table[:0],
                    table[:1],
                    pa.concat_tables([table, table]),
                    table.select([]),
                ]
            )
        )
    value = draw(
        st.sampled_from(
            [
                None,
                -1,
                2**62,
                float("nan"),
                float("inf"),
                "",
                "$x_{",
                "\x00",
                {"a": 1},
                [1],
                b"\xff",
                True,
                0.5,
                3,
            ]
        )
    )
    if kind == "add":
        return table.append_column(
            draw(texts.filter(_is_text)), pa.array([value] * len(table))
        )
    column = table[name].combine_chunks()
    values = [value, *column.to_pylist()[1:]]
    try:
        return table.set_column(at, name, pa.array(values, column.type))
    except (pa.ArrowException, TypeError, OverflowError):
        return table.set_column(at, name, pa.array([value] * len(table)))


def _is_text(name: str) -> bool:
    return "\ud800" not in name and name.isprintable()


def damage_part(draw, folder: Path) -> bool:
    """Damages a part or the table; whether any value in it may have changed without
    notice.
    """
    path = draw(st.sampled_from(parts(folder)))
    if not path.is_file() or path.is_symlink():
        return False
    kind = draw(st.sampled_from(["bytes", "bytes", "table", "table", "replaced"]))
    if kind == "bytes":
        path.write_bytes(draw(bytes_of(path.read_bytes())))
    elif kind == "replaced":
        replaced(path, draw(st.sampled_from(KINDS)), folder)
    else:
        try:
            pq.write_table(changed_table(draw, pq.read_table(path)), path)
        except (pa.ArrowException, OSError, ValueError):  # the part is damaged already
            return False
        return True
    return False


def damage_other(draw, folder: Path) -> bool:
    """Damages a file that holds no rows."""
    name = draw(st.sampled_from(["manifest.json"] * 6 + OTHERS))
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    if draw(st.integers(0, 3)) == 3:
        replaced(path, draw(st.sampled_from(KINDS)), folder)
    elif (path.is_file() and not path.is_symlink()) or not os.path.lexists(
        path
    ):  # not a pipe, which would keep the test waiting
        try:
            document = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            document = {"runs": []}
        path.write_bytes(
            draw(
                any_json(
                    document
                    if document and isinstance(document, (dict, list))
                    else {"a": 1}
                )
            )
        )
    return False


def damage_folder(draw, folder: Path) -> bool:
    """Replaces a folder of the results folder."""
    replaced(
        folder / draw(st.sampled_from(["parts", "failures", "_staging"])),
        draw(st.sampled_from(KINDS)),
        folder,
    )
    return False


def run_all(folder: Path, figures: bool = True) -> dict[str, int]:
    """The exit code of each command, each one of those allowed; without figures, a
    report draws SVG alone, and a sweep nothing.
    """
    CALLS("load", load, folder, refused=StoreError)
    grid = str(folder.parent / "tiny.yaml")
    commands = {
        "status": (status, [str(folder)]),
        "status --json": (status, [str(folder), "--json"]),
        "dry run": (sweep, ["--grid", grid, "--out", str(folder), "--dry-run"]),
        "fit": (fit, [str(folder)]),
        "report": (
            report,
            [str(folder), *(() if figures else ("--format", "svg"))],
        ),
        "compact": (compact, [str(folder)]),
        "sweep": (
            sweep,
            ["--grid", grid, "--out", str(folder), *(() if figures else NO_FIGURE)],
        ),
    }
    codes = {
        name: CALLS(name, command.main, arguments)
        for name, (command, arguments) in commands.items()
    }
    assert set(codes.values()) <= {0, 2, 3}, codes
    return codes


@pytest.mark.parametrize(
    ("damage", "few", "full"),
    [
        (damage_part, 2, 500),
        pytest.param(damage_other, 2, 400, marks=pytest.mark.slow),
        pytest.param(damage_folder, 1, 100, marks=pytest.mark.slow),
    ],
    ids=["parts", "others", "folders"],
)
def test_any_damage(results, tmp_path, damage, few, full):
    whole = load(results).drop(columns="seconds")

    @examples(few, full)
    @given(st.data())
    def holds(data) -> None:
        folder = tmp_path / "results"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(results, folder)
        (tmp_path / "tiny.yaml").write_text(GRID)
        if damage is not damage_folder and data.draw(st.booleans()):
            compact.main([str(folder)])
        changed = [
            damage(data.draw, folder) for _ in range(data.draw(st.integers(1, 2)))
        ]
        codes = run_all(folder, figures=attack.full_counts)
        if codes["sweep"] == 0 and not any(changed):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                pd.testing.assert_frame_equal(
                    load(folder).drop(columns="seconds"), whole
                )

    holds()


@pytest.mark.parametrize("kind", ["zero", "pipe", "sparse", "folder"])
@pytest.mark.parametrize("name", ["manifest.json", "search.json", "failures/a.json"])
def test_files_that_are_no_files(tmp_path, name, kind):
    store = Store(tmp_path / "results")
    store.prepare({"grid": {}, "command": "c"})
    replaced(store.folder / name, kind, store.folder)
    assert CALLS("status", status.main, [str(store.folder)]) == 0
    with pytest.raises(
        ValueError,
        match="not a regular file" if kind != "sparse" else "more than 67108864 bytes",
    ):
        CALLS("read", read_json, store.folder / name)


@pytest.mark.parametrize(
    "cells",
    [
        [1],
        [{"lo": 1}],
        [{"N_star": 10**400, "lo": 1, "hi": 2}],
        [{"N_star": "a", "lo": 1, "hi": 2}],
        3,
    ],
)
def test_results_of_a_search_that_are_none(tmp_path, cells):
    (tmp_path / "search.json").write_text(json.dumps({"cells": cells}))
    with pytest.raises(StoreError, match=r"search.json: is no result of a search"):
        thresholds(tmp_path)
