"""Operations on PRNG keys with the Threefry 2x32 hash: seeding, splitting, folding in, random bits.

Other generators are programs, see `mpijax.random.generators`; their primitives have the same names.

An array of keys of shape S is stored as uint32 of shape S + (2,), which references receive. Counters are positions in
row-major order. So every element of a result is hashed independently of the others, and independently of the sharding
of the array.

J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.option import values as options
from mpijax.core.rules import shape_rules
from mpijax.core.rules.index_maps import identity
from mpijax.core.rules.lowering import Decompose, Elementwise, Meaning, Structural, ViewKind
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.rules.registry import registry
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.convert import stage
from mpijax.ops.families import ATTACHED, CONSTANT, NOT_LINEAR, broadcast_type, scalar_rule
from mpijax.ops.random import elements as random_elements
from mpijax.ops.rules import broadcast_to, expand_front
from mpijax.ops.shapes.moves import canonical_shape, check_shapelike
from mpijax.transforms import key_reuse
from mpijax.transforms.batching import move_dim
from mpijax.transforms.zeros import Zero

UINT32 = np.dtype(np.uint32)
_WIDTHS = (8, 16, 32, 64)


@dataclass(frozen=True)
class PRNGImpl:
    """A generator: `tag` is its name in types, `key_shape` the shape of a key's uint32 words."""

    name: str
    tag: str
    key_shape: tuple[int, ...]

    def __str__(self) -> str:
        return self.tag

    def _plain_(self) -> tuple[str]:
        return (self.name,)

    @staticmethod
    def _from_plain_(name: str) -> PRNGImpl:
        return prngs[name]


threefry_prng_impl = PRNGImpl("threefry2x32", "fry", (2,))
prngs: dict[str, PRNGImpl] = {threefry_prng_impl.name: threefry_prng_impl}

# Primitives of generators that are programs, by name and by the value of jax_threefry_partitionable.
composed: dict[tuple[str, bool], Primitive] = {}


def _for_generator(plain: Primitive, impl: PRNGImpl) -> Primitive:
    """The primitive for keys of generator `impl`; `plain`, which hashes each counter separately, if it applies."""
    partitionable = bool(options.jax_threefry_partitionable)
    if impl is threefry_prng_impl and partitionable:
        return plain
    return composed[plain.name, partitionable]


def _of(plain: Primitive, keys: Any) -> Primitive:
    aval = typeof(keys)
    _check_keys(plain.name, aval)
    return _for_generator(plain, aval.dtype._impl)


def key_type(impl: PRNGImpl, shape: tuple[int, ...]) -> ShapedArray:
    return ShapedArray(shape, dtypes.PRNGKeyDtype(impl))


def _check_keys(name: str, aval: ShapedArray) -> None:
    if not isinstance(aval.dtype, dtypes.PRNGKeyDtype):
        raise TypeError(f"{name} takes key array operand, got dtype {aval.dtype}")


def _same_dim(primitive_of):
    """The batching rule for an operation without axis parameters: the batch axis stays in place."""

    def batch(axis, args, dims, **params):
        return primitive_of().bind(*args, **params), dims[0]

    return batch


def define(name: str, *, type_rule, reference, batch=None, lower, key=None, sharding=None, keys=None) -> Primitive:
    """An operation on keys, without derivative."""
    primitive: Primitive = Primitive(
        name,
        type_rule=type_rule,
        reference=reference,
        lower=lower,
        sharding=sharding,
        jvp=ATTACHED,
        transpose=NOT_LINEAR,
        batch=batch or _same_dim(lambda: primitive),
        key=key,
        keys=keys,
    )
    primitive.jvp = CONSTANT.attach(primitive)
    return primitive


# ---------------------------------------------------------------- threefry2x32

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry2x32(k0: Any, k1: Any, x0: Any, x1: Any) -> list[Any]:
    """The hash of the counter (x0, x1) by the key (k0, k1): two uint32 arrays."""
    return threefry2x32_p.bind(k0, k1, x0, x1)


