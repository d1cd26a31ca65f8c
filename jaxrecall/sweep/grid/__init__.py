"""A grid: the points and seeds that a YAML file, a dict, a point or several points
describe.

`read_grid` and `as_grid` check keys and literal values, then names, and then make the
points. All errors are raised together, as one GridError with a line for each. They use,
from bottom to top:

    schema.json  what a grid file may hold, but for the names of fields
    document     YAML as plain data, with the line that every value came from, and
        --set; its check by a JSON Schema
    expr         the arithmetic of where and derive
    axes         the names that a grid may use; the values of an axis: one, a list, a
        spacing
    file         the records that a grid file describes; names that are unknown, unused,
        missing, misplaced or given twice
    expand       blocks to points
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import MAX_LIST, GridError, UsageError, as_list, refusal, shown
from ...model.columns import own_columns
from ...model.law_parameters import parameter_columns
from ...model.laws.array import paths_from, with_hashes
from ...model.point import Point
from ..simulators import SimulatorLike
from ..simulators.custom import add_to_path, named
from ..simulators.recall import RECALL, RecallSimulator
from .axes import AnyPoint, Names, law_parameters
from .document import Document, Plain, read_document
from .expand import Line, OnProgress, expand
from .file import (
    GridFile,
    Limits,
    Search,
    Settings,
    WrongNames,
    json_schema,
    plain,
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
GivenSimulator = SimulatorLike | str | None


@dataclass(frozen=True, kw_only=True)
class Grid(GridFile):
    """Points times seeds, with what the file says about how to run them.

    `axes` names the fields in the file that take more than one value over the points,
    and parameters of laws such as embedding.rho; `fixed` has the other fields that the
    file gives, with their values. `resolved` is the grid as plain data: read as a grid
    file, it gives the same grid. With a `search` each point stands for a cell, whose
    points are in `lines`. `kept` has, by the id of a point, the helpers that become
    columns.
    """

    points: tuple[AnyPoint, ...]
    n_duplicates: int
    n_excluded: int
    axes: tuple[str, ...]
    fixed: dict[str, Plain]
    resolved: dict[str, Plain]
    simulator: SimulatorLike = RECALL
    lines: tuple[Line, ...] = field(default=(), compare=False)
    kept: Mapping[str, Mapping[str, Plain]] = field(default_factory=dict, compare=False)

    @property
    def settings(self) -> Settings:
        return Settings(**self.run)

    @property
    def n_runs(self) -> int:
        return len(self.points) * len(self.seeds)

    @property
    def kept_columns(self) -> dict[str, tuple[str, str]]:
        """The columns of the helpers that are kept, with their Arrow type and
        meaning.
        """
        names = self.resolved.get("keep", ())
        return {
            name: (
                _arrow_type([row[name] for row in self.kept.values()]),
                "helper of the grid",
            )
            for name in names
        }

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The columns of its rows, with Arrow type, meaning and unit.

        They are those of the simulator, of the helpers that are kept, and of the
        parameters of all laws.
        """
        return {
            **self.simulator.facts.columns,
            **self.kept_columns,
            **(parameter_columns(self.points) if Names(self.simulator).laws else {}),
        }

    @property
    def crosses(self) -> str:
        """The column of fractions that a search looks at, and figures show."""
        return (self.search and self.search.of) or self.simulator.facts.accuracy

    @property
    def searched(self) -> str:
        """The field that a search varies, or where its axis is a helper the last field
        that follows it.

        Empty without a search.
        """
        return self.axes[-1] if self.search else ""


def read_grid(
    path: str | Path,
    sets: Sequence[str] = (),
    on_progress: OnProgress = lambda done, of: None,
    simulator: GivenSimulator = None,
) -> Grid:
    """The grid in a YAML file.

    Args:
        path: the file.
        sets: texts such as "base.V=512", each put over the file; later ones win.
        on_progress: called with how many points are expanded, and of how many.
        simulator: what simulates the points, an object or its import path
            "module:name"; that of the file unless given, and without one that of this
            package. It is as `sweep.simulators` describes it.

    Raises:
        GridError: a line for each error, such as "grid.yaml:7: base.V: got -3; allowed:
            ...".
    """
    return _grid(read_document(path, sets), on_progress, simulator)


