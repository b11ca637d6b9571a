"""Accuracy and ranking on a folder of photos with unreliable masks.

The folder holds train/images, train/masks (unreliable), train.csv (columns image, mask_iou: the
true quality of each training mask), test/images and test/masks (reliable). Without a folder a tiny
set is drawn, only to see that it runs.
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import numpy as np
import xarray as xr
from common import parser
from photos import save_set
from sklearn.metrics import roc_auc_score

from gpgc_dask import GP, GPGC, Recipe, open_dataset
from gpgc_dask.clusters.connect import connect
from gpgc_dask.core.metrics import average_class_accuracy, confusion_matrix
from gpgc_dask.imaging.masks import MaskFormat, read_mask
from gpgc_dask.imaging.painting import paint_image
from gpgc_dask.imaging.photos import Orientation
from gpgc_dask.pipelines.ingest import ingest


def make(folder: Path, target: Path, backbone: str) -> xr.Dataset:
    ingest(folder / "images", folder / "masks", target, recipe=Recipe(backbone=backbone))
    return open_dataset(target)


def accuracy(model: GP | GPGC, test: xr.Dataset) -> float:
    """Average class accuracy over all pixels of the test photos, in percent."""
    labels = np.asarray(model.predict(test))
    counts = np.zeros((2, 2))
    for photo, path in enumerate(test["mask_path"].values):
        painted = paint_image(test, labels, photo)
        h, w = painted.shape
        truth = read_mask(str(path), MaskFormat(), Orientation(h, w, (h, w), None))
        counts += confusion_matrix(truth, painted, 2)
    return 100 * average_class_accuracy(counts.diagonal(), counts.sum(1))


def bad_masks(path: Path, groups: np.ndarray) -> np.ndarray:
    """Whether the true IoU of each image's mask is below 0.5."""
    with path.open() as file:
        quality = {row["image"]: float(row["mask_iou"]) for row in csv.DictReader(file)}
    return np.array([quality[Path(name).stem] < 0.5 for name in groups])


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("folder", nargs="?", type=Path)
    arguments.add_argument("--backbone", default=None, help="default lite0; colour for --smoke")
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder, backbone = args.folder, args.backbone or "lite0"
        if folder is None:
            folder, backbone = Path(place) / "set", args.backbone or "colour"
            save_set(folder / "train", 12, 60, 80, wrong_share=0.25)
            save_set(folder / "test", 3, 60, 80)
        with connect():
            train, test = (
                make(folder / kind, Path(place) / f"{kind}.zarr", backbone=backbone)
                for kind in ("train", "test")
            )
        print(
            f"{train.sizes['photo']} training and {test.sizes['photo']} test photos, "
            f"{train.sizes['superpixel']} × {train.sizes['feature']} training features, {backbone}"
        )
        for name, model in {
            "GP, c = 1": GP(redundancy=1.0),
            "GP-GC, c = 1 (the paper)": GPGC(redundancy=1.0, rounds=0),
            "GP-GC, c solved": GPGC(rounds=0),
            "GP-GC, second look": GPGC(),
        }.items():
            model.fit(train)
            line = f"{name:>26}: average class accuracy {accuracy(model, test):.2f}"
            if isinstance(model, GPGC):
                _, agreement = model.leave_group_out(train, return_agreement=True)
                bad = bad_masks(folder / "train.csv", model.groups_)
                line += (
                    f", AUROC for IoU < 0.5: noise {roc_auc_score(bad, model.noise_variance_):.3f}"
                    f", agreement {roc_auc_score(bad, 1 - agreement.iou):.3f}"
                    f", c {model.redundancy_:.2f}, {model.n_reads_} reads"
                )
            print(line)
        print("bars on the horse photos: 88, and 2.5 above GP; 89.5; AUROC 0.90 and 0.95")


if __name__ == "__main__":
    main()
