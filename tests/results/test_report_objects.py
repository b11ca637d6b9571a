"""Objects, classes and annotators in the report, as data and in a real browser."""

from __future__ import annotations

import csv
import io
import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from gpgc_dask import GPGC, open_dataset
from gpgc_dask.models.review import count_confusions, predict_and_review, rank
from gpgc_dask.pipelines.ingest import MaskOptions, ingest
from gpgc_dask.results.ranking import confusion
from gpgc_dask.results.report import page as report_page
from gpgc_dask.results.report import write_report
from gpgc_dask.results.report.classes import class_table, image_confusions
from gpgc_dask.results.report.objects import GRID, pack_objects
from gpgc_dask.results.report.people import people_rows
from tests.support.browser import Page
from tests.support.images import save_pairs
from tests.support.ingesting import QUICK

pytestmark = pytest.mark.newest

CLASSES = ["ground", "left", "right"]
SQUARE = [10, 10, 40, 10, 40, 30, 10, 30]
HOSTILE = "</script><b>Eve</b>"
PEOPLE = pd.DataFrame(
    {
        "annotator": [HOSTILE, "Ben"],
        "masks": [6, 6],
        "suspect": [3, 0],
        "quality": [0.4, 0.75],
        "noise_variance": [2.0, np.nan],
        "quality_low": [0.3, np.nan],
        "quality_high": [0.5, np.nan],
        "trend": [np.nan, np.nan],
    }
)


def make_objects(images):
    """Four objects in each image, in turn: given, missing, spurious, wrong class; one unjudged."""
    kinds = ["given", "missing", "spurious", "wrong class"] * len(images)
    n = len(kinds)
    table = pd.DataFrame(
        {
            "rank": np.arange(1, n + 1),
            "annotation": [str(100 + i) if kind == "given" else "" for i, kind in enumerate(kinds)],
            "image": np.tile(images, 4)[:n],
            "class": ["left", "right", "left", "right"] * len(images),
            "given_class": ["left", "ground", "left", "left"] * len(images),
            "kind": kinds,
            "score": np.linspace(0.01, 0.99, n),
            "area": 0.125,
            "x": 10,
            "y": 10,
            "width": 30,
            "height": 20,
            "polygon": json.dumps([SQUARE]),
            "judged": True,
        }
    )
    table.loc[3, ["score", "judged"]] = np.nan, False
    return table


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """(folder, dataset, model) of 12 images of three classes, with void at the bottom."""
    folder = tmp_path_factory.mktemp("objects")
    images, masks = save_pairs(folder, 12)
    for number, path in enumerate(sorted(masks.glob("*.png"))):
        mask = np.asarray(Image.open(path)) // 255
        mask = np.where(mask & (np.arange(80) > 40), 2, mask)
        mask = np.where(mask, 3 - mask, mask) if number == 4 else mask  # left and right swapped
        mask[-6:] = 255
        Image.fromarray(mask.astype(np.uint8)).save(path)
    options = MaskOptions(classes=dict(enumerate(CLASSES)), void=[255])
    ingest(images, masks, folder / "data.zarr", recipe=QUICK, masks_as=options)
    dataset = open_dataset(folder / "data.zarr")
    model = GPGC().fit(dataset)
    table = model.review(dataset)
    model.review_ = table.assign(annotator=[HOSTILE, "Ben"] * 6)
    model.reviewed_objects_ = make_objects(dataset["image_name"].values.tolist())
    return folder, dataset, model


@pytest.fixture(scope="module")
def path(job):
    folder, dataset, model = job
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_page, "find_people", lambda review: PEOPLE)
        write_report(dataset, model, folder / "report.html")
    return folder / "report.html"


@pytest.fixture
def opened(browser, path):
    context = browser.new_context(viewport={"width": 1366, "height": 2400})
    yield Page(context.new_page()).open(path)
    context.close()


# -- as data -----------------------------------------------------------------------------------


