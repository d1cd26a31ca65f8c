"""Laws with parameters: of the embeddings, of the tokens, and the optimisers.

`law` has the text that names a law, `embedding` what an embedding law must say and
those that are drawn, `array` those of a file, `tokens` laws of the tokens, and
`optimizers` the optimisers. Activations are laws too: `model/activations.py`. To add
one, write a frozen dataclass, decorate it with `register` and import its file here, or
name it as `module:Class`.
"""

# ruff: noqa: F401  these are the names of the folder

from . import array
from .embedding import (
    TOGETHER,
    Draws,
    EmbeddingLaw,
    Equicorrelated,
    Gaussian,
    Moments,
    Orthogonal,
    Rescaled,
    Sphere,
    isotropic,
    numpy_draws,
)
from .law import LAWS, Law, find_law, register
from .optimizers import OptimizerLaw
from .tokens import TokenLaw, Uniform, Zipf
