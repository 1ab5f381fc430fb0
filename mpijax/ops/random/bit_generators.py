"""Generators of random bits below `mpijax.random`: rng_bit_generator, with a state, and rng_uniform, without one.

Philox and Threefry follow Salmon and others ("Parallel random numbers: as easy as 1, 2, 3", 2011). Key, counter and
words are arranged as in XLA, so the bits equal JAX's.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules import sharding_types as types
from mpijax.core.rules.lowering import Decompose, HostCall
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.tracing.out_sharding import explicit_sharding, with_out_sharding
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.binary import mulhi
from mpijax.ops.elementwise.compare import lt
from mpijax.ops.elementwise.convert import bitcast_convert_type, convert_element_type
from mpijax.ops.indexing.slicing import concatenate, index_in_dim, slice_in_dim
from mpijax.ops.random.keys import UINT32, hash_numpy, threefry2x32_p
from mpijax.ops.rules import full_like
from mpijax.ops.shapes.creation import broadcasted_iota
from mpijax.ops.shapes.moves import canonical_shape
from mpijax.ops.shapes.reshape import broadcast_in_dim, broadcast_to, reshape
from mpijax.ops.shapes.stacking import stack
from mpijax.transforms.batching import move_dim
from mpijax.transforms.zeros import Zero

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


class RandomAlgorithm(enum.IntEnum):
    """The generator of `rng_bit_generator`; the default is Philox, as in XLA on CPUs.

    >>> state = jnp.array([1, 2, 3, 4], dtype="uint32")
    >>> lax.rng_bit_generator(state, (3,), algorithm=lax.RandomAlgorithm.RNG_THREE_FRY)[1].dtype
    dtype('uint32')
    """

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2

    def __str__(self) -> str:
        return self.name


def rng_bit_generator(
    key: Any,
    shape: Sequence[int],
    dtype: Any = np.uint32,
    algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: Any = None,
) -> tuple[Any, Any]:
    """Random bits from a state, and the next state. Most programs should use `mpijax.random` instead.

    Args:
      key: uint32[4] or uint64[2]: a 64-bit key and a 64-bit counter, low words first.
      shape: of the result.
      dtype: uint8, uint16, uint32 or uint64.
      out_sharding: the sharding of the bits.

    Returns:
      (the state with an advanced counter, the bits).

    Raises:
      TypeError: for any other dtype or type of state.

    >>> state, bits = lax.rng_bit_generator(jnp.zeros(4, "uint32"), (2, 3))
    >>> bits.shape, bits.dtype
    ((2, 3), dtype('uint32'))
    """
    dtype = dtypes.check_user_dtype_supported(dtype, "rng_bit_generator")
    if np.dtype(dtype).name not in ("uint8", "uint16", "uint32", "uint64"):
        raise TypeError(f"rng_bit_generator: unsupported dtype {dtype}. Use uint8, uint16, uint32 or uint64.")
    explicit_sharding(out_sharding, "rng_bit_generator")  # raises if it does not match the mesh in context
    state, bits = rng_bit_generator_p.bind(
        key, shape=canonical_shape(shape), dtype=np.dtype(dtype), algorithm=algorithm, out_sharding=None
    )
    return state, with_out_sharding(bits, out_sharding, "rng_bit_generator")


def _bits_type(key, *, shape, dtype, **_):
    if (key.dtype.name, key.shape) not in (("uint32", (4,)), ("uint64", (2,))):
        raise TypeError(f"rng_bit_generator: the state must be uint32[4] or uint64[2], got {key.str_short(True)}.")
    return [key, ShapedArray(shape, dtype)]


def _bits(key: np.ndarray, *, shape, dtype, algorithm, **_) -> list[np.ndarray]:
    state = np.ascontiguousarray(key).view(np.uint64)
    block = _threefry if algorithm == RandomAlgorithm.RNG_THREE_FRY else _philox
    made, blocks = block(state, shape, dtype.itemsize == 8)
    after = np.array([state[0], (int(state[1]) + blocks) % 2**64], np.uint64).view(key.dtype)
    made = made.view(np.uint64) if dtype.itemsize == 8 else made.astype(dtype)
    return [after, np.asarray(made.reshape(shape), order="C")]


def _philox(state: np.ndarray, shape: tuple[int, ...], paired: bool) -> tuple[np.ndarray, int]:
    """(words, blocks): 4 words from each counter. The upper half of the counter contains the key."""
    words = math.prod(shape) * (2 if paired else 1)
    blocks = -(-words // 4)
    with np.errstate(over="ignore"):
        counter = state[1] + np.arange(blocks, dtype=np.uint64)
    upper = state[0] + (counter < state[1]).astype(np.uint64)
    x0, x1, x2, x3 = counter & _LOW, counter >> _HALF, upper & _LOW, upper >> _HALF
    k0, k1 = int(state[0] & _LOW), int(state[0] >> _HALF)
    for _ in range(10):
        p0, p1 = x0 * np.uint64(0xD2511F53), x2 * np.uint64(0xCD9E8D57)
        x0, x2 = (p1 >> _HALF) ^ x1 ^ np.uint64(k0), (p0 >> _HALF) ^ x3 ^ np.uint64(k1)
        x1, x3 = p1 & _LOW, p0 & _LOW
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([x0, x1, x2, x3], axis=1).astype(np.uint32).ravel()[:words], blocks


def _halved(shape: tuple[int, ...], paired: bool) -> tuple[tuple[int, ...], int]:
    """(the number of Threefry counters along each axis, the axis along which the two words of a counter are placed)."""
    if paired:
        return shape, len(shape)
    shape = shape or (1,)
    even = [i for i, n in enumerate(shape) if n % 2 == 0]
    axis = even[0] if even else int(np.argmax(shape))
    return (*shape[:axis], -(-shape[axis] // 2), *shape[axis + 1 :]), axis


def _threefry(state: np.ndarray, shape: tuple[int, ...], paired: bool) -> tuple[np.ndarray, int]:
    """(words, blocks): 2 words from each counter, for one 64-bit element or for two elements along an axis."""
    half, axis = _halved(shape, paired)
    blocks = math.prod(half)
    with np.errstate(over="ignore"):
        counter = state[1] + np.arange(blocks, dtype=np.uint64)
    low_and_high = [(v & _LOW).astype(np.uint32) for v in (state[0], state[0] >> _HALF, counter, counter >> _HALF)]
    both = np.stack([v.reshape(half) for v in hash_numpy(*low_and_high)], axis=axis + (not paired))
    if paired:
        return both.ravel(), blocks
    joined = both.reshape(*half[:axis], 2 * half[axis], *half[axis + 1 :])
    return joined[(slice(None),) * axis + (slice((shape or (1,))[axis]),)].ravel(), blocks


# ---------------------------------------------------------------- the same as programs


def _program(key: Any, *, shape, dtype, algorithm, **_) -> list:
    """Computes the same as `_bits` with operations on 32-bit words."""
    words = key if key.dtype == UINT32 else reshape(bitcast_convert_type(key, UINT32), (4,))
    words = [index_in_dim(words, i, keepdims=False) for i in range(4)]
    block = _threefry_program if algorithm == RandomAlgorithm.RNG_THREE_FRY else _philox_program
    made, blocks = block(words, shape, dtype.itemsize == 8)
    low = words[2] + np.uint32(blocks & 0xFFFFFFFF)
    high = words[3] + np.uint32(blocks >> 32) + convert_element_type(lt(low, words[2]), UINT32)
    after = stack([*words[:2], low, high])
    if key.dtype != UINT32:
        after = bitcast_convert_type(reshape(after, (2, 2)), key.dtype)
    if dtype.itemsize == 8:
        return [after, bitcast_convert_type(reshape(made, (*shape, 2)), dtype)]
    return [after, reshape(convert_element_type(made, dtype), shape)]


def _counters(words: list, blocks: int) -> tuple[Any, Any, Any]:
    """(low and high word of the counters, whether they have wrapped around to 0)."""
    position, above = _positions(blocks)
    low = words[2] + position
    carry = convert_element_type(lt(low, broadcast_to(words[2], (blocks,))), UINT32)
    if above is not None:
        carry = carry + above
    high = words[3] + carry
    return low, high, convert_element_type(lt(high, carry), UINT32)


def _positions(count: int, row: int = 2**32) -> tuple[Any, Any]:
    """Numbers below `count`: their remainders and quotients by `row`. The quotients are None if all are 0."""
    if count <= row:
        return broadcasted_iota(UINT32, (count,), 0), None
    shape = (-(-count // row), row)
    low, high = (reshape(broadcasted_iota(UINT32, shape, axis), (math.prod(shape),)) for axis in (1, 0))
    return slice_in_dim(low, 0, count), slice_in_dim(high, 0, count)


def _philox_program(words: list, shape: tuple[int, ...], paired: bool) -> tuple[Any, int]:
    count = math.prod(shape) * (2 if paired else 1)
    blocks = -(-count // 4)
    x0, x1, begun = _counters(words, blocks)
    k0, k1 = words[:2]
    x2 = k0 + begun
    x3 = k1 + convert_element_type(lt(x2, begun), UINT32)
    for _ in range(10):
        first, second = full_like(x0, 0xD2511F53), full_like(x2, 0xCD9E8D57)
        x0, x1, x2, x3 = mulhi(x2, second) ^ x1 ^ k0, x2 * second, mulhi(x0, first) ^ x3 ^ k1, x0 * first
        k0, k1 = k0 + np.uint32(0x9E3779B9), k1 + np.uint32(0xBB67AE85)
    return slice_in_dim(reshape(stack([x0, x1, x2, x3], 1), (4 * blocks,)), 0, count), blocks


def _threefry_program(words: list, shape: tuple[int, ...], paired: bool) -> tuple[Any, int]:
    half, axis = _halved(shape, paired)
    blocks = math.prod(half)
    low, high, _ = _counters(words, blocks)
    hashed = threefry2x32_p.bind(*(broadcast_to(k, (blocks,)) for k in words[:2]), low, high)
    both = stack([reshape(x, half) for x in hashed], axis + (not paired))
    if paired:
        return both, blocks
    joined = reshape(both, (*half[:axis], 2 * half[axis], *half[axis + 1 :]))
    return slice_in_dim(joined, 0, (shape or (1,))[axis], axis=axis), blocks


def _bits_jvp(primals, _tangents, **params):
    outs = rng_bit_generator_p.bind(*primals, **params)
    return outs, [Zero.of_primal(out) for out in outs]


def _bits_batch(axis, args, dims, *, shape, **params):
    """Uses the first state of a batch to generate bits with one more axis. The other states do not change."""
    [states], [dim] = args, dims
    states = move_dim(states, dim, 0)
    state, bits = rng_bit_generator_p.bind(index_in_dim(states, 0, keepdims=False), shape=(axis.size, *shape), **params)
    others = slice_in_dim(states, 1, axis.size)
    return [concatenate([broadcast_in_dim(state, (1, *typeof(state).shape), (1,)), others], 0), bits], [0, 0]


rng_bit_generator_p = Primitive(
    "rng_bit_generator",
    type_rule=_bits_type,
    reference=_bits,
    lower=Decompose(_program),
    jvp=_bits_jvp,
    transpose=Unsupported("random bits are not linear in their state"),
    batch=_bits_batch,
    multiple_results=True,
    sharding_type=types.whole,
)


def rng_uniform(a: Any, b: Any, shape: Sequence[int]) -> Any:
    """Numbers in [a, b) without a seed: different in each run and on each rank.

    Args:
      a, b: scalars of one dtype.
      shape: of the result.

    Raises:
      ValueError: a or b is not a scalar, or the dtypes differ.

    >>> lax.rng_uniform(0.0, 1.0, (2, 3)).shape
    (2, 3)
    """
    return rng_uniform_p.bind(a, b, shape=tuple(shape))


def _uniform_type(a, b, *, shape):
    if a.dtype != b.dtype:
        raise ValueError(f"Arguments to rng_uniform must have identical dtypes, got {a.dtype} and {b.dtype}.")
    if a.shape or b.shape:
        raise ValueError(f"Arguments to rng_uniform must be scalars; got shapes {a.shape} and {b.shape}.")
    return ShapedArray(shape, a.dtype, a.weak_type and b.weak_type)


def _uniform(a: np.ndarray, b: np.ndarray, *, shape) -> np.ndarray:
    generator = np.random.default_rng()
    if np.issubdtype(a.dtype, np.integer):
        return generator.integers(a[()], b[()], shape, dtype=a.dtype)
    low, high = float(a[()]), float(b[()])
    return np.asarray(low + (high - low) * generator.random(shape)).astype(a.dtype)


def _uniform_jvp(primals, _tangents, **params):
    out = rng_uniform_p.bind(*primals, **params)
    return out, Zero.of_primal(out)


def _uniform_batch(axis, args, dims, *, shape):
    if any(typeof(x).ndim for x in args):
        raise NotImplementedError(
            "rng_uniform does not support vmap over its bounds. Draw numbers in [0, 1) and scale them."
        )
    return rng_uniform_p.bind(*args, shape=(axis.size, *shape)), 0


rng_uniform_p = Primitive(
    "rng_uniform",
    type_rule=_uniform_type,
    reference=_uniform,
    lower=HostCall(_uniform),
    jvp=_uniform_jvp,
    transpose=Unsupported("random numbers are not linear in their bounds"),
    batch=_uniform_batch,
)
