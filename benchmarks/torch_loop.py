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

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from jaxrecall import Point
from jaxrecall.model.point import RECIPE_STEPS

CHUNK = 4096


class Draws(NamedTuple):
    """The random arrays of a run, under their names in `jaxrecall.realize`."""

    Z_in: Tensor  # (V, d)
    Z_out: Tensor  # (V, d)
    z_trig: Tensor  # (d,)
    z_eos: Tensor  # (d,)
    W_in: Tensor | None  # (m, d)
    perm: Tensor  # (V,)
    train_tokens: Tensor  # (N, L) int64
    train_positions: Tensor  # (N,)
    train_labels: Tensor  # (N,)
    test_tokens: Tensor  # (n_test, L)
    test_positions: Tensor
    test_labels: Tensor


class Learned(NamedTuple):
    V1: Tensor  # (d, p)
    W1: Tensor  # (d, d)
    V2: Tensor  # (d, p)


def draw(point: Point, seed: int) -> Draws:
    """Draws the random arrays of one run."""
    g = torch.Generator().manual_seed(seed)
    V, d, L, m = point.V, point.d, point.L, point.m
    normal = torch.randn(2 * V + 2, d, generator=g) * d**-0.5
    perm = torch.randperm(V, generator=g)

    def samples(n: int) -> tuple[Tensor, Tensor, Tensor]:
        x = torch.randint(V, (n, L), generator=g)
        ell = torch.randint(L, (n,), generator=g)
        return x, ell, perm[x[torch.arange(n), ell]]

    W_in = torch.randn(m, d, generator=g) if m else None
    return Draws(
        normal[:V],
        normal[V : 2 * V],
        normal[-2],
        normal[-1],
        W_in,
        perm,
        *samples(point.N),
        *samples(point.n_test),
    )


def keys(r: Draws, x: Tensor, ell: Tensor) -> Tensor:
    """The keys of the samples, (n, L, d)."""
    k = F.embedding(x, r.Z_in)
    k[torch.arange(len(x)), ell] += r.z_trig
    return k


def attend_keys(r: Draws, w: Tensor, x: Tensor, ell: Tensor) -> Tensor:
    """Attention outputs h (n, d), computed from all keys of the chunk."""
    return attend_to(keys(r, x, ell), w)


def attend_to(k: Tensor, w: Tensor) -> Tensor:
    """Attention outputs h (n, d) of keys (n, L, d)."""
    a = torch.softmax(k @ w, dim=1)
    return (a.unsqueeze(1) @ k).squeeze(1)


def attend_bag(r: Draws, w: Tensor, x: Tensor, ell: Tensor) -> Tensor:
    """Attention outputs h (n, d), computed without forming a key."""
    ell = ell.unsqueeze(1)
    logits = (r.Z_in @ w)[x].scatter_add(1, ell, (r.z_trig @ w).expand(len(x), 1))
    a = torch.softmax(logits, dim=1)
    return (
        F.embedding_bag(x, r.Z_in, per_sample_weights=a, mode="sum")
        + a.gather(1, ell) * r.z_trig
    )


FORMS: dict[str, Callable[[Draws, Tensor, Tensor, Tensor], Tensor]] = {
    "keys": attend_keys,
    "bag": attend_bag,
}


def logits(
    r: Draws, V_mat: Tensor, W_KQ: Tensor, x: Tensor, ell: Tensor, form: str
) -> Tensor:
    """The logits of the samples, (n, V)."""
    h = FORMS[form](r, W_KQ @ r.z_eos, x, ell)
    phi = h if r.W_in is None else torch.relu(h @ r.W_in.T) * len(r.W_in) ** -0.5
    return phi @ V_mat.T @ r.Z_out.T


def learn(r: Draws, point: Point, form: str = "keys") -> Learned:
    """Performs the three gradient steps."""

    def gradient(of: Tensor, V_mat: Tensor, W_KQ: Tensor) -> Tensor:
        of.requires_grad_(True)
        for x, ell, y in chunks(r.train_tokens, r.train_positions, r.train_labels):
            loss = (
                F.cross_entropy(
                    logits(r, V_mat, W_KQ, x, ell, form), y, reduction="sum"
                )
                / point.N
            )
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
    batches = chunks(r.test_tokens, r.test_positions, r.test_labels)
    correct = sum(
        int((logits(r, learned.V2, learned.W1, x, ell, form).argmax(1) == y).sum())
        for x, ell, y in batches
    )
    return correct / len(r.test_labels)


def run(point: Point, seed: int, form: str = "keys") -> float:
    """Draws, trains and tests one run; returns its accuracy at the last step."""
    r = draw(point, seed)
    if point.steps == RECIPE_STEPS:
        return accuracy(r, learn(r, point, form), form)
    return descend(r, point, form)[2][-1].accuracy


class Record(NamedTuple):
    """The measurements at a recorded step."""

    step: int
    loss: float
    test_loss: float
    accuracy: float


def descend(
    r: Draws, point: Point, form: str = "keys"
) -> tuple[Tensor, Tensor, list[Record]]:
    """Continues with gradient descent after the recipe.

    Returns V_mat and W_KQ after all steps, and the records. Each step uses all samples
    at once. Their keys are formed only once.
    """
    learned = learn(r, point, form)
    V_mat, W_KQ = learned.V2.requires_grad_(), learned.W1.requires_grad_()
    attention, test_attention = (
        attention_of(r, *of, form)
        for of in (
            (r.train_tokens, r.train_positions),
            (r.test_tokens, r.test_positions),
        )
    )

    def loss_of(
        attention: Callable[[Tensor], Tensor], labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        answers = attention(W_KQ @ r.z_eos) @ (r.Z_out @ V_mat).T
        return F.cross_entropy(answers, labels), answers

    records = []
    for step in range(RECIPE_STEPS, point.steps + 1):
        if step in point.recorded_steps:
            with torch.no_grad():
                loss, (test_loss, answers) = (
                    loss_of(attention, r.train_labels)[0],
                    loss_of(test_attention, r.test_labels),
                )
                correct = (answers.argmax(1) == r.test_labels).float().mean()
            records.append(Record(step, float(loss), float(test_loss), float(correct)))
        if step < point.steps:
            slopes = torch.autograd.grad(
                loss_of(attention, r.train_labels)[0], (V_mat, W_KQ)
            )
            with torch.no_grad():
                V_mat.sub_(slopes[0], alpha=point.lr)
                W_KQ.sub_(slopes[1], alpha=point.lr_attention)
    return V_mat.detach(), W_KQ.detach(), records


def attention_of(
    r: Draws, x: Tensor, ell: Tensor, form: str
) -> Callable[[Tensor], Tensor]:
    """Returns a function from w = W_KQ z_eos to attention outputs h (n, d)."""
    if form == "bag":
        return lambda w: attend_bag(r, w, x, ell)
    k = keys(r, x, ell)
    return lambda w: attend_to(k, w)


def chunks(*arrays: Tensor) -> Iterator[tuple[Any, ...]]:
    return zip(*(a.split(CHUNK) for a in arrays), strict=True)
