"""Finds the functions of the BLAS that NumPy or SciPy ships, and sets its number of threads.

NumPy's BLAS is already loaded, so it costs nothing. SciPy's takes 30 ms to load; it is used if NumPy was built without
a BLAS, and for functions that only SciPy exports (LAPACK).
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType

from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

from mpijax.runtime.machine.cpus import cpus_per_rank

_MODULE = "scipy.linalg.cython_blas"
_FUNCTIONS = ("sgemm", "dgemm", "cgemm", "zgemm")
# If the user sets one of these, mpijax does not change the threads of OpenBLAS.
_DECIDED = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
# Variants of function names in OpenBLAS builds: a prefix, and a suffix for 64-bit integers.
_NAMES = [(prefix, suffix) for prefix in ("scipy_", "") for suffix in ("64_", "")]


def addresses() -> dict[str, int]:
    """The addresses of the matrix products by name ("dgemm"). Sets the BLAS threads to this rank's share of CPUs."""
    return _numpys() or {name: _address_in(load()[name]) for name in _FUNCTIONS}


def _linked_by_numpy() -> ctypes.CDLL | None:
    """Finds symbols of NumPy's core and of the libraries that it depends on."""
    try:
        return ctypes.CDLL(_multiarray_umath.__file__, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None


def _numpys() -> dict[str, int]:
    """The functions of the BLAS that NumPy is linked with; {} if NumPy has none."""
    linked = _linked_by_numpy()
    if linked is None:
        return {}
    for prefix, suffix in _NAMES:
        names = {name: f"{prefix}{name}_{suffix}" for name in _FUNCTIONS}
        if all(hasattr(linked, symbol) for symbol in names.values()):
            if not _threads_decided():
                _set_threads(linked, cpus_per_rank())
            return {
                name: ctypes.cast(getattr(linked, symbol), ctypes.c_void_p).value or 0 for name, symbol in names.items()
            }
    return {}


def _address_in(capsule) -> int:
    api = ctypes.pythonapi
    name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    return pointer(capsule, name(capsule))


def load() -> dict:
    """SciPy's capsules of the BLAS functions by name. Sets the BLAS threads to this rank's share of CPUs."""
    table = _module().__pyx_capi__
    if not _threads_decided():
        for library in openblas_libraries():
            set_threads(library, cpus_per_rank())
    return table


def thread_functions() -> tuple[int, int]:
    """Addresses of the functions that get and set the threads of SciPy's BLAS; (0, 0) if it has none."""
    return _thread_functions(ctypes.CDLL(_module().__file__, mode=os.RTLD_NOLOAD | os.RTLD_LAZY))


def product_thread_functions() -> tuple[int, int]:
    """The same for the BLAS of `addresses`; (0, 0) if the user has set the number of threads of OpenBLAS."""
    if _threads_decided():
        return 0, 0
    linked = _linked_by_numpy() if _numpys() else None
    return thread_functions() if linked is None else _thread_functions(linked)


def _thread_functions(linked: ctypes.CDLL) -> tuple[int, int]:
    for prefix, suffix in _NAMES:
        names = [f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set")]
        if all(hasattr(linked, name) for name in names):
            get, set_ = (ctypes.cast(getattr(linked, name), ctypes.c_void_p).value or 0 for name in names)
            return get, set_
    return 0, 0


def _module() -> ModuleType:
    """`scipy.linalg.cython_blas` without the rest of `scipy.linalg`: 30 ms instead of 180."""
    if _MODULE in sys.modules:
        return sys.modules[_MODULE]
    package = importlib.machinery.PathFinder.find_spec("scipy")
    if package is None or not package.submodule_search_locations:
        raise ImportError("Matrix products need the BLAS of SciPy. Run: pip install scipy")
    folder = os.path.join(package.submodule_search_locations[0], "linalg")
    spec = importlib.machinery.PathFinder.find_spec(_MODULE, [folder])
    if spec is None or spec.loader is None:
        raise ImportError(
            f"Matrix products need the BLAS of SciPy, but {folder} does not contain {_MODULE}. Run: pip install "
            "--force-reinstall scipy"
        )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _threads_decided() -> bool:
    return any(os.environ.get(name) for name in _DECIDED)


def openblas_libraries() -> list[str]:
    """Paths of the OpenBLAS libraries that this process has loaded: SciPy's, and NumPy's own."""
    try:
        with open("/proc/self/maps") as maps:
            names = {line.rsplit(None, 1)[-1] for line in maps if "openblas" in line}
    except OSError:  # not Linux
        return []
    return sorted(name for name in names if ".so" in os.path.basename(name))


def set_threads(library: str, threads: int) -> bool:
    """Sets the number of threads of one OpenBLAS; False if its function for that was not found."""
    return _set_threads(ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY), threads)


def _set_threads(loaded: ctypes.CDLL, threads: int) -> bool:
    for prefix, suffix in _NAMES:
        setter = getattr(loaded, f"{prefix}openblas_set_num_threads{suffix}", None)
        if setter is not None:
            setter(ctypes.c_int(threads))
            return True
    return False
