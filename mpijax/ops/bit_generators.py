"""Random bits below `mpijax.random`: rng_bit_generator, from a state of words, and rng_uniform, from no state at all.

Philox and Threefry are those of Salmon and others ("Parallel random numbers: as easy as 1, 2, 3", 2011), with
XLA's arrangement of key, counter and words, so that the bits are JAX's.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.avals import ShapedArray
from mpijax.core.lowering import HostCall
from mpijax.core.out_sharding import explicit_layout, laid_out
from mpijax.core.primitive import Primitive, Unsupported
from mpijax.core.trace import typeof
from mpijax.ops.moves import canonical_shape
from mpijax.transforms.batching import move_dim
from mpijax.transforms.zeros import Zero

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


class RandomAlgorithm(enum.IntEnum):
    """How `rng_bit_generator` makes bits; the default is Philox, as XLA's on CPUs.

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
    """Random bits from a state, and the state after them. `mpijax.random` is the better choice for most programs.

    Args:
      key: uint32[4] or uint64[2]: a key of 64 bits and a counter of 64 bits, low words first.
      shape: of the result.
      dtype: uint8, uint16, uint32 or uint64.
      out_sharding: the layout of the bits.

    Returns:
      (the state, with a counter that has moved on; bits of the shape).

    Raises:
      TypeError: another dtype, or a state that is not of those.

    >>> state, bits = lax.rng_bit_generator(jnp.zeros(4, "uint32"), (2, 3))
    >>> bits.shape, bits.dtype
    ((2, 3), dtype('uint32'))
    """
    dtype = dtypes.check_user_dtype_supported(dtype, "rng_bit_generator")
    if np.dtype(dtype).name not in ("uint8", "uint16", "uint32", "uint64"):
        raise TypeError(f"rng_bit_generator: unsupported dtype {dtype}; give uint8, uint16, uint32 or uint64.")
    explicit_layout(out_sharding, "rng_bit_generator")  # raises where it does not fit the mesh in context
    state, bits = rng_bit_generator_p.bind(
        key, shape=canonical_shape(shape), dtype=np.dtype(dtype), algorithm=algorithm, out_sharding=None
    )
    return state, laid_out(bits, out_sharding, "rng_bit_generator")


def _bits_type(key, *, shape, dtype, **_):
    if (key.dtype.name, key.shape) not in (("uint32", (4,)), ("uint64", (2,))):
        raise TypeError(f"rng_bit_generator: the state must be uint32[4] or uint64[2], got {key.str_short()}.")
    return [key, ShapedArray(shape, dtype)]


def _bits(key: np.ndarray, *, shape, dtype, algorithm, **_) -> list[np.ndarray]:
    state = np.ascontiguousarray(key).view(np.uint64)
    block = _threefry if algorithm == RandomAlgorithm.RNG_THREE_FRY else _philox
    made, blocks = block(state, shape, dtype.itemsize == 8)
    after = np.array([state[0], (int(state[1]) + blocks) % 2**64], np.uint64).view(key.dtype)
    made = made.view(np.uint64) if dtype.itemsize == 8 else made.astype(dtype)
    return [after, np.asarray(made.reshape(shape), order="C")]


def _philox(state: np.ndarray, shape: tuple[int, ...], paired: bool) -> tuple[np.ndarray, int]:
    """(words, blocks): 4 words from each counter; the key stands in the counter's upper half too."""
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


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _threefry(state: np.ndarray, shape: tuple[int, ...], paired: bool) -> tuple[np.ndarray, int]:
    """(words, blocks): 2 words from each counter, for one element of 64 bits or for two along an axis."""
    half, axis = shape, len(shape)
    if not paired:
        shape = shape or (1,)
        even = [i for i, n in enumerate(shape) if n % 2 == 0]
        axis = even[0] if even else int(np.argmax(shape))
        half = (*shape[:axis], -(-shape[axis] // 2), *shape[axis + 1 :])
    blocks = math.prod(half)
    with np.errstate(over="ignore"):
        counter = state[1] + np.arange(blocks, dtype=np.uint64)
        x, y = (counter & _LOW).astype(np.uint32), (counter >> _HALF).astype(np.uint32)
        k0, k1 = np.uint32(state[0] & _LOW), np.uint32(state[0] >> _HALF)
        keys = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
        x, y = x + keys[0], y + keys[1]
        for turn in range(5):
            for distance in _ROTATIONS[turn % 2]:
                x = x + y
                y = ((y << np.uint32(distance)) | (y >> np.uint32(32 - distance))) ^ x
            x, y = x + keys[(turn + 1) % 3], y + keys[(turn + 2) % 3] + np.uint32(turn + 1)
    both = np.stack([x.reshape(half), y.reshape(half)], axis=len(half) if paired else axis + 1)
    if paired:
        return both.ravel(), blocks
    joined = both.reshape(*half[:axis], -1, *half[axis + 1 :]) if blocks else both.reshape(shape)
    return joined[(slice(None),) * axis + (slice(shape[axis]),)].ravel(), blocks


def _bits_jvp(primals, _tangents, **params):
    outs = rng_bit_generator_p.bind(*primals, **params)
    return outs, [Zero.of_primal(out) for out in outs]


def _bits_batch(axis, args, dims, *, shape, **params):
    """Of a batch of states the first one is used, for a result that is larger by an axis; the others stay."""
    [states], [dim] = args, dims
    states = move_dim(states, dim, 0)
    state, bits = rng_bit_generator_p.bind(states[0], shape=(axis.size, *shape), **params)
    return [states.at[0].set(state), bits], [0, 0]


rng_bit_generator_p = Primitive(
    "rng_bit_generator",
    type_rule=_bits_type,
    reference=_bits,
    lower=HostCall(_bits),
    jvp=_bits_jvp,
    transpose=Unsupported("random bits are not linear in their state"),
    batch=_bits_batch,
    multiple_results=True,
)


def rng_uniform(a: Any, b: Any, shape: Sequence[int]) -> Any:
    """Numbers in [a, b), of an order that no seed decides: others in each run and on each rank.

    Args:
      a, b: scalars of one dtype.
      shape: of the result.

    Raises:
      ValueError: a or b is no scalar, or the dtypes differ.

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
        raise NotImplementedError("rng_uniform has no batching rule for its bounds; scale numbers in [0, 1) instead.")
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
