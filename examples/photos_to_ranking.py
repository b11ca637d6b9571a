"""From photos and masks to a ranking and new masks: ingest, fit, rank, paint.

Sixty photos of a striped ball on grass are drawn; every fifth mask was left over from another
photo. Your own folders go in the place of the drawn ones.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from dask.distributed import Client, LocalCluster
from PIL import Image

from gpgc_dask import GPGC, open_dataset
from gpgc_dask.imaging import ingest, write_masks

SIZE = 160


def draw(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(photo, mask) of a ball in some place."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:SIZE, :SIZE]
    cy, cx = rng.uniform(0.25, 0.75, 2) * SIZE
    mask = np.hypot(y - cy, x - cx) < rng.uniform(0.15, 0.25) * SIZE
    stripes = np.where(np.sin((x + y) / 4) > 0, 210, 90)[..., None] * np.array([1.0, 0.4, 0.3])
    grass = np.array([60, 130, 50]) + 25 * np.sin(x * rng.uniform(0.5, 1.5))[..., None]
    photo = np.where(mask[..., None], stripes, grass) + rng.normal(0, 15, (SIZE, SIZE, 3))
    return np.clip(photo, 0, 255).astype(np.uint8), mask


def save_photos(folder: Path, n: int = 60) -> list[str]:
    """Write images/ and masks/; the names of the photos whose masks are wrong."""
    for kind in ("images", "masks"):
        (folder / kind).mkdir()
    wrong = [number for number in range(n) if number % 5 == 2]
    for number in range(n):
        photo, mask = draw(number)
        mask = draw(number + 1)[1] if number in wrong else mask
        Image.fromarray(photo).save(folder / f"images/photo_{number:02d}.jpg")
        Image.fromarray(mask * np.uint8(255)).save(folder / f"masks/photo_{number:02d}.png")
    return [f"photo_{number:02d}.jpg" for number in wrong]


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as place,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        folder = Path(place)
        wrong = save_photos(folder)
        report = ingest(folder / "images", folder / "masks", folder / "photos.zarr")
        print(f"{report.images} photos, {report.superpixels} superpixels × {report.features}\n")

        dataset = open_dataset(folder / "photos.zarr")
        model = GPGC().fit(dataset)
        _, agreement = model.leave_group_out(dataset, return_agreement=True)
        worst = np.argsort(agreement.iou)
        print("worst photos   agreement  noise variance  mask from another photo")
        for j in worst[:6]:
            name = agreement.groups[j]
            print(
                f"{name}  {agreement.iou[j]:10.2f}  {model.noise_variance_[j]:14.2f}  "
                f"{'yes' if name in wrong else 'no'}"
            )
        found = np.isin(agreement.groups[worst[: len(wrong)]], wrong).sum()
        print(f"\n{found} of the {len(wrong)} wrong masks are among the {len(wrong)} worst")

        masks = write_masks(dataset, model.predict(dataset), folder / "predicted")
        right = np.mean([np.mean((np.asarray(Image.open(m)) > 0) == draw(n)[1])
                         for n, m in enumerate(masks)])  # fmt: skip
        print(f"predicted masks: {100 * right:.1f} % of the pixels right")


if __name__ == "__main__":
    main()
