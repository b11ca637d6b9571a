"""The report, as data and as a page in a real browser."""

from __future__ import annotations

import base64
import io
import json
import re

import numpy as np
import pytest
from PIL import Image

from gpgc_dask import GP, GPGC, open_dataset
from gpgc_dask.imaging.painting import paint_image
from gpgc_dask.models.review import count_confusions, rank
from gpgc_dask.pipelines.ingest import MaskOptions, ingest
from gpgc_dask.results.charts import bars, histogram, line
from gpgc_dask.results.colours import class_colours
from gpgc_dask.results.pictures import thumbnail_side
from gpgc_dask.results.ranking import count_bad, is_suspect
from gpgc_dask.results.report import page as report_page
from gpgc_dask.results.report import write_report
from tests.support.browser import Page
from tests.support.coco_files import write_coco
from tests.support.images import draw, save_pair, save_pairs
from tests.support.ingesting import QUICK

pytestmark = pytest.mark.newest

HOSTILE = "<img src=x onerror=alert(1)>"
BREAKOUT = "</script><script>alert(2)</script>&\"'".replace("/", "∕")
CORRUPTED = ("photo_004.jpg", "photo_011.jpg")


def invert_mask(folder, name):
    """Mark all but the object."""
    path = folder / f"masks/{name}".replace(".jpg", ".png")
    Image.fromarray(255 - np.asarray(Image.open(path))).save(path)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """(folder, dataset, model) of 16 images: two corrupted, one empty, two with hostile names."""
    folder = tmp_path_factory.mktemp("report")
    save_pairs(folder, 13)
    for name in CORRUPTED:
        invert_mask(folder, name)
    save_pair(folder, HOSTILE, 20)
    save_pair(folder, BREAKOUT, 21)
    save_pair(folder, "sub/empty", 22)
    empty = folder / "masks/sub/empty.png"
    Image.fromarray(np.zeros_like(np.asarray(Image.open(empty)))).save(empty)
    ingest(folder / "images", folder / "masks", folder / "data.zarr", recipe=QUICK)
    dataset = open_dataset(folder / "data.zarr")
    return folder, dataset, GPGC().fit(dataset)


@pytest.fixture(scope="module")
def report(job):
    folder, dataset, model = job
    return write_report(dataset, model, folder / "report.html", title="T & <b>itle</b>")


def embedded(path, name):
    """A JSON document that a page carries."""
    found = re.search(
        rf'<script type="application/json" id="{name}">(.*?)</script>', path.read_text(), re.DOTALL
    )
    return json.loads(found.group(1))


def embedded_images(path):
    """The images of a page as dicts; it carries them as columns."""
    columns = embedded(path, "data")["images"]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def test_its_text(job, report):
    folder, dataset, model = job
    ranking = rank(model.review(dataset))
    data = embedded_images(folder / "report.html")
    assert [one["image"] for one in data] == ranking["image"].tolist()
    assert {one["image"] for one in data[:3]} == {*CORRUPTED, "sub/empty.jpg"}
    assert report.images == 16
    assert report.suspect == 3
    assert report.bad is None
    assert [one["suspect"] for one in data] == [1] * 3 + [0] * 13
    assert report.gone == 0
    assert report.bytes == (folder / "report.html").stat().st_size
    assert data[0]["quality"] == pytest.approx(ranking["quality"][0], abs=1e-5)


def test_pictures_show_photo_mask_and_prediction(job, report):
    """Decoded, a picture's labels are the mask and the leave-image-out prediction."""
    folder, dataset, model = job
    values = np.asarray(model.leave_group_out(dataset)) > 0
    names = dataset["image_name"].values.tolist()
    data = embedded_images(folder / "report.html")
    packed = embedded(folder / "report.html", "pictures-0")
    for one, (width, height, photo, labels) in zip(data, packed, strict=True):
        path = folder / "masks" / one["image"].replace(".jpg", ".png")
        mask = np.asarray(Image.open(path)) > 0
        assert mask.shape == (height, width)
        found = shown_labels(labels)
        np.testing.assert_array_equal(found[..., 0], mask)
        predicted = paint_image(dataset, values, names.index(one["image"]))
        np.testing.assert_array_equal(found[..., 1], predicted)
        shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(photo)))).astype(float)
        original = np.asarray(Image.open(folder / "images" / one["image"])).astype(float)
        assert np.abs(shown - original).mean() < 12


