"""jaxrecall examples: lists the grids of the package, or copies one to this folder.

If a grid uses another simulator than that of the package, its module is copied, too. If
a grid uses a table of embeddings, the table is copied, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError, shortened, suggest
from .command import Parser, answer, called, command

SCHEMA = "grid.schema.json"


def folders() -> tuple[Path, ...]:
    """Returns the folders that contain the grids.

    In an installed package, the folder is `_examples`. In a clone, the folders are
    `sweeps/` and `examples/`.
    """
    installed = Path(__file__).parents[1] / "_examples"
    if installed.is_dir():
        return (installed,)
    clone = Path(__file__).parents[2]
    return clone / "sweeps", clone / "examples"


def grids() -> dict[str, Path]:
    """Returns a dict from the name of each grid to its file. The quickstart comes
    first.
    """
    paths = {path.stem: path for folder in folders() for path in folder.glob("*.yaml")}
    quickstart = {"quickstart": paths.pop("quickstart")}
    return quickstart | dict(sorted(paths.items()))


def about(path: Path) -> str:
    """Returns the first sentence of the first comment in a grid file."""
    text = path.read_text(encoding="utf-8")
    comment = re.search(r"(?:^# (?!yaml-language-server).*\n)+", text, re.M)
    if not comment:
        return ""
    words = " ".join(line.lstrip("# ") for line in comment[0].splitlines())
    sentence, *_ = re.split(r"(?<=[.?])\s", words)
    return sentence


def copy(name: str, to: Path) -> list[Path]:
    """Copies a grid and the files that it needs to the folder `to`.

    A grid may need the schema for editors, the module of a simulator, or a table of
    embeddings.

    Returns:
        The new files, the grid first.

    Raises:
        UsageError: if no grid has this name, if `to` already contains a file of the
            same name, or if a file cannot be written.
    """
    known = grids()
    source = known.get(name.removesuffix(".yaml"))
    if source is None:
        raise UsageError(
            f"NAME: got {shortened(name)}{suggest(name, known)}; allowed:"
            f" {', '.join(known)}"
        )
    module, table = source.with_suffix(".py"), source.with_suffix(".npy")
    sources = [path for path in (source, module, table) if path.exists()]
    for path in sources:
        if (to / path.name).exists():
            raise UsageError(
                f"{to / path.name}: exists already and is not overwritten; move it"
                f" away, or run it: {_run(to / source.name)}"
            )
    if not module.exists() and not (to / SCHEMA).exists():
        first, *_ = folders()
        sources.append(first / SCHEMA)
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
    """Lists the grids or copies one. Returns the exit code: 0 done, 2 refused."""
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
        lines = [f"{name:<{width}}  {about(path)}" for name, path in grids().items()]
        hint = f"To copy one to the current folder: {called('examples')} quickstart"
        return answer(*lines, "", hint)
    targets = copy(args.name, Path())
    return answer(
        f"copied {', '.join(map(str, targets))}. To run it: {_run(targets[0])}"
    )
