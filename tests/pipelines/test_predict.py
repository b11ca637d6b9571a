"""Masks of photos by a model: at their own size, whole, and none lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
from copy import copy
from dataclasses import replace

import dask
import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from gpgc_dask import GP, GPGC, load, open_dataset
from gpgc_dask.cli.predict import EXAMPLE, predict
from gpgc_dask.clusters.connect import connect
from gpgc_dask.core.errors import InputError, PipelineError
from gpgc_dask.imaging.painting import paint_image, write_masks
from gpgc_dask.pipelines import batches
from gpgc_dask.pipelines import photo_jobs as making
from gpgc_dask.pipelines import predict as prediction
from gpgc_dask.pipelines.ingest import MaskOptions, Recipe, RunOptions, ingest
from gpgc_dask.pipelines.predict import predict_masks
from gpgc_dask.quality.calibration import Calibration
from tests.support.images import draw, save_pair, tree_bytes
from tests.support.ingesting import QUICK, CrashError, crash_after, truncate

pytestmark = pytest.mark.newest

RECIPE = replace(QUICK, side=128)
"""Superpixels are computed on photos of 64 pixels: all are reduced."""


def save_photos(folder):
    """Small, larger than the working side, in a subfolder, and turned by EXIF; with masks."""
    for seed, name in enumerate(["a", "b", "c", "sub/d e"]):
        save_pair(folder, name, seed)
    save_pair(folder, "large", 4, height=301, width=200)
    photo, mask = draw(5, 90, 70)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(photo).rotate(90, expand=True).save(folder / "images/turned.jpg", exif=exif)
    Image.fromarray(mask * np.uint8(255)).save(folder / "masks/turned.png")
    return folder / "images"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(folder of photos, their dataset, the model as it is loaded)."""
    folder = tmp_path_factory.mktemp("trained")
    images = save_photos(folder)
    ingest(images, folder / "masks", folder / "data.zarr", recipe=RECIPE)
    dataset = open_dataset(folder / "data.zarr")
    GPGC().fit(dataset).save(folder / "model.zarr")
    return images, dataset, load(folder / "model.zarr")


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """The same of four classes, one of them never seen, one with a large value."""
    folder = tmp_path_factory.mktemp("several")
    for seed in range(4):
        save_pair(folder, f"{seed}", seed)
        mask = draw(seed)[1] * np.uint16(2)
        mask[:, :20] = 700
        Image.fromarray(mask).save(folder / f"masks/{seed}.png")
    classes = {0: "grass", 1: "nothing", 2: "disc", 700: "left"}
    ingest(
        folder / "images",
        folder / "masks",
        folder / "data.zarr",
        recipe=RECIPE,
        masks_as=MaskOptions(classes=classes),
    )
    dataset = open_dataset(folder / "data.zarr")
    return folder / "images", dataset, GP().fit(dataset)


@pytest.fixture(scope="module")
def calibrated(several):
    """The model of several classes with probabilities that prefer the disc."""
    chosen = copy(several[2])
    chosen.calibration_ = Calibration(2.0 * np.eye(3), np.array([0.0, 4.0, 0.0]), np.full(3, 1 / 3))
    return *several[:2], chosen


def test_a_calibration_decides(several, calibrated, tmp_path):
    images, dataset, model = several
    plain, decided = (np.asarray(each.predict(dataset)) for each in (model, calibrated[2]))
    assert (decided == 2).sum() > (plain == 2).sum()
    predict_masks(calibrated[2], images, tmp_path)
    with pytest.raises(InputError, match="another model has made the masks"):
        predict_masks(model, images, tmp_path, run=RunOptions(resume=True))


def pixels(path):
    return np.asarray(Image.open(path))


@pytest.mark.parametrize("which", ["trained", "several", "calibrated"])
def test_masks_are_those_of_the_dataset(request, which, tmp_path):
    images, dataset, model = request.getfixturevalue(which)
    report = predict_masks(model, images, tmp_path / "predicted")
    write_masks(dataset, model.predict(dataset), tmp_path / "expected")
    assert tree_bytes(tmp_path / "predicted") == tree_bytes(tmp_path / "expected")
    assert report.images == dataset.sizes["photo"]
    assert (report.skipped, report.resumed, report.probability) == ([], 0, None)
    values = {value for path in tmp_path.rglob("*.png") for value in np.unique(pixels(path))}
    assert values == ({0, 255} if which == "trained" else {0, 2, 700})


