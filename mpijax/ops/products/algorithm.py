"""Names of matrix product algorithms of other devices. mpijax's products are as precise as any of these."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple


class DotAlgorithm(NamedTuple):
    """The rounding of operands and the dtype of sums of a product. It is a hint, as `Precision` is.

    On CPUs operands are not rounded. Sums of float16 and bfloat16 are computed in float32, others in their own dtype.
    This is at least as precise as any of these.

    >>> whole = lax.DotAlgorithm(np.float32, np.float32, np.float32)
    >>> lax.dot(jnp.arange(3.0), jnp.arange(3.0), precision=whole)
    Array(5., dtype=float32)
    """

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


class DotAlgorithmPreset(enum.Enum):
    """Algorithms by name, `LHS_RHS_ACCUMULATOR`; accepted wherever `precision` is, also as a string.

    >>> lax.dot(jnp.arange(3.0), jnp.arange(3.0), precision=lax.DotAlgorithmPreset.F32_F32_F32)
    Array(5., dtype=float32)
    """

    DEFAULT = enum.auto()
    ANY_F8_ANY_F8_F32 = enum.auto()
    ANY_F8_ANY_F8_F32_FAST_ACCUM = enum.auto()
    ANY_F8_ANY_F8_ANY = enum.auto()
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = enum.auto()
    F16_F16_F16 = enum.auto()
    F16_F16_F32 = enum.auto()
    BF16_BF16_BF16 = enum.auto()
    BF16_BF16_F32 = enum.auto()
    BF16_BF16_F32_X3 = enum.auto()
    BF16_BF16_F32_X6 = enum.auto()
    BF16_BF16_F32_X9 = enum.auto()
    TF32_TF32_F32 = enum.auto()
    TF32_TF32_F32_X3 = enum.auto()
    F32_F32_F32 = enum.auto()
    F64_F64_F64 = enum.auto()

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __str__(self) -> str:
        return self.name


def algorithm_of(precision: Any) -> DotAlgorithm | DotAlgorithmPreset | None:
    """The algorithm that a `precision` names, or None."""
    if isinstance(precision, (DotAlgorithm, DotAlgorithmPreset)):
        return precision
    if isinstance(precision, str):
        return DotAlgorithmPreset.__members__.get(precision)
    return None
