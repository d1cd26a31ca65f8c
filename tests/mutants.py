"""How much the fast tests see: forty small faults, each planted alone, and whether a
test of its room fails.

    nice python tests/mutants.py [room ...] [--only 3 17] [--minutes 90]

The package is copied, one fault is planted, and the fast tests of its room run, the
closest first, up to the first that fails and for 5 minutes at most. A fault whose line
is no longer there is "gone".

Where the faults stand was drawn: of every room the lines of code with a comparison, a
sum, a sign or a condition, shuffled by `random.Random(43)`; on the first ten of these
that can be wrong without being a mere matter of speed, a fault was written that
somebody could make. Where the code of a fault has moved, it is planted in its new
place; where it went, in another line of the same part.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).parent.parent
SECONDS = 300

ROOMS = {
    "simulator": (
        "tests/simulator tests/sweep/test_shipped_simulators.py"
        " tests/sweep/test_custom.py"
    ),
    "store": (
        "test_store test_readers test_damage test_any_folder test_shard"
        " test_status test_api test_sweep"
    ),
    "search": (
        "test_crossing test_search tests/analysis/test_fit.py"
        " tests/analysis/test_best.py tests/analysis/test_latex.py"
        " tests/analysis/test_any_table.py tests/analysis/test_pandas_tables.py"
        " tests/analysis/test_report.py"
    ),
    "grid": (
        "test_grid tests/system/test_refusals.py test_any_document test_plan"
        " test_search test_api test_custom"
    ),
}
"""The tests of each room; a bare name is a file of tests/sweep."""


class Mutant(NamedTuple):
    room: str
    file: str
    old: str
    new: str
    first: str = ""  # tests of its room that run before the others


MUTANTS = [
    Mutant(**given)
    for given in yaml.safe_load((ROOT / "tests/mutants.yaml").read_text())
]


def tests_of(mutant: Mutant, tree: Path) -> list[str]:
    """The files of tests of its room that are there, the closest first, each once."""

    def files(names: str, folder: str) -> list[str]:
        paths = [
            tree / (name if "/" in name else f"{folder}/{name}.py")
            for name in names.split()
        ]
        return [
            str(file.relative_to(tree))
            for path in paths
            for file in (sorted(path.glob("test_*.py")) if path.is_dir() else [path])
        ]

    folder = "tests/simulator" if mutant.room == "simulator" else "tests/sweep"
    return [
        *dict.fromkeys(
            name
            for name in files(mutant.first, folder) + files(ROOMS[mutant.room], folder)
            if (tree / name).exists()
        )
    ]


def outcome(mutant: Mutant, python: str) -> tuple[str, str]:
    """What became of the fault, and the test that saw it."""
    if (
        not (ROOT / mutant.file).exists()
        or (ROOT / mutant.file).read_text().count(mutant.old) != 1
    ):
        return "gone", ""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(
            ROOT,
            tree,
            symlinks=True,
            ignore=shutil.ignore_patterns(".git", ".venv*", "__pycache__", "_build"),
        )
        path = tree / mutant.file
        path.write_text(path.read_text().replace(mutant.old, mutant.new))
        command = [
            python,
            "-m",
            "pytest",
            "-x",
            "-q",
            "--tb=no",
            "-p",
            "no:cacheprovider",
            *tests_of(mutant, tree),
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": str(tree),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        process = subprocess.Popen(
            command,
            cwd=tree,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return "survived", f"after {SECONDS} s"
    failed = [line for line in said.splitlines() if line.startswith("FAILED")]
    if process.returncode == 0:
        return "survived", ""
    if process.returncode == 1 and failed:
        return "killed", failed[0].split(" - ")[0]
    # no test saw the fault: nothing could be imported or collected
    return "broken", said.splitlines()[-1] if said else f"exit {process.returncode}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rooms", nargs="*", choices=[[], *ROOMS], help="default: all")
    parser.add_argument(
        "--only",
        nargs="+",
        type=int,
        default=range(1, len(MUTANTS) + 1),
        help="numbers of faults",
    )
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="start none after so long"
    )
    parser.add_argument("--python", default=sys.executable)
    asked = parser.parse_args()
    begun, counts = time.monotonic(), {}
    for number, mutant in enumerate(MUTANTS, 1):
        if (
            number not in asked.only
            or (asked.rooms and mutant.room not in asked.rooms)
            or time.monotonic() > begun + 60 * asked.minutes
        ):
            continue
        start = time.monotonic()
        what, test = outcome(mutant, asked.python)
        counts[mutant.room, what] = counts.get((mutant.room, what), 0) + 1
        print(
            f"{number:2d} {mutant.room:9s} {mutant.file:36s} {what:8s}"
            f" {time.monotonic() - start:4.0f} s  {test}",
            flush=True,
        )
    print(", ".join(f"{room}: {n} {what}" for (room, what), n in counts.items()))


if __name__ == "__main__":
    main()
