"""The README and docs/: their code runs, their commands parse, their links lead
somewhere, their tables are those of the code.
"""

import argparse
import importlib
import json
import re
import shlex
import textwrap
from dataclasses import MISSING

import pytest
from attack.__main__ import parser as attack_parser
from helpers import FINDINGS, ROOT, usual_promotion

from benchmarks import documented
from docs import gallery
from jaxrecall import load
from jaxrecall.__main__ import MODULES as COMMANDS
from jaxrecall.analysis.fit.tables import COLUMNS_OF
from jaxrecall.model.columns import COLUMNS
from jaxrecall.model.point import FIELDS
from jaxrecall.sweep.__main__ import main as sweep
from jaxrecall.sweep.grid import read_grid
from jaxrecall.sweep.plan import chosen_shard
from jaxrecall.sweep.running.engine import chosen as engine
from jaxrecall.sweep.search import OUTCOMES

PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
README = PAGES["README.md"]
BUDGETS = {"docs/theory.md": 1200, "docs/papers.md": 2400}
"""Most words of the pages that have a budget of their own."""


FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.M | re.S)


def fenced(text: str, language: str) -> list[str]:
    return [
        textwrap.dedent(body)
        for _, name, body in FENCE.findall(text)
        if name == language
    ]


def section(page: str, heading: str) -> str:
    """What stands under a heading, up to the next one that is not below it."""
    level = len(heading.partition(" ")[0])
    return re.split(rf"\n#{{1,{level}}} ", PAGES[page].split(f"\n{heading}\n")[1])[0]


GRID = fenced(section("docs/running.md", "## Your own grid"), "yaml")[0]
"""The `grid.yaml` of the commands on all pages."""


