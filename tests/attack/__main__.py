"""python -m attack: everything that tries to make the package fail, and the table of
what came of it.

A run of all attacks writes results/attack.md. Its exit code is 1 if there was a fault.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from pathlib import Path

from attack.every import ATTACKS
from attack.page import page, table
from attack.tries import TESTS, Result, carried_out

PAGE = TESTS.parent / "results" / "attack.md"


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="make attack",
        description="Tries to make the package fail, and counts what came of it.",
    )
    p.add_argument(
        "--hours",
        type=float,
        default=0.5,
        help="time for all attacks together (default: 0.5; 3 for the full counts)",
    )
    p.add_argument(
        "--seed",
        type=int,
        help="repeats the attacks of an earlier call (default: another in each call)",
    )
    p.add_argument(
        "--only",
        metavar="NAME",
        nargs="+",
        choices=[attack.name for attack in ATTACKS],
        help="these attacks; writes no page",
    )
    p.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        default=PAGE,
        help="the page of a run of all attacks (default: results/attack.md)",
    )
    return p


def main() -> int:
    args = parser().parse_args()
    seed = secrets.randbelow(10**6) if args.seed is None else args.seed
    chosen = [attack for attack in ATTACKS if not args.only or attack.name in args.only]
    end, results = time.monotonic() + 3600 * args.hours, {}
    print(f"seed {seed}", flush=True)
    for i, attack in enumerate(chosen):
        seconds = (
            (end - time.monotonic())
            * attack.share
            / sum(later.share for later in chosen[i:])
        )
        result = results[attack] = (
            carried_out(attack, str(seed), seconds)
            if seconds > 0
            else Result(skipped="no time left")
        )
        counts = ", ".join(f"{n} {name}" for name, n in result.counts.items() if n)
        states = "".join(f"; {n} {state}" for state, n in result.states.items())
        print(
            f"{attack.name}: {result.skipped or counts} in {result.seconds:.0f} s"
            f"{states}",
            flush=True,
        )
    print(*table(results), sep="\n")
    if not args.only:
        args.out.write_text(page(results, seed, args.hours))
    return 1 if any(result.n_faults for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