def test_objects_are_packed_by_rank():
    images = np.array(["b.jpg", "a.jpg"])
    table = make_objects(["a.jpg", "b.jpg", "not in the page.jpg"]).sample(frac=1, random_state=0)
    packed = pack_objects(table, images, np.array([100, 50]), CLASSES)
    columns = packed.columns
    assert columns["rank"] == [1, 2, 4, 5, 7, 8, 10, 11]
    assert columns["image"] == [1, 0, 1, 0, 1, 0, 1, 0]
    assert columns["score"][2] is None
    assert [packed.classes[number] for number in columns["given"]][:2] == ["left", "ground"]
    assert columns["annotation"][:2] == ["100", ""]
    assert [len(outlines) for outlines in packed.outlines] == [4, 4]
    # The longer side of a photo has GRID steps.
    assert packed.outlines[0][0] == [[x * GRID // 100 for x in SQUARE]]
    assert packed.outlines[1][0] == [[x * GRID // 50 for x in SQUARE]]
    assert pack_objects(None, images, np.array([100, 50]), CLASSES) is None
    assert pack_objects(table.head(0), images, np.array([100, 50]), CLASSES) is None


def test_outlines_are_simplified():
    """Stairs along pixels become few points, and specks are left out."""
    angle = np.linspace(0, 2 * np.pi, 2000, endpoint=False)
    circle = np.stack([250 + 150 * np.cos(angle), 250 + 150 * np.sin(angle)], 1).round()
    table = make_objects(["a.jpg"]).head(1)
    speck = [5, 5, 8, 5, 8, 8]
    table["polygon"] = json.dumps([speck, circle.ravel().tolist()])
    packed = pack_objects(table, np.array(["a.jpg"]), np.array([500]), CLASSES)
    ((ring,),) = packed.outlines[0]
    assert 16 <= len(ring) <= 100
    radius = np.hypot(*(np.array(ring).reshape(-1, 2) - 250).T)
    assert np.all(np.abs(radius - 150) < 3)
    table["polygon"] = ""
    packed = pack_objects(table, np.array(["a.jpg"]), np.array([100]), CLASSES)
    assert packed.outlines == [[[]]]


def test_confusions_of_images_add_up(job):
    _, dataset, model = job
    predicted, _ = predict_and_review(model, dataset)
    place = np.arange(12)[::-1].copy()
    columns = image_confusions(dataset, predicted, place)
    table = count_confusions(model, dataset).to_numpy()
    image, label = dataset["image"].values, dataset["label"].values
    used = dataset["weight"].values > 0
    area = dataset["pixels"].values * used
    for where, pair, share in zip(*columns.values(), strict=True):
        rows = (image == np.flatnonzero(place == where)[0]) & used
        given, other = divmod(pair, 3)
        assert given != other
        chosen = rows & (label == given) & (predicted == other)
        expected = 1000 * area[chosen].sum() / area[rows].sum()
        assert share == pytest.approx(max(expected, 1), abs=0.51)
    # Every cell of the table leads to an image.
    cells = {3 * given + other for given, other in np.argwhere(table) if given != other}
    assert set(columns["pair"]) == cells
    assert columns["image"] == sorted(columns["image"])


def test_quality_of_each_class(job):
    _, dataset, model = job
    rows = class_table(rank(model.review_), confusion(model, dataset))
    counts = count_confusions(model, dataset).to_numpy()
    assert [row["name"] for row in rows] == CLASSES
    for number, row in enumerate(rows):
        both = counts[number, number]
        union = counts[number].sum() + counts[:, number].sum() - both
        assert row["iou"] == pytest.approx(both / union)
        values = model.review_[f"iou:{row['name']}"].dropna()
        assert row["mean_iou"] == pytest.approx(values.mean())
        assert row["images"] == len(values)
    assert sum(row["share"] for row in rows) == pytest.approx(1)


def test_people_as_text():
    table = people_rows(PEOPLE)
    assert [title for title, _ in table["columns"]] == [
        "masks", "suspect", "quality", "noise variance",
    ]  # fmt: skip
    assert table["rows"] == [
        (HOSTILE, ["6", "3 (50 %)", "0.40 (0.30–0.50)", "2"]),
        ("Ben", ["6", "0 (0 %)", "0.75", "–"]),
    ]
    assert people_rows(None) is None


def test_a_report_without_objects_has_no_controls_for_them(job, tmp_path):
    _, dataset, model = job
    review = model.review_.assign(group=model.review_["image"])  # each image by itself
    content = report_page.page_content("none", dataset, model, rank(review))
    text = report_page.render_page(content, [None] * 12)
    for name in ("kind", "score", "save-objects", "people", "group"):
        assert f'id="{name}"' not in text
    assert 'id="class"' in text


# -- in a browser ------------------------------------------------------------------------------


def test_it_opens_without_errors(opened):
    opened.page.wait_for_timeout(300)
    assert opened.complaints == []
    assert opened.from_elsewhere() == []
    assert opened.page.inner_text("#object-count") == "23"


def test_stepping_by_keyboard(opened, job):
    """n and p go through the suspicious objects, worst first; Enter marks."""
    page, table = opened.page, job[2].reviewed_objects_
    page.keyboard.press("n")
    line = page.locator("#large-object")
    assert line.inner_text().startswith("Object 1 of 23 · left · given · score 0.01")
    assert table["image"][0] in page.inner_text("#large-name")
    page.keyboard.press("n")
    assert "Object 2 of 23 · right · missing" in line.inner_text()
    page.keyboard.press("Enter")
    assert line.inner_text().endswith("marked")
    page.keyboard.press("ArrowDown")
    assert "Object 3 of 23 · left · spurious" in line.inner_text()
    assert table["image"][2] in page.inner_text("#large-name")
    page.keyboard.press("n")  # the fourth is too small to judge
    assert "Object 4 of 23 · left · given" in line.inner_text()
    page.keyboard.press("Enter")
    for _ in range(6):
        page.keyboard.press("p")
    assert "Object 1 of 23" in line.inner_text()
    current = page.locator("#large .outline.current")
    current.first.wait_for()
    assert current.count() == 4  # in every panel
    page.keyboard.press("Escape")
    assert not page.locator("#large").is_visible()
    with page.expect_download() as download:
        page.click("#save-objects")
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert [(row["rank"], row["annotation"], row["kind"]) for row in rows] == [
        ("2", "", "missing"), ("5", "104", "given"),
    ]  # fmt: skip
    assert opened.complaints == []


def test_outlines_are_where_the_objects_are(opened):
    page = opened.page
    page.keyboard.press("n")
    page.locator("#large .outline.current").first.wait_for()
    boxes = """() => {
        const box = (element) => element.getBoundingClientRect();
        const canvas = box(document.querySelector('#large canvas'));
        const line = box(document.querySelector('#large .outline.current .line'));
        return [(line.left - canvas.left) / canvas.width, (line.top - canvas.top) / canvas.height,
            (line.right - canvas.left) / canvas.width, (line.bottom - canvas.top) / canvas.height];
    }"""
    whole = page.evaluate(boxes)
    np.testing.assert_allclose(whole, [10 / 80, 10 / 60, 40 / 80, 30 / 60], atol=0.02)
    page.keyboard.press("z")
    page.locator("#large canvas[style*=scale]").first.wait_for()
    page.locator("#large .outline.current").first.wait_for()
    np.testing.assert_allclose(page.evaluate(boxes), whole, atol=0.02)  # of the larger picture
    assert opened.complaints == []


def test_an_object_is_chosen_from_the_list(opened):
    page = opened.page
    page.locator(".card").first.click()
    assert not page.locator("#large-object").is_visible()
    buttons = page.locator(".objects button")
    assert buttons.count() == 4
    buttons.nth(1).focus()
    page.keyboard.press("Enter")
    assert page.locator("#large-object").is_visible()
    assert page.locator(".objects button[aria-current=true]").count() == 1
    page.keyboard.press("Enter")
    assert page.locator(".objects .marked").count() == 1
    page.click("#mark-object")
    assert page.locator(".objects .marked").count() == 0


def test_filters_by_kind_class_and_annotator(opened, job):
    page, table = opened.page, job[2].reviewed_objects_
    page.select_option("#kind", "missing")
    suspicious = table[(table["score"] < 0.5) & (table["kind"] == "missing")]
    assert set(opened.names()) == set(suspicious["image"])
    assert page.inner_text("#object-count") == str(len(suspicious))
    page.keyboard.press("Escape")
    page.locator(".card").first.focus()
    page.keyboard.press("n")
    assert f"Object 1 of {len(suspicious)} · right · missing" in page.inner_text("#large-object")
    page.keyboard.press("Escape")
    page.select_option("#class", "left")
    assert opened.names() == []
    page.click("#reset")
    assert len(opened.names()) == 12
    page.select_option("#annotator", "Ben")
    assert len(opened.names()) == 6
    assert set(page.locator(".card .numbers").all_inner_texts()[0].split()) >= {"Ben"}
    page.select_option("#class", "right")
    with_class = job[2].review_.dropna(subset="iou:right").query("annotator == 'Ben'")
    assert set(opened.names()) == set(with_class["image"])
    page.fill("#score", "0")
    assert page.inner_text("#object-count") == "0"
    assert page.locator("#step-on").is_disabled()
    assert opened.complaints == []


def test_a_confusion_leads_to_its_images(opened, job):
    page = opened.page
    predicted, review = predict_and_review(job[2], job[1])
    ranking = rank(review)
    place = pd.Series(ranking.index, index=ranking["image"])[review["image"]].to_numpy()
    columns = pd.DataFrame(image_confusions(job[1], predicted, place))
    chosen = columns[columns["pair"] == 3 * 1 + 2]
    most = chosen.sort_values("share", ascending=False)["image"].iloc[0]
    page.click("#confusion summary")
    page.click("#confusion [data-pair='5']")
    names = opened.names()
    assert set(names) == set(ranking["image"][chosen["image"]])
    assert names[0] == ranking["image"][most]
    assert "left → right" in page.locator(".card .numbers").first.inner_text()
    assert page.locator("#sort").input_value() == "confusion"
    page.click("#confusion-filter")
    assert len(opened.names()) == 12
    assert page.locator("#sort").input_value() == "quality"
    page.locator(".card").first.click()
    assert "Given → predicted" in page.inner_text(".confused")
    assert opened.complaints == []


def test_sorting_by_the_iou_of_a_class(opened, job):
    page = opened.page
    page.click("#class-table summary")
    page.click("#class-table [data-sort='iou:right']")
    order = job[2].review_.set_index("image")["iou:right"].fillna(2)  # without it: last
    values = [round(order[name], 3) for name in opened.names()]
    assert all(one <= other for one, other in pairwise(values))
    first = page.locator(".card .numbers").first.inner_text()
    assert f"IoU of right {values[0]:.2f}" in first
    assert opened.complaints == []


def test_annotators_are_listed_and_lead_to_their_images(opened):
    page = opened.page
    rows = page.locator("#people tbody tr").all_inner_texts()
    assert rows[0].split("\t")[:3] == [HOSTILE, "6", "3 (50 %)"]
    page.click(f"#people [data-annotator='{HOSTILE}']")
    assert len(opened.names()) == 6
    assert page.locator("#annotator").input_value() == HOSTILE
    assert opened.complaints == []


def test_void_is_in_the_legend_and_hatched(opened):
    page = opened.page
    page.locator("#void").wait_for()
    bottom = page.evaluate(
        """() => {
            const canvas = document.querySelector('.card canvas');
            const context = canvas.getContext('2d');
            const data = context.getImageData(0, canvas.height - 5, canvas.width, 4).data;
            let hatched = 0;
            for (let i = 0; i < data.length; i += 4) {
                hatched += Math.abs(data[i] - data[i + 1]) < 40 && data[i] > 97;
            }
            return hatched / (data.length / 4);
        }"""
    )
    assert 0.15 < bottom < 0.75


def test_pictures_are_unpacked_when_they_come_into_view(browser, job, path, tmp_path):
    """Of 1,000 images, the pictures and outlines of the first hundred are read at the start."""
    _, dataset, model = job
    objects = pack_objects(
        model.reviewed_objects_, rank(model.review_)["image"].to_numpy(), np.full(12, 80), CLASSES
    )
    content = report_page.page_content("many", dataset, model, rank(model.review_), objects=objects)
    images = content["data"]["images"]
    content["data"]["images"] = {
        name: [values[i % 12] for i in range(1000)] for name, values in images.items()
    } | {"image": [f"photo_{i:05d}.jpg" for i in range(1000)]}
    content["outlines"] = [content["outlines"][i % 12] for i in range(1000)]
    text = path.read_text()
    packed = json.loads(text.split('id="pictures-0">')[1].split("</script>")[0])
    page_path = tmp_path / "many.html"
    page_path.write_text(report_page.render_page(content, [packed[i % 12] for i in range(1000)]))
    context = browser.new_context(viewport={"width": 1366, "height": 900})
    page = context.new_page()
    page.add_init_script(
        "const parse = JSON.parse; window.parsed = 0;"
        "JSON.parse = (...args) => { window.parsed++; return parse(...args); };"
    )
    opened = Page(page).open(page_path)
    page.locator(".card svg.outlines").first.wait_for()
    first = page.evaluate("parsed")
    assert first <= 6  # data, marks, and one chunk of pictures and of outlines
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    page.wait_for_timeout(300)
    assert 1 <= page.evaluate("parsed") - first <= 4
    assert opened.names()[-1] == "photo_00999.jpg"
    assert opened.complaints == []
    context.close()


def test_on_a_phone(browser, path):
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True
    )
    opened = Page(context.new_page())
    opened.page.goto(path.as_uri())
    opened.page.locator("#step-on").tap()
    assert opened.page.locator("#large-object").is_visible()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert opened.complaints == []
    context.close()


def test_every_picture_and_control_is_named(opened):
    page = opened.page
    page.keyboard.press("n")
    page.locator("#large .outline.current").first.wait_for()
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('canvas, svg, button, select, input')].filter(e =>
            !(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length)
              || e.title || e.hidden)).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert unnamed == []
