"""Queries about dtypes and values that need no computation."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.dtypes import can_cast  # noqa: F401
from mpijax.core.dtypes.kinds import finfo, iinfo, isdtype  # noqa: F401
from mpijax.core.dtypes.result_type import promote_types  # noqa: F401
from mpijax.numpy.creation.constructors import asarray
from mpijax.numpy.util import unwrap

ComplexWarning = np.exceptions.ComplexWarning


def result_type(*args: Any) -> np.dtype:
    """The promoted dtype of values and dtypes.

    >>> jnp.result_type(jnp.bfloat16(1), 2.0), jnp.result_type(jnp.int8(1), 2.0)
    (dtype(bfloat16), dtype('float32'))
    """
    return dtypes.result_type(*args)


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether a dtype, or kind of dtypes, belongs to another kind.

    >>> jnp.issubdtype(jnp.int8, jnp.integer), jnp.issubdtype(jnp.bfloat16, jnp.floating)
    (True, True)
    """
    return dtypes.issubdtype(arg1, arg2)


def isscalar(element: Any) -> bool:
    """Whether `element` is a number or an array without axes.

    >>> jnp.isscalar(2.5), jnp.isscalar(jnp.ones(1))
    (True, False)
    """
    if np.isscalar(element):
        return True
    element = unwrap(element)
    return getattr(element, "ndim", None) == 0 and hasattr(element, "dtype")


def get_printoptions() -> Any:
    """NumPy's print options, which arrays follow.

    >>> jnp.get_printoptions()["precision"]
    8
    """
    return np.get_printoptions()


def set_printoptions(*args: Any, **kwargs: Any) -> None:
    """Set NumPy's print options, which arrays follow.

    >>> with jnp.printoptions():
    ...     jnp.set_printoptions(precision=2)
    ...     print(jnp.array([0.12345, 2.0]))
    [0.12 2.  ]
    """
    np.set_printoptions(*args, **kwargs)


def printoptions(*args: Any, **kwargs: Any) -> Any:
    """Set NumPy's print options inside a `with` block.

    >>> with jnp.printoptions(precision=2):
    ...     print(jnp.array([0.12345, 2.0]))
    [0.12 2.  ]
    """
    return np.printoptions(*args, **kwargs)


def load(file: Any, *args: Any, **kwargs: Any):
    """An array from a file that `numpy.save` wrote. For an ``.npz`` file, NumPy's dictionary of arrays.

    >>> import io
    >>> file = io.BytesIO()
    >>> jnp.save(file, jnp.arange(3))
    >>> file.seek(0)
    0
    >>> jnp.load(file)
    Array([0, 1, 2], dtype=int32)
    """
    out = np.load(file, *args, **kwargs)
    if not isinstance(out, np.ndarray):
        return out
    if out.dtype == np.dtype("V2"):
        # NumPy files have no name for bfloat16.
        out = out.view(dtypes.bfloat16)
    try:
        return asarray(out)
    except TypeError:
        return out
