"""Every shell command of every page runs in a copy of the repository as cloned, or its
block is marked as an example.

Runs are replaced by smaller ones of the same command: a sweep of `grid.yaml` gets few
points, and one of a shipped grid is a dry run.
"""

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from helpers import ROOT, combinations, usual_promotion
from test_docs import FENCE, GRID, LINKING, fenced

from docs import gallery
from jaxrecall.__main__ import main

ALL = {name: text for name, text in LINKING.items() if name != "CHANGELOG.md"}

EXAMPLE = "# example: "
"""The first words of a block whose commands need something that a clone does not have;
what that is follows.
"""

SMALL = (
    "--set",
    "base={V: 16, L: 4}",
    "--set",
    "seeds=6",
    "--set",
    "blocks=[{axes: {d: [12, 16], N: [64, 256, 1024]}}]",
)
DRAWN = "jaxrecall report "
"""How the commands begin that draw many figures, which takes a minute."""

FOLDERS = ("jaxrecall", "benchmarks", "results", "tests", "sweeps", "examples", "docs")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


def blocks(text: str) -> list[list[str]]:
    """The command lines of each block of shell, without comments, and those of indented
    code.
    """
    found = [body for body in fenced(text, "sh") if not body.startswith(EXAMPLE)]
    found += re.findall(
        r"^    ((?:\.ci/run|make |python ).*)$", re.sub(FENCE, "", text), re.M
    )
    return [
        [
            command
            for line in body.splitlines()
            if (command := line.partition(" #")[0].strip())
        ]
        for body in found
    ]


def inline(text: str) -> list[str]:
    """Commands in the text and in tables, where they are more than a name."""
    found = re.findall(
        r"`((?:jaxrecall|python -m|make|pip install) [^`\n]+)`", re.sub(FENCE, "", text)
    )
    return [
        line
        for line in found
        if not re.fullmatch(
            r"(jaxrecall |python -m jaxrecall\.)(sweep|fit|report|status|compact)", line
        )
    ]