def table(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


def test_the_pages_are_few_and_short():
    words = {name: len(text.split()) for name, text in PAGES.items()}
    assert len([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*.rst")]) <= 15
    assert {
        name: words[name] for name, most in BUDGETS.items() if words[name] > most
    } == {}
    assert sum(words.values()) + len(LINKING["CONTRIBUTING.md"].split()) <= 28_000
    assert len(" ".join(FINDINGS.values()).split()) <= 6500
    assert len(LINKING["CHANGELOG.md"].split()) <= 700


def test_the_readme_is_short():
    assert len(README.split()) <= 900
    for code in fenced(README, "python"):
        assert len([line for line in code.splitlines() if line]) <= 12
    assert len(GRID.splitlines()) <= 12


# code


SMALL = {
    "cover": {"seeds": 12, "base.updates": 50, "blocks.0.axes.N": [4, 8]},
    "grokking": {"seeds": 1, "base.width": 8, "blocks.0.axes.share": [0.9]},
    "superposition": {"seeds": 1, "base.updates": 5},
}
"""What the grids of the gallery whose figures take code have less of here."""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder with the results that the pages speak of, in small."""
    folder = tmp_path_factory.mktemp("docs")

    def table(name, rows):
        (folder / "results" / name).mkdir(parents=True)
        rows.to_parquet(folder / "results" / name / "table.parquet")

    table(
        "quickstart", load(ROOT / "results/study/capacity").query("V == 64 and L == 8")
    )
    table(
        "map", load(ROOT / "results/study/map").query("L == 256 and trigger_in_value")
    )
    for name, settings in SMALL.items():
        gallery.write(name, folder)
        given = ["--grid", str(folder / f"{name}.yaml")]
        for key, value in settings.items():
            given += ["--set", f"{key}={value}"]
        with usual_promotion():
            assert sweep([*given, "--out", str(folder / "results" / name)]) == 0
    return folder


ELSEWHERE = {"docs/python.md", "docs/functions.md", "docs/laws.md"}
"""Pages whose code test_examples.py runs in processes of their own."""

LONG = {"docs/how-it-works.md", "docs/table.md"}
"""Pages that compile programs of further steps, which tests of theirs do; in
test_readers.py polars and duckdb read tables.
"""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page in LONG else ())
        for page, text in PAGES.items()
        if fenced(text, "python") and page not in ELSEWHERE
    ],
)
def test_python_runs(page, results, monkeypatch):
    """All blocks of a page, one after the other, as a reader would type them."""
    for package in ("polars", "duckdb"):
        if package in PAGES[page]:
            pytest.importorskip(package)
    monkeypatch.chdir(results)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = {}
    for block in fenced(PAGES[page], "python"):
        exec(compile(block, page, "exec"), names)


@pytest.mark.parametrize(
    "page", [page for page, text in PAGES.items() if fenced(text, "yaml")]
)
def test_grids_are_grids(page, tmp_path, monkeypatch):
    # where the simulators that pages name are
    monkeypatch.syspath_prepend(ROOT / "examples")
    for block in fenced(PAGES[page], "yaml"):
        (tmp_path / "grid.yaml").write_text(block)
        with usual_promotion():
            assert read_grid(tmp_path / "grid.yaml").points


def test_overrides_apply_to_the_grid_of_their_page(tmp_path):
    page = PAGES["docs/grid-files.md"]
    (tmp_path / "grid.yaml").write_text(fenced(page, "yaml")[0])
    overrides = re.findall(r"`(--set [^`]+)`", page)
    assert len(overrides) == 3
    for override in overrides:
        given = ["--grid", str(tmp_path / "grid.yaml"), "--dry-run"]
        assert sweep([*given, *shlex.split(override)]) == 0, override


COMMANDS_IN_TEXT = re.compile(r"(?:jaxrecall|pip|python|make|--set) [^`\n#]+")
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def patterns_in(text: str) -> list[str]:
    """The commands in a page's code in which a shell would see a pattern of files."""
    spans = re.findall(r"`([^`\n]+)`", text)
    spans += [body for _, name, body in FENCE.findall(text) if name in ("", "sh")]
    commands = COMMANDS_IN_TEXT.findall("\n".join(spans))
    return [line for line in commands if re.search(r"[][*?]", QUOTED.sub("", line))]


def test_commands_are_quoted_for_every_shell():
    """zsh refuses a pattern that no file matches; bash takes it as it is."""
    assert patterns_in("`--set d=[8,16]` and `--set 'd=[8,16]'`") == ["--set d=[8,16]"]
    found = {name: patterns_in(page) for name, page in PAGES.items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


class Parsed(BaseException):
    """Raised in place of running a command whose arguments were accepted."""


@pytest.fixture
def parse(monkeypatch):
    """(command, arguments) -> what the real command line makes of them, without running
    it.
    """
    original = argparse.ArgumentParser.parse_args

    def parse_args(self, *given, **named):
        raise Parsed(original(self, *given, **named))

    def parse(command: str, arguments: list[str]) -> argparse.Namespace:
        with monkeypatch.context() as patch:
            patch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
            with pytest.raises(Parsed) as found:
                importlib.import_module(f"jaxrecall.{COMMANDS[command]}").main(
                    arguments
                )
        return found.value.args[0]

    return parse


COMMAND = re.compile(r"(?:\bjaxrecall |python -m jaxrecall\.)([a-z.]+)((?: [^`\n]*)?)")


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Every command line of the package in a page: those in blocks of shell, in inline
    code and in tables.
    """
    shell = "\n".join(body for _, name, body in FENCE.findall(text) if name == "sh")
    inline = re.findall(r"`([^`\n]+)`", re.sub(FENCE, "", text))
    indented = re.findall(r"^    (?:[\w.]+/)*(\w.*)$", re.sub(FENCE, "", text), re.M)
    found = []
    for line in (*shell.splitlines(), *inline, *indented):
        if command := re.match(COMMAND.pattern + "$", line.strip()):
            found.append((command[1], shlex.split(command[2].partition(" # ")[0])))
    return found


@pytest.mark.parametrize(
    "page", [page for page, text in PAGES.items() if commands(text)]
)
def test_commands_are_accepted_by_the_real_command_line(page, parse, monkeypatch):
    # as on a machine of a Slurm cluster
    monkeypatch.setattr("shutil.which", lambda name: name)
    for command, arguments in commands(PAGES[page]):
        if not arguments:  # only named
            assert command in COMMANDS
            continue
        args = parse(command, arguments)
        if command == "sweep":
            engine(args)
            if args.shard and "$" not in args.shard:  # the shell computes it
                assert chosen_shard(args.shard)


def test_commands_are_found():
    mentioned = [command for command, _ in commands(README)]
    assert mentioned == ["examples", "sweep", "fit", "examples", "sweep", "fit"]
    assert commands("`python -m jaxrecall.fit a --out b`, | `jaxrecall status` |") == [
        ("fit", ["a", "--out", "b"]),
        ("status", []),
    ]


def test_flags_exist(capsys):
    """Every --flag in a page is one of the package, of its tests or benchmarks, or of
    another program that the page names.
    """
    known = {
        "--slow",
        "--only",
        "--exclude",
        "--version",
        "--generate",
        "--head",
        "--port",
        "--address",
        "--local-dir",
        "--replicates",
    }
    known |= {"--array", "--time", "--no-requeue", "--coalesce-streams"}  # of others
    known |= {"--no-index", "--find-links"}
    for module in COMMANDS.values():
        with pytest.raises(SystemExit):
            importlib.import_module(f"jaxrecall.{module}").main(["--help"])
        known |= set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    known |= set(attack_parser()._option_string_actions)
    for page, text in PAGES.items():
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) <= known, page


def test_make_targets_exist():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    for page, text in PAGES.items():
        code = "\n".join([*fenced(text, "sh"), *re.findall(r"`([^`\n]+)`", text)])
        assert set(re.findall(r"^make ([\w-]+)", code, re.M)) <= {*targets}, page


# links


def anchor(heading: str) -> str:
    """As GitHub makes them."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


LINK = re.compile(r"\]\(([^)\s]+)\)")
OTHERS = "CONTRIBUTING.md", "CHANGELOG.md"
LINKING = PAGES | FINDINGS | {name: (ROOT / name).read_text() for name in OTHERS}


@pytest.mark.parametrize("page", LINKING)
def test_links_lead_somewhere(page):
    for link in LINK.findall(LINKING[page]):
        if link.startswith("https://"):
            continue
        path, _, fragment = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        if fragment:
            text = re.sub(FENCE, "", target.read_text())
            assert fragment in map(anchor, re.findall(r"^#+ (.*)$", text, re.M)), link


@pytest.mark.parametrize("page", ["docs/how-it-works.md", "CONTRIBUTING.md"])
def test_python_files_that_a_page_names_exist(page):
    """Paths are from the root of the repository or of the package."""
    named = re.findall(r"`([\w/*.-]+\.py)`", LINKING[page])
    assert named
    for path in named:
        assert any(ROOT.glob(path)) or any(ROOT.glob(f"jaxrecall/{path}")), path


def test_the_readme_links_every_page():
    linked = set(LINK.findall(README))
    assert {page for page in PAGES if page.startswith("docs/")} <= linked


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs/images").glob("*.svg")), ids=lambda path: path.name
)
def test_drawings_are_shown_and_have_a_description(path):
    assert any(f"images/{path.name})" in text for text in PAGES.values())
    assert 'aria-label="' in path.read_text()


# tables


def legend() -> list[str]:
    """The fields of a point as the rows of a Markdown table: name and symbol, meaning,
    allowed values, default.
    """
    lines = ["| field | meaning | allowed | default |", "| --- | --- | --- | --- |"]
    for name, f in FIELDS.items():
        symbol = f.metadata["symbol"]
        shown = f"`{name}`" + (f" ({symbol})" if symbol not in ("", name) else "")
        default = "" if f.default in (MISSING, None) else str(f.default).lower()
        lines.append(
            f"| {shown} | {f.metadata['legend']} | {_allowed(name)} | {default} |"
        )
    return lines


def _allowed(name: str) -> str:
    limits = FIELDS[name].metadata
    if "low" not in limits:
        return ", ".join(
            limits["choices"]() if "choices" in limits else ("true", "false")
        )
    if "high" in limits:
        larger = (
            f", {limits['high_with_pool']} with a"
            f" pool{' or at L = 1' if name == 'N' else ''}"
            if "high_with_pool" in limits
            else ""
        )
        return f"{limits['low']} to {limits['high']}{larger}"
    return f"{'>' if limits.get('open_low') else '>='} {limits['low']:g}"


def column_table() -> list[str]:
    """The columns of the result table but the fields of a point and covariances, as the
    rows of a Markdown table: name, meaning.
    """
    own = {
        name: meaning
        for name, (_, meaning) in COLUMNS.items()
        if name not in FIELDS and not name.startswith("cov_")
    }
    return [
        "| column | meaning |",
        "| --- | --- |",
        *(
            f"| `{name}` | {meaning.replace('|', chr(92) + '|')} |"
            for name, meaning in own.items()
        ),
    ]


def test_columns_and_parameters_are_those_declared():
    assert table(section("docs/table.md", "## Columns")) == column_table(), (
        "print(*column_table(), sep='\\n')"
    )
    assert table(section("docs/table.md", "## Parameters")) == legend(), (
        "print(*legend(), sep='\\n')"
    )
    assert "| `eta` | rate of step 1 | > 0 | 0.001 |" in legend()
    assert "| `accuracy` | n_correct / n_test |" in column_table()
    assert {
        name for name in COLUMNS if f"`{name}`" not in PAGES["docs/table.md"]
    } == set()


def test_columns_of_the_fit_are_those_declared():
    output = section("docs/thresholds.md", "### Output")
    assert {*re.findall(r"^\| `(\w+)` \|", output, re.M)} == {
        *COLUMNS_OF["thresholds"],
        *COLUMNS_OF["exponents"],
        *COLUMNS_OF["diagnostics"],
    }


def test_the_page_of_the_search_names_every_outcome():
    heading, *named = re.findall(
        r"^\| `(\w+)` \|", section("docs/thresholds.md", "### Results"), re.M
    )
    assert heading == "outcome"
    assert set(named) == {*OUTCOMES, "unfinished"}


def test_speed_is_as_saved():
    rows = json.loads((ROOT / "results/benchmarks.json").read_text())["rows"]
    assert table(section("docs/scaling.md", "## Speed")) == documented.speed(rows), (
        "python -m benchmarks.documented"
    )


# formulas


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if "$" in text])
def test_formulas_render_on_github(page):
    """Displayed formulas stand in ```math, since elsewhere Markdown eats backslashes
    before punctuation.
    """
    text = re.sub(r"`[^`\n]*`", "", re.sub(FENCE, "", PAGES[page]))
    assert "$$" not in text
    for line in text.splitlines():
        assert line.count("$") % 2 == 0, line
        for formula in re.findall(r"\$([^$]*)\$", line):
            assert not re.search(r"\\[^a-zA-Z]", formula), formula
    for formula in fenced(PAGES[page], "math"):
        assert formula.count("{") - formula.count("\\{") == formula.count(
            "}"
        ) - formula.count("\\}"), formula
