"""The methods of arrays that are functions of `mpijax.numpy` whose first argument is the array."""

from __future__ import annotations

from collections.abc import Callable

import mpijax.numpy as jnp

# The example in the docstring of each: (numbers of an array, arguments of the method, what it shows).
_EXAMPLES: dict[str, tuple[str, str, str]] = {
    "all": ("[[1, 0], [2, 3]]", "axis=1", "Array([False,  True], dtype=bool)"),
    "any": ("[[0, 0], [0, 3]]", "axis=1", "Array([False,  True], dtype=bool)"),
    "argmax": ("[3, 9, 9]", "", "Array(1, dtype=int32)"),
    "argmin": ("[3, 9, 1]", "", "Array(2, dtype=int32)"),
    "argpartition": ("[5, 1]", "0", "Array([1, 0], dtype=int32)"),
    "argsort": ("[30, 10, 20]", "", "Array([1, 2, 0], dtype=int32)"),
    "choose": ("[1, 0]", "jnp.array([[1, 2], [10, 20]])", "Array([10,  2], dtype=int32)"),
    "conj": ("[1 + 2j, 3 - 1j]", "", "Array([1.-2.j, 3.+1.j], dtype=complex64)"),
    "conjugate": ("[1 + 2j, 3 - 1j]", "", "Array([1.-2.j, 3.+1.j], dtype=complex64)"),
    "copy": ("[1, 2]", "", "Array([1, 2], dtype=int32)"),
    "cumprod": ("[2, 3, 5]", "", "Array([ 2,  6, 30], dtype=int32)"),
    "cumsum": ("[[1, 2], [3, 4]]", "axis=1", "Array([[1, 3],\n           [3, 7]], dtype=int32)"),
    "diagonal": ("[[1, 2], [3, 4]]", "", "Array([1, 4], dtype=int32)"),
    "dot": ("[[1, 2], [3, 4]]", "jnp.array([10, 1])", "Array([12, 34], dtype=int32)"),
    "max": ("[[1, 5], [3, 4]]", "axis=0", "Array([3, 5], dtype=int32)"),
    "mean": ("[[1, 2], [3, 6]]", "axis=1", "Array([1.5, 4.5], dtype=float32)"),
    "min": ("[[1, 5], [3, 4]]", "axis=0", "Array([1, 4], dtype=int32)"),
    "nonzero": ("[0, 5, 0, 7]", "", "(Array([1, 3], dtype=int32),)"),
    "prod": ("[[1, 2], [3, 4]]", "axis=1", "Array([ 2, 12], dtype=int32)"),
    "ptp": ("[4, 9, 1]", "", "Array(8, dtype=int32)"),
    "repeat": ("[7, 8]", "2", "Array([7, 7, 8, 8], dtype=int32)"),
    "round": ("[1.25, -3.14159]", "1", "Array([ 1.2, -3.1], dtype=float32)"),
    "searchsorted": ("[10, 20, 30]", "25", "Array(2, dtype=int32)"),
    "sort": ("[3, 1, 2]", "", "Array([1, 2, 3], dtype=int32)"),
    "squeeze": ("[[1, 2]]", "", "Array([1, 2], dtype=int32)"),
    "std": ("[1.0, 5.0]", "", "Array(2., dtype=float32)"),
    "sum": ("[[1, 2], [3, 4]]", "axis=0", "Array([4, 6], dtype=int32)"),
    "swapaxes": ("[[1, 2, 3]]", "0, 1", "Array([[1],\n           [2],\n           [3]], dtype=int32)"),
    "take": ("[10, 20, 30]", "jnp.array([2, 0])", "Array([30, 10], dtype=int32)"),
    "var": ("[1.0, 5.0]", "ddof=1", "Array(8., dtype=float32)"),
}


def _forward(name: str, given: str, arguments: str, shown: str) -> Callable:
    """The method that is the function `mpijax.numpy.<name>` of the array."""

    def method(self, *args, **kwargs):
        return getattr(jnp, name)(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"""See `mpijax.numpy.{name}`.

    >>> jnp.array({given}).{name}({arguments})
    {shown}
    """
    return method


FORWARDED = {name: _forward(name, *example) for name, example in _EXAMPLES.items()}
