"""The start of a process, `python -m jaxrecall.sweep.workers PARENT MODULE FD`: first of all it is bound to the life of its parent."""

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
    from importlib import import_module
    from multiprocessing.connection import Connection

    import_module(f".{sys.argv[2]}", __package__).main(Connection(int(sys.argv[3])))