def hash_numpy(k0, k1, x0, x1) -> list[np.ndarray]:
    """`threefry2x32` in NumPy, 20 rounds; operands broadcast."""
    k0, k1, x0, x1 = np.broadcast_arrays(k0, k1, x0, x1)
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(_PARITY))
    with np.errstate(over="ignore"):
        x0, x1 = x0 + k0, x1 + k1
        for i in range(5):
            for by in _ROTATIONS[i % 2]:
                x0 = x0 + x1
                x1 = x0 ^ ((x1 << np.uint32(by)) | (x1 >> np.uint32(32 - by)))
            x0 = x0 + keys[(i + 1) % 3]
            x1 = x1 + keys[(i + 2) % 3] + np.uint32(i + 1)
    return [np.asarray(x0), np.asarray(x1)]


def _threefry_type(*avals):
    if any(a.dtype != UINT32 for a in avals):
        raise TypeError(f"Arguments to threefry2x32 must have uint32 type, got {avals}")
    return [ShapedArray(broadcast_type("threefry2x32", avals), UINT32)] * 2


def _behind_front(x, ndim: int):
    """`x` with `ndim` axes: adds axes of size 1 after the first axis."""
    shape = typeof(x).shape
    lacking = ndim - len(shape)
    if not lacking:
        return x
    new, kept = (shape[0], *(1,) * lacking, *shape[1:]), (0, *range(1 + lacking, ndim))
    return registry["broadcast_in_dim"].bind(x, shape=new, broadcast_dimensions=kept, sharding=None)


def broadcast_batch(primitive_of):
    """The batching rule for operands that broadcast: moves batch axes to the front."""

    def batch(axis, args, dims, **params):
        avals = [typeof(x) for x in args]
        if (
            all(d == dims[0] and a.shape == avals[0].shape for d, a in zip(dims, avals))
            and dims[0] is not None
        ):
            return primitive_of().bind(*args, **params), dims[0]
        ndim = max(a.ndim + (d is None) for a, d in zip(avals, dims) if a.ndim)
        front = []
        for x, a, d in zip(args, avals, dims):
            if d is not None:
                x = _behind_front(move_dim(x, d, 0), ndim)
            elif a.ndim:
                x = expand_front(x, ndim)
            front.append(x)
        return primitive_of().bind(*front, **params), 0

    return batch


def _two(batch):
    def rule(axis, args, dims, **params):
        outs, dim = batch(axis, args, dims, **params)
        return outs, [dim] * len(outs)

    return rule


def _threefry_jvp(primals, _tangents):
    outs = threefry2x32_p.bind(*primals)
    return outs, [Zero.of_primal(x) for x in outs]


threefry2x32_p: Primitive = Primitive(
    "threefry2x32",
    type_rule=_threefry_type,
    reference=hash_numpy,
    lower=Elementwise(scalar_rule("threefry2x32"), 60, meaning=Meaning.CHAIN),
    jvp=_threefry_jvp,
    transpose=Unsupported("random bits are integers and have no cotangents"),
    batch=_two(broadcast_batch(lambda: threefry2x32_p)),
    multiple_results=True,
)

# ---------------------------------------------------------------- random_seed


def random_seed(seeds: Any, impl: PRNGImpl = threefry_prng_impl) -> Any:
    """Keys from integers; for threefry2x32, a key is the high and the low 32 bits.

    >>> mpijax.extend.random.random_seed(7) == mpijax.random.key(7)
    Array(True, dtype=bool)
    """
    if isinstance(seeds, int):
        # Truncates integers wider than the default type, such as hashes.
        seeds = np.asarray(np.int64(seeds)).astype(dtypes.canonicalize_dtype(np.int64))[()]
    seeds = stage(seeds)
    if options.jax_random_seed_offset:
        seeds = seeds + options.jax_random_seed_offset
    if not dtypes.issubdtype(typeof(seeds).dtype, np.integer):
        raise TypeError(f"PRNG key seed must be an integer; got {seeds!r}")
    return _for_generator(random_seed_p, impl).bind(seeds, impl=impl)


