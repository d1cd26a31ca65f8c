"""usage: jaxrecall COMMAND ...

How a one-layer transformer learns to recall: simulations over grids of points and
seeds.

  jaxrecall examples [NAME]    list grids, launch files and a notebook, or copy one here
  jaxrecall sweep --grid FILE  run a grid: a table and a figure (--dry-run: its cost)
  jaxrecall status DIR         show what a results folder has and what is left to do
  jaxrecall compact DIR        merge the Parquet files of a folder into one table
  jaxrecall fit DIR            find thresholds N* of a table, and their exponents
  jaxrecall report DIR         one HTML page: figures, laws, theory and provenance
  jaxrecall theory V=.. d=.. L=..  predict N*, the least d and more, without a run

  jaxrecall --version          the version of the package, and that of its numbers

Each command takes --help. All but examples are also modules: python -m jaxrecall.sweep
--grid FILE. From Python: import jaxrecall; help(jaxrecall)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from .cli.process import USAGE, start  # loads nothing that takes long

MODULES = {
    "sweep": "sweep.__main__",
    "status": "status",
    "compact": "compact",
    "fit": "fit",
    "report": "report",
    "theory": "theory.__main__",
    "examples": "cli.examples",
}

HELP = (__doc__ or "").strip()
"""The text of --help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command in the first word, and passes the other words to it.

    Returns the exit code of the command, or 2 for an unknown word.
    """
    if argv is None:
        argv = sys.argv[1:]
    first, *rest = argv or ["--help"]
    if first in MODULES:
        return import_module(f".{MODULES[first]}", __package__).main(rest)
    from .cli.command import answer
    from .errors import shortened, suggest

    if first in ("--help", "-h", "help"):
        return answer(*HELP.splitlines())
    if first == "--version":
        from . import __version__
        from .model.columns import CODE_VERSION

        return answer(f"jaxrecall {__version__} (code_version {CODE_VERSION})")
    allowed = [*MODULES, "--help", "--version"]
    got = shortened(first) + suggest(first, allowed)
    print(f"COMMAND: got {got}; allowed: {', '.join(allowed)}", file=sys.stderr)
    return USAGE


def script() -> None:
    """The entry point of the program `jaxrecall`."""
    start("jaxrecall.__main__")


if __name__ == "__main__":
    script()
