"""jaxrecall cite: prints BibTeX of the software and of the paper, both made from CITATION.cff."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .command import Parser, answer, called


def entries() -> list[str]:
    """BibTeX of the software and of the paper that it simulates."""
    import yaml

    installed, clone = (folder / "CITATION.cff" for folder in Path(__file__).parents[1:3])
    told = yaml.safe_load((installed if installed.exists() else clone).read_text(encoding="utf-8"))
    [paper] = told["references"]
    software = {
        "title": f"{{{told['title']}}}",
        "author": _authors(told["authors"]),
        "year": told["date-released"].year,
        "version": told["version"],
        "note": f"{told['license']} licence",
        "url": told.get("repository-code"),
    }
    article = {
        "title": paper["title"],
        "author": _authors(paper["authors"]),
        "booktitle": paper["conference"]["name"],
        "year": paper["year"],
        "note": " and ".join(identifier["value"] for identifier in paper["identifiers"]),
    }
    return [_entry("software{jaxrecall", software), _entry("inproceedings{vural2026recall", article)]


def _authors(people: Sequence[Mapping[str, str]]) -> str:
    """As BibTeX has them; the name of a group has braces of its own."""
    return " and ".join(f"{{{who['name']}}}" if "name" in who else f"{who['family-names']}, {who['given-names']}" for who in people)


def _entry(start: str, fields: Mapping[str, Any]) -> str:
    """An entry with the fields that are known."""
    width = max(map(len, fields))
    lines = [f"  {name:<{width}} = {{{value}}}" for name, value in fields.items() if value is not None]
    return f"@{start},\n" + ",\n".join(lines) + "\n}"


def main(argv: Sequence[str] | None = None) -> int:
    """Parses, prints; returns the exit code."""
    Parser(prog=called("cite"), description="Print BibTeX of the software and of the paper.").parse_args(argv)
    return answer(*"\n\n".join(entries()).splitlines())