def test_masks_have_the_photos_own_size_and_sense(trained, tmp_path):
    images, _, model = trained
    predict_masks(model, images, tmp_path)
    for name, seed, size in (("large", 4, (301, 200)), ("turned", 5, (90, 70))):
        mask = draw(seed, *size)[1]
        assert np.mean((pixels(tmp_path / f"{name}.png") > 0) == mask) > 0.9
    assert (tmp_path / "sub/d e.png").exists()


@pytest.mark.parametrize("which", ["trained", "several", "calibrated"])
def test_probabilities_and_deviations(request, which, tmp_path):
    images, dataset, model = request.getfixturevalue(which)
    kinds = {"probability": tmp_path / "p", "std": tmp_path / "s"}
    report = predict_masks(model, images, tmp_path / "m", **kinds)
    assert (report.probability, report.std) == (str(tmp_path / "p"), str(tmp_path / "s"))
    shares = np.asarray(model.predict_proba(dataset))
    shares = shares[:, 1] if which == "trained" else shares.max(1)
    std = np.asarray(model.decision_function(dataset, return_std=True)[1])
    for photo, name in enumerate(dataset["image_name"].values):
        stem = name.removesuffix(".jpg")
        found = pixels(tmp_path / f"p/{stem}.png")
        assert found.dtype == np.uint16
        expected = paint_image(dataset, shares, photo)
        np.testing.assert_allclose(found / 65535, expected, atol=0.51 / 65535)
        found = pixels(tmp_path / f"s/{stem}.tiff")
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, paint_image(dataset, std, photo), rtol=1e-6)
        if which == "trained":
            half = pixels(tmp_path / f"p/{stem}.png") > 65535 / 2
            np.testing.assert_array_equal(pixels(tmp_path / f"m/{stem}.png") > 0, half)


def test_new_photos_without_masks(trained, tmp_path):
    _, _, model = trained
    save_pair(tmp_path, "new", 77, height=50, width=130)
    report = predict_masks(model, tmp_path / "images/new.jpg", tmp_path / "out")
    assert report.images == 1
    assert tree_bytes(tmp_path / "out").keys() == {"new.png"}
    assert np.mean((pixels(tmp_path / "out/new.png") > 0) == draw(77, 50, 130)[1]) > 0.9
    predict_masks(model, tmp_path / "images/new.jpg", tmp_path / "images")  # beside the photo
    assert (tmp_path / "images/new.png").exists()


