"""One value of a grid file: its check, its JSON Schema, and how messages show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeGuard

from pydantic import BaseModel, ConfigDict
from pydantic_core import core_schema

from ...errors import shown


class StrictModel(BaseModel):
    """A mapping whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, eq=False)
class Checked:
    """For `Annotated[int, Checked(check, schema)]`: `check` returns the value or raises ValueError.

    `schema` is the JSON Schema of the value. A function is called whenever the schema of the file is made.
    """

    check: Callable[[Any], Any]
    schema: dict[str, Any] | Callable[[], dict[str, Any]]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return self.schema() if callable(self.schema) else self.schema


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether it is an int or a float; true is neither."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def whole(low: int, high: int) -> Checked:
    """Whole numbers from low to high; 1e5 is one, true is not."""

    def check(value: Any) -> int:
        if not is_number(value) or not low <= value <= high or value != int(value):
            raise refuse(value, f"whole numbers from {low} to {high}")
        return int(value)

    return Checked(check, {"type": "integer", "minimum": low, "maximum": high})


def between(low: float, high: float, allowed: str) -> Checked:
    """Numbers from low to high; a refusal shows `allowed`, such as "seconds from 0 to 3600"."""

    def check(value: Any) -> float:
        if not is_number(value) or not low <= value <= high:
            raise refuse(value, allowed)
        return float(value)

    return Checked(check, {"type": "number", "minimum": low, "maximum": high})


def _finite(value: Any) -> float:
    if not is_number(value) or not -1e308 <= value <= 1e308:
        raise refuse(value, "finite numbers")
    return value


Number = Annotated[float, Checked(_finite, {"type": "number"})]
"""A finite number; whole numbers stay ints."""


def absent() -> Any:
    """Default of a key that is not given."""
    return None


def show(value: Any) -> str:
    """`value` as YAML writes it, cut when long."""
    text = {None: "null", True: "true", False: "false"}.get(value) if isinstance(value, (bool, type(None))) else None
    return text or shown(value, 60)


def refuse(value: Any, allowed: str) -> ValueError:
    """The error for a wrong value, with the value received and the values allowed."""
    return ValueError(f"got {show(value)}; allowed: {allowed}")
