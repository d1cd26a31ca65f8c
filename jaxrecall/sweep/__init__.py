"""Runs sweeps: computes the rows of a grid file and writes them to a results folder."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command `jaxrecall sweep`. Returns its exit code."""
    from .__main__ import main as command

    return command(argv)
