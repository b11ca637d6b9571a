"""Estimators on datasets, and painting their answers back."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from PIL import Image

from gpgc_dask import GP, GPGC, open_dataset
from gpgc_dask.core.labels import code_labels
from gpgc_dask.data.dataset import background_class
from gpgc_dask.data.summary import summary
from gpgc_dask.data.training import training_arrays
from gpgc_dask.execution.row_blocks import Blocks, select_rows
from gpgc_dask.imaging.painting import paint_image, write_masks
from gpgc_dask.models.validation import to_vector
from gpgc_dask.pipelines.ingest import MaskOptions, Recipe, ingest
from tests.support.images import draw, save_pair, save_pairs

N_IMAGES = 24
CORRUPTED = (3, 11, 17)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Photos of which three have the mask of another one."""
    folder = tmp_path_factory.mktemp("photos")
    images, masks = save_pairs(folder, N_IMAGES)
    for number in CORRUPTED:
        Image.fromarray(draw(number + 40)[1][::-1, ::-1] * np.uint8(255)).save(
            masks / f"photo_{number:03d}.png"
        )
    ingest(images, masks, folder / "data.zarr", recipe=Recipe(backbone="colour", superpixels=60))
    return open_dataset(folder / "data.zarr")


@pytest.mark.parametrize("kind", [GPGC, GP])
def test_a_fit_on_a_dataset_is_that_on_its_arrays(dataset, kind):
    model = kind(redundancy=1.0).fit(dataset)
    names = dataset["image_name"].values[dataset["image"].values]
    arrays = kind(redundancy=1.0).fit(
        dataset["features"].values,
        dataset["label"].values,
        groups=[str(name) for name in names],
        feature_groups=[str(name) for name in dataset["feature_group"].values],
    )
    np.testing.assert_array_equal(model.groups_, arrays.groups_)
    np.testing.assert_allclose(model.noise_variance_, arrays.noise_variance_, rtol=1e-4)
    np.testing.assert_allclose(model.coef_, arrays.coef_, atol=1e-4)
    assert model.feature_scales_.keys() == {"appearance", "position", "constant"}


def test_the_corrupted_masks_are_detected(dataset):
    model = GPGC().fit(dataset)
    names = [f"photo_{number:03d}.jpg" for number in CORRUPTED]
    _, agreement = model.leave_group_out(dataset, return_agreement=True)
    assert sorted(agreement.groups[np.argsort(agreement.iou)[:3]]) == names
    assert sorted(model.groups_[np.argsort(-model.noise_variance_)[:3]]) == names


def test_predictions_are_lazy_and_the_same(dataset):
    model = GPGC().fit(dataset)
    lazy = model.predict(dataset)
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy, model.predict(dataset["features"].values))
    assert set(np.unique(lazy.compute())) == {0, 1}
    assert f"{N_IMAGES} groups (adjacent)" in str(GPGC().plan(dataset))


def test_a_fit_on_a_cluster_reads_the_store_there(client, dataset, small_tasks):
    distributed = GPGC(redundancy=1.0).fit(dataset)
    arrays = training_arrays(dataset)
    local = GPGC(redundancy=1.0).fit(
        np.asarray(arrays.X, dtype=np.float64),
        arrays.y,
        groups=arrays.groups,
        feature_groups=arrays.feature_groups,
    )
    np.testing.assert_allclose(distributed.noise_variance_, local.noise_variance_, rtol=1e-3)
    np.testing.assert_allclose(
        distributed.leave_group_out(dataset), local.leave_group_out(dataset), atol=1e-3
    )


def test_what_is_given_counts_more_than_the_dataset(dataset):
    y = 1 - dataset["label"].values
    # The second look treats object and background differently, so it is left out.
    model = GPGC(redundancy=1.0, rounds=0).fit(dataset, y)
    straight = GPGC(redundancy=1.0, rounds=0).fit(dataset)
    np.testing.assert_allclose(model.coef_, -straight.coef_, atol=1e-4)
    annotators = dataset["image"].values // 4
    assert GPGC().fit(dataset, groups=annotators).groups_.size == N_IMAGES // 4


