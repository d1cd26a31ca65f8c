"""Laws with parameters: embedding laws, token laws and optimisers.

`law` defines laws and the text of a law. `embedding` defines the interface of embedding
laws, and contains the laws whose rows are drawn. `array` contains the law that reads
embeddings from a file. `tokens` contains the token laws, and `optimizers` the
optimisers. Activations are laws too: `model/activations.py`. To add a law, write a
frozen dataclass. Then decorate it with `register` and import its file here, or refer to
it as `module:Class`.
"""

# ruff: noqa: F401  these are the names of the folder

from . import array
from .embedding import (
    Draws,
    EmbeddingLaw,
    Equicorrelated,
    Gaussian,
    Moments,
    Orthogonal,
    Sphere,
    isotropic,
)
from .law import LAWS, Law, find_law, register
from .optimizers import OptimizerLaw
from .tokens import TokenLaw, Uniform, Zipf
