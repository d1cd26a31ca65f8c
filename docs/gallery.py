"""python docs/gallery.py [NAME ...]: runs the grids of docs/gallery.md and draws its figures again."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent
GRID = re.compile(r"```yaml\n(name: ([\w-]+)\n.*?)```", re.S)


def grids() -> dict[str, str]:
    """Name -> text of each grid of the page."""
    return {name: text for text, name in GRID.findall((DOCS / "gallery.md").read_text())}


def main(names: list[str]) -> None:
    for name, text in grids().items():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, f"{name}.yaml").write_text(text)
            subprocess.run([sys.executable, "-m", "jaxrecall", "sweep", "--grid", f"{name}.yaml"], cwd=folder, check=True)
            shutil.copy(Path(folder, "results", name, "accuracy.png"), DOCS / "images" / "gallery" / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
