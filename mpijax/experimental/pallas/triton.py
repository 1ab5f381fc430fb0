"""The names of Pallas on GPUs that make sense on a CPU: masked memory access, products, atomics."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax import missing as _missing
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.experimental.pallas import access as _access
from mpijax.experimental.pallas import specs as _specs
from mpijax.experimental.pallas.access import (
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
)

__all__ = [
    "CompilerParams", "approx_tanh", "atomic_add", "atomic_and", "atomic_cas", "atomic_max", "atomic_min", "atomic_or",
    "atomic_xchg", "atomic_xor", "debug_barrier", "dot", "elementwise_inline_asm", "load", "max_contiguous", "store",
]  # fmt: skip


@dataclass(frozen=True)
class CompilerParams(_specs.CompilerParams):
    """Parameters for Triton's compiler; they have no effect.

    >>> from mpijax.experimental.pallas import triton as plgpu
    >>> plgpu.CompilerParams(num_warps=4).num_warps
    4
    """

    num_warps: int | None = None
    num_stages: int | None = None


def load(ref: Any, *, mask: Any = None, other: Any = None, **hints: Any) -> Any:
    """The contents of a reference or view; `other` where `mask` is False. Hints for GPUs have no effect.

    >>> from mpijax.experimental.pallas import triton as plgpu
    >>> plgpu.load(mpijax.new_ref(jnp.arange(3)), mask=jnp.array([True, False, True]), other=7)
    Array([0, 7, 2], dtype=int32)
    """
    return _access.load(ref, mask=mask, other=other, **hints)


def store(ref: Any, val: Any, *, mask: Any = None, eviction_policy: str | None = None) -> None:
    """Write `val` to a reference or view where `mask` is True.

    >>> from mpijax.experimental.pallas import triton as plgpu
    >>> ref = mpijax.new_ref(jnp.arange(3))
    >>> plgpu.store(ref.at[1:], jnp.array([8, 9]), mask=jnp.array([True, False]))
    >>> ref[...]
    Array([0, 8, 2], dtype=int32)
    """
    _access.store(ref, None, val, mask=mask)


def dot(
    a: Any, b: Any, trans_a: bool = False, trans_b: bool = False, allow_tf32: bool | None = None, precision: Any = None
) -> Any:
    """The product of two matrices, optionally transposed, in float32, float64 or int32.

    Raises ValueError if an operand is not a matrix.

    >>> from mpijax.experimental.pallas import triton as plgpu
    >>> plgpu.dot(jnp.ones((2, 3)), jnp.ones((4, 3)), trans_b=True).shape
    (2, 4)
    """
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"`a` and `b` must be 2D arrays, got shapes {a.shape} and {b.shape}")
    if allow_tf32 is not None and precision is not None:
        raise ValueError("Only one of allow_tf32 and precision can be specified")
    dtype = jnp.promote_types(a.dtype, b.dtype)
    wide = np.int32 if jnp.issubdtype(dtype, np.integer) else dtype if dtype == np.float64 else np.float32
    axes = ((0,) if trans_a else (1,), (1,) if trans_b else (0,))
    return lax.dot_general(a, b, (axes, ((), ())), precision=precision, preferred_element_type=np.dtype(wide))


def approx_tanh(x: Any) -> Any:
    """tanh, always with full precision.

    >>> from mpijax.experimental.pallas import triton as plgpu
    >>> plgpu.approx_tanh(jnp.zeros(2))
    Array([0., 0.], dtype=float32)
    """
    return jnp.tanh(x)


def debug_barrier() -> None:
    """Has no effect: a program has one thread.

    >>> from mpijax.experimental.pallas import triton as plgpu
    >>> plgpu.debug_barrier()
    """


def max_contiguous(x: Any, values: Any) -> Any:
    """Returns `x`. That its values are contiguous is a hint for GPUs.

    >>> from mpijax.experimental.pallas import triton as plgpu
    >>> plgpu.max_contiguous(8, 4)
    8
    """
    return x


elementwise_inline_asm = _missing.missing(
    "pallas.triton.elementwise_inline_asm", "it is an instruction of a GPU; write the operation in jax.numpy"
)
