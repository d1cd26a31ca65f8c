"""jaxrecall examples: lists the grids that come with the package, and copies one.

It goes to the current folder.

A grid of a simulator other than that of the package is copied together with the
simulator's module, one of a given table with the table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError, shortened, suggest
from .command import Parser, answer, called, command

SCHEMA = "grid.schema.json"


def folders() -> tuple[Path, ...]:
    """Where the grids are: a folder of the installed package, or two of a clone.

    Those of a clone are `sweeps/` and `examples/`.
    """
    installed, clone = (
        Path(__file__).parents[1] / "_examples",
        Path(__file__).parents[2],
    )
    return (
        (installed,) if installed.is_dir() else (clone / "sweeps", clone / "examples")
    )


def grids() -> dict[str, Path]:
    """The files of the grids by name, the quickstart first."""
    paths = {path.stem: path for folder in folders() for path in folder.glob("*.yaml")}
    return dict(
        sorted(paths.items(), key=lambda named: (named[0] != "quickstart", named[0]))
    )


def about(path: Path) -> str:
    """The first sentence of the first comment in a grid."""
    comment = re.search(
        r"(?:^# (?!yaml-language-server).*\n)+", path.read_text(encoding="utf-8"), re.M
    )
    text = (
        " ".join(line.lstrip("# ") for line in comment[0].splitlines())
        if comment
        else ""
    )
    return re.split(r"(?<=[.?])\s", text)[0]


def copy(name: str, to: Path) -> list[Path]:
    """Copies a grid to the folder `to`, with what it names.

    That is the schema for editors, the module of a simulator, or a table of embeddings.

    Returns:
        The new files, the grid first.

    Raises:
        UsageError: for a name that no grid has, a file of the same name in `to`, or one
            that cannot be written.
    """
    known = grids()
    if name.removesuffix(".yaml") not in known:
        raise UsageError(
            f"NAME: got {shortened(name)}{suggest(name, known)}; allowed:"
            f" {', '.join(known)}"
        )
    source = known[name.removesuffix(".yaml")]
    sources = [
        source,
        *(
            path
            for suffix in (".py", ".npy")
            if (path := source.with_suffix(suffix)).exists()
        ),
    ]
    for path in sources:
        if (to / path.name).exists():
            call = _run(to / source.name)
            raise UsageError(
                f"{to / path.name}: exists already and is not overwritten; move it"
                f" away, or run it: {call}"
            )
    if not source.with_suffix(".py").exists() and not (to / SCHEMA).exists():
        sources.append(folders()[0] / SCHEMA)
    targets = [to / path.name for path in sources]
    try:
        for path, target in zip(sources, targets, strict=True):
            with open(target, "xb") as file:
                file.write(path.read_bytes())
    except OSError as error:
        raise UsageError(
            f"{error.filename or to}: cannot be written: {error.strerror}"
        ) from None
    return targets


def _run(grid: Path) -> str:
    return called("sweep", ["--grid", str(grid)])


@command()
def main(argv: Sequence[str] | None = None) -> int:
    """Parses, lists or copies, prints; returns the exit code: 0 done, 2 refused."""
    parser = Parser(
        "examples",
        "List the grids that come with the package, or copy one to the current folder.",
    )
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="the grid to copy; without it, all are listed",
    )
    args = parser.parse_args(argv)
    if args.name is None:
        width = max(map(len, grids()))
        listed = [f"{name:<{width}}  {about(path)}" for name, path in grids().items()]
        return answer(
            *listed,
            "",
            f"To copy one to the current folder: {called('examples')} quickstart",
        )
    targets = copy(args.name, Path())
    return answer(
        f"copied {', '.join(map(str, targets))}. To run it: {_run(targets[0])}"
    )
