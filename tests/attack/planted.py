"""An attack on nothing: a try of each kind, so that a test sees every counter rise."""

import os
import signal
import time

from attack.tries import Tries


def faults(tries: Tries) -> None:
    """Six tries that end; then the process dies, and the next one hangs."""
    if tries.left > 2:
        with tries.one("right"):
            pass
        with tries.one("refused") as one:
            one.refused()
        with tries.one("wrong"):
            raise AssertionError
        with tries.one("lost") as one:
            one.lost = 2
        with tries.one("doubled") as one:
            one.doubled = 3
        with tries.one("traceback"):
            raise KeyError
        with tries.one("dies"):
            os.kill(os.getpid(), signal.SIGKILL)
    with tries.one("hangs"):
        time.sleep(1000)