def test_names_are_text(report, job):
    folder, *_ = job
    text = (folder / "report.html").read_text()
    assert HOSTILE not in text
    assert BREAKOUT not in text
    assert "<b>itle</b>" not in text
    assert "T &amp; &lt;b&gt;itle&lt;/b&gt;" in text


def test_it_asks_for_nothing(report, job):
    text = (job[0] / "report.html").read_text()
    assert "http:" not in text
    assert "https:" not in text
    assert "default-src 'none'" in text
    assert {*re.findall(r'<link [^>]*href="([^"]*)"', text)} == {"data:,"}


def test_photos_that_are_gone(job, tmp_path):
    folder = save_pairs(tmp_path, 12)[0].parent
    ingest(folder / "images", folder / "masks", tmp_path / "data.zarr", recipe=QUICK)
    dataset = open_dataset(tmp_path / "data.zarr")
    model = GPGC().fit(dataset)
    (folder / "images/photo_003.jpg").unlink()
    Image.fromarray(draw(1, 50, 50)[0]).save(folder / "images/photo_005.jpg")  # another size
    (folder / "masks/photo_007.png").unlink()
    assert write_report(dataset, model, tmp_path / "r.html").gone == 2
    packed = embedded(tmp_path / "r.html", "pictures-0")
    assert all(width == 80 and height == 60 for width, height, *_ in packed)


def test_masks_of_a_coco_file(tmp_path):
    images, masks = save_pairs(tmp_path, 12)
    write_coco(images, masks, tmp_path / "all.json")
    horses = MaskOptions(format="coco", categories=["horse"])
    ingest(images, tmp_path / "all.json", tmp_path / "data.zarr", recipe=QUICK, masks_as=horses)
    dataset = open_dataset(tmp_path / "data.zarr")
    model = GPGC().fit(dataset)
    write_report(dataset, model, tmp_path / "r.html")
    data = embedded_images(tmp_path / "r.html")
    for one, (*_, labels) in zip(data, embedded(tmp_path / "r.html", "pictures-0"), strict=True):
        mask = np.asarray(Image.open(masks / one["image"].replace(".jpg", ".png"))) > 0
        np.testing.assert_array_equal(shown_labels(labels)[..., 0], mask)
    (tmp_path / "all.json").unlink()  # superpixels stand in for masks that are gone
    write_report(dataset, model, tmp_path / "r.html")
    *_, labels = embedded(tmp_path / "r.html", "pictures-0")[0]
    assert shown_labels(labels)[..., 0].any()


def test_a_large_turned_photo(tmp_path):
    """Scaled down and upright, mask and prediction with it."""
    images, masks = save_pairs(tmp_path, 12, height=300, width=700)
    turned = images / "photo_004.jpg"
    tags = Image.Exif()
    tags[0x0112] = 6
    Image.open(turned).save(turned, exif=tags)
    ingest(images, masks, tmp_path / "data.zarr", recipe=QUICK)
    dataset = open_dataset(tmp_path / "data.zarr")
    assert write_report(dataset, GPGC().fit(dataset), tmp_path / "r.html").gone == 0
    names = [one["image"] for one in embedded_images(tmp_path / "r.html")]
    packed = embedded(tmp_path / "r.html", "pictures-0")
    for name, (width, height, photo, labels) in zip(names, packed, strict=True):
        assert (width, height) == ((137, 320) if name == "photo_004.jpg" else (320, 137))
        assert shown_labels(labels).shape == (height, width, 3)
        assert Image.open(io.BytesIO(base64.b64decode(photo))).size == (width, height)
        # The disc is reddish, so the mask lies where the photo is.
        pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(photo)))).astype(int)
        red = pixels[..., 0] > pixels[..., 1] + 20
        inside = shown_labels(labels)[..., 0] == 1
        assert np.mean(red == inside) > 0.95


