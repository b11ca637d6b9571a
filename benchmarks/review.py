"""The review page of many images: the time from a key to the next picture."""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import Section, parser, seconds
from playwright.sync_api import Page, sync_playwright
from report import CLASSES, FLAGS, save_photos

from gpgc_dask import GPGC, MaskOptions, Recipe, ingest, open_dataset

HEIGHT, WIDTH = 768, 1024
LOOK_MS = 500
"""Time that a person looks at an image; the page loads the next ones meanwhile."""

LISTEN = """addEventListener("keydown", () => performance.mark("pressed"), { capture: true })"""
TIMES = """() => {
    const times = (name) => performance.getEntriesByName(name).map((entry) => entry.startTime);
    const stored = performance.getEntriesByType("resource")
        .filter((entry) => entry.name.endsWith("/api/verdict")).map((entry) => entry.duration);
    return { pressed: times("pressed"), shown: times("shown"), stored };
}"""


def step(page: Page, key: str, times: int, look: float) -> list[float]:
    """Milliseconds from each press of a key until the next picture is drawn."""
    taken = []
    for _ in range(times):
        before = len(page.evaluate(TIMES)["shown"])
        page.keyboard.press(key)
        while len((found := page.evaluate(TIMES))["shown"]) == before:
            page.wait_for_timeout(2)
        taken.append(found["shown"][before] - found["pressed"][-1])
        page.wait_for_timeout(look)
    return taken


def measure(url: str, n: int) -> dict[str, list[float]] | None:
    """Times in ms; None without Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return None
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_context(viewport={"width": 1366, "height": 900}).new_page()
        page.add_init_script(f"localStorage.setItem('gpgc-review-name', 'anna'); {LISTEN}")
        page.goto(url)
        page.wait_for_selector("html[data-shown]")
        first = page.evaluate(TIMES)["shown"][0]
        page.wait_for_timeout(1000)
        measured = {"first": [first]}
        for name, key in (("confirm", "c"), ("reject", "x"), ("model", "m"), ("skip", "n")):
            measured[name] = step(page, key, n, LOOK_MS)
        measured["hurry"] = step(page, "c", n, 0)
        page.wait_for_timeout(1000)
        measured["stored"] = page.evaluate(TIMES)["stored"]
        browser.close()
    return measured


def text(times: list[float]) -> tuple[str, str]:
    high = sorted(times)[min(int(0.95 * len(times)), len(times) - 1)]
    return f"{statistics.median(times):.0f} ms", f"{high:.0f} ms"


def main(args: Any) -> None:
    section = Section(args, __file__)
    images, distinct, n = (40, 8, 2) if args.smoke else (5000, 100, 40)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        save_photos(folder, images, distinct, HEIGHT, WIDTH)
        recipe = Recipe(backbone="colour", superpixels=150, side=256)
        data, masks = folder / "data.zarr", MaskOptions(classes=CLASSES)
        ingest(folder / "images", folder / "masks", data, recipe=recipe, masks_as=masks)
        dataset = open_dataset(data)
        model = GPGC(rounds=0).fit(dataset)
        model.review(dataset)
        model.save(folder / "model.zarr")
        command = [sys.executable, "-m", "gpgc_dask", "review", str(data)]
        command += [str(folder / "model.zarr"), "--no-browser", "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            starting, line = seconds(server.stdout.readline)
            measured = measure(re.search(r"http:\S+", line)[0], n)
        finally:
            server.terminate()
            server.wait()
    rows = [("the server answers after", f"{starting:.1f} s", "")]
    if measured:
        first = measured["first"][0] / 1e3
        rows.append(("first picture, after the address was opened", f"{first:.2f} s", ""))
        names = {
            "confirm": "next picture after confirm",
            "reject": "after reject",
            "model": "after take the model's mask",
            "skip": "after next",
            "hurry": "after confirm, without a look in between",
            "stored": "verdict is stored (in the background)",
        }
        rows += [(name, *text(measured[key])) for key, name in names.items()]
    section.add(
        f"{images:,} images of {WIDTH} × {HEIGHT} pixels and {len(CLASSES)} classes; {n} keys of "
        f"each kind, after a look of {LOOK_MS / 1e3} s:"
    )
    section.table(["review page", "median", "95 % of them below"], rows)
    section.finish()


if __name__ == "__main__":
    main(parser(__doc__).parse_args())
