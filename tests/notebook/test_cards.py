"""What notebooks show: cards, plots and tables."""

from __future__ import annotations

import pickle
import re
import shutil
from base64 import b64decode
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from PIL import Image

from gpgc_dask import GP, GPGC, MarginSVM, load, open_dataset
from gpgc_dask.data.subsets import best_photos, take_photos
from gpgc_dask.experiments.accuracy import PixelCounts
from gpgc_dask.models.review import predict_and_review
from gpgc_dask.notebook.overlays import overlay
from gpgc_dask.notebook.photos import paint_photos, photo_numbers
from gpgc_dask.pipelines.ingest import ingest
from gpgc_dask.results.colours import KIND_COLOURS, class_colours
from gpgc_dask.results.pictures import Painted
from tests.support.images import save_pairs
from tests.support.ingesting import QUICK

mpl.use("Agg")
HOSTILE = "<img src=x onerror=alert(1)>&.jpg"
CORRUPTED = [HOSTILE, "photo_001.jpg", "photo_002.jpg"]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A folder of 16 photos, three masks of them mirrored, and one photo of a hostile name."""
    folder = tmp_path_factory.mktemp("job")
    images, masks = save_pairs(folder, 16)
    (images / "photo_000.jpg").rename(images / HOSTILE)
    (masks / "photo_000.png").rename(masks / HOSTILE.replace(".jpg", ".png"))
    for name in CORRUPTED:
        path = masks / name.replace(".jpg", ".png")
        Image.fromarray(255 - np.array(Image.open(path))).save(path)
    ingest(images, masks, folder / "data.zarr", recipe=QUICK)
    return folder


@pytest.fixture
def dataset(job):
    return open_dataset(job / "data.zarr")


@pytest.fixture(scope="module")
def model(job):
    dataset = open_dataset(job / "data.zarr")
    model = GPGC().fit(dataset)
    model.review(dataset)
    return model


@pytest.fixture(scope="module")
def by_arrays():
    rng = np.random.default_rng(0)
    groups = np.repeat([f"worker <{number}>" for number in range(12)], 30)
    X = rng.standard_normal((360, 4))
    y = np.where(X[:, 0] > 0, "yes", "no")
    y[:30] = rng.choice(["yes", "no"], 30)
    return GPGC().fit(X, y, groups=groups), X, y


@pytest.fixture(autouse=True)
def _closed():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


class Page(HTMLParser):
    """Texts and pictures of some HTML, all tags closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.pictures: dict[str, str] = {}
        self.charts: list[ET.Element] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        assert not any(name.startswith("on") for name in given)
        if tag == "img" and "svg" in given["src"][:20]:
            self.charts.append(ET.fromstring(b64decode(given["src"].partition(",")[2])))
        elif tag == "img":
            self.pictures[given["alt"]] = given["src"]
        if tag not in ("img", "br", "hr", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data.strip())


def test_a_reviewed_model_shows_its_worst_and_best(model):
    page = Page(model._repr_html_())
    assert "3 of 16" in page.texts
    assert f"{model.log_evidence_:,.1f}" in page.texts
    ranked = model.to_pandas().index.tolist()
    listed = [text for text in page.texts if text in ranked]
    assert listed == ranked[:5] + ranked[::-1][:5]
    assert set(listed[:3]) == set(CORRUPTED)
    assert set(page.pictures) == {f"{name} with its mask" for name in listed}
    assert all(src.startswith("data:image/jpeg;base64,") for src in page.pictures.values())
    assert [chart.tag for chart in page.charts] == 4 * ["{http://www.w3.org/2000/svg}svg"]
    assert "svg" not in page.tags  # its texts would stand in notebooks that are not trusted yet
    assert "script" not in page.tags
    assert model._repr_mimebundle_()["text/plain"] == repr(model)


def test_the_number_of_bad_masks(model, monkeypatch):
    probability = np.where(model.review_["image"].isin(CORRUPTED), 0.99, 0.01)
    limits = {"quality_low": 0.1, "quality_high": 0.9}
    table = model.review_.assign(bad_probability=probability, **limits)
    monkeypatch.setattr(model, "review_", table)
    page = Page(model._repr_html_())
    assert "about 3 (0–16)" in page.texts
    assert "3 of 16" in page.texts


