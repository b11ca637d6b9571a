"""Which images were labelled carelessly? The whole job, with Zarr and a LocalCluster.

Superpixels of 200 images are labelled, image by image; a fifth of the images were labelled
carelessly. The fit is told only which rows belong to which image.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import dask.array as da
import numpy as np
import zarr
from dask.distributed import Client, LocalCluster

from gpgc_dask import GP, GPGC


def make(n_images: int = 200, superpixels: int = 120, n_features: int = 64, seed: int = 0):
    """Features of superpixels, true labels, given labels, image names, careless images."""
    rng = np.random.default_rng(seed)
    image = np.repeat(np.arange(n_images), superpixels)
    truth = rng.random(image.size) < 0.35
    # Two classes that look different, a look of its own for every image, a constant.
    looks = rng.standard_normal((2, n_features)) + 0.5 * rng.standard_normal(
        (n_images, 1, n_features)
    )
    X = np.maximum(
        looks[image, truth.astype(int)] + 2 * rng.standard_normal((image.size, n_features)), 0
    )
    X = np.column_stack([X, np.ones(image.size)]).astype(np.float32)
    careless = np.arange(n_images) % 5 == 0
    wrong = rng.random(image.size) < np.where(careless, 0.35, 0.02)[image]
    names = np.array([f"photo_{number:03d}.jpg" for number in range(n_images)])
    return X, truth, truth ^ wrong, names[image], names[careless]


def main() -> None:
    X, truth, given, images, careless = make()
    columns = ["appearance"] * (X.shape[1] - 1) + ["constant"]
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        store = zarr.create_array(
            Path(folder) / "features.zarr",
            shape=X.shape,
            chunks=(4096, X.shape[1]),
            dtype="float32",
        )
        store[:] = X
        features = da.from_zarr(store)

        print(GPGC().plan(features, groups=images), end="\n\n")
        model = GPGC(progress=True).fit(features, given, groups=images, feature_groups=columns)
        plain = GP().fit(features, given, groups=images, feature_groups=columns)
        _, agreement = model.leave_group_out(features, given, images, return_agreement=True)

        worst = np.argsort(agreement.iou)
        print("worst images      agreement  noise variance  confidence  really careless")
        for j in worst[:8]:
            print(
                f"{model.groups_[j]}  {agreement.iou[j]:12.2f}  {model.noise_variance_[j]:14.2f}  "
                f"{model.confidence_[j]:10.2f}  {'yes' if model.groups_[j] in careless else 'no'}"
            )
        found = np.isin(model.groups_[worst[: careless.size]], careless).sum()
        print(
            f"\n{found} of the {careless.size} careless images are among the {careless.size} worst"
        )
        for name, fitted in (("one noise for all", plain), ("one noise an image", model)):
            right = (fitted.predict(X) == truth).mean()
            print(f"{name:>18}: {100 * right:.2f} % of the true labels predicted")
        print(f"full reads of the data: {model.n_reads_}")
        print(f"rows that count as one: {model.redundancy_:.2f}")


if __name__ == "__main__":
    main()
