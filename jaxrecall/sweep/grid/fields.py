"""The fields of Point as values of a grid file.

The check of Point itself is used for a literal value of a field, so that every limit is written in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from ...errors import Problem
from ...model.point import FIELDS, checked_field, choices
from .values import Checked, absent

REQUIRED = tuple(name for name, f in FIELDS.items() if f.default is MISSING)
DEFAULTS = {name: f.default for name, f in FIELDS.items() if f.default is not MISSING and f.default is not None}
AXIS_FIELDS = tuple(name for name in FIELDS if name != "root_seed")
OTHER_RATE = {"kappa": "gamma", "gamma": "kappa"}


def choice_names() -> set[str]:
    """Every text that some field takes now: laws and activations may be registered at any time."""
    return {choice for name in FIELDS for choice in choices(name)}


def field_check(name: str) -> Callable[[Any], Any]:
    """A function that returns a literal value of the field as Point holds it; null passes where Point has a default."""

    def check(value: Any) -> Any:
        if value is None and name in AXIS_FIELDS and name not in REQUIRED:
            return None
        problems: list[Problem] = []
        checked = checked_field(name, value, True, problems)  # whether there is a pool is known when the point is made
        if problems:
            raise ValueError(problems[0].message.replace("got None", "got null"))
        return checked

    return check


def field_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a literal value of the field, from its declaration."""
    f, limits = FIELDS[name], FIELDS[name].metadata
    kind = {"int": "integer", "float": "number", "bool": "boolean"}.get(str(f.type).removesuffix(" | None"), "string")
    null = name not in REQUIRED and name in AXIS_FIELDS
    schema: dict[str, Any] = {"type": [kind, "null"] if null else kind}
    if names := choices(name):
        schema["enum"] = [*names, None] if null else list(names)
    if "low" in limits:
        schema["exclusiveMinimum" if limits.get("open_low") else "minimum"] = limits["low"]
    if "high" in limits:
        schema["maximum"] = limits.get("high_with_pool", limits["high"])
    return schema


def field_value(name: str) -> Any:
    """The pydantic type of a literal value of the field."""
    return Annotated[Any, Checked(field_check(name), partial(field_schema, name))]


def described(name: str) -> Any:
    """A pydantic Field that shows the legend and the default of the field, and may be left out."""
    default = FIELDS[name].default
    extra: dict[str, Any] = {"title": name} if default in (MISSING, None) else {"title": name, "default": default}
    return Field(default_factory=absent, description=FIELDS[name].metadata["legend"], json_schema_extra=extra)
