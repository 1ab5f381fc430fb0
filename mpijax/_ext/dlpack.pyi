"""Types of ``cython_ext/dlpack.pyx``."""

from typing import Any

import numpy as np

CODES: dict[np.dtype, int]
DTYPES: dict[tuple[int, int], np.dtype]

def export(value: np.ndarray, options: dict[str, Any]) -> Any: ...
def as_integers(capsule: Any) -> np.dtype | None: ...
