"""Arrays, as JAX pickles them."""

from collections.abc import Callable
from typing import Any

from mpijax.numpy import asarray

__all__: list[str] = []


def _reconstruct_array(fun: Callable, args: tuple, arr_state: Any, aval_state: Any) -> Any:
    """An array from a pickle that JAX wrote: that of its values as a NumPy array."""
    values = fun(*args)
    values.__setstate__(arr_state)
    return asarray(values)
