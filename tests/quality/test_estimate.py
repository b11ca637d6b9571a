"""Estimated quality on drawn scenes whose true masks are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from sklearn.metrics import roc_auc_score

from gpgc_dask.data.schema import VOID
from gpgc_dask.quality.corruption import corrupt
from gpgc_dask.quality.descriptors import mask_iou
from gpgc_dask.quality.estimate import MIN_IMAGES, estimate_quality
from gpgc_dask.quality.predictions import Evidence, with_context

SIDE, CELL = 64, 4
CELLS = (SIDE // CELL) ** 2
SEGMENTS = (np.arange(SIDE)[:, None] // CELL * (SIDE // CELL) + np.arange(SIDE) // CELL).astype(
    np.uint16
)


def _truth(rng: np.random.Generator, n_classes: int) -> np.ndarray:
    rows, columns = np.ogrid[:SIDE, :SIDE]
    mask = np.zeros((SIDE, SIDE), dtype=np.uint8)
    for code in range(1, n_classes):
        y, x = rng.uniform(15, SIDE - 15, 2)
        a, b = rng.uniform(8, 18, 2)
        mask[((rows - y) / a) ** 2 + ((columns - x) / b) ** 2 < 1] = code
    return mask


def _scenes(n: int, n_classes: int, seed: int = 0) -> tuple[xr.Dataset, Evidence, np.ndarray]:
    """Scenes with noisy predictions, every fourth with an error; and their true quality."""
    rng = np.random.default_rng(seed)
    masks, values, codes, quality = [], [], [], []
    for number in range(n):
        truth = _truth(rng, n_classes)
        mask = corrupt(truth, _truth(rng, n_classes), n_classes, rng) if number % 4 == 0 else truth
        own = np.array([np.bincount(truth[s == SEGMENTS]).argmax() for s in range(CELLS)])
        targets = 2.0 * np.eye(n_classes)[own] - 1
        noisy = 0.5 * targets + 0.4 * rng.normal(size=targets.shape)
        values.append(noisy[:, 1] if n_classes == 2 else noisy)
        codes.append([np.bincount(mask[s == SEGMENTS]).argmax() for s in range(CELLS)])
        masks.append(mask)
        quality.append(mask_iou(mask, truth, n_classes))
    dataset = xr.Dataset(
        {
            "segments": (("photo", "y", "x"), np.stack([SEGMENTS] * n)),
            "mask": (("photo", "y", "x"), np.stack(masks)),
            "segment_height": ("photo", np.full(n, SIDE)),
            "segment_width": ("photo", np.full(n, SIDE)),
            "image_name": ("photo", [f"{number}.png" for number in range(n)]),
        },
        attrs={"classes": [str(code) for code in range(n_classes)]},
    )
    evidence = Evidence(
        values=np.concatenate(values),
        codes=np.concatenate(codes),
        area=np.full(n * CELLS, float(CELL**2)),
        image=np.repeat(np.arange(n), CELLS),
        noise=np.full(n, np.nan),
        classes=np.arange(n_classes),
    )
    return dataset, evidence, np.array(quality)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_quality_is_close_to_the_true_iou(n_classes):
    dataset, evidence, truth = _scenes(80, n_classes)
    table = estimate_quality(dataset, evidence)
    quality = table["quality"].to_numpy()
    assert roc_auc_score(truth < 0.7, -quality) > 0.95
    assert np.abs(quality - truth).mean() < 0.1
    inside = (truth >= table["quality_low"]) & (truth <= table["quality_high"])
    assert inside.mean() > 0.75
    bad = table["bad_probability"].sum()
    assert abs(bad - (truth < 0.5).sum()) < 0.1 * truth.size


def test_the_estimate_is_deterministic():
    dataset, evidence, _ = _scenes(40, 2)
    first, second = (estimate_quality(dataset, evidence) for _ in range(2))
    assert first.equals(second)


def test_intervals_contain_the_estimate():
    dataset, evidence, _ = _scenes(40, 2)
    table = estimate_quality(dataset, evidence)
    assert (table["quality_low"] <= table["quality"]).all()
    assert (table["quality"] <= table["quality_high"]).all()
    assert table.to_numpy().min() >= 0
    assert table.to_numpy().max() <= 1


def test_few_images_have_a_quality_without_an_interval():
    dataset, evidence, truth = _scenes(MIN_IMAGES - 1, 2)
    table = estimate_quality(dataset, evidence)
    assert table["quality"].between(0, 1).all()
    assert roc_auc_score(truth < 0.9, -table["quality"]) > 0.9
    assert table[["quality_low", "quality_high", "bad_probability"]].isna().all().all()


def test_images_without_labels_have_no_quality():
    dataset, evidence, _ = _scenes(40, 2)
    evidence.area[evidence.image == 7] = 0
    dataset["mask"][7] = VOID
    table = estimate_quality(dataset, evidence)
    assert table.isna().all(axis=1).to_numpy().nonzero()[0].tolist() == [7]


def test_copies_of_a_sample_of_the_images_are_enough(monkeypatch):
    dataset, evidence, truth = _scenes(60, 2)
    whole = estimate_quality(dataset, evidence)
    for n_originals in (7, 20, 29):
        monkeypatch.setattr("gpgc_dask.quality.estimate.MAX_ORIGINALS", n_originals)
        table = estimate_quality(dataset, evidence)
        assert table["quality"].notna().all()
    assert not table.equals(whole)
    assert roc_auc_score(truth < 0.8, -table["quality"]) > 0.9


def test_context_is_the_mean_and_the_maximum_of_the_image():
    values = np.array([1.0, 3.0, -1.0, 5.0])
    image, area = np.array([0, 0, 1, 1]), np.array([1.0, 3.0, 2.0, 0.0])
    columns = with_context(values, image, area, 2)
    assert columns[:, 0].tolist() == values.tolist()
    assert columns[:, 1].tolist() == [2.5, 2.5, -1.0, -1.0]
    assert columns[:, 2].tolist() == [3.0, 3.0, -1.0, -1.0]
    many = np.ones((4, 3))
    assert with_context(many, image, area, 2) is many


def test_pixels_of_classes_that_no_superpixel_has_count_as_void():
    dataset, evidence, _ = _scenes(40, 2)
    plain = estimate_quality(dataset, evidence)
    dataset = dataset.assign_attrs(classes=["0", "rare", "1"])
    shifted = dataset["mask"].where(dataset["mask"] != 1, 2).astype(np.uint8)
    renamed = replace(evidence, classes=np.array([0, 2]))
    assert estimate_quality(dataset.assign(mask=shifted), renamed).equals(plain)
    shifted[:, :2] = 1
    void = shifted.where(shifted != 1, VOID).astype(np.uint8)
    with_rare, with_void = (
        estimate_quality(dataset.assign(mask=mask), renamed) for mask in (shifted, void)
    )
    assert with_rare.equals(with_void)
