"""From photos and masks to a ranking and new masks, in Python: ingest, fit, rank, paint, report.

Ninety scenes are drawn and every third mask spoilt, as by gpgc demo. Your own folders go in the
place of the drawn ones.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from dask.distributed import Client, LocalCluster

from gpgc_dask import GPGC, open_dataset
from gpgc_dask.demo.folders import write_set
from gpgc_dask.evaluation import evaluate
from gpgc_dask.imaging import ingest, write_masks
from gpgc_dask.ranking import rank
from gpgc_dask.report import write_report


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as place,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        folder = Path(place)
        spoilt = write_set(folder, n=90).set_index("image")["kind"]
        report = ingest(folder / "images", folder / "masks", folder / "data.zarr")
        print(f"{report.images} photos, {report.superpixels} superpixels × {report.features}\n")

        dataset = open_dataset(folder / "data.zarr")
        model = GPGC().fit(dataset)
        ranking = rank(model.review(dataset))
        print("worst photos    agreement  noise variance  how the mask is spoilt")
        for row in ranking.head(6).itertuples():
            kind = spoilt[row.image] or "it is not"
            print(f"{row.image}  {row.agreement:9.2f}  {row.noise_variance:14.2f}  {kind}")
        found = (spoilt[ranking["image"].head(30)] != "").sum()
        print(f"\n{found} of the 30 spoilt masks are among the 30 worst")

        write_masks(dataset, model.predict(dataset), folder / "predicted")
        for name in ("masks", "predicted"):
            right = evaluate(folder / name, folder / "truth").average_class_accuracy
            print(f"{name}: {100 * right:.1f} % of the pixels right, classes averaged")
        page = write_report(dataset, model, folder / "report.html")
        print(f"the report has {page.pictures} pictures, {page.bytes / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