def test_the_review_of_an_older_version(model, dataset, monkeypatch):
    """It has no quality: the card does without, plots make a new one, tables say what to do."""
    old = model.review_.drop(columns=["quality", "bad_probability"])
    monkeypatch.setattr(model, "review_", old)
    page = Page(model._repr_html_())
    assert "3 of 16" not in page.texts
    assert len(page.charts) == 3
    with pytest.raises(ValueError, match=r"older version.*gpgc fit --overwrite"):
        model.to_pandas()
    assert not hasattr(model, "quality_")
    ax = model.plot.tradeoff(dataset, shares=[1.0])
    assert ax.lines[0].get_ydata() == pytest.approx([model.review_["quality"].mean()])


def test_a_model_without_a_review_shows_pictures_too(job, dataset):
    model = GPGC().fit(dataset)
    page = Page(model._repr_html_())
    assert len(page.pictures) == 10
    assert f"{HOSTILE} with its mask" in page.pictures
    other = GPGC().fit(dataset, groups=dataset["image"].values % 5)
    assert not Page(other._repr_html_()).pictures


def test_a_saved_model_shows_the_same(model, tmp_path):
    model.save(tmp_path / "model.zarr")
    again = load(tmp_path / "model.zarr")

    def plain(html):
        return re.sub('id="gpgc-[0-9a-f]+"', "", html)

    assert plain(again._repr_html_()) == plain(model._repr_html_())


def test_photos_that_are_gone_are_left_out(job, model, tmp_path):
    again = pickle.loads(pickle.dumps(model))
    again.dataset_ = again.dataset_ | {"url": str(tmp_path / "nowhere.zarr")}
    page = Page(again._repr_html_())
    assert not page.pictures
    assert "3 of 16" in page.texts


def test_models_of_arrays(by_arrays):
    model, X, y = by_arrays
    page = Page(model._repr_html_())
    assert "worker <0>" in page.texts
    assert not page.pictures
    assert "Least reliable" not in Page(GP().fit(X, y)._repr_html_()).texts
    assert "C" in Page(MarginSVM(C=1e-3).fit(X, y)._repr_html_()).texts


def test_an_unfitted_model_shows_its_parameters():
    model = GPGC(tol=0.25)
    assert "0.25" in model._repr_html_()
    assert "gpgc-card" not in model._repr_mimebundle_()["text/html"]


def test_a_fit_that_has_not_converged(by_arrays):
    _, X, y = by_arrays
    with pytest.warns(UserWarning, match="stopped after 1"):
        model = GPGC(max_iter=1).fit(X, y, groups=np.repeat(np.arange(12), 30))
    assert any("not converged" in text for text in Page(model._repr_html_()).texts)


def test_a_plan(dataset):
    plan = GPGC().plan(dataset)
    page = Page(plan._repr_html_())
    for name, value in plan.facts[1:]:
        assert name == "memory per worker" or {name, value} <= set(page.texts)
    small = GPGC().plan(dataset, workers=2, memory_limit="10MB")
    assert any("DOES NOT FIT" in text for text in Page(small._repr_html_()).texts)


def test_a_dataset_shows_photos_and_its_arrays(dataset, job):
    html = dataset._repr_html_()
    assert html.count("data:image/jpeg") == 8
    assert "<img src=x" not in html.split("<details>")[0]
    assert "xr-wrap" in html.split("<details>")[1]


def test_a_dataset_stays_one_of_xarray(dataset):
    assert isinstance(dataset, xr.Dataset)
    part = dataset.isel(superpixel=slice(0, 40))
    assert part.sizes["superpixel"] == 40
    assert "gpgc-card" not in dataset[["label"]]._repr_html_()
    again = pickle.loads(pickle.dumps(dataset))
    xr.testing.assert_identical(again.compute(), dataset.compute())
    assert "gpgc-card" in again._repr_html_()


