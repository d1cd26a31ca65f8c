"""python -m jaxrecall.embeddings: what a table of embeddings is like, and the law of
this package that comes closest.
"""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take long
    from .cli.process import start

    start("jaxrecall.embeddings")

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .cli.command import Parser, answer, command
from .errors import UsageError, shown
from .model.laws.array import read

BETTER = 0.05
"""By how much, in ln d_eff, a law with a parameter must come closer than one without,
beyond the noise of few rows.
"""


def facts(rows: np.ndarray) -> dict[str, Any]:
    """What a matrix (V, d) of rows z_v is like.

    - d_eff: (tr S)^2 / tr S^2, with S the mean of z z^T; `d_eff_centred` is that of the
      rows less their mean.
    - common: part of the mean squared length that the rows share, the mean of z_v . z_w
      over v != w; `cosine` is the same mean of unit rows.
    - length: mean length; `spread` their standard deviation over it. - spectrum:
    eigenvalues of the centred S over their mean, in falling order. - alpha: exponent of
    the power law i^-alpha with their d_eff, and `off_power` the rms
      of ln(eigenvalue / power law).
    - law: the law of this package that comes closest, and `law_d_eff` its two d_eff.

    For alpha and law only products of different rows count in tr S^2, so that V does
    not matter. Raises ValueError where all rows are the same.
    """
    x = np.array(rows, np.float64)
    V, d = x.shape
    mean, length = x.mean(0), np.linalg.norm(x, axis=1)
    unit = np.sum(x / np.where(length, length, 1)[:, None], axis=0)
    square = float(np.mean(length**2))
    if not x.var(0).sum() > 1e-10 * square:  # what rounding leaves
        raise ValueError(
            "a table whose rows are all the same; allowed: rows that differ"
        )
    raw, overlap, _ = _spectrum(x)
    x -= mean
    centred, overlap_centred, values = _spectrum(x)
    common = float(V * (mean @ mean) / square - 1) / (V - 1)
    alpha = _alpha(overlap_centred, d)
    off = np.log(values[: min(V - 1, d)]) + alpha * np.log(
        np.arange(1, min(V - 1, d) + 1)
    )
    spread = float(length.std() / length.mean())
    even = (
        "orthogonal"
        if overlap * d < 0.1
        else "sphere"
        if spread < 0.5 / np.sqrt(2 * d)
        else "gaussian"
    )
    rho, power = max(common, 0), 1 / _overlap(alpha, d)
    laws: dict[str, tuple[float, float]] = {
        even: (d, d),
        f"equicorrelated(rho={rho:.3g})": (1 / (rho**2 + (1 - rho**2) / d), d),
        f"power_law(alpha={alpha:.3g})": (power, power),
    }
    away = {
        name: np.abs(np.log(np.multiply(both, (overlap, overlap_centred)))).sum()
        for name, both in laws.items()
    }
    law = min(laws, key=lambda name: away[name] - (BETTER + 10 / V) * (name == even))
    return {
        "V": V,
        "d": d,
        "d_eff": raw,
        "d_eff_centred": centred,
        "common": common,
        "cosine": float(unit @ unit - np.count_nonzero(length)) / (V * (V - 1)),
        "length": float(length.mean()),
        "spread": spread,
        "spectrum": values.tolist(),
        "alpha": alpha,
        "off_power": float(off.std()),
        "law": law,
        "law_d_eff": laws[law],
    }


def _spectrum(x: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Of rows (V, d): (tr S)^2 / tr S^2, its inverse by different rows alone,
    eigenvalues of S over their mean.
    """
    V, d = x.shape
    values = np.linalg.eigvalsh(x.T @ x if d < V else x @ x.T)[::-1]
    values = np.maximum(values, 1e-12 * values[0])
    total, squares = values.sum(), np.sum(x * x, axis=1)
    different = (values @ values - squares @ squares) / total**2 * V / (V - 1)
    return (
        float(total**2 / (values @ values)),
        max(float(different), 1e-12),
        values / total * d,
    )


def _overlap(alpha: float, d: int) -> float:
    """1 / d_eff of the spectrum i^-alpha, i = 1 ... d."""
    power = np.arange(1.0, d + 1) ** -alpha
    return float(power @ power / power.sum() ** 2)


def _alpha(overlap: float, d: int) -> float:
    """The exponent with this overlap, from 0 to 10."""
    from scipy.optimize import brentq

    def excess(alpha: float) -> float:
        return _overlap(alpha, d) - overlap

    return (
        brentq(excess, 0, 10) if excess(0) < 0 < excess(10) else 10.0 * (excess(0) < 0)
    )  # type: ignore[return-value]


def lines(about: dict[str, Any]) -> Iterator[str]:
    """The facts as lines of text."""
    values = np.array(about["spectrum"])
    low, middle, high = np.quantile(values, (0.1, 0.5, 0.9))
    first, centred = about["law_d_eff"]
    yield f"V, d       {about['V']} rows, {about['d']} columns"
    yield (
        f"d_eff      {about['d_eff']:.4g}, of centred rows {about['d_eff_centred']:.4g}"
    )
    yield (
        f"mean row   {100 * about['common']:.3g} % of the mean squared length; mean"
        f" cosine {about['cosine']:.3g}"
    )
    yield (
        f"lengths    mean {about['length']:.4g}, standard deviation over it"
        f" {about['spread']:.3g}"
    )
    yield (
        f"spectrum   centred, over its mean: largest {values[0]:.3g}; quantiles 0.9,"
        f" 0.5, 0.1: {high:.3g}, {middle:.3g}, {low:.3g}"
    )
    off = np.exp(about["off_power"])
    yield (
        f"power law  i^-{about['alpha']:.3g} has its d_eff; the eigenvalues are off it"
        f" by a factor of {off:.3g} (rms)"
    )
    yield f"closest    {about['law']}, with d_eff {first:.4g}, centred {centred:.4g}"


@command()
def main(argv: Sequence[str] | None = None) -> int:
    """Parses, reads, prints; returns the exit code: 0 done, 2 refused."""
    parser = Parser(
        "embeddings",
        "Show what a table of embeddings is like, and the law of this package that"
        " comes closest, as a grid names it.",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a .npy, .npz or .safetensors file with a row for each token",
    )
    parser.add_argument(
        "--tensor",
        metavar="NAME",
        default="",
        help="the matrix in a file that holds more than one",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else"
    )
    args = parser.parse_args(argv)
    try:
        about = facts(read(Path(args.file), args.tensor))
    except ValueError as error:
        raise UsageError(f"FILE: got {shown(args.file)}, {error}") from None
    return answer(json.dumps(about)) if args.json else answer(*lines(about))
