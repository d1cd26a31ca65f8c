"""Results folders that are damaged as in tests/sweep/test_any_folder.py, read by every
command and then resumed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from hypothesis import strategies as st
from test_any_folder import (
    damage_folder,
    damage_other,
    damage_part,
    make_results,
    run_all,
)

from attack.inputs import drawn
from attack.tries import Tries, Try
from jaxrecall import compact, load

RUN = ["point_id", "seed", "step"]


def parts(tries: Tries) -> None:
    damaged(tries, [damage_part])


def others(tries: Tries) -> None:
    damaged(tries, [damage_other, damage_other, damage_folder])


def damaged(tries: Tries, ways: list[Callable[[Any, Path], bool]]) -> None:
    home = tries.home
    results, folder = make_results(home), home / "results"
    whole = load(results).drop(columns="seconds")

    def make(draw: Any) -> tuple[bool, list[tuple[str, bool]]]:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(results, folder)
        compacted = draw(st.booleans())
        if compacted:
            compact.main([str(folder)])
        done = [
            (way.__name__, way(draw, folder))
            for way in [
                draw(st.sampled_from(ways)) for _ in range(draw(st.integers(1, 2)))
            ]
        ]
        return compacted, done

    def attempt(made: Any) -> None:
        compacted, done = made
        files = {
            str(path.relative_to(folder)): path.lstat().st_size
            for path in sorted(folder.rglob("*"))
        }
        with tries.one(f"{done} after compact: {compacted}; {files}") as one:
            codes = run_all(folder)
            if codes["sweep"] == 0 and not any(changed for _, changed in done):
                compare(one, load(folder).drop(columns="seconds"), whole)
            if any(codes.values()):
                one.refused()

    drawn(tries, make, attempt)


def compare(one: Try, rows: pd.DataFrame, whole: pd.DataFrame) -> None:
    """Counts the rows that are missing and those there twice; any other difference is
    an AssertionError.
    """
    count(one, rows, whole)
    if not one.doubled and not one.lost:
        pd.testing.assert_frame_equal(rows, whole)


def count(one: Try, rows: pd.DataFrame, whole: pd.DataFrame) -> None:
    one.doubled += int(rows.duplicated(RUN).sum())
    one.lost += len(whole) - len(whole.merge(rows[RUN].drop_duplicates(), on=RUN))