def _seed_reference(seeds, *, impl):
    bits = seeds.astype(np.uint64 if seeds.dtype.itemsize == 8 else np.uint32)
    high = bits >> np.uint64(32) if bits.dtype.itemsize == 8 else np.zeros_like(bits)
    return np.stack([high.astype(np.uint32), bits.astype(np.uint32)], -1)


random_seed_p = define(
    "random_seed", type_rule=lambda seeds, *, impl: key_type(impl, seeds.shape), reference=_seed_reference,
    lower=Structural(random_elements.seed, words=True), sharding=shape_rules.of_keys, keys=key_reuse.NEW,
)

# ---------------------------------------------------------------- random_wrap, random_unwrap, random_clone


def random_wrap(base_arr: Any, impl: PRNGImpl = threefry_prng_impl) -> Any:
    """Keys from an array of uint32 words; the last axes are those of a key."""
    aval = typeof(base_arr)
    n = len(impl.key_shape)
    if aval.ndim < n:
        raise TypeError(
            f"JAX encountered invalid PRNG key data: expected key_data.ndim >= {n}; got ndim={aval.ndim}"
        )
    if aval.shape[aval.ndim - n :] != impl.key_shape:
        raise TypeError(
            f"JAX encountered invalid PRNG key data: expected key_data.shape to end with {impl.key_shape}; "
            "got "
            f"shape={aval.shape} for impl={impl}"
        )
    if aval.dtype != UINT32:
        raise TypeError(
            f"JAX encountered invalid PRNG key data: expected key_data.dtype = uint32; got dtype={aval.dtype}"
        )
    return random_wrap_p.bind(base_arr, impl=impl)


def random_unwrap(keys: Any) -> Any:
    """The uint32 words of keys."""
    _check_keys("random_unwrap", typeof(keys))
    return random_unwrap_p.bind(keys)


def random_clone(keys: Any) -> Any:
    """The same keys under a new name, to reuse them on purpose."""
    return random_clone_p.bind(keys)


def _wrap_type(x, *, impl):
    stack = x.ndim - len(impl.key_shape)
    if stack < 0 or x.shape[stack:] != impl.key_shape or x.dtype != UINT32:
        raise TypeError(f"random_wrap: keys of {impl.name} are uint32{list(impl.key_shape)}, got {x.str_short(True)}")
    return key_type(impl, x.shape[:stack])


def _wrap_batch(axis, args, dims, *, impl):
    return random_wrap(move_dim(args[0], dims[0], 0), impl), 0


random_wrap_p = define(
    "random_wrap",
    type_rule=_wrap_type,
    reference=lambda x, *, impl: x,
    batch=_wrap_batch,
    lower=Structural(identity, words=True),
    sharding=shape_rules.of_keys,
    keys=key_reuse.NEW,
)

random_unwrap_p = define(
    "random_unwrap",
    type_rule=lambda x: ShapedArray(x.shape + x.dtype.physical_shape, x.dtype.physical_dtype),
    reference=lambda x: x,
    lower=Structural(identity, words=True),
    sharding=shape_rules.of_keys,
    keys=key_reuse.NOTHING,
)

random_clone_p = define(
    "random_clone",
    type_rule=lambda x: x,
    reference=lambda x: x,
    lower=Structural(identity, ViewKind.SAME),
    sharding=shape_rules.copied,
    keys=key_reuse.NEW,
)

# ---------------------------------------------------------------- random_split, random_fold_in


def random_split(keys: Any, shape: Any) -> Any:
    """For each key an array of new keys with the given shape."""
    return _of(random_split_p, keys).bind(keys, shape=canonical_shape(shape))


