"""The axes of a grid block: one value, a list or a spacing each, and zip groups, which move together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, create_model, model_validator

from .document import Location
from .expr import MAX_BITS
from .fields import AXIS_FIELDS, described, field_check, field_value
from .spacing import MAX_AXIS, Spacing
from .values import Checked, absent, refuse


def _scalar(value: Any) -> Any:
    if isinstance(value, (dict, list)) or (isinstance(value, float) and not math.isfinite(value)):
        raise refuse(value, "numbers, text, true, false, null")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise refuse(value, "numbers up to 1e308")
    return value


def _form(value: Any) -> str:
    return "spacing" if isinstance(value, dict) else "list" if isinstance(value, list) else "value"


def _axis_of(value_type: Any, check: Callable[[Any], Any]) -> Any:
    """One value, a list or a spacing, which becomes the tuple of its checked values."""

    def values(axis: Any) -> tuple[Any, ...]:
        if not isinstance(axis, Spacing):
            return tuple(axis) if isinstance(axis, list) else (axis,)
        try:
            return tuple(check(value) for value in axis.values())
        except ValueError as error:
            hint = "; round: int makes them whole" if "whole numbers" in str(error) else ""
            raise ValueError(f"one of its values is wrong: {error}{hint}") from None

    one: Any = Annotated[value_type, Tag("value")]
    many: Any = Annotated[list[value_type], Field(min_length=1, max_length=MAX_AXIS), Tag("list")]
    return Annotated[one | many | Annotated[Spacing, Tag("spacing")], Discriminator(_form), AfterValidator(values)]


_HELPER_SCHEMA = {"type": ["number", "string", "boolean", "null"]}
_HelperAxis = _axis_of(Annotated[Any, Checked(_scalar, _HELPER_SCHEMA)], _scalar)


class _Named(BaseModel):
    """Axes by name: fields of Point, and helpers."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, _HelperAxis]  # pyright: ignore

    def columns(self) -> dict[str, tuple[Any, ...]]:
        """The values of each axis that the file gives."""
        everything = {**vars(self), **(self.model_extra or {})}
        return {name: everything[name] for name in everything if name in self.model_fields_set}


_AXES: dict[str, Any] = {name: (_axis_of(field_value(name), field_check(name)), described(name)) for name in AXIS_FIELDS}


class Zip(create_model("ZipFields", __base__=_Named, **_AXES)):
    """Axes that move together: the first value of each, then the second of each, and so on."""

    @model_validator(mode="after")
    def _equal(self) -> Zip:
        lengths = {name: len(values) for name, values in self.columns().items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"got lengths {', '.join(f'{n}: {k}' for n, k in lengths.items()) or 'of nothing'}; allowed: equal lengths")
        return self


_one_zip: Any = Annotated[Zip, Tag("zip")]
_many_zips: Any = Annotated[list[Zip], Field(min_length=1), Tag("zips")]
_AXES["zip"] = (
    Annotated[_one_zip | _many_zips, Discriminator(lambda value: "zips" if isinstance(value, list) else "zip")],
    Field(default_factory=absent, description="axes of equal length that move together; or a list of such groups"),
)


class Axes(create_model("AxesFields", __base__=_Named, **_AXES)):
    """The axes whose product makes the points, the last axis fastest."""

    @model_validator(mode="after")
    def _some(self) -> Axes:
        if not self.model_fields_set:
            raise ValueError("got no axis; allowed: at least one, such as d: [32, 64]")
        return self


def axis_locations(axes: Any, location: Location) -> Iterator[tuple[str, Location]]:
    """Each axis name in the plain data `axes` of a grid block, in file order, with its location; zip groups are opened."""
    for name, value in axes.items() if isinstance(axes, dict) else ():
        here = (*location, name)
        if name != "zip":
            yield name, here
            continue
        groups = [((*here, i), group) for i, group in enumerate(value)] if isinstance(value, list) else [(here, value)]
        for outer, group in groups:
            yield from ((inner, (*outer, inner)) for inner in (group if isinstance(group, dict) else ()))
