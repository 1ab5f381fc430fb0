"""Scaled dot-product attention, with grouped heads, masks and bias."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core import dtypes
from mpijax.nn.normalize import logsumexp, softmax
from mpijax.numpy.linear_algebra.contraction import einsum
from mpijax.transforms.vmap import vmap


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
    """softmax(scale · query keyᵀ + bias) value, for each batch entry and head.

    Args:
      query: array of shape [B, T, N, H] or [T, N, H]: batch, positions, heads, size of a head.
      key, value: arrays of shape [B, S, K, H] or [S, K, H]. N is a multiple of K: each of the K heads belongs to a
        group of N / K heads of the query.
      bias: array to add to the scores; broadcasts to [B, N, T, S].
      mask: bools, False where a query must not attend to a key; broadcasts to [B, N, T, S].
      scale: factor of the scores; default 1 / sqrt(H).
      is_causal: whether a query must not attend to keys of later positions.
      query_seq_lengths, key_value_seq_lengths: int32 of shape [B]; later positions are padding.
      local_window_size: number of positions to the left and to the right that a query attends to; or one number for
        both.
      implementation: None or "xla", with the same meaning.
      return_residual: also return the logarithm of the sum of exponentials, of shape [B, T, N].

    Returns:
      Array with the shape of `query`; or a pair.

    >>> query, key, value = jnp.ones((2, 1, 4)), jnp.ones((3, 1, 4)), jnp.arange(12.0).reshape(3, 1, 4)
    >>> mpijax.nn.dot_product_attention(query, key, value)[0].round(4)
    Array([[4., 5., 6., 7.]], dtype=float32)
    """
    if implementation not in (None, "xla"):
        raise ValueError(f"Unsupported implementation option: {implementation}")
    query_shape = jnp.shape(query)
    query, key, value = map(_with_batch, (query, key, value))
    bias = None if bias is None else _with_batch(bias)
    mask = None if mask is None else _with_batch(mask)
    query_lengths = None if query_seq_lengths is None else jnp.asarray(query_seq_lengths)
    key_lengths = None if key_value_seq_lengths is None else jnp.asarray(key_value_seq_lengths)
    window = (local_window_size,) * 2 if isinstance(local_window_size, int) else local_window_size

    batch, _, groups, size = key.shape
    _check("value", value, key.shape, key.dtype)
    _check("query", query, (batch, -1, -1, size), key.dtype)
    _check("mask", mask, (-1,) * 4, np.dtype(bool))
    _check("bias", bias, (-1,) * 4, None)
    _check("query_seq_lengths", query_lengths, (batch,), np.dtype("int32"))
    _check("key_value_seq_lengths", key_lengths, (batch,), np.dtype("int32"))
    if query.shape[-2] % groups:
        raise ValueError(
            f"The number of query heads must be a multiple of key/value heads, but got {query.shape[-2]} vs {groups}"
        )
    scale = 1.0 / np.sqrt(size) if scale is None else scale

    def attend(query, bias, mask):
        return _attend(
            query,
            key,
            value,
            bias,
            mask,
            is_causal,
            scale,
            query_lengths,
            key_lengths,
            window,
            return_residual,
        )

    heads = query.shape[2]
    grouped = jnp.reshape(query, (*query.shape[:2], groups, heads // groups, size))
    out = vmap(attend, in_axes=(3, 2, 2), out_axes=3)(
        grouped, _grouped(bias, groups, heads), _grouped(mask, groups, heads)
    )
    if not return_residual:
        return jnp.reshape(jnp.reshape(out, query.shape), query_shape)
    out, residual = out
    out, residual = jnp.reshape(out, query.shape), jnp.reshape(residual, query.shape[:3])
    return jnp.reshape(out, query_shape), jnp.reshape(residual, query_shape[:-1])


def _with_batch(x: Any) -> Any:
    x = jnp.asarray(x)
    return x if x.ndim >= 4 else jnp.expand_dims(x, axis=tuple(range(4 - x.ndim)))


def _check(name: str, x: Any, shape: tuple[int, ...], dtype: Any) -> None:
    if x is None:
        return
    if x.ndim != len(shape):
        raise ValueError(f"{name} ndim should be {len(shape)}, but got {x.ndim}")
    if dtype is not None and x.dtype != dtype:
        raise ValueError(f"{name} dtype should be {dtype}, but got {x.dtype}")
    if any(want not in (-1, have) for want, have in zip(shape, x.shape, strict=True)):
        raise ValueError(f"{name} shape should be {list(shape)}: but got {x.shape}")


def _grouped(x: Any, groups: int, heads: int) -> Any:
    """A bias or mask of shape [B, N or 1, T, S] as [B, K or 1, N / K, T, S]."""
    if x is None:
        return None
    batch, n, t, s = x.shape
    if n == 1:
        return jnp.broadcast_to(x[:, :, None, :, :], (batch, n, heads // groups, t, s))
    if n != heads:
        raise ValueError(f"bias and mask must have 1 or {heads} heads, got shape {x.shape}")
    return jnp.reshape(x, (batch, groups, heads // groups, t, s))


def _attend(query, key, value, bias, mask, is_causal, scale, query_lengths, key_lengths, window, return_residual):
    """Attention of one head of each group: query [B, T, K, H]."""
    scores = einsum(
        "BTNH,BSNH->BNTS",
        query,
        key,
        precision=_precision(query.dtype),
        preferred_element_type=jnp.promote_types(query.dtype, np.float32),
    )
    scores *= jnp.array(scale, dtype=scores.dtype)
    if bias is not None:
        scores = (scores + bias).astype(scores.dtype)
    scores = _masked(scores, mask, is_causal, query_lengths, key_lengths, window).astype(np.float32)
    weights = softmax(scores, axis=-1).astype(key.dtype)
    out = einsum("BNTS,BSNH->BTNH", weights, value)
    if query_lengths is not None:
        inside = jnp.arange(0, out.shape[1])[None, :] < query_lengths[:, None]
        out *= inside[:, :, None, None].astype(out.dtype)
    if not return_residual:
        return out
    residual = logsumexp(scores, axis=-1).astype(key.dtype)
    return out, lax.stop_gradient(jnp.transpose(residual, (0, 2, 1)))


def _precision(dtype: Any) -> Any:
    """Accumulate 16-bit scores in 32 bits."""
    if dtype == dtypes.bfloat16:
        return lax.DotAlgorithmPreset.BF16_BF16_F32
    return lax.DotAlgorithmPreset.F16_F16_F32 if dtype == np.float16 else None


def _masked(scores, mask, is_causal, query_lengths, key_lengths, window):
    """Scores [B, N, T, S], very negative where a query must not attend to a key."""
    if mask is None and not is_causal and query_lengths is None and key_lengths is None and window is None:
        return scores
    seen = jnp.ones_like(scores, dtype=bool)
    t, s = scores.shape[2:]
    if mask is not None:
        seen = jnp.logical_and(seen, mask)
    if is_causal:
        seen = jnp.logical_and(seen, jnp.tril(jnp.ones((t, s), dtype=bool))[None, None, :, :])
    if window is not None:
        seen = jnp.logical_and(seen, _in_window(t, s, *window))
    if query_lengths is not None or key_lengths is not None:
        seen = jnp.logical_and(seen, _not_padding(t, s, query_lengths, key_lengths))
    # Not -inf: a row without any key then gives equal weights instead of NaN.
    lowest = min(dtypes.finfo(scores.dtype).max, dtypes.finfo(np.float32).max)
    return jnp.where(seen, scores, jnp.asarray(-0.7 * lowest, dtype=scores.dtype))


def _in_window(t: int, s: int, left: int, right: int) -> Any:
    queries, keys = jnp.array(np.arange(t)), jnp.array(np.arange(s))
    after_start = queries[..., None] <= keys[..., None, :] + left
    before_end = queries[..., None] >= keys[..., None, :] - right
    return jnp.logical_and(before_end, after_start)[None, None, :, :]


def _not_padding(t: int, s: int, query_lengths: Any, key_lengths: Any) -> Any:
    of_query = of_key = True
    if query_lengths is not None:
        of_query = jnp.arange(0, t)[None, :, None] < query_lengths[:, None, None]
    if key_lengths is not None:
        of_key = jnp.arange(0, s)[None, None, :] < key_lengths[:, None, None]
    return jnp.logical_and(of_query, of_key)[:, None, :, :]
