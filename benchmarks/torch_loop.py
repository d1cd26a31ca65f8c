"""The torch loop: the code that a careful user writes today in PyTorch.

The loop uses eager mode, float32, autograd and chunks of 4096 samples, one run at a
time. The three steps compute gradients of the plain loss, with respect to the
parameters that the step changes and nothing else. Random numbers are torch's own.

There are two forms of the attention, which autograd differentiates alike. `keys` stores
the keys of a chunk as one (n, L, d) array, as in the formula. `bag` never forms them:
attention logits come from a table over the vocabulary, and `embedding_bag` sums the
values.

The loop supports only the defaults of a point: gaussian embeddings, trigger in the
value, one batch, relu. Further steps are gradient descent from the recipe, without an
MLP.
"""

# only the extra [bench] installs torch
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from jaxrecall import Point
from jaxrecall.model.point import RECIPE_STEPS

from .peer import CHUNK, Draws, Learned

Attention = Callable[[Tensor], Tensor]
"""A function from w = W_KQ z_eos to the attention outputs h (n, d) of samples."""


def draw(point: Point, seed: int) -> Draws:
    """Draws the random arrays of one run."""
    g = torch.Generator().manual_seed(seed)
    V, d, L, m = point.V, point.d, point.L, point.m
    normal = torch.randn(2 * V + 2, d, generator=g) * d**-0.5
    embeddings = normal[:V], normal[V : 2 * V], normal[-2], normal[-1]
    perm = torch.randperm(V, generator=g)

    def samples(n: int) -> tuple[Tensor, Tensor, Tensor]:
        x = torch.randint(V, (n, L), generator=g)
        ell = torch.randint(L, (n,), generator=g)
        return x, ell, perm[x[torch.arange(n), ell]]

    W_in = torch.randn(m, d, generator=g) if m else None
    return Draws(*embeddings, W_in, perm, *samples(point.N), *samples(point.n_test))


def attention_keys(r: Draws, x: Tensor, ell: Tensor) -> Attention:
    """The attention of samples whose keys (n, L, d) are formed once."""
    k = F.embedding(x, r.Z_in)
    k[torch.arange(len(x)), ell] += r.z_trig

    def attend(w: Tensor) -> Tensor:
        a = torch.softmax(k @ w, dim=1)
        return (a.unsqueeze(1) @ k).squeeze(1)

    return attend


def attention_bag(r: Draws, x: Tensor, ell: Tensor) -> Attention:
    """The attention of samples whose keys are never formed."""
    at = ell.unsqueeze(1)

    def attend(w: Tensor) -> Tensor:
        trigger = (r.z_trig @ w).expand(len(x), 1)
        a = torch.softmax((r.Z_in @ w)[x].scatter_add(1, at, trigger), dim=1)
        values = F.embedding_bag(x, r.Z_in, per_sample_weights=a, mode="sum")
        return values + a.gather(1, at) * r.z_trig

    return attend


FORMS = {"keys": attention_keys, "bag": attention_bag}


def logits(r: Draws, V_mat: Tensor, W_KQ: Tensor, attend: Attention) -> Tensor:
    """The logits of the samples of an attention, (n, V)."""
    h = attend(W_KQ @ r.z_eos)
    phi = h if r.W_in is None else torch.relu(h @ r.W_in.T) * len(r.W_in) ** -0.5
    return phi @ V_mat.T @ r.Z_out.T


def learn(r: Draws, point: Point, form: str = "keys") -> Learned:
    """Performs the three gradient steps."""

    def gradient(of: Tensor, V_mat: Tensor, W_KQ: Tensor) -> Tensor:
        of.requires_grad_(True)
        for x, ell, y in chunks(r.train):
            answers = logits(r, V_mat, W_KQ, FORMS[form](r, x, ell))
            loss = F.cross_entropy(answers, y, reduction="sum") / point.N
            loss.backward()
        of.requires_grad_(False)
        assert of.grad is not None
        return of.grad

    V0, W0 = torch.zeros(point.d, point.p), torch.zeros(point.d, point.d)
    V1 = V0 - point.eta * gradient(V0, V0, W0)
    W1 = W0 - point.gamma * gradient(W0, V1, W0)
    V2 = V1 - point.gamma2 * gradient(V1, V1, W1)
    return Learned(V1, W1, V2)


@torch.no_grad()
def accuracy(r: Draws, learned: Learned, form: str = "keys") -> float:
    """The fraction of the test sequences whose label has the largest logit."""
    correct = 0
    for x, ell, y in chunks(r.test):
        answers = logits(r, learned.V2, learned.W1, FORMS[form](r, x, ell))
        correct += int((answers.argmax(1) == y).sum())
    return correct / len(r.test_labels)


Record = tuple[float, float, float]
"""Loss, test loss and accuracy at a recorded step."""


def descend(
    r: Draws, point: Point, form: str = "keys"
) -> tuple[Tensor, Tensor, list[Record]]:
    """Continues with gradient descent after the recipe.

    Returns V_mat and W_KQ after all steps, and the records. Each step uses all samples
    at once. Their keys are formed only once.
    """
    learned = learn(r, point, form)
    V_mat, W_KQ = learned.V2.requires_grad_(), learned.W1.requires_grad_()
    train, test = FORMS[form](r, *r.train[:2]), FORMS[form](r, *r.test[:2])

    def loss() -> Tensor:
        return F.cross_entropy(logits(r, V_mat, W_KQ, train), r.train_labels)

    records = []
    for step in range(RECIPE_STEPS, point.steps + 1):
        if step in point.recorded_steps:
            with torch.no_grad():
                answers = logits(r, V_mat, W_KQ, test)
                test_loss = F.cross_entropy(answers, r.test_labels)
                correct = (answers.argmax(1) == r.test_labels).float().mean()
                records.append((float(loss()), float(test_loss), float(correct)))
        if step < point.steps:
            slopes = torch.autograd.grad(loss(), (V_mat, W_KQ))
            with torch.no_grad():
                V_mat.sub_(slopes[0], alpha=point.lr)
                W_KQ.sub_(slopes[1], alpha=point.lr_attention)
    return V_mat.detach(), W_KQ.detach(), records


def run(point: Point, seeds: Iterable[int], form: str) -> list[float]:
    """Draws, trains and tests the seeds of a point, one after the other.

    Returns their accuracies at the last step.
    """
    accuracies = []
    for seed in seeds:
        r = draw(point, seed)
        if point.steps == RECIPE_STEPS:
            accuracies.append(accuracy(r, learn(r, point, form), form))
        else:
            accuracies.append(descend(r, point, form)[2][-1][2])
    return accuracies


def chunks(arrays: Iterable[Tensor]) -> Iterator[tuple[Any, ...]]:
    return zip(*(array.split(CHUNK) for array in arrays), strict=True)
