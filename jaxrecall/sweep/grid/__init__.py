"""A grid: points and seeds. A YAML file, a dict, a point or a list of points describes
them.

`read_grid` and `as_grid` first check keys and literal values, then check names, and
then make the points. The errors of the first two checks are raised together, as one
GridError with a line for each error. The errors of all points are raised together as
well. The modules, from bottom to top:

    schema.json  defines the keys and values that a grid file may contain, except for
        the names of fields
    document     parses YAML into plain data, records the line of every value, applies
        `--set`, and checks the data by a JSON Schema
    expr         computes the arithmetic of where and derive
    axes         defines the names that a grid may use, and computes the values of an
        axis from one value, a list or a spacing
    file         makes the records that a grid file describes, and finds names that are
        unknown, unused, missing, misplaced or given twice
    expand       makes points from blocks
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ...cli.command import absolute
from ...errors import MAX_LIST, GridError, UsageError, as_list, refusal, shown
from ...model.columns import Declarations, own_columns
from ...model.law_parameters import parameter_columns
from ...model.laws.array import paths_from, with_hashes
from ...model.point import Point
from ...model.values import as_plain
from ..simulators import Program
from ..simulators.custom import Simulator, add_to_path, named
from ..simulators.shipped import RecallSimulator
from .axes import AnyPoint, Names, law_parameters
from .document import Document, NamedValues, Plain, read_document, without
from .expand import SearchLine, expand
from .file import (
    GridFile,
    Limits,
    Search,
    Settings,
    WrongNames,
    as_dict,
    json_schema,
    read_file,
)

__all__ = [
    "Grid",
    "GridLike",
    "Limits",
    "Search",
    "as_grid",
    "json_schema",
    "read_grid",
]

GridLike = Mapping[str, Plain] | str | os.PathLike[str] | Point | Sequence[Point]
GivenSimulator = Simulator | str | None


@dataclass(frozen=True, kw_only=True)
class Grid(GridFile):
    """Points and seeds, with the settings that the grid file gives for running them.

    `axes` lists the fields and the parameters of laws (such as embedding.rho) that have
    more than one value over the points. `fixed` is a dict with the value of every other
    field that the file gives. `resolved` is the grid as plain data. A grid file with
    these data describes the same grid. If there is a `search`, `points` contains one
    point of each cell, and `lines` contains all points of every cell. `kept` is a dict
    from the id of a point to the helpers that become columns.
    """

    points: tuple[AnyPoint, ...]
    n_duplicates: int
    n_excluded: int
    axes: tuple[str, ...]
    fixed: NamedValues
    resolved: NamedValues
    names: Names = field(compare=False)
    lines: tuple[SearchLine, ...] = field(compare=False)
    kept: Mapping[str, Mapping[str, Plain]] = field(compare=False)

    @property
    def simulator(self) -> Simulator:
        return self.names.simulator

    @cached_property
    def programs(self) -> Mapping[AnyPoint, Program]:
        """A dict from each point to its program. All runs of the grid decide the
        programs, so every call and every share has the same ones.
        """
        counts = dict.fromkeys(self.points, len(self.seeds))
        return self.simulator.programs(counts)

    @property
    def settings(self) -> Settings:
        return Settings(**self.run)

    @property
    def n_runs(self) -> int:
        return len(self.points) * len(self.seeds)

    @property
    def kept_columns(self) -> Declarations:
        """A dict from each kept helper to its Arrow type and its meaning."""
        columns = {}
        for name in self.resolved.get("keep", ()):
            values = [helpers[name] for helpers in self.kept.values()]
            columns[name] = (_arrow_type(values), "variable of the grid")
        return columns

    @property
    def columns(self) -> Declarations:
        """A dict from each column of the grid's rows to its Arrow type, its meaning
        and, if it has one, its unit.

        The columns are those of the simulator, the kept helpers, and the parameters of
        all laws.
        """
        columns = {**self.simulator.row_columns, **self.kept_columns}
        if self.names.laws:
            columns |= parameter_columns(self.points)
        return columns

    @property
    def crosses(self) -> str:
        """The column that a search evaluates and that figures show."""
        if self.search and self.search.of:
            return self.search.of
        return self.simulator.accuracy

    @property
    def summarised(self) -> str:
        """What a search compares with theta, such as "mean accuracy"."""
        summary = self.search.summary if self.search else "mean"
        if summary in ("mean", "median"):
            return f"{summary} {self.crosses}"
        return f"fraction of {self.crosses} {summary}"

    @property
    def searched(self) -> str:
        """The name of the field that a search varies. The name is empty if there is no
        search.

        If the axis of the search is a helper, this is the last field that is derived
        from the helper.
        """
        return self.axes[-1] if self.search else ""


def read_grid(path: str | Path, sets: Sequence[str] = ()) -> Grid:
    """Returns the grid that a YAML file describes.

    Args:
        path: the path of the file.
        sets: texts such as "base.V=512". Each text replaces a value of the file. A
            later text overrides an earlier one.

    Raises:
        GridError: the message contains a line for each error, such as "grid.yaml:7:
            base.V: got -3; allowed: ...".
    """
    return _grid(read_document(path, sets))


def as_grid(
    given: GridLike,
    seeds: int | Iterable[int] | None = None,
    simulator: GivenSimulator = None,
    columns: Mapping[str, object] | None = None,
) -> Grid:
    """Returns the grid that `given` describes. `given` is a dict with the keys of a
    grid file, the path of a grid file, a point, or a list of points.

    Args:
        given: the description. Tuples, ranges and NumPy arrays count as lists.
        seeds: a number of seeds or a list of seeds, which replaces the seeds of the
            grid. The seed of given points is 0 by default.
        simulator: the simulator of the points, as an object or as its import path
            "module:name". The default is the simulator that the file names, or else
            that of this package.
        columns: columns of your own, as a dict from the name of each column to its
            function or to the import path of the function. This dict replaces the
            `columns` of the grid.

    Raises:
        GridError: the message contains a line for each error.
    """
    document = _document(given)
    if seeds is not None:
        document.data["seeds"] = _as_seeds(seeds)
        document.forget(("seeds",))
    if columns is not None:
        document.data["columns"] = columns
    return _grid(document, simulator=simulator)


def _document(given: GridLike) -> Document:
    if isinstance(given, (str, os.PathLike)):
        return read_document(os.fspath(given))
    if isinstance(given, Mapping):
        try:
            return Document("grid", _as_yaml(given))
        except RecursionError:
            raise GridError("grid: is nested too deeply") from None
    points = [given] if hasattr(given, "as_given") else given
    return Document("grid", _as_file(points))


def _grid(document: Document, simulator: GivenSimulator = None) -> Grid:
    """Returns the grid that a document describes. Paths in the document are relative to
    the folder of the document.

    The modules that a grid names may be in the current folder and in that of its file,
    so both become importable. Raises GridError with a line for each error.
    """
    folder = Path(document.path).parent
    # Python cannot import from a current folder that was deleted
    folders = filter(Path.is_absolute, map(absolute, ("", folder)))
    add_to_path(map(str, folders))
    given = document.data.get("simulator") if simulator is None else simulator
    document.data.setdefault("name", Path(document.path).stem)
    with paths_from(folder):
        names = Names(_simulator(document, given))
        has_columns = names.simulator.has_columns
        file, mistakes = read_file(document.data, names)
        mistakes += WrongNames(document, file, names, [*mistakes])
        if mistakes or document.errors:
            raise document.refused(mistakes)
        expansion = expand(document, file, names)
        if not has_columns and (mistakes := [*WrongNames(document, file, names, [])]):
            raise document.refused(mistakes)
        blocks = with_hashes(document.data.get("blocks"))
    if given and not isinstance(given, str):
        given = given.name
    resolved = {"schema": 1, **as_dict(file)} | {
        "seeds": _as_seeds(file.seeds),
        "blocks": blocks,
        "search": file.search and as_dict(file.search),
        "limits": as_dict(file.limits),
        "simulator": given,
        "columns": document.data.get("columns"),
    }
    return Grid(
        **vars(file),
        **expansion,
        axes=_varying(file, names, expansion["points"]),
        fixed=_fixed(file, names, expansion["points"]),
        resolved=without(None, resolved),
        names=names,
    )


def _arrow_type(values: Sequence[Plain]) -> str:
    """The Arrow type of a column that contains these values. None represents null."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {bool}:
        return "bool"
    if kinds == {int} and max(map(abs, filter(None, values)), default=0) < 2**63:
        return "int64"
    return "float64" if kinds <= {int, float} else "string"


