"""Finds the kernels of linear algebra: extensions that call SciPy's LAPACK by pointer."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
import sys

from mpijax.runtime.machine import blas

_MODULE = "scipy.linalg.cython_lapack"
# In the order of the extension: names for float32, float64, complex64, complex128.
_OF_LAPACK = (
    ("spotrf", "dpotrf", "cpotrf", "zpotrf"),
    ("sgetrf", "dgetrf", "cgetrf", "zgetrf"),
    ("strsm", "dtrsm", "ctrsm", "ztrsm"),
    ("sgeqrf", "dgeqrf", "cgeqrf", "zgeqrf"),
    ("sgeqp3", "dgeqp3", "cgeqp3", "zgeqp3"),
    ("sorgqr", "dorgqr", "cungqr", "zungqr"),
    ("ssyevd", "dsyevd", "cheevd", "zheevd"),
    ("sgesdd", "dgesdd", "cgesdd", "zgesdd"),
)
_OF_REFLECTORS = (
    ("sgeqrf", "dgeqrf", "cgeqrf", "zgeqrf"),
    ("sgeqp3", "dgeqp3", "cgeqp3", "zgeqp3"),
    ("sorgqr", "dorgqr", "cungqr", "zungqr"),
    ("sormqr", "dormqr", "cunmqr", "zunmqr"),
)
_OF_FORMS = (
    ("sgtsv", "dgtsv", "cgtsv", "zgtsv"),
    ("ssytrd", "dsytrd", "chetrd", "zhetrd"),
    ("sgehrd", "dgehrd", "cgehrd", "zgehrd"),
    ("sgees", "dgees", "cgees", "zgees"),
    ("sgeev", "dgeev", "cgeev", "zgeev"),
    ("sstevd", "dstevd"),
)


@functools.cache
def addresses() -> dict[str, int]:
    """The kernels' addresses by name ("cholesky"). Loads SciPy's LAPACK, with this rank's share of threads."""
    from mpijax._ext import forms, lapack, reflectors  # deferred: only programs with linear algebra need them

    capsules = {**_capsules(), **blas.load()}
    threads = blas.thread_functions()
    found: dict[str, int] = {}
    for module, routines in ((lapack, _OF_LAPACK), (reflectors, _OF_REFLECTORS), (forms, _OF_FORMS)):
        module.install([[capsules[name] for name in kinds] for kinds in routines], threads)
        found |= module.addresses()
    return found


def _capsules() -> dict:
    """`scipy.linalg.cython_lapack` without the rest of `scipy.linalg`."""
    if _MODULE in sys.modules:
        return sys.modules[_MODULE].__pyx_capi__
    package = importlib.machinery.PathFinder.find_spec("scipy")
    if package is None or not package.submodule_search_locations:
        raise ImportError("Linear algebra needs the LAPACK of SciPy. Run: pip install scipy")
    folder = os.path.join(package.submodule_search_locations[0], "linalg")
    spec = importlib.machinery.PathFinder.find_spec(_MODULE, [folder])
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} does not contain {_MODULE} of SciPy")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.__pyx_capi__
