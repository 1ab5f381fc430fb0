"""BLAS is NumPy's, or found in SciPy without importing `scipy.linalg`; it uses as many threads as the rank may."""

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest

from mpijax.runtime.machine import blas

SETTERS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")

THREADS = """
import ctypes, os
from mpijax.runtime.machine import blas
table = blas.load()
[library] = [name for name in blas.openblas_libraries() if "scipy.libs" in name]
loaded = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
print(loaded.scipy_openblas_get_num_threads())
"""


def run(code, **environment):
    """What a fresh process prints."""
    clean = {k: v for k, v in os.environ.items() if k not in SETTERS}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**clean, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_scipy_linalg_is_not_imported_and_can_be_later():
    code = (
        "import sys; from mpijax.runtime.machine import blas; assert 'dgemm' in blas.load(); "
        "assert 'scipy.linalg' not in sys.modules; import scipy.linalg, numpy; "
        "print(scipy.linalg.blas.dgemm(2.0, numpy.eye(2), numpy.ones((2, 2))).sum())"
    )
    assert run(code) == "8.0"


def test_a_loaded_scipy_linalg_is_used():
    code = (
        "import scipy.linalg.cython_blas as module; from mpijax.runtime.machine import blas; "
        "print(blas.load() is module.__pyx_capi__)"
    )
    assert run(code) == "True"


@pytest.mark.parametrize(
    "environment, expected", [({"MPIJAX_NUM_THREADS": "1"}, "1"), ({"OPENBLAS_NUM_THREADS": "1"}, "1")]
)
def test_threads(environment, expected):
    libraries = run("from mpijax.runtime.machine import blas; blas.load(); print(blas.openblas_libraries())")
    if "scipy.libs" not in libraries:
        pytest.skip("SciPy does not carry its own OpenBLAS here")
    assert run(THREADS, **environment) == expected


def product(address: int, bits: int) -> np.ndarray:
    """A 3 x 2 times 2 x 4 product by the function at an address, its integers given as 64 bits."""
    rng = np.random.default_rng(bits)
    a, b = rng.normal(size=(3, 2)), rng.normal(size=(2, 4))
    out = np.zeros((3, 4))
    integer = {64: ctypes.c_int64, 32: ctypes.c_int32}[bits]
    gemm = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)(address)
    numbers = [ctypes.byref(integer(n)) for n in (4, 3, 2, 4, 2, 4)]
    one, zero = ctypes.byref(ctypes.c_double(1)), ctypes.byref(ctypes.c_double(0))
    n, m, k, ldb, lda, ldc = numbers
    place = [x.ctypes.data for x in (b, a, out)]
    letters = [ctypes.cast(ctypes.c_char_p(b"N"), ctypes.c_void_p)] * 2
    as_pointer = [ctypes.cast(x, ctypes.c_void_p) for x in (n, m, k, one)]
    rest = [ctypes.cast(x, ctypes.c_void_p) for x in (ldb, lda, zero, ldc)]
    gemm(*letters, *as_pointer, place[0], rest[0], place[1], rest[1], rest[2], place[2], rest[3])
    np.testing.assert_allclose(out, a @ b, rtol=1e-12)
    return out


def test_numpys_library_is_used_where_it_has_one():
    found = blas._numpys()
    if not found:
        pytest.skip("this NumPy has no BLAS of its own")
    assert sorted(found) == ["cgemm", "dgemm", "sgemm", "zgemm"] and blas.addresses() == found
    product(found["dgemm"], 64)
    code = (
        "import sys, mpijax, mpijax.numpy as jnp; x = jnp.ones((64, 64)); "
        "print(mpijax.jit(lambda x: x @ x)(x)[0, 0], [m for m in sys.modules if m.startswith('scipy')])"
    )
    assert run(code) == "64.0 []"


def test_scipys_library_is_used_where_numpy_has_none(monkeypatch):
    """Its integers have 32 bits; it reads those of 64 bits as well."""
    monkeypatch.setattr(blas, "_numpys", dict)
    address = blas.addresses()["dgemm"]
    product(address, 32)
    product(address, 64)


NUMPYS_THREADS = """
import ctypes, os
from numpy._core import _multiarray_umath
from mpijax.runtime.machine import blas
blas.addresses()
linked = ctypes.CDLL(_multiarray_umath.__file__, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
print(linked.scipy_openblas_get_num_threads64_())
"""


@pytest.mark.parametrize("environment", [{"MPIJAX_NUM_THREADS": "1"}, {"OPENBLAS_NUM_THREADS": "1"}])
def test_threads_of_numpys_library(environment):
    if not any("numpy.libs" in name for name in blas.openblas_libraries()):
        pytest.skip("NumPy does not carry its own OpenBLAS here")
    assert run(NUMPYS_THREADS, **environment) == "1"


WORKERS = """
import mpijax as jax, mpijax.numpy as jnp
from mpijax._ext import executor
product = jax.jit(lambda a, b: a @ b)
found = [executor.num_workers()]
for shapes in (((8, 8), (8, 8)), ((300, 200), (200, 300))):
    product(*map(jnp.ones, shapes))
    found.append(executor.num_workers())
print(*found)
"""


@pytest.mark.parametrize(
    "environment, expected",
    [({"MPIJAX_NUM_THREADS": "2"}, "0 0 1"), ({"MPIJAX_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"}, "0 0 0")],
)
@pytest.mark.one_in(2)
def test_large_products_run_on_the_threads_of_kernels(environment, expected):
    """Those of OpenBLAS wait for each other while they work, which takes ten times as long on a busy machine."""
    if blas.product_thread_functions() == (0, 0) and not any(os.environ.get(name) for name in SETTERS):
        pytest.skip("this BLAS does not tell how many threads it uses")
    assert run(WORKERS, **environment) == expected
