"""The notebooks run from clean, and hold what they gave when they last did."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import nbformat
import pytest

from examples.execute import execute

pytestmark = pytest.mark.newest

FOLDER = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 600_000
OF_A_MACHINE = re.compile(
    r"/tmp\b|/home/|/root\b|/Users/|[A-Z]:\\\\|site-packages|dist-packages|ipykernel_"
    rf"|{re.escape(tempfile.gettempdir())}"
)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(cell):
    """What a cell shows: its stream, and the forms of what it displays."""
    return [
        output.name if output.output_type == "stream" else sorted(output.get("data", {}))
        for output in cell.outputs
        if output.get("name") != "stderr"
    ]


def warnings_in(notebook):
    """Lines on stderr, without what Dask logs about a machine that is busy with other tests."""
    return [
        line
        for cell in code_cells(notebook)
        for output in cell.outputs
        if output.get("name") == "stderr"
        for line in output.text.splitlines()
        if " - distributed." not in line
    ]


def test_there_are_five():
    names = [
        "crowd_workers",
        "find_bad_masks",
        "laptop_to_cluster",
        "one_dimension",
        "review_loop",
    ]
    assert [path.stem for path in NOTEBOOKS] == names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_from_clean(path, tmp_path, monkeypatch):
    """Its own assertions hold, it warns of nothing and leaves nothing behind."""
    (tmp_path / "work").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # other tests want cores, too
    done = execute(path, tmp_path / "work")
    assert any("assert " in cell.source for cell in code_cells(done))
    assert not warnings_in(done)
    assert any("image" in kind[0] for cell in code_cells(done) for kind in kinds(cell))
    left = {p.name for p in tmp_path.glob("*/*")} - {"dask-scratch-space"}
    assert not left
    stored = nbformat.read(path, as_version=4)
    for before, now in zip(code_cells(stored), code_cells(done), strict=True):
        assert kinds(before) == kinds(now), f"{before.source}: run examples/execute.py again"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_reads_well_before_it_is_run(path):
    notebook = nbformat.read(path, as_version=4)
    assert path.stat().st_size < LARGEST
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, 1 + len(cells)))
    assert not any("execution" in cell.metadata for cell in cells)
    assert notebook.cells[0].source.startswith("# ")
    for cell in cells:
        told = json.dumps(cell.outputs, ensure_ascii=False)
        told = re.sub(r'"image/\w+": "[^"]*"', "", told)
        assert not OF_A_MACHINE.search(told), OF_A_MACHINE.search(told)
