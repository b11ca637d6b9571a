"""Arithmetic, network traffic and time of a fit: pure functions of sizes and speeds."""

from __future__ import annotations

from gpgc_dask.gp.oracle.dask import count_tasks
from gpgc_dask.planning.machine import Machine
from gpgc_dask.planning.memory import weight_gradient_bytes
from gpgc_dask.planning.resources import Resources
from gpgc_dask.planning.shape import Shape
from gpgc_dask.planning.sweeps import Sweeps

__all__ = ["count_products", "estimate_seconds", "network_bytes"]

SECONDS_PER_GRAPH = 0.05
"""Time to build, send and merge the graph of one sweep on a cluster."""

EVALUATIONS_PER_STEP = 4
EVALUATIONS_AT_START = 13
"""Factorisations at the driver, or work that costs as much."""

LINEAR_PRODUCTS = 40
"""Multiply-adds per number of a row to estimate its terms by random directions."""

GRAMS_PER_SAMPLE = 5
"""Work of a warm start on its sample, in Gram products of the sample."""


def count_products(shape: Shape, sweeps: Sweeps, *, estimate_redundancy: bool) -> float:
    """Multiply-adds over the rows; a Gram product and a triangular product count N k² each."""
    square = float(shape.n_rows) * shape.n_features**2
    linear = float(shape.n_rows) * shape.n_features
    with_linear = sweeps.steps + (sweeps.certificates if estimate_redundancy else 0.0)
    with_linear += sweeps.looks + sweeps.final_looks
    sample = GRAMS_PER_SAMPLE * float(sweeps.sample_rows) * shape.n_features**2
    return (
        square * (sweeps.surveys + sweeps.steps + sweeps.certificates)
        + linear * LINEAR_PRODUCTS * with_linear
        + sample
    )


def estimate_seconds(
    shape: Shape,
    resources: Resources,
    machine: Machine,
    sweeps: Sweeps,
    network: int,
    *,
    estimate_redundancy: bool,
) -> float:
    """Wall time in seconds: rows on all threads, the last task, merging, the driver's algebra.

    ``network`` is the number of bytes sent between workers and driver.
    """
    n, k = float(shape.n_rows), float(shape.n_features)
    threads = resources.workers * resources.threads
    gram = k * k / machine.products_per_second
    read = k * shape.stored_bytes / machine.read_bytes_per_second
    linear = k * machine.linear_seconds
    leave_out = k * machine.leave_out_seconds if estimate_redundancy else 0.0
    certificate = k * k / machine.triangular_per_second + read + linear + leave_out
    rows = (n / threads) * (
        sweeps.surveys * (gram + read)
        + sweeps.steps * (gram + read + linear + leave_out)
        + sweeps.certificates * certificate
        + sweeps.looks * (read + linear)
        + (sweeps.looks + sweeps.final_looks) * k * machine.leave_out_seconds
        - sweeps.shared * read
    )
    n_tasks = count_tasks(shape.n_rows, shape.n_features, threads)
    busy = min(n_tasks / threads, 1.0)
    idle = 0.5 * rows / n_tasks * threads if n_tasks > 1 else 0.0
    evaluations = EVALUATIONS_AT_START + EVALUATIONS_PER_STEP * sweeps.steps
    algebra = evaluations * k**3 / machine.algebra_per_second
    sample = GRAMS_PER_SAMPLE * sweeps.sample_rows * gram
    repeated = sweeps.repeated * n * read / threads
    cluster = 0.0
    if resources.separate:
        n_sweeps = sweeps.graphs
        bandwidth = machine.network_bytes_per_second * max(resources.workers / 2, 1)
        cluster = n_sweeps * SECONDS_PER_GRAPH + network / bandwidth
    return rows / busy + idle + algebra + sample + repeated + cluster


def network_bytes(
    shape: Shape, resources: Resources, sweeps: Sweeps, *, estimate_redundancy: bool
) -> int:
    """Bytes sent between workers and driver in all sweeps, without reads from the store.

    They are the partial sums that are merged on another worker, the total, and the arrays that
    each sweep sends to the workers.
    """
    if not resources.separate:
        return 0
    k, workers = shape.n_features, resources.workers
    n_tasks = count_tasks(shape.n_rows, k, workers * resources.threads)
    triangle = 8 * k * (k + 1) // 2
    moments = triangle * ((n_tasks - 1) * (1.0 - 1.0 / workers) + 1.0)
    factor = 8 * k * k * (workers + 1)
    row_vectors = 40 * shape.n_rows
    with_factor = (
        sweeps.certificates + sweeps.looks + (sweeps.steps if estimate_redundancy else 0.0)
    )
    n_sweeps = sweeps.graphs
    total = (sweeps.surveys + sweeps.steps) * moments + with_factor * factor
    total += (sweeps.looks + sweeps.final_looks) * 8 * shape.n_rows * shape.n_targets
    return int(total + n_sweeps * row_vectors + sweeps.steps * weight_gradient_bytes(shape))
