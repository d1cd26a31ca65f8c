"""python -m jaxrecall.embeddings: describes a table of embeddings, and finds the
closest law of this package.
"""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take long
    from .cli.process import start

    start("jaxrecall.embeddings")

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .cli.command import Parser, answer, command
from .errors import UsageError, shown
from .model.laws.array import read

BETTER = 0.05
"""The margin, in ln d_eff, that decides between laws. A law with a parameter is chosen
only if it is closer than the law without a parameter by more than this margin.

Few rows are noisy, so 10 / V is added to the margin.
"""


class Spectrum(NamedTuple):
    """The spectrum of the matrix S, which is the mean of z z^T over rows z.

    - d_eff: (tr S)^2 / tr S^2.
    - overlap: 1 / d_eff, estimated from the products of different rows only. So its
      mean does not depend on the number of rows.
    - values: the eigenvalues of S divided by their mean, in descending order.
    """

    d_eff: float
    overlap: float
    values: np.ndarray


def facts(rows: np.ndarray) -> dict[str, Any]:
    """Returns a dict that describes a matrix of rows z_v, of shape (V, d).

    - d_eff: (tr S)^2 / tr S^2, where S is the mean of z z^T. `d_eff_centred` is the
      same quantity after the mean row is subtracted.
    - common: the mean of z_v . z_w over v != w, divided by the mean squared length.
      `cosine` is the same mean for rows scaled to unit length.
    - length: the mean length of a row. `spread` is the standard deviation of the
      lengths divided by their mean.
    - spectrum: the eigenvalues of the centred S divided by their mean, in descending
      order.
    - alpha: the exponent of the power-law spectrum i^-alpha that has the centred d_eff.
      `off_power` is the standard deviation of ln(eigenvalue / power law).
    - law: the closest law of this package. `law_d_eff` is a pair of numbers: the law's
      d_eff and centred d_eff.

    For `alpha` and `law`, tr S^2 is estimated from products of different rows only, so
    that the results do not depend on V. Raises ValueError if all rows are equal.
    """
    x = np.array(rows, np.float64)
    V, d = x.shape
    mean = x.mean(0)
    length = np.linalg.norm(x, axis=1)
    square = float(np.mean(length**2))
    if not x.var(0).sum() > 1e-10 * square:  # rounding may leave a small variance
        raise ValueError(
            "a table whose rows are all the same; allowed: rows that differ"
        )
    unit = np.sum(x / np.where(length, length, 1)[:, None], axis=0)
    common = float(V * (mean @ mean) / square - 1) / (V - 1)
    spread = float(length.std() / length.mean())

    raw = _spectrum(x)
    x -= mean
    centred = _spectrum(x)
    alpha = _alpha(centred.overlap, d)
    rank = min(V - 1, d)
    off = np.log(centred.values[:rank]) + alpha * np.log(np.arange(1, rank + 1))

    even = _even_law(raw.overlap, spread, d)
    laws = _laws(even, common, alpha, d)
    ratios = np.multiply([*laws.values()], (raw.overlap, centred.overlap))
    away = np.abs(np.log(ratios)).sum(axis=1)
    away[0] -= BETTER + 10 / V
    law = [*laws][np.argmin(away)]
    return {
        "V": V,
        "d": d,
        "d_eff": raw.d_eff,
        "d_eff_centred": centred.d_eff,
        "common": common,
        "cosine": float(unit @ unit - np.count_nonzero(length)) / (V * (V - 1)),
        "length": float(length.mean()),
        "spread": spread,
        "spectrum": centred.values.tolist(),
        "alpha": alpha,
        "off_power": float(off.std()),
        "law": law,
        "law_d_eff": laws[law],
    }


def _spectrum(x: np.ndarray) -> Spectrum:
    V, d = x.shape
    products = x.T @ x if d < V else x @ x.T  # both have the same eigenvalues
    values = np.linalg.eigvalsh(products)[::-1]
    values = np.maximum(values, 1e-12 * values[0])
    total = values.sum()
    lengths = np.sum(x * x, axis=1)
    different = (values @ values - lengths @ lengths) / total**2 * V / (V - 1)
    return Spectrum(
        d_eff=float(total**2 / (values @ values)),
        overlap=max(float(different), 1e-12),
        values=values / total * d,
    )


def _even_law(overlap: float, spread: float, d: int) -> str:
    """Returns the name of the law that suits the rows among those with d_eff = d."""
    if overlap * d < 0.1:
        return "orthogonal"
    if spread < 0.5 / np.sqrt(2 * d):
        return "sphere"
    return "gaussian"


def _laws(
    even: str, common: float, alpha: float, d: int
) -> dict[str, tuple[float, float]]:
    """Returns a dict from each candidate law to its d_eff and centred d_eff.

    The law without a parameter comes first. The parameters of the other laws are fitted
    to the rows.
    """
    rho = max(common, 0)
    power = 1 / _overlap(alpha, d)
    return {
        even: (d, d),
        f"equicorrelated(rho={rho:.3g})": (1 / (rho**2 + (1 - rho**2) / d), d),
        f"power_law(alpha={alpha:.3g})": (power, power),
    }


def _overlap(alpha: float, d: int) -> float:
    """Returns 1 / d_eff for the spectrum i^-alpha, i = 1 ... d."""
    power = np.arange(1.0, d + 1) ** -alpha
    return float(power @ power / power.sum() ** 2)


def _alpha(overlap: float, d: int) -> float:
    """Returns the exponent from 0 to 10 whose spectrum has the closest overlap."""
    from scipy.optimize import brentq

    def excess(alpha: float) -> float:
        return _overlap(alpha, d) - overlap

    if excess(0) >= 0:
        return 0.0
    if excess(10) <= 0:
        return 10.0
    return brentq(excess, 0, 10)  # type: ignore[return-value]


def lines(about: dict[str, Any]) -> Iterator[str]:
    """Yields lines of text that describe the embeddings."""
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
    """Runs the command. Returns its exit code: 0 done, 2 refused."""
    parser = Parser(
        "embeddings",
        "Describe a table of embeddings, and the law of this package that comes"
        " closest, in the words of a grid.",
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
        help="the matrix to read from a file with several",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else"
    )
    args = parser.parse_args(argv)
    try:
        about = facts(read(Path(args.file), args.tensor))
    except ValueError as error:
        raise UsageError(f"FILE: got {shown(args.file)}, {error}") from None
    if args.json:
        return answer(json.dumps(about))
    return answer(*lines(about))
