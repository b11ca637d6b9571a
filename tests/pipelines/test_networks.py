"""From photos to predicted masks with networks of users, and changes that are noticed."""

from __future__ import annotations

import json
import os
import shutil
import sys

import numpy as np
import pytest
import zarr

from gpgc_dask import (
    GP,
    ingest,
    load,
    open_dataset,
    predict_masks,
    update,
    write_masks,
)
from gpgc_dask.core.errors import GpgcError, PipelineError
from gpgc_dask.imaging.backbones import find_backbone
from gpgc_dask.imaging.features import Recipe, describe
from gpgc_dask.pipelines.options import RunOptions
from tests.support.images import draw, save_pairs, tree_bytes
from tests.support.networks import WIDTH, save_vit, vit_map

pytestmark = pytest.mark.newest

PHOTO, _ = draw(0, 60, 80)
EXACT = {"rtol": 0, "atol": 1e-5}
SIDE = 84
FIRST, SECOND = "a" * 40, "b" * 40
CONFIG = {
    "do_center_crop": True,
    "crop_size": {"height": SIDE, "width": SIDE},
    "size": {"shortest_edge": 256},
    "rescale_factor": 1 / 255,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.3, 0.4],
}
COLOURS = {"mean": (127.5, 102, 76.5), "std": (51, 76.5, 102)}

MODULE = """
import numpy as np

from tests.support.networks import vit_map


def embed(image):
    return [vit_map(image, {side})]


number = 3
"""


