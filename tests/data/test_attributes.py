from __future__ import annotations

import json

import pytest

from gpgc_dask import open_dataset
from gpgc_dask.core.errors import CorruptedError, InputError
from gpgc_dask.core.stored import reading_stored
from gpgc_dask.imaging.backbones import restore_backbone
from gpgc_dask.imaging.features import Recipe
from gpgc_dask.imaging.masks import MaskFormat
from gpgc_dask.imaging.photo_format import PhotoFormat
from gpgc_dask.pipelines.ingest import ingest
from tests.support.corruption import rewrite
from tests.support.images import save_pairs
from tests.support.ingesting import QUICK


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attributes")
    images, masks = save_pairs(folder, 3)
    ingest(images, masks, folder / "data.zarr", recipe=QUICK)
    return folder / "data.zarr"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("recipe", None, "its attribute recipe is not a mapping"),
        ("versions", ..., "its attribute versions is missing"),
        ("classes", [1, 2], "its attribute classes has a value of the wrong type, 1"),
        ("class_values", "ab", "its attribute class_values is not a list"),
        ("source.mask_format", ..., "its attribute source.mask_format is missing"),
        ("source.mask_format.void", [True], r"source.mask_format.void has a value .* True"),
        ("backbone.name", 3, "its attribute backbone.name has a value of the wrong type, 3"),
    ],
)
def test_attributes_with_a_digest_that_fits(data, path, value, message):
    *owners, key = path.split(".")

    def change(content):
        place = content["attributes"]
        for owner in owners:
            place = place[owner]
        if value is ...:
            del place[key]
        else:
            place[key] = value

    before = (data / "zarr.json").read_text()
    rewrite(data / "zarr.json", change, digest=True)
    try:
        with pytest.raises(CorruptedError, match=rf"data.zarr is corrupted, .*{message}"):
            open_dataset(data)
    finally:
        (data / "zarr.json").write_text(before)
    assert open_dataset(data).attrs["classes"] == json.loads(before)["attributes"]["classes"]


@pytest.mark.parametrize(
    "read",
    [
        lambda: Recipe.from_json("colour", {"size": 3}),
        lambda: PhotoFormat.from_json({"stretch": [], "colour": 1}),
        lambda: MaskFormat.from_json({"foreground": []}),
        lambda: restore_backbone({"name": "lite0", "side": "wide"}),
    ],
)
def test_stored_values_of_another_kind(read):
    with pytest.raises(CorruptedError, match=r"the stored .* cannot be read .*: .* restore it"):
        read()


def test_clear_errors_remain():
    with pytest.raises(InputError, match=r"^no$"), reading_stored("value"):
        raise InputError("no")