@pytest.fixture(scope="module")
def cloned(tmp_path_factory):
    """The files of a clone, with tables of few cells, so that fits and reports of the
    shipped studies take little.
    """
    if not (ROOT / ".git").exists():
        pytest.skip("needs a clone")
    folder = tmp_path_factory.mktemp("cloned")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists() and not name.startswith("tests/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for path in folder.glob("results/study/*/table.parquet"):
        pq.write_table(thin(pq.read_table(path)), path)
    return folder


def thin(table):
    """The rows of two values of V, L and d, and of six seeds."""
    for name in ("V", "L", "d", "seed"):
        values = sorted(pc.unique(table[name]).to_pylist())
        kept = {
            "V": values[:2],
            "L": {values[0], values[-1]},
            "d": values[:2],
            "seed": values[:6],
        }[name]
        table = table.filter(pc.is_in(table[name], pa.array(kept, table[name].type)))
    return table


@pytest.fixture
def clone(cloned, tmp_path, monkeypatch):
    """A clone of one's own, with the `grid.yaml` of the pages; it is the current
    folder.
    """
    shutil.copytree(cloned, tmp_path / "clone")
    monkeypatch.chdir(tmp_path / "clone")
    monkeypatch.setenv("MPLBACKEND", "agg")
    Path("grid.yaml").write_text(GRID)
    for name in gallery.grids():
        gallery.write(name, Path())
    with usual_promotion():
        yield tmp_path / "clone"


def smaller(words: list[str]) -> list[str]:
    """The same command with less work."""
    if (
        words[0] == "sweep"
        and "--print-schema" not in words
        and "--dry-run" not in words
    ):
        planned = {"--engine", "--workers"} & set(words) or words[2].removesuffix(
            ".yaml"
        ) in gallery.grids()
        words = [*words, *(["--dry-run"] if planned else SMALL)]
    return words


def run(line: str) -> None:
    """Runs one command line, by the code that would run it, and fails if it fails."""
    words = shlex.split(line)
    if words[:2] == ["python", "-m"] and words[2].startswith("jaxrecall."):
        words = ["jaxrecall", words[2].removeprefix("jaxrecall."), *words[3:]]
    if words[0] == "jaxrecall" and "--ray-address" in words:
        return  # there is no cluster to join; test_docs.py parses the line
    if words[0] == "jaxrecall":
        words = words[: words.index(">")] if ">" in words else words
        assert main(smaller(words[1:])) == 0, line
    elif words[0] == "make":
        done = subprocess.run(
            ["make", "--dry-run", *words[1:]], capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
    elif words[:4] == ["pip", "install", "--no-index", "--find-links"]:
        assert words[5:] == ["jaxrecall"], line
    elif words[:2] == ["pip", "install"]:
        options = [
            given for given in itertools.pairwise(words) if given[0] in ("-c", "-e")
        ]
        known = {
            ".",
            *(f"{it}[{extra}]" for extra in EXTRAS for it in (".", "jaxrecall")),
            *(re.split(r"[^\w-]", package)[0] for package in EXTRAS["dev"]),
        }
        assert all(value in known or Path(value).exists() for _, value in options), line
        assert {*words[2:]} - {*itertools.chain(*options)} <= known, line
    elif words[:2] == ["python", "-m"]:
        inside = ROOT / words[2].replace(".", "/")
        assert (
            inside.exists()
            or inside.with_suffix(".py").exists()
            or words[2] == "pytest"
        ), line
        assert all(
            Path(ROOT / word).exists() for word in words[3:] if word.endswith(".py")
        ), line
    elif words[-1].endswith(".py") or words[0] == ".ci/run":
        assert Path(words[-1]).exists(), line
    else:
        env = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        assert words[0] == "python", (
            f"{line}: is neither known to the test nor marked by {EXAMPLE!r}"
        )
        subprocess.run(["bash", "-c", line], check=True, timeout=120, env=env)


@pytest.fixture(scope="module")
def quickstart(cloned, tmp_path_factory):
    """The folder that `make sweep` leaves."""
    folder = tmp_path_factory.mktemp("swept") / "quickstart"
    assert (
        main(
            smaller(
                [
                    "sweep",
                    "--grid",
                    str(cloned / "sweeps/quickstart.yaml"),
                    "--out",
                    str(folder),
                ]
            )
        )
        == 0
    )
    return folder


def with_quickstart(page: str, quickstart: Path) -> None:
    """What `make sweep` leaves, for pages that ask for it."""
    if "make sweep" in ALL[page]:
        shutil.copytree(quickstart, "results/quickstart")


@pytest.mark.parametrize("page", [page for page, text in ALL.items() if blocks(text)])
@pytest.mark.parametrize("drawn", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_commands_run_in_a_fresh_clone(page, drawn, clone, quickstart):
    lines = [
        line
        for line in itertools.chain(*blocks(ALL[page]))
        if drawn or not line.startswith(DRAWN)
    ]
    if drawn and not any(line.startswith(DRAWN) for line in lines):
        pytest.skip("draws no figures")
    with_quickstart(page, quickstart)
    for line in lines:
        run(line)


@pytest.mark.parametrize(
    "page",
    combinations(
        [page for page, text in ALL.items() if inline(text)],
        # whose tables `make study` makes
        often=lambda page: not page.startswith("results/"),
    ),
)
def test_commands_in_the_text_run_too(page, clone, quickstart, monkeypatch):
    # as on a machine of a Slurm cluster
    monkeypatch.setattr("shutil.which", lambda name: name)
    with_quickstart(page, quickstart)
    for line in inline(ALL[page]):
        run(
            f"{line} --dry-run"
            if line.startswith("jaxrecall sweep --grid") and "--dry-run" not in line
            else line
        )


def test_the_gallery_has_a_grid_a_command_and_a_figure_for_each_question():
    questions = re.split(r"^## ", ALL["docs/gallery.md"], flags=re.M)[1:]
    assert len(questions) == len(gallery.grids()) >= 11
    for question, (name, grid) in zip(questions, gallery.grids().items(), strict=True):
        assert question.splitlines()[0].endswith("?")
        assert len(grid.splitlines()) <= 10
        assert blocks(question) == [[f"jaxrecall sweep --grid {name}.yaml"]]
        assert re.findall(r"!\[.+\]\((.+)\)", question) == [
            f"images/gallery/{name}.png"
        ]
        assert (ROOT / f"docs/images/gallery/{name}.png").exists()
        assert ("```python" in question) == bool(gallery.codes()[name])


def test_what_reports_read_is_in_a_clone(cloned):
    lines = [
        line
        for line in itertools.chain(*blocks(ALL["docs/thresholds.md"]))
        if line.startswith(DRAWN)
    ]
    assert lines
    for line in lines:
        assert (cloned / shlex.split(line)[2]).exists(), line


def test_a_command_that_fails_is_found(clone):
    for line in (
        "jaxrecall fit results/capacity",
        "make absent",
        "pip install .[absent]",
        "python -m absent.module",
        "absent --help",
    ):
        with pytest.raises(AssertionError):
            run(line)
    assert blocks(
        "```sh\n# example: with a cluster\nabsent\n```\n\n```sh\nfirst   # why\n```\n\n"
        "    make x\n"
    ) == [["first"], ["make x"]]


NAMED = re.compile(
    r"[\w/.-]+\.py\b|(?<![\w/.-])(?:jaxrecall|model|sweep|simulator|analysis|theory|benchmarks|tests)/[\w/]+[\w]"
)


@pytest.mark.parametrize(
    "name",
    [
        *ALL,
        *(f"docs/images/{path.name}" for path in (ROOT / "docs/images").glob("*.svg")),
    ],
)
def test_files_of_the_package_that_are_named_exist(name):
    """In code spans and drawings. A name may start in any folder of the package, as in
    `stream.py`.
    """
    text = (ROOT / name).read_text()
    quoted = (
        re.findall(r">([^<>]+)<", text)
        if name.endswith(".svg")
        else re.findall(r"`([^`\n]+)`", re.sub(FENCE, "", text))
    )
    files = {
        f"/{path.relative_to(ROOT)}"
        for top in FOLDERS
        for path in (ROOT / top).rglob("*")
        if "__pycache__" not in path.parts
    }
    for found in itertools.chain(*(NAMED.findall(words) for words in quoted)):
        assert found in ("mylaws.py", "mymetrics.py") or any(
            path.endswith(f"/{found}") for path in files
        ), found
