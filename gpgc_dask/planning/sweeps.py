"""How often a fit reads the data, by kind of sweep."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpgc_dask.gp.oracle.dask import MAX_GROUP_BYTES
from gpgc_dask.gp.oracle.rows import STATISTICS_BYTES
from gpgc_dask.gp.solvers.redundancy import MIN_GROUPS_FOR_REDUNDANCY
from gpgc_dask.gp.warm_start import warm_start_rows
from gpgc_dask.planning.shape import Shape

__all__ = ["ROUNDS", "Sweeps", "default_rounds", "expected_rounds", "expected_sweeps"]

ROUNDS = 2
"""Rounds of the second look, unless a user wants another number."""

WARM_STEPS, COLD_STEPS, SLOW_STEPS = 2, 3, 4
"""Typical numbers of steps: after a warm start, without one, and with few rows per feature."""

ROWS_FOR_FEW_STEPS = 100
"""Rows per feature from which on a fit takes few steps."""


@dataclass(frozen=True)
class Sweeps:
    """The sweeps of a fit by kind, each in reads of the data.

    Attributes
    ----------
    surveys : float
        Sweeps that compute moments only.
    steps : float
        Sweeps that estimate the group terms by random directions, then compute moments. The first
        read after a warm start is one of them.
    certificates : float
        Sweeps that compute exact leverages and no moments, to check the optimum.
    repeated : float
        Second reads of rows in the same sweep (scattered groups), and reads of the sample.
    sample_rows : int
        Number of rows of the sample of a warm start, 0 without one.
    looks : float
        Sweeps that predict rows without their group, for the second look.
    shared : float
        Reads that serve both a look and the survey after it.
    final_looks : float
        Certificates that predict rows without their group, too: the first look then takes no read.
    """

    surveys: float
    steps: float
    certificates: float
    repeated: float
    sample_rows: int
    looks: float = 0.0
    shared: float = 0.0
    final_looks: float = 0.0

    @property
    def reads(self) -> float:
        """Reads of the data in all."""
        return self.graphs + self.repeated

    @property
    def graphs(self) -> float:
        """Graphs of tasks over all rows."""
        return self.surveys + self.steps + self.certificates + self.looks - self.shared


def default_rounds(n_classes: int) -> int:
    """Rounds of the second look by default.

    None with more than two classes: rows of rare classes would lose most of their weight, and
    predicted masks and the ranking of street scenes get worse (benchmarks/second_look.py).
    """
    return ROUNDS if n_classes <= 2 else 0


def expected_rounds(shape: Shape, rounds: int) -> int:
    """Rounds of the second look that a fit does: none with few groups, or with too large ones."""
    group_bytes = shape.largest_group * shape.n_features * shape.product_bytes
    too_large = shape.held_rows > 0 and group_bytes > MAX_GROUP_BYTES
    return 0 if too_large or shape.n_groups < MIN_GROUPS_FOR_REDUNDANCY else rounds


def expected_sweeps(
    shape: Shape, *, estimate_redundancy: bool, separable: bool, rounds: int = 0
) -> Sweeps:
    """Typical sweeps of a fit and of its second look.

    Parameters
    ----------
    shape : Shape
        Sizes of the data.
    estimate_redundancy : bool
        Whether the fit estimates the redundancy.
    separable : bool
        Whether each group has a noise variance of its own.
    rounds : int, default 0
        Rounds of the second look: one read for each if groups are adjacent, and one more for the
        first if the fit ends without a certificate of all rows.
    """
    first = _first_fit(shape, estimate_redundancy=estimate_redundancy, separable=separable)
    done = float(expected_rounds(shape, rounds))
    shared = max(done - 1.0, 0.0) if shape.adjacent else 0.0
    # Statistics of large groups, from a survey, replace their rows in the certificate.
    all_rows = first.surveys == 0.0 or shape.n_large_groups == 0
    final = 1.0 if done and separable and all_rows and _one_read(shape) else 0.0
    return replace(
        first,
        surveys=first.surveys + done,
        looks=done - final,
        shared=shared,
        final_looks=final,
    )


def _first_fit(shape: Shape, *, estimate_redundancy: bool, separable: bool) -> Sweeps:
    """Typical sweeps of a fit, with the shortcuts for large groups and for a single variance."""
    stored = shape.n_large_groups * 8 * shape.n_features**2 <= STATISTICS_BYTES
    share = 1.0 - (shape.rows_in_large_groups / shape.n_rows if stored else 0.0)
    if not separable:
        # One read for the noise and the scales; each trial of c asks for leave-out terms.
        return Sweeps(1.0, 0.0, 4.0 * share if estimate_redundancy else 0.0, 0.0, 0)
    one_read = _one_read(shape)
    sample = warm_start_rows(
        shape.n_rows, shape.n_features, shape.n_groups, shape.largest_group, shape.stored_bytes
    )
    if sample and one_read:
        read = min(8 * shape.block_rows, shape.n_rows) / shape.n_rows
        return Sweeps(0.0, 1.0 + WARM_STEPS, 1.0, read, sample)
    many = shape.n_rows >= ROWS_FOR_FEW_STEPS * shape.n_features
    steps = share * ((COLD_STEPS if many else SLOW_STEPS) + (1 if estimate_redundancy else 0))
    return Sweeps(1.0, steps, share, 0.0 if one_read else steps, 0)


def _one_read(shape: Shape) -> bool:
    """Whether tasks hold whole groups, so that a step is one read."""
    group_bytes = shape.largest_group * shape.n_features * shape.product_bytes
    return shape.adjacent and group_bytes <= MAX_GROUP_BYTES
