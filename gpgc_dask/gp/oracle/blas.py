"""Two products of BLAS that NumPy does not offer, called so that other threads can go on.

SciPy's Python wrappers of BLAS hold the interpreter's lock while they multiply: threads of one
process would wait for each other, and a block could not be read while another is multiplied. Its
``cython_blas`` publishes the same functions for low-level callers; ctypes lets go of the lock.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import cython_blas

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import InputError

__all__ = ["add_gram", "multiply_triangular"]

_LETTER = {
    np.dtype(np.float32): ("s", ctypes.c_float),
    np.dtype(np.float64): ("d", ctypes.c_double),
}


@cache
def _function(name: str, n_arguments: int) -> Any:
    """A function of cython_blas; all its arguments are pointers."""
    capsule = cython_blas.__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)
    return prototype(address)


def _call(routine: str, dtype: np.dtype[Any], *arguments: Any) -> None:
    """Call ``routine`` for a type; str, int, float and array arguments become pointers."""
    letter, real = _LETTER[dtype]
    kept: list[Any] = []
    for argument in arguments:
        if isinstance(argument, str):
            kept.append(ctypes.c_char(argument.encode()))
        elif isinstance(argument, int):
            kept.append(ctypes.c_int(argument))
        elif isinstance(argument, float):
            kept.append(real(argument))
        else:
            kept.append(argument)
    pointers = [
        ctypes.c_void_p(item.ctypes.data) if isinstance(item, np.ndarray) else ctypes.byref(item)
        for item in kept
    ]
    _function(letter + routine, len(pointers))(*(ctypes.cast(p, ctypes.c_void_p) for p in pointers))


def add_gram(total: Features, A: Features, sign: float = 1.0) -> None:
    """total ← total + sign·AᵀA, in place, its lower triangle only.

    total : (k, k) in Fortran's order;  A : (n, k) in C's order, of the same type
    """
    n, k = _checked(A, total)
    if n:
        _call("syrk", A.dtype, "L", "N", k, n, float(sign), A, k, 1.0, total, k)


def multiply_triangular(T: Features, A: Features) -> None:
    """A ← A Tᵀ in place, for a lower triangular T: half of a full product's work.

    T : (k, k) in Fortran's order;  A : (n, k) in C's order, of the same type
    """
    n, k = _checked(A, T)
    if n:
        _call("trmm", A.dtype, "L", "L", "N", "N", k, n, 1.0, T, k, A, k)


def _checked(A: Features, square: Features) -> tuple[int, int]:
    n, k = A.shape
    fits = square.shape == (k, k) and square.dtype == A.dtype
    if not (fits and A.flags.c_contiguous and square.flags.f_contiguous and A.dtype in _LETTER):
        raise InputError("A must be (n, k) in C's order, the other (k, k) in Fortran's, one type")
    return n, k
