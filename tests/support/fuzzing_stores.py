"""Readers of what is not a photo or a mask, for :mod:`tests.support.fuzzing`.

Datasets, models, checkpoints, verdicts, tables, networks, feature maps, plans and certificates.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from PIL import Image

from gpgc_dask import GPGC, Recipe, ingest, load, open_dataset, rank
from gpgc_dask.clusters.certificates import make_certificates
from gpgc_dask.clusters.kubernetes.sizes import shape_of
from gpgc_dask.clusters.tls import TlsFiles
from gpgc_dask.core.errors import InputError
from gpgc_dask.data.summary import summary
from gpgc_dask.gp.checkpoint import MAGIC, Checkpoint
from gpgc_dask.imaging.backbones import find_backbone, restore_backbone
from gpgc_dask.imaging.backbones.hub import read_preprocessing
from gpgc_dask.imaging.backbones.weights import read_tensors
from gpgc_dask.imaging.boxes import read_boxes
from gpgc_dask.imaging.image_info import read_table
from gpgc_dask.planning.shape import Shape
from gpgc_dask.results.pictures import open_masks
from gpgc_dask.results.verdicts import import_verdicts, list_verdicts
from gpgc_dask.storage.integrity import DIGESTS, digests, read_metadata
from gpgc_dask.storage.location import Location
from tests.support import tool_files
from tests.support.images import draw, save_pairs
from tests.support.networks import save_vit, tensor_pickle, torch_file

PHOTO = draw(0, 40, 56)[0]
SMALL = Recipe(backbone="colour", superpixels=12)
FILES = Path(tool_files.__file__).parent


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


# -- datasets and models ---------------------------------------------------------------------------


def make_dataset(folder: Path, photos: int = 16) -> Path:
    images, masks = save_pairs(folder, photos)
    ingest(images, masks, folder / "data.zarr", recipe=SMALL)
    return folder / "data.zarr"


def write_dataset(folder: Path) -> list[Path]:
    return _files(make_dataset(folder))


def read_dataset(folder: Path) -> None:
    """Read all arrays, and what other parts of the program take from the attributes."""
    dataset = open_dataset(folder / "data.zarr")
    assert dataset._repr_html_()
    assert summary(dataset)
    dataset.load()
    assert len(dataset["image_name"]) == 16
    assert dataset["features"].shape[0] == len(dataset["label"])
    open_masks(dataset)
    restore_backbone(dataset.attrs["backbone"])
    Recipe.from_json(find_backbone("colour"), dataset.attrs["recipe"])


def write_attributes(folder: Path) -> list[Path]:
    """A dataset, and its attributes in a file of their own."""
    data = make_dataset(folder)
    attributes = json.loads((data / "zarr.json").read_text())["attributes"]
    del attributes[DIGESTS]
    (folder / "attributes.json").write_text(json.dumps(attributes))
    return [folder / "attributes.json"]


def read_attributes(folder: Path) -> None:
    """Read attributes whose digests fit them, as those of a forged dataset do."""
    _reseal(folder / "data.zarr", folder / "attributes.json")
    read_dataset(folder)


def _reseal(group: Path, attributes: Path) -> None:
    try:
        values = json.loads(attributes.read_bytes())
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise InputError("not JSON: no attributes")
    arrays = [path.parent.name for path in group.glob("*/zarr.json")]
    values[DIGESTS] = digests(values, read_metadata(Location.of(group), arrays))
    head = {"zarr_format": 3, "node_type": "group"}
    (group / "zarr.json").write_text(json.dumps(head | {"attributes": values}))


def write_model(folder: Path) -> list[Path]:
    data = make_dataset(folder)
    dataset = open_dataset(data)
    model = GPGC(redundancy=1.0).fit(dataset)
    model.review(dataset)
    model.save(folder / "model.zarr")
    return _files(folder / "model.zarr")


def read_model(folder: Path) -> None:
    model = load(folder / "model.zarr")
    assert len(model.group_noise) == 16
    assert len(rank(model.review_table)) == 16


def write_model_attributes(folder: Path) -> list[Path]:
    write_model(folder)
    attributes = json.loads((folder / "model.zarr/zarr.json").read_text())["attributes"]
    del attributes[DIGESTS]
    (folder / "attributes.json").write_text(json.dumps(attributes))
    return [folder / "attributes.json"]


def read_model_attributes(folder: Path) -> None:
    _reseal(folder / "model.zarr", folder / "attributes.json")
    read_model(folder)


# -- checkpoints -----------------------------------------------------------------------------------


class _StopError(Exception):
    pass


def write_checkpoint(folder: Path) -> list[Path]:
    """A checkpoint, and what follows its checksum."""

    def stop(entry: Any) -> None:
        if entry["iteration"] == 2:
            raise _StopError

    X, y, groups = _problem()
    with suppress(_StopError):
        GPGC(checkpoint=folder / "fit.npz", progress=stop).fit(X, y, groups=groups)
    content = (folder / "fit.npz").read_bytes()
    (folder / "body.npz").write_bytes(content.partition(b"\n")[2])
    return [folder / "fit.npz", folder / "body.npz"]


def _problem() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 5))
    return X, (X[:, 0] > 0).astype(int), np.repeat(np.arange(12), 10)


def read_checkpoint(folder: Path) -> None:
    """Read the file, and the body with a checksum that fits, as a forged file has it."""
    body = (folder / "body.npz").read_bytes()
    forged = folder / "forged.npz"
    forged.write_bytes(MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    for path in (folder / "fit.npz", forged):
        saved = Checkpoint(path, {}).load()
        assert saved is not None
        assert saved.moments is not None
        assert saved.moments.gram.ndim == 2


# -- verdicts --------------------------------------------------------------------------------------


def write_imports(path: str, folder: Path) -> list[Path]:
    """A dataset, and files of verdicts on it as another tool writes them."""
    make_dataset(folder)
    source = FILES / path
    if source.is_dir():
        return _files(Path(shutil.copytree(source, folder / "verdicts")))
    return [Path(shutil.copy(source, folder / f"verdicts{source.suffix}"))]


def read_imports(options: dict[str, Any], folder: Path) -> None:
    source = next(path for path in folder.iterdir() if path.stem == "verdicts")
    try:
        report = import_verdicts(folder / "data.zarr", source, by="anna", **options)
        assert report.added + report.known + report.undecided + len(report.skipped) >= 0
    finally:
        shutil.rmtree(folder / "data.zarr/verdicts", ignore_errors=True)


def write_verdict_list(folder: Path) -> list[Path]:
    make_dataset(folder)
    lines = ["image,verdict,by,at,note,id"]
    lines += [f"photo_{n:03d}.jpg,confirmed,anna,2026-11-0{n + 1}T10:00:00,fine," for n in range(6)]
    lines += ['photo_009.jpg,rejected,,2026-11-09,"a, b",0123456789abcdef0123456789abcdef']
    (folder / "verdicts.csv").write_text("\n".join(lines))
    return [folder / "verdicts.csv"]


def write_log(folder: Path) -> list[Path]:
    """A dataset with verdicts, whose own files are corrupted."""
    data = make_dataset(folder)
    import_verdicts(data, FILES / "label_studio/export.json", confirm_unchanged=True)
    return _files(data / "verdicts")


def read_log(folder: Path) -> None:
    assert len(list_verdicts(folder / "data.zarr")) <= 16
    open_dataset(folder / "data.zarr").load()


# -- tables ----------------------------------------------------------------------------------------


def write_tables(folder: Path) -> list[Path]:
    (folder / "boxes.csv").write_text("image,x,y,width,height\na.jpg,1,2,30,40\nb/c.png,0.5,2,8,9")
    (folder / "people.csv").write_text("image,annotator,date\na.jpg,anna,2026-01-02\nb.jpg,ben,\n")
    return _files(folder)


def read_tables(folder: Path) -> None:
    for boxes in read_boxes(folder / "boxes.csv").values():
        assert all(np.isfinite(one.box).all() for one in boxes)
    table = read_table(str(folder / "people.csv"), "image", ["annotator"], "the list")
    assert all(row["annotator"] for row in table.values())


# -- networks and feature maps ---------------------------------------------------------------------


def write_network(folder: Path) -> list[Path]:
    save_vit(folder / "plain.onnx")
    save_vit(
        folder / "outside.onnx",
        save_as_external_data=True,
        location="outside.bin",
        size_threshold=0,
    )
    return _files(folder)


def read_network(folder: Path) -> None:
    for name in ("plain.onnx", "outside.onnx"):
        network = find_backbone(str(folder / name), layers=["last_hidden_state"], side=56)
        assert network.provenance()["weights_sha256"]
        for values in network(PHOTO):
            assert values.ndim == 3
            assert values.dtype == np.float32


def write_weights(folder: Path) -> list[Path]:
    """A small file of tensors in the format of the included network."""
    values = np.arange(6, dtype=np.float32)
    torch_file(folder / "small.pth", tensor_pickle(), [("0", values)])
    return [folder / "small.pth"]


def read_weights(folder: Path) -> None:
    for values in read_tensors(folder / "small.pth").values():
        assert isinstance(values, np.ndarray)


def write_maps(folder: Path) -> list[Path]:
    (folder / "photos").mkdir()
    Image.fromarray(PHOTO).save(folder / "photos/a.jpg")
    values = np.arange(3 * 4 * 5, dtype=np.float32).reshape(3, 4, 5)
    (folder / "npy").mkdir()
    np.save(folder / "npy/a.npy", values)
    zarr.open_group(folder / "maps.zarr", mode="w").create_array("a.jpg", data=values)
    return _files(folder / "npy") + _files(folder / "maps.zarr")


def read_maps(folder: Path) -> None:
    for name in ("npy", "maps.zarr"):
        stored = find_backbone(f"maps:{folder / name}", images=str(folder / "photos"))
        stored.check_photos([folder / "photos/a.jpg"])
        (values,) = stored.photo_maps(folder / "photos/a.jpg", PHOTO)
        assert values.ndim == 3


PREPROCESSING = {
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.2, 0.2],
}


def write_settings(folder: Path) -> list[Path]:
    """Description of a network's input as hubs have it, and the output of gpgc plan --json."""
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSING))
    shape = Shape.from_images(500, 40)
    (folder / "plan.json").write_text(json.dumps({"shape": asdict(shape)}))
    return _files(folder)


