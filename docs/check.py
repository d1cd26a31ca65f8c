"""python docs/check.py FOLDER: opens every page of a built site in a headless Chromium,
and counts what a reader would stumble over.

Each page is opened in light and dark, in a window of 1280 and of 390 pixels. Nothing is
fetched from outside the folder. Exit codes: 0 nothing found, 1 something found, 2 no
Chromium or no site.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from websockets.sync.client import ClientConnection, connect

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SCHEMES, WIDTHS = ("light", "dark"), (1280, 390)
WAIT_SECONDS = 30
KINDS = (
    "console error",
    "broken link",
    "broken image",
    "horizontal scroll",
    "unrendered formula",
)

LOOK = r"""(() => {
    const outside = node => !node.parentElement.closest('pre, code, script, style, math, .math, textarea, title, svg');
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const raw = [];
    while (texts.nextNode())
        if (outside(texts.currentNode) && /\$[^$\s][^$]*\$|\\[a-zA-Z]{2,}|\$\\/.test(texts.currentNode.data))
            raw.push(texts.currentNode.data.trim().slice(0, 60));
    for (const box of document.querySelectorAll('.math'))
        if (!box.querySelector('math') || box.getBoundingClientRect().width < 2 || box.querySelector('merror'))
            raw.push(box.textContent.slice(0, 60));
    const page = document.documentElement;
    return JSON.stringify({
        links: [...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href')),
        ids: [...document.querySelectorAll('[id], a[name]')].map(e => e.id || e.name),
        formulas: document.querySelectorAll('math').length,
        images: [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src),
        wide: Math.max(page.scrollWidth, document.body.scrollWidth) - page.clientWidth,
        raw});
})()"""  # noqa: E501
"""What a page holds, as JSON."""


class Tab:
    """One tab of a browser, driven by the protocol of its developer tools."""

    def __init__(self, socket: ClientConnection):
        self.socket, self.sent, self.events = socket, 0, list[dict[str, Any]]()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command and waits for its result."""
        self.sent += 1
        self.socket.send(
            json.dumps({"id": self.sent, "method": method, "params": params})
        )
        while (message := self._next()).get("id") != self.sent:
            self.events.append(message)
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']['message']}")
        return message["result"]

    def open(self, url: str, scheme: str, width: int) -> dict[str, Any]:
        """Opens a page; returns what it holds, with `errors`, the lines that its
        console has.
        """
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(
            event.get("method") == "Page.loadEventFired" for event in self.events
        ):
            self.events.append(self._next())
        told = self.call("Runtime.evaluate", expression=LOOK, returnByValue=True)[
            "result"
        ]
        return {
            **json.loads(told["value"]),
            "errors": [*filter(None, map(complaint, self.events))],
        }

    def _next(self) -> dict[str, Any]:
        return json.loads(self.socket.recv(timeout=WAIT_SECONDS))


def complaint(event: dict[str, Any]) -> str | None:
    """The text of an event that a console shows as an error."""
    method, params = event.get("method"), event.get("params", {})
    if method == "Runtime.exceptionThrown":
        return (
            params["exceptionDetails"].get("exception", {}).get("description")
            or params["exceptionDetails"]["text"]
        )
    if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
        return " ".join(
            str(arg.get("value", arg.get("description"))) for arg in params["args"]
        )
    if method == "Log.entryAdded" and params["entry"]["level"] == "error":
        return f"{params['entry']['text']} {params['entry'].get('url', '')}"
    if method == "Network.loadingFailed" and not params.get("canceled"):
        return f"{params['type']}: {params['errorText']}"
    return None


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of a folder on this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()


@contextmanager
def browser(program: str) -> Iterator[Tab]:
    """A headless browser without a network, and its tab."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--no-first-run",
        ]
        options += [
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            f"--user-data-dir={profile}",
            "--remote-debugging-port=0",
        ]
        process = subprocess.Popen(
            [program, *options, "about:blank"],
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        try:
            with connect(
                _address(Path(profile, "DevToolsActivePort"), process),
                max_size=None,
                open_timeout=WAIT_SECONDS,
            ) as socket:
                yield Tab(socket)
        finally:
            process.kill()
            process.wait()


def _address(file: Path, process: subprocess.Popen[bytes]) -> str:
    """Where the tab listens: the browser writes its port to a file."""
    from urllib.request import urlopen

    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end and process.poll() is None:
        if file.exists() and len(lines := file.read_text().split()) == 2:
            with urlopen(
                f"http://127.0.0.1:{lines[0]}/json/list", timeout=WAIT_SECONDS
            ) as reply:
                return next(
                    tab["webSocketDebuggerUrl"]
                    for tab in json.load(reply)
                    if tab["type"] == "page"
                )
        time.sleep(0.1)
    raise RuntimeError("the browser did not start")


def broken_links(
    found: dict[str, dict[str, Any]], folder: Path
) -> Iterator[tuple[str, str]]:
    """(page, link) for every link inside the site to a file that is not there, or to a
    place that its page does not have.
    """
    for page, told in found.items():
        for link in dict.fromkeys(told["links"]):
            if urlsplit(link).scheme or link.startswith("//"):
                continue
            path, fragment = map(unquote, urldefrag(urljoin(f"/{page}", link)))
            path = urlsplit(path).path.lstrip("/") or "index.html"
            ids = found[path]["ids"] if path in found else []
            if not (folder / path).is_file() or (
                fragment and path.endswith(".html") and fragment not in ids
            ):
                yield page, link


def check(folder: Path, program: str) -> tuple[Counter[str], list[str]]:
    """What was counted, and a line for everything that is wrong."""
    counts, lines = (
        Counter(dict.fromkeys(("pages", "views", "links", "formulas", *KINDS), 0)),
        dict[str, None](),
    )
    pages = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.html"))
    pages.remove("index.html")  # only leads to another
    found: dict[str, dict[str, Any]] = {}

    def note(kind: str, where: str, what: str) -> None:
        counts[kind] += 1
        lines[f"{where}: {kind}: {re.sub(r'http://127.0.0.1:[0-9]+/', '', what)}"] = (
            None
        )

    with served(folder) as root, browser(program) as tab:
        for page in pages:
            for scheme in SCHEMES:
                for width in WIDTHS:
                    told = found[page] = tab.open(root + page, scheme, width)
                    where, counts["views"] = (
                        f"{page} ({scheme}, {width})",
                        counts["views"] + 1,
                    )
                    seen = {
                        "console error": told["errors"],
                        "broken image": told["images"],
                        "unrendered formula": told["raw"],
                    }
                    for kind, texts in seen.items():
                        for text in texts:
                            note(kind, where, text)
                    if told["wide"] > 0:
                        note("horizontal scroll", where, f"{told['wide']} pixels")
    found["index.html"] = {"links": [], "ids": []}
    for page, link in broken_links(found, folder):
        note("broken link", page, link)
    counts["pages"], counts["links"] = (
        len(pages),
        sum(len(told["links"]) for told in found.values()),
    )
    counts["formulas"] = sum(told.get("formulas", 0) for told in found.values())
    return counts, [*lines]


def main(folder: Path) -> int:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        print(
            f"no browser found; install one of {', '.join(BROWSERS)}, as in: apt-get"
            " install chromium",
            file=sys.stderr,
        )
        return 2
    if not (folder / "index.html").exists():
        print(f"{folder}: holds no site; make docs builds it", file=sys.stderr)
        return 2
    counts, lines = check(folder, program)
    print(
        "\n".join(
            [*lines, ", ".join(f"{kind}: {count}" for kind, count in counts.items())]
        )
    )
    return 1 if any(counts[kind] for kind in KINDS) else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/_build")))
