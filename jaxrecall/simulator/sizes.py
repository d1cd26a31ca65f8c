"""What is static in a compiled program, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.point import BLOCK


@dataclass(frozen=True, order=True)
class Sizes:
    """Padded sizes V x d x m and the static fields of a program. Every point that fits runs in it."""

    V: int
    d: int
    m: int
    activation: str
    """Text of the law, its float parameters left out."""

    form: str = "full"  # a name of forms.FORMS
    diagnose: bool = False
    decoders: bool = False
    tile: int = 0
    """Samples per iteration of a loop over samples: whole blocks. 0 takes four, which suits a CPU's caches and wastes little on
    small N; programs of further steps take one; wide programs take fewer, so that a (tile, widest) float32 array stays within 16 MiB
    as long as one block does."""

    pool: int = 0
    """Noise sequences of the pool; 0 is none."""

    start: str = "three_step"
    optimizer: str = ""
    """Of further steps; empty for the recipe alone."""

    trains: str = ""
    embedding: str = ""
    """Text of the embedding law, its float parameters left out; empty for laws that share a program."""

    tokens: str = "uniform"
    batched: bool = False
    """Whether further steps read batches of samples."""

    quick: bool = False
    """On a CPU, compiled in less time and slower to run, by the factors in `shape`. The plan chooses it for little work of the recipe
    alone."""

    def __post_init__(self) -> None:
        if not self.tile:
            most = 1 if self.optimizer else 4  # many steps over few samples
            blocks = max(1, min(most, 2**22 // (max(self.V, self.d, self.m) * BLOCK)))
            object.__setattr__(self, "tile", BLOCK * blocks)

    @property
    def through_logits(self) -> bool:
        """Whether further steps go through the logits of the vocabulary, and no sample needs its attention output h (d,)."""
        return not self.m and self.V <= 2 * self.d

    def __str__(self) -> str:
        return f"{self.V}x{self.d}" + (f"x{self.m}" if self.m else "")