def shown_labels(base64_png):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(base64_png))))


def test_masks_that_have_changed(tmp_path):
    images, masks = save_pairs(tmp_path, 12)
    ingest(images, masks, tmp_path / "data.zarr", recipe=QUICK)
    dataset = open_dataset(tmp_path / "data.zarr")
    model = GPGC().fit(dataset)
    assert write_report(dataset, model, tmp_path / "r.html").changed == 0
    invert_mask(tmp_path, "photo_005.jpg")
    assert write_report(dataset, model, tmp_path / "r.html").changed == 1
    text = (tmp_path / "r.html").read_text()
    assert "1 masks have changed since ingest" in text
    data = embedded_images(tmp_path / "r.html")
    assert [one["image"] for one in data if one["flags"]] == ["photo_005.jpg"]


def test_one_noise_for_all(job, tmp_path):
    """A GP has no confidences: the page does without."""
    _, dataset, _ = job
    write_report(dataset, GP().fit(dataset), tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert 'id="chart-noise_variance"' not in text
    assert 'value="confidence"' not in text


def test_another_dataset_is_rejected(job, tmp_path):
    _, _, model = job
    ingest(*save_pairs(tmp_path, 12), tmp_path / "other.zarr", recipe=QUICK)
    with pytest.raises(ValueError, match=r"fitted on another dataset .* of 16 images"):
        write_report(open_dataset(tmp_path / "other.zarr"), model, tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_charts_escape_and_hold_odd_values():
    assert "<b>" not in bars({"<b>": 1.0, "none": 0.0}, "<i>")
    assert histogram(np.array([]), "nothing").count("<rect") == 20
    assert "0.5" in histogram(np.full(3, 0.5), "one value", logarithmic=True)
    assert "polyline" in line([1.0], [-0.5], "one point")


def test_more_images_get_smaller_pictures():
    sides = [thumbnail_side(n) for n in (0, 1, 1000, 5000, 20_000, 10**6)]
    assert sides == sorted(sides, reverse=True)
    assert sides[0] == 320
    assert sides[-1] == 80


# -- in a browser ------------------------------------------------------------------------------


@pytest.fixture
def opened(browser, job, report):
    context = browser.new_context(viewport={"width": 1366, "height": 2400})
    yield Page(context.new_page()).open(job[0] / "report.html")
    context.close()


def test_it_opens_without_errors(opened):
    opened.page.wait_for_timeout(300)
    assert opened.complaints == []
    assert opened.from_elsewhere() == []
    assert "3 of 16 masks are suspect" in opened.page.inner_text("h1")


def test_the_panels_are_drawn(opened):
    """The given mask is outlined in orange, the prediction in blue, differences in both."""
    opened.page.fill("#search", CORRUPTED[0])
    opened.page.wait_for_timeout(300)
    outlines = opened.page.evaluate(
        """() => [...document.querySelector('.card').querySelectorAll('canvas')].map(canvas => {
            const context = canvas.getContext('2d');
            const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
            let orange = 0, blue = 0;
            for (let i = 0; i < data.length; i += 4) {
                if (data[i] > 225 && data[i + 2] < 30) orange++;
                if (data[i] < 30 && data[i + 2] > 190) blue++;
            }
            return [orange > 40, blue > 40];
        })"""
    )
    assert outlines == [[True, False], [False, True], [True, True]]
    assert not opened.page.locator("#void").is_visible()


def test_hostile_names_are_shown_as_text(opened):
    opened.page.fill("#search", "onerror")
    assert opened.names() == [f"{HOSTILE}.jpg"]
    opened.page.fill("#search", "</script".replace("/", "∕"))
    assert opened.names() == [f"{BREAKOUT}.jpg"]
    opened.page.locator(".card").click()
    assert BREAKOUT in opened.page.inner_text("#large-name")
    assert opened.page.locator("main img").count() == 0
    assert opened.complaints == []


def test_sorting_and_filtering(opened, job):
    page = opened.page
    worst = opened.names()
    assert set(worst[:3]) == {*CORRUPTED, "sub/empty.jpg"}
    page.select_option("#sort", "-quality")
    assert opened.names()[-3:] == worst[:3][::-1]
    page.select_option("#sort", "image")
    assert opened.names() == sorted(worst)
    page.select_option("#sort", "confidence")
    _, _, model = job
    by_noise = model.groups_[np.argsort(-model.noise_variance_)].tolist()
    assert opened.names() == by_noise
    page.select_option("#show", "suspect")
    assert set(opened.names()) == {*CORRUPTED, "sub/empty.jpg"}
    assert page.inner_text("#count") == "3 of 16 images"
    page.select_option("#show", "flags:empty mask")
    assert opened.names() == ["sub/empty.jpg"]
    page.fill("#search", "no such name")
    assert opened.names() == []
    page.click("#reset")
    assert len(opened.names()) == 16
    assert opened.complaints == []


def test_the_threshold_moves(opened, job):
    page = opened.page
    quality = job[2].review(job[1])["quality"]
    page.fill("#threshold", "1")
    assert int(page.inner_text("#suspect-count")) == (quality < 1).sum()
    assert page.locator("#chart-quality .bar.suspect").count() == 20
    page.fill("#threshold", "0")
    assert page.inner_text("#suspect-count") == "0"
    page.select_option("#show", "suspect")
    assert opened.names() == []


def test_by_keyboard(opened):
    page = opened.page
    page.locator(".card").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("m")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator("#large").is_visible()
    third_row = page.inner_text("#large-name")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#large-name") != third_row
    page.locator("#next").focus()
    for _ in range(20):
        page.keyboard.press("Enter")
    assert "#16 of 16" in page.inner_text("#large-name")
    page.keyboard.press("ArrowLeft")
    assert "#15 of 16" in page.inner_text("#large-name")
    page.keyboard.press("Escape")
    assert not page.locator("#large").is_visible()
    assert page.evaluate("document.activeElement.className").startswith("card")
    page.select_option("#show", "marked")
    assert len(opened.names()) == 1
    with page.expect_download() as download:
        page.click("#save")
    assert download.value.path().read_text() == f"{opened.names()[0]}\n"


def test_every_picture_and_control_is_named(opened):
    page = opened.page
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('canvas, svg, button, select, input')].filter(e =>
            !(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length)
              || e.title)).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert unnamed == []


