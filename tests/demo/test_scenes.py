"""The scenes of the demo match their masks, and corrupted masks are wrong as their kind says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy import ndimage

from gpgc_dask.demo.corruption import CORRUPTIONS, WRONG, corrupt_mask, overlap
from gpgc_dask.demo.folders import write_set
from gpgc_dask.demo.scenes import draw_scene
from tests.support.images import tree_bytes

pytestmark = pytest.mark.newest

SEEDS = range(16)


@pytest.fixture(scope="module")
def scenes():
    return [draw_scene(seed) for seed in SEEDS]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "set"
    return folder, write_set(folder, n=28, corrupted=0.5, seed=3)


def bounding_box(mask):
    box = np.zeros_like(mask)
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    box[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = True
    return box


def read(path):
    with Image.open(path) as image:
        assert image.mode == "L"
        return np.asarray(image)


def test_a_seed_is_a_scene(scenes):
    again = draw_scene(SEEDS[0])
    np.testing.assert_array_equal(again.photo, scenes[0].photo)
    np.testing.assert_array_equal(again.mask, scenes[0].mask)
    np.testing.assert_array_equal(again.other, scenes[0].other)
    assert len({scene.photo.tobytes() for scene in scenes}) == len(scenes)
    assert len({scene.mask.tobytes() for scene in scenes}) == len(scenes)


@pytest.mark.parametrize(("height", "width"), [(240, 320), (120, 160), (150, 100), (90, 300)])
def test_size(height, width):
    scene = draw_scene(5, height, width)
    assert scene.photo.shape == (height, width, 3)
    assert scene.photo.dtype == np.uint8
    assert scene.mask.shape == scene.other.shape == (height, width)
    assert scene.mask.dtype == scene.other.dtype == np.bool_
    assert scene.mask.any()


def test_target_lies_inside_and_is_large_enough(scenes):
    for scene in scenes:
        assert 0.06 < scene.mask.mean() < 0.3
        inner = scene.mask[4:-4, 4:-4]
        assert inner.sum() == scene.mask.sum()


def test_target_is_one_piece_and_no_box(scenes):
    for scene in scenes:
        assert ndimage.label(scene.mask)[1] == 1
        assert overlap(scene.mask, bounding_box(scene.mask)) < 0.75


def test_other_is_large_enough_and_apart(scenes):
    for scene in scenes:
        assert 0.015 < scene.other.mean() < 0.2
        assert not (scene.other & scene.mask).any()


@pytest.mark.parametrize("what", ["mask", "other"])
def test_outlines_are_edges_in_the_photo(scenes, what):
    """Brightness changes more across the outlines than it does elsewhere."""
    ratios = []
    for scene in scenes:
        slope = ndimage.gaussian_gradient_magnitude(scene.photo.mean(2), 1.0)
        mask = getattr(scene, what)
        outline = ndimage.binary_dilation(mask) ^ ndimage.binary_erosion(mask)
        elsewhere = ~ndimage.binary_dilation(scene.mask | scene.other, iterations=4)
        ratios.append(slope[outline].mean() / slope[elsewhere].mean())
    assert min(ratios) > 1.2
    assert np.median(ratios) > 2


def test_photos_use_the_whole_range(scenes):
    for scene in scenes:
        dark, light = np.quantile(scene.photo, (0.01, 0.99))
        assert dark < 80
        assert light > 170
        assert (scene.photo == 255).all(2).mean() < 0.1


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_corrupted_masks_are_wrong_as_their_kind_describes(scenes, kind):
    rng = np.random.default_rng(0)
    for number, scene in enumerate(scenes):
        truth, other_masks = scene.mask.copy(), [s.mask for s in scenes if s is not scene]
        mask = corrupt_mask(kind, scene.mask, scene.other, other_masks, rng)
        np.testing.assert_array_equal(scene.mask, truth, err_msg=f"scene {number} was changed")
        assert mask.shape == truth.shape
        assert mask.dtype == np.bool_
        assert overlap(mask, truth) < WRONG <= 0.6
        if kind == "shifted":
            assert 0 < mask.sum() <= truth.sum()
        elif kind == "dilated":
            assert mask[truth].all()
            assert not np.array_equal(mask, bounding_box(mask))
        elif kind == "box":
            np.testing.assert_array_equal(mask, bounding_box(mask))
            assert mask[truth].all()
        elif kind == "wrong object":
            np.testing.assert_array_equal(mask, scene.other)
        elif kind == "empty":
            assert not mask.any()
        else:
            assert any(np.array_equal(mask, other) for other in other_masks)


def test_shifted_masks_keep_their_outline():
    truth = np.zeros((100, 100), dtype=bool)
    truth[40:55, 45:60] = np.tri(15, dtype=bool)
    for seed in range(20):
        mask = corrupt_mask("shifted", truth, truth, [], np.random.default_rng(seed))
        np.testing.assert_array_equal(truth[bounding_box(truth)], mask[bounding_box(mask)])


def test_corruption_is_seeded(scenes):
    scene, another = scenes[:2]
    for kind in CORRUPTIONS:
        first, again = (
            corrupt_mask(kind, scene.mask, scene.other, [another.mask], np.random.default_rng(4))
            for _ in range(2)
        )
        np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("kind", ["shifted", "dilated", "box"])
def test_strengths_vary(scenes, kind):
    scene, rng = scenes[1], np.random.default_rng(0)
    masks = {corrupt_mask(kind, scene.mask, scene.other, [], rng).tobytes() for _ in range(8)}
    assert len(masks) > 4


def test_what_would_be_right_is_tried_again(scenes):
    """A full box is its own bounding box, and the other mask may be the same."""
    full = np.zeros((60, 80), dtype=bool)
    full[20:40, 25:55] = True
    for seed in range(20):
        rng = np.random.default_rng(seed)
        for kind in ("shifted", "dilated", "box"):
            assert overlap(corrupt_mask(kind, full, ~full, [], rng), full) < WRONG
        own = scenes[0].mask
        assert overlap(corrupt_mask("left over", own, ~own, [own], rng), own) < WRONG


def test_what_cannot_be_corrupted_is_rejected(scenes):
    mask = scenes[0].mask
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="from another photo"):
        corrupt_mask("left over", mask, ~mask, [], rng)
    with pytest.raises(ValueError, match="nearly right"):
        corrupt_mask("wrong object", mask, mask, [], rng)


def test_set_has_the_files_that_it_lists(written):
    folder, table = written
    assert sorted(path.name for path in folder.iterdir()) == [
        "corrupted.csv",
        "images",
        "masks",
        "truth",
    ]
    stems = [f"scene_{number:03d}" for number in range(28)]
    assert table.image.tolist() == [f"{stem}.jpg" for stem in stems]
    for part, ending in (("images", "jpg"), ("masks", "png"), ("truth", "png")):
        names = sorted(path.name for path in (folder / part).iterdir())
        assert names == [f"{stem}.{ending}" for stem in stems]
    stored = pd.read_csv(folder / "corrupted.csv", keep_default_na=False)
    pd.testing.assert_frame_equal(stored, table, check_dtype=False)


def test_set_is_corrupted_where_it_lists(written):
    folder, table = written
    for image, kind in zip(table.image, table.kind, strict=True):
        mask, truth = (
            read(folder / part / image.replace("jpg", "png")) for part in ("masks", "truth")
        )
        assert set(np.unique(truth)) == {0, 255}
        assert set(np.unique(mask)) <= {0, 255}
        assert np.array_equal(mask, truth) == (kind == "")
        assert (overlap(mask > 0, truth > 0) < WRONG) == (kind != "")
        with Image.open(folder / "images" / image) as photo:
            assert photo.size == mask.shape[::-1]
            assert photo.mode == "RGB"


def test_set_corrupts_in_all_ways_alike_and_anywhere(written):
    _, table = written
    counts = table.kind.value_counts()
    assert counts[""] == 14
    assert set(counts.index) == {"", *CORRUPTIONS}
    assert set(counts.drop("")) == {2, 3}
    corrupted = np.flatnonzero(table.kind != "")
    assert corrupted.min() < 9
    assert corrupted.max() > 18
    assert np.ptp(np.diff(corrupted)) > 0


@pytest.mark.parametrize(("share", "count"), [(0, 0), (1 / 3, 2), (1, 5)])
def test_share_of_corrupted_masks(tmp_path, share, count):
    table = write_set(tmp_path, n=5, corrupted=share, seed=1)
    assert (table.kind != "").sum() == count


def test_set_of_a_seed(tmp_path):
    for name, seed in (("first", 7), ("again", 7), ("another", 8)):
        write_set(tmp_path / name, n=4, corrupted=0.5, seed=seed)
    first, again, another = (tree_bytes(tmp_path / name) for name in ("first", "again", "another"))
    assert first == again
    assert first["images/scene_000.jpg"] != another["images/scene_000.jpg"]


def test_set_reports_its_progress(tmp_path):
    heard = []
    write_set(tmp_path, n=3, progress=heard.append)
    assert [(one.done, one.total) for one in heard] == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_wrong_sets_are_rejected(tmp_path):
    with pytest.raises(ValueError, match="2 or more"):
        write_set(tmp_path, n=1)
    with pytest.raises(ValueError, match="0 … 1"):
        write_set(tmp_path, n=4, corrupted=1.5)
    (tmp_path / "masks").mkdir()
    with pytest.raises(FileExistsError, match="choose another folder"):
        write_set(tmp_path, n=4)
    assert not (tmp_path / "images").exists()
