"""Vector quantization."""

from __future__ import annotations

from typing import Any

import mpijax.numpy as jnp
from mpijax.numpy.util import as_array, check_arraylike, promote_dtypes_inexact

__all__ = [
    "vq",
]  # fmt: skip


def vq(obs: Any, code_book: Any, check_finite: bool = True) -> tuple[Any, Any]:
    """The nearest vector of a code book for each observation.

    Args:
      obs: observations, of shape (m, n), or (m,) for one feature.
      code_book: vectors, of shape (k, n), or (k,).
      check_finite: has no effect: values are not known while tracing.

    Returns:
      (index of the nearest vector, int32 of shape (m,); distance to it, of shape (m,)).

    >>> mpijax.scipy.cluster.vq.vq(jnp.array([[0.0, 1.0], [5.0, 5.0]]), jnp.array([[0.0, 0.0], [5.0, 4.0]]))
    (Array([0, 1], dtype=int32), Array([1., 1.], dtype=float32))
    """
    check_arraylike("scipy.cluster.vq.vq", obs, code_book)
    obs, code_book = map(as_array, promote_dtypes_inexact(obs, code_book))
    if obs.ndim != code_book.ndim:
        raise ValueError(
            f"Observation and code_book should have the same rank; got shapes {obs.shape} and {code_book.shape}"
        )
    if obs.ndim not in (1, 2):
        raise ValueError(f"ndim different than 1 or 2 are not supported; got shape {obs.shape}")
    rows, codes = (x.reshape(x.shape[0], -1) for x in (obs, code_book))
    distances = jnp.linalg.norm(rows[:, None, :] - codes[None, :, :], axis=-1)
    nearest = jnp.argmin(distances, axis=-1)
    return nearest, jnp.take_along_axis(distances, nearest[:, None], axis=-1)[:, 0]