def test_several_classes(browser, tmp_path):
    """Each has its colour; the name of a class is text too."""
    save_pairs(tmp_path, 12)
    for number in range(12):
        path = tmp_path / f"masks/photo_{number:03d}.png"
        mask = np.asarray(Image.open(path)) // 255
        mask = np.where(mask & (np.arange(80) > 40), 2, mask)
        Image.fromarray(mask.astype(np.uint8)).save(path)
    classes = {0: "ground", 1: "<b>left</b>", 2: "right"}
    options = MaskOptions(classes=classes)
    images, masks = tmp_path / "images", tmp_path / "masks"
    ingest(images, masks, tmp_path / "data.zarr", recipe=QUICK, masks_as=options)
    dataset = open_dataset(tmp_path / "data.zarr")
    model = GPGC().fit(dataset)
    write_report(dataset, model, tmp_path / "r.html")
    context = browser.new_context(viewport={"width": 1366, "height": 900})
    opened = Page(context.new_page()).open(tmp_path / "r.html")
    opened.page.click("#confusion summary")
    counts = count_confusions(model, dataset)
    cells = opened.page.locator("#confusion tbody tr").all_inner_texts()
    for cell, (name, row) in zip(cells, counts.iterrows(), strict=True):
        shares = [f"{100 * count / row.sum():.0f}" for count in row]
        assert cell.split("\t") == [name, *shares, f"{row.sum():,}"]
    opened.page.click("#confusion summary")
    opened.page.wait_for_timeout(300)
    assert "<b>left</b>" in opened.page.inner_text(".legend")
    found = opened.page.evaluate(
        """colours => {
            const canvas = document.querySelector('.card canvas');
            const context = canvas.getContext('2d');
            const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
            const near = (i, colour) =>
                colour.every((value, c) => Math.abs(data[i + c] - value) < 14);
            return colours.map(colour => {
                for (let i = 0; i < data.length; i += 4) if (near(i, colour)) return true;
                return false;
            });
        }""",
        [list(colour) for colour in class_colours(4, background=0)],
    )
    assert found == [True, True, True, False]
    assert opened.complaints == []
    context.close()


