"""Codecs and chunk sizes for dense and for ReLU-like sparse features.

Each way is read as a fit reads it, through dask by two threads, and then swept once. The zarrs
codec pipeline is tried where the package is installed.
"""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path

import dask
import numpy as np
import zarr
from common import Section, best_seconds, open_features, parser, relu_features
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

from gpgc_dask.gp.oracle.base import Rows
from gpgc_dask.gp.oracle.dask import DaskSweeps
from gpgc_dask.gp.oracle.kernels import Arithmetic

CODECS = {
    "none": None,
    "none, crc32c": Crc32cCodec(),
    "lz4, shuffled": BloscCodec(cname="lz4", clevel=1, shuffle="shuffle"),
    "zstd 1, shuffled": BloscCodec(cname="zstd", clevel=1, shuffle="shuffle"),
    "zstd 1": ZstdCodec(level=1),
}
ZARRS = "zarrs.ZarrsCodecPipeline"


def dense(n: int, k: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, k), dtype=np.float32)


def write(path: Path, F: np.ndarray, codec, rows: int) -> int:
    """Store the array and return its size on disk."""
    store = zarr.create_array(
        path, shape=F.shape, chunks=(rows, F.shape[1]), dtype=F.dtype, compressors=codec
    )
    store[:] = F
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def read(path: Path) -> None:
    X = open_features(path)
    dask.compute(*[dask.delayed(np.shape)(block) for block in X.to_delayed().ravel()])


def sweep(path: Path) -> None:
    X = open_features(path)
    n, k = X.shape
    rows = Rows(np.zeros(n, dtype=np.intp), np.ones(n), np.arange(n) // 130, 2, n // 130 + 1)
    DaskSweeps(X, rows, Arithmetic(np.dtype(np.float32), np.zeros(k))).moments(
        np.zeros(n // 130 + 1), 1.0
    )


def main() -> None:
    args = parser(__doc__).parse_args()
    section = Section(args, __file__)
    n, k = (2048, 32) if args.smoke else (65_536, 1024)
    kinds = {"dense": dense(n, k), "ReLU-like": relu_features(n, k, seed=3)}
    ways = [(kind, codec, np.float32, min(4096, n)) for kind in kinds for codec in CODECS] + [
        ("ReLU-like", codec, np.float16, min(8192, n)) for codec in ("none", "lz4, shuffled")
    ]
    ways += [("ReLU-like", "none", np.float32, min(rows, n)) for rows in (1024, 16_384)]
    with tempfile.TemporaryDirectory() as folder:
        sizes, runs = {}, {}
        for number, way in enumerate(ways):
            kind, codec, dtype, rows = way
            path = Path(folder) / f"{number}.zarr"
            sizes[way] = write(path, kinds[kind].astype(dtype), CODECS[codec], rows)
            runs[f"read {number}"] = lambda path=path: read(path)
            runs[f"sweep {number}"] = lambda path=path: sweep(path)
        taken = best_seconds(runs, args.repeats)
        fast = {}
        if find_spec("zarrs"):
            with zarr.config.set({"codec_pipeline.path": ZARRS}):
                fast = best_seconds(
                    {name: run for name, run in runs.items() if name.startswith("read")},
                    args.repeats,
                )
    section.add(f"{n:,} × {k:,}, from the page cache, two threads. GB/s refer to float32 numbers.")
    rows_told = []
    for number, way in enumerate(ways):
        kind, codec, dtype, rows = way
        zarrs = f"{4 * n * k / fast[f'read {number}'] / 1e9:.1f}" if fast else "–"
        rows_told.append(
            (
                f"{kind} {np.dtype(dtype).name}",
                codec,
                f"{rows:,}",
                f"{4 * n * k / sizes[way]:.2f}",
                f"{4 * n * k / taken[f'read {number}'] / 1e9:.1f}",
                zarrs,
                f"{taken[f'sweep {number}']:.2f}",
            )
        )
    section.table(
        ["features", "codec", "rows per chunk", "float32 ÷ stored", "read, GB/s",
         "with zarrs, GB/s", "Gram sweep, s"],
        rows_told,
    )  # fmt: skip
    section.finish()


if __name__ == "__main__":
    main()