def test_a_model_of_a_dataset_is_saved(dataset, tmp_path):
    from gpgc_dask import load

    model = GPGC().fit(dataset)
    model.save(tmp_path / "model.zarr")
    np.testing.assert_array_equal(
        load(tmp_path / "model.zarr").predict(dataset), model.predict(dataset)
    )


def test_void_carries_no_weight_and_void_images_are_left_out(tmp_path):
    images, masks = save_pairs(tmp_path, 12)
    save_pair(tmp_path, "void", 99)
    Image.fromarray(np.full((60, 80), 9, dtype=np.uint8)).save(masks / "void.png")
    half = (draw(0)[1] * 255).astype(np.uint8)
    half[:, :40] = 9
    Image.fromarray(half).save(masks / "photo_000.png")
    ingest(
        images,
        masks,
        tmp_path / "data.zarr",
        recipe=Recipe(backbone="colour", superpixels=60),
        masks_as=MaskOptions(foreground=[255], void=[9]),
    )
    opened = open_dataset(tmp_path / "data.zarr")
    weight = opened["weight"].values
    first, last = opened["image"].values == 0, opened["image"].values == 12
    assert 0.3 < np.mean(weight[first] == 0) < 0.7
    assert not weight[last].any()
    assert opened["flags"].values[12] == "mostly void"
    assert summary(opened)["void"] == pytest.approx(np.mean(weight == 0))
    with pytest.warns(UserWarning, match=r"1 image.* left out of the fit: void\.jpg"):
        model = GPGC().fit(opened)
    assert model.groups_.size == 12
    kept = ~last
    plain = GPGC().fit(
        opened["features"].values[kept],
        opened["label"].values[kept],
        groups=opened["image"].values[kept],
        feature_groups=[str(name) for name in opened["feature_group"].values],
        sample_weight=weight[kept],
    )
    np.testing.assert_allclose(model.noise_variance_, plain.noise_variance_, rtol=1e-3)
    with pytest.warns(UserWarning, match="1 of 13 groups were not in the fit"):
        values = model.leave_group_out(opened)
    assert values.shape == (opened.sizes["superpixel"],)
    assert GP(redundancy=1.0).fit(opened).converged_


def test_selected_rows_stay_reads_of_their_own(dataset):
    X = da.from_array(np.arange(60.0).reshape(20, 3), chunks=(6, -1))
    keep = np.ones(20, dtype=bool)
    keep[[0, 7, 8, 19]] = False
    keep[12:18] = False
    selected = select_rows(X, keep)
    assert selected.chunks[0] == (5, 4, 0, 1)
    np.testing.assert_array_equal(selected, np.asarray(X)[keep])
    stored = dataset["features"].data
    assert Blocks(stored).readable
    assert Blocks(select_rows(stored, np.arange(len(stored)) > 5)).readable


def test_categories_are_labels():
    names = pd.Categorical.from_codes([2, 0, 0, 2], ["zebra", "unused", "ant"])
    labels, codes = code_labels("groups", to_vector("groups", names, 4))
    assert labels.tolist() == ["ant", "zebra"]
    assert codes.tolist() == [0, 1, 1, 0]
    labels, _ = code_labels("groups", to_vector("groups", pd.Series(names), 4))
    assert labels.tolist() == ["ant", "zebra"]
    with pytest.raises(ValueError, match=r"groups has NaN or None at position\(s\) 1"):
        code_labels("groups", pd.Categorical.from_codes([0, -1], ["a"]))
    with pytest.raises(ValueError, match="groups has 4 values but X has 5 rows"):
        to_vector("groups", names, 5)


def test_training_arrays(dataset):
    given = training_arrays(dataset)
    assert given.groups[0] == "photo_000.jpg"
    assert given.area.sum() == N_IMAGES * 60 * 80


# -- painting ----------------------------------------------------------------------------------


