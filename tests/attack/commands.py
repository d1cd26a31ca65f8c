"""Hostile command lines: an answer or a message, never a traceback."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from test_any_folder import make_results

from attack import Calls, captured, listed
from attack.tries import Tries
from jaxrecall import compact, fit, report, status
from jaxrecall.cli import examples
from jaxrecall.sweep import __main__ as sweep
from jaxrecall.theory import __main__ as theory

MAX_ERR = 10_000
CALLS = Calls("commands")
COMMANDS = {
    "sweep": sweep,
    "status": status,
    "fit": fit,
    "report": report,
    "compact": compact,
    "theory": theory,
    "examples": examples,
}
OPTIONS = {
    "sweep": (
        "--grid --out --set --json --json-log --fail-fast --keep-going --same-source"
        " --print-schema --workers --shard --engine --worker-resource --ray-address"
        " --no-such"
    ),
    "status": "--json",
    "fit": "--theta --where --of --along --step --out --drop",
    "report": ("--theta --where --of --along --step --out --x --lines --panels"),
    "compact": "--prune",
    "theory": "--theta --json V= d= L= N= kappa= embedding= eta=",
    "examples": "--to",
}
ODD = listed("""- -- -1 0 1 2 3/2 1/0 1/2 1e3 nan inf -inf 1e400 N d V d= = x base.V=3
seeds=2 base.V=[1, local ray cpu=1 time=x 16x4 0x0 $x_{
__import__('os') ** last array-parallelism=x timeout-min=5
additional-parameters=x job-name=a GPU=1 all 3 file:///""")
ODD += ["", " ", "9" * 30, "9" * 5000, "9" * 20 + "x4", "CPU=" + "9" * 20, "a" * 300]
ODD += ["a" * 10_000, "é𝟙\u202e", "\udcff", "\x1b[31m", "a\nb", "\x00", "V > 3"]
PATHS = listed("""tiny tiny/parts tiny/manifest.json tiny.yaml none none/below loop
empty link fifo . .. / ~ /proc /dev/null /dev/zero /proc/self/mem
file:///tmp/%00x file://host/x s3://bucket/x ~nobody/x tiny/""")


def lines(tries: Tries) -> None:
    home = tries.home
    furnish(home)
    while tries.more():
        name, words = line(tries.chance)
        with tries.one(f"{name} {words!r}") as one:
            code, err = called(name, words)
            assert code in (0, 2, 3), code
            assert (code == 0) or err, "no message"
            assert "Traceback" not in err
            assert len(err) < MAX_ERR, f"a message of {len(err)} characters"
            if code:
                one.refused()


def furnish(home: Path) -> None:
    """A folder with results, and with what is none."""
    make_results(home)
    (home / "loop").symlink_to("loop")
    (home / "link").symlink_to("tiny")
    (home / "empty").mkdir()
    os.mkfifo(home / "fifo")


def line(chance: Any) -> tuple[str, list[str]]:
    """A command with some arguments. A sweep is only planned, and rows are removed
    nowhere but here.
    """
    name = chance.choice([*COMMANDS, "sweep", "fit", "report"])
    words = (
        ["--dry-run", "--grid", chance.choice(["tiny.yaml"] * 6 + PATHS)]
        if name == "sweep"
        else []
    )
    reads = name in ("status", "fit", "report", "compact")
    words += (
        [chance.choice(["tiny"] * 3 + PATHS + ODD)]
        if reads or chance.random() < 0.3
        else []
    )
    for option in chance.choices(
        OPTIONS[name].split(), k=chance.choice([0, 1, 1, 2, 3])
    ):
        value = chance.choice(PATHS + ODD)
        words += [[option, value], [f"{option}={value}"], [option], [value]][
            chance.choice([0, 0, 1, 1, 1, 2, 3])
        ]
    return name, words


def called(name: str, words: list[str]) -> tuple[int, str]:
    """The exit code of a command in this process, and what it wrote on stderr."""
    with captured() as err:
        try:
            code = CALLS(name, COMMANDS[name].main, words)
        except SystemExit as end:  # of argparse
            code = end.code if isinstance(end.code, int) else 2
    return code, err.getvalue()
