"""The start of a worker process: it is bound to the life of its parent before anything is imported that takes long."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def end_with(parent: int) -> None:
    """Makes the kernel kill this process when `parent` ends, where it can (Linux); ends now if it has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    from .local import main

    main(int(sys.argv[2]), [int(core) for core in sys.argv[3].split(",") if core])
