"""python -m jaxrecall.status: shows a results folder and the runs that are left."""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take long
    from .cli.process import start

    start("jaxrecall.status")

import json
from collections.abc import Iterator, Sequence
from typing import Any

from .cli.command import Parser, answer, command
from .model.columns import STATUSES
from .sweep.running.progress import duration
from .sweep.store.survey import survey


def lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yields lines of text that describe a results folder."""
    if facts["remark"]:
        yield facts["remark"]
    if facts["grid"]:
        yield (
            f"{facts['grid']}: {facts['points']} points, {facts['runs']} runs in"
            f" {facts['folder']}"
        )
    counts = f"{facts['done']} done"
    bad = [f"{facts[status]} {status}" for status in STATUSES if facts.get(status)]
    if bad:
        counts += f" ({', '.join(bad)})"
    if facts["grid"]:
        counts += f", {facts['todo']} to do"
    yield counts
    if facts["other_grids"]:
        yield f"{facts['other_grids']} runs that the grid does not ask for"
    for other in facts["other_versions"]:
        yield (
            f"{other['rows']} runs of {_version(other)} (this is {_version(facts)}: a"
            " sweep into this folder is refused)"
        )
    for failure in facts["failures"]:
        reason, _, _ = failure["error"].partition("\n")
        yield (
            f"failed: {failure['runs']} runs, {failure['missing']} of them missing:"
            f" {reason} (program {failure['bucket']} on {failure['host']}; details:"
            f" {failure['path']}; to try again: {failure['repeat']})"
        )
    for file in facts["unreadable"]:
        yield f"unreadable: {file['path']} ({file['reason']})"
    yield f"{duration(facts['seconds'])} of simulation"
    if facts["command"]:
        yield f"to resume: {facts['command']}"


def _version(of: dict[str, Any]) -> str:
    return f"code_version {of['code_version']}, precision {of['precision']}"


@command()
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit code: 0 done, 2 refused."""
    parser = Parser(
        "status",
        "Show what is in a results folder, which runs failed or are left, and the"
        " command that resumes the sweep.",
    )
    parser.add_argument("folder", metavar="DIR", help="results folder")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else"
    )
    args = parser.parse_args(argv)
    facts = survey(args.folder)
    if args.json:
        return answer(json.dumps(facts))
    return answer(*lines(facts))
