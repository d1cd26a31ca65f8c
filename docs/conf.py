"""How Sphinx makes the documentation site: `make docs`. Its source is the whole
repository, so that links of pages hold as they are.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import jaxrecall  # noqa: E402  that of this folder

project, version = "jaxrecall", jaxrecall.__version__
copyright = "the jaxrecall authors"

root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/*.rst", "results/*.md"]
LOGS = "accelerators", "attack", "benchmarks", "on-device", "slurm"
"""Logs of machines, which are files to download and no pages."""

exclude_patterns = [".*", "**/.*", "build", "dist", "tests", "results/study"]
exclude_patterns += [f"results/{name}.md" for name in LOGS]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = {"math"}
myst_heading_anchors = 4
html_math_renderer = "mathml"

autodoc_member_order = "bysource"
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"jaxrecall {version}"
html_static_path = ["site"]
html_favicon = "site/icon.svg"
html_css_files = ["site.css"]
html_copy_source = False

SECTIONS = {
    "Start": "running functions gallery how-it-works glossary",
    "Set up a study": "grid-files laws",
    "Find critical N": "thresholds table theory theory-derivations papers",
    "Findings": (
        "../results/README ../results/scaling-law ../results/steps ../results/recipe"
        " ../results/embeddings ../results/zipf ../results/mlp ../results/storage"
        " ../results/bound ../results/training"
    ),
    "Write code": "python api",
    "Scale up": "scaling",
    "Records": "../results/tested ../CONTRIBUTING ../CHANGELOG",
}
"""Heading of the sidebar -> its pages, as seen from docs/."""

UNKNOWN = re.compile(r"\\[a-zA-Z]+|&(?!#|[a-z]+;)")
"""What is left of a formula that is not rendered."""


def contents() -> str:
    """The tree of all pages, which Sphinx wants in one of them: the README, where
    GitHub would show it as text.
    """
    trees = []
    for heading, pages in SECTIONS.items():
        names = [
            str(Path("docs", page)).replace("docs/../", "") for page in pages.split()
        ]
        trees.append(
            "\n".join(
                ["```{toctree}", ":hidden:", f":caption: {heading}", "", *names, "```"]
            )
        )
    return "\n\n".join(["", *trees, ""])


LINK_TO_A_LOG = re.compile(rf"\[([^]]+)\]\(([\w./-]*\b(?:{'|'.join(LOGS)})\.md)\)")


def complete(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = LINK_TO_A_LOG.sub(r"{download}`\1 <\2>`", source[0])
    if docname == root_doc:
        source[0] += contents()


def plain(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Docstrings are plain text with `code`: no character in them is markup of Sphinx.
    This runs before napoleon finds their sections.
    """
    for i, line in enumerate(lines):
        parts = line.split("`")
        for j in range(0, len(parts), 2):
            parts[j] = re.sub(r"([*|\\])|(?<=\w)(_)(?!\w)", r"\\\1\2", parts[j])
        lines[i] = "``".join(parts) if len(parts) % 2 else line
    if what == "property" and lines:
        lines[0] = lines[0].replace(
            ":", "\\:"
        )  # napoleon would take what stands before it as a type


def finish(app: Sphinx, error: Exception | None) -> None:
    """Leads from index.html to the README."""
    if error or app.builder.name != "html":
        return
    start = (
        '<!doctype html><html lang="en"><title>jaxrecall</title><meta'
        ' http-equiv="refresh" content="0; url=README.html"></html>\n'
    )
    Path(app.outdir, "index.html").write_text(start)


def mathml(latex: str, display: str) -> str:
    """A formula as MathML. Browsers need letters of other alphabets as characters of
    their own, which the converter gives in braces.
    """
    latex = latex.replace("{aligned}", "{align*}")
    latex = re.sub(r"(\\math(?:bb|cal)) ?([A-Z])", r"\1{\2}", latex)
    return convert(latex, display=display).replace(
        "<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>"
    )


def rendered(self: Any, node: nodes.Element, display: str) -> None:
    """Writes a formula as MathML, which browsers draw without a script."""
    try:
        text = mathml(node.astext(), display)
        left = UNKNOWN.findall(re.sub("<[^>]*>", "", text))
        problem = f"unknown {left[0]}" if left else ""
    except Exception as error:  # of many kinds
        text, problem = "", repr(error)
    if problem:
        logging.getLogger(__name__).warning(
            "formula %r is not rendered: %s", node.astext(), problem, location=node
        )
    tag = "div" if display == "block" else "span"
    self.body.append(f'<{tag} class="math">{text}</{tag}>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.connect("source-read", complete)
    app.connect("autodoc-process-docstring", plain, priority=100)
    app.connect("build-finished", finish)
    visit = [
        lambda self, node, display=display: rendered(self, node, display)
        for display in ("inline", "block")
    ]
    app.add_html_math_renderer("mathml", (visit[0], None), (visit[1], None))
