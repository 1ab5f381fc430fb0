"""Defines extended dtypes: element types that NumPy does not have, each stored as an array of a NumPy type.

There are two here: the PRNG key, where an element of ``key<fry>`` is a ``uint32[2]``, and the token, which has no data.
Libraries define others. An array of an extended dtype has the shape of its elements. The array in memory has the shape
``shape + physical_shape``.
"""

import math
from typing import Any

import numpy as np


class extended(np.generic):
    """Abstract scalar type of all extended dtypes: ``issubdtype(key.dtype, extended)`` is true.

    >>> mpijax.dtypes.issubdtype(mpijax.random.key(0).dtype, mpijax.dtypes.extended)
    True
    """


class prng_key(extended):
    """Abstract scalar type of all PRNG key dtypes: ``issubdtype(key.dtype, prng_key)`` is true.

    >>> mpijax.dtypes.issubdtype(mpijax.random.key(0).dtype, mpijax.dtypes.prng_key)
    True
    """


class ExtendedDType:
    """Base of dtype objects that are not a `numpy.dtype`. Equal if their names and parameters are equal.

    A library's dtype has the attribute `_rules`, as in JAX: functions of the dtype. `physical_element_aval(dtype)`
    gives shape and dtype of the array that stores one element. The others are optional: `allow_conversion` (whether
    `lax.convert_element_type` converts from and to that array), `tangent_dtype(dtype)`, `zero(dtype)`,
    `add(dtype, x, y)` and `full(shape, fill_value, dtype)`.

    Attributes:
        name: the printed name.
        type: scalar type, a subclass of `extended`.
        itemsize: bytes of one element.
        physical_dtype, physical_shape: dtype and shape of the array that stores one element.
    """

    __slots__ = ()

    name: str
    type: type
    _rules: Any = None

    @property
    def physical_dtype(self) -> np.dtype:
        return np.dtype(self._rules.physical_element_aval(self).dtype)

    @property
    def physical_shape(self) -> tuple[int, ...]:
        return tuple(self._rules.physical_element_aval(self).shape)

    @property
    def itemsize(self) -> int:
        return math.prod(self.physical_shape) * self.physical_dtype.itemsize

    def tangent_dtype(self) -> Any:
        """The dtype of tangents of values of this dtype; None without derivatives."""
        rule = getattr(self._rules, "tangent_dtype", None)
        return rule and rule(self)

    def has_conversion(self, rule: str, *dtypes: Any) -> bool:
        """Whether `lax.convert_element_type` may convert; `rule` is "convert_from" or "convert_to", of two dtypes."""
        decide = getattr(self._rules, rule, None)
        return decide(*dtypes) if decide else bool(getattr(self._rules, "allow_conversion", False))

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


class PRNGKeyDtype(ExtendedDType):
    """The dtype of PRNG keys of one random number generator.

    Args:
        impl: the generator; has ``tag`` (three letters, "fry" for threefry2x32) and ``key_shape`` (the uint32
            words of a key, (2,) for threefry2x32), and can be hashed and compared.
    """

    __slots__ = ("_impl", "_words", "name")

    type = prng_key
    physical_dtype = np.dtype(np.uint32)

    def __init__(self, impl: Any):
        self._impl = impl
        self.name = f"key<{impl.tag}>"
        self._words = tuple(impl.key_shape)

    @property
    def physical_shape(self) -> tuple[int, ...]:
        return self._words

    @property
    def impl(self) -> Any:
        """The generator."""
        return self._impl

    def __eq__(self, other: object) -> bool:
        return type(other) is PRNGKeyDtype and self._impl == other._impl

    def __hash__(self) -> int:
        return hash((PRNGKeyDtype, self._impl))

    def __reduce__(self):
        return PRNGKeyDtype, (self._impl,)

    def _plain_(self) -> tuple[Any]:
        return (self._impl,)

    @staticmethod
    def _from_plain_(impl: Any) -> "PRNGKeyDtype":
        return PRNGKeyDtype(impl)


class token(extended):
    """Abstract scalar type of tokens."""


class TokenDType(ExtendedDType):
    """The dtype of tokens (`lax.create_token`): values without data, used for dependences only."""

    __slots__ = ()

    name = "Tok"
    type = token
    itemsize = 0
    physical_dtype = np.dtype(np.bool_)
    physical_shape = (0,)

    def __eq__(self, other: object) -> bool:
        return type(other) is TokenDType

    def __hash__(self) -> int:
        return hash(TokenDType)

    def __reduce__(self):
        return TokenDType, ()

    def _plain_(self) -> tuple[()]:
        return ()

    @staticmethod
    def _from_plain_() -> "TokenDType":
        return TokenDType()