def _simulator(document: Document, given: GivenSimulator) -> Simulator | None:
    """Returns the simulator `given`. If `given` is an import path, returns the object
    at that path.

    If the document gives columns of the user's own, returns the simulator of this
    package with these columns. In the document, the functions of these columns are
    replaced by import paths. Raises GridError if the simulator or a column is not
    usable.
    """
    columns = document.data.get("columns")
    try:
        if not isinstance(columns, dict) or not columns:
            return named(given) if isinstance(given, str) else given
        if given is not None:
            raise UsageError(
                "columns: got with your simulator, which has its columns;"
                " allowed: without it"
            )
        own = own_columns(columns)
    except UsageError as error:
        lines = []
        for line in error.lines:
            place, _, message = line.partition(": ")
            lines.append(document.line(tuple(place.split(".")), message))
        raise GridError(lines) from None
    document.data["columns"] = {column.name: column.path for column in own}
    return RecallSimulator(own)


def _varying(
    file: GridFile, names: Names, points: tuple[AnyPoint, ...]
) -> tuple[str, ...]:
    """Returns the fields in axes and derive that have more than one value over the
    points. The order is that of the file.

    The axis of a search comes last. If the axis is a helper, the fields that are
    derived from the helper come last instead.
    """
    searched = file.search.axis if file.search else ""
    following = set().union(*(block.followers(searched) for block in file.blocks))
    written = [name for name in file.written if name in names and name not in following]
    values = {name: set[Plain]() for name in written}
    for name in written:
        for point in points:
            for column, value in _columns_of(names, point, name).items():
                values.setdefault(column, set()).add(value)
            if name in names.numbers and len(values[name]) > 1:
                break
    varying = []
    for name, found in values.items():
        if "." in name:
            found.discard(None)
        if len(found) > 1:
            varying.append(name)
    if searched in names:
        varying.append(searched)
    else:
        fields = following & names.fields.keys()
        varying += [name for name in file.written if name in fields]
    return tuple(varying)


