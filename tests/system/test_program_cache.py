"""The folder of compiled programs: which one it is, who may write it, and damaged files
in it.
"""

import json
import os
import sys
from pathlib import Path

import jax
import pytest
from attack.program_cache import OF_FILES, by_access_list
from jax.experimental.compilation_cache.compilation_cache import reset_cache
from test_any_folder import GRID

from jaxrecall import Point, simulate
from jaxrecall.cli import program_cache as module
from jaxrecall.cli.program_cache import OF_JAX, OURS, program_cache
from jaxrecall.simulator import device, program
from jaxrecall.sweep.__main__ import main

STRANGER = 65534

by_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give a folder to another user"
)


@pytest.fixture
def above(tmp_path, monkeypatch) -> Path:
    """The home of the user. No variable names another folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in (OURS, OF_JAX, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir(mode=0o755)
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("home", "user", "folder"),
    [
        ("home", "", "home/.cache/jaxrecall"),
        ("", "user", "user/jaxrecall"),
        ("", "", None),
        ("home", "user", "user/jaxrecall"),
    ],
)
def test_who_has_no_home_keeps_nothing(tmp_path, monkeypatch, home, user, folder):
    monkeypatch.delenv(OURS, raising=False)
    monkeypatch.setenv("HOME", home and str(tmp_path / home))
    monkeypatch.setenv("XDG_CACHE_HOME", user and str(tmp_path / user))
    assert program_cache(None) == (folder and str(tmp_path / folder), "")


def test_a_home_that_is_no_path_keeps_nothing(above, monkeypatch):
    monkeypatch.setenv("HOME", "here")
    assert program_cache(None) == (None, "")


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_every_folder_that_is_made_is_of_the_user_alone(above, umask):
    before = os.umask(umask)
    try:
        assert program_cache(None) == (str(above / ".cache/jaxrecall"), "")
    finally:
        os.umask(before)
    for path in (above / ".cache", above / ".cache/jaxrecall"):
        assert path.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_jax_comes_first(above):
    assert program_cache(str(above / "jax")).folder == str(above / "jax")


def test_an_address_is_not_checked_if_jax_can_open_it(above, monkeypatch):
    monkeypatch.setitem(sys.modules, "etils", None)
    folder, remark = program_cache("gs://bucket/x")
    assert folder is None
    assert remark == (
        "gs://bucket/x: compiled programs are not kept, as JAX opens this address only"
        " if etils[epath] is installed"
    )
    monkeypatch.setattr(module, "find_spec", str)
    assert program_cache("gs://bucket/x") == ("gs://bucket/x", "")
    shared(above / "x:", 0o777)
    assert program_cache(f"{above}/x://y").folder is None


def shared(path: Path, mode: int, owner: int = -1, group: int = -1) -> None:
    path.mkdir(exist_ok=True)
    path.chmod(mode)
    os.chown(path, owner, group)


SAFE, UNSAFE = True, False


@pytest.mark.parametrize(
    ("level", "mode", "safe"),
    [
        ("a/b", 0o755, SAFE),
        ("a/b", 0o757, UNSAFE),
        ("a/b", 0o1777, UNSAFE),
        ("a", 0o777, UNSAFE),
        ("a", 0o1777, SAFE),
        ("", 0o757, UNSAFE),
        ("..", 0o777, SAFE),  # above the home, as for ssh
    ],
)
@pytest.mark.parametrize("variable", [OURS, OF_JAX])
def test_a_folder_that_others_may_write_is_not_used(
    above, monkeypatch, level, mode, safe, variable
):
    folder = above / "a/b"
    folder.mkdir(parents=True)
    (above / level).chmod(mode)
    if variable == OURS:
        monkeypatch.setenv(OURS, str(folder))
        found = program_cache(None)
    else:
        found = program_cache(str(folder))
    if safe:
        assert found == (str(folder), "")
        return
    where = (above / level).resolve()
    assert found == (
        None,
        (
            f"{folder}: compiled programs are neither kept there nor run from"
            f" there, as other users may write {where}; set {variable} to a folder that"
            " only you can write"
        ),
    )


@by_root
@pytest.mark.parametrize("level", ["a/b", "a", ""])
def test_a_folder_of_another_user_is_not_used(above, level):
    folder = above / "a/b"
    folder.mkdir(parents=True)
    shared(above / level, 0o755, STRANGER)
    found = program_cache(str(folder))
    assert found.folder is None
    assert f"as user {STRANGER} owns {(above / level).resolve()}; " in found.remark
    (above / "link").symlink_to(folder)
    assert program_cache(str(above / "link")).folder is None


@by_root
@pytest.mark.parametrize("make", [by_access_list, *OF_FILES])
def test_a_folder_with_a_file_that_others_may_write_is_not_used(above, make):
    folder = above / "a"
    folder.mkdir(mode=0o700)
    (folder / "mine.program").write_bytes(b"")
    assert program_cache(str(folder)).folder == str(folder)
    make(folder)
    found = program_cache(str(folder))
    assert found.folder is None
    assert str(folder) in found.remark


@by_root
def test_a_folder_of_root_serves_everybody(above, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    assert program_cache(str(above / "a")).folder == str(above / "a")


@by_root
def test_a_group_counts_as_the_user_if_it_has_no_other_members(above, monkeypatch):
    folder = above / "a"
    shared(folder, 0o770, group=0)
    assert program_cache(str(folder)).folder == str(folder)
    monkeypatch.setattr(
        module.grp,
        "getgrgid",
        lambda _: module.grp.struct_group(("root", "x", 0, ["b"])),
    )
    assert program_cache(str(folder)).folder is None
    monkeypatch.undo()
    shared(folder, 0o770, group=STRANGER)
    assert program_cache(str(folder)).folder is None
    shared(folder, 0o770, group=123456)  # has no name
    assert program_cache(str(folder)).folder is None


def test_a_link_of_the_user_to_a_folder_of_the_user_is_resolved(above):
    (above / "scratch").mkdir()
    (above / ".cache").symlink_to(above / "scratch")
    assert program_cache(None) == (str(above / "scratch/jaxrecall"), "")


def test_a_folder_that_cannot_be_made_or_written_is_one_line(above, monkeypatch):
    (above / "file").write_text("")
    found = program_cache(str(above / "file/x"))
    assert found.folder is None
    assert found.remark == (
        f"{above}/file/x: compiled programs are not kept, as it cannot be used (File"
        f" exists); set {OF_JAX} to a folder that only you can write"
    )
    assert "(File exists)" in program_cache(str(above / "file")).remark
    monkeypatch.setattr(os, "access", lambda *_: False)
    folder, remark = program_cache(str(above / "read only"))
    assert folder == str(above / "read only")
    assert "new compiled programs are not kept, as it cannot be written; " in remark


@pytest.fixture
def kept(above, monkeypatch):
    """JAX as users have it, with a folder of its own in this test."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update(names[0], str(above / "kept"))
    jax.config.update(names[1], 0.0)
    reset_cache()
    yield above / "kept"
    for name, value in before.items():
        jax.config.update(name, value)
    reset_cache()


