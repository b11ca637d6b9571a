"""Rankings in the files of other tools; test_export_tools.py reads them with the tools."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree as Xml

import numpy as np
import pytest
from cvat_sdk.masks import decode_mask
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gpgc_dask import GP, GPGC, MarginSVM, load, open_dataset
from gpgc_dask.imaging.painting import write_masks
from gpgc_dask.models.review import predict_and_review, rank
from gpgc_dask.pipelines.ingest import MaskOptions, ingest
from gpgc_dask.results.export import EXPORTS, export
from gpgc_dask.results.export.runs import boxed_runs, brush_bytes
from gpgc_dask.results.ranking import records, select_worst
from tests.support.coco_files import write_coco
from tests.support.exporting import VOID, decode_brush, make_job
from tests.support.images import save_pairs
from tests.support.ingesting import QUICK

pytestmark = [
    pytest.mark.newest,
    pytest.mark.filterwarnings("ignore:1 image|1 of 13 groups"),
]

RGBA = 4


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    with pytest.warns(UserWarning, match="left out of the fit|not in the fit"):
        return make_job(tmp_path_factory.mktemp("export"))


# -- run lengths ---------------------------------------------------------------------------------


@st.composite
def masks(draw):
    """Masks of few or many runs, of one class alone, and of runs longer than 16 bits count."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    height, width = draw(st.sampled_from([(1, 1), (7, 5), (30, 40), (150, 260)]))
    share = draw(st.sampled_from([0.0, 0.001, 0.5, 0.999, 1.0]))
    return rng.random((height, width)) < share


@given(masks())
@settings(max_examples=40)
def test_brushes_are_decoded_to_their_masks(mask):
    found = decode_brush(brush_bytes(mask)).reshape(*mask.shape, RGBA)
    for channel in range(RGBA):
        np.testing.assert_array_equal(found[..., channel], 255 * mask)


@given(masks())
@settings(max_examples=40)
def test_cvat_decodes_its_masks(mask):
    if not mask.any():
        return
    lengths, (left, top, width, height) = boxed_runs(mask)
    points = [*lengths, left, top, left + width - 1, top + height - 1]
    found = decode_mask(points, image_width=mask.shape[1], image_height=mask.shape[0])
    np.testing.assert_array_equal(found, mask)


# -- Label Studio ----------------------------------------------------------------------------------


def brushed(prediction, shape):
    """{label: mask} of a prediction."""
    found = {}
    for region in prediction["result"]:
        assert (region["original_height"], region["original_width"]) == shape
        (label,) = region["value"]["brushlabels"]
        alpha = decode_brush(region["value"]["rle"]).reshape(*shape, RGBA)[..., 3]
        found[label] = alpha == 255
    return found


def test_label_studio_gets_tasks_worst_first(job, tmp_path):
    report = export(job.model, tmp_path / "tasks.json", "label-studio", dataset=job.dataset)
    assert report.files == [str(tmp_path / "tasks.json"), str(tmp_path / "tasks.config.xml")]
    assert (report.images, report.of, report.left_out) == (13, 13, [])
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    expected = records(rank(job.model.review_))
    write_masks(job.dataset, predict_and_review(job.model, job.dataset)[0], tmp_path / "predicted")
    for task, known in zip(tasks, expected, strict=True):
        data, (predicted, given) = task["data"], task["predictions"]
        assert given["model_version"] == "given mask"
        for name in ("rank", "quality", "quality_low", "agreement", "confidence", "noise_variance"):
            assert data[name] == known[name]
        assert data["name"] == known["image"]
        assert given["score"] == predicted["score"] == (known["quality"] or 0)
        mask = job.given(data["name"])
        drawn = brushed(given, mask.shape)
        np.testing.assert_array_equal(drawn.pop("foreground", np.zeros(mask.shape)), mask == 255)
        np.testing.assert_array_equal(drawn.pop("void", np.zeros(mask.shape)), mask == VOID)
        assert not drawn
        path = (tmp_path / "predicted" / known["image"]).with_suffix(".png")
        painted = brushed(predicted, mask.shape).get("foreground", np.zeros(mask.shape))
        np.testing.assert_array_equal(painted, np.asarray(Image.open(path)) == 255)
    assert tasks[0]["data"]["summary"] == (
        "1 of 13, worst first: quality unknown, suspect, mostly void"
    )
    assert tasks[1]["data"]["flags"] == "suspect, empty mask"