def test_a_gallery_shows_what_a_model_that_never_saw_the_image_draws(model, dataset):
    axes = model.plot.gallery(dataset, n=3)
    assert axes.shape == (3, 3)
    titles = [ax.get_title() for ax in axes[0]]
    assert all(name in " ".join(titles).replace("…", "") for name in CORRUPTED[1:])
    # The whole dataset left out image by image, against the few rows that the gallery reads.
    predicted, _ = predict_and_review(model, dataset)
    photos = photo_numbers(dataset, CORRUPTED)
    found = paint_photos(model, dataset, photos, side=80)
    image, segments = dataset["image"].values, dataset["segments"].values
    for photo in photos:
        painted = predicted[image == photo][segments[photo]]
        np.testing.assert_array_equal(found[photo].predicted, painted)
    assert model.plot.gallery(which=["photo_005.jpg"]).shape == (3, 1)
    best = model.plot.gallery(n=2, which="best", by="confidence")[0, 0].get_title()
    assert best.startswith("16. ")


def test_a_gallery_reads_no_features(job, model, dataset, tmp_path):
    path = shutil.copytree(job / "data.zarr", tmp_path / "data.zarr")
    shutil.rmtree(path / "features/c")
    photos = photo_numbers(dataset, CORRUPTED)
    stored = paint_photos(model, open_dataset(path), photos, side=80)
    unreviewed = pickle.loads(pickle.dumps(model))
    del unreviewed.leave_out_
    computed = paint_photos(unreviewed, dataset, photos, side=80)
    for photo in photos:
        np.testing.assert_array_equal(stored[photo].predicted, computed[photo].predicted)


def painted_row(given, predicted):
    """A grey picture of 12 rows, each with these labels, one per column of 4 pixels."""
    rows = [np.repeat(np.array([labels] * 12), 4, axis=1) for labels in (given, predicted)]
    return Painted(np.full((*rows[0].shape, 3), 100, np.uint8), *rows, gone=False)


def colours_in(pixels, column):
    """The colours inside the given column, without its borders."""
    return {
        tuple(colour) for colour in pixels[1:-1, 4 * column + 1 : 4 * column + 3].reshape(-1, 3)
    }


def mixed(colour, share, photo=100):
    return tuple(round((1 - share) * photo + share * value) for value in colour)


def test_overlays_of_two_classes():
    one = painted_row([0, 0, 1, 1, 255], [0, 1, 1, 0, 0])
    orange, blue = KIND_COLOURS["spurious"], KIND_COLOURS["missing"]
    for kind, shown, share, photo in (
        ("given", [None, None, orange, orange], 0.4, 100),
        ("predicted", [None, blue, blue, None], 0.4, 100),
        ("differ", [None, blue, None, orange], 0.65, 75),
    ):
        pixels = overlay(one, kind, n_classes=2, background=0)
        for column, colour in enumerate(shown):
            expected = (photo,) * 3 if colour is None else mixed(colour, share, photo)
            assert colours_in(pixels, column) == {expected}


def test_void_is_hatched_but_not_predicted():
    one = painted_row([0, 255, 2], [0, 0, 0])
    for n_classes in (2, 3):
        hatched = colours_in(overlay(one, "given", n_classes, background=0), 1)
        assert hatched == {(100,) * 3, mixed((150,) * 3, 0.65)}
        assert len(colours_in(overlay(one, "differ", n_classes, background=0), 1)) == 2
        assert len(colours_in(overlay(one, "predicted", n_classes, background=0), 1)) == 1


def test_every_class_has_its_colour_and_each_kind_of_difference():
    one = painted_row([0, 1, 2, 0, 1, 1], [0, 1, 2, 1, 0, 2])
    colours = class_colours(3, background=0)
    pixels = overlay(one, "given", n_classes=3, background=0)
    for column in range(3):
        assert colours_in(pixels, column) == {mixed(colours[column], 0.5)}
    pixels = overlay(one, "differ", n_classes=3, background=0)
    assert [colours_in(pixels, column) for column in range(6)] == [
        {(75,) * 3},
        {(75,) * 3},
        {(75,) * 3},
        {mixed(KIND_COLOURS["missing"], 0.65, 75)},
        {mixed(KIND_COLOURS["spurious"], 0.65, 75)},
        {mixed(colours[1], 0.65, 75), mixed(colours[2], 0.65, 75)},
    ]
    # Without a background, every difference is a wrong class.
    assert len(colours_in(overlay(one, "differ", n_classes=3, background=-1), 3)) == 2


