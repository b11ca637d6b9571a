"""The review page in a real browser: verdicts, brushes, keys, several people."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from PIL import Image

from gpgc_dask import open_dataset
from gpgc_dask.imaging.painting import paint_image
from gpgc_dask.review.refit import make_refit
from gpgc_dask.review.state import Review
from tests.review.conftest import HOSTILE
from tests.support.browser import Page
from tests.support.review import read_log, request, serving, verdict

pytestmark = pytest.mark.newest


class ReviewPage(Page):
    """A page of a review, with what it shows."""

    def start(self, server, name="anna"):
        self.page.goto(server.url)
        self.page.wait_for_selector("#ask[open]")
        self.page.fill("#name", name)
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("html[data-ready][data-shown]")
        return self

    @property
    def image(self) -> int:
        return int(self.page.get_attribute("html", "data-shown"))

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def wait_until(self, expression):
        """Wait until an expression is true. Playwright's own way needs eval."""
        for _ in range(1200):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(25)
        raise AssertionError(expression)

    def press_and_move(self, key):
        """Press a key that leads to another image; the number of that image."""
        before = self.image
        self.press(key)
        self.wait_until(f"document.documentElement.dataset.shown !== '{before}'")
        return self.image

    def wait_saved(self, place, n):
        for _ in range(200):
            if len(log := read_log(place)) >= n:
                return log
            self.page.wait_for_timeout(25)
        raise AssertionError(f"{len(log)} verdicts, not {n}")

    def point(self, x, y):
        """Where a point of the picture, as shares of its sides, is on the screen."""
        box = self.page.locator(".large canvas").bounding_box()
        scale = min(box["width"] / 80, box["height"] / 60)
        left = box["x"] + (box["width"] - 80 * scale) / 2
        top = box["y"] + (box["height"] - 60 * scale) / 2
        return left + x * scale, top + y * scale


def open_page(browser, **options):
    options = {"viewport": {"width": 1280, "height": 820}} | options
    return ReviewPage(browser.new_context(**options).new_page())


@pytest.fixture
def opened(browser, server):
    opened = open_page(browser).start(server)
    yield opened
    assert opened.complaints == []
    own = f"http://127.0.0.1:{server.port}/"
    assert [url for url in opened.requests if not url.startswith((own, "blob:", "data:"))] == []
    assert not [url for url in opened.requests[1:] if server.token in url]
    opened.page.context.close()


def mask_of(reviewed, review, image):
    path = reviewed / "masks" / review.basis.names[image].replace(".jpg", ".png")
    return (np.asarray(Image.open(path)) > 0).astype(np.uint8)


def test_verdicts_by_keys(opened, review, place):
    order = review.basis.orders["quality"]
    first = opened.image
    assert first == order[0]
    second = opened.press_and_move("c")
    third = opened.press_and_move("x")
    fourth = opened.press_and_move("m")
    assert [first, second, third, fourth] == order[:4]
    log = opened.wait_saved(place, 3)
    assert [(each.image, each.kind, each.by) for each in log] == [
        (review.basis.names[first], "confirmed", "anna"),
        (review.basis.names[second], "rejected", "anna"),
        (review.basis.names[third], "corrected", "anna"),
    ]
    predicted = paint_image(review.basis.dataset, review.basis.predicted, third)
    np.testing.assert_array_equal(log[2].correction.mask, predicted)
    fifth = opened.press_and_move("n")  # skipped: no verdict
    assert opened.press_and_move("p") == fourth
    assert opened.press_and_move("p") == third
    opened.page.wait_for_selector("#verdict[data-verdict=corrected]")
    assert opened.page.inner_text("#verdict") == "corrected by anna"
    assert opened.page.inner_text(".large figcaption") == "corrected mask"
    opened.press_and_move("n")
    assert opened.press_and_move("n") == fifth
    opened.wait_until("document.getElementById('seen').textContent === '3 of 34 looked at'")
    assert opened.page.inner_text("#kinds") == "1 confirmed, 1 corrected, 1 rejected"
    assert re.search(r"Of the next 4 masks about \d", opened.page.inner_text("#gain"))
    assert re.search(r"About \d+ \(\d+–\d+\) of the 31 masks", opened.page.inner_text("#left"))


