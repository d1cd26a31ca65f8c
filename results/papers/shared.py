"""What the scripts of this folder share with those of the folder above: tables."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

from table import (
    as_table,
    at,
    bracketed,
    each,
    formatted,
    interval,
    markdown,
    print_tables,
    tables_of,
    with_interval,
)

__all__ = [
    "as_table",
    "at",
    "bracketed",
    "each",
    "formatted",
    "interval",
    "markdown",
    "print_tables",
    "tables_of",
    "with_interval",
]
