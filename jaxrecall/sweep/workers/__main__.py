"""The start of a process, `python -m jaxrecall.sweep.workers PARENT MODULE FD CORES`.

Before anything is imported that takes long or starts threads, it is bound to the life of its parent and to its cores.
"""

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
    parent, module, fd, cores = sys.argv[1:]
    end_with(int(parent))
    if cores:
        os.sched_setaffinity(0, map(int, cores.split(",")))
    from importlib import import_module
    from multiprocessing.connection import Connection

    import_module(f".{module}", __package__).main(Connection(int(fd)))
