"""python -m jaxrecall.examples: lists the grids that come with the package, and copies one to the current folder."""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take long
    from .cli import start

    start("jaxrecall.examples")

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from .cli import OK, USAGE, answer, called
from .errors import UsageError, suggest

SCHEMA = "grid.schema.json"


def folder() -> Path:
    """Where the grids are: inside the installed package, or `sweeps/` of a clone."""
    installed = Path(__file__).parent / "_examples"
    return installed if installed.is_dir() else Path(__file__).parent.parent / "sweeps"


def grids() -> dict[str, Path]:
    """The files of the grids by name, the quickstart first."""
    paths = sorted(folder().glob("*.yaml"), key=lambda path: (path.stem != "quickstart", path.stem))
    return {path.stem: path for path in paths}


def about(path: Path) -> str:
    """The first sentence of the first comment in a grid."""
    comment = re.search(r"(?:^# (?!yaml-language-server).*\n)+", path.read_text(encoding="utf-8"), re.M)
    text = " ".join(line.lstrip("# ") for line in comment[0].splitlines()) if comment else ""
    return re.split(r"(?<=[.?])\s", text)[0]


def copy(name: str, to: Path) -> Path:
    """Copies a grid to the folder `to`, with the schema that its first line names for editors; raises UsageError."""
    known = grids()
    if name.removesuffix(".yaml") not in known:
        raise UsageError(f"NAME: got {name}{suggest(name, known)}; allowed: {', '.join(known)}")
    source = known[name.removesuffix(".yaml")]
    target, schema = to / source.name, to / SCHEMA
    try:
        with open(target, "x", encoding="utf-8") as file:
            file.write(source.read_text(encoding="utf-8"))
        if not schema.exists():
            schema.write_text((folder() / SCHEMA).read_text(encoding="utf-8"), encoding="utf-8")
    except FileExistsError:
        raise UsageError(f"{target}: exists already and is not overwritten; move it away, or run it: {_run(target)}") from None
    except OSError as error:
        raise UsageError(f"{error.filename or target}: cannot be written: {error.strerror}") from None
    return target


def _run(grid: Path) -> str:
    return called("sweep", ["--grid", str(grid)])


def main(argv: Sequence[str] | None = None) -> int:
    """Parses, lists or copies, prints; returns the exit code: 0 done, 2 refused."""
    parser = argparse.ArgumentParser(
        prog=called("examples"),
        description="List the grids that come with the package, or copy one to the current folder.",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="the grid to copy; without it, all are listed")
    args = parser.parse_args(argv)
    if args.name is None:
        width = max(map(len, grids()))
        listed = [f"{name:<{width}}  {about(path)}" for name, path in grids().items()]
        return answer("\n".join([*listed, f"\nTo copy one to the current folder: {called('examples')} quickstart"]))
    try:
        target = copy(args.name, Path())
    except UsageError as error:
        print(error, file=sys.stderr)
        return USAGE
    print(f"copied {target}, and {SCHEMA} for editors. To run it: {_run(target)}")
    return OK
