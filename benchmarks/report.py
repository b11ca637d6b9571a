"""The report of many images and objects: its size, and the time to write and to open it."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
from common import Section, parser, seconds
from photos import draw
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from gpgc_dask import GPGC, MaskOptions, Recipe, ingest, open_dataset, write_report
from gpgc_dask.results.report.objects import KINDS

HEIGHT, WIDTH, POINTS = 240, 320, 24
CLASSES = {0: "background", 1: "cat", 2: "dog", 3: "horse", 4: "sheep", 5: "cow"}
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")
DRAWN = "performance.getEntriesByName('drawn').length"
MEASURE = """async () => {
    const timed = (work) => {
        const start = performance.now();
        work();
        return performance.now() - start;
    };
    const key = (name) => document.body.dispatchEvent(
        new KeyboardEvent("keydown", { key: name, bubbles: true }));
    const at = (name) => performance.getEntriesByName(name)[0].startTime;
    const choose = (id, value) => {
        document.getElementById(id).value = value;
        document.getElementById(id).dispatchEvent(new Event("change"));
    };
    return {
        ready: at("ready"),
        drawn: at("drawn"),
        loaded: performance.getEntriesByType("navigation")[0].loadEventEnd,
        step: timed(() => key("n")),
        filter: timed(() => choose("kind", "missing")),
    };
}"""


def save_photos(
    folder: Path, n: int, distinct: int, height: int = HEIGHT, width: int = WIDTH
) -> None:
    """n photos with masks, of which as many as given are different."""
    for kind in ("images", "masks"):
        (folder / kind).mkdir()
    for number in range(n):
        photo, mask = (folder / f"{kind}/{number:05d}" for kind in ("images", "masks"))
        photo, mask = photo.with_suffix(".jpg"), mask.with_suffix(".png")
        if number < distinct:
            pixels, truth = draw(number, height, width)
            value = 1 + number % (len(CLASSES) - 1)
            Image.fromarray(pixels).save(photo, quality=90)
            Image.fromarray((truth * value).astype(np.uint8)).save(mask)
        else:
            for path in (photo, mask):
                os.link(path.with_stem(f"{number % distinct:05d}"), path)


def make_objects(images: list[str], n: int) -> pd.DataFrame:
    """A table of n random objects with outlines of 24 points."""
    rng = np.random.default_rng(0)
    centre = rng.uniform(0.2, 0.8, (n, 1, 2)) * (WIDTH, HEIGHT)
    angle = np.linspace(0, 2 * np.pi, POINTS, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], 1)
    outline = centre + circle * rng.uniform(8, 40, (n, 1, 1)) * rng.uniform(0.8, 1, (n, POINTS, 1))
    low, high = outline.min(1), outline.max(1)
    names = np.array(list(CLASSES.values()))
    kind = rng.choice(KINDS, n, p=[0.7, 0.1, 0.1, 0.1])
    given = rng.choice(names[1:], n)
    return pd.DataFrame(
        {
            "rank": np.arange(1, n + 1),
            "annotation": np.where(kind == "given", (10**6 + np.arange(n)).astype(str), ""),
            "image": rng.choice(images, n),
            "class": np.where(kind == "wrong class", rng.choice(names[1:], n), given),
            "given_class": np.where(kind == "missing", names[0], given),
            "kind": kind,
            "score": np.sort(rng.random(n)),
            "area": np.prod(high - low, axis=1) / (WIDTH * HEIGHT),
            "x": low[:, 0],
            "y": low[:, 1],
            "width": (high - low)[:, 0],
            "height": (high - low)[:, 1],
            "polygon": [json.dumps([each]) for each in outline.reshape(n, -1).round(1).tolist()],
            "judged": True,
        }
    )


def open_page(browser: Browser, path: Path) -> dict[str, float]:
    """Open the page in a new process; times in ms from the start of loading, memory in bytes."""
    context = browser.new_context(viewport={"width": 1366, "height": 900})
    page = context.new_page()
    session = browser.new_browser_cdp_session()
    before = {each["id"] for each in session.send("SystemInfo.getProcessInfo")["processInfo"]}
    page.goto(path.as_uri(), wait_until="commit")
    page.locator(".card").first.click()
    page.locator("#large-name").wait_for()
    measured = {"clicked": page.evaluate("performance.now()")}
    page.wait_for_load_state("load")
    while not page.evaluate(DRAWN):
        page.wait_for_timeout(20)
    measured |= page.evaluate(MEASURE)
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    measured["memory"] = max(
        psutil.Process(each["id"]).memory_full_info().uss
        for each in processes
        if each["type"] == "renderer" or each["id"] not in before
    )
    context.close()
    return measured


def measure(path: Path, repeats: int) -> dict[str, float] | None:
    """Medians over several openings; None without Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return None
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=FLAGS)
        runs = [open_page(browser, path) for _ in range(repeats)]
        browser.close()
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def main(args: Any) -> None:
    section = Section(args, __file__)
    images, objects, distinct = (60, 600, 12) if args.smoke else (5000, 50_000, 200)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        save_photos(folder, images, distinct)
        recipe = Recipe(backbone="colour", superpixels=60, side=160)
        masks = MaskOptions(classes=CLASSES)
        data = folder / "data.zarr"
        ingest(folder / "images", folder / "masks", data, recipe=recipe, masks_as=masks)
        dataset = open_dataset(data)
        model = GPGC(rounds=0).fit(dataset)
        model.review(dataset)
        model.reviewed_objects_ = make_objects(dataset["image_name"].values.tolist(), objects)
        taken, summary = seconds(lambda: write_report(dataset, model, folder / "report.html"))
        opened = measure(folder / "report.html", args.repeats)
    rows = [("file", f"{summary.bytes / 1e6:.1f} MB"), ("written in", f"{taken:.0f} s")]
    if opened:
        rows += [
            ("list and controls are ready after", f"{opened['ready'] / 1e3:.2f} s"),
            ("first picture is drawn after", f"{opened['drawn'] / 1e3:.2f} s"),
            ("a click on the first card has enlarged it after", f"{opened['clicked'] / 1e3:.2f} s"),
            ("all pictures are loaded after", f"{opened['loaded'] / 1e3:.2f} s"),
            ("next suspicious object", f"{opened['step']:.0f} ms"),
            ("filter by kind", f"{opened['filter']:.0f} ms"),
            ("memory of the page", f"{opened['memory'] / 1e6:.0f} MB"),
        ]
    section.add(f"{images:,} images of {len(CLASSES)} classes and {objects:,} objects:")
    section.table(["report", ""], rows)
    section.finish()


if __name__ == "__main__":
    main(parser(__doc__).parse_args())