def _columns_of(names: Names, point: AnyPoint, name: str) -> NamedValues:
    """Returns a dict with the value of a field at a point.

    If the field is a law, the dict contains the name of the law without its numeric
    parameters. Each numeric parameter is a separate entry.
    """
    columns = {name: names.value(point, name)}
    if name in names.laws:
        for parameter, number in law_parameters(point).items():
            if parameter.startswith(f"{name}."):
                columns[parameter] = number
                columns[name] = str(columns[name]).partition("(")[0]
    return columns


def _fixed(file: GridFile, names: Names, points: tuple[AnyPoint, ...]) -> NamedValues:
    """Returns a dict with the value of each field that the file gives and that has a
    single value over the points.
    """
    fixed = {}
    for name in dict.fromkeys(file.base) | file.written:
        if name in names.fields:
            first = names.value(points[0], name)
            if all(names.value(point, name) == first for point in points):
                fixed[name] = first
    return fixed


def _as_seeds(seeds: int | Iterable[int]) -> Plain:
    """Returns the seeds in a form that a grid file may contain. A range is represented
    by a start and a count, so a long range needs no memory.
    """
    if isinstance(seeds, range) and seeds and seeds.step == 1:
        return {"start": seeds[0], "count": seeds[-1] - seeds[0] + 1}
    return _as_yaml(seeds if isinstance(seeds, Iterable) else {"count": seeds})


def _as_yaml(value: Plain) -> Plain:
    """Returns `value` as the plain data that YAML would give: dicts, lists, text and
    numbers.

    The caller's own dicts and lists are not changed.
    """
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays, pandas' columns
        return as_plain(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise GridError(f"grid: got {shown(key)} as a key; allowed: names")
        return dict(zip(value, map(_as_yaml, value.values()), strict=True))
    if isinstance(value, Iterable) and not isinstance(value, str):
        items = as_list("grid", value, f"lists of up to {MAX_LIST}", GridError)
        return list(map(_as_yaml, items))
    return value


def _as_file(points: object) -> NamedValues:
    """Returns the contents of a grid file that has a block for each of these points."""
    allowed = (
        "a dict with the keys of a grid file, its path, a Point, or a list of Points"
    )
    points = as_list("grid", points, allowed, GridError)
    for point in points or [points]:
        if not hasattr(point, "as_given"):
            raise refusal("grid", shown(point), allowed, GridError)
    roots = sorted({point.root_seed for point in points})
    if len(roots) > 1:
        raise GridError(
            f"grid: got points of root_seed {', '.join(map(str, roots))}; allowed:"
            " points of one root_seed"
        )
    blocks = []
    for point in points:
        axes = dict(point.as_given())
        axes.pop("root_seed", None)
        blocks.append({"axes": axes})
    return {"name": "points", "root_seed": roots[0], "blocks": blocks}
