"""Large scenes: tiles are images of the dataset, scores add up, and masks have no seams."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tifffile
from PIL import Image

from gpgc_dask import (
    GPGC,
    PhotoFormat,
    RunOptions,
    ingest,
    open_dataset,
    predict_masks,
    score,
    update,
)
from gpgc_dask.core.errors import InputError, PipelineError
from gpgc_dask.imaging.dataset_masks import DatasetMasks
from gpgc_dask.imaging.mask_sources import open_source
from gpgc_dask.imaging.photos import read_orientation
from gpgc_dask.pipelines.mask_check import check_masks
from gpgc_dask.results.pictures import paint_pictures
from gpgc_dask.results.scenes import rank_scenes
from gpgc_dask.results.selection import write_folder
from tests.support.ingesting import QUICK

HEIGHT, WIDTH, TILE, OVERLAP = 240, 330, 96, 16
RECIPE = replace(QUICK, superpixels=60, photos=PhotoFormat(tile=TILE, overlap=OVERLAP))


def draw_scene(seed):
    """A river through fields: photo and mask."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    river = np.abs(y - HEIGHT / 2 - 50 * np.sin(x / 40 + seed)) < 25
    fields = np.array([90, 130, 60]) + rng.normal(0, 12, (HEIGHT, WIDTH, 3))
    water = np.array([40, 70, 140]) + rng.normal(0, 8, (HEIGHT, WIDTH, 3))
    photo = np.where(river[..., None], water, fields)
    return np.clip(photo, 0, 255).astype(np.uint8), river


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Three scenes, the last of which has a wrong mask, their dataset, and a model of it."""
    folder = tmp_path_factory.mktemp("scenes")
    (folder / "images").mkdir()
    (folder / "masks").mkdir()
    for seed in range(3):
        photo, river = draw_scene(seed)
        options = {"photometric": "rgb", "tile": (64, 64), "compression": "zlib"}
        tifffile.imwrite(folder / "images" / f"s{seed}.tif", photo, **options)
        given = river[::-1] if seed == 2 else river
        Image.fromarray(given).save(folder / "masks" / f"s{seed}.png")
    ingest(folder / "images", folder / "masks", folder / "data.zarr", recipe=RECIPE)
    return folder


@pytest.fixture(scope="module")
def model(place):
    dataset = open_dataset(place / "data.zarr")
    model = GPGC(rounds=0).fit(dataset)
    model.review(dataset)
    return model


def test_tiles_are_images_and_scenes_are_groups(place):
    dataset = open_dataset(place / "data.zarr")
    names = dataset["image_name"].values.tolist()
    assert names[:2] == ["s0.tif/000-000", "s0.tif/000-001"]
    assert len(names) == 3 * 3 * 5
    assert set(dataset["group"].values.tolist()) == {"s0.tif", "s1.tif", "s2.tif"}
    river = draw_scene(0)[1]
    masks, painted = DatasetMasks.from_dataset(dataset), np.full(river.shape, 9)
    own = [n for n, name in enumerate(names) if name.startswith("s0")]
    for number in own:
        path = dataset["image_path"].values[number]
        codes = masks.codes(number, read_orientation(path))
        assert codes.shape == (dataset["height"].values[number], dataset["width"].values[number])
        _, place_of = path.rsplit("core=", 1)
        x, y, w, h = map(int, place_of.split(","))
        core = codes[codes != 255].reshape(h, w)
        painted[y : y + h, x : x + w] = core
    np.testing.assert_array_equal(painted, river)


def test_pictures_show_the_tiles(place, model):
    dataset = open_dataset(place / "data.zarr")
    labels = model.predict(dataset)
    (_, picture), *_ = paint_pictures(dataset, labels, np.array([7]), 512)
    assert not picture.gone
    assert not picture.changed


def test_scores_add_up(place, model):
    table = model.review_
    scenes = rank_scenes(table)
    assert scenes["scene"].tolist()[0] == "s2.tif"
    assert scenes["tiles"].tolist() == [15, 15, 15]
    assert scenes["pixels"].tolist() == [HEIGHT * WIDTH] * 3
    own = table[table["image"].str.startswith("s1.tif")]
    areas = [int(p.rsplit(",", 2)[1]) * int(p.rsplit(",", 1)[1]) for p in own["image_path"]]
    (whole,) = scenes[scenes["scene"] == "s1.tif"].to_dict("records")
    for name in ("quality", "agreement"):
        assert (own[name] * areas).sum() == pytest.approx(whole[name] * sum(areas))
    scored = score(model, place / "images", place / "masks").table
    assert rank_scenes(scored)["scene"].tolist()[0] == "s2.tif"
    with pytest.raises(InputError, match="no image is a tile"):
        rank_scenes(table.assign(image_path="photo.jpg"))


def test_masks_have_no_seams(place, model, tmp_path):
    photo, river = draw_scene(9)
    (tmp_path / "new").mkdir()
    Image.fromarray(photo).save(tmp_path / "new" / "scene.png")
    folders = {"probability": tmp_path / "p", "std": tmp_path / "s"}
    predict_masks(model, tmp_path / "new", tmp_path / "masks", **folders)
    mask = np.asarray(Image.open(tmp_path / "masks" / "scene.png")) > 0
    assert mask.shape == river.shape
    wrong = mask != river
    assert wrong.mean() < 0.05
    dataset = open_dataset(place / "data.zarr")
    cores = {path.rsplit("core=", 1)[1] for path in dataset["image_path"].values.tolist()}
    near = np.zeros_like(river)
    for core in cores:
        x, y, _, _ = map(int, core.split(","))
        near[max(y - 3, 0) : y + 3] |= y > 0
        near[:, max(x - 3, 0) : x + 3] |= x > 0
    assert wrong[near].mean() < wrong[~near].mean() + 0.03
    assert Image.open(tmp_path / "p" / "scene.png").size == (WIDTH, HEIGHT)
    assert np.all(np.asarray(Image.open(tmp_path / "s" / "scene.tiff")) > 0)
    whole = predict_masks(model, tmp_path / "new", tmp_path / "whole", tile=0)
    assert whole.images == 1
    assert [path.name for path in (tmp_path / "masks").iterdir() if path.is_dir()] == []


def test_updates_cut_as_the_ingest_did(place, tmp_path):
    for name in ("images", "masks"):
        (tmp_path / name).mkdir()
        for path in (place / name).iterdir():
            (tmp_path / name / path.name).write_bytes(path.read_bytes())
    target = tmp_path / "data.zarr"
    ingest(tmp_path / "images", tmp_path / "masks", target, recipe=RECIPE)
    photo, river = draw_scene(5)
    Image.fromarray(photo).save(tmp_path / "images" / "s5.png")
    Image.fromarray(river).save(tmp_path / "masks" / "s5.png")
    (tmp_path / "images" / "s0.tif").unlink()
    run = RunOptions(on_error="skip")
    report = update(target, tmp_path / "images", tmp_path / "masks", run=run)
    assert (report.new, report.unchanged, len(report.vanished)) == (15, 30, 15)
    assert update(target, tmp_path / "images", tmp_path / "masks", run=run).changed is False
    paths = open_dataset(target)["image_path"].values.tolist()
    assert sum("images/s0.tif#xywh=" in path for path in paths) == 15


def test_a_single_scene_and_copies(place, tmp_path):
    for name, ending in (("images", "tif"), ("masks", "png")):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"s0.{ending}").symlink_to(place / name / f"s0.{ending}")
    ingest(tmp_path / "images", tmp_path / "masks", tmp_path / "data.zarr", recipe=RECIPE)
    dataset = open_dataset(tmp_path / "data.zarr")
    assert len(set(dataset["group"].values.tolist())) == 15
    names = ("image", "image_path", "mask_path")
    stored = dict(zip(names, ("image_name", "image_path", "mask_path"), strict=True))
    table = dataset[list(stored.values())].to_dataframe().rename(columns={"image_name": "image"})
    with pytest.raises(InputError, match="tiles of scenes and slices of volumes"):
        write_folder(table, dataset.attrs["source"], tmp_path / "copy")


def test_masks_of_scenes_are_surveyed_in_parts(place, tmp_path, monkeypatch):
    """A scene above the limit of Pillow is not decoded as a whole."""
    monkeypatch.setattr("gpgc_dask.imaging.mask_survey.MAX_PIXELS", HEIGHT * WIDTH - 1)
    monkeypatch.setattr("gpgc_dask.imaging.mask_survey.PART_SIDE", 64)
    source = open_source(place / "images", place / "masks")
    survey = check_masks(source, "raise")
    assert survey.describe().startswith("3 masks (3 scene); in 3 of them values 0 ")
    assert survey.tally.values.total() == 3 * 16 * 64**2
    with pytest.raises(PipelineError, match=r"too large to decode as a whole: .*--tile 1024"):
        ingest(place / "images", place / "masks", tmp_path / "x.zarr", recipe=QUICK)
    assert not (tmp_path / "x.zarr").exists()
