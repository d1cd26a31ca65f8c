"""The model: a point, the task, the embeddings, and the plain transformer with its
loss.

`point` holds the symbols and their checks, `recall` the model, `reference/` the three
steps in float64. `jaxrecall.model` has `Recall` and `loss`, and the attention and the
readout that `Recall` has unless others are given.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .recall import Recall, loss, plain_readout, softmax_attention

__all__ = ["Recall", "loss", "plain_readout", "softmax_attention"]

if not TYPE_CHECKING:  # planning reads points and columns without starting JAX

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(".recall", __name__), name)
