"""With what a sweep ran: the versions of all packages that jaxrecall needs, and the commit of its own code where git knows it."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).parents[3]
"""The clone, if the package runs from one."""

GIT_SECONDS = 5


@cache
def versions() -> dict[str, str]:
    """Package -> version, of jaxrecall, of all that it requires, and of what those require, as far as installed."""
    found: dict[str, str] = {}
    todo = ["jaxrecall"]
    while todo:
        name = todo.pop()
        if name not in found:
            try:
                about = metadata(name)
            except PackageNotFoundError:  # required on other systems only
                continue
            found[name] = about["Version"]
            todo += [_name(line) for line in about.get_all("Requires-Dist") or () if "extra ==" not in line]
    return {"jaxrecall": found.pop("jaxrecall"), **dict(sorted(found.items()))}


def _name(requirement: str) -> str:
    """The name at the start of a requirement, in the spelling that all packages share."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower()


@cache
def commit(root: Path = ROOT) -> str | None:
    """The commit of the clone at `root`, with `-dirty` where files differ from it; None where there is no clone or no git."""
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
