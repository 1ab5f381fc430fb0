"""Polar decomposition."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.ops.elementwise.convert import stage
from mpijax.ops.linalg.matrices import adjoint, exact_product
from mpijax.ops.linalg.svd import svd


def qdwh(
    x: Any,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[int, int] | None = None,
) -> tuple[Any, Any, Any, Any]:
    """Polar decomposition x = U H with a Hermitian H, computed in one step from the singular value decomposition.

    JAX iterates instead (the QDWH algorithm for TPUs); `is_hermitian`, `max_iterations` and `eps` have no effect.

    Args:
      x: matrix [m, n], m >= n.
      dynamic_shape: must be None: other shapes than that of x are not supported.

    Returns:
      (U, H, number of steps, whether they converged): [m, n], [n, n], int32, bool.

    >>> u, h, steps, converged = lax.linalg.qdwh(jnp.array([[0.0, -2.0], [2.0, 0.0]]))
    >>> jnp.diagonal(h).round(4), converged
    (Array([2., 2.], dtype=float32), Array(True, dtype=bool))
    """
    m, n = np.shape(x)
    if m < n:
        raise ValueError(f"The input matrix of shape M x N must have M >= N, got {np.shape(x)}.")
    if dynamic_shape is not None:
        raise NotImplementedError("qdwh does not support dynamic_shape. Slice the matrix instead.")
    u, _, vh = svd(x, full_matrices=False)
    u = exact_product(u, vh)
    h = exact_product(adjoint(u), x)
    return u, (h + adjoint(h)) / 2, stage(np.int32(1)), stage(np.bool_(True))
