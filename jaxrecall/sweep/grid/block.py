"""One grid block: the rows of values that its axes give, and the point at each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...errors import PointError, Problem
from ...model.point import FIELDS, Point
from .axes import axis_locations
from .document import Document, Location
from .expr import Expression
from .fields import OTHER_RATE
from .file import GridFile
from .values import show

Values = dict[str, Any]
"""Values of fields and helpers by name."""

_RESOLVED = frozenset({"activation", "kappa", "gamma", "gamma2"})  # these may change, or appear, when the point is made


@dataclass
class GridBlock:
    """A block of the file, ready to expand; without blocks in the file, one with no factors represents the base alone.

    `factors` are the factors of the product, each as names and rows of values; `locations` says where each name is written.
    """

    location: Location = ()
    locations: dict[str, Location] = field(default_factory=dict)
    factors: list[tuple[tuple[str, ...], list[tuple[Any, ...]]]] = field(default_factory=list)
    derive: dict[str, Expression] = field(default_factory=dict)
    where: list[Expression] = field(default_factory=list)
    n_raw: int = field(init=False)
    rate: str | None = field(init=False)

    def __post_init__(self) -> None:
        self.n_raw = math.prod(len(rows) for _, rows in self.factors)
        self.rate = next((name for name in OTHER_RATE if name in self.locations), None)

    def rows(self) -> Iterator[Values]:
        """The values of the axes at each point, the last axis fastest."""
        for combination in itertools.product(*(rows for _, rows in self.factors)):
            pairs = zip(self.factors, combination, strict=True)
            yield {name: value for (names, _), row in pairs for name, value in zip(names, row, strict=True)}

    def point(self, values: Values) -> Point | None:
        """The point at these values of base and axes, or None if a where line excludes it; raises PointError.

        Adds the derived values to `values`. A where line sees the fields as the point resolves them. Where the point cannot be
        made, a line that needs only given and derived values may still exclude it.
        """
        problems = self._derive_into(values)
        point = None  # made by the first line that needs it, since to exclude a point without making it is faster
        for i, line in enumerate(self.where):
            known = line.names <= values.keys()
            if point is None and not problems and not (known and line.names.isdisjoint(_RESOLVED)):
                point = self._make(values, problems)
            if point is None and not known:
                continue
            scope = values if point is None else {n: getattr(point, n) if n in FIELDS else values[n] for n in line.names}
            try:
                holds = line.evaluate(scope)
            except ValueError as error:
                problems.append(Problem(f"where.{i}", str(error)))
                continue
            if holds is False:
                return None
            if holds is not True:
                problems.append(Problem(f"where.{i}", f"{line.text!r}: gives {show(holds)}; allowed: true or false"))
        if point is None and not problems:
            point = self._make(values, problems)
        if problems:
            raise PointError(problems)
        return point

    def _derive_into(self, values: Values) -> list[Problem]:
        """Adds the derived values; the first that fails is a problem, and leaves it and the later ones out."""
        for i, (name, expression) in enumerate(self.derive.items()):
            try:
                values[name] = expression.evaluate(values)
            except ValueError as error:
                for unknown in list(self.derive)[i:]:
                    values.pop(unknown, None)
                return [Problem(name, str(error))]
        return []

    def _make(self, values: Values, problems: list[Problem]) -> Point | None:
        """The point, or None and its problems added to `problems`."""
        arguments = {name: values[name] for name in FIELDS if values.get(name) is not None}
        if self.rate in arguments:
            arguments.pop(OTHER_RATE[self.rate], None)
        try:
            return Point(**arguments)
        except PointError as error:
            problems += error.problems
            return None


def grid_blocks(document: Document, file: GridFile) -> list[GridBlock]:
    """The blocks of a checked file."""
    if not file.blocks:
        return [GridBlock()]
    blocks = []
    for i, block in enumerate(file.blocks):
        location: Location = ("blocks", i)
        axes = document.data["blocks"][i].get("axes", {})
        columns = block.axes.columns() if block.axes else {}
        factors = []
        for name in axes:
            groups = [{name: columns[name]}]
            if name == "zip":
                zipped: Any = columns[name]
                groups = [group.columns() for group in (zipped if isinstance(zipped, list) else [zipped])]
            factors += [(tuple(group), list(zip(*group.values(), strict=True))) for group in groups]
        locations = dict(axis_locations(axes, (*location, "axes")))
        locations |= {name: (*location, "derive", name) for name in block.derive}
        locations |= {f"where.{j}": (*location, "where", j) for j in range(len(block.where))}
        blocks.append(GridBlock(location, locations, factors, block.derive, block.where))
    return blocks
