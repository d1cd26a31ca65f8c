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

ROOT = Path(__file__).parent.parent
SECONDS = 300

ROOMS = {
    "simulator": (
        "tests/simulator tests/sweep/test_shipped_simulators.py"
        " tests/sweep/test_custom.py"
    ),
    "store": (
        "test_store test_readers test_names test_damage test_any_folder test_shard"
        " test_status test_api test_sweep"
    ),
    "search": (
        "test_crossing test_search tests/analysis/test_fit.py"
        " tests/analysis/test_best.py tests/analysis/test_latex.py"
        " tests/analysis/test_any_table.py tests/analysis/test_pandas_tables.py"
        " tests/analysis/test_report.py"
    ),
    "grid": (
        "test_grid test_names test_any_document test_plan test_search test_api"
        " test_custom"
    ),
}
"""The tests of each room; a bare name is a file of tests/sweep."""


class Mutant(NamedTuple):
    room: str
    file: str
    old: str
    new: str
    first: str = ""  # tests of its room that run before the others


SIMULATOR, STORE, FIT, SWEEP, GRID = (
    f"jaxrecall/{room}"
    for room in ("simulator", "sweep/store", "analysis/fit", "sweep", "sweep/grid")
)

MUTANTS = [
    Mutant(
        "simulator",
        f"{SIMULATOR}/forms.py",
        'if point.is_memory:\n        return "memory"',
        'if not point.is_memory:\n        return "memory"',
        "test_memory",
    ),
    Mutant(
        "simulator",
        f"{SIMULATOR}/sources/source.py",
        "return world.run.L - 1",
        "return world.run.L - 2",
        "test_packaging",
    ),
    Mutant(
        "simulator",
        f"{SIMULATOR}/gradient.py",
        "p @ table - gather(table, y)",
        "p @ table + gather(table, y)",
        "test_descent",
    ),
    Mutant(
        "simulator",
        f"{SIMULATOR}/rows.py",
        "zip(NORMS, now",
        "zip(NORMS[::-1], now",
        "test_traces",
    ),
    Mutant(
        "simulator",
        f"{SIMULATOR}/sources/pool_draws.py",
        "jnp.sqrt(mean) * (x - jnp.sum(",
        "jnp.sqrt(mean) * (x + jnp.sum(",
        "test_pool",
    ),
    Mutant(
        "simulator",
        f"{SIMULATOR}/forward.py",
        "gather(self.rows, row + first)",
        "gather(self.rows, row)",
        "test_forms",
    ),
    Mutant(
        "simulator",
        f"{SIMULATOR}/world.py",
        "table - mean[None], f32(0))",
        "table + mean[None], f32(0))",
        "test_diagnosis",
    ),
    Mutant(
        "simulator",
        f"{SIMULATOR}/sources/counts.py",
        "[(informative, 1 / L), (noise, 1 - 1 / L)]",
        "[(informative, 1 - 1 / L), (noise, 1 / L)]",
        "test_forms",
    ),
    Mutant(
        "simulator",
        f"{SIMULATOR}/losses.py",
        "features(world, seen.h)[0], y)",
        "features(world, seen.h)[-1], y)",
        "test_traces",
    ),
    Mutant(
        "simulator",
        f"{SIMULATOR}/custom_runs.py",
        "stream == 0, common,",
        "stream != 0, common,",
        "tests/sweep/test_shipped_simulators.py tests/sweep/test_custom.py",
    ),
    Mutant(
        "store",
        f"{STORE}/table.py",
        'rows["rows"] - n)',
        'n - rows["rows"])',
        "test_status",
    ),
    Mutant(
        "store",
        f"{STORE}/load.py",
        'facts.get(name) not in (None, "", {})',
        'facts.get(name) in (None, "", {})',
        "test_stranger",
    ),
    Mutant(
        "store",
        f"{STORE}/table.py",
        "len(table[name].unique()) > 1",
        "len(table[name].unique()) < 1",
    ),
    Mutant(
        "store",
        f"{STORE}/load.py",
        "point_id in ids and seed in seeds",
        "point_id in ids or seed in seeds",
        "test_api",
    ),
    Mutant(
        "store",
        f"{STORE}/table.py",
        'return facts.get("simulator") is not None',
        'return facts.get("simulator") is None',
        "test_readers",
    ),
    Mutant(
        "store",
        f"{STORE}/table.py",
        "_are_texts(value) and {*value} <= {*columns}",
        "_are_texts(value) or {*value} <= {*columns}",
        "test_stranger",
    ),
    Mutant(
        "store",
        f"{STORE}/__init__.py",
        "if failed and failed <= runs:",
        "if failed and failed & runs:",
    ),
    Mutant(
        "store",
        f"{STORE}/table.py",
        '"boolean"} if has_null',
        '"boolean"} if not has_null',
        "test_readers",
    ),
    Mutant(
        "store",
        f"{STORE}/table.py",
        "columns = [*part.needed, *part.measured]",
        "columns = [*part.needed]",
        "test_stranger",
    ),
    Mutant(
        "store",
        f"{STORE}/table.py",
        "len(written) == len(names) and written != names",
        "len(written) != len(names) and written != names",
        "test_damage",
    ),
    Mutant(
        "search",
        f"{SWEEP}/search.py",
        "if target.checks:",
        "if not target.checks:",
        "test_search",
    ),
    Mutant(
        "search",
        f"{FIT}/estimate.py",
        "np.where(self.side == 0, y, np.nan)",
        "np.where(self.side == 0, np.nan, y)",
        "tests/analysis/test_fit.py",
    ),
    Mutant(
        "search",
        f"{FIT}/cells.py",
        "None if original is None else cells[original].at",
        "None if original is None else cells[-1].at",
        "tests/analysis/test_fit.py",
    ),
    Mutant(
        "search",
        f"{FIT}/estimate.py",
        "np.where(np.isnan(each), np.inf, each).min(axis=0)",
        "np.where(np.isnan(each), np.inf, each).max(axis=0)",
        "tests/analysis/test_best.py",
    ),
    Mutant(
        "search",
        f"{FIT}/runs.py",
        "bad = ~((values >= low)",
        "bad = ~((values > low)",
        "tests/analysis/test_any_table.py",
    ),
    Mutant(
        "search",
        f"{FIT}/tables.py",
        "top - last > 0.1 * c.scale",
        "top - last < 0.1 * c.scale",
        "tests/analysis/test_fit.py",
    ),
    Mutant(
        "search",
        f"{FIT}/estimate.py",
        "sign = -1 if family.falls else 1",
        "sign = 1 if family.falls else -1",
        "tests/analysis/test_best.py",
    ),
    Mutant(
        "search",
        f"{SWEEP}/crossing.py",
        "without=-change[",
        "without=change[",
        "test_crossing",
    ),
    Mutant(
        "search",
        f"{FIT}/cells.py",
        "return bool(first > last)",
        "return bool(first < last)",
        "tests/analysis/test_fit.py",
    ),
    Mutant(
        "search",
        f"{FIT}/runs.py",
        'last = frame.groupby(point, dropna=False)["step"].transform("max")',
        'last = frame["step"].max()',
        "tests/analysis/test_fit.py",
    ),
    Mutant(
        "grid",
        f"{GRID}/axes.py",
        "low % 1 != 0 or high % 1 != 0",
        "low % 1 != 0 and high % 1 != 0",
    ),
    Mutant(
        "grid",
        f"{GRID}/file.py",
        "sorted(line.strings - texts)",
        "sorted(line.strings & texts)",
    ),
    Mutant(
        "grid",
        f"{GRID}/__init__.py",
        "if len(found) > 1:",
        "if len(found) >= 1:",
        "test_search",
    ),
    Mutant("grid", f"{GRID}/file.py", "if not low < high:", "if not low <= high:"),
    Mutant(
        "grid",
        f"{GRID}/document.py",
        "if convert and len(self.mistakes) == n_before:",
        "if convert and len(self.mistakes) > n_before:",
    ),
    Mutant(
        "grid",
        f"{GRID}/__init__.py",
        "if name in names and name not in following:",
        "if name in names:",
    ),
    Mutant(
        "grid",
        f"{GRID}/axes.py",
        "if isinstance(value, list):\n        return tuple(value)",
        "if isinstance(value, list):\n        return (value,)",
    ),
    Mutant(
        "grid",
        f"{GRID}/__init__.py",
        'if "." in name:',
        'if "." not in name:',
        "test_names",
    ),
    Mutant(
        "grid",
        f"{GRID}/axes.py",
        "return self.checked(name, text) == text",
        "return self.checked(name, text) != text",
    ),
    Mutant(
        "grid",
        f"{GRID}/axes.py",
        "if value is None and name not in self.required:",
        "if value is None and name in self.required:",
    ),
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
