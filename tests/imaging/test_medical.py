"""DICOM images and slices of NIfTI volumes are read as the same photos and masks in PNGs."""

from __future__ import annotations

import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from gpgc_dask import (
    GPGC,
    MaskOptions,
    PhotoFormat,
    evaluate,
    ingest,
    open_dataset,
    predict_masks,
    update,
)
from gpgc_dask.core.errors import InputError, MissingDependencyError, UnusableFileError
from gpgc_dask.imaging import medical
from gpgc_dask.imaging.files import find_images
from gpgc_dask.imaging.mask_sources import open_source
from gpgc_dask.imaging.masks import MaskFormat, read_mask
from gpgc_dask.imaging.photos import read_orientation, read_photo
from gpgc_dask.pipelines.mask_check import check_masks
from tests.support.images import draw
from tests.support.ingesting import QUICK
from tests.support.medical import draw_slices, save_dicom, save_nifti

pydicom = pytest.importorskip("pydicom")
nibabel = pytest.importorskip("nibabel")

PHOTO, _ = draw(3)
GREY = PHOTO[..., 0]
TWELVE = np.rint(GREY * (4095 / 255)).astype(np.uint16)
HOUNSFIELD = (TWELVE.astype(np.int32) - 1024).astype(np.int16)


def read(path, stretch):
    return read_photo(path, 512, PhotoFormat(stretch=stretch)).pixels


def compress(path):
    own = pydicom.dcmread(path)
    own.compress(pydicom.uid.RLELossless)
    own.save_as(path)


def to_palette(path):
    """Indices of a table of colours."""
    own = pydicom.dcmread(path)
    own.PhotometricInterpretation = "PALETTE COLOR"
    for name in ("Red", "Green", "Blue"):
        descriptor = f"{name}PaletteColorLookupTableDescriptor"
        own.add_new(pydicom.datadict.tag_for_keyword(descriptor), "US", [256, 0, 16])
        table = np.arange(256, dtype=np.uint16) * 257
        setattr(own, f"{name}PaletteColorLookupTableData", table.tobytes())
    own.save_as(path)


# name: (values, attributes, change of the file, stretch)
DICOM = {
    "8 bits": (GREY, {}, None, "dataset"),
    "12 bits in 16": (TWELVE, {"BitsStored": 12, "HighBit": 11}, None, (0, 4095)),
    "0 is white": (
        4095 - TWELVE,
        {"PhotometricInterpretation": "MONOCHROME1"},
        None,
        (0, 4095),
    ),
    "Hounsfield units": (
        TWELVE,
        {"RescaleSlope": 1, "RescaleIntercept": -1024},
        None,
        (-1024, 3071),
    ),
    "signed": (HOUNSFIELD, {}, None, (-1024, 3071)),
    "fractions": (TWELVE, {"RescaleSlope": 0.5, "RescaleIntercept": 3}, None, (3, 2050.5)),
    "colours": (PHOTO, {}, None, "dataset"),
    "palette": (GREY, {}, to_palette, "none"),
    "compressed": (TWELVE, {}, compress, (0, 4095)),
}


@pytest.mark.parametrize("kind", DICOM)
def test_dicom(tmp_path, kind):
    values, attributes, change, stretch = DICOM[kind]
    path = tmp_path / "photo.dcm"
    save_dicom(path, values, **attributes)
    if change is not None:
        change(path)
    expected = PHOTO if kind == "colours" else np.dstack([GREY] * 3)
    np.testing.assert_allclose(read(path, stretch).astype(int), expected, atol=1)
    assert (read_orientation(path).height, read_orientation(path).width) == GREY.shape
    assert find_images(tmp_path) == ["photo.dcm"]


def test_frames_are_slices(tmp_path):
    slices, _ = draw_slices(3)
    save_dicom(tmp_path / "film.dcm", slices, NumberOfFrames=3)
    names = find_images(tmp_path)
    assert names == ["film.dcm/0001", "film.dcm/0002", "film.dcm/0003"]
    for name, expected in zip(names, slices, strict=True):
        np.testing.assert_array_equal(read(tmp_path / name, "none")[..., 0], expected)
    with pytest.raises(UnusableFileError, match="has 3 slices"):
        read(tmp_path / "film.dcm/0004", "none")


@pytest.mark.parametrize("axes", ["RAS", "LPS", "LAI", "PSR", "SRA"])
@pytest.mark.parametrize("ending", ["nii", "nii.gz"])
def test_slices_of_volumes_do_not_depend_on_how_they_are_stored(tmp_path, axes, ending):
    slices, labels = draw_slices(4)
    save_nifti(tmp_path / f"case.{ending}", slices.astype(np.int16), axes)
    save_nifti(tmp_path / f"labels.{ending}", labels.astype(np.float64), axes)
    for number in range(4):
        path = tmp_path / f"case.{ending}" / f"{number + 1:04d}"
        np.testing.assert_array_equal(read(path, (0, 255))[..., 0], slices[number])
        own = read_mask(
            tmp_path / f"labels.{ending}" / path.name, MaskFormat(), read_orientation(path)
        )
        np.testing.assert_array_equal(own, labels[number])
    assert len(find_images(tmp_path)) == 8


