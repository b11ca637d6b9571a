"""Make the pictures of what users see in a browser: ``python docs/screenshot.py [NAME …]``.

report.jpg: the demo's report; review.jpg: its review page; notebook.jpg: a notebook of examples/
in JupyterLab, after all of it has run; dashboard.jpg: Dask's dashboard during that notebook's fit.
Needs Chromium and playwright, and for the last two ``pip install "gpgc_dask[notebook]"``.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, TimeoutError, sync_playwright

from gpgc_dask.clusters.connect import connect
from gpgc_dask.demo.run import run_demo

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}
"""Of JupyterLab: no news, and cells that are out of view are drawn all the same."""

BEGUN = "document.querySelector('.jp-CodeCell .jp-InputPrompt').innerText.trim() !== '[ ]:'"
ANSWER_SECONDS, RUN_SECONDS, TRIES = 60, 600, 6


@contextmanager
def browser(width: int, height: int, scale: float = 1.25) -> Iterator[Page]:
    with sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        view = {"width": width, "height": height}
        yield chromium.new_context(viewport=view, device_scale_factor=scale).new_page()
        chromium.close()


def save(page: Page, target: Path, quality: int = 85) -> None:
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.save(target, quality=quality, optimize=True, progressive=True)
    print(f"{target.name}: {target.stat().st_size / 1e3:.0f} kB")


def shoot_report(target: Path) -> None:
    with tempfile.TemporaryDirectory() as place, browser(1280, 960) as page:
        found = run_demo(Path(place) / "demo", client=connect())
        page.goto(Path(found.report).as_uri())
        page.wait_for_selector("canvas")
        page.wait_for_timeout(1000)
        save(page, target)


def shoot_review(target: Path) -> None:
    with tempfile.TemporaryDirectory() as place, browser(1366, 840, 1.0) as page:
        found = run_demo(Path(place) / "demo", client=connect())
        folder = Path(found.report).parent
        command = [sys.executable, "-m", "gpgc_dask", "review", "--no-browser", "--port=0"]
        command += [str(folder / "data.zarr"), str(folder / "model.zarr")]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            page.goto(re.search(r"http:\S+", server.stdout.readline())[0])
            page.fill("#name", "Anna")
            page.keyboard.press("Enter")
            page.wait_for_selector("html[data-shown]")
            for key in "mcxmmmmmmmmmmmmmmmmmmmmmmmmmmmmm":
                page.keyboard.press(key)
                page.wait_for_timeout(400)
            page.wait_for_timeout(3500)
            save(page, target, quality=80)
        finally:
            server.terminate()
            server.wait()


@contextmanager
def jupyter(folder: Path) -> Iterator[str]:
    """JupyterLab in that folder, for this machine alone; its address."""
    for name, values in SETTINGS.items():
        path = folder / f".settings/@jupyterlab/{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1"),
            *(f"--port={port}", f"--ServerApp.root_dir={folder}", "--IdentityProvider.token="),
            *(["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
        ],
        cwd=folder,
        env=os.environ | {"JUPYTERLAB_SETTINGS_DIR": str(folder / ".settings")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(address)
        yield address
    finally:
        server.terminate()
        server.wait()


def _wait_for(address: str) -> None:
    until = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{address}/api").close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.3)
        else:
            return


def run_all(page: Page, address: str, name: str) -> None:
    """Open a notebook and start all of its cells."""
    page.goto(f"{address}/lab/tree/{name}?reset")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=1000 * ANSWER_SECONDS)
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    page.keyboard.press("Control+B")  # without the list of files
    page.get_by_role("menuitem", name="Edit", exact=True).click()
    page.get_by_text("Clear Outputs of All Cells").click()
    for _ in range(TRIES):  # a kernel that is not there yet is asked in vain
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_text("Run All Cells", exact=True).click()
        with suppress(TimeoutError):
            page.wait_for_function(BEGUN, timeout=10_000)
            return
    raise RuntimeError(f"{name} does not run")


def shoot_notebook(target: Path) -> None:
    with tempfile.TemporaryDirectory() as place, browser(1180, 1420, scale=1) as page:
        shutil.copy(EXAMPLES / "find_bad_masks.ipynb", place)
        with jupyter(Path(place)) as address:
            run_all(page, address, "find_bad_masks.ipynb")
            prompts = page.locator(".jp-CodeCell .jp-InputPrompt")
            last = prompts.nth(prompts.count() - 1)
            until = time.monotonic() + RUN_SECONDS
            while not re.fullmatch(r"\[\d+\]:", last.inner_text().strip()):
                assert time.monotonic() < until, "the notebook takes too long"
                page.wait_for_timeout(500)
            paragraph = page.locator("p", has_text="Then every mask is compared")
            paragraph.evaluate("element => element.scrollIntoView()")
            page.wait_for_timeout(1500)
            save(page, target)


def shoot_dashboard(target: Path) -> None:
    """With more photos and features than in the notebook, so that there is time to look."""
    with tempfile.TemporaryDirectory() as place, browser(1280, 860) as page:
        text = (EXAMPLES / "laptop_to_cluster.ipynb").read_text()
        assert "n_images=400, superpixels=120, n_features=255" in text
        text = text.replace("n_images=400", "n_images=1200").replace("=255", "=1023")
        (Path(place) / "laptop_to_cluster.ipynb").write_text(text)
        with jupyter(Path(place)) as address:
            run_all(page, address, "laptop_to_cluster.ipynb")
            link = page.locator(".jp-OutputArea a", has_text="/status")
            link.wait_for(timeout=1000 * RUN_SECONDS)
            page.goto(link.get_attribute("href"))
            page.wait_for_selector("canvas", timeout=1000 * ANSWER_SECONDS)
            page.wait_for_timeout(20_000)
            save(page, target)


SHOTS = {
    "report": shoot_report,
    "review": shoot_review,
    "notebook": shoot_notebook,
    "dashboard": shoot_dashboard,
}


def main() -> None:
    for name in sys.argv[1:] or SHOTS:
        SHOTS[name](HERE / f"{name}.jpg")


if __name__ == "__main__":
    main()
