"""Laws of the random embeddings, one file each. To add one, subclass `EmbeddingLaw` and call `register`."""

from .gaussian import Gaussian
from .law import EMBEDDING_LAWS, EmbeddingLaw, Moments, Rescaled, law_index, register
from .orthogonal import Orthogonal
from .sphere import Sphere

__all__ = ["EMBEDDING_LAWS", "EmbeddingLaw", "Moments", "Rescaled", "law_index", "register"]

for _law in (Gaussian(), Sphere(), Orthogonal()):
    register(_law)
