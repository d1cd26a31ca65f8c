"""Chooses the folder of compiled programs, and checks that nobody else can write it.

A compiled program is machine code, which JAX loads and runs. So whoever can write the
folder can run code as this user.
"""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import stat
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

OF_JAX = "JAX_COMPILATION_CACHE_DIR"
OURS = "JAXRECALL_CACHE"

ADDRESSES = ("gs://", "s3://", "az://")
"""The starts of addresses that are no local folders."""

SOURCE = ("model", "theory", "simulator")
"""The folders of this package that the code of a program depends on."""

ACCESS_LIST = "system.posix_acl_access"
"""The attribute of a file in which Linux keeps its access control list."""


class ProgramCache(NamedTuple):
    """The folder for compiled programs, and a remark for the user."""

    folder: str | None
    """The folder with all links resolved. None if programs are not kept."""

    remark: str = ""
    """A line that states why programs are not kept. It is empty if they are, and if the
    user asked for none to be kept.
    """


def program_cache(of_jax: str | None) -> ProgramCache:
    """Returns the folder for compiled programs. A missing folder is made with mode
    0700.

    If a folder cannot be made, or if another user could write it or a file in it, no
    folder is returned. An address such as gs://bucket is returned unchecked.

    Args:
        of_jax: the folder that is set for JAX, which is used if there is one.
    """
    given = of_jax or _default()
    if not given:
        return ProgramCache(None)
    if given.startswith(ADDRESSES):
        if find_spec("etils"):
            return ProgramCache(given)
        return ProgramCache(
            None,
            f"{given}: compiled programs are not kept, as JAX opens this address only"
            " if etils[epath] is installed",
        )
    path = Path(os.path.realpath(given))
    folder, problem = str(path), ""
    try:
        for each in (*reversed(path.parents), path):
            each.mkdir(mode=0o700, exist_ok=True)
        danger = _danger(path)
        if danger:
            folder = None
            problem = (
                "compiled programs are neither kept there nor run from there, as"
                f" {danger}"
            )
        elif not os.access(path, os.W_OK | os.X_OK):
            problem = "new compiled programs are not kept, as it cannot be written"
    except OSError as error:
        folder = None
        problem = (
            f"compiled programs are not kept, as it cannot be used ({error.strerror})"
        )
    if not problem:
        return ProgramCache(folder)
    variable = OF_JAX if of_jax else OURS
    return ProgramCache(
        folder,
        f"{given}: {problem}; set {variable} to a folder that only you can write",
    )


def is_kept(shape: object) -> bool:
    """Whether a program of this shape is kept, for any processor and any settings."""
    return any(Path(folder_of_programs()).glob(f"{name_of(shape)}-*"))


def folder_of_programs() -> str:
    """Returns the folder of programs as it is set, unchecked. If programs are not kept,
    the folder does not exist.
    """
    return os.environ.get(OF_JAX) or _default() or os.devnull


def name_of(shape: object) -> str:
    """Returns a hash of a shape and of the source of this package, with which the names
    of its programs start.
    """
    text = f"{shape!r} {source()}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def source() -> str:
    """Returns a hash of the source that the code of programs depends on."""
    digest = hashlib.sha256()
    for name in SOURCE:
        for path in sorted(Path(__file__).parents[1].joinpath(name).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _default() -> str | None:
    """Returns $JAXRECALL_CACHE, or else a folder in the user's cache.

    Returns None if the variable is empty or if the user has no home folder.
    """
    folder = os.environ.get(OURS)
    if folder is not None:
        return folder or None
    home = os.path.expanduser(os.environ.get("HOME", "~"))
    user = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    return os.path.join(user, "jaxrecall") if os.path.isabs(user) else None


def _danger(folder: Path) -> str:
    """Returns who else could write or replace the folder or a file in it, as text. The
    text is empty if nobody else could.

    The rule is that of sshd for keys: the folder and its parents up to the user's home
    belong to the user or to root, and nobody else may write them. Others may write a
    sticky parent such as /tmp, because they cannot rename what this user has there.
    A file that was put there before the folder was closed to others may still be
    theirs. A link may lead to such a file.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    for path in (folder, *folder.parents):
        status = path.stat()
        is_sticky = path != folder and status.st_mode & stat.S_ISVTX
        if danger := _writer(path, status, bool(is_sticky)):
            return danger
        if str(path) == home:
            break
    with os.scandir(folder) as entries:
        for entry in entries:
            if danger := _danger_of_entry(entry):
                return danger
    return ""


def _danger_of_entry(entry: os.DirEntry[str]) -> str:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # another process has renamed it
        return ""
    if entry.is_symlink():
        return f"{entry.path} is a symbolic link"
    if entry.is_file() and status.st_nlink > 1:
        return f"{entry.path} has several hard links"
    return _writer(entry.path, status)


def _writer(
    path: str | os.PathLike[str], status: os.stat_result, is_sticky: bool = False
) -> str:
    """Returns what lets another user write the path. Empty if nothing does.

    The mode of a sticky folder does not count.
    """
    if status.st_uid not in (os.geteuid(), 0):
        return f"user {status.st_uid} owns {path}"
    if not is_sticky and _others_may_write(path, status):
        return f"other users may write {path}"
    return ""


def _others_may_write(path: str | os.PathLike[str], status: os.stat_result) -> bool:
    """Whether the mode or an access control list lets users other than the owner write.

    With a list, the bit of the group stands for all that are named in the list. Many
    systems give every user a group of the same name, and let this group write. It
    counts as the user if it has no other members.
    """
    if status.st_mode & stat.S_IWOTH:
        return True
    if not status.st_mode & stat.S_IWGRP:
        return False
    with suppress(OSError, AttributeError):  # no list, or a system without getxattr
        return bool(os.getxattr(path, ACCESS_LIST))
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
        group = grp.getgrgid(status.st_gid)
    except KeyError:
        return True
    return group.gr_name != user or not set(group.gr_mem) <= {user}