def test_noise_is_plotted_for_each_group_or_counted(model, by_arrays):
    few, X, y = by_arrays
    ax = few.plot.noise()
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == [str(few.groups_[i]) for i in np.argsort(few.noise_variance_)]
    np.testing.assert_allclose(ax.lines[0].get_xdata(), np.sort(few.noise_variance_))
    many = GPGC(redundancy=1.0).fit(X, y, groups=np.repeat(np.arange(60), 6))
    assert sum(bar.get_height() for bar in many.plot.noise().patches) == 60
    with pytest.raises(ValueError, match="fit a GPGC"):
        GP().fit(X, y).plot.noise()


def test_convergence_ends_at_the_tolerance(model, by_arrays):
    ax = model.plot.convergence()
    x, y = ax.lines[0].get_data()
    assert x[-1] == model.history_[model.n_iter_ - 1]["reads"]
    assert y[-1] <= 1 < y[0]
    by_statistics, X, labels = by_arrays  # one read does for all of its steps
    steps = by_statistics.plot.convergence().lines[0].get_xdata()
    assert list(steps) == list(range(1, 1 + by_statistics.n_iter_))
    with pytest.raises(ValueError, match="no history"):
        MarginSVM(C=1e-3).fit(X, labels).plot.convergence()


def test_tradeoff_of_the_review(model):
    ax = model.plot.tradeoff(shares=[0.5, 1.0])
    quality = model.review_["quality"].to_numpy()
    best = np.sort(quality)[::-1][:8]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [best.mean(), quality.mean()])
    with pytest.raises(ValueError, match="shares"):
        model.plot.tradeoff(shares=[0, 1])


def test_tradeoff_of_refitted_models(model, dataset, folders, tmp_path):
    ingest(*folders, tmp_path / "test.zarr", recipe=QUICK)
    test = open_dataset(tmp_path / "test.zarr")
    ax = model.plot.tradeoff(test=test, shares=[0.5, 1.0])
    truth = PixelCounts.read(test)
    for share, value in zip([0.5, 1.0], ax.lines[0].get_ydata(), strict=True):
        photos = best_photos(model.review_["quality"].to_numpy(), share)
        alone = GP(redundancy=model.redundancy_).fit(take_photos(dataset, photos))
        assert value == pytest.approx(100 * truth.evaluate(alone.predict(test)).accuracy)


def test_tables(model, by_arrays):
    table = model.to_pandas()
    assert table["rank"].tolist() == list(range(1, 17))
    assert set(table.index[:3]) == set(CORRUPTED)
    learned = dict(zip(model.groups_, model.noise_variance_, strict=True))
    assert table["noise_variance"].to_dict() == learned
    few, X, y = by_arrays
    assert few.to_pandas().index[0] == "worker <0>"
    svm = MarginSVM(C=1e-3).fit(X, y, groups=np.repeat(np.arange(12), 30))
    assert svm.to_pandas()["margin"].is_monotonic_increasing
    assert len(GP().fit(X, y).to_pandas()) == 1


def test_arrays_with_names(model, by_arrays):
    found = model.to_xarray()
    assert float(found["noise_variance"].sel(group="photo_005.jpg")) == pytest.approx(
        model.noise_variance_[model.groups_ == "photo_005.jpg"][0]
    )
    assert found["coef"].sizes == {"target": 1, "feature": model.coef_.shape[1]}
    assert found["log_evidence"].values[-1] == pytest.approx(model.log_evidence_)
    assert found.attrs["redundancy"] == model.redundancy_
    known = model.quality_.set_index("image")["quality"]
    assert found["quality"].to_series().to_dict() == known.to_dict()
    assert set(found["feature_group"].values) == set(model.feature_scales_)
    few, _, _ = by_arrays
    assert few.to_xarray()["target"].values.tolist() == ["yes"]


def test_a_model_of_arrays_has_no_photos(by_arrays):
    with pytest.raises(ValueError, match="fitted on arrays"):
        by_arrays[0].plot.gallery()
    with pytest.raises(ValueError, match="fitted on arrays"):
        by_arrays[0].plot.tradeoff()


def test_wrong_names(model, dataset):
    with pytest.raises(ValueError, match=r"no image missing\.jpg"):
        model.plot.gallery(dataset, which=["missing.jpg"])
    with pytest.raises(ValueError, match="worst, best or a list"):
        model.plot.gallery(dataset, which="middle")