def test_the_headline_counts_bad_masks(browser, reference, tmp_path):
    """With 30 images there are intervals; the threshold moves among their upper limits."""
    dataset = open_dataset(reference)
    model = GPGC().fit(dataset)
    table = model.review(dataset)
    report = write_report(dataset, model, tmp_path / "r.html")
    assert report.bad == count_bad(table)
    context = browser.new_context(viewport={"width": 1366, "height": 900})
    opened = Page(context.new_page()).open(tmp_path / "r.html")
    page, bad = opened.page, report.bad
    assert page.inner_text("h1") == (
        f"About {bad.estimate} of 30 masks ({bad.low}–{bad.high}) have a quality below 0.5"
    )
    assert int(page.inner_text("#suspect-count")) == report.suspect == is_suspect(table).sum()
    worst = rank(table).iloc[0]
    shown = (
        f"quality {worst['quality']:.2f} ({worst['quality_low']:.2f}–{worst['quality_high']:.2f})"
    )
    assert shown in page.locator(".card").first.inner_text()
    page.fill("#threshold", "1")
    assert page.inner_text("#suspect-count") == "30"
    page.fill("#threshold", "0.97")
    assert int(page.inner_text("#suspect-count")) == (table["quality_high"] <= 0.97).sum()
    page.select_option("#show", "suspect")
    assert opened.complaints == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(browser, job, report, scheme):
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True, color_scheme=scheme
    )
    opened = Page(context.new_page()).open(job[0] / "report.html")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    dark = opened.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (int(re.findall(r"\d+", dark)[0]) < 60) == (scheme == "dark")
    opened.page.locator(".card").first.tap()
    assert opened.page.locator("#large").is_visible()
    assert opened.complaints == []
    context.close()


def test_five_thousand_images_scroll(browser, job, report, tmp_path):
    """A page of 5,000 keeps a screenful of elements, wherever it is scrolled to."""
    folder, dataset, model = job
    ranking = rank(model.review(dataset))
    content = report_page.page_content("many", dataset, model, ranking)
    packed = embedded(folder / "report.html", "pictures-0")
    columns = content["data"]["images"]
    content["data"]["images"] = {
        name: [values[i % 16] for i in range(5000)] for name, values in columns.items()
    } | {"image": [f"photo_{i:05d}.jpg" for i in range(5000)]}
    path = tmp_path / "many.html"
    path.write_text(report_page.render_page(content, [packed[i % 16] for i in range(5000)]))
    context = browser.new_context(viewport={"width": 1366, "height": 900})
    opened = Page(context.new_page()).open(path)
    page = opened.page
    assert opened.names()[0] == "photo_00000.jpg"
    for share in (0.25, 0.5, 0.75, 1.0):
        page.evaluate(f"scrollTo(0, {share} * document.documentElement.scrollHeight)")
        page.wait_for_timeout(150)
        assert 3 <= page.locator(".card").count() < 60
        visible = page.locator(".card").evaluate_all(
            """cards => cards.map(card => card.getBoundingClientRect())
                .filter(box => box.top < 900 && box.bottom > 0).length"""
        )
        assert visible >= 3
    assert opened.names()[-1] == "photo_04999.jpg"
    page.select_option("#sort", "-quality")
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(150)
    assert opened.names()[0] == "photo_04999.jpg"
    page.fill("#search", "photo_0123")
    assert len(opened.names()) == 10
    assert opened.complaints == []
    context.close()
