"""BLAS products in place, with SciPy's C functions and with its public ones."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import scipy
from scipy.linalg import cython_blas

from gpgc_dask.gp.oracle import blas
from gpgc_dask.gp.oracle.blas import add_gram, find_routine, multiply_triangular
from tests.support.problems import RTOL

DTYPES = ["float32", "float64"]


def rows(n, k, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal((n, k)).astype(dtype)


@pytest.fixture(params=["C function", "public function"])
def routines(request, monkeypatch):
    if request.param == "public function":
        monkeypatch.setattr(blas, "find_routine", lambda name: None)


@pytest.mark.parametrize("name", ["ssyrk", "dsyrk", "strmm", "dtrmm"])
def test_scipy_provides_the_c_functions(name):
    assert find_routine(name) is not None, (
        f"SciPy {scipy.__version__} has no {name} in scipy.linalg.cython_blas.__pyx_capi__ with "
        "the arguments that gpgc_dask/gp/oracle/blas.py expects. Fits still work, with the "
        "public functions, but threads wait for each other: adapt find_routine to the new SciPy."
    )


@pytest.mark.parametrize("table", [None, {}, {"dsyrk": cython_blas.__pyx_capi__["dtrmm"]}])
def test_other_tables_are_not_used(monkeypatch, table):
    find_routine.cache_clear()
    if table is None:
        monkeypatch.delattr(cython_blas, "__pyx_capi__")
    else:
        monkeypatch.setattr(cython_blas, "__pyx_capi__", table)
    try:
        assert find_routine("dsyrk") is None
    finally:
        find_routine.cache_clear()


@pytest.mark.usefixtures("routines")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gram_is_added_in_place(dtype, sign):
    A = rows(70, 9, dtype)
    total = np.asfortranarray(np.tril(rows(9, 9, dtype, seed=1)))
    expected = np.tril(total + sign * A.astype(float).T @ A.astype(float))
    add_gram(total, A, sign)
    np.testing.assert_allclose(np.tril(total), expected, rtol=RTOL[dtype], atol=1e-5)
    add_gram(total, A[:0])
    np.testing.assert_allclose(np.tril(total), expected, rtol=RTOL[dtype], atol=1e-5)


@pytest.mark.usefixtures("routines")
@pytest.mark.parametrize("dtype", DTYPES)
def test_triangular_product_in_place(dtype):
    A, T = rows(50, 8, dtype), np.asfortranarray(np.tril(rows(8, 8, dtype, seed=1)))
    expected = A.astype(float) @ T.astype(float).T
    multiply_triangular(T, A)
    np.testing.assert_allclose(A, expected, rtol=RTOL[dtype], atol=1e-5)


def test_arrays_in_another_order_or_type_raise():
    A, square = rows(6, 4, "float64"), np.zeros((4, 4), order="F")
    for bad in (A[:, ::1].T.copy().T, A.astype("float32"), A[:, :3]):
        with pytest.raises(ValueError, match="in C order"):
            add_gram(square, bad)
    with pytest.raises(ValueError, match="Fortran"):
        add_gram(rows(4, 4, "float64"), A)


def test_other_threads_run_during_a_product():
    """This thread counts while a product runs; it could not if the interpreter lock were held."""
    A, total = rows(4000, 1200, "float32"), np.zeros((1200, 1200), dtype="float32", order="F")
    done = threading.Event()

    def multiply():
        for _ in range(3):
            add_gram(total, A)
        done.set()

    thread = threading.Thread(target=multiply)
    thread.start()
    counted = 0
    while not done.is_set():
        counted += 1
    thread.join()
    assert counted > 1000
