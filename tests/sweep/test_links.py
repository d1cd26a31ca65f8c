"""Commands that write into a folder leave alone what they did not make: files behind
links, and files of the user that have the names of the package's own files.
"""

import os
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from attack import links
from attack.permissions import called, obstacle
from helpers import NO_FIGURE, combinations

from jaxrecall.__main__ import main

FAST = ("sweep", "compact", "examples")
"""Commands that are tried in the usual run of the tests: the others take longer.
"""


class Folders:
    """Folders to copy, and the names that each command writes or removes."""

    def __init__(self, home: Path, commands: tuple[str, ...]):
        self.home = home
        self.changed = links.make_folders(home, commands)

    def hostile(self, places: dict[str, str], base: str = "full") -> links.Hostile:
        return links.make_hostile(self.home, base, places)

    def sweep(self, out: Path | str, *more: str) -> list[str]:
        grid = str(self.home / "tiny.yaml")
        return ["sweep", "--grid", grid, "--out", str(out), *more]


@pytest.fixture(scope="module")
def some(tmp_path_factory) -> Folders:
    return Folders(tmp_path_factory.mktemp("some"), FAST)


@pytest.fixture(scope="module")
def every(tmp_path_factory) -> Folders:
    return Folders(tmp_path_factory.mktemp("every"), links.WRITING)


@pytest.fixture
def folders(request, command) -> Folders:
    return request.getfixturevalue("some" if is_fast(command) else "every")


def is_fast(command: str) -> bool:
    return command in (*FAST, "prune")


@pytest.mark.parametrize(
    ("command", "kind"),
    combinations(
        links.COMMANDS,
        links.KINDS,
        often=lambda command, kind: is_fast(command) and kind in ("link", "own"),
    ),
)
def test_a_name_that_a_command_writes_is_not_its_own(folders, command, kind):
    """Links are made of all names at once. Files of the user are tried one by one,
    because the first one may end the command.
    """
    names = folders.changed[command]
    if not kind.startswith("own"):
        links.check(folders.hostile(dict.fromkeys(names, kind)), command)
        return
    for name in filter(links.may_be_own, names):
        for base in ("full", "rows"):
            links.check(folders.hostile({name: kind}, base), command)


@pytest.mark.parametrize(
    ("command", "folder"),
    combinations(
        links.COMMANDS,
        links.FOLDERS,
        often=lambda command, folder: command in ("sweep", "prune"),
    ),
)
def test_a_folder_that_a_command_writes_into_is_a_link(folders, command, folder):
    below = any(place.startswith(folder) for place in folders.changed[command])
    code = links.check(folders.hostile({folder: "link"}), command)
    if below:
        assert code == 2


def test_a_results_folder_may_itself_be_a_link(some, tmp_path):
    """As people have it whose home is small: the folder is on another disk."""
    real, link = tmp_path / "scratch" / "results", tmp_path / "home"
    shutil.copytree(some.home / "full", real)
    link.symlink_to(real.parent)
    (tmp_path / "link").symlink_to(link / "results")
    out = str(tmp_path / "link")
    more = some.sweep(out, "--set", "seeds=3", *NO_FIGURE)
    for words in (more, ["fit", out], ["compact", out, "--prune"]):
        assert main(words) == 0, words
    assert not list(real.glob("parts/*.parquet"))
    assert pq.read_table(real / "table.parquet").num_rows == 6


def test_a_linked_folder_of_parts_can_be_read_but_not_written(some, cwd, capsys):
    Path("parts").symlink_to(some.home / "full" / "parts")
    assert main(["status", "."]) == main(["fit", "."]) == 0
    capsys.readouterr()
    for words in (["compact", "."], some.sweep(".")):
        assert main(words) == 2
        told = capsys.readouterr().err
        assert told.startswith("parts: is a link to ")
        assert "; remove the link, or link the whole results folder\n" in told


@pytest.mark.usefixtures("with_figures")
def test_a_figure_of_an_earlier_version_is_kept_and_the_rows_are_computed(some, capsys):
    """Such a figure has no record, so it may as well be one that the user drew."""
    made = some.hostile({"accuracy.png": "own"})
    assert links.check(made, "sweep") == 0
    assert links.called("sweep", made.folder)[1].count("\n") == 2
    (made.folder / "accuracy.png").unlink()
    links.called("sweep", made.folder)
    assert b"jaxrecall: {" in (made.folder / "accuracy.png").read_bytes()[:1000]


def test_a_dry_run_refuses_what_the_sweep_would_refuse(some, capsys):
    places = {"manifest.json": "own", "parts": "link", "accuracy.png": "own"}
    for name, kind in places.items():
        out = some.hostile({name: kind}, "rows").folder
        assert main(some.sweep(out, "--dry-run")) == 2
        assert name in capsys.readouterr().err


def test_a_compaction_without_permission_promises_no_resumption(some, tmp_path):
    if why := obstacle(tmp_path):
        pytest.skip(why)
    out = shutil.copytree(some.home / "full", tmp_path / "results")
    for folder in (out / "parts", out / "_staging", out):
        folder.chmod(0o555)
    (out / "_staging" / "compact.lock").chmod(0o444)
    told = called(tmp_path, "-m", "jaxrecall.compact", "results")
    assert told.returncode == 2
    assert (
        "lock: Permission denied; saved rows are kept, and the command" in told.stderr
    )


PART = r"[0-9a-f]{16}\.parquet"
MOMENTS = [
    ("prune", "parts", PART),
    ("report", "report-figures", r"report\.html"),
    ("more", "parts", PART),
]
"""Commands, the folder that becomes a link, and the file that is written or removed at
this moment.
"""


@pytest.mark.parametrize(("command", "folder", "moment"), MOMENTS)
def test_a_folder_that_becomes_a_link_during_a_command_is_left_alone(
    some, tmp_path, monkeypatch, command, folder, moment
):
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    shutil.copytree(some.home / "full", mine)
    report = ["report", str(mine), "--format", "svg"]
    if command == "report":
        main(report)
    shutil.copytree(mine / folder, theirs)
    before = links.times(theirs)

    def becomes_a_link(function):
        def call(*args, **options):
            is_first = not (mine / folder).is_symlink()
            if is_first and re.fullmatch(moment, Path(args[-1]).name):
                (mine / folder).rename(tmp_path / "moved")
                (mine / folder).symlink_to(theirs)
            return function(*args, **options)

        return call

    monkeypatch.setattr(os, "unlink", becomes_a_link(os.unlink))
    monkeypatch.setattr(os, "replace", becomes_a_link(os.replace))
    words = {
        "prune": ["compact", str(mine), "--prune"],
        "more": some.sweep(mine, "--set", "seeds=3"),
        "report": report,
    }
    main(words[command])
    assert (mine / folder).is_symlink()
    assert links.times(theirs) == before
