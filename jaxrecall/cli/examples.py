"""jaxrecall examples: lists the grids, launch files and notebooks of the package, or
copies one to this folder.

If a grid uses another simulator than that of the package, its module is copied, too. If
a grid uses a table of embeddings, the table is copied, too.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError, shortened, suggest
from .command import ROOT, Parser, answer, called, command

SCHEMA = "grid.schema.json"

COMMANDS = {
    "recall.ipynb": "jupyter lab {}",
    "slurm-array.sh": "sbatch {} GRID DIR",
    "tpu-pod.sh": "BUCKET=gs://yours/jaxrecall bash {} GRID",
    "ray-cluster.yaml": "ray up {}, after the steps in its first lines",
    "skypilot.yaml": "sky jobs launch {}, after the steps in its first lines",
}
"""How to use the files that are not grids, by file name."""


def folders() -> tuple[Path, ...]:
    """Returns the folders that contain the grids.

    In an installed package, the folder is `_examples`. In a clone, the folders are
    `sweeps/` and `examples/`.
    """
    installed = Path(__file__).parents[1] / "_examples"
    if installed.is_dir():
        return (installed,)
    return ROOT / "sweeps", ROOT / "examples"


def files() -> dict[str, Path]:
    """Returns a dict from the name of each file, without its suffix, to its path.

    The quickstart comes first, then the other grids, then the files of COMMANDS.
    """
    paths = {path.stem: path for folder in folders() for path in folder.glob("*.yaml")}
    quickstart = {"quickstart": paths.pop("quickstart")}
    paths = quickstart | dict(sorted(paths.items()))
    for name in COMMANDS:
        for folder in folders():
            paths |= {path.stem: path for path in folder.rglob(name)}
    return paths


def about(path: Path) -> str:
    """Returns the first sentence of the first comment in a file, or the title of a
    notebook.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return re.findall(r"# (.*)\\n", text)[0] + "."
    comment = re.search(r"(?:^# (?!yaml-language-server).*\n)+", text, re.M)
    if not comment:
        return ""
    words = " ".join(line.lstrip("# ") for line in comment[0].splitlines())
    sentence, *_ = re.split(r"(?<=[.?])\s", words)
    return sentence


def copy(name: str, to: Path) -> list[Path]:
    """Copies a file of `files`, and what a grid needs, to the folder `to`.

    A grid may need the schema for editors, the module of a simulator, or a table of
    embeddings. The name may have a suffix.

    Returns:
        The new files, the named one first.

    Raises:
        UsageError: if no file has this name, if `to` already contains a file of the
            same name, or if a file cannot be written.
    """
    known = files()
    source = known.get(Path(name).stem)
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
    if not (module.exists() or (to / SCHEMA).exists() or source.name in COMMANDS):
        first, *_ = folders()
        sources.append(first / SCHEMA)
    targets = [to / path.name for path in sources]
    try:
        for path, target in zip(sources, targets, strict=True):
            target.touch(exist_ok=False)
            shutil.copy(path, target)
    except OSError as error:
        raise UsageError(
            f"{error.filename or to}: cannot be written: {error.strerror}"
        ) from None
    return targets


def _run(path: Path) -> str:
    if path.name in COMMANDS:
        return COMMANDS[path.name].format(path)
    return called("sweep", ["--grid", str(path)])


@command()
def main(argv: Sequence[str] | None = None) -> int:
    """Lists the files or copies one. Returns the exit code: 0 done, 2 refused."""
    parser = Parser(
        "examples",
        "List the grids, launch files and notebooks that come with the package, or copy"
        " one to the current folder.",
    )
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="the file to copy; without it, all are listed",
    )
    args = parser.parse_args(argv)
    if args.name is None:
        known = files()
        width = max(map(len, known))
        lines = [f"{name:<{width}}  {about(path)}" for name, path in known.items()]
        end = -len(COMMANDS)
        lines[end:end] = ["", "A notebook, and files for clusters and clouds:"]
        hint = f"To copy one to the current folder: {called('examples')} quickstart"
        return answer(*lines, "", hint)
    targets = copy(args.name, Path())
    return answer(
        f"copied {', '.join(map(str, targets))}. To run it: {_run(targets[0])}"
    )
