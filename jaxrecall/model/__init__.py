"""The model: points, the task, the embeddings, and the plain transformer with its loss.

`point` declares the symbols and checks their values. `recall` contains the transformer.
`reference/` contains the three steps in float64. `jaxrecall.model` exports `Recall` and
`loss`, and the default attention and readout of `Recall`.
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
