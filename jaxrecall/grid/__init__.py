"""The grid language: a YAML file to points and seeds. No JAX here.

From bottom to top:

    document   YAML, with the line that every key came from, and --set
    file       the shape of a grid file: keys, types, limits; its JSON Schema
    axes       values of an axis: lists, linspace, logspace, geom, range
    expr       where and derive: whitelisted arithmetic
    expand     blocks to points
    grid       read_grid: all of it, with every error at once
"""

from .grid import Grid, Limits, Search, json_schema, read_grid, rebuilt

__all__ = ["Grid", "Limits", "Search", "json_schema", "read_grid", "rebuilt"]
