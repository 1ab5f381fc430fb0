"""Dtypes of values whose tangents have another dtype: integers with a derivative, such as quantized weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core import dtypes


class primal_tangent(dtypes.extended):
    """Abstract scalar type of these dtypes."""


class PrimalTangentDType(dtypes.ExtendedDType):
    """A dtype that is stored as one dtype, and whose tangents have another."""

    __slots__ = ("_primal", "_tangent", "name")

    type = primal_tangent
    physical_shape = ()

    def __init__(self, primal: np.dtype, tangent: np.dtype, name: str):
        self._primal, self._tangent, self.name = primal, tangent, name

    @property
    def physical_dtype(self) -> np.dtype:
        return self._primal

    def tangent_dtype(self) -> np.dtype:
        return self._tangent

    def has_conversion(self, rule: str, *dtypes: Any) -> bool:
        return True

    def _plain_(self) -> tuple[np.dtype, np.dtype, str]:
        return self._primal, self._tangent, self.name

    @staticmethod
    def _from_plain_(primal: np.dtype, tangent: np.dtype, name: str) -> PrimalTangentDType:
        return PrimalTangentDType(primal, tangent, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrimalTangentDType) and self._plain_() == other._plain_()

    def __hash__(self) -> int:
        return hash(self._plain_())

    def __reduce__(self):
        return PrimalTangentDType, self._plain_()


def primal_tangent_dtype(primal_dtype: Any, tangent_dtype: Any, name: str | None = None) -> PrimalTangentDType:
    """The dtype of values that are stored as `primal_dtype` and have tangents of `tangent_dtype`.

    Arrays are converted to and from `primal_dtype`; nothing else computes with them. Functions with custom derivatives
    pass cotangents of `tangent_dtype` through them.

    >>> dtype = mpijax.experimental.primal_tangent_dtype(jnp.int8, jnp.bfloat16)
    >>> dtype
    PrimalTangentDType{i8/bf16}
    >>> mpijax.jit(lambda x: x.astype(dtype).astype(jnp.int8) + 1)(jnp.array([1, 2], jnp.int8))
    Array([2, 3], dtype=int8)
    """
    primal, tangent = dtypes.dtype(primal_dtype), dtypes.dtype(tangent_dtype)
    given = f"PrimalTangentDType{{{dtypes.short_name(primal)}/{dtypes.short_name(tangent)}}}"
    return PrimalTangentDType(primal, tangent, name or given)
