"""The page results/attack.md, from what the attacks came to."""

from __future__ import annotations

from collections.abc import Mapping

from attack.every import NOT_COVERED
from attack.tries import COUNTED, Attack, Result
from benchmarks.clock import machine, versions

INTRODUCTION = """\
# Attacks

`make attack` tries to make the package fail and counts what comes of it. This page is the record of its last full run. A try is *refused*
if it ends with a message that names what is wrong, and *right* if its result is as it should be. The other columns are faults, and should
be 0: *wrong* results or exit codes, rows *lost* or *doubled*, *tracebacks* and *hangs* (no answer within five minutes).

    make attack                                        # about 30 minutes on 2 cores
    make attack ARGS="--hours 3"                       # the full counts
    make attack ARGS="--seed 7 --only parts browser"   # the same tries as in a run with this seed, of some attacks
"""  # noqa: E501


def table(results: Mapping[Attack, Result]) -> list[str]:
    """One line per attack."""
    lines = [
        f"| area | what | {' | '.join(COUNTED)} | seconds |",
        "| --- | --- |" + " ---: |" * (len(COUNTED) + 1),
    ]
    for attack, result in results.items():
        what = f"{attack.what} (`{attack.name}`)"
        if result.skipped and not result.counts["tried"]:
            lines.append(
                f"| {attack.area} | {what}: not run, {result.skipped} |"
                + " |" * (len(COUNTED) + 1)
            )
            continue
        counts = " | ".join(f"{result.counts[name]:,}" for name in COUNTED)
        lines.append(f"| {attack.area} | {what} | {counts} | {result.seconds:.0f} |")
    return lines


def page(results: Mapping[Attack, Result], seed: int, hours: float) -> str:
    used = ", ".join(f"{name} {version}" for name, version in versions().items())
    n_faults = sum(result.n_faults for result in results.values())
    where = f"Seed {seed}, {hours:g} hours, {machine()}; {used}. Faults: {n_faults}."
    missing = [f"- {line}" for line in NOT_COVERED]
    return "\n".join(
        [
            INTRODUCTION,
            where,
            "",
            *table(results),
            "",
            "## Not covered",
            "",
            *missing,
            "",
        ]
    )