def test_on_a_cluster_the_same_bytes(client, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(making, "IMAGES_PER_TASK", 1)
    images, _, model = trained
    with dask.config.set(scheduler="threads"):
        for place, given in (("threads", None), ("workers", client)):
            folders = [tmp_path / place / kind for kind in ("m", "p", "s")]
            predict_masks(
                model,
                images,
                folders[0],
                probability=folders[1],
                std=folders[2],
                run=RunOptions(client=given),
            )
    assert len(tree_bytes(tmp_path / "threads")) == 18
    assert tree_bytes(tmp_path / "threads") == tree_bytes(tmp_path / "workers")
    assert client.submit(lambda: 1).result() == 1


def test_workers_get_no_more_of_the_model_than_they_need(trained):
    model = trained[2]
    assert prediction.Predictor.from_model(model, None, with_variance=False).factor is None
    assert prediction.Predictor.from_model(model, None, with_variance=True).factor.shape == (31, 31)


def test_progress_and_a_short_queue(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "MIN_TASKS", 1)
    monkeypatch.setattr(batches, "TASKS_PER_THREAD", 1)
    monkeypatch.setattr(making, "IMAGES_PER_TASK", 1)
    images, _, model = trained
    seen = []
    predict_masks(model, images, tmp_path, run=RunOptions(progress=seen.append))
    assert [one.done for one in seen] == list(range(7))
    assert {(one.phase, one.total) for one in seen} == {("images", 6)}


# -- what is there already ---------------------------------------------------------------------


def test_pictures_that_are_there(trained, tmp_path):
    images, _, model = trained
    predict_masks(model, images, tmp_path / "m")
    whole = tree_bytes(tmp_path)
    (tmp_path / "m/a.png").write_bytes(b"mine")
    with pytest.raises(FileExistsError, match=r"m/a.png exists, and 5 more .*--resume.*--overwr"):
        predict_masks(model, images, tmp_path / "m")
    with pytest.raises(ValueError, match="choose one"):
        predict_masks(model, images, tmp_path / "m", run=RunOptions(resume=True, overwrite=True))
    (tmp_path / "m/b.png").unlink()
    report = predict_masks(model, images, tmp_path / "m", run=RunOptions(resume=True))
    assert (report.images, report.resumed) == (6, 5)
    assert tree_bytes(tmp_path) == whole | {"m/a.png": b"mine"}
    report = predict_masks(model, images, tmp_path / "m", run=RunOptions(overwrite=True))
    assert (report.images, report.resumed) == (6, 0)
    assert tree_bytes(tmp_path) == whole


def test_nothing_to_do_needs_no_cluster(trained, tmp_path):
    images, _, model = trained
    predict_masks(model, images, tmp_path)
    report = predict_masks(
        model, images, tmp_path, run=RunOptions(resume=True, client=connect("tcp://no:1"))
    )
    assert report.resumed == 6


def test_another_models_masks_are_not_gone_on_with(trained, tmp_path):
    images, dataset, model = trained
    predict_masks(model, images, tmp_path / "m")
    other = GP().fit(dataset)
    with pytest.raises(ValueError, match="another model has made the masks"):
        predict_masks(other, images, tmp_path / "m", run=RunOptions(resume=True))
    predict_masks(other, images, tmp_path / "m", run=RunOptions(overwrite=True))
    assert predict_masks(other, images, tmp_path / "m", run=RunOptions(resume=True)).resumed == 6


def test_resuming_asks_for_all_pictures(trained, tmp_path):
    images, _, model = trained
    predict_masks(model, images, tmp_path / "m")
    report = predict_masks(
        model, images, tmp_path / "m", std=tmp_path / "s", run=RunOptions(resume=True)
    )
    assert report.resumed == 0
    assert len(tree_bytes(tmp_path / "s")) == 6


@pytest.mark.parametrize("overwrite", [False, True])
def test_stopped_in_the_middle_it_resumes(trained, tmp_path, monkeypatch, overwrite):
    """Also an overwrite: none of the old masks is taken for a new one."""
    images, dataset, model = trained
    if overwrite:
        write_masks(dataset, np.zeros(dataset.sizes["superpixel"]), tmp_path / "m")
    with monkeypatch.context() as patch:
        crash_after(patch, prediction, "write_whole", 3)  # the mark and two masks
        with pytest.raises(CrashError) as raised:
            predict_masks(model, images, tmp_path / "m", run=RunOptions(overwrite=overwrite))
    assert any("while working on" in note for note in raised.value.__notes__)
    assert len(tree_bytes(tmp_path)) == 2
    hexes = "0123456789abcdef" * 2
    for name in (f"large.png.{hexes}.partial", "mine.partial", f"other.png.{hexes}.partial"):
        (tmp_path / "m" / name).write_bytes(b"half")
    report = predict_masks(model, images, tmp_path / "m", run=RunOptions(resume=True))
    assert report.resumed == 2
    left = {path.name for path in tmp_path.rglob("*.partial")}
    assert left == {"mine.partial", f"other.png.{hexes}.partial"}
    for path in tmp_path.rglob("*.partial"):
        path.unlink()
    write_masks(dataset, model.predict(dataset), tmp_path / "expected")
    assert tree_bytes(tmp_path / "m") == tree_bytes(tmp_path / "expected")


def test_masks_among_the_photos_are_no_photos(trained, tmp_path):
    images, _, model = trained
    shutil.copytree(images, tmp_path / "images")
    out = {"probability": tmp_path / "images/p", "std": tmp_path / "images/s"}
    for _ in range(2):
        report = predict_masks(
            model, tmp_path / "images", tmp_path / "images/m", **out, run=RunOptions(overwrite=True)
        )
        assert report.images == 6


def save_png(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(draw(1)[0]).save(path)


@pytest.mark.parametrize(
    ("images", "target"),
    [
        ("images", "images"),
        ("images", "link"),
        ("images/x.png", "images"),
        ("images/x.png", "link"),
        ("images", "elsewhere"),
    ],
)
def test_photos_are_never_written_over(trained, tmp_path, images, target):
    save_png(tmp_path / "images/x.png")
    save_png(tmp_path / "elsewhere/sub/x.png")
    (tmp_path / "images/sub").symlink_to(tmp_path / "elsewhere/sub", target_is_directory=True)
    (tmp_path / "link").symlink_to(tmp_path / "images", target_is_directory=True)
    before = tree_bytes(tmp_path)
    with pytest.raises(ValueError, match="choose another folder"):
        predict_masks(
            trained[2], tmp_path / images, tmp_path / target, run=RunOptions(overwrite=True)
        )
    assert tree_bytes(tmp_path) == before


def test_pictures_do_not_take_each_others_place(trained, tmp_path):
    for name in ("x.png", "p/x.png"):
        save_png(tmp_path / "images" / name)
    with pytest.raises(ValueError, match=r"out/p/x.png is a photo, or another picture"):
        predict_masks(
            trained[2], tmp_path / "images", tmp_path / "out", probability=tmp_path / "out/p"
        )


def test_a_full_disk_is_said(trained, tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(prediction, "write_whole", full)
    with pytest.raises(PipelineError, match=r"no space is left at .*free some space .*--resume"):
        predict_masks(trained[2], trained[0], tmp_path)


def test_folders_that_will_not_do(trained, tmp_path):
    images, _, model = trained
    (tmp_path / "file").write_text("precious")
    with pytest.raises(NotADirectoryError, match="is a file: name a folder"):
        predict_masks(model, images, tmp_path / "file", run=RunOptions(overwrite=True))
    with pytest.raises(ValueError, match="each kind of picture needs its own folder"):
        predict_masks(model, images, tmp_path / "m", std=tmp_path / "x/../m")
    with pytest.raises(ValueError, match="is a URL"):
        predict_masks(model, images, "s3://bucket/masks")
    with pytest.raises(FileNotFoundError, match="specify a photo or a folder of photos"):
        predict_masks(model, tmp_path / "nowhere", tmp_path / "m")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="there are no images in"):
        predict_masks(model, tmp_path / "empty", tmp_path / "m")


def test_two_photos_of_one_name(trained, tmp_path):
    _, _, model = trained
    save_pair(tmp_path, "x", 1)
    Image.fromarray(draw(2)[0]).save(tmp_path / "images/x.bmp")
    with pytest.raises(ValueError, match=r"several images would be written to .*x\.png: rename"):
        predict_masks(model, tmp_path / "images", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# -- bad photos and models ---------------------------------------------------------------------


@pytest.fixture
def spoilt(tmp_path, monkeypatch):
    """A folder of two good photos and a bad one between them."""
    monkeypatch.setattr(making, "IMAGES_PER_TASK", 1)
    for seed, name in enumerate(["a good", "bad", "z good"]):
        save_pair(tmp_path, name, seed)
    truncate(tmp_path / "images/bad.jpg", 1500)
    return tmp_path / "images"


def test_a_bad_photo_stops_it_and_what_is_done_is_kept(trained, spoilt, tmp_path):
    _, _, model = trained
    with pytest.raises(
        PipelineError, match=r"bad.jpg: corrupted.*\n.*--resume.*--on-err"
    ) as raised:
        predict_masks(model, spoilt, tmp_path / "out")
    assert [problem.name for problem in raised.value.problems] == ["bad.jpg"]
    save_pair(tmp_path, "bad", 3)
    assert predict_masks(model, spoilt, tmp_path / "out", run=RunOptions(resume=True)).images == 3
    assert len(tree_bytes(tmp_path / "out")) == 3


def test_a_bad_photo_is_skipped(trained, spoilt, tmp_path):
    _, _, model = trained
    report = predict_masks(model, spoilt, tmp_path / "out", run=RunOptions(on_error="skip"))
    assert report.images == 2
    assert [problem.name for problem in report.skipped] == ["bad.jpg"]
    assert tree_bytes(tmp_path / "out").keys() == {"a good.png", "z good.png"}
    with pytest.raises(PipelineError, match=r"none of the images could be used:\nbad.jpg"):
        predict_masks(model, spoilt / "bad.jpg", tmp_path / "one", run=RunOptions(on_error="skip"))
    with pytest.raises(ValueError, match="on_error must be"):
        predict_masks(model, spoilt, tmp_path / "out", run=RunOptions(on_error="cry"))


def test_a_name_that_is_no_text(trained, tmp_path):
    images, _, model = trained
    os.makedirs(tmp_path / "odd")
    folder = os.fsencode(str(tmp_path / "odd"))
    shutil.copy(images / "a.jpg", folder + b"/\xff.jpg")
    with open(folder + b"/bad\xff.jpg", "wb"):
        pass
    report = predict_masks(
        model, tmp_path / "odd", tmp_path / "out", run=RunOptions(on_error="skip")
    )
    assert [problem.name for problem in report.skipped] == ["bad?.jpg"]
    assert sorted(os.listdir(os.fsencode(tmp_path / "out"))) == [b".gpgc-model", b"\xff.png"]
    with pytest.raises(FileExistsError, match=r"\?.png exists: keep"):
        predict_masks(model, tmp_path / "odd", tmp_path / "out")


def test_a_photo_that_kills_its_workers_is_named(tmp_path):
    """The model was on the worker that died; the others still get it."""

    def deadly(image):
        if len(image) == 70:
            os._exit(1)
        return [np.moveaxis(image, -1, 0) / 255]

    for seed in range(3):
        save_pair(tmp_path, f"{seed}", seed)
    recipe = Recipe(backbone=deadly, superpixels=20)
    ingest(tmp_path / "images", tmp_path / "masks", tmp_path / "data.zarr", recipe=recipe)
    model = GP().fit(open_dataset(tmp_path / "data.zarr"))
    save_pair(tmp_path, "0 deadly", 3, height=70)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        connect(workers=1) as client,
    ):
        report = predict_masks(
            model,
            tmp_path / "images",
            tmp_path / "out",
            backbone=deadly,
            run=RunOptions(on_error="skip", client=client),
        )
    assert report.images == 3
    assert [problem.name for problem in report.skipped] == ["0 deadly.jpg"]
    assert "workers died repeatedly" in report.skipped[0].reason


def test_models_that_know_of_no_photos(trained, tmp_path):
    images, dataset, model = trained
    X, y = dataset["features"].values, dataset["label"].values
    on_arrays = GP().fit(X, y)
    with pytest.raises(ValueError, match=r"fitted on arrays.*in Python .*model.predict\(X\)"):
        predict_masks(on_arrays, images, tmp_path)
    other = GP().fit(dataset, np.where(y == 1, "disc", "grass"))
    with pytest.raises(ValueError, match="labels that are not the dataset's"):
        predict_masks(other, images, tmp_path)
    fewer = GP().fit(dataset.isel(feature=slice(10, None)))
    with pytest.raises(ValueError, match="gives 31 features, but the model was fitted with 21"):
        predict_masks(fewer, images, tmp_path)
    with pytest.raises(ValueError, match="not fitted"):
        predict_masks(GPGC(), images, tmp_path)
    assert model.dataset_["backbone"] == {"name": "colour"}
    with pytest.raises(ValueError, match="come from colour, not lite0"):
        predict_masks(model, images, tmp_path, backbone="lite0")
    assert not tree_bytes(tmp_path)


def test_probabilities_of_two_classes_of_several_seen(tmp_path):
    """Which of the classes is meant does not hang on how many the photos happened to show."""
    save_pair(tmp_path, "a", 1)
    save_pair(tmp_path, "b", 2)
    classes = {0: "grass", 255: "disc", 9: "unseen"}
    ingest(
        tmp_path / "images",
        tmp_path / "masks",
        tmp_path / "data.zarr",
        recipe=RECIPE,
        masks_as=MaskOptions(classes=classes),
    )
    dataset = open_dataset(tmp_path / "data.zarr")
    model = GP().fit(dataset)
    predict_masks(model, tmp_path / "images", tmp_path / "m", probability=tmp_path / "p")
    assert pixels(tmp_path / "p/a.png").min() >= 65535 // 2


# -- the command -------------------------------------------------------------------------------


@pytest.fixture
def run():
    app = typer.Typer()
    app.command(epilog=EXAMPLE)(predict)
    return lambda *arguments: CliRunner().invoke(app, [str(one) for one in arguments])


def test_the_command(client, run, trained, spoilt, tmp_path):
    images, dataset, _ = trained
    model = images.parent / "model.zarr"
    shown = run(model, images, "-o", tmp_path / "m", "--std", tmp_path / "s", "--workers", 1)
    assert shown.exit_code == 0, shown.output
    assert "masks of 6 images" in shown.stdout
    assert "deviations" in shown.stdout
    assert "images 6/6" in shown.stderr
    write_masks(dataset, load(model).predict(dataset), tmp_path / "expected")
    assert tree_bytes(tmp_path / "m") == tree_bytes(tmp_path / "expected")
    shown = run(model, images, "-o", tmp_path / "m", "--resume", "--json")
    assert json.loads(shown.stdout)["resumed"] == 6
    given = [model, spoilt, "-o", tmp_path / "x", "--on-error", "skip"]
    shown = run(*given, "--probability", tmp_path / "p", "--scheduler", client.scheduler.address)
    assert "1 files skipped" in shown.stdout
    assert len(tree_bytes(tmp_path / "p")) == 2
    assert "gpgc predict model.zarr" in run("--help").stdout