def compiled(n: int = 3) -> float:
    lowered = jax.jit(lambda x: n * x).lower(1.0)
    return float(program.compile(lowered, {})(2.0))


def test_a_damaged_program_is_compiled_again(kept):
    assert compiled() == 6.0
    (path,) = kept.glob("*-cache")
    path.write_bytes(b"damage")
    with pytest.warns(UserWarning, match="persistent compilation cache"):
        assert compiled() == 6.0


def test_options_are_tried_one_by_one_only_after_a_refusal(monkeypatch):
    lowered = jax.jit(lambda x: 3 * x).lower(1.0)
    with monkeypatch.context() as context:
        context.setattr(device, "supported", None)
        assert program.compile(lowered, program.QUICK)(2.0) == 6.0
    options = program.QUICK | {"xla_no_such_option": 1}
    assert program.compile(lowered, options)(2.0) == 6.0


def test_a_program_that_cannot_be_stored_is_compiled(kept):
    assert compiled() == 6.0
    for path in kept.iterdir():
        path.unlink()
    kept.rmdir()
    with pytest.warns(UserWarning, match="persistent compilation cache"):
        assert compiled(4) == 8.0


def test_jax_does_not_use_its_folder_if_others_may_write_it(kept):
    assert compiled() == 6.0
    kept.chmod(0o777)
    with pytest.warns(UserWarning, match="neither kept there nor run from there"):
        simulate(Point(V=8, N=8, d=4, L=2), seed=0)
    assert jax.config.jax_compilation_cache_dir is None
    assert compiled(5) == 10.0
    assert len(list(kept.iterdir())) == 1


@pytest.mark.slow  # it compiles anew, as the test before, which sees the same message
def test_a_sweep_says_once_that_programs_are_not_kept(kept, capsys, monkeypatch):
    (kept.parent / "tiny.yaml").write_text(GRID)
    kept.mkdir(mode=0o700)
    kept.chmod(0o777)
    monkeypatch.chdir(kept.parent)
    call = ["--grid", "tiny.yaml", "--set", "seeds=1", "--json-log"]
    assert main(call) == 0
    told, err = capsys.readouterr()
    events = map(json.loads, told.splitlines())
    lines = [event["text"] for event in events if event["event"] == "message"]
    assert [line.partition(":")[0] for line in lines] == [str(kept)]
    assert err == ""
