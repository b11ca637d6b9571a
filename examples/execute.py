"""Run the notebooks and store their outputs: ``python examples/execute.py [FILE …]``.

Outputs that differ from run to run (execution times, ports, temporary folders, random names) are
removed, so that a diff shows what has changed. Needs nbclient and ipykernel.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
SECONDS_PER_CELL = 300
TEMPORARY = re.compile(rf"{re.escape(tempfile.gettempdir())}(?:/tmp\w*)?")
PORT = re.compile(r"(?<=//127\.0\.0\.1:)\d+")
DRAWN = re.compile(
    r"(?<=\bT_)[0-9a-f]{5}(?![0-9a-f])"  # tables of pandas
    r"|(?<=\bgpgc-)[0-9a-f]{8}\b"  # cards
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"  # parts of an xarray.Dataset
    r"|(?<= at 0x)[0-9a-f]+\b"
)


def execute(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook as it is after all of its cells have run in a new kernel, in that folder."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        resources={"metadata": {"path": str(folder)}},
        coalesce_streams=True,
    ).execute()
    names: dict[str, str] = {}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            texts = output.get("data", output)
            for kind, text in texts.items():
                if kind.startswith("text"):
                    texts[kind] = _usual(text, names)
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def _usual(text: str, names: dict[str, str]) -> str:
    """The text with the same words in every run; ``names`` are what stands for drawn ones."""
    text = DRAWN.sub(lambda found: names.setdefault(found[0], f"{len(names):05d}"), text)
    return PORT.sub("8787", TEMPORARY.sub("folder", text))  # 8787 is Dask's own port, if free


def main() -> None:
    for path in [Path(name) for name in sys.argv[1:]] or sorted(HERE.glob("*.ipynb")):
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(execute(path, Path(folder)), path)
        size = path.stat().st_size / 1e3
        print(f"{path.name}: {time.perf_counter() - start:.0f} s, {size:.0f} kB")


if __name__ == "__main__":
    main()
