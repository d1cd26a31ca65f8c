"""N* of rows of two real tables, relative to N* of gaussian rows.

The script prints Markdown tables from results/papers/real. --draw makes the figure
real.png.

The interval of a ratio combines the intervals of two N*, whose runs are different.
Their half widths in ln N* are added in quadrature, separately for the lower and the
upper side.
"""

import json
import sys
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from shared import (
    as_table,
    print_tables,
    save,
    tables_of,
    with_interval,
)

import jaxrecall
from jaxrecall import plot

HERE = Path(__file__).parent
STUDY = HERE / "real"
FACTOR = 1.5
"""The factor by which a law may be off."""

FEATURES = {
    "raw": "as it is",
    "centred": "centred",
    "unit": "length 1",
    "white": "whitened",
    "white-unit": "whitened, length 1",
    "equicorrelated": "equicorrelated law",
    "power_law": "power law",
    "learned": "law of three numbers",
}
"""The rows that are compared with gaussian rows: forms of a table, then laws."""

TABLES = {"minilm": "MiniLM, d 384", "jieba": "jieba, d 128"}


def kind(embedding):
    """Returns the table of a law, if it has one, and its name among FEATURES."""
    name, _, rest = embedding.partition("(")
    if name == "array":
        file, kept = rest.split("tables/")[1].split(".npy")[0], "mean=1" in rest
        table = next(
            name for name in ("jieba-all", "jieba", "minilm") if file.startswith(name)
        )
        return table, file[len(table) + 1 :] or ("raw" if kept else "centred")
    if name == "real:Learned":
        return ("jieba-all" if "spread=1.99" in rest else ""), "learned"
    return "", name


@cache
def ratios():
    """Returns the cells, with N* over that of gaussian rows and its 95 % interval.

    `what` is the kind of rows that is compared, on the side `side`.
    """
    found = jaxrecall.thresholds(STUDY).copy()
    named = [
        [kind(one) for one in found[side]] for side in ("embedding", "embedding_out")
    ]
    inputs, outputs = [[what for _, what in side] for side in named]
    found["what"] = [
        b if a == "gaussian" else a for a, b in zip(inputs, outputs, strict=True)
    ]
    found["side"] = [
        "both" if a == b else "output" if a == "gaussian" else "input"
        for a, b in zip(inputs, outputs, strict=True)
    ]
    found["table"] = ["minilm" if d == 384 else "jieba" for d in found["d"]]
    whole = ["jieba-all" in (a[0], b[0]) for a, b in zip(*named, strict=True)]
    found.loc[whole, "table"] = "jieba-all"
    at = ["V", "d", "L", "tokens", "trigger_in_value"]
    plain = found[found["what"] == "gaussian"].set_index(at)[["critical", "lo", "hi"]]
    found = found.merge(
        plain, left_on=at, right_index=True, suffixes=("", "_gaussian")
    ).sort_index()
    return found.assign(**quotient(found, "", "_gaussian"))


def quotient(found, above, below):
    """Returns the ratio of two N* with its interval, as columns ratio, low, high."""
    N, lo, hi = (
        np.log(found[f"{name}{above}"].astype(float))
        for name in ("critical", "lo", "hi")
    )
    M, down, up = (
        np.log(found[f"{name}{below}"].astype(float))
        for name in ("critical", "lo", "hi")
    )
    return {
        "ratio": np.exp(N - M),
        "low": np.exp(N - M - np.hypot(N - lo, up - M)),
        "high": np.exp(N - M + np.hypot(hi - N, M - down)),
    }


def at(**values):
    """Returns the cells with these values.

    The defaults are L = 8, uniform tokens and both sides.
    """
    found = ratios()
    for name, value in ({"L": 8, "tokens": "uniform", "side": "both"} | values).items():
        found = found[found[name] == value]
    return found


def explained():
    """Returns the cells of a table together with those of the law of three numbers.

    `ratio` is N* of the law over N* of the table.
    """
    on = ["table", "V", "L", "tokens", "side", "trigger_in_value"]
    found = ratios()
    pair = found[found["what"] == "raw"].merge(
        found[found["what"] == "learned"], on=on, suffixes=("_table", "_law")
    )
    return pair.assign(**quotient(pair, "_law", "_table"))


RATIO = with_interval(".2f", names=("ratio", "low", "high"))
"""The cell of N* over that of gaussian rows."""


def way(inside):
    return "in" if inside else "out"


def named(cells, names):
    """Returns the cells of some kinds of rows, with the names of the kinds.

    Tables, paths of the trigger and kinds are in order.
    """
    cells = cells[cells["what"].isin([*names])]
    kinds = pd.Categorical(cells["what"], [*names])
    cells = cells.assign(
        what=kinds.rename_categories(names),
        table=pd.Categorical(cells["table"], [*TABLES, "jieba-all"]),
        trigger=pd.Categorical(cells["trigger_in_value"].map(way), ["in", "out"]),
    )
    return cells.sort_values(["table", "trigger", "V"])


