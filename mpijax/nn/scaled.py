"""Matrix products in 8 and 4 bits with a scale for each block."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.warn import warn_user


def scaled_matmul(
    lhs: Any, rhs: Any, lhs_scales: Any, rhs_scales: Any, preferred_element_type: Any = np.float32
) -> Any:
    """The product of block-scaled matrices, computed in float32.

    Args:
      lhs: array of shape (B, M, K).
      rhs: array of shape (B, N, K).
      lhs_scales: array of shape (B, M, Ks). K is a multiple of Ks: scale k // (K // Ks) multiplies element k.
      rhs_scales: array of shape (B, N, Ks).
      preferred_element_type: dtype of the result.

    Returns:
      Array of shape (B, M, N).

    >>> lhs, rhs, one = jnp.ones((1, 2, 4)), jnp.ones((1, 3, 4)), jnp.ones((1, 3, 2))
    >>> mpijax.nn.scaled_matmul(lhs, rhs, jnp.array([[[1.0, 2.0], [3.0, 4.0]]]), one)
    Array([[[ 6.,  6.,  6.],
            [14., 14., 14.]]], dtype=float32)
    """
    lhs, rhs, lhs_scales, rhs_scales = map(jnp.asarray, (lhs, rhs, lhs_scales, rhs_scales))
    _check_shapes(lhs.shape, rhs.shape, lhs_scales.shape, rhs_scales.shape)
    left, right = _scaled(lhs, lhs_scales), _scaled(rhs, rhs_scales)
    return jnp.einsum("bmk,bnk->bmn", left, right).astype(preferred_element_type)


def _check_shapes(a: tuple, b: tuple, a_scales: tuple, b_scales: tuple) -> None:
    given = f"got shapes {a}, {b} and scales {a_scales}, {b_scales}"
    if not all(len(shape) == 3 for shape in (a, b, a_scales, b_scales)):
        raise ValueError(f"scaled_matmul requires all inputs to be 3-dimensional arrays; {given}")
    if a[0] != b[0] or a[2] != b[2]:
        raise ValueError(f"scaled_matmul requires inputs of the same batch (B) and contracted (K) sizes; {given}")
    if a_scales[0] != b_scales[0] or a_scales[2] != b_scales[2]:
        raise ValueError(f"scaled_matmul requires scales of the same batch (B) and contracted (K) sizes; {given}")
    if a_scales[:2] != a[:2] or b_scales[:2] != b[:2] or not a_scales[2] or a[2] % a_scales[2]:
        raise ValueError(
            f"scaled_matmul requires scales with the inputs' first two sizes, and a last one that divides K; {given}"
        )


def _scaled(x: Any, scales: Any) -> Any:
    return x.astype(np.float32) * jnp.repeat(scales.astype(np.float32), x.shape[-1] // scales.shape[-1], axis=-1)


@dataclass
class BlockScaleConfig:
    """The format in which `scaled_dot_general` stores an operand.

    Attributes:
      mode: "nvfp4" or "mxfp8".
      block_size: number of elements that share a scale.
      data_type, scale_type: dtypes of elements and scales.
      global_scale: scale of all elements, or None.
      infer_only: True if no gradient is needed.
    """

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any
    infer_only: bool


def get_scaled_dot_general_config(mode: str, global_scale: Any = None) -> BlockScaleConfig:
    """The configuration of `scaled_dot_general` for "nvfp4" (4 bits, blocks of 16) or "mxfp8" (8 bits, blocks of 32).

    >>> mpijax.nn.get_scaled_dot_general_config("mxfp8").block_size
    32
    """
    if mode == "nvfp4":
        scale = jnp.ones((1,), np.float32) if global_scale is None else global_scale
        return BlockScaleConfig(mode, 16, dtypes.dtype("float4_e2m1fn"), dtypes.dtype("float8_e4m3fn"), scale, False)
    if mode == "mxfp8":
        return BlockScaleConfig(mode, 32, dtypes.dtype("float8_e4m3fn"), dtypes.dtype("float8_e8m0fnu"), None, False)
    raise ValueError(f"Unsupported mode: {mode}. The modes are nvfp4 and mxfp8")


def scaled_dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    preferred_element_type: Any = np.float32,
    configs: list[BlockScaleConfig] | None = None,
    implementation: str | None = None,
) -> Any:
    """`lax.dot_general`. With `configs`, JAX rounds the operands to few bits for the tensor cores of GPUs; mpijax does
    not.

    Raises:
      NotImplementedError: `configs` is given.

    >>> product = (((1,), (0,)), ((), ()))
    >>> mpijax.nn.scaled_dot_general(jnp.ones((2, 3)), jnp.ones((3, 1)), product)
    Array([[3.],
           [3.]], dtype=float32)
    """
    if implementation is not None:
        warn_user("`implementation` of scaled_dot_general is ignored.", DeprecationWarning)
    if configs is not None:
        raise NotImplementedError(
            "scaled_dot_general with configs needs the tensor cores of a GPU. Leave `configs` out, or scale and round "
            "the operands and use nn.scaled_matmul."
        )
    return lax.dot_general(lhs, rhs, dimension_numbers, preferred_element_type=preferred_element_type)
