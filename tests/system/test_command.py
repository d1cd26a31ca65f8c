"""The command `jaxrecall`: its words, what it says when called wrongly, and the grids
that it copies.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT, python

import jaxrecall
from jaxrecall import __main__ as command
from jaxrecall.cli import examples
from jaxrecall.cli.command import called
from jaxrecall.sweep.grid import read_grid

DOCS = "".join(
    path.read_text()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
)


def test_every_command_is_a_word_of_the_package():
    with_main = {
        path.stem
        for path in (ROOT / "jaxrecall").glob("*.py")
        if '\nif __name__ == "__main__":' in path.read_text()
    } - {"__main__"}
    with_main |= {
        path.parent.name for path in (ROOT / "jaxrecall").glob("*/__main__.py")
    } | {"examples"}
    assert set(command.MODULES) == with_main
    assert set(re.findall(r"^  jaxrecall (\w+) ", command.HELP, re.M)) == with_main


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_help_lists_the_commands(capsys, argv):
    assert command.main(argv) == 0
    out = capsys.readouterr().out
    assert out == command.HELP + "\n"
    assert "jaxrecall theory V=.. d=.. L=.." in out


def test_version(capsys):
    assert command.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(
        f"jaxrecall {jaxrecall.__version__} (code_version "
    )


def test_a_dry_run_starts_neither_jax_nor_pandas():
    grid = ROOT / "sweeps" / "quickstart.yaml"
    python(
        "import sys; from jaxrecall.__main__ import main;"
        f" main(['sweep', '--grid', '{grid}', '--dry-run']); assert not {{'jax',"
        " 'jaxrecall.theory', 'pandas', 'scipy'} & set(sys.modules)"
    )


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("swep", "; did you mean sweep?"),
        ("--hlep", "; did you mean --help?"),
        ("xyz", ""),
    ],
)
def test_an_unknown_word_is_refused(capsys, word, hint):
    assert command.main([word]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"COMMAND: got {word}{hint}")
    assert err.endswith(
        "allowed: sweep, status, compact, fit, report, theory, examples, --help,"
        " --version\n"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("status absent", "absent: is not a results folder"),
        ("sweep", "--grid: nothing"),
    ],
)
def test_the_words_after_a_command_go_to_it(cwd, capsys, words, told):
    assert command.main(words.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(told)


def test_a_reader_that_leaves_causes_no_traceback():
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-m", "jaxrecall", "examples"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
    ) as told:
        assert told.stdout
        assert told.stderr
        told.stdout.close()
        assert told.stderr.read() == b""


@pytest.mark.parametrize(
    ("argv0", "executable", "on_path", "shown"),
    [
        ("/v/bin/jaxrecall", "/v/bin/python3", None, "jaxrecall sweep --set 'a b'"),
        (
            "{here}/.venv/bin/jaxrecall",
            "",
            None,
            ".venv/bin/jaxrecall sweep --set 'a b'",
        ),
        (
            "{here}/.venv/bin/jaxrecall",
            "",
            "{here}/.venv/bin/jaxrecall",
            "jaxrecall sweep --set 'a b'",
        ),
        (
            "{here}/jaxrecall/sweep.py",
            "/v/bin/python3",
            None,
            "python3 -m jaxrecall.sweep --set 'a b'",
        ),
        (
            "-c",
            "{here}/.venv/bin/python",
            "/usr/bin/python",
            ".venv/bin/python -m jaxrecall.sweep --set 'a b'",
        ),
    ],
)
def test_commands_to_run_next_are_called_as_this_one_was(
    cwd, monkeypatch, argv0, executable, on_path, shown
):
    monkeypatch.setattr("sys.argv", [argv0.format(here=cwd)])
    monkeypatch.setattr("sys.executable", executable.format(here=cwd))
    monkeypatch.setattr(
        "shutil.which", lambda name: on_path and on_path.format(here=cwd)
    )
    assert called("sweep", ["--set", "a b"]) == shown
    assert called("examples") == shown.replace(".sweep", " sweep").replace(
        "sweep --set 'a b'", "examples"
    )


NOT_GRIDS = [*(ROOT / "sweeps/launch").iterdir(), *ROOT.glob("examples/*.ipynb")]


def test_examples_are_listed_with_their_first_sentence(capsys):
    assert examples.main([]) == 0
    listed = dict(re.findall(r"^(\S+)  +(\S.*[.?])$", capsys.readouterr().out, re.M))
    grids = [
        path.stem
        for folder in ("sweeps", "examples")
        for path in (ROOT / folder).glob("*.yaml")
    ]
    assert sorted(listed) == sorted([*grids, *(path.stem for path in NOT_GRIDS)])
    last = [*listed][len(grids) :]
    assert sorted(last) == sorted(path.stem for path in NOT_GRIDS)
    assert (
        listed["quickstart"]
        == "Accuracy against N for four embedding widths: wider embeddings need fewer"
        " samples."
    )


FOLDERS = (ROOT / "sweeps", ROOT / "sweeps/launch", ROOT / "examples")
SHIPPED = [path for folder in FOLDERS for path in folder.iterdir()]
COPIED = {
    "quickstart": "quickstart.yaml grid.schema.json",
    "heads.yaml": "heads.yaml heads.py",
    "structure": "structure.yaml structure.npy grid.schema.json",
    **{path.name: path.name for path in NOT_GRIDS},
    **{path.stem: path.name for path in NOT_GRIDS},
}
"""The files that come with an example, by its name."""

USE = {".ipynb": "jupyter lab ", "slurm-array.sh": "sbatch ", "skypilot.yaml": "sky "}
USE |= {"ray-cluster.yaml": "ray up ", ".yaml": "python -m jaxrecall.sweep --grid "}


@pytest.mark.parametrize("name", COPIED)
def test_an_example_is_copied_with_what_it_needs_and_only_once(name, cwd, capsys):
    first, *others = COPIED[name].split()
    assert examples.main([name]) == 0
    files = ", ".join([first, *others])
    use = USE.get(first) or USE.get(Path(first).suffix) or ""
    told = capsys.readouterr().out
    assert told.startswith(f"copied {files}. To run it: {use}")
    assert first in told.partition("To run it")[2]
    assert {path.name for path in cwd.iterdir()} == {first, *others}
    for copied in cwd.iterdir():
        [shipped] = [path for path in SHIPPED if path.name == copied.name]
        assert copied.read_bytes() == shipped.read_bytes()
        assert copied.stat().st_mode & 0o100 == shipped.stat().st_mode & 0o100
    Path(first).write_text("mine")
    assert examples.main([name]) == 2
    assert f"{first}: exists already and is not overwritten" in capsys.readouterr().err
    assert Path(first).read_text() == "mine"


def test_examples_share_a_schema_and_no_other_file(cwd, capsys):
    Path("grid.schema.json").write_text("mine")
    assert examples.main(["threshold"]) == 0
    assert read_grid("threshold.yaml") == read_grid(ROOT / "sweeps/threshold.yaml")
    assert Path("grid.schema.json").read_text() == "mine"
    Path("perceptron.py").write_text("mine")
    assert examples.main(["perceptron"]) == 2
    assert "perceptron.py: exists already" in capsys.readouterr().err
    assert not Path("perceptron.yaml").exists()


def test_an_example_is_not_copied_through_a_link(cwd, capsys):
    Path("tpu-pod.sh").symlink_to("elsewhere")
    assert examples.main(["tpu-pod"]) == 2
    assert capsys.readouterr().err.startswith("tpu-pod.sh: cannot be written: ")
    assert not Path("elsewhere").exists()


def test_an_unknown_example_is_refused(cwd, capsys):
    assert examples.main(["quikstart"]) == 2
    assert capsys.readouterr().err.startswith(
        "NAME: got quikstart; did you mean quickstart?; allowed: quickstart, bound, "
    )
    assert list(cwd.iterdir()) == []


@pytest.mark.parametrize("name", [*command.MODULES, ""])
def test_every_flag_of_the_help_is_documented(name, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "1000")
    try:
        code = command.main([*filter(None, [name]), "--help"])
    except SystemExit as stop:  # argparse
        code = stop.code
    told = capsys.readouterr().out
    assert code == 0
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", told)) - {"--help"}
    assert [
        flag
        for flag in sorted(flags)
        if not re.search(rf"(?<![\w-]){flag}(?![\w-])", DOCS)
    ] == []