def test_label_studio_shows_the_interval(job, tmp_path, monkeypatch):
    limits = {"quality_low": 0.25, "quality_high": 0.75, "bad_probability": 0.3}
    monkeypatch.setattr(job.model, "review_", job.model.review_.assign(quality=0.5, **limits))
    export(job.model, tmp_path / "tasks.json", "label-studio", count=1)
    (task,) = json.loads((tmp_path / "tasks.json").read_text())
    assert "quality 0.50 (0.25–0.75)" in task["data"]["summary"]
    assert "suspect" not in task["data"]["flags"]


def test_label_studio_gets_an_interface_that_fits(job, tmp_path):
    export(job.model, tmp_path / "tasks.json", "label-studio", count=3)
    view = Xml.parse(tmp_path / "tasks.config.xml").getroot()
    brush, image = view.find("BrushLabels"), view.find("Image")
    assert [label.get("value") for label in brush] == ["foreground", "void"]
    task = json.loads((tmp_path / "tasks.json").read_text())[1]
    (prediction,) = task["predictions"]
    for region in prediction["result"]:
        assert (region["from_name"], region["to_name"]) == (brush.get("name"), image.get("name"))
    for tag in (view.find("Header"), image):
        assert tag.get("value").removeprefix("$") in task["data"]


def test_label_studio_finds_the_photos(job, tmp_path):
    def urls(**options):
        export(job.model, tmp_path / "tasks.json", "label-studio", **options)
        tasks = json.loads((tmp_path / "tasks.json").read_text())
        return {task["data"]["name"]: task["data"]["image"] for task in tasks}

    def served(url):
        parts = urlsplit(url)
        assert parts.path == "/data/local-files/"
        return parse_qs(parts.query)["d"][0]

    odd = "deep/er/a photo, 50 %.jpg"
    assert served(urls()[odd]) == f"photos/{odd}"
    root = job.folder.parent
    assert served(urls(document_root=str(root))[odd]) == f"{job.folder.name}/photos/{odd}"
    below = urls(image_prefix="https://host/p/")[odd]
    assert below == "https://host/p/deep/er/a%20photo%2C%2050%20%25.jpg"
    with pytest.raises(ValueError, match="not in the document root"):
        urls(document_root=str(job.folder / "masks"))
    with pytest.raises(ValueError, match="holds credentials"):
        urls(image_prefix="https://me:secret@host/p")


# -- CVAT ------------------------------------------------------------------------------------------


def test_cvat_gets_masks_and_tags_in_rank_order(job, tmp_path):
    report = export(job.model, tmp_path / "worst.xml", "cvat", count=6)
    assert report.images == 6
    images = Xml.parse(tmp_path / "worst.xml").getroot().findall("image")
    expected = records(rank(job.model.review_))[:6]
    assert [image.get("id") for image in images] == [str(number) for number in range(6)]
    photos = (tmp_path / "worst.photos.txt").read_text().splitlines()
    for image, known, path in zip(images, expected, photos, strict=True):
        assert image.get("name") == known["image"]
        assert path == str(job.folder / "photos" / known["image"])
        width, height = int(image.get("width")), int(image.get("height"))
        drawn = np.zeros((height, width), dtype=int)
        for mask in image.findall("mask"):
            left, top, w, h = (int(mask.get(key)) for key in ("left", "top", "width", "height"))
            points = [*map(int, mask.get("rle").split(",")), left, top, left + w - 1, top + h - 1]
            inside = decode_mask(points, image_width=width, image_height=height)
            drawn[inside] = {"foreground": 255, "void": VOID}[mask.get("label")]
        np.testing.assert_array_equal(drawn, job.given(known["image"]))
        (tag,) = image.findall("tag")
        facts = {one.get("name"): one.text or "" for one in tag}
        assert facts["rank"] == str(known["rank"])
        assert facts["agreement"] == ("" if known["agreement"] is None else str(known["agreement"]))
        assert set(known["flags"]) <= set(facts["flags"].split(", "))


