"""Prepares the samples of one run, trains the model, and measures it."""

from __future__ import annotations

from .descent import descend
from .measurements import Raw, after_recipe
from .recipe import recipe, untrained
from .sources.source import source_of
from .world import Trained, World


def train_and_measure(world: World) -> tuple[Trained, Raw]:
    """Returns the model before any further steps, and the raw metrics of the run."""
    world = source_of(world).prepare(world)
    model = untrained(world) if world.shape.start == "zero" else recipe(world)
    if not world.shape.optimizer:
        return model, after_recipe(world, model)
    trace = descend(world, model)
    return model, {"trace": trace, "errors": model.errors, "locked": model.locked}
