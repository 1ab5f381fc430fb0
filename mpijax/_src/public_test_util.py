"""Checks of derivatives and of numbers."""

from typing import Any

import numpy as np

from mpijax.test_util import check_grads, check_jvp, check_vjp
from mpijax.tree import map as tree_map

__all__ = ["check_close", "check_grads", "check_jvp", "check_vjp"]

# Error allowed to a number, for each element of its array. Integers are exact.
_TOLERANCE = {
    "bfloat16": 1e-2, "float16": 1e-3, "float32": 1e-6, "float64": 1e-15, "complex64": 1e-6, "complex128": 1e-15
}  # fmt: skip


def _tolerance(given: Any, dtype: np.dtype) -> float:
    if isinstance(given, dict):
        given = {np.dtype(key).name: value for key, value in given.items()}.get(dtype.name)
    return _TOLERANCE.get(dtype.name, 0.0) if given is None else given


def check_close(xs: Any, ys: Any, atol: Any = None, rtol: Any = None, err_msg: str = "") -> None:
    """Two pytrees of arrays have the same shapes and, within a tolerance (or one by dtype), the same numbers."""

    def close(x, y):
        x, y = np.asarray(x), np.asarray(y)
        assert x.shape == y.shape, f"{err_msg} shapes differ: {x.shape} and {y.shape}"
        by_size = [max(_tolerance(given, x.dtype), _tolerance(given, y.dtype)) * x.size for given in (atol, rtol)]
        exact = [a.astype(np.promote_types(a.dtype, np.float32)) if a.dtype.kind == "V" else a for a in (x, y)]
        np.testing.assert_allclose(*exact, atol=by_size[0], rtol=by_size[1], err_msg=err_msg)

    tree_map(close, xs, ys)
