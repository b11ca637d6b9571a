"""Each benchmark runs at a tiny size."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = pytest.mark.newest

ROOT = Path(__file__).parents[2]
SHARED = {"common.py", "paper.py", "photos.py"}
SHARED |= {f"ranking_{part}.py" for part in ("errors", "scores", "sets")} | {
    "people_sets.py",
    "reviewer_sets.py",
}
SHARED |= {f"objects_{part}.py" for part in ("runs", "sets")}
SCRIPTS = sorted(path for path in (ROOT / "benchmarks").glob("*.py") if path.name not in SHARED)


def smoke(script):
    # Clusters of a script after its first one start sooner.
    quick = {"DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "forkserver"}
    return subprocess.run(
        [sys.executable, script, "--smoke", "--repeats", "1"],
        env=os.environ | quick,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def runs(request):
    """{script: future of its run}, two at a time: they spend most of the time on imports."""
    scripts = [item.callspec.params["script"] for item in request.session.items if is_smoke(item)]
    with ThreadPoolExecutor(2) as pool:
        yield {script: pool.submit(smoke, script) for script in scripts}


def is_smoke(item):
    return getattr(item, "originalname", "") == "test_benchmark_runs"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_benchmark_runs(script, runs):
    done = runs[script].result()
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
