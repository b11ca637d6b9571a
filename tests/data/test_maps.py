"""Maps of superpixels and masks: what is stored, and how it is read."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import xarray as xr
from PIL import Image

from gpgc_dask import MaskOptions, Recipe, ingest, open_dataset
from gpgc_dask.core.errors import CorruptedError
from gpgc_dask.data.maps import image_maps, map_chunks
from gpgc_dask.data.schema import OUTSIDE, VOID
from gpgc_dask.imaging.painting import segment_chunks
from gpgc_dask.imaging.superpixels import sample_codes
from tests.support.images import draw, save_pair

SIZES = ((60, 80), (50, 30), (33, 90), (200, 120), (60, 80))


def drawn_mask(number):
    """Values 2 and 7, and a void corner of 255."""
    mask = np.where(draw(number, *SIZES[number])[1], np.uint8(7), np.uint8(2))
    mask[: number + 4, :9] = 255
    return mask


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Photos of different sizes, two maps per chunk."""
    folder = tmp_path_factory.mktemp("maps")
    for number, (height, width) in enumerate(SIZES):
        save_pair(folder, f"photo_{number}", number, height=height, width=width)
        Image.fromarray(drawn_mask(number)).save(folder / f"masks/photo_{number}.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpgc_dask.data.writing.SEGMENT_BYTES", 2 * 2 * 90 * 100)
        ingest(
            folder / "images",
            folder / "masks",
            folder / "data.zarr",
            recipe=Recipe(backbone="colour", superpixels=20, side=200),
            masks_as=MaskOptions(classes={2: "grass", 7: "disc"}, void=(255,)),
        )
    return open_dataset(folder / "data.zarr")


def as_codes(mask):
    codes = (mask == 7).astype(np.uint8)
    codes[mask == 255] = VOID
    return codes


def test_masks_are_stored_at_the_size_of_the_superpixels(dataset):
    assert dataset["mask"].dtype == np.uint8
    assert dataset["mask"].data.chunks == dataset["segments"].data.chunks
    segments, mask = dataset["segments"].values, dataset["mask"].values
    assert np.all(mask[segments == OUTSIDE] == VOID)
    for photo, (height, width) in enumerate(SIZES):
        h, w = (int(dataset[f"segment_{name}"][photo]) for name in ("height", "width"))
        codes = as_codes(drawn_mask(photo))
        for y in range(h):
            for x in range(w):
                centre = int((y + 0.5) * height / h), int((x + 0.5) * width / w)
                assert mask[photo, y, x] == codes[centre]


def test_sampling_at_the_same_size_changes_nothing():
    codes = np.random.default_rng(0).integers(0, 4, (7, 5)).astype(np.uint8)
    np.testing.assert_array_equal(sample_codes(codes, 7, 5), codes)
    np.testing.assert_array_equal(sample_codes(codes, 1, 1), codes[3:4, 2:3])


@pytest.mark.parametrize("photos", [None, np.array([4, 1]), np.array([2])])
def test_maps_are_read_chunk_by_chunk_without_the_padding(dataset, photos):
    chunks = list(image_maps(dataset, photos))
    wanted = range(len(SIZES)) if photos is None else sorted(photos.tolist())
    assert [[photo for photo, _, _ in chunk] for chunk in chunks] == [
        own
        for own in ([photo for photo in pair if photo in wanted] for pair in ((0, 1), (2, 3), (4,)))
        if own
    ]
    for photo, segments, mask in (one for chunk in chunks for one in chunk):
        shape = tuple(int(dataset[f"segment_{name}"][photo]) for name in ("height", "width"))
        assert segments.shape == mask.shape == shape
        n = int((dataset["image"] == photo).sum())
        np.testing.assert_array_equal(np.unique(segments), np.arange(n))
        np.testing.assert_array_equal(mask, dataset["mask"].values[photo, : shape[0], : shape[1]])
    only_segments = [one for chunk in segment_chunks(dataset, photos) for one in chunk]
    for (photo, segments), one in zip(only_segments, chain.from_iterable(chunks), strict=True):
        assert photo == one[0]
        np.testing.assert_array_equal(segments, one[1])


def test_each_chunk_is_read_once(dataset, sync):
    read = []

    def count(block, block_info=None):
        read.append(block_info[0]["chunk-location"][0])
        return block

    counted = dataset["mask"].data.map_blocks(count, dtype=np.uint8, meta=np.empty((0, 0, 0), "u1"))
    watched = dataset.assign(mask=xr.DataArray(counted, dims=dataset["mask"].dims))
    assert sum(len(chunk) for chunk in map_chunks(watched, ("mask",))) == len(SIZES)
    assert read == [0, 1, 2]


def test_a_class_that_does_not_exist_is_named(dataset):
    wrong = dataset["mask"].values.copy()
    wrong[3, 0, 0] = 2
    spoilt = dataset.assign(mask=dataset["mask"].copy(data=dataset["mask"].data * 0 + wrong))
    with pytest.raises(CorruptedError, match=r"mask of photo_3.jpg has class 2 of 2; create it"):
        list(image_maps(spoilt))
