"""An attack tries something again and again. Here is what a try comes to, and the
process of its own in which an attack runs.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).parent.parent
FOLDERS = [
    TESTS.parent,
    TESTS,
    *(TESTS / name for name in ("model", "simulator", "sweep", "analysis", "system")),
]
"""Where attacks import from."""

HANG_SECONDS = 300
"""A try that takes longer hangs."""

FAULTS = ("wrong", "lost", "doubled", "tracebacks", "hangs")
COUNTED = ("tried", "refused", "right", *FAULTS)
MAX_TEXT = 2000


class Attack(NamedTuple):
    """Something to try: `function` is module:function, `share` its part of the time,
    `full` the tries after which it ends.
    """

    area: str
    name: str
    what: str
    function: str
    share: float
    full: int


@dataclass
class Try:
    """What one try came to: right unless it is refused, or rows are lost, doubled or
    wrong.
    """

    lost: int = 0
    doubled: int = 0
    kind: str = "right"
    why: str = ""
    state: str = ""
    """Where the try came to, for attacks that count this."""

    def refused(self) -> None:
        self.kind = "refused"

    def hangs(self, why: str) -> None:
        self.kind, self.why = "hangs", why


class Tries:
    """What an attack is given: chance, an empty folder `home`, and `one`, in which it
    makes each try while there is `more` to do.
    """

    def __init__(
        self,
        seed: str,
        seconds: float,
        most: int,
        tell: Callable[[dict[str, Any]], None],
        home: Path,
    ):
        self.chance, self.left, self.tell = random.Random(seed), most, tell
        self.home = home
        self.end = time.monotonic() + seconds

    def more(self) -> bool:
        return self.left > 0 and time.monotonic() < self.end

    def each(self, ways: Iterable[Any]) -> Iterator[Any]:
        """The ways in a random order, while there is more to do."""
        listed = list(ways)
        for way in self.chance.sample(listed, len(listed)):
            if not self.more():
                return
            yield way

    def skip(self, why: str) -> None:
        """Says that the attack cannot run here."""
        self.tell({"skipped": why})
        self.left = 0

    @contextmanager
    def one(self, what: str) -> Iterator[Try]:
        """A try: an AssertionError is a wrong result, any other exception a
        traceback.
        """
        self.left -= 1
        self.tell({"try": what[:MAX_TEXT]})
        found = Try()
        try:
            yield found
        except AssertionError:
            found.kind, found.why = "wrong", traceback.format_exc()[-MAX_TEXT:]
        except (Exception, SystemExit):
            found.kind, found.why = "tracebacks", traceback.format_exc()[-MAX_TEXT:]
        self.tell({"came to": vars(found)})


@dataclass
class Result:
    """What all tries of an attack came to."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    skipped: str = ""
    seconds: float = 0.0
    doing: str = ""

    def take(self, event: dict[str, Any]) -> None:
        """Counts what the process of the attack tells."""
        if "try" in event:
            self.doing = event["try"]
            self.counts["tried"] += 1
        elif "skipped" in event:
            self.skipped = event["skipped"]
        elif "came to" in event:
            found = event["came to"]
            rows = {name: found[name] for name in ("lost", "doubled")}
            self.counts.update(rows)
            self.states.update(filter(None, [found["state"]]))
            if found["kind"] != "right" or not any(rows.values()):
                self.counts[found["kind"]] += 1
            if found["kind"] in FAULTS or any(rows.values()):
                self.fault(found["kind"], f"{rows} {found['why']}")
            self.doing = ""

    def fault(self, kind: str, why: str) -> None:
        self.faults.append(f"{kind}: {self.doing}\n{why}")
        print(self.faults[-1], file=sys.stderr, flush=True)

    @property
    def n_faults(self) -> int:
        return sum(self.counts[name] for name in FAULTS)


def carried_out(
    attack: Attack, seed: str, seconds: float, hang_seconds: float = HANG_SECONDS
) -> Result:
    """Runs the attack for so many seconds. Where its process dies or hangs, that is
    counted and another goes on.
    """
    start, result = time.monotonic(), Result()
    for again in itertools.count():
        left = start + seconds - time.monotonic()
        most = attack.full - result.counts["tried"]
        if (
            left <= 0
            or most <= 0
            or _ended(
                attack,
                f"{seed} {attack.name} {again}",
                left,
                most,
                hang_seconds,
                result,
            )
        ):
            break
    result.seconds = time.monotonic() - start
    return result


def _ended(
    attack: Attack,
    seed: str,
    seconds: float,
    most: int,
    hang_seconds: float,
    result: Result,
) -> bool:
    """Runs a process of the attack; whether it came to its end."""
    path = os.pathsep.join(
        map(str, [*FOLDERS, *filter(None, [os.environ.get("PYTHONPATH")])])
    )
    env = {
        **os.environ,
        "PYTHONPATH": path,
        "JAX_PLATFORMS": "cpu",
        "MPLBACKEND": "agg",
    }
    call = {"function": attack.function, "seed": seed, "seconds": seconds, "most": most}
    with (
        tempfile.TemporaryDirectory() as folder,
        open(Path(folder) / "err", "w+") as err,
    ):
        command = [sys.executable, "-m", "attack.child", json.dumps(call)]
        process = subprocess.Popen(
            command,
            env=env,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=err,
            start_new_session=True,
        )
        assert process.stdout
        try:
            silent = _listen(process.stdout.fileno(), hang_seconds, result)
            if not silent:
                process.wait(timeout=hang_seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.stdout.close()
            code = process.wait()
        err.seek(0)
        if silent or code:
            kind = "hangs" if silent else "tracebacks"
            result.counts[kind] += 1
            result.fault(
                kind,
                "its process"
                f" {'says nothing' if silent else f'ended with {code}'}\n{err.read()[-MAX_TEXT:]}",  # noqa: E501
            )
            result.doing = ""
    return not silent and not code


def _listen(source: int, hang_seconds: float, result: Result) -> bool:
    """Takes in what the process tells until it ends; whether it fell silent instead."""
    held = b""
    while select.select([source], [], [], hang_seconds)[0]:
        if not (data := os.read(source, 2**16)):
            return False
        *lines, held = (held + data).split(b"\n")
        for line in lines:
            result.take(json.loads(line))
    return True
