"""python docs/gallery.py [NAME ...]: runs the grids of docs/gallery.md and draws its
figures again.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent
PAGE = (DOCS / "gallery.md").read_text()
QUESTION = re.compile(r"```yaml\n(name: ([\w-]+)\n.*?)```(.*?)(?=^## |\Z)", re.M | re.S)


def grids() -> dict[str, str]:
    """Name -> text of each grid of the page."""
    return {name: text for text, name, _ in QUESTION.findall(PAGE)}


def codes() -> dict[str, str]:
    """Name -> the Python that draws the figure, of questions whose sweep does not end
    with it.
    """
    return {
        name: "".join(re.findall(r"```python\n(.*?)```", rest, re.S))
        for _, name, rest in QUESTION.findall(PAGE)
    }


def write(name: str, folder: Path) -> None:
    """Writes a grid of the page into a folder, beside the module of its simulator if it
    names one.
    """
    (folder / f"{name}.yaml").write_text(grids()[name])
    module = DOCS.parent / "examples" / f"{name}.py"
    if module.exists():
        shutil.copy(module, folder)


def main(names: list[str]) -> None:
    for name in grids():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            write(name, Path(folder))
            subprocess.run(
                [sys.executable, "-m", "jaxrecall", "sweep", "--grid", f"{name}.yaml"],
                cwd=folder,
                check=True,
            )
            if codes()[name]:
                subprocess.run(
                    [sys.executable, "-c", codes()[name]], cwd=folder, check=True
                )
            figure = f"{name}.png" if codes()[name] else f"results/{name}/accuracy.png"
            shutil.copy(
                Path(folder, figure), DOCS / "images" / "gallery" / f"{name}.png"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