@as_table(["table, trigger"], {"{what}": RATIO})
def beside():
    """The table of the page: N* over that of gaussian rows.

    The columns are each table, and its law of three numbers.
    """
    raw, learned = "N* real / gaussian [95 %]", "law of three numbers / gaussian"
    cells = named(at().query("table in @TABLES"), {"raw": raw, "learned": learned})
    titles = cells["table"].map(TABLES).astype(str)
    sizes = cells["V"].astype(str)
    names = titles + ", V " + sizes + ", " + cells["trigger"].astype(str)
    return cells.assign(**{"table, trigger": names})


@as_table(["table", "V", "trigger"], {"{what}": RATIO})
def costs():
    """Ratios at L = 8 by feature, for each table, V and trigger."""
    return named(at().query("table in @TABLES"), FEATURES)


@as_table(
    ["table", "V", "L", "tokens", "side"], {"{trigger}: {what}": RATIO}, "not run"
)
def slices():
    """Ratios of tables and of their law in other settings.

    The settings are one side alone, Zipf tokens, longer sequences, and all characters
    of jieba.
    """
    usual = "L == 8 and tokens == 'uniform' and side == 'both'"
    cells = ratios().query(f"not ({usual} and table != 'jieba-all')")
    of_tables = cells.groupby(["table", "V", "L", "tokens", "side"], sort=False).filter(
        lambda mine: (mine["what"] == "raw").any()
    )
    cells = named(of_tables, {"raw": "table", "centred": "centred", "learned": "law"})
    return cells.sort_index(kind="stable").sort_values("trigger", kind="stable")


@as_table()
def verdicts():
    """The rows of the verdict table."""
    for (name, title), inside in product(TABLES.items(), (True, False)):
        mine = at(table=name, what="raw", trigger_in_value=inside)
        shown = [f"V {V}: {RATIO(cell)}" for V, cell in mine.groupby("V")]
        where = f"{title}, trigger {way(inside)}"
        yield verdict(where, "N* real / gaussian", "; ".join(shown))
    pairs = explained().query("ratio > 0")
    usual = "L == 8 and side == 'both' and tokens == 'uniform'"
    for name, where in (
        ("L = 8, uniform tokens, both sides", usual),
        ("Zipf tokens (s = 0.5), L = 256", f"not ({usual})"),
    ):
        mine = pairs.query(where)
        off = np.exp(np.abs(np.log(mine["ratio"])))
        surely = ((mine["low"] > FACTOR) | (mine["high"] < 1 / FACTOR)).sum()
        said = (
            f"{(off <= FACTOR).sum()} of {len(mine)} cells within a factor of {FACTOR},"
            f" largest {off.max():.2f}; {surely} surely outside"
        )
        yield verdict(name, "law of three numbers / real", said)


def verdict(where, what, measured):
    return {"where": where, "what": what, "measured [95 %]": measured}


@as_table()
def tables():
    """The properties of the tables, and the three numbers of their law."""
    heads = {
        "d_eff": "d_eff",
        "d_eff_centred": "centred",
        "common": "mean row",
        "cosine": "mean cosine",
        "spread": "spread of lengths",
    }
    for name, about in json.loads((STUDY / "tables.json").read_text()).items():
        line = {"table": name, "V": about["V"], "d": about["d"]}
        line |= {head: f"{about[key]:.3g}" for key, head in heads.items()}
        numbers = [
            f"{key} {value:.3g}" for key, value in about.get("fitted", {}).items()
        ]
        laws = {"closest law": about["law"], "law of three numbers": ", ".join(numbers)}
        yield line | laws


def figure():
    """N* over that of gaussian rows at the largest V of each table, by feature."""
    parts = []
    for table, title in TABLES.items():
        V = at(table=table)["V"].max()
        parts.append(at(table=table, V=V).assign(panel=f"{title}, V {V}"))
    cells = pd.concat(parts)
    cells = cells[["what", "trigger_in_value", "panel", "ratio", "low", "high"]]
    cells = cells[cells["what"].isin([*FEATURES])].rename(
        columns={"low": "lo", "high": "hi"}
    )
    names = [*FEATURES.values()]
    cells["what"] = pd.Categorical(cells["what"].map(FEATURES), names)
    cells["trigger"] = "trigger " + cells.pop("trigger_in_value").map(way)
    same = pd.DataFrame({"what": names, "ratio": 1.0})
    dashes = {"marker": "_", "size": 4}
    labels = dict.fromkeys(["what", "trigger", "panel"], "")
    return plot.figure(
        cells,
        "ratio",
        x="what",
        lines="trigger",
        columns="panel",
        scale="log",
        size="5.5x3.6",
        over=[plot.Polyline(same, "ratio", "gaussian rows", dashes)],
        labels=labels | {"ratio": "N* over that of gaussian rows"},
    )


if __name__ == "__main__":
    print_tables(tables_of(sys.modules["__main__"]))
    if "--draw" in sys.argv[1:]:
        save("real", figure())
