"""DICOM images and NIfTI volumes, written by pydicom and nibabel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.images import draw

THICK = 5.0
"""Distance of slices, in units of their pixels."""


def draw_slices(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Grey slices (n, h, w) uint8, and their labels, 0 and 1."""
    pairs = [draw(100 * seed + number) for number in range(n)]
    return np.stack([photo[..., 0] for photo, _ in pairs]), np.stack([mask for _, mask in pairs])


def save_nifti(
    path: Path,
    slices: np.ndarray,
    axes: str = "RAS",
    slope: float = 1.0,
    intercept: float = 0.0,
) -> None:
    """Write slices (n, h, w[, bands]) as a volume that is stored along ``axes``.

    The slices are axial, as a viewer shows them: anterior at the top, the right side on the left.
    """
    import nibabel

    volume = np.swapaxes(slices[:, ::-1, ::-1], 0, 2)
    image = nibabel.Nifti1Image(np.ascontiguousarray(volume), np.diag([1, 1, THICK, 1]))
    given, wanted = (nibabel.orientations.axcodes2ornt(codes) for codes in ("RAS", axes))
    image = image.as_reoriented(nibabel.orientations.ornt_transform(given, wanted))
    image.header.set_slope_inter(slope, intercept)
    stored = np.asarray(image.dataobj)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = nibabel.Nifti1Image(stored, image.affine, image.header)
    written.header.set_slope_inter(slope, intercept)
    nibabel.save(written, path)


def save_dicom(path: Path, values: np.ndarray, **attributes: Any) -> None:
    """Write (h, w), (h, w, 3) or, with ``NumberOfFrames``, (n, h, w) values."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    own = Dataset()
    own.file_meta = FileMetaDataset()
    own.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    own.file_meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    own.file_meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=[path.name])
    own.SOPClassUID = SecondaryCaptureImageStorage
    own.SOPInstanceUID = own.file_meta.MediaStorageSOPInstanceUID
    is_colour = values.ndim == 3 and "NumberOfFrames" not in attributes
    height, width = values.shape[:2] if is_colour else values.shape[-2:]
    own.Rows, own.Columns, own.SamplesPerPixel = height, width, 3 if is_colour else 1
    if is_colour:
        own.PlanarConfiguration = 0
    own.PhotometricInterpretation = "RGB" if is_colour else "MONOCHROME2"
    own.BitsAllocated = own.BitsStored = 8 * values.dtype.itemsize
    own.HighBit = own.BitsStored - 1
    own.PixelRepresentation = int(values.dtype.kind == "i")
    own.add_new(0x7FE00010, "OW", values.tobytes())
    for name, value in attributes.items():
        setattr(own, name, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    own.save_as(path, enforce_file_format=True)