def random_fold_in(keys: Any, msgs: Any) -> Any:
    """New keys from keys and uint32 numbers."""
    return _of(random_fold_in_p, keys).bind(keys, stage(msgs))


def _counters(keys, shape):
    """The words of the keys and of the 64-bit counters, as arrays that broadcast."""
    position = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    lead = keys.shape[:-1] + (1,) * len(shape)
    k0, k1 = keys[..., 0].reshape(lead), keys[..., 1].reshape(lead)
    return k0, k1, (position >> np.uint64(32)).astype(np.uint32), position.astype(np.uint32)


def _split_type(keys, *, shape):
    _check_keys("random_split", keys)
    check_shapelike("random_split", "shape", shape)
    return keys.update(shape=keys.shape + tuple(shape))


random_split_p = define(
    "random_split",
    type_rule=_split_type,
    reference=lambda keys, *, shape: np.stack(hash_numpy(*_counters(keys, shape)), -1),
    lower=Structural(random_elements.split, cost=20, words=True),
    sharding=shape_rules.of_keys,
    keys=key_reuse.Signature({0: True}, frozenset({0})),
)


def _fold_type(keys, msgs):
    _check_keys("random_fold_in", keys)
    return keys.update(shape=broadcast_type("random_fold_in", (keys, msgs)))


def _fold_reference(keys, msgs):
    # Equal ranks, or one scalar.
    data = msgs.astype(np.uint32)
    return np.stack(hash_numpy(keys[..., 0], keys[..., 1], np.uint32(0), data), -1)


def _fold_equal_shapes(keys, msgs):
    """Repeats a single key or number, so that the compiler gets equal shapes only."""
    shape = broadcast_type("random_fold_in", (typeof(keys), typeof(msgs)))
    return _fold_in_p.bind(broadcast_to(keys, shape), broadcast_to(msgs, shape))


_fold_in_p = define(
    "random_fold_in",
    type_rule=_fold_type,
    reference=_fold_reference,
    key="fold_in_equal_shapes",
    lower=Structural(random_elements.fold_in, cost=20, words=True),
    sharding=shape_rules.random_fold_in,
    keys=key_reuse.NEW,
)

random_fold_in_p: Primitive = define(
    "random_fold_in",
    type_rule=_fold_type,
    reference=_fold_reference,
    batch=broadcast_batch(lambda: random_fold_in_p),
    lower=Decompose(_fold_equal_shapes),
    keys=key_reuse.NEW,
)

# ---------------------------------------------------------------- random_bits


def random_bits(keys: Any, bit_width: int, shape: Any) -> Any:
    """For each key an array of random bits, as unsigned integers of `bit_width` bits."""
    return _of(random_bits_p, keys).bind(keys, bit_width=bit_width, shape=canonical_shape(shape))


def _bits_type(keys, *, bit_width, shape):
    _check_keys("random_bits", keys)
    check_shapelike("random_bits", "shape", shape)
    if bit_width not in _WIDTHS:
        raise TypeError("requires 8-, 16-, 32- or 64-bit field width.")
    return ShapedArray(keys.shape + tuple(shape), dtypes.granted_dtype(np.dtype(f"uint{bit_width}")))


def _bits_reference(keys, *, bit_width, shape):
    high, low = hash_numpy(*_counters(keys, shape))
    if bit_width == 64:
        wide = (high.astype(np.uint64) << np.uint64(32)) | low
        return wide.astype(dtypes.granted_dtype(np.dtype(np.uint64)))
    return (high ^ low).astype(np.dtype(f"uint{bit_width}"))


random_bits_p = define(
    "random_bits",
    type_rule=_bits_type,
    reference=_bits_reference,
    lower=Structural(random_elements.bits, cost=20, words=True),
    sharding=shape_rules.of_keys,
    keys=key_reuse.DRAW,
)
