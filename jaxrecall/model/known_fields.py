"""Which fields of a point a formula, a bound or a shortcut knows. What it does not know it must refuse.

A formula names the fields that it depends on, and those that do not matter to it whatever their value. A field that is added
later is in neither list, so the formula refuses points that use it until somebody has looked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING
from typing import Any

from .point import FIELDS, SAME_AS, Point

EVALUATION = frozenset({"root_seed", "streams", "n_test", "exact", "diagnose", "decoders"})
"""Fields that change which random numbers are drawn or what is measured, never what is learned on average."""


def unknown_fields(point: Point, known: Collection[str]) -> tuple[str, ...]:
    """The fields of a point that are off their default and not among `known`, in the order of their declaration.

    A field without a default, such as V, counts as off its default.

    >>> from jaxrecall import Point
    >>> unknown_fields(Point(V=64, N=1024, d=32, L=8, pool=16), known={"V", "N", "d", "L", "gamma", "gamma2", "kappa"})  # ('pool',)
    """
    return unknown_names({name: getattr(point, name) for name in FIELDS}, known)


def unknown_names(values: Mapping[str, Any], known: Collection[str]) -> tuple[str, ...]:
    """The names of `values` that are not among `known` and have a value: neither None, nor NaN, nor the default of the field.

    The activation `none`, that of a model without an MLP, counts as a default, and so does a law like that of the field it follows.
    """
    same = {name for name, of in SAME_AS.items() if values.get(name) == values.get(of)}
    return tuple(name for name, value in values.items() if name not in {*known, *same} and not _is_default(name, value))


def _is_default(name: str, value: Any) -> bool:
    default = FIELDS[name].default if name in FIELDS else None
    if value is None or value != value or (name == "activation" and value == "none"):
        return True
    return default is not MISSING and value == default
