"""Programs made of parts on arrays that lie between pages that must not be touched; run by `test_pieces.py`.

Every array is used where it lies, once with a forbidden page right before it and once with one right behind it. Prints
the names of programs whose results differ from NumPy's.
"""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np

import mpijax
import mpijax.numpy as jnp
from mpijax.runtime.arrays.array import from_numpy

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_kept = []


def guarded(values: np.ndarray, behind: bool) -> np.ndarray:
    """A copy of an array with a forbidden page before its first or behind its last byte."""
    pages = -(-values.nbytes // PAGE)
    area = mmap.mmap(-1, (pages + 2) * PAGE)
    _kept.append(area)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    for at in (start, start + (pages + 1) * PAGE):
        assert _libc.mprotect(at, PAGE, 0) == 0
    offset = (pages + 1) * PAGE - values.nbytes if behind else PAGE
    out = np.frombuffer(area, values.dtype, values.size, offset).reshape(values.shape)
    out[...] = values
    return out


def main(programs) -> None:
    wrong = []
    for name, (fun, want, shape) in programs.items():
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        step = mpijax.jit(lambda x, fun=fun: fun(jnp, x))
        for behind in (False, True):
            y = guarded(x, behind)
            a = from_numpy(y, mpijax.typeof(y), copy=False)
            assert np.asarray(a).ctypes.data == y.ctypes.data, "the array was copied, so nothing is guarded"
            if not np.allclose(np.asarray(step(a)), want(x), rtol=1e-5, atol=1e-5):
                wrong.append(name)
    print(" ".join(wrong))


if __name__ == "__main__":
    sys.path.insert(0, __file__.rsplit("/", 3)[0])
    from compiler.fusion.stencils import PROGRAMS

    main(PROGRAMS)
