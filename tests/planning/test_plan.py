"""The planned cost of a fit."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

from gpgc_dask import GP, GPGC
from gpgc_dask.imaging.features import Recipe
from gpgc_dask.models.review_cost import measure_review
from gpgc_dask.pipelines.ingest_cost import measure_ingest
from gpgc_dask.planning.machine import Machine
from gpgc_dask.planning.plan import plan
from gpgc_dask.planning.resources import Resources
from gpgc_dask.planning.shape import Shape
from gpgc_dask.planning.stages import TYPICAL_INGEST, TYPICAL_REVIEW
from tests.support.problems import classification


def shape(n=100_000, k=1000, n_groups=1000, **changes):
    values = {
        "n_rows": n,
        "n_features": k,
        "n_targets": 1,
        "n_groups": n_groups,
        "largest_group": 2 * n // n_groups,
        "rows_in_large_groups": 0,
        "n_large_groups": 0,
        "adjacent": True,
        "stored_bytes": 4,
        "block_rows": 4096,
        "held_rows": 3 * 4096,
        "product_bytes": 4,
    }
    return Shape(**{**values, **changes})


def make_plan(s, workers=2, threads=1, memory=4 << 30, redundancy=True, separable=True, rounds=0):
    return plan(
        s,
        estimate_redundancy=redundancy,
        separable=separable,
        resources=Resources(workers, threads, memory, True),
        machine=Machine.typical(4e10),
        rounds=rounds,
    )


def test_memory_of_a_worker_does_not_grow_with_rows():
    small, large = make_plan(shape(n=10**5)), make_plan(shape(n=10**8, n_groups=10**6))
    assert small.worker_bytes == large.worker_bytes
    assert make_plan(shape(k=4000)).worker_bytes > 4 * make_plan(shape(k=1000)).worker_bytes / 3
    assert make_plan(shape(), threads=4).worker_bytes > make_plan(shape()).worker_bytes


def test_time_falls_with_workers_and_grows_with_work():
    one, two = make_plan(shape(), workers=1), make_plan(shape(), workers=2)
    assert 1.5 < one.seconds / two.seconds <= 2.0
    assert make_plan(shape(n=200_000)).seconds > 1.5 * make_plan(shape()).seconds


def test_shortcuts_show_in_the_reads():
    assert make_plan(shape(), redundancy=False, separable=False).reads == 1
    large = shape(n_groups=20, rows_in_large_groups=100_000, n_large_groups=20)
    assert make_plan(large).reads == 1
    assert make_plan(shape(adjacent=False)).reads > make_plan(shape()).reads


def test_the_second_look_costs_one_read_per_round():
    without, two = make_plan(shape()), make_plan(shape(), rounds=2)
    assert two.reads == without.reads + 2
    common = {"separable": False}
    assert make_plan(shape(), rounds=2, **common).reads == make_plan(shape(), **common).reads + 3
    scattered = shape(adjacent=False)
    assert make_plan(scattered, rounds=2).reads == make_plan(scattered).reads + 4
    assert two.seconds > 1.3 * without.seconds
    assert two.driver_bytes > without.driver_bytes
    assert make_plan(shape(n_groups=9), rounds=2).reads == make_plan(shape(n_groups=9)).reads
    large = shape(largest_group=100_000)
    assert make_plan(large, rounds=2).reads == make_plan(large).reads


@pytest.mark.parametrize(("n_features", "reads"), [(30, 3), (80, 2)])
def test_planned_reads_of_the_second_look_are_those_of_a_fit(n_features, reads):
    """Statistics replace rows of groups with more rows than features: one more read for them."""
    data = classification(4000, n_features, 80)
    X = da.from_array(data.X, chunks=(500, -1))
    planned, done = (
        [GPGC(rounds=rounds).plan(X, groups=data.groups).reads for rounds in (0, 2)],
        [GPGC(rounds=rounds).fit(X, data.y, groups=data.groups).n_reads_ for rounds in (0, 2)],
    )
    assert np.diff(planned) == np.diff(done) == reads


def test_plan_as_text():
    data = classification(1000, 20, 30)
    X = da.from_array(data.X, chunks=(200, -1))
    found = GPGC().plan(X, groups=data.groups, workers=4, memory_limit="1GB")
    text = str(found)
    assert found.fits
    for word in ("1,000 rows", "30 groups", "reads of X", "memory per worker", "4 worker(s)"):
        assert word in text
    assert GP(redundancy=1.0).plan(data.X).reads == 1


def test_fit_without_enough_memory_raises_before_it_starts(monkeypatch):
    data = classification(1000, 20, 30)
    X = da.from_array(data.X, chunks=(200, -1))
    tight = Resources(2, 1, 50 << 20, True)
    monkeypatch.setattr(Resources, "detect", classmethod(lambda cls, **arguments: tight))
    model = GPGC()
    with pytest.raises(MemoryError, match=r"needs .* but has 50.00 MiB.*force=True"):
        model.fit(X, data.y, groups=data.groups)
    assert not hasattr(model, "coef_")
    model.fit(X, data.y, groups=data.groups, force=True)
    assert model.converged_


def test_resources_of_a_cluster(client):
    found = Resources.detect(is_dask=True)
    assert found.workers == 2
    assert found.threads == 1
    assert found.memory_limit == 2_000_000_000
    assert found.separate


def test_invalid_resources_raise():
    X = np.ones((10, 3))
    with pytest.raises(ValueError, match="workers must be 1 or more"):
        GPGC().plan(X, workers=0)
    with pytest.raises(ValueError, match="memory_limit must be bytes"):
        GPGC().plan(X, memory_limit="lots")


def test_measured_machine():
    assert 1e8 < Machine.measure().products_per_second < 1e13
    assert np.isfinite(GPGC().plan(np.ones((10, 3))).seconds)


def test_the_second_look_is_part_of_the_time():
    without, two = make_plan(shape()), make_plan(shape(), rounds=2)
    assert without.second_look_seconds == 0.0
    assert two.second_look_seconds == pytest.approx(two.seconds - without.seconds)
    assert "second look" in str(two)
    assert "second look" not in str(without)


def test_ingest_and_review_take_time_by_image():
    here = Resources(2, 1, 4 << 30, True)
    wide = Resources(20, 1, 4 << 30, True)
    small, large = (TYPICAL_INGEST.stage(n, here) for n in (1000, 2000))
    assert large.seconds == pytest.approx(2 * small.seconds)
    assert large.worker_bytes == small.worker_bytes
    assert TYPICAL_INGEST.stage(1000, wide).seconds == pytest.approx(small.seconds / 10)
    few, many = (TYPICAL_REVIEW.stage(n, 290 * n, here) for n in (1000, 100_000))
    assert 10 < many.seconds / few.seconds < 100
    assert TYPICAL_REVIEW.stage(1000, 290_000, wide).seconds < few.seconds


def test_measured_ingest_and_review():
    assert 1e-4 < measure_ingest(Recipe(backbone="colour")).photo_seconds < 10
    review = measure_review()
    for seconds in (
        review.given_seconds,
        review.copy_seconds,
        review.region_seconds,
        review.learning_seconds,
    ):
        assert 1e-5 < seconds < 100