def test_units_and_bands(tmp_path):
    slices, _ = draw_slices(2)
    save_nifti(tmp_path / "ct.nii.gz", slices.astype(np.int16), intercept=-1024)
    np.testing.assert_array_equal(
        read(tmp_path / "ct.nii.gz/0002", (-1024, 255 - 1024))[..., 2], slices[1]
    )
    four = np.stack([slices, 255 - slices], axis=-1).astype(np.int16)
    save_nifti(tmp_path / "four.nii", four)
    second = read_photo(
        tmp_path / "four.nii/0001", 512, PhotoFormat(stretch=(0, 255), bands=(2,))
    ).pixels
    np.testing.assert_array_equal(second[..., 0], 255 - slices[0])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two cases as volumes and as PNGs, and a dataset of each."""
    folder = tmp_path_factory.mktemp("volumes")
    for case in (1, 2):
        slices, labels = draw_slices(4, case)
        save_nifti(folder / "images" / f"case{case}_0000.nii.gz", slices.astype(np.int16))
        save_nifti(folder / "labels" / f"case{case}.nii.gz", labels.astype(np.uint8), "LPS")
        for number in range(4):
            for kind, array in (("photos", slices), ("masks", labels)):
                file = folder / kind / f"case{case}" / f"{number + 1:04d}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(array[number]).save(file)
    ingest(folder / "photos", folder / "masks", folder / "plain.zarr", recipe=QUICK)
    recipe = QUICK.with_photos(PhotoFormat(stretch=(0, 255)))
    suffix = MaskOptions(photo_suffix="_0000")
    ingest(
        folder / "images", folder / "labels", folder / "data.zarr", recipe=recipe, masks_as=suffix
    )
    return folder


def test_a_dataset_of_volumes_is_that_of_their_slices(place):
    made, plain = (open_dataset(place / f"{name}.zarr") for name in ("data", "plain"))
    for name in ("features", "label", "weight", "mask", "segments", "image"):
        np.testing.assert_array_equal(made[name].values, plain[name].values)
    names = made["image_name"].values.tolist()
    assert names[:2] == ["case1_0000.nii.gz/0001", "case1_0000.nii.gz/0002"]
    assert set(made["group"].values.tolist()) == {"case1_0000.nii.gz", "case2_0000.nii.gz"}


def test_what_follows_an_ingest(place, tmp_path):
    dataset = open_dataset(place / "data.zarr")
    model = GPGC(rounds=0).fit(dataset)
    report = predict_masks(model, place / "images", tmp_path / "drawn")
    assert report.images == 8
    one = predict_masks(model, place / "images/case1_0000.nii.gz", tmp_path / "one")
    assert one.images == 4
    assert (tmp_path / "one/case1_0000.nii.gz/0004.png").is_file()
    scores = evaluate(tmp_path / "drawn", place / "labels", photo_suffix="_0000")
    assert (scores.images, scores.ignored) == (8, 0)
    for name in ("images", "labels"):
        shutil.copytree(place / name, tmp_path / name)
    target = tmp_path / "data.zarr"
    suffix = MaskOptions(photo_suffix="_0000")
    ingest(tmp_path / "images", tmp_path / "labels", target, recipe=QUICK, masks_as=suffix)
    _, labels = draw_slices(4, 7)
    save_nifti(tmp_path / "labels/case2.nii.gz", labels.astype(np.uint8))
    changes = update(target, tmp_path / "images", tmp_path / "labels")
    assert (changes.new, changes.unchanged) == (0, 4)
    mask = open_dataset(target)["mask"].values[-1]
    assert mask[mask != 255].any()


def test_messages(place, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="add --photo-suffix _0000"):
        open_source(place / "images", place / "labels")
    file = place / "labels/case1.nii.gz"
    with pytest.raises(InputError, match="a single file: name the folder"):
        open_source(place / "images", file)
    three, labels = tmp_path / "three", draw_slices(2)[1].astype(np.int16)
    labels[:, :5] = 2
    save_nifti(three / "labels/a.nii", labels)
    save_nifti(three / "images/a.nii", labels)
    with pytest.raises(Exception, match="Use: --classes 0=background,1=class1,2=class2") as raised:
        check_masks(open_source(three / "images", three / "labels"), "raise")
    assert "2 masks (2 NIfTI labels)" in str(raised.value)
    monkeypatch.setitem(sys.modules, "nibabel", None)
    medical._header.cache_clear()
    with pytest.raises(MissingDependencyError, match=r'pip install "gpgc_dask\[medical\]"'):
        find_images(three / "images")


@pytest.mark.parametrize("name", ["case.nii", "case.nii.gz", "case.dcm"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_truncated_files(tmp_path, name, share):
    path = tmp_path / name
    if name.endswith("dcm"):
        save_dicom(path, TWELVE)
    else:
        save_nifti(path, draw_slices(2)[0])
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    (first, *_) = find_images(tmp_path)
    with pytest.raises(UnusableFileError):
        read(tmp_path / first, "none")


def test_shapes_that_are_no_slices(tmp_path):
    volume = nibabel.Nifti1Image(np.zeros((4, 4, 4, 2, 3), np.float32), np.eye(4))
    nibabel.save(volume, tmp_path / "a.nii")
    with pytest.raises(UnusableFileError, match="slices of 3 axes, or of 4, are read"):
        read(tmp_path / "a.nii/0001", "none")