def test_cvat_gets_labels_for_all_that_is_in_the_file(job, tmp_path):
    export(job.model, tmp_path / "worst.xml", "cvat")
    labels = {one["name"]: one for one in json.loads((tmp_path / "worst.labels.json").read_text())}
    root = Xml.parse(tmp_path / "worst.xml").getroot()
    assert {mask.get("label") for mask in root.iter("mask")} == {"foreground", "void"}
    for kind in ("mask", "tag"):
        for one in root.iter(kind):
            own = labels[one.get("label")]
            assert own["type"] == kind
            assert {a.get("name") for a in one} == {a["name"] for a in own["attributes"]}
    assert [name.text for name in root.findall("meta/task/labels/label/name")] == list(labels)


# -- FiftyOne --------------------------------------------------------------------------------------


def test_fiftyone_gets_samples_with_masks(job, tmp_path):
    report = export(job.model, tmp_path / "h.json", "fiftyone", dataset=job.dataset)
    assert report.files == [str(tmp_path / "h.json"), str(tmp_path / "h.masks")]
    content = json.loads((tmp_path / "h.json").read_text())
    assert content["default_mask_targets"] == {"1": "foreground", "255": "void"}
    expected = records(rank(job.model.review_))
    for sample, known in zip(content["samples"], expected, strict=True):
        assert set(sample) == set(content["sample_fields"])
        assert sample["filepath"] == str(job.folder / "photos" / known["image"])
        assert sample["rank"] == known["rank"]
        assert sample["quality"] == known["quality"]
        assert sample["agreement"] == known["agreement"]
        assert [tag for tag in sample["tags"] if tag != "suspect"] == known["flags"]
        assert ("suspect" in sample["tags"]) == (not (known["quality"] or 0) >= 0.5)
        mask = np.asarray(Image.open(sample["ground_truth"]["mask_path"]))
        given = job.given(known["image"])
        np.testing.assert_array_equal(mask == 1, given == 255)
        np.testing.assert_array_equal(mask == 255, given == VOID)
        assert np.isin(Image.open(sample["prediction"]["mask_path"]), [0, 1]).all()


# -- cleanlab --------------------------------------------------------------------------------------


def test_cleanlab_finds_the_suspects_by_the_scores(job, tmp_path):
    from cleanlab.segmentation.rank import issues_from_scores

    export(job.model, tmp_path / "scores.npz", "cleanlab")
    with np.load(tmp_path / "scores.npz") as arrays:
        images, scores = arrays["images"], arrays["image_scores"]
    assert images.tolist() == job.model.review_["image"].tolist()
    found = images[issues_from_scores(scores, threshold=0.5)].tolist()
    # cleanlab adds the first one that is above the threshold
    suspects = {f"photo_{number:03d}.jpg" for number in (0, 1, 3)}
    assert {*found[:-1]} == suspects
    known = ~np.isnan(job.model.review_["quality"])
    np.testing.assert_array_equal(scores[known], job.model.review_["quality"][known])


