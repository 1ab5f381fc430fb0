"""The BLAS that SciPy carries: where its functions are, and how many threads it uses."""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType

from mpijax.runtime.cpus import cpus_per_rank

_MODULE = "scipy.linalg.cython_blas"
# A user who sets one of these has decided how many threads OpenBLAS uses.
_DECIDED = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
# How builds of OpenBLAS name their functions: prefix, and suffix where integers have 64 bits.
_SETTERS = [f"{p}openblas_set_num_threads{s}" for p in ("scipy_", "") for s in ("", "64_")]


def load() -> dict:
    """Capsules of the BLAS functions by name ("dgemm"). Sets the threads of BLAS to this rank's share."""
    table = _module().__pyx_capi__
    if not any(os.environ.get(name) for name in _DECIDED):
        for library in openblas_libraries():
            set_threads(library, cpus_per_rank())
    return table


def _module() -> ModuleType:
    """`scipy.linalg.cython_blas` without the rest of `scipy.linalg`: 20 ms instead of 180."""
    if _MODULE in sys.modules:
        return sys.modules[_MODULE]
    package = importlib.machinery.PathFinder.find_spec("scipy")
    if package is None or not package.submodule_search_locations:
        raise ImportError("matrix products need SciPy, whose BLAS they call: pip install scipy")
    folder = os.path.join(package.submodule_search_locations[0], "linalg")
    spec = importlib.machinery.PathFinder.find_spec(_MODULE, [folder])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def openblas_libraries() -> list[str]:
    """Files of the OpenBLAS libraries that this process has loaded: SciPy's, and NumPy's own."""
    try:
        with open("/proc/self/maps") as maps:
            names = {line.rsplit(None, 1)[-1] for line in maps if "openblas" in line}
    except OSError:  # not Linux
        return []
    return sorted(name for name in names if ".so" in os.path.basename(name))


def set_threads(library: str, threads: int) -> bool:
    """Sets the number of threads of one OpenBLAS; False if its function for that was not found."""
    loaded = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    for name in _SETTERS:
        if hasattr(loaded, name):
            getattr(loaded, name)(ctypes.c_int(threads))
            return True
    return False
