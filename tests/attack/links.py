"""Folders in which names that a command may write or remove are links to files of other
people, or files of the user. Whatever a command answers, all of these stay as they are.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from test_any_folder import GRID

from attack import Calls, captured
from attack.tries import Tries
from jaxrecall.__main__ import main
from jaxrecall.sweep.store import Store

CALLS = Calls("links")
SEARCH = """
name: searched
base: {V: 16, L: 4, d: 4, n_test: 64, exact: full}
seeds: 12
search: {axis: N, theta: 0.3, from: 16, to: 64, width: 1, max_runs: 40}
"""
COMMANDS = {
    "sweep": "sweep --grid ../tiny.yaml --out .",
    "more": "sweep --grid ../tiny.yaml --out . --set seeds=3",
    "search": "sweep --grid ../searched.yaml --out .",
    "compact": "compact .",
    "prune": "compact . --prune",
    "fit": "fit . --latex",
    "report": "report . --format svg",
    "examples": "examples quickstart",
}
"""Every command that writes, for a process whose current folder is the hostile one."""

PROGRESS = ("drawing ", "fitting", "curves: ")
"""The beginnings of lines that a slow command writes before its message."""

WRITING = ("sweep", "search", "compact", "fit", "report", "examples")
"""The commands that fill a folder, in order."""

FOLDERS = ("parts", "failures", "_staging", "report-figures")
BYSTANDERS = {
    "thesis.html": "mine",
    "parts/notes.txt": "mine",
    "failures/notes.json": '{"runs": []}',
    "_staging/mine.txt": "mine",
    "report-figures/accuracy-final.pdf": "mine",
    "report-figures/phase.txt": "mine",
}
"""Files of the user, whose names are like those of the package's own files."""

MINE = {
    ".json": b'{"name": "my extension", "manifest_version": 3}',
    ".png": b"\x89PNG\r\n\x1a\n, and mine",
}
KINDS = ("link", "link to other", "hard link", "dangling", "own", "own folder")


@dataclass
class Hostile:
    """A hostile folder, and what has to stay as it is.

    `outside` is the folder to which links lead, and `own` lists files of the user
    inside the hostile folder.
    """

    folder: Path
    outside: Path
    own: list[str] = field(default_factory=list)

    def kept(self) -> dict[str, Any]:
        """What must not change: the kind and the bytes of all these files."""
        found = {}
        for path in sorted(self.outside.rglob("*")):
            found[str(path.relative_to(self.outside))] = state(path)
        for name in (*self.own, *BYSTANDERS):
            place = self.folder / name
            # what lies behind a link is outside, and a bystander went there with it
            if not place.parent.is_symlink():
                found[f"own {name}"] = state(place)
        return found


def state(path: Path) -> Any:
    if path.is_symlink():
        return "link", os.readlink(path)
    if path.is_dir():
        return sorted(each.name for each in path.iterdir())
    return path.read_bytes() if path.exists() else None


def make_folders(home: Path, commands: Iterable[str] = WRITING) -> dict[str, list[str]]:
    """Makes a folder `full`, in which these commands have written, a folder `rows`,
    which has rows and nothing else, and a folder `empty`.

    Returns a dict from each command to the names that it writes or removes.
    """
    (home / "tiny.yaml").write_text(GRID)
    (home / "searched.yaml").write_text(SEARCH)
    full, changed = home / "full", {}
    for name in ("full", "rows", "empty"):
        (home / name).mkdir()
    for name in commands:
        before = times(full)
        code, err = called(name, full)
        assert code == 0, (name, err)
        now = times(full)
        changed[name] = [place for place in now if now[place] != before.get(place)]
    shutil.copytree(full / "parts", home / "rows" / "parts")
    changed["sweep"] += add_old_files(full)
    changed["more"] = changed["sweep"]
    parts = [place for place in times(full) if place.startswith("parts/")]
    changed["prune"] = [*changed["compact"], *parts]
    for base in ("full", "rows", "empty"):
        for name, text in BYSTANDERS.items():
            path = home / base / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    return changed


