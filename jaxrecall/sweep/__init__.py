"""Sweeps: from a grid file to rows in a results folder."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """The command `jaxrecall sweep`; returns its exit code."""
    from .__main__ import main as command

    return command(argv)
