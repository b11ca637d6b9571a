"""Two BLAS products that NumPy does not offer, called without holding the interpreter lock.

This is the only module that uses the table of C functions in ``scipy.linalg.cython_blas``
(``__pyx_capi__``), which is meant for Cython and not documented for Python. The public ways are
slower. ``scipy.linalg.blas`` holds the interpreter lock while it multiplies: the threads of a
worker would wait for each other, and no block could be read meanwhile. NumPy's products release
the lock but cannot add to a triangle in place: they take 1.1 to 1.8 times the CPU time.

If SciPy no longer has the table, or its functions have other arguments, ``scipy.linalg.blas``
is used instead, with the same results.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import blas, cython_blas

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import InputError

__all__ = ["add_gram", "find_routine", "multiply_triangular"]

_LETTERS = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
_REALS = {"s": ctypes.c_float, "d": ctypes.c_double}

_SIGNATURES = {
    # uplo, trans, n, k, alpha, A, lda, beta, C, ldc
    "syrk": "cciirairai",
    # side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb
    "trmm": "cccciiraiai",
}
"""Arguments of each routine: c(haracter), i(nteger), r(eal), a(rray). All are pointers."""


@cache
def find_routine(name: str) -> Any:
    """The C function of a BLAS routine such as ``"dsyrk"``; None if SciPy does not provide it.

    Its declaration is compared with the one that this module expects: a SciPy with 64-bit
    integers, for example, does not pass.
    """
    capsule = getattr(cython_blas, "__pyx_capi__", {}).get(name)
    if capsule is None:
        return None
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    declaration = api.PyCapsule_GetName(capsule)
    letter, signature = name[0], _SIGNATURES[name[1:]]
    types = declaration.decode().removeprefix("void (").removesuffix(")").split(", ")
    real = f"{letter} *"
    expected = {"c": "char *", "i": "int *", "r": real, "a": real}
    matches = len(types) == len(signature) and all(
        each.endswith(expected[kind]) for each, kind in zip(types, signature, strict=True)
    )
    if not matches:
        return None
    address = api.PyCapsule_GetPointer(capsule, declaration)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(signature))(address)


def _call(function: Any, letter: str, routine: str, *arguments: Any) -> None:
    """Call a C function with pointers to its arguments."""
    types: dict[str, Any] = {"c": ctypes.c_char, "i": ctypes.c_int, "r": _REALS[letter]}
    pointers, alive = [], []
    for kind, argument in zip(_SIGNATURES[routine], arguments, strict=True):
        if kind == "a":
            pointers.append(ctypes.c_void_p(argument.ctypes.data))
        else:
            alive.append(types[kind](argument))
            pointers.append(ctypes.c_void_p(ctypes.addressof(alive[-1])))
    function(*pointers)


def add_gram(total: Features, A: Features, sign: float = 1.0) -> None:
    """Add sign·AᵀA to the lower triangle of ``total``, in place.

    Parameters
    ----------
    total : array of shape (k, k) in Fortran order
        Sum to add to, of the type of ``A``.
    A : array of float32 or float64 of shape (n, k) in C order
        Rows.
    sign : float, default 1.0
        Factor of the product.
    """
    n, k, letter = _check(A, total)
    if not n:
        return
    function = find_routine(f"{letter}syrk")
    if function is not None:
        _call(function, letter, "syrk", b"L", b"N", k, n, sign, A, k, 1.0, total, k)
    else:
        syrk = getattr(blas, f"{letter}syrk")
        syrk(sign, A.T, beta=1.0, c=total, lower=1, overwrite_c=1)


def multiply_triangular(T: Features, A: Features) -> None:
    """Replace ``A`` by A Tᵀ in place, for a lower triangular T: half the work of a full product.

    Parameters
    ----------
    T : array of shape (k, k) in Fortran order
        Lower triangular factor, of the type of ``A``.
    A : array of float32 or float64 of shape (n, k) in C order
        Rows, which are overwritten.
    """
    n, k, letter = _check(A, T)
    if not n:
        return
    function = find_routine(f"{letter}trmm")
    if function is not None:
        _call(function, letter, "trmm", b"L", b"L", b"N", b"N", k, n, 1.0, T, k, A, k)
    else:
        trmm = getattr(blas, f"{letter}trmm")
        trmm(1.0, T, A.T, lower=1, overwrite_b=1)


def _check(A: Features, square: Features) -> tuple[int, int, str]:
    """(n, k, letter of the type in names of routines); raise an InputError if they do not fit."""
    n, k = A.shape
    fits = square.shape == (k, k) and square.dtype == A.dtype
    if not (fits and A.flags.c_contiguous and square.flags.f_contiguous and A.dtype in _LETTERS):
        raise InputError(
            "A must be (n, k) in C order, the other array (k, k) in Fortran order, both of the "
            "same type"
        )
    return n, k, _LETTERS[A.dtype]