def test_undo_withdraws(opened, review, reviewed, place):
    first = opened.image
    opened.press_and_move("m")
    opened.press("u")
    opened.wait_until(f"document.documentElement.dataset.shown === '{first}'")
    opened.page.wait_for_selector("#verdict", state="hidden")
    assert [each.kind for each in opened.wait_saved(place, 2)] == ["corrected", "withdrawn"]
    assert open_dataset(place)["verdict"].values[first] == ""
    assert opened.page.inner_text(".large figcaption") == "given mask"
    opened.press_and_move("x")
    assert opened.wait_saved(place, 3)[-1].kind == "rejected"
    opened.press("u")
    opened.wait_saved(place, 4)
    opened.press("u")
    opened.page.wait_for_timeout(100)
    assert "no verdict of yours" in opened.page.inner_text("#line")


def test_a_region_only(opened, review, reviewed, place):
    """The highlighted region is replaced; everything else is the given mask."""
    image = opened.image
    given = mask_of(reviewed, review, image)
    predicted = paint_image(review.basis.dataset, review.basis.predicted, image)
    titles = opened.page.locator("#regions button").all_inner_texts()
    assert len(titles) >= 2
    opened.press(".")
    opened.page.wait_for_selector("#regions button[data-region='1'][aria-current=true]")
    opened.press("r")
    mask = opened.wait_saved(place, 1)[0].correction.mask
    changed = mask != given
    share = float(titles[1].split("·")[1].split("%")[0]) / 100
    assert changed.mean() == pytest.approx(share, rel=0.02)
    np.testing.assert_array_equal(mask[changed], predicted[changed])
    assert (mask != predicted).any()
    assert opened.image == image  # it stays, for further regions
    assert "r takes the next region, n shows the next image" in opened.page.inner_text("#line")
    opened.press("r")
    second = opened.wait_saved(place, 2)[1].correction.mask
    assert (second != predicted).sum() < (mask != predicted).sum()


