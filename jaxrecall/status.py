"""python -m jaxrecall.status: what a results folder holds and which runs are left, from
its files alone.
"""

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
from .sweep.running.status import survey


def lines(facts: dict[str, Any]) -> Iterator[str]:
    """The facts as lines of text."""
    if facts["remark"]:
        yield facts["remark"]
    if facts["grid"]:
        yield (
            f"{facts['grid']}: {facts['points']} points, {facts['runs']} runs in"
            f" {facts['folder']}"
        )
    bad = [f"{facts[status]} {status}" for status in STATUSES if facts.get(status)]
    yield (
        f"{facts['done']} done"
        + (f" ({', '.join(bad)})" if bad else "")
        + (f", {facts['todo']} to do" if facts["grid"] else "")
    )
    if facts["other_grids"]:
        yield f"{facts['other_grids']} runs that the grid does not ask for"
    for other in facts["other_versions"]:
        mine = (
            f"this is code_version {facts['code_version']}, precision"
            f" {facts['precision']}: a sweep into this folder is refused"
        )
        yield (
            f"{other['rows']} runs of code_version {other['code_version']}, precision"
            f" {other['precision']} ({mine})"
        )
    for failure in facts["failures"]:
        who = (
            f"{failure['runs']} runs of program {failure['bucket']} on"
            f" {failure['host']}, {failure['missing']} of them missing"
        )
        yield f"failed: {who}: {failure['error'].partition(chr(10))[0]}"
        yield f"  details: {failure['path']}; to try again: {failure['repeat']}"
    for file in facts["unreadable"]:
        yield f"unreadable: {file['path']} ({file['reason']})"
    yield from facts["older"]
    yield f"{duration(facts['seconds'])} of simulation"
    if facts["command"]:
        yield f"to resume: {facts['command']}"


@command()
def main(argv: Sequence[str] | None = None) -> int:
    """Parses, surveys, prints; returns the exit code: 0 done, 2 refused."""
    parser = Parser(
        "status",
        "Show what a results folder holds, which runs failed or are left, and the"
        " command that resumes the sweep.",
    )
    parser.add_argument("folder", metavar="DIR", help="results folder")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else"
    )
    args = parser.parse_args(argv)
    facts = survey(args.folder)
    return answer(json.dumps(facts)) if args.json else answer(*lines(facts))