def read_settings(folder: Path) -> None:
    values = read_preprocessing(folder / "preprocessor_config.json", "a network")
    assert np.isfinite(values["mean"] + values["std"]).all()
    shape = shape_of(None, 0, folder / "plan.json")
    assert shape is not None
    assert shape.n_rows >= 0


# -- certificates ----------------------------------------------------------------------------------


def write_certificates(folder: Path) -> list[Path]:
    make_certificates(folder)
    return [folder / name for name in ("ca.pem", "client.pem", "client-key.pem")]


def read_certificates(folder: Path) -> None:
    files = (str(folder / name) for name in ("ca.pem", "client.pem", "client-key.pem"))
    assert TlsFiles(*files).security().require_encryption


STORES: dict[str, tuple[Any, Any]] = {
    "dataset": (write_dataset, read_dataset),
    "dataset, forged attributes": (write_attributes, read_attributes),
    "model": (write_model, read_model),
    "model, forged attributes": (write_model_attributes, read_model_attributes),
    "checkpoint": (write_checkpoint, read_checkpoint),
    "verdicts": (write_log, read_log),
    "verdicts as CSV": (write_verdict_list, partial(read_imports, {})),
    "verdicts of Label Studio": (
        partial(write_imports, "label_studio/export.json"),
        partial(read_imports, {}),
    ),
    "verdicts, PNGs of Label Studio": (
        partial(write_imports, "label_studio/png"),
        partial(read_imports, {"tasks": FILES / "label_studio/export.json"}),
    ),
    "verdicts of CVAT": (
        partial(write_imports, "datumaro/cvat/annotations.xml"),
        partial(read_imports, {}),
    ),
    "verdicts, masks of CVAT": (
        partial(write_imports, "datumaro/masks"),
        partial(read_imports, {}),
    ),
    "verdicts of COCO": (
        partial(write_imports, "datumaro/coco/annotations/instances_annotations.json"),
        partial(read_imports, {}),
    ),
    "tables": (write_tables, read_tables),
    "ONNX": (write_network, read_network),
    "tensors": (write_weights, read_weights),
    "feature maps": (write_maps, read_maps),
    "settings": (write_settings, read_settings),
    "certificates": (write_certificates, read_certificates),
}
"""{name: (writer, reader)} for :data:`tests.support.fuzzing.READERS`."""
