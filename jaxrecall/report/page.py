"""The page: one HTML file with everything in it, pictures as inline SVG, nothing fetched and nothing run."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .style import PAGE, Picture

CSS = """
body { font: 15px/1.5 system-ui, sans-serif; color: #111; background: #fff; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem; margin-bottom: 0 } h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem }
figure { margin: 0; break-inside: avoid } figure svg { display: block; margin: auto; max-width: 100%; height: auto }
figcaption { font-size: .92rem; color: #333; margin: .4rem auto; max-width: 50rem }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .15rem .6rem .15rem 0; border-bottom: 1px solid #ddd; vertical-align: top }
th { border-bottom: 1px solid #333 } .record { font-weight: 600; background: #f1f5fa }
summary { cursor: pointer; color: #234 } pre { font-size: .8rem; overflow-x: auto } .file { color: #666; font-size: .82rem }
""".strip()


def page(
    title: str,
    summary: Sequence[str],
    pictures: Sequence[tuple[Picture, str]],
    left_out: Sequence[tuple[str, str]],
    sections: Sequence[tuple[str, str]],
    folder: str,
) -> str:
    """The whole page: pictures with their SVG and captions, what was left out and why, and sections of (heading, HTML)."""
    figures = "".join(_figure(picture, svg, folder) for picture, svg in pictures)
    missing = "".join(f"<li>{escape(what)}: {escape(why)}.</li>" for what, why in left_out)
    listed = f"<h2>Left out</h2><ul>{missing}</ul>" if missing else ""
    rest = "".join(f"<h2>{escape(heading)}</h2>{content}\n" for heading, content in sections)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>\n{CSS}\n</style></head><body>\n<h1>{escape(title)}</h1>\n"
        f"{''.join(f'<p>{escape(line)}</p>' for line in summary)}\n{figures}{listed}\n{rest}</body></html>\n"
    )


def _figure(picture: Picture, svg: str, folder: str) -> str:
    size = f"width:{picture.figure.get_figwidth() / PAGE * 58:.0f}rem"
    drawn = svg.replace("<svg", f'<svg role="img" aria-label="{escape(picture.title)}" style="{size}"', 1)
    files = f"{folder}/{picture.name}.pdf, .png"
    return (
        f'<h2>{escape(picture.title)}</h2>\n<figure id="{picture.name}">{drawn}<figcaption>{escape(picture.caption)} '
        f'<span class="file">{escape(files)}</span></figcaption></figure>\n'
    )
