"""Make docs/report.jpg: the demo's report in a browser. Needs Chromium and playwright."""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from gpgc_dask.cluster import connect
from gpgc_dask.demo.run import run_demo

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")


def shoot(page_path: Path, target: Path, **context: object) -> None:
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_context(**context).new_page()
        page.goto(page_path.as_uri())
        page.wait_for_selector("canvas")
        page.wait_for_timeout(1000)
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        picture.save(target, quality=85, optimize=True)
        browser.close()


def main() -> None:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("report.jpg"))
    with tempfile.TemporaryDirectory() as place:
        found = run_demo(Path(place) / "demo", client=connect())
        view = {"width": 1280, "height": 960}
        shoot(Path(found.report), target, viewport=view, device_scale_factor=1.25)


if __name__ == "__main__":
    main()
