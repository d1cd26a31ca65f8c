"""Every variant of the compiled programs, at one size.

These variants are compiled for accelerators, and tests lower them.
"""

from __future__ import annotations

from itertools import chain, product

from jaxrecall.simulator.forms import FORMS
from jaxrecall.simulator.program_shape import Shape


def variants(size: int) -> list[Shape]:
    """Returns each form without and with an MLP, plain and with all extra columns.

    The sizes are V = d = m = pool = `size`. Each variant with an MLP has one of the
    activations in turn, because activations differ only in elementwise operations.
    """
    shapes: list[Shape] = []
    activations = ("relu", "gelu", "tanh", "quadratic", "identity")
    without_pool_first = sorted(FORMS.values(), key=lambda form: form.source == "pool")
    # the form "memory" is last, so that the others keep their activations
    others = [form for form in without_pool_first if form.name != "memory"]
    for extras, form, mlp in chain(
        *(
            product((False, True), forms, (False, True))
            for forms in (others, [FORMS["memory"]])
        )
    ):
        if mlp and form.source == "counts":
            continue  # an MLP needs more than the counts of tokens
        activation = (
            activations[sum(shape.m > 0 for shape in shapes) % len(activations)]
            if mlp
            else "none"
        )
        m, pool = size if mlp else 0, size if form.source == "pool" else 0
        decoders = extras and not mlp and not pool
        shapes.append(
            Shape(
                size,
                size,
                m,
                activation,
                form.name,
                diagnose=extras,
                decoders=decoders,
                pool=pool,
            )
        )
    return shapes


def further(size: int) -> list[Shape]:
    """Returns programs of runs that train beyond the recipe, some of each kind."""
    return [
        Shape(
            size, size, 0, "none", "full", start="zero", optimizer="adam", trains="VWZ"
        ),
        Shape(
            size,
            size,
            size,
            "relu",
            "uniform",
            optimizer="sgd",
            trains="VWZM",
            batched=True,
        ),
        Shape(
            size, size, 0, "none", "pool", pool=size, optimizer="momentum", trains="VW"
        ),
        Shape(
            size,
            size,
            0,
            "none",
            "memory",
            start="zero",
            optimizer="polar",
            trains="V",
            tokens="tables",
            groups=True,
        ),
    ]


def name(shape: Shape) -> str:
    """The name of the variant in words."""
    words = [
        shape.form,
        f"with {shape.activation} MLP" if shape.m else "",
        "diagnose" * shape.diagnose,
        "decoders" * shape.decoders,
    ]
    words.append(f"{shape.optimizer} on {shape.trains}" if shape.optimizer else "")
    return " ".join(filter(None, words))
