"""BLAS is found without importing `scipy.linalg`, and uses as many threads as the rank may."""

import os
import subprocess
import sys

import pytest

SETTERS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")

THREADS = """
import ctypes, os
from mpijax.runtime import blas
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
        "import sys; from mpijax.runtime import blas; assert 'dgemm' in blas.load(); "
        "assert 'scipy.linalg' not in sys.modules; import scipy.linalg, numpy; "
        "print(scipy.linalg.blas.dgemm(2.0, numpy.eye(2), numpy.ones((2, 2))).sum())"
    )
    assert run(code) == "8.0"


def test_a_loaded_scipy_linalg_is_used():
    code = (
        "import scipy.linalg.cython_blas as module; from mpijax.runtime import blas; "
        "print(blas.load() is module.__pyx_capi__)"
    )
    assert run(code) == "True"


@pytest.mark.parametrize(
    "environment, expected", [({"MPIJAX_NUM_THREADS": "1"}, "1"), ({"OPENBLAS_NUM_THREADS": "1"}, "1")]
)
def test_threads(environment, expected):
    libraries = run("from mpijax.runtime import blas; blas.load(); print(blas.openblas_libraries())")
    if "scipy.libs" not in libraries:
        pytest.skip("SciPy does not carry its own OpenBLAS here")
    assert run(THREADS, **environment) == expected
