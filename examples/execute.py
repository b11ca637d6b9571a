"""Run the notebooks from clean and keep their outputs: ``python examples/execute.py [FILE …]``.

What differs from run to run and says nothing (times of execution, ports, addresses in memory) is
not kept, so that a diff shows what has changed. Needs nbclient and ipykernel.
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
SECONDS_A_CELL = 300
USUAL = {
    r"(?<=//127\.0\.0\.1:)\d+": "8787",  # Dask's own port, where it is free
    r"(?<= at 0x)[0-9a-f]+": "0",
    r"\bT_[0-9a-f]{5}(?=_|\b)": "T_table",  # pandas draws names of its tables at random
}
"""What stands for things that are others in every run."""


def execute(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook as it is after all of its cells have run in a new kernel, in that folder."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        timeout=SECONDS_A_CELL,
        resources={"metadata": {"path": str(folder)}},
        coalesce_streams=True,
    ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            texts = output.get("data", output)
            for kind, text in texts.items():
                if isinstance(text, str) and not kind.startswith("image/png"):
                    for pattern, usual in USUAL.items():
                        texts[kind] = text = re.sub(pattern, usual, text)
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def main() -> None:
    for path in [Path(name) for name in sys.argv[1:]] or sorted(HERE.glob("*.ipynb")):
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(execute(path, Path(folder)), path)
        size = path.stat().st_size / 1e3
        print(f"{path.name}: {time.perf_counter() - start:.0f} s, {size:.0f} kB")


if __name__ == "__main__":
    main()
