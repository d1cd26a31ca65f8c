"""Decoders of the first gradient whose entries are rounded: does d matter to them?

The data is in the studies results/study/precision and precision-small.
"""

import json

import pandas as pd
from law import STUDY, with_ends
from table import as_table, with_interval

from jaxrecall import load
from jaxrecall.fit import fit


def told(cells):
    """Returns what the decoder of each cell is told, in words, as an ordered
    category.
    """
    bits = sorted(set(cells["bits"]) - {0})
    names = {number: f"{number} bits" for number in bits} | {0: "exact"}
    found = cells["bits"].map(names)
    if "decoder" in cells:
        found = found.where(cells["decoder"] == "pairs", "all counts")
    return pd.Categorical(found, [*names.values(), "all counts"])


@as_table(["V", "L", "d"], {"{told}": with_interval()})
def precision():
    """N* of the assignment by the bits of an entry of the gradient, and N* of a
    decoder that is told all counts, for which d does not matter.
    """
    about = json.loads((STUDY / "precision/search.json").read_text())
    found = pd.DataFrame([cell | cell["point"] for cell in about["cells"]])
    found = found.assign(told=told(found), N_below=about["search"]["to"])
    found = found.sort_values(["V", "L", "d"], kind="stable")
    return found.drop(columns="point")


PARTS = {
    "d, 24 to 64, L = 16": ("d", "L == 16"),
    "d, 24 to 64, L = 4096": ("d", "L == 4096"),
    "L, 64 to 4096, d = 24": ("L", "d == 24 and L >= 64"),
    "L, 64 to 4096, d = 64": ("L", "d == 64 and L >= 64"),
}
"""A dict from the name of each exponent to its axis and its cells."""


@as_table()
def precision_exponents():
    """Exponents of N* of the assignment at V = 64 [95 %], by the bits of an entry."""
    rows = load(STUDY / "precision").query("V == 64 and decoder == 'pairs'")
    rows = rows[rows["d"].between(24, 64)]
    rows = rows.assign(told=told(rows)).sort_values("told")
    conditions = [condition for _, condition in PARTS.values()]
    for name, mine in rows.groupby("told", observed=True):
        mine = mine[["d", "L", "N", "seed", "recovered"]]
        mine.attrs["axes"] = ["d", "L", "N"]
        slopes = fit(mine, [0.5], where=conditions, of="recovered").exponents
        slopes = slopes.set_index(["regime", "axis"])
        line = {"an entry has": name}
        for part, (axis, condition) in PARTS.items():
            line[part] = with_ends(slopes.loc[condition, axis], "+.2f")
        yield line


@as_table(["d"], {"{told}": "{recovered:.3f}"})
def precision_small():
    """Expected fraction of pi that the best decoder recovers from the gradient, by the
    bits of an entry.

    V = 4, L = 2, N = 3, mean over 8 draws of the embeddings. The result is exact: it
    covers all samples and permutations.
    """
    rows = load(STUDY / "precision-small")
    return rows.assign(told=told(rows)).sort_values("d")