def as_grid(
    given: GridLike,
    seeds: int | Iterable[int] | None = None,
    simulator: GivenSimulator = None,
    columns: Mapping[str, object] | None = None,
) -> Grid:
    """The grid that `given` stands for.

    That is a dict with the keys of a grid file, the path of one, a point, or a list of
    points.

    Args:
        given: tuples, ranges and NumPy arrays in it count as lists.
        seeds: a count or a list, in place of the grid's own. Points have the one seed 0
            unless given others.
        simulator: as in `read_grid`.
        columns: of one's own, functions or their import paths by name, in place of the
            grid's own.

    Raises:
        GridError: a line for each error.
    """
    if isinstance(given, (str, os.PathLike)):
        document = read_document(os.fspath(given))
        add_to_path(
            [os.path.dirname(os.path.abspath(given))]
        )  # where modules that it names may lie
    elif isinstance(given, Mapping):
        try:
            document = Document("grid", _as_yaml(given))
        except RecursionError:
            raise GridError("grid: is nested too deeply") from None
    else:
        document = Document(
            "grid", _as_file([given] if hasattr(given, "as_given") else given)
        )
    if seeds is not None:
        document.data["seeds"] = _as_seeds(seeds)
        document.origins = {
            place: line
            for place, line in document.origins.items()
            if place[0] != "seeds"
        }
    if columns is not None:
        document.data["columns"] = columns
    return _grid(document, simulator=simulator)


def _grid(
    document: Document,
    on_progress: OnProgress = lambda done, of: None,
    simulator: GivenSimulator = None,
) -> Grid:
    """The grid that a document describes, whose paths are relative to its folder.

    Raises GridError with a line for each error.
    """
    given = document.data.get("simulator") if simulator is None else simulator
    document.data.setdefault("name", Path(document.path).stem)
    with paths_from(Path(document.path).parent):
        names = Names(_simulator(document, given))
        file, mistakes = read_file(document.data, names)
        mistakes += WrongNames(document, file, names)
        if lines := document.errors + [document.line(*mistake) for mistake in mistakes]:
            raise GridError(lines)
        expansion = expand(document, file, names, on_progress)
        blocks = with_hashes(document.data.get("blocks"))
    resolved = {
        "schema": 1,
        **plain(file),
        "limits": plain(file.limits),
        "search": file.search and plain(file.search),
    }
    own = given if isinstance(given, str) else given and given.facts.name
    resolved |= {
        "seeds": _as_seeds(file.seeds),
        "blocks": blocks,
        "simulator": own,
        "columns": document.data.get("columns"),
    }
    return Grid(
        **vars(file),
        **expansion,
        axes=_varying(file, names, expansion["points"]),
        fixed=_fixed(file, names, expansion["points"]),
        resolved={name: value for name, value in resolved.items() if value is not None},
        simulator=names.simulator,
    )


