"""The grid language: from a YAML file to points and seeds.

From bottom to top:

    schema.json  what a grid file may hold, but for the names of fields
    schema       checks plain data against a JSON Schema
    expr         the arithmetic of where and derive
    axes         the names that a grid may use; the values of an axis: one, a list, a spacing
    file         the records that a grid file describes
    document     YAML as plain data, with the line that every value came from, and --set
    names        finds names that are unknown, unused, missing, misplaced or given twice
    expand       blocks to points
    grid         read_grid and as_grid: all of it, with every error at once
"""

from .file import Limits, Search, json_schema
from .grid import Grid, GridLike, as_grid, read_grid, rebuilt

__all__ = ["Grid", "GridLike", "Limits", "Search", "as_grid", "json_schema", "read_grid", "rebuilt"]