def test_cleanlab_finds_wrong_labels_by_the_probabilities(job, tmp_path):
    from cleanlab.filter import find_label_issues

    export(job.model, tmp_path / "scores.npz", "cleanlab", dataset=job.dataset)
    arrays = np.load(tmp_path / "scores.npz")
    labels, probabilities = arrays["labels"], arrays["pred_probs"]
    assert labels.size == (job.dataset["weight"].values > 0).sum()
    np.testing.assert_allclose(probabilities.sum(1), 1)
    predicted = predict_and_review(job.model, job.dataset)[0][job.dataset["weight"].values > 0]
    np.testing.assert_array_equal(probabilities.argmax(1), predicted)
    issues = find_label_issues(labels, probabilities)
    found = np.bincount(arrays["image_of_label"], issues)
    assert arrays["images"][found.argmax()] == "photo_000.jpg"  # the inverted one
    few = export(job.model, tmp_path / "few.npz", "cleanlab", dataset=job.dataset, count=4)
    assert few.images == 4
    part = np.load(tmp_path / "few.npz")
    assert part["images"].tolist() == sorted(part["images"])
    of = part["images"][part["image_of_label"]]
    whole = arrays["images"][arrays["image_of_label"]]
    np.testing.assert_array_equal(part["pred_probs"], probabilities[np.isin(whole, part["images"])])
    assert {*of} == {*part["images"]} - {"photo_003.jpg"}  # all void


# -- what is chosen, and from where ----------------------------------------------------------------


def names_in(path):
    return [task["data"]["name"] for task in json.loads(path.read_text())]


@pytest.mark.parametrize(
    ("options", "count"),
    [({}, 13), ({"count": 2}, 2), ({"count": "25%"}, 3), ({"below": 0.5}, 3), ({"below": 2}, 13)],
)
def test_the_worst_are_chosen(job, tmp_path, options, count):
    report = export(job.model, tmp_path / "tasks.json", "label-studio", **options)
    ranking = rank(job.model.review_)
    assert names_in(tmp_path / "tasks.json") == ranking["image"].tolist()[:count]
    assert report.images == count == len(select_worst(ranking, **options))


def test_by_confidence(job, tmp_path):
    ranking = rank(job.model.review_, "confidence")
    options = {"below": 0.3, "by": "confidence"}
    export(job.model, tmp_path / "tasks.json", "label-studio", **options)
    few = ranking["image"][~(ranking["confidence"] >= 0.3)]
    assert names_in(tmp_path / "tasks.json") == few.tolist()
    assert 1 < len(few) < 13


def test_files_that_are_gone_are_left_out(tmp_path):
    images, masks = save_pairs(tmp_path, 4)
    ingest(images, masks, tmp_path / "data.zarr", recipe=QUICK)
    model = GP().fit(open_dataset(tmp_path / "data.zarr"))
    model.review(open_dataset(tmp_path / "data.zarr"))
    with pytest.raises(ValueError, match="no image has quality below -1: there is nothing"):
        export(model, tmp_path / "worst.xml", "cvat", below=-1)
    (images / "photo_001.jpg").unlink()
    (masks / "photo_002.png").write_bytes(b"no picture")
    report = export(model, tmp_path / "worst.xml", "cvat")
    assert {one.name: one.reason for one in report.left_out} == {
        "photo_001.jpg": "cannot be opened: No such file or directory",
        "photo_002.jpg": f"mask {masks}/photo_002.png: not an image, or corrupted from the first "
        "byte",
    }
    assert report.images == 2
    left = Xml.parse(tmp_path / "worst.xml").getroot().findall("image")
    assert {image.get("name") for image in left} == {"photo_000.jpg", "photo_003.jpg"}
    for name in ("photo_000", "photo_003"):
        (images / f"{name}.jpg").unlink()
    with pytest.raises(FileNotFoundError, match="no photo with its mask can be read"):
        export(model, tmp_path / "worst.xml", "cvat")