def test_the_superpixel_brush(opened, review, reviewed, place):
    image = opened.image
    given = mask_of(reviewed, review, image)
    (segments,) = [review._photos[review.basis.key]._segments(image)]
    y, x = np.argwhere(given == 1)[0]
    owner = segments[(2 * y + 1) * segments.shape[0] // 120, (2 * x + 1) * segments.shape[1] // 160]
    rows = (2 * np.arange(60) + 1) * segments.shape[0] // 120
    columns = (2 * np.arange(80) + 1) * segments.shape[1] // 160
    inside = segments[rows[:, None], columns] == owner
    opened.press("b", "e", *["j"] * 20)
    assert opened.page.inner_text("#size-value") == "1"
    opened.page.mouse.click(*opened.point(x + 0.5, y + 0.5))
    opened.page.wait_for_selector("#unsaved:visible")
    opened.press("c", "n")  # nothing happens while an edit is not saved
    assert opened.image == image
    assert "not saved" in opened.page.inner_text("#line")
    opened.press_and_move("Enter")
    (only,) = opened.wait_saved(place, 1)
    np.testing.assert_array_equal(only.correction.mask, np.where(inside, 0, given))
    assert 10 < inside.sum() < 1000


def test_the_fine_brush_and_its_edits(opened, review, reviewed, place):
    image = opened.image
    given = mask_of(reviewed, review, image)
    y, x = np.argwhere(given == 0)[30]
    opened.press("f", "2", *["j"] * 20)
    opened.page.mouse.move(*opened.point(x + 0.5, y + 0.5))
    opened.page.mouse.down()
    opened.page.mouse.up()
    opened.page.wait_for_selector("#unsaved:visible")
    opened.press("ArrowRight", "ArrowRight", "Space")  # by keyboard
    opened.press("z", "z")
    opened.page.wait_for_selector("#unsaved", state="hidden")
    opened.press("y", "Control+y")
    opened.page.wait_for_selector("#unsaved:visible")
    opened.press("Control+z", "y", "Enter")
    (only,) = opened.wait_saved(place, 1)
    changed = np.argwhere(only.correction.mask != given)
    assert only.correction.mask[y, x] == 1
    assert 1 <= len(changed) <= 2
    assert (changed[:, 0] == y).all()
    assert open_dataset(place)["verdict"].values[image] == "corrected"


def test_discarded_edits(opened, place):
    image = opened.image
    opened.press("b")
    opened.page.mouse.click(*opened.point(40, 30))
    opened.press("e")
    opened.page.mouse.click(*opened.point(20, 20))
    opened.page.wait_for_selector("#unsaved:visible")
    opened.press("Escape", "Escape")
    opened.page.wait_for_selector("#unsaved", state="hidden")
    assert opened.press_and_move("n") != image
    assert read_log(place) == []


def test_zoom_views_and_help(opened):
    def large():
        picture = opened.page.locator(".large canvas").screenshot()
        return np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)

    opened.wait_until("document.getElementById('seen').textContent !== ''")
    opened.page.wait_for_timeout(300)
    pictures = [large()]
    captions = []
    for key in ("+", "ArrowRight", "Home", "h", "h", "w", "w", "w"):
        opened.press(key)
        captions.append(opened.page.inner_text(".large figcaption"))
        opened.page.wait_for_timeout(80)
        pictures.append(large())
    start, zoomed, moved, home, photo, back, model, difference, again = pictures
    assert captions[2:5] == ["given mask", "photo, masks hidden", "given mask"]
    for same in (home, back, again):
        assert np.abs(same - start).max() <= 2
    for other in (zoomed, moved, photo, model, difference):
        assert np.abs(other - start).max() > 50
    opened.press("?")
    opened.page.wait_for_selector("#help[open]")
    text = opened.page.inner_text("#help")
    for key in ("confirm", "reject", "superpixel brush", "fine brush", "previous region"):
        assert key in text
    opened.press("Escape")
    assert not opened.page.locator("#help").is_visible()
    opened.press("Tab")
    unnamed = opened.page.evaluate(
        """() => [...document.querySelectorAll('canvas, button, select, input')].filter(e =>
            !(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length)
              || e.title)).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert unnamed == []


def test_names_are_text(opened, review):
    names = [opened.page.inner_text("#image-name")]
    for _ in range(3):
        opened.press_and_move("n")
        names.append(opened.page.inner_text("#image-name"))
    assert any(name.startswith(HOSTILE) for name in names)
    assert opened.page.locator("#image-name img").count() == 0


def test_by_objects(browser, reviewed, place):
    review = Review(place, reviewed / "model.zarr", order="objects")
    with serving(review) as server:
        opened = open_page(browser).start(server)
        image = review.basis.orders["objects"][0]
        assert opened.image == image
        first = opened.page.locator("#regions button").first.inner_text()
        worst = review.basis.objects[image][0]
        assert f"score {worst['score']:.2f}" in first
        given = mask_of(reviewed, review, image)
        predicted = paint_image(review.basis.dataset, review.basis.predicted, image)
        opened.press("r")
        mask = opened.wait_saved(place, 1)[0].correction.mask
        changed = mask != given
        np.testing.assert_array_equal(mask[changed], predicted[changed])
        assert 0.3 * worst["area"] < changed.mean() < 3 * worst["area"]
        opened.page.select_option("#order", "quality")
        wanted = next(n for n in review.basis.orders["quality"] if n != image)
        opened.wait_until(f"document.documentElement.dataset.shown === '{wanted}'")
        assert opened.complaints == []
        opened.page.context.close()


def test_two_people(browser, server, review, place):
    anna, ben = open_page(browser).start(server), open_page(browser).start(server, "ben")
    assert anna.image != ben.image
    seen = {anna.image, ben.image}
    for _ in range(4):
        for each in (anna, ben):
            image = each.press_and_move("c")
            assert image not in seen
            seen.add(image)
    log = anna.wait_saved(place, 8)
    assert {each.by for each in log} == {"anna", "ben"}
    assert len({each.image for each in log}) == 8
    request(server.port, "/api/verdict", verdict(anna.image, "rejected", name="carl"))
    anna.page.wait_for_selector("#verdict[data-verdict=rejected]", timeout=15_000)
    assert anna.page.inner_text("#verdict") == "rejected by carl"
    assert "carl has just decided: rejected" in anna.page.inner_text("#line")
    ben.wait_until("document.getElementById('people').textContent.includes('anna')")
    for each in (anna, ben):
        assert each.complaints == []
        each.page.context.close()


def test_a_server_that_comes_back(browser, reviewed, place):
    """Verdicts without an answer are kept by the browser, and sent again under their ids."""
    with serving(Review(place, reviewed / "model.zarr")) as server:
        opened = open_page(browser).start(server)
        opened.page.wait_for_timeout(500)  # the next pictures are loaded
        first = opened.image
        port = server.port
    second = opened.press_and_move("c")
    opened.press_and_move("x")
    opened.wait_until(
        "document.getElementById('problem').textContent.includes('2 verdicts are kept in this')"
    )
    assert read_log(place) == []
    opened.page.close()  # even if the page is closed meanwhile
    with serving(Review(place, reviewed / "model.zarr"), port=port) as server:
        page = ReviewPage(opened.page.context.new_page())
        page.page.goto(server.url)
        log = page.wait_saved(place, 2)
        names = server.review.basis.names
        expected = [(names[first], "confirmed"), (names[second], "rejected")]
        assert [(each.image, each.kind) for each in log] == expected
        page.page.wait_for_timeout(300)
        assert page.complaints == []
        opened.page.context.close()
    assert len(read_log(place)) == 2


def test_a_wrong_token(browser, server):
    opened = open_page(browser)
    opened.page.goto(f"http://127.0.0.1:{server.port}/")
    opened.page.wait_for_selector("#problem:visible")
    assert "open the address that gpgc review has printed" in opened.page.inner_text("#problem")
    opened.page.goto(server.url)
    opened.page.wait_for_selector("#ask[open]")
    assert opened.page.url == f"http://127.0.0.1:{server.port}/"
    opened.page.context.close()


def test_fit_again_in_the_page(browser, reviewed, place, tmp_path):
    model = reviewed / "model.zarr"
    review = Review(place, model, refit=make_refit(place, model, folder=tmp_path))
    with serving(review) as server:
        opened = open_page(browser).start(server)
        before = review.basis.key
        first = opened.image
        second = opened.press_and_move("m")
        opened.wait_saved(place, 1)
        opened.page.click("#fit")
        opened.page.wait_for_selector("#fit[data-state=running]")
        opened.press_and_move("c")  # the page continues
        opened.page.wait_for_selector("#fit[data-state=finished]", timeout=120_000)
        opened.wait_until("document.getElementById('line').textContent.includes('fitted again')")
        assert review.basis.key != before
        assert {entry.image for entry in review.ledger.current().values()} == {first, second}
        opened.press_and_move("x")
        assert opened.wait_saved(place, 3)[-1].kind == "rejected"
        assert opened.complaints == []
        opened.page.context.close()


def test_small_windows(browser, server):
    """All of the page can be reached, also the line that reports what has happened."""
    opened = open_page(browser, viewport={"width": 800, "height": 500}).start(server)
    opened.press("o")
    line = opened.page.locator("#line")
    assert line.inner_text() == "The order is now: lowest agreement first."
    opened.page.mouse.move(20, 20)
    opened.page.mouse.wheel(0, 2000)
    opened.wait_until(
        "document.getElementById('line').getBoundingClientRect().bottom <= innerHeight"
    )
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 800
    opened.page.context.close()


def test_decisions_of_a_phone_are_in_view(browser, server):
    opened = open_page(browser, viewport={"width": 390, "height": 844}).start(server)
    for key in "cxmn":
        box = opened.page.locator(f"button[data-key={key}]").bounding_box()
        assert 0 < box["y"] < box["y"] + box["height"] <= 844
    opened.page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(browser, server, scheme):
    opened = open_page(
        browser,
        viewport={"width": 390, "height": 844},
        is_mobile=True,
        has_touch=True,
        color_scheme=scheme,
    ).start(server)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    dark = opened.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (int(re.findall(r"\d+", dark)[0]) < 60) == (scheme == "dark")
    before = opened.image
    opened.page.locator("button[data-key=c]").tap()
    opened.wait_until(f"document.documentElement.dataset.shown !== '{before}'")
    assert opened.complaints == []
    opened.page.context.close()
