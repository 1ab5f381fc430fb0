"""Python numbers with a dtype, for which libraries register conversions. Literals of mpijax are arrays."""

from __future__ import annotations

import numpy as np

from mpijax.core.types.avals import ShapedArray


class _Typed:
    """A number that has a dtype."""

    dtype: np.dtype

    def __new__(cls, value, dtype):
        number = super().__new__(cls, value)  # type: ignore[call-arg]
        number.dtype = np.dtype(dtype)
        return number

    def __getnewargs__(self):
        return next(kind(self) for kind in (int, float, complex) if isinstance(self, kind)), self.dtype

    @property
    def aval(self) -> ShapedArray:
        """The type it has in a program."""
        return ShapedArray((), self.dtype, weak_type=True)


class TypedInt(_Typed, int):
    pass


class TypedFloat(_Typed, float):
    pass


class TypedComplex(_Typed, complex):
    pass
