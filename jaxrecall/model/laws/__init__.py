"""Laws with parameters that a point chooses among: of the embeddings, one file each, and of the tokens.

`law` has the text that names a law, `embedding` what an embedding law must say, `tokens` what a token law must say. Activations
are laws too: `model/activations.py`. To add one, write a frozen dataclass and decorate it with `register`, or name it as
`module:Class`.
"""

import pkgutil
from importlib import import_module

from .embedding import Draws, EmbeddingLaw, Moments, Rescaled, isotropic, numpy_draws
from .equicorrelated import Equicorrelated
from .gaussian import Gaussian
from .law import LAWS, Law, find_law, register
from .orthogonal import Orthogonal
from .sphere import Sphere
from .tokens import TokenLaw, Uniform, Zipf

for _module in pkgutil.iter_modules(__path__):  # a law of the package is one file here
    import_module(f".{_module.name}", __name__)

TOGETHER: tuple[EmbeddingLaw, ...] = (Gaussian(), Sphere(), Orthogonal())
"""Embedding laws that one compiled program serves, by place. Any other has programs of its own."""

LAWS["embedding"] = {law.name: type(law) for law in TOGETHER} | LAWS["embedding"]  # the usual ones first in messages

__all__ = [
    "LAWS",
    "TOGETHER",
    "Draws",
    "EmbeddingLaw",
    "Equicorrelated",
    "Gaussian",
    "Law",
    "Moments",
    "Orthogonal",
    "Rescaled",
    "Sphere",
    "TokenLaw",
    "Uniform",
    "Zipf",
    "find_law",
    "isotropic",
    "numpy_draws",
    "register",
]
