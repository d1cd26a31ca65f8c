"""The page: one HTML file with everything in it, figures as inline SVG, nothing fetched and nothing run.

It is dark where the reader's screen is; figures keep a white card.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ..figures.style import PAGE, Picture

CSS = """
:root { color-scheme: light dark; --ink: #111; --paper: #fff; --soft: #444; --line: #ddd; --link: #1d4f91; --mark: #eef3fa }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #16181c; --soft: #b8bcc4; --line: #3a3f47; --link: #8ab8ff; --mark: #232b38 }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper) }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
a { color: var(--link) } h1 { font-size: 1.6rem; margin-bottom: 0 } h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem }
nav { border: 1px solid var(--line); border-radius: 6px; padding: .4rem 1rem; margin: 1rem 0 }
nav ol { margin: .2rem 0; padding-left: 1.6rem; columns: 22rem 2 }
figure { margin: 0; break-inside: avoid }
figure svg { display: block; margin: auto; max-width: 100%; height: auto; background: #fff; border-radius: 6px }
figcaption { font-size: .92rem; color: var(--soft); margin: .4rem auto; max-width: 50rem }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .15rem .6rem .15rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
th { border-bottom: 1px solid var(--ink) } .record { font-weight: 600; background: var(--mark) }
summary { cursor: pointer; color: var(--link) } pre { font-size: .8rem; overflow-x: auto } .file { color: var(--soft); font-size: .82rem }
""".strip()


def page(
    title: str,
    summary: Sequence[str],
    figures: Sequence[tuple[Picture, str]],
    left_out: Sequence[tuple[str, str]],
    sections: Sequence[tuple[str, str]],
    folder: str,
) -> str:
    """The whole page: figures with their SVG and captions, what was left out and why, and sections of (heading, HTML)."""
    shown = "".join(_figure(picture, svg, folder) for picture, svg in figures)
    missing = "".join(f"<li>{escape(what)}: {escape(why)}.</li>" for what, why in left_out)
    sections = [*([("Left out", f"<ul>{missing}</ul>")] if missing else []), *sections]
    rest = "".join(f'<h2 id="{_id(heading)}">{escape(heading)}</h2>{content}\n' for heading, content in sections)
    contents = [(picture.name, picture.title) for picture, _ in figures] + [(_id(heading), heading) for heading, _ in sections]
    listed = "".join(f'<li><a href="#{anchor}">{escape(heading)}</a></li>' for anchor, heading in contents)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>\n{CSS}\n</style></head><body>\n<h1>{escape(title)}</h1>\n"
        f"{''.join(f'<p>{escape(line)}</p>' for line in summary)}\n"
        f'<nav aria-label="Contents"><ol>{listed}</ol></nav>\n{shown}\n{rest}</body></html>\n'
    )


def _id(heading: str) -> str:
    return f"section-{heading.lower().replace(' ', '-')}"


def _figure(picture: Picture, svg: str, folder: str) -> str:
    size = f"width:{picture.figure.get_figwidth() / PAGE * 56:.0f}rem"
    drawn = svg.replace("<svg", f'<svg role="img" aria-label="{escape(picture.title)}" style="{size}"', 1)
    files = f"{folder}/{picture.name}.pdf, .png"
    return (
        f'<h2 id="{picture.name}">{escape(picture.title)}</h2>\n<figure>{drawn}<figcaption>{escape(picture.caption)} '
        f'<span class="file">{escape(files)}</span></figcaption></figure>\n'
    )
