"""Results folders from somebody who means harm: every text that such a folder can hold
is markup, a script, a path, a template or LaTeX, and files and links wait where a
command writes.

The texts have no capital letters, because a name of a figure is in small letters.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SCRIPT = "document.title='owned'"
ADDRESS = "http://owned.test/x"
"""An address that the browser resolves to the server of the attack."""

TEXTS = [
    f"<script>{SCRIPT}</script>",
    f'"><img src=x onerror="{SCRIPT}">',
    f"'><img src=x onerror={SCRIPT}>",
    f'n" onfocus="{SCRIPT}" autofocus tabindex="0',
    f'n" onmouseover="{SCRIPT}',
    f"n' onclick='{SCRIPT}",
    f"x onload={SCRIPT}",
    f"<svg onload={SCRIPT}>",
    f"</title></style></script><script>{SCRIPT}</script>",
    f"</text></g></svg><script>{SCRIPT}</script>",
    f"]]><script>{SCRIPT}</script>",
    f"--><script>{SCRIPT}</script><!--",
    f"--!><script>{SCRIPT}</script>",
    f"</pre></details></table><script>{SCRIPT}</script>",
    f"<details open ontoggle={SCRIPT}>",
    f"javascript:{SCRIPT}",
    f"&lt;script&gt;{SCRIPT}&lt;/script&gt;",
    f"&quot;&gt;&lt;img src=x onerror={SCRIPT}&gt;",
    f"<meta http-equiv=refresh content='0;url={ADDRESS}'>",
    f"<link rel=stylesheet href={ADDRESS}>",
    f"<iframe src={ADDRESS}></iframe>",
    f"<img src={ADDRESS}>",
    f"<base href={ADDRESS}>",
    f"</style><style>@import '{ADDRESS}';</style>",
    f"}} * {{ background: url({ADDRESS}) }}",
    f"#); background: url({ADDRESS}",
    "{{ 7 * 191 }}{% raw %}{# ${7*7} $x_{ \\frac{",
    "/../../../escaped",
    "../../escaped",
    "..",
    "a/b",
    "\u202e\u0007\x1b[31m",
    "\u0000x",
    "x\nname\r\nx",
    "-->\n<h2 id=x>]]>",
    "\\input{/etc/passwd}",
    "=cmd|' /c calc'!a0",
]
PLACES = """searched
axis
accuracy
value
other value
column
value of the column
device_kind
precision
jax_version
dtype
form
simulator
fixed name
fixed value
source
digest of a source
name of the grid
key of the grid
value of the grid
version name
version
commit
command
xla_flags
error
host
file
folder
page""".splitlines()
TRAPS = ["nothing", "figures", "links", "listed links", "linked folder", "a page"]
USUAL = ["accuracy.png", "phase.png", "critical-x.png", "collapse.png"]


def texts(i: int) -> dict[str, str]:
    """The text of each place in the i-th folder: after len(TEXTS) folders each text has
    been in each place.
    """
    turned = itertools.islice(itertools.cycle(TEXTS), i % len(TEXTS), None)
    return dict(zip(PLACES, turned, strict=False))


def write(home: Path, text: dict[str, str], trap: str) -> tuple[Path, Path]:
    """Writes a folder below `home`, and files of the user beside it. Returns the folder
    and the page that its report would be.
    """
    folder = home / "results" / file_name(text["folder"])
    (folder / "parts").mkdir(parents=True)
    pq.write_table(_rows(text), folder / "parts" / "x.parquet")
    (folder / "parts" / file_name(text["file"])).write_text("no rows")
    manifest = {
        "grid": {
            "name": text["name of the grid"],
            text["key of the grid"]: text["value of the grid"],
        },
        "plan": {"points": 1, "progress": None, "runs": []},
        "versions": {text["version name"]: text["version"]},
        **{name: text[name] for name in ("commit", "command", "xla_flags")},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "failures").mkdir()
    failure = {"runs": [["p", 0]], "error": text["error"], "host": text["host"]}
    (folder / "failures" / "x.json").write_text(json.dumps(failure))
    page = folder / "report.html"
    if trap == "nothing":
        page = folder / f"{file_name(text['page'])}.html"
    _set(trap, page, home)
    return folder, page


def file_name(text: str) -> str:
    return text.replace("/", "\u2215").replace("\0", "")[:60].strip(".") or "x"


def _rows(text: dict[str, str]) -> pa.Table:
    same = {"status": "ok", "seconds": 0.1, "code_version": 1, "x64": False}
    for name in ("device_kind", "precision", "jax_version", "dtype", "form"):
        same[name] = text[name]
    rows = []
    for value, other, seed in itertools.product((1, 2, 4, 8), (1, 2), range(4)):
        kind = text["value" if other == 1 else "other value"]
        row: dict[str, Any] = {"point_id": f"p{value}-{other}", "seed": seed}
        row |= {"step": 1, "steps": 1, "simulator": "a:b", **same}
        row |= {text["column"]: text["value of the column"], "kind": kind}
        row |= {text["searched"]: float(value), text["axis"]: other}
        row[text["accuracy"]] = min(1.0, value / (4.0 * other) + 0.01 * seed)
        rows.append(row)
    axes = [text["searched"], text["axis"], "kind"]
    facts = {
        "simulator": text["simulator"],
        "fields": axes,
        "axes": axes,
        "accuracy": text["accuracy"],
        "searched": text["searched"],
        "fixed": {text["fixed name"]: text["fixed value"]},
        "sources": {text["source"]: text["digest of a source"]},
    }
    table = pa.Table.from_pylist(rows)
    return table.replace_schema_metadata({b"jaxrecall": json.dumps(facts).encode()})


def _set(trap: str, page: Path, home: Path) -> None:
    """Puts files of the user, and links to them, where the report writes."""
    (home / "mine.png").write_text("of the user")
    (home / "mine").mkdir()
    (home / "mine" / "accuracy.png").write_text("of the user")
    figures = page.with_name(f"{page.stem}-figures")
    if trap == "linked folder":
        figures.symlink_to(home / "mine")
    elif trap == "a page":
        page.write_text("<!DOCTYPE html><html><head></head>of the user</html>")
    elif trap != "nothing":
        figures.mkdir()
        (figures / "critical-").mkdir()  # so that critical-/../../x is a path
        (figures / "accuracy-final.pdf").write_text("of the user")
    if trap.endswith("links"):
        for name in USUAL:
            (figures / name).symlink_to(home / "mine.png")
    if trap == "listed links":
        page.write_text(_earlier(page, home))


def _earlier(page: Path, home: Path) -> str:
    """A page that claims to have made files that are not its own."""
    listed = [f"{page.stem}-figures/{Path(name).stem}.png, .pdf" for name in USUAL]
    for name in ("..", "../../..", str(home)):
        listed += [f"{page.stem}-figures/{name}/mine.png", f"{name}/mine.png"]
    spans = [f'<span class="file">{escape(name)}</span>' for name in listed]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><!-- jaxrecall: {"rows": 1} -->'
        f"<title>x</title></head><body>{''.join(spans)}</body></html>"
    )


def content(home: Path) -> dict[Path, object]:
    """What is below a folder: the bytes of each file, the target of each link."""
    found: dict[Path, object] = {}
    for path in home.rglob("*"):
        if path.is_symlink():
            found[path] = f"link to {path.readlink()}"
        elif path.is_file():
            found[path] = path.read_bytes()
    return found


def check_files(
    before: dict[Path, object], home: Path, made: Callable[[Path], bool]
) -> None:
    """Raises AssertionError if anything but the files that a command makes has changed
    or is new.
    """
    now = content(home)
    changed = [
        path for path in before.keys() | now if before.get(path) != now.get(path)
    ]
    foreign = [str(path) for path in changed if not made(path)]
    assert not foreign, f"written or removed: {foreign}"
