"""Hostile grids and tables, as tests/sweep/test_any_document.py and
tests/analysis/test_any_table.py make them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from test_any_document import (
    check_dict,
    check_file,
    documents,
    files,
    objects,
    overrides,
)
from test_any_table import arrow_tables

from attack import Calls
from attack.tries import Tries
from jaxrecall import fit, report

BATCH = 40
CALLS = Calls("attack")


class Ended(Exception):
    """There is nothing more to do."""


def drawn(
    tries: Tries, make: Callable[[Any], Any], attempt: Callable[[Any], None]
) -> None:
    """Attempts what `make` makes with hypothesis's draw, while there is more to do."""
    while tries.more():
        chosen = seed(tries.chance.getrandbits(32))
        few = settings(
            max_examples=BATCH,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )

        @chosen
        @few
        @given(st.data())
        def batch(data: Any) -> None:
            made = make(data.draw)
            # not before it is made: hypothesis wants the same draws each time
            if not tries.more():
                raise Ended
            attempt(made)

        with suppress(Ended):
            batch()


def grid_files(tries: Tries) -> None:
    path = tries.home / "grid.yaml"

    def attempt(made: Any) -> None:
        data, sets = made
        with tries.one(f"grid file {data!r} with --set {sets!r}") as one:
            if check_file(path, data, sets):
                one.refused()

    drawn(tries, lambda draw: (draw(files()), draw(overrides)), attempt)


def grid_dicts(tries: Tries) -> None:
    def attempt(made: Any) -> None:
        document, seeds = made
        with tries.one(f"run({document!r}, seeds={seeds!r})") as one:
            if not check_dict(document, seeds):
                one.refused()

    drawn(tries, lambda draw: (draw(documents), draw(st.none() | objects())), attempt)


def tables(tries: Tries) -> None:
    options = st.sampled_from(
        [
            [],
            ["--theta", "0.3", "0.9"],
            ["--where", "L * d > V"],
            ["--of", "step1_memory_accuracy"],
        ]
    )
    path = tries.home / "table.parquet"

    def attempt(made: Any) -> None:
        table, more = made
        try:
            pq.write_table(table, path)
        except (pa.ArrowException, ValueError):  # Parquet has no such type
            return
        arguments = [str(path), *more]
        with tries.one(f"fit and report {more} of {table.to_pydict()!r}") as one:
            fitted = CALLS("fit", fit.main, arguments)
            assert fitted in (0, 2)
            if not {"--where", "--of"} & {*more}:
                assert CALLS("report", report.main, [*arguments]) == fitted
            if fitted:
                one.refused()

    drawn(tries, lambda draw: (draw(arrow_tables()), draw(options)), attempt)