def _arrow_type(values: Sequence[Plain]) -> str:
    """The type of a column that holds all these values, of which None is null."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int} and all(
        abs(value) < 2**63 for value in values if value is not None
    ):
        return "int64"
    return (
        "bool" if kinds == {bool} else "float64" if kinds <= {int, float} else "string"
    )


def _simulator(document: Document, given: GivenSimulator) -> SimulatorLike | None:
    """The simulator of a document, or at an import path; columns of one's own become
    paths in the document. Raises GridError.
    """
    columns = document.data.get("columns")
    try:
        if isinstance(columns, dict) and columns:
            if given is not None:
                raise UsageError(
                    "columns: got with a simulator of your own, which has its columns;"
                    " allowed: without it"
                )
            own = own_columns(columns)
            document.data["columns"] = {column.name: column.path for column in own}
            return RecallSimulator(own)
        return named(given) if isinstance(given, str) else given
    except UsageError as error:
        places = (line.partition(": ") for line in error.lines)
        raise GridError(
            [
                document.line(tuple(place.split(".")), message)
                for place, _, message in places
            ]
        ) from None


def _varying(
    file: GridFile, names: Names, points: tuple[AnyPoint, ...]
) -> tuple[str, ...]:
    """The fields in axes and derive that take more than one value over the points, in
    the order of the file.

    A law counts by its name without its numeric parameters, which count on their own.
    The axis of a search comes last, or the fields that follow it where it is a helper.
    """
    written = [name for block in file.blocks for name in block.locations(())]
    searched = file.search.axis if file.search else ""
    following = {name for block in file.blocks for name in block.followers(searched)}
    values: dict[str, set[Plain]] = {
        name: set()
        for name in dict.fromkeys(written)
        if name in names and name not in following
    }
    for name in list(values):
        for point in points:
            value = names.value(point, name)
            numbers = law_parameters(point) if name in names.laws else {}
            mine = {
                parameter: number
                for parameter, number in numbers.items()
                if parameter.startswith(f"{name}.")
            }
            for column, each in {
                name: value.partition("(")[0] if mine else value,
                **mine,
            }.items():
                values.setdefault(column, set()).add(each)
    varying = [
        name
        for name, each in values.items()
        if len(each - {None} if "." in name else each) > 1
    ]
    if searched and searched not in names:
        return (
            *varying,
            *(
                name
                for name in dict.fromkeys(written)
                if name in following and name in names.fields
            ),
        )
    return (*varying, searched) if searched else tuple(varying)


def _fixed(
    file: GridFile, names: Names, points: tuple[AnyPoint, ...]
) -> dict[str, Plain]:
    """The fields that the file gives and that have one value over the points, with this
    value.
    """
    given = dict.fromkeys(
        [*file.base, *(name for block in file.blocks for name in block.locations(()))]
    )
    values = {
        name: {names.value(point, name) for point in points}
        for name in given
        if name in names.fields
    }
    return {name: found.pop() for name, found in values.items() if len(found) == 1}


def _as_seeds(seeds: int | Iterable[int]) -> Plain:
    """The seeds as a grid file gives them; a range stays one, however long it is."""
    if isinstance(seeds, range) and seeds and seeds.step == 1:
        return {"start": seeds[0], "count": seeds[-1] - seeds[0] + 1}
    return _as_yaml(seeds if isinstance(seeds, Iterable) else {"count": seeds})


def _as_yaml(value: Plain) -> Plain:
    """`value` as YAML would give it: dicts, lists, text, numbers.

    The caller's own dicts and lists stay as they are.
    """
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays, pandas' columns
        return value.tolist()
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise GridError(f"grid: got {shown(wrong[0])} as a key; allowed: names")
        return {key: _as_yaml(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [
            _as_yaml(item)
            for item in as_list("grid", value, f"lists of up to {MAX_LIST}", GridError)
        ]
    return value


def _as_file(points: object) -> dict[str, Plain]:
    """A grid file of these points.

    What they have in common is the base, and each has a block for the rest.
    """
    allowed = (
        "a dict with the keys of a grid file, its path, a Point, or a list of Points"
    )
    points = as_list("grid", points, allowed, GridError)
    if not points or not all(hasattr(point, "as_given") for point in points):
        got = shown(
            next((point for point in points if not hasattr(point, "as_given")), points)
        )
        raise refusal("grid", got, allowed, GridError)
    roots = sorted({point.root_seed for point in points})
    if len(roots) > 1:
        raise GridError(
            f"grid: got points of root_seed {', '.join(map(str, roots))}; allowed:"
            " points of one root_seed"
        )
    fields = [
        {name: value for name, value in point.as_given().items() if name != "root_seed"}
        for point in points
    ]
    base = {
        name: value
        for name, value in fields[0].items()
        if all(name in own and own[name] == value for own in fields)
    }
    own = [
        {name: value for name, value in each.items() if name not in base}
        for each in fields
    ]
    return {"name": "points", "root_seed": roots[0], "base": base} | (
        {"blocks": [{"axes": axes} for axes in own]} if any(own) else {}
    )
