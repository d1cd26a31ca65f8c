"""Commands that write into a folder leave alone what they did not make: files behind
links, and files of the user that have the names of the package's own files.
"""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from attack import links
from attack.permissions import called, obstacle
from helpers import combinations

from jaxrecall.__main__ import main

FAST = ("sweep", "compact", "fit", "examples")
"""Commands that are tried in the usual run of the tests: the others draw figures or
compile more programs.
"""


class Folders:
    """Folders to copy, and the names that each command writes or removes."""

    def __init__(self, home: Path, commands: tuple[str, ...]):
        self.home = home
        self.changed = links.make_folders(home, commands)

    def hostile(self, places: dict[str, str], base: str = "full") -> links.Hostile:
        return links.make_hostile(self.home, base, places)


@pytest.fixture(scope="module")
def some(tmp_path_factory) -> Folders:
    return Folders(tmp_path_factory.mktemp("some"), FAST)


@pytest.fixture(scope="module")
def every(tmp_path_factory) -> Folders:
    return Folders(tmp_path_factory.mktemp("every"), links.WRITING)


@pytest.fixture
def folders(request, command) -> Folders:
    return request.getfixturevalue("some" if is_fast(command) else "every")


def is_fast(command: str, *_: str) -> bool:
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
    combinations(links.COMMANDS, links.FOLDERS, often=is_fast),
)
def test_a_folder_that_a_command_writes_into_is_a_link(folders, command, folder):
    below = [place for place in folders.changed[command] if place.startswith(folder)]
    code = links.check(folders.hostile({folder: "link"}), command)
    if below:
        assert code == 2
