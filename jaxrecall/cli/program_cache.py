"""Chooses the folder of compiled programs, and checks that nobody else can write it.

A compiled program is machine code, which JAX loads and runs. So whoever can write the
folder can run code as this user.
"""

from __future__ import annotations

import glob
import grp
import os
import pwd
import stat
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

OF_JAX = "JAX_COMPILATION_CACHE_DIR"
OURS = "JAXRECALL_CACHE"


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

    If a folder cannot be made, or if another user could write it, no folder is
    returned. An address such as gs://bucket is returned unchecked.

    Args:
        of_jax: the folder that is set for JAX, which is used if there is one.
    """
    given = of_jax or _default()
    if not given or "://" in given:
        return ProgramCache(given)
    path = Path(os.path.realpath(given))
    folder, problem = str(path), ""
    try:
        for each in (*reversed(path.parents), path):
            each.mkdir(mode=0o700, exist_ok=True)
        danger = _danger(path)
        if danger:
            folder = None
            kept = "compiled programs are neither kept there nor run from there"
            problem = f"{kept}, as {danger}"
        elif not os.access(path, os.W_OK | os.X_OK):
            problem = "new compiled programs are not kept, as it cannot be written"
    except OSError as error:
        folder = None
        why = f"it cannot be used ({error.strerror})"
        problem = f"compiled programs are not kept, as {why}"
    if not problem:
        return ProgramCache(folder)
    variable = OF_JAX if of_jax else OURS
    advice = f"set {variable} to a folder that only you can write"
    return ProgramCache(folder, f"{given}: {problem}; {advice}")


def _default() -> str | None:
    """Returns $JAXRECALL_CACHE, or else a folder in the user's cache.

    Returns None if the variable is empty or if the user has no home folder.
    """
    folder = os.environ.get(OURS)
    if folder is not None:
        return folder or None
    user = os.environ.get("XDG_CACHE_HOME")
    if user:
        return os.path.join(user, "jaxrecall")
    home = os.environ.get("HOME", "~") and os.path.expanduser("~")
    return os.path.join(home, ".cache/jaxrecall") if os.path.isabs(home) else None


def _danger(folder: Path) -> str:
    """Returns who else could write or replace the folder, as text. The text is empty if
    nobody else could.

    The rule is that of sshd for keys: the folder and its parents up to the user's home
    belong to the user or to root, and nobody else may write them. Others may write a
    sticky parent such as /tmp, because they cannot rename what this user has there.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    for path in (folder, *folder.parents):
        found = path.stat()
        if found.st_uid not in (os.geteuid(), 0):
            return f"user {found.st_uid} owns {path}"
        is_sticky = path != folder and found.st_mode & stat.S_ISVTX
        if _others_may_write(found) and not is_sticky:
            return f"other users may write {path}"
        if str(path) == home:
            break
    return ""


def _others_may_write(found: os.stat_result) -> bool:
    """Whether the mode lets users other than the owner write.

    Many systems give every user a group of the same name, and let this group write. It
    counts as the user if it has no other members.
    """
    if found.st_mode & stat.S_IWOTH:
        return True
    if not found.st_mode & stat.S_IWGRP:
        return False
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
        group = grp.getgrgid(found.st_gid)
    except KeyError:
        return True
    return group.gr_name != user or not set(group.gr_mem) <= {user}


def remove_damaged(folder: str, name: str) -> None:
    """Removes the files that JAX cannot read of programs called `name`.

    A process that is killed may leave such a file, and JAX never replaces a file. If
    another process is writing one of them, its program is not kept this time. A file
    that is not compressed by zlib counts as damaged.
    """
    for path in Path(folder).glob(f"{glob.escape(name)}-*-cache"):
        try:
            zlib.decompress(path.read_bytes())
        except (OSError, zlib.error):
            with suppress(OSError):
                path.unlink()
