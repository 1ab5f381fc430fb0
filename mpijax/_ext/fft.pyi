"""Types of ``cython_ext/fft.pyx``."""

from collections.abc import Sequence

import numpy as np

def install(ufuncs: Sequence[np.ufunc]) -> None: ...
def address() -> int: ...
