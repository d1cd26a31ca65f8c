"""The programs of a plan as lines of a dry run, each with a label of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from ...simulator.shape import Shape
from ..plan import Plan
from .progress import duration, plural

SIZES = ("V", "d", "m")


def lines(plan: Plan) -> list[str]:
    """One line a program: its label, what it runs, and what that costs."""
    return [
        f"  program {label}: {', '.join(plural(entry[f'{noun}s'], noun) for noun in ('point', 'run', 'chunk'))}"
        + ("" if plan.simulator else f", about {duration(entry['est_seconds'])}, {entry['est_peak_bytes'] / 2**20:.0f} MiB")
        for label, entry in zip(labels(plan.shapes), plan.describe(), strict=True)
    ]


def labels(shapes: Sequence[Any]) -> list[str]:
    """The sizes of each program and what it does; of programs
    that agree in that also all in which they differ.

    A program of a simulator of the user's goes by its text.
    """
    texts = [_label(shape) if isinstance(shape, Shape) else str(shape) for shape in shapes]
    alike: dict[str, list[Any]] = defaultdict(list)
    for text, shape in zip(texts, shapes, strict=True):
        alike[text].append(shape)
    differ = {text: _differences(group) if isinstance(group[0], Shape) else [] for text, group in alike.items()}
    return [
        ", ".join([text, *(said for name in differ[text] if (said := _said(name, getattr(shape, name))))])
        for text, shape in zip(texts, shapes, strict=True)
    ]


def _label(shape: Shape) -> str:
    """64x32x128 relu pool 64 adam on memory"""
    said = [str(shape), shape.activation if shape.m else "", f"pool {shape.pool}" if shape.pool else ""]
    return " ".join(filter(None, [*said, f"{shape.optimizer} on {shape.trains}" if shape.optimizer else ""]))


def _differences(shapes: Sequence[Shape]) -> list[str]:
    names = [field.name for field in fields(Shape) if field.name not in SIZES]
    return [name for name in names if len({getattr(shape, name) for shape in shapes}) > 1]


def _said(name: str, value: Any) -> str:
    """What a field of a shape adds to a label; nothing for what is usual."""
    if isinstance(value, bool):
        return name if value else ""
    return f"{name} {value}" if value else ""