def times(folder: Path) -> dict[str, tuple[int, int]]:
    """The inode and the time of each file in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            facts = path.stat()
            found[str(path.relative_to(folder))] = facts.st_ino, facts.st_mtime_ns
    return found


def add_old_files(folder: Path) -> list[str]:
    """Adds files that the next sweep removes: a record of a run that is done, and a
    file of a process that died long ago. Returns their names.
    """
    by_version, *_ = Store(folder).last_values()
    first = next(iter(by_version.values()))
    record = {"runs": list(first), "error": "e"}
    (folder / "failures").mkdir()
    (folder / "failures" / "a.json").write_text(json.dumps(record))
    stale = folder / "_staging" / "12-0123abcd-old.parquet"
    stale.write_text("left over")
    os.utime(stale, (0, 0))
    return ["failures/a.json", "_staging/12-0123abcd-old.parquet"]


def may_be_own(name: str) -> bool:
    """Whether a user may have a file of this name.

    The names of parts and of temporary files contain hashes, and the files of a report
    are in a folder of their own.
    """
    folder, _, last = name.rpartition("/")
    return folder == "" or last == "compact.lock"


def make_hostile(
    home: Path, base: str, places: dict[str, str], folder: str = "hostile"
) -> Hostile:
    """Copies the folder `base`, and makes each of the places hostile.

    `places` is a dict from names of files and folders to one of KINDS.
    """
    made = Hostile(home / folder, home / "outside")
    for path in (made.folder, made.outside):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(home / base, made.folder)
    made.outside.mkdir()
    # what is inside a folder first: it moves outside with its folder
    for name in sorted(places, key=lambda name: -name.count("/")):
        replace(made, home / "full" / name, name, places[name])
    return made


def replace(made: Hostile, original: Path, name: str, kind: str) -> None:
    place = made.folder / name
    victim = made.outside / name.replace("/", "-")
    place.parent.mkdir(exist_ok=True)
    if kind == "link" and place.is_dir():
        place.rename(victim)
        place.symlink_to(victim)
        return
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    mine = MINE.get(place.suffix, b"mine")
    if kind == "own":
        place.write_bytes(mine)
        made.own.append(name)
    elif kind == "own folder":
        place.mkdir()
        (place / "file").write_bytes(mine)
        made.own += [name, f"{name}/file"]
    elif kind == "dangling":
        place.symlink_to(victim)
    else:
        victim.write_bytes(mine)
        if kind != "link to other" and original.is_file():
            victim.write_bytes(original.read_bytes() or mine)
        if kind == "hard link":
            os.link(victim, place)
        else:
            place.symlink_to(victim)


def called(name: str, folder: Path) -> tuple[int, str]:
    """The exit code of a command in a folder, and its messages."""
    with contextlib.chdir(folder), captured() as err:
        code = CALLS(name, main, COMMANDS[name].split())
    return code, err.getvalue()


def check(made: Hostile, name: str) -> int:
    """Runs a command in the hostile folder, and compares the victims.

    Returns its exit code. A command that refuses says so in one line.
    """
    kept = made.kept()
    code, err = called(name, made.folder)
    now = made.kept()
    changed = [place for place in kept | now if kept.get(place) != now.get(place)]
    assert changed == [], (name, changed, err)
    assert code in (0, 2), (name, code, err)
    told = [line for line in err.splitlines() if not line.startswith(PROGRESS)]
    assert code == 0 or len(told) == 1, (name, err)
    return code


def hostile_folders(tries: Tries) -> None:
    home = tries.home
    changed = make_folders(home)
    names = sorted(set().union(*changed.values()))
    while tries.more():
        base = tries.chance.choice(["full", "full", "rows", "empty"])
        places = chosen(tries.chance, names)
        order = tries.chance.sample(sorted(COMMANDS), len(COMMANDS))
        with tries.one(f"{base} with {places}: {', '.join(order)}") as one:
            made = make_hostile(home, base, places)
            codes = [check(made, name) for name in order]
            if any(codes):
                one.refused()


def chosen(chance: Any, names: list[str]) -> dict[str, str]:
    """One to four places, each with the kind of thing that is there."""
    places = {}
    for name in chance.sample([*FOLDERS, *names], chance.choice([1, 1, 2, 3, 4])):
        kinds = KINDS if may_be_own(name) else KINDS[:4]
        if name in FOLDERS:
            kinds = ("link", "link to other", "dangling", "own")
        places[name] = chance.choice(kinds)
    # a folder that is no folder has nothing inside
    for name in FOLDERS:
        if places.get(name, "link") != "link":
            below = [place for place in places if place.startswith(f"{name}/")]
            for place in below:
                del places[place]
    return places
