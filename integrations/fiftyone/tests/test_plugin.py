"""The operators, run by FiftyOne itself with its own database."""

from __future__ import annotations

import fiftyone as fo
import fiftyone.operators as foo
import fiftyone.plugins as fop
import numpy as np
import pytest
from fiftyone.operators.executor import ExecutionError
from gpgc_fiftyone.samples import find_classes
from PIL import Image

from gpgc_dask import Recipe, ingest, load, rank, train
from gpgc_dask.core.errors import InputError

URI = "@gpgc_dask/masks/"
IMAGES, WRONG = 40, 5


def draw(rng, size=(64, 96)):
    """A photo of a bright disc on dark ground, and where the disc is."""
    height, width = size
    y, x = np.mgrid[:height, :width]
    cy, cx = rng.uniform(0.4, 0.6, 2) * size
    inside = (y - cy) ** 2 + (x - cx) ** 2 < rng.uniform(14, 20) ** 2
    photo = np.where(inside[..., None], (210, 160, 60), (30, 70, 120)) + rng.normal(
        0, 12, (*size, 3)
    )
    return photo.clip(0, 255).astype(np.uint8), inside


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """[(path of the photo, mask, whether it is wrong)]."""
    rng, place = np.random.default_rng(0), tmp_path_factory.mktemp("photos")
    made = []
    for number in range(IMAGES):
        photo, inside = draw(rng)
        path = place / f"{number:02}.png"
        Image.fromarray(photo).save(path)
        made.append((str(path), inside ^ (number < WRONG), number < WRONG))
    return made


@pytest.fixture
def dataset(scenes):
    made = fo.Dataset()
    for path, mask, wrong in scenes:
        sample = fo.Sample(filepath=path, tags=["wrong"] if wrong else [])
        sample["ground_truth"] = fo.Segmentation(mask=(255 * mask).astype(np.uint8))
        made.add_sample(sample)
    yield made
    made.delete()


@pytest.fixture(scope="module")
def model(scenes, tmp_path_factory):
    """A model fitted outside of FiftyOne, on copies of the masks."""
    place = tmp_path_factory.mktemp("model")
    (place / "masks").mkdir()
    for path, mask, _ in scenes:
        Image.fromarray((255 * mask).astype(np.uint8)).save(place / "masks" / path.split("/")[-1])
    folder = scenes[0][0].rpartition("/")[0]
    ingest(folder, place / "masks", place / "d.zarr", recipe=Recipe(backbone="colour"))
    train(place / "d.zarr", place / "m.zarr")
    return str(place / "m.zarr")


def execute(operator, dataset, **params):
    result = foo.execute_operator(URI + operator, {"dataset": dataset, "params": params})
    dataset.reload()
    return result


def worst(dataset, n=WRONG):
    return {sample["tags"][0] if sample["tags"] else "" for sample in dataset.sort_by("rank")[:n]}


def test_fiftyone_loads_the_plugin():
    (plugin,) = [each for each in fop.list_plugins() if each.name == "@gpgc_dask/masks"]
    registered = {each.uri for each in foo.list_operators() if each.plugin_name == plugin.name}
    assert registered == {URI + name for name in plugin.operators}


def test_score_masks(dataset, model):
    result = execute("score_masks", dataset, field="ground_truth", model=model)
    assert result.result["images"] == IMAGES
    assert worst(dataset) == {"wrong"}
    suspect = dataset.match(fo.ViewField("suspect"))
    assert result.result["suspect"] == len(suspect) > 0
    low, quality, high = (dataset.values(f"quality{end}") for end in ("_low", "", "_high"))
    assert all(a <= b <= c for a, b, c in zip(low, quality, high, strict=True))
    sorted_view = dataset.exists("rank").sort_by("rank").values("quality")
    assert sorted_view == sorted(sorted_view)


def test_review_of_a_model(dataset, model):
    execute("load_review", dataset, model=model, prefix="gpgc_")
    ranking = rank(load(model).review_)
    view = dataset.sort_by("gpgc_rank")
    assert [path.split("/")[-1] for path in view.values("filepath")] == ranking["image"].tolist()
    assert view.values("gpgc_quality") == pytest.approx(ranking["quality"].tolist())
    regions = dataset.values("gpgc_suspicious_regions.polylines", unwind=True)
    assert regions
    assert {one.label for one in regions} <= {"missing", "spurious", "wrong class"}
    points = np.concatenate([np.array(ring) for one in regions for ring in one.points])
    assert points.min() >= 0
    assert points.max() <= 1
    marked = dataset.match(fo.ViewField("gpgc_suspicious_regions.polylines").length() > 0)
    assert set(marked.match_tags("wrong").values("id")) == set(
        dataset.match_tags("wrong").values("id")
    )


def test_find_bad_masks_of_detections(dataset, tmp_path, monkeypatch):
    """Objects with masks of their own, without a model; a sample has no label, one other size."""
    for sample in dataset:
        mask = sample["ground_truth"].mask > 0
        sample["objects"] = fo.Detections(
            detections=[fo.Detection(label="disc", bounding_box=[0, 0, 1, 1], mask=mask)]
        )
        sample.save()
    last = dataset.last()
    last["objects"] = None
    last.save()
    result = execute("find_bad_masks", dataset, field="objects", folder=str(tmp_path / "work"))
    assert result.result["images"] == IMAGES - 1
    assert worst(dataset.exists("rank")) == {"wrong"}
    assert dataset.last()["quality"] is None
    assert load(tmp_path / "work" / "model.zarr").dataset_info["classes"] == ["background", "disc"]
    with pytest.raises(ExecutionError, match="is not empty"):
        execute("find_bad_masks", dataset, field="objects", folder=str(tmp_path / "work"))


def test_classes_by_name(dataset, model):
    """Three classes cannot be judged by a model of two; two may have other names."""
    dataset.mask_targets = {"ground_truth": {255: "horse"}}
    dataset.save()
    assert execute("score_masks", dataset, field="ground_truth", model=model).result["suspect"]
    dataset.mask_targets = {"ground_truth": {1: "horse", 255: "rider"}}
    dataset.save()
    with pytest.raises(ExecutionError, match="background, horse, rider"):
        execute("score_masks", dataset, field="ground_truth", model=model)


def test_masks_on_disk_of_another_size(dataset, model, tmp_path):
    for sample in dataset:
        mask = Image.fromarray(sample["ground_truth"].mask).resize((48, 32))
        path = tmp_path / f"{sample.id}.png"
        mask.save(path)
        sample["ground_truth"] = fo.Segmentation(mask_path=str(path))
        sample.save()
    execute("score_masks", dataset, field="ground_truth", model=model)
    assert worst(dataset) == {"wrong"}


def test_the_view_is_sorted(dataset, model):
    execute("load_review", dataset, model=model)
    result = execute("show_worst_masks", dataset)
    requests = result.executor.to_json()["requests"]
    (params,) = [one["params"] for one in requests if one["operator_uri"].endswith("set_view")]
    (sort,) = [stage for stage in params["view"] if stage["_cls"].endswith("SortBy")]
    assert sort["kwargs"][0] == ["field_or_expr", "rank"]


def test_wrong_fields(dataset, model):
    with pytest.raises(ExecutionError, match="Invalid enum value"):
        execute("score_masks", dataset, field="filepath", model=model)
    with pytest.raises(InputError, match="is not a field of segmentations"):
        find_classes(dataset, "filepath")
