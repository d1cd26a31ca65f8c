"""Predicts what a law says at sizes that were not measured.

A law has one constant for each combination of values of its factors, so there is one
prediction for each. The prefactor is the value of the law where all sizes are 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import scipy

from ...errors import FitError, as_list, refusal, shown
from ...model.values import as_number
from ...sweep.crossing import TAIL
from ...sweep.grid.document import scalar
from .cells import check_axis
from .columns import Row, split, without
from .law import Estimate, Estimates, Law

ALLOWED = "sizes and other settings of the law, as in N=1e6,d=512"

Sizes = Mapping[str, Any]
"""A dict from axis to value."""


def parse_sizes(given: object) -> list[Sizes]:
    """Returns a list of the sizes that texts such as "N=1e6,d=512", or dicts, list.

    Raises FitError if one lists none.
    """
    if isinstance(given, (str, Mapping)):
        given = [given]
    return [_parsed(sizes) for sizes in as_list("predict", given, ALLOWED, FitError)]


def _parsed(given: object) -> Sizes:
    if isinstance(given, Mapping) and given:
        return given
    sizes = {}
    try:
        for pair in str(given).split(","):
            name, value = pair.split("=")
            sizes[name.strip()] = scalar(value.strip())
    except ValueError:
        raise refusal("predict", shown(given), ALLOWED, FitError) from None
    return sizes


def predict_law(e: Estimates, sizes: Sizes) -> Iterator[Row]:
    """Yields the value of a law at some sizes for each combination of its factors.

    Nothing is yielded if the cells have another value of a setting.

    Raises FitError for a size that is no number greater than 0, or that is missing.
    """
    law = e.law
    if not law.crossings:
        return
    at = law.family.at
    for name in sizes:
        check_axis("predict", name, at)
    numbers = {name: as_number(sizes.get(name), float) for name in law.axes}
    for name, size in numbers.items():
        if size is None or size <= 0:
            raise FitError(
                f"predict: {name} is {shown(sizes.get(name))}; allowed: a number"
                f" greater than 0 for each of {', '.join(law.axes)}"
            )
    kinds = at.iloc[[cells[0] for cells in split(at, law.factors)]]
    for name in without(sizes, law.axes):
        kinds = kinds[kinds[name] == sizes[name]]
    cells = [*kinds.index]
    values = law.predict(cells, [*numbers.values()])
    prefactors = law.predict(cells, 1.0)
    for i, settings in enumerate(kinds.assign(**numbers).to_dict("records")):
        value = _of_one_cell(values[i], law)
        yield {
            **settings,
            **value.columns("predicted"),
            **prefactors[i].columns("prefactor"),
            "interval_by": value.by,
            "warning": "; ".join(_beyond(law, numbers)),
            "rejected": law.rejected,
            "n_cells": law.n_distinct,
            "n_seeds": law.n_seeds,
        }


def _of_one_cell(value: Estimate, law: Law) -> Estimate:
    """Returns a prediction whose interval has room for the distance of one more cell
    from the law, as far as noise does not explain those of the measured cells.
    """
    if law.misfit is None or not law.misfit.is_likely:
        return value
    apart = law.misfit.rms**2 - law.misfit.noise**2
    beyond = scipy.special.stdtrit(law.n_free, TAIL) * np.sqrt(max(0.0, apart))
    half = np.hypot(value.high - value.value, beyond)
    return value._replace(low=value.value - half, high=value.value + half)


def _beyond(law: Law, sizes: Sizes) -> Iterator[str]:
    """Yields a text for each size that lies beyond the cells of the law."""
    for name in law.axes:
        low, high = law.family.at[name].agg(["min", "max"])
        if not low <= sizes[name] <= high:
            yield f"{name} = {sizes[name]:g} lies beyond the cells, {low:g} to {high:g}"
