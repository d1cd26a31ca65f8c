"""The grid language: from a YAML file to points and seeds.

From bottom to top:

    document     YAML as plain data, with the line that every value came from, and --set
    values       one checked value: its JSON Schema, and how messages show it
    fields       the fields of Point as values of a grid file
    spacing      computed values: linspace, logspace, geom, range
    axes         the axes of a grid block: a value, a list or a spacing each, and zip
    expr         the arithmetic of where and derive
    file         the sections of a grid file as pydantic models; its JSON Schema
    validation   a document as a checked file, or a line for every error
    names        the names that blocks give and use: unknown, unused, missing, given twice
    block        one grid block: rows of values, and the point at each
    expand       all grid blocks to points
    grid         read_grid: all of it, with every error at once
    given        the grid that a dict, a file, a point or several points stand for
"""

from .file import Limits, Search, json_schema
from .given import GridLike, as_grid
from .grid import Grid, read_grid, rebuilt

__all__ = ["Grid", "GridLike", "Limits", "Search", "as_grid", "json_schema", "read_grid", "rebuilt"]