def save_revision(cache, commit, *, seed=0, branch="main"):
    """A revision of org/vit as huggingface_hub lays out its cache: links to files by digest."""
    repo = cache / "models--org--vit"
    data = {"save_as_external_data": True, "location": "model.onnx_data", "size_threshold": 0}
    made = save_vit(cache.parent / commit / "model.onnx", seed=seed, **data).parent
    (made / "preprocessor_config.json").write_text(json.dumps(CONFIG))
    places = {
        "onnx/model.onnx": made / "model.onnx",
        "onnx/model.onnx_data": made / "model.onnx_data",
        "preprocessor_config.json": made / "preprocessor_config.json",
    }
    for name, source in places.items():
        blob = repo / "blobs" / f"{commit}-{source.name}"
        blob.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, blob)
        link = repo / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (repo / "refs").mkdir(exist_ok=True)
    (repo / "refs" / branch).write_text(commit)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Folder of an offline cache with one revision of org/vit."""
    pytest.importorskip("huggingface_hub")
    from huggingface_hub import constants

    cache = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    save_revision(cache, FIRST)
    return cache


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Path of a module of the user in the current folder."""
    path = tmp_path / "own_nets.py"
    path.write_text(MODULE.format(side=SIDE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield path
    sys.modules.pop("own_nets", None)


def names(kind, tmp_path, request):
    """(name of the backbone, options) of a kind."""
    if kind == "onnx":
        return str(save_vit(tmp_path / "vit.onnx")), {"side": SIDE}
    request.getfixturevalue("hub" if kind == "hf" else "module")
    return {"hf": "hf:org/vit", "module": "own_nets:embed"}[kind], {}


@pytest.mark.parametrize("kind", ["onnx", "hf", "module"])
def test_a_transformer_from_ingest_to_prediction(kind, tmp_path, request):
    """Its features are those computed with NumPy, and models make it again by its provenance."""
    name, options = names(kind, tmp_path, request)
    backbone = find_backbone(name, **options)
    expected = vit_map(PHOTO, SIDE, **(COLOURS if kind == "hf" else {}))
    np.testing.assert_allclose(backbone(PHOTO)[0], expected, **EXACT)
    images, masks = save_pairs(tmp_path, 4)
    data = tmp_path / "data.zarr"
    report = ingest(images, masks, data, recipe=Recipe(backbone, superpixels=20))
    assert report.features == WIDTH + 17
    GP().fit(open_dataset(data)).save(tmp_path / "model.zarr")
    model = load(tmp_path / "model.zarr")
    assert predict_masks(model, images, tmp_path / "predicted").images == 4
    write_masks(open_dataset(data), model.predict(open_dataset(data)), tmp_path / "expected")
    assert tree_bytes(tmp_path / "predicted") == tree_bytes(tmp_path / "expected")
    _change(kind, tmp_path, request)
    with pytest.raises(GpgcError, match=r"other (weights|source code) than at ingest"):
        predict_masks(model, images, tmp_path / "x")
    again = Recipe(find_backbone(name, **options), superpixels=20)
    with pytest.raises(PipelineError, match="other settings: backbone"):
        ingest(images, masks, data, recipe=again, run=RunOptions(resume=True))
    assert not (tmp_path / "x").exists()


def _change(kind, tmp_path, request):
    """Change the file of the backbone; in a cache of the hub the weights behind the links."""
    if kind == "onnx":
        save_vit(tmp_path / "vit.onnx", seed=1)
    elif kind == "hf":
        blobs = tmp_path / "hub/models--org--vit/blobs"
        weights = blobs / f"{FIRST}-model.onnx_data"
        weights.write_bytes(b"\0\0\0\0" + weights.read_bytes()[4:])
    else:
        path = tmp_path / "own_nets.py"
        path.write_text(path.read_text() + "# changed\n")


def test_revisions_of_the_hub(hub, tmp_path):
    """A model stays with the revision of its dataset; an ingest does not mix two of them."""
    backbone = find_backbone("hf:org/vit")
    stored = backbone.provenance()
    assert (stored["name"], stored["revision"], stored["side"]) == ("hf:org/vit", FIRST, SIDE)
    assert stored["file"] == "onnx/model.onnx"
    images, masks = save_pairs(tmp_path, 4)
    data = tmp_path / "data.zarr"
    ingest(images, masks, data, recipe=Recipe(backbone, superpixels=20))
    model = GP().fit(open_dataset(data))
    save_revision(hub, SECOND, seed=1)
    assert find_backbone("hf:org/vit").revision == SECOND
    assert find_backbone(f"hf:org/vit@{FIRST}") == backbone
    assert predict_masks(model, images, tmp_path / "first").images == 4
    recipe = Recipe(find_backbone("hf:org/vit"), superpixels=20)
    with pytest.raises(PipelineError, match=f"other settings: backbone .*{FIRST}.*{SECOND}"):
        ingest(images, masks, data, recipe=recipe, run=RunOptions(resume=True))
    with pytest.raises(ValueError, match="other weights than at ingest"):
        predict_masks(model, images, tmp_path / "x", backbone=f"hf:org/vit@{SECOND}")
    file = str(backbone.path)
    assert predict_masks(model, images, tmp_path / "file", backbone=file).images == 4
    shutil.rmtree(hub / "models--org--vit/snapshots" / FIRST)
    with pytest.raises(FileNotFoundError, match=f"at {FIRST} has no onnx/model.onnx .*HF_HUB_OFF"):
        predict_masks(model, images, tmp_path / "x")


def test_repositories_that_cannot_be_used(hub):
    with pytest.raises(FileNotFoundError, match=r"hf:org/other has no onnx/model.onnx or model\."):
        find_backbone("hf:org/other")
    with pytest.raises(FileNotFoundError, match=r"has no onnx/vision.onnx that"):
        find_backbone("hf:org/vit/onnx/vision.onnx")
    with pytest.raises(ValueError, match="hf:vit is not hf:ORG/MODEL"):
        find_backbone("hf:vit")
    snapshot = hub / "models--org--vit/snapshots" / FIRST
    config = snapshot / "preprocessor_config.json"
    config.write_text('{"image_mean": 3}')
    with pytest.raises(ValueError, match=r"preprocessor_config.json of hf:org/vit is not under"):
        find_backbone("hf:org/vit")
    config.unlink()
    with pytest.raises(FileNotFoundError, match=r"has no preprocessor_config.json .*--input-side"):
        find_backbone("hf:org/vit")
    given = find_backbone("hf:org/vit", side=SIDE, mean=(1, 2, 3), std=(4, 5, 6))
    assert given.mean == (1, 2, 3)
    (snapshot / "onnx/model.onnx_data").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no model.onnx_data, the weights of onnx/mod"):
        find_backbone("hf:org/vit")


def test_modules_that_cannot_be_used(module):
    for name, message in (
        ("nowhere:f", r"nowhere cannot be imported \(ModuleNotFoundError.*in the folder where"),
        ("own_nets:nothing", "has no attribute 'nothing'"),
        ("own_nets:number", "own_nets:number is not a function"),
        ("sys:exit", "sys has no source file"),
    ):
        with pytest.raises(ValueError, match=message):
            find_backbone(name)
    module.write_text("def embed(image:\n")
    with pytest.raises(ValueError, match=r"own_nets cannot be imported \(SyntaxError"):
        find_backbone("own_nets:embed")


def test_a_module_is_imported_on_workers_and_by_commands(module, run, tmp_path):
    """Workers are processes, and start in another folder than the module's if it is not here."""
    images, masks = save_pairs(tmp_path, 4)
    data, model = tmp_path / "data.zarr", tmp_path / "model.zarr"
    given = ["--backbone", "own_nets:embed", "--superpixels", 20, "--workers", 1]
    code, _, err = run("ingest", images, masks, "-o", data, *given)
    assert code == 0, err
    GP().fit(open_dataset(data)).save(model)
    code, _, err = run("predict", model, images, "-o", tmp_path / "out", "--workers", 1)
    assert code == 0, err
    assert len(list((tmp_path / "out").glob("*.png"))) == 4
    code, out, _ = run("info", "--backbone", "own_nets:embed", "--side", 42, "--json")
    assert code == 0
    described = json.loads(out)
    row = {"layer": "map 1", "channels": WIDTH, "height": 6, "width": 6, "stride": 7.0}
    assert described["layers"] == [row]
    assert described["backbone"]["path"] == str(module)


# -- features computed elsewhere ---------------------------------------------------------------


@pytest.mark.parametrize("form", ["zarr", "npy"])
def test_features_computed_elsewhere(form, tmp_path):
    """The same as with the function that has computed them; new photos need theirs."""
    images, masks = save_pairs(tmp_path, 4)
    (images / "sub").mkdir()
    (masks / "sub").mkdir()
    for folder in (images, masks):
        first = sorted(folder.glob("*.*"))[0]
        shutil.move(first, folder / "sub" / first.name)
    made = tmp_path / "maps"
    colour = find_backbone("colour")
    photos = sorted(images.rglob("*.jpg"))
    recipe = Recipe(colour, superpixels=20)
    for photo in photos:
        (values,) = colour(_pixels(photo))
        name = photo.relative_to(images)
        if form == "zarr":
            zarr.open_group(made, mode="a").create_array(name.as_posix(), data=values)
        else:
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            np.save((made / name).with_suffix(".npy"), values)
    maps = find_backbone(f"maps:{made}", images=images)
    for photo in photos:
        stored = describe(photo, Recipe(maps, superpixels=20)).features
        np.testing.assert_array_equal(stored, describe(photo, recipe).features)
    data = tmp_path / "data.zarr"
    ingest(images, masks, data, recipe=Recipe(maps, superpixels=20))
    model = GP().fit(open_dataset(data))
    maps = find_backbone(f"maps:{made.rename(tmp_path / 'moved')}", images=images)
    with pytest.raises(ValueError, match=r"computed elsewhere .*--features"):
        predict_masks(model, images, tmp_path / "x")
    assert predict_masks(model, images, tmp_path / "x", backbone=maps).images == 4
    shutil.copy(photos[0], images / "new.jpg")
    shutil.copy(next(masks.rglob("*.png")), masks / "new.png")
    for call in (
        lambda: ingest(images, masks, tmp_path / "y.zarr", recipe=Recipe(maps, superpixels=20)),
        lambda: predict_masks(model, images, tmp_path / "y", backbone=maps),
        lambda: update(data, images, masks, backbone=maps),
    ):
        with pytest.raises(FileNotFoundError, match=r"no features of 1 of \d photos \(new.jpg\)"):
            call()
    assert not (tmp_path / "y.zarr").exists()


def _pixels(photo):
    from gpgc_dask.imaging.photos import read_photo

    return read_photo(photo, 512).pixels


def test_the_option_features(run, tmp_path):
    images, masks = save_pairs(tmp_path, 4)
    group = zarr.open_group(tmp_path / "maps.zarr", mode="w")
    for photo in images.iterdir():
        group.create_array(photo.name, data=np.moveaxis(_pixels(photo), -1, 0) / 255)
    data, model = tmp_path / "data.zarr", tmp_path / "model.zarr"
    given = ["--features", tmp_path / "maps.zarr"]
    code, _, err = run("ingest", images, masks, "-o", data, *given, "--workers", 1)
    assert code == 0, err
    GP().fit(open_dataset(data)).save(model)
    code, _, err = run("predict", model, images, "-o", tmp_path / "out")
    assert code == 2
    assert "--features" in err
    code, _, err = run("predict", model, images, "-o", tmp_path / "out", *given, "--workers", 1)
    assert code == 0, err
    code, _, err = run("ingest", images, masks, "-o", data, *given, "--backbone", "colour")
    assert (code, "exclude each other" in err) == (2, True)
