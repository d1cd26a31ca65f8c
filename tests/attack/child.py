"""The process of an attack: it tells each try on its standard output, of which the
attack itself sees nothing.
"""

import json
import os
import resource
import sys
import warnings
from importlib import import_module
from pathlib import Path

from attack.tries import Tries

MAX_MEMORY = 8 * 2**30
"""Bytes that an attack may take."""


def main() -> None:
    call = json.loads(sys.argv[1])
    events = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
    warnings.simplefilter("ignore")  # remarks on rows, thousands of them

    def tell(event: dict) -> None:
        print(json.dumps(event), file=events, flush=True)

    tell({"starts": call})
    module, _, name = call["function"].partition(":")
    getattr(import_module(module), name)(
        Tries(call["seed"], call["seconds"], call["most"], tell, Path.cwd())
    )


if __name__ == "__main__":
    main()
