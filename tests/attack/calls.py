"""Values of any type in the functions of the package: a result, or a ValueError that
says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from hypothesis import strategies as st
from test_any_document import objects
from test_any_table import MORE, RUNS

import jaxrecall
from attack import Calls, listed
from attack.inputs import drawn
from attack.tries import Tries
from jaxrecall import Point, fit, plot, theory

CALLS = Calls("calls")
POINT = Point(V=8, N=16, d=4, L=2, n_test=16)
FRAME = pd.DataFrame([row | MORE for row in RUNS])
FIELDS = listed("""V N d L m pool eta kappa embedding activation steps lr exact n_test
tokens""")
MODEL = theory.Model(POINT)

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "Point": lambda fields: Point(**{"V": 8, "N": 16, "d": 4, "L": 2} | fields),
    "simulate(value)": lambda value: jaxrecall.simulate(value, 0),
    "simulate(seed)": lambda value: jaxrecall.simulate(POINT, value),
    "realize(value)": lambda value: jaxrecall.realize(value, 0),
    "realize(seed)": lambda value: jaxrecall.realize(POINT, value),
    "three_step(value)": lambda value: jaxrecall.three_step(value, POINT),
    "three_step(point)": lambda value: jaxrecall.three_step(
        jaxrecall.realize(POINT, 0), value
    ),
    "load": jaxrecall.load,
    "thresholds": jaxrecall.thresholds,
    "run": lambda value: jaxrecall.run(value, progress=False),
    "run(seeds)": lambda value: jaxrecall.run(POINT, seeds=value, progress=False),
    "run(workers)": lambda value: jaxrecall.run(POINT, workers=value, progress=False),
    "fit(frame)": fit.fit,
    "fit(thetas)": lambda value: fit.fit(FRAME, value),
    "fit(where)": lambda value: fit.fit(FRAME, where=value),
    "fit(along)": lambda value: fit.fit(FRAME, along=value),
    "fit(step)": lambda value: fit.fit(FRAME, step=value),
    "plot.accuracy": plot.accuracy,
    "plot.accuracy(x)": lambda value: plot.accuracy(FRAME, x=value),
    "plot.critical_n": plot.critical_n,
    "plot.phase(x)": lambda value: plot.phase(FRAME, value),
    "theory.Model": lambda fields: theory.Model.from_fields(
        {"V": 8, "d": 4, "L": 2} | fields
    ),
    "theory.critical_N": lambda value: theory.critical_N(MODEL, value),
    "theory.accuracy": lambda value: theory.accuracy(MODEL, value),
}
"""The functions whose arguments are checked, each with any value in the place of one of
them.
"""

OF_FIELDS = ("Point", "theory.Model")
"""Functions whose argument is a field with any value."""

LONG = ("simulate(seed)", "run", "run(seeds)", "run(workers)")
"""Calls that do what they are asked, for long if the number is large."""


def values(tries: Tries) -> None:
    def attempt(made: Any) -> None:
        name, field, value = made
        if name in LONG and isinstance(value, int) and abs(value) > 8:
            return
        with tries.one(f"{name} of {field}={value!r}") as one:
            if refused(name, field, value):
                one.refused()
        plt.close("all")

    names = st.sampled_from(sorted(FUNCTIONS))
    drawn(
        tries,
        lambda draw: (draw(names), draw(st.sampled_from(FIELDS)), draw(objects())),
        attempt,
    )


def refused(name: str, field: str, value: Any) -> bool:
    """Whether a function of the package refuses a value, by an error of the package
    that says why.
    """
    try:
        given = {field: value} if name in OF_FIELDS else value
        CALLS(name, FUNCTIONS[name], given)
    except ValueError as error:
        if not str(error) or not type(error).__module__.startswith("jaxrecall"):
            raise
        return True
    return False
