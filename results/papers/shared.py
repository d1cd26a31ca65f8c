"""What the scripts of this folder share with those of the folder above: tables."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

from table import (  # noqa: E402
    at,
    bracketed,
    each,
    interval,
    markdown,
    print_tables,
    table,
    tables_of,
    with_interval,
)

__all__ = [
    "at",
    "bracketed",
    "each",
    "interval",
    "markdown",
    "print_tables",
    "table",
    "tables_of",
    "with_interval",
]
