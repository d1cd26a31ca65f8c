"""Every variant of the compiled programs, at one size, from variants.yaml.

These variants are compiled for accelerators, and tests lower them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from jaxrecall.simulator.program_shape import Shape

WRITTEN = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


def variants(size: int) -> list[Shape]:
    """Returns the variants of the three steps, with V = d = m = pool = `size`."""
    return [shape(entry, size) for entry in WRITTEN["variants"]]


def further(size: int) -> list[Shape]:
    """Returns programs of runs that train beyond the recipe, some of each kind."""
    return [shape(entry, size) for entry in WRITTEN["further"]]


def shape(entry: dict[str, Any], size: int) -> Shape:
    fields = {"V": "size", "d": "size", "m": 0, "activation": "none"} | entry
    for name, value in fields.items():
        fields[name] = size if value == "size" else value
    return Shape(**fields)


def name(shape: Shape) -> str:
    """The name of the variant in words."""
    words = [
        shape.form,
        f"with {shape.activation} MLP" if shape.m else "",
        "diagnose" * shape.diagnose,
        "decoders" * shape.decoders,
        f"{shape.optimizer} on {shape.trains}" if shape.optimizer else "",
    ]
    return " ".join(filter(None, words))