def test_masks_are_written_at_the_photos_own_size(tmp_path):
    save_pair(tmp_path, "small", 1)
    save_pair(tmp_path, "sub/large one", 2, height=300, width=201)
    ingest(
        tmp_path / "images",
        tmp_path / "masks",
        tmp_path / "data.zarr",
        recipe=Recipe(backbone="colour", side=128),
    )
    opened = open_dataset(tmp_path / "data.zarr")
    assert opened["segments"].shape == (2, 64, 64)
    paths = write_masks(opened, opened["label"].data, tmp_path / "out")
    assert [path.relative_to(tmp_path / "out").as_posix() for path in paths] == [
        "small.png",
        "sub/large one.png",
    ]
    for photo, (path, seed, size) in enumerate(
        zip(paths, (1, 2), ((60, 80), (300, 201)), strict=True)
    ):
        painted = np.asarray(Image.open(path))
        mask = draw(seed, *size)[1]
        assert painted.shape == mask.shape
        assert set(np.unique(painted)) == {0, 255}
        assert np.mean((painted > 0) == mask) > 0.95
        np.testing.assert_array_equal(
            painted > 0, paint_image(opened, opened["label"].values, photo)
        )


def test_classes_are_painted_with_their_own_values(tmp_path):
    save_pair(tmp_path, "a", 1)
    Image.fromarray(draw(1)[1] * np.uint8(5) + np.uint8(2)).save(tmp_path / "masks/a.png")
    ingest(
        tmp_path / "images",
        tmp_path / "masks",
        tmp_path / "data.zarr",
        recipe=Recipe(backbone="colour"),
        masks_as=MaskOptions(classes={2: "grass", 7: "disc"}),
    )
    opened = open_dataset(tmp_path / "data.zarr")
    assert opened.attrs["classes"] == ["grass", "disc"]
    (path,) = write_masks(opened, opened["label"].values, tmp_path / "out")
    assert set(np.unique(Image.open(path))) == {2, 7}


def test_painting_on_a_cluster(client, dataset, tmp_path):
    paths = write_masks(dataset, dataset["label"].values, tmp_path)
    assert len(paths) == N_IMAGES
    painted = np.asarray(Image.open(paths[5]))
    np.testing.assert_array_equal(painted > 0, paint_image(dataset, dataset["label"].values, 5))


def test_labels_that_cannot_be_painted(dataset, tmp_path):
    n = dataset.sizes["superpixel"]
    with pytest.raises(ValueError, match="one class code per superpixel"):
        write_masks(dataset, np.zeros(n - 1, dtype=int), tmp_path)
    with pytest.raises(ValueError, match="class codes 0 … 1"):
        write_masks(dataset, np.full(n, 2), tmp_path)
    whole = np.zeros(n)
    for part in (dataset.isel(photo=slice(3)), dataset.isel(superpixel=slice(1, None))):
        with pytest.raises(ValueError, match="pass the whole dataset"):
            write_masks(part, whole[: part.sizes["superpixel"]], tmp_path)
    assert not list(tmp_path.iterdir())
    assert len(write_masks(dataset, whole, tmp_path)) == N_IMAGES


# -- opening -----------------------------------------------------------------------------------


def test_opening_what_is_no_dataset(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"does not exist: make a dataset with gpgc ingest"):
        open_dataset(tmp_path / "nothing.zarr")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is not a gpgc_dask dataset"):
        open_dataset(tmp_path)


def test_newer_and_corrupted_datasets_are_named(dataset, tmp_path):
    import shutil

    import zarr

    source = dataset.encoding["source"]
    shutil.copytree(source, tmp_path / "data.zarr")
    shutil.rmtree(tmp_path / "data.zarr/pixels")
    with pytest.raises(ValueError, match="is corrupted: it lacks pixels"):
        open_dataset(tmp_path / "data.zarr")
    zarr.open_group(tmp_path / "data.zarr", mode="r+").update_attributes({"format_version": 99})
    with pytest.raises(ValueError, match="newer gpgc_dask"):
        open_dataset(tmp_path / "data.zarr")


def test_the_view_in_a_notebook_names_everything(dataset):
    view = dataset._repr_html_()
    for text in ("features", "image_name", "pooled over the superpixel", "background", "colour"):
        assert text in view


@pytest.mark.parametrize(
    ("classes", "values", "background"),
    [
        (["ground", "horse"], [0, 255], 0),
        (["sky", "road"], [0, 1], 0),
        (["sky", "road", "car"], [0, 1, 2], -1),
        (["car", " Background", "road"], [1, 0, 2], 1),
        (["car", "road"], [1, 2], -1),
    ],
)
def test_which_class_is_the_background(classes, values, background):
    attributes = {"classes": classes, "class_values": values}
    assert background_class(xr.Dataset(attrs=attributes)) == background