def test_several_classes_and_turned_photos(tmp_path):
    """Classes are named as in the dataset, 0 is the background whichever comes first."""
    images, masks = save_pairs(tmp_path, 6)
    for path in masks.iterdir():
        values = np.where(np.asarray(Image.open(path)) > 0, 7, 0).astype(np.uint8)
        values[-10:] = 9
        Image.fromarray(values).save(path)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = Image.open(images / "photo_000.jpg")
    turned.save(images / "photo_000.jpg", exif=exif)
    classes = {7: "horse", 0: "background", 9: "grass"}
    ingest(
        images, masks, tmp_path / "data.zarr", recipe=QUICK, masks_as=MaskOptions(classes=classes)
    )
    dataset = open_dataset(tmp_path / "data.zarr")
    model = GPGC().fit(dataset)
    model.review(dataset)
    export(model, tmp_path / "f.json", "fiftyone")
    content = json.loads((tmp_path / "f.json").read_text())
    assert content["default_mask_targets"] == {"1": "horse", "2": "grass"}
    for sample in content["samples"]:
        given = np.asarray(Image.open(masks / f"{sample['name'][:-4]}.png"))
        if sample["name"] == "photo_000.jpg":
            given = np.rot90(given, 3)
        mask = np.asarray(Image.open(sample["ground_truth"]["mask_path"]))
        np.testing.assert_array_equal(mask, np.array([0, 7, 9]).searchsorted(given))
    export(model, tmp_path / "w.xml", "cvat")
    found = {mask.get("label") for mask in Xml.parse(tmp_path / "w.xml").getroot().iter("mask")}
    assert found == {"horse", "grass"}


def test_masks_of_a_coco_file(tmp_path):
    images, masks = save_pairs(tmp_path, 4)
    write_coco(images, masks, tmp_path / "coco.json")
    horses = MaskOptions(format="coco", categories=["horse"])
    ingest(images, tmp_path / "coco.json", tmp_path / "data.zarr", recipe=QUICK, masks_as=horses)
    dataset = open_dataset(tmp_path / "data.zarr")
    model = GP().fit(dataset)
    model.review(dataset)
    export(model, tmp_path / "tasks.json", "label-studio")
    for task in json.loads((tmp_path / "tasks.json").read_text()):
        given = np.asarray(Image.open(masks / f"{task['data']['name'][:-4]}.png"))
        (prediction,) = task["predictions"]
        np.testing.assert_array_equal(brushed(prediction, given.shape)["horse"], given > 0)


# -- wrong uses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "labelme"}, "choose one of label-studio, cvat, fiftyone, coco, cleanlab"),
        ({"to": "cvat"}, "cvat reads .xml files: name one, not out.json"),
        ({"count": 3, "below": 0.5}, "choose one of worst"),
        ({"count": "0%"}, "worst must be a share"),
        ({"below": float("nan")}, "below must be a number"),
        ({"to": "fiftyone", "image_prefix": "https://host"}, "fiftyone has no option image_prefix"),
    ],
)
def test_wrong_uses_are_reported(job, tmp_path, options, message):
    options = {"to": "label-studio", **options}
    with pytest.raises(ValueError, match=message):
        export(job.model, tmp_path / "out.json", **options)
    assert not any(tmp_path.iterdir())


def test_models_that_cannot_be_exported(job, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), np.arange(40) % 2
    with pytest.raises(ValueError, match="fitted on arrays"):
        export(GPGC().fit(X, y), tmp_path / "a.json", "fiftyone")
    with pytest.raises(ValueError, match="has not reviewed its images yet"):
        export(GP().fit(job.dataset), tmp_path / "a.json", "fiftyone")
    machine = MarginSVM(C=0.01).fit(job.dataset)
    with pytest.raises(ValueError, match="MarginSVM has no probabilities"):
        export(machine, tmp_path / "a.npz", "cleanlab", dataset=job.dataset)
    with pytest.raises(ValueError, match="cvat holds one mask per label and image"):
        export(job.model, tmp_path / "a.xml", "cvat", dataset=job.dataset)


def test_paths_that_lead_elsewhere_are_not_followed(job, tmp_path):
    """A model that somebody sends must not make us read other files."""
    model = load(job.folder / "model.zarr")
    model.review_ = model.review_.assign(mask_path="/etc/passwd")
    with pytest.raises(ValueError, match="not in the folder of masks"):
        export(model, tmp_path / "a.json", "fiftyone")


# -- the command -----------------------------------------------------------------------------------


def test_the_command(job, tmp_path, run):
    model, tasks = job.folder / "model.zarr", tmp_path / "tasks.json"
    code, out, _ = run("export", model, "--to", "label-studio", "-o", tasks, "--worst", "4")
    assert code == 0
    assert "4 of 13 images" in out
    assert "tasks.config.xml" in out
    assert len(names_in(tasks)) == 4
    code, out, _ = run("export", model, "--to", "cvat", "-o", tmp_path / "w.xml", "--json")
    assert json.loads(out)["images"] == 13
    data = job.folder / "data.zarr"
    code, out, _ = run(
        "export", model, "--to", "cleanlab", "-o", tmp_path / "s.npz", "--data", data
    )
    assert code == 0
    assert "pred_probs" in np.load(tmp_path / "s.npz")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--worst", "3", "--below", "0.5"], 2, "--worst and --below exclude each other"),
        (["--document-root", "/", "--image-prefix", "https://h"], 2, "exclude each other"),
        (["--worst", "none"], 2, "worst must be a share"),
    ],
)
def test_wrong_calls(job, tmp_path, run, arguments, code, message):
    target = tmp_path / "tasks.json"
    found, _, err = run(
        "export", job.folder / "model.zarr", "--to", "label-studio", "-o", target, *arguments
    )
    assert found == code
    assert message in err
    assert not target.exists()


# -- a new format ----------------------------------------------------------------------------------

TOY = '''
from gpgc_dask.results.export import ExportFormat, ExportReport
from gpgc_dask.storage.location import write_whole


class NameList(ExportFormat):
    """The names of the images, one per line."""

    suffix = ".txt"
    options = ("ending",)

    def __init__(self, target, selection, *, ending="\\n"):
        super().__init__(target, selection)
        self.ending = ending

    def write(self, progress=None):
        names = self.selection.chosen["image"].tolist()
        write_whole(self.target, self.ending.join(names).encode())
        return ExportReport([str(self.target)], len(names), len(self.selection.review))
'''


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A format in one file, registered by one line."""
    (tmp_path / "toy_export.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(EXPORTS, "_loaded", dict(EXPORTS._loaded))
    monkeypatch.setitem(EXPORTS._places, "toy", "toy_export:NameList")


def test_a_format_is_one_file_and_one_line(job, toy, tmp_path, run):
    expected = rank(job.model.review_)["image"].tolist()[:3]
    report = export(job.model, tmp_path / "worst.txt", "toy", count=3)
    assert (report.images, report.of) == (3, 13)
    assert (tmp_path / "worst.txt").read_text().splitlines() == expected
    export(job.model, tmp_path / "worst.txt", "toy", count=3, ending=", ")
    assert (tmp_path / "worst.txt").read_text() == ", ".join(expected)
    model, target = job.folder / "model.zarr", tmp_path / "list.txt"
    code, out, _ = run("export", model, "--to", "toy", "-o", target, "--worst", "3")
    assert code == 0
    assert "3 of 13 images" in out
    assert target.read_text().splitlines() == expected


def test_help_and_errors_list_the_formats(job, toy, tmp_path, run):
    _, out, _ = run("export", "--help")
    for name in ("label-studio", "cvat", "fiftyone", "cleanlab"):
        assert name in out
    code, _, err = run("export", job.folder / "model.zarr", "--to", "labelme", "-o", "x.json")
    assert code == 2
    assert "not one of label-studio, cvat, fiftyone, coco, cleanlab, toy" in err
    with pytest.raises(ValueError, match="label-studio, cvat, fiftyone, coco, cleanlab, toy"):
        export(job.model, tmp_path / "x.json", "labelme")
