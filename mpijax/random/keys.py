"""PRNG keys: make, split, fold in, wrap and unwrap them.

A key is an array of dtype ``key<fry>``; each element stands for two uint32 numbers. `PRNGKey` returns the two numbers
themselves, as JAX did before it had typed keys. Every function accepts both forms.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base.option import values as options
from mpijax.core.base.warn import warn_user
from mpijax.numpy.creation.constructors import asarray
from mpijax.numpy.util import is_arraylike
from mpijax.ops.random import keys as ops


class PRNGSpec:
    """A generator without a known name, as `key_impl` returns it."""

    __slots__ = ("_impl",)

    def __init__(self, impl: Any):
        self._impl = impl

    def __repr__(self) -> str:
        return f"PRNGSpec({self._impl.name!r})"

    def __str__(self) -> str:
        return str(self._impl)

    def __hash__(self) -> int:
        return hash(self._impl)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PRNGSpec) and self._impl == other._impl


PRNGSpecDesc = str | PRNGSpec | Hashable


def default_prng_impl() -> Any:
    """The generator of keys that are made without `impl`; see the option jax_default_prng_impl."""
    return resolve_prng_impl(options.jax_default_prng_impl)


def resolve_prng_impl(spec: Any) -> Any:
    """The generator for a name, a key dtype, a `PRNGSpec`, or None (the default generator)."""
    if spec is None:
        return default_prng_impl()
    if isinstance(spec, str):
        if spec in ops.prngs:
            return ops.prngs[spec]
        known = ", ".join(f'"{name}"' for name in ops.prngs)
        raise ValueError(f'unrecognized PRNG implementation "{spec}". Did you mean one of: {known}?')
    if isinstance(spec, PRNGSpec) or isinstance(spec, dtypes.PRNGKeyDtype):
        return spec._impl
    if isinstance(spec, ops.PRNGImpl):
        return spec
    raise TypeError(f"unrecognized type {type(spec)} for specifying PRNG implementation.")


def key_dtype(impl_spec: PRNGSpecDesc | None = None) -> Any:
    """The dtype of keys of a generator.

    >>> mpijax.random.key_dtype("threefry2x32")
    key<fry>
    """
    return dtypes.PRNGKeyDtype(resolve_prng_impl(impl_spec))


def is_key(x: Any) -> bool:
    """Whether x is an array of typed keys."""
    aval = getattr(x, "aval", None)
    return aval is not None and dtypes.issubdtype(aval.dtype, dtypes.prng_key)


_LEGACY = (
    "Legacy uint32 key array passed as key to jax.random function. Please create keys using "
    "jax.random.key(). If use "
    'of a raw key array was intended, set jax_legacy_prng_key="allow".'
)


def check_key(fun_name: str, key: Any, *, allow_batched: bool = False) -> tuple[Any, bool]:
    """The argument `key` as a typed key, and whether it was a raw one.

    Raises:
      TypeError: the argument is not a key.
      ValueError: the argument is an array of keys, and the function needs a single key.
    """
    was_raw = not is_key(key)
    if was_raw:
        if not is_arraylike(key):
            raise TypeError(f"unexpected PRNG key type {type(key)}")
        if not hasattr(key, "dtype"):
            raise TypeError(
                "JAX encountered invalid PRNG key data: expected key_data to have ndim, shape, and dtype attributes. "
                f"Got {key}. Make a key from a seed: jax.random.key({key if isinstance(key, int) else 0})."
            )
        key = ops.random_wrap(key, impl=default_prng_impl())
        _complain_of_raw_key()
    if not allow_batched and key.ndim:
        raise ValueError(
            f"{fun_name} accepts a single key, but was given a key array of shape {key.shape} != (). "
            "Use jax.vmap for batching."
        )
    return key, was_raw


def _complain_of_raw_key() -> None:
    if options.jax_legacy_prng_key == "error":
        raise ValueError(_LEGACY)
    if options.jax_legacy_prng_key == "warn":
        warn_user(_LEGACY)
    elif options.jax_enable_custom_prng:
        warn_user(
            "Raw arrays as random keys to jax.random functions are deprecated. Assuming valid threefry2x32 "
            "key for now.",
            FutureWarning,
        )


def _as_given(was_raw: bool, key: Any) -> Any:
    """Keys in the form of the caller's key: typed or raw."""
    return ops.random_unwrap(key) if was_raw and not options.jax_enable_custom_prng else key


def _make_key(fun_name: str, seed: Any, spec: Any) -> Any:
    impl = resolve_prng_impl(spec)
    if is_key(seed):
        raise TypeError(f"{fun_name} accepts a scalar seed, but was given a PRNG key.")
    if np.ndim(seed):
        raise TypeError(
            f"{fun_name} accepts a scalar seed, but was given an array of shape {np.shape(seed)} != (). "
            "Use jax.vmap for batching"
        )
    return ops.random_seed(seed, impl=impl)


def key(seed: Any, *, impl: PRNGSpecDesc | None = None, dtype: Any = None) -> Any:
    """A typed key.

    Args:
      seed: integer.
      impl: the generator: "threefry2x32", "threefry4x32", "philox2x32", "philox4x32", "rbg" or "unsafe_rbg"; the
        default is the value of the option jax_default_prng_impl.
      dtype: the dtype of the key, instead of `impl`.

    >>> mpijax.random.key(0)
    Array((), dtype=key<fry>) overlaying:
    [0 0]
    """
    if dtype is not None:
        if impl is not None:
            raise ValueError("Cannot specify both `impl` and `dtype` arguments to jax.random.key")
        impl = dtype
    return _make_key("key", seed, impl)


def PRNGKey(seed: Any, *, impl: PRNGSpecDesc | None = None) -> Any:
    """A raw key: uint32 of shape [2]. See `key` for the arguments.

    A raw key does not store its generator. Functions use the default generator for it.

    >>> mpijax.random.PRNGKey(0)
    Array([0, 0], dtype=uint32)
    """
    return _as_given(True, _make_key("PRNGKey", seed, impl))


def fold_in(key: Any, data: Any) -> Any:
    """A new key from a key and an integer.

    `data` becomes uint32. Equal integers give equal keys: use the counter of a loop to make a key for each iteration.

    >>> key = mpijax.random.key(0)
    >>> mpijax.random.fold_in(key, 1) == mpijax.random.fold_in(key, 2)
    Array(False, dtype=bool)
    """
    key, was_raw = check_key("fold_in", key)
    if np.ndim(data):
        raise TypeError(
            f"fold_in accepts a scalar, but was given an array of shape {np.shape(data)} != (). Use "
            "jax.vmap for batching."
        )
    return _as_given(was_raw, ops.random_fold_in(key, asarray(data, dtype="uint32")))


def split_key(key: Any, num: int | Sequence[int] = 2) -> Any:
    """Typed keys from a typed key."""
    shape = tuple(num) if isinstance(num, Sequence) else (num,)
    return ops.random_split(key, shape=shape)


def split(key: Any, num: int | tuple[int, ...] = 2) -> Any:
    """New keys from a key. Do not use the old key again.

    Args:
      key: a single key.
      num: number of keys, or the shape of the array of keys.

    >>> key, subkey = mpijax.random.split(mpijax.random.key(0))
    >>> mpijax.random.key_data(subkey)
    Array([ 928981903, 3453687069], dtype=uint32)
    """
    key, was_raw = check_key("split", key)
    return _as_given(was_raw, split_key(key, num))


def key_impl(keys: Any) -> str | PRNGSpec:
    """The generator of keys: its name, or a `PRNGSpec`.

    >>> mpijax.random.key_impl(mpijax.random.key(0))
    'threefry2x32'
    """
    keys, _ = check_key("key_impl", keys, allow_batched=True)
    impl = keys.dtype._impl
    return impl.name if ops.prngs.get(impl.name) == impl else PRNGSpec(impl)


def key_data(keys: Any) -> Any:
    """The numbers of typed keys: uint32 of shape [*keys.shape, 2].

    >>> mpijax.random.key_data(mpijax.random.key(7))
    Array([0, 7], dtype=uint32)
    """
    keys, _ = check_key("key_data", keys, allow_batched=True)
    words, shape = ops.random_unwrap(keys), _data_shape(keys.dtype._impl)
    return words if shape is None else words.reshape(*keys.shape, *shape)


def _data_shape(impl: Any) -> tuple[int, ...] | None:
    """The shape in which a generator that a user defined has a key's words; None where it is that in memory."""
    return getattr(impl, "data_shape", None)


def wrap_key_data(key_bits_array: Any, *, impl: PRNGSpecDesc | None = None, dtype: Any = None) -> Any:
    """Typed keys from their numbers: the inverse of `key_data`.

    Args:
      key_bits_array: uint32 of shape [..., 2].
      impl, dtype: as for `key`.

    >>> mpijax.random.wrap_key_data(jnp.array([0, 7], dtype="uint32")) == mpijax.random.key(7)
    Array(True, dtype=bool)
    """
    if dtype is not None:
        if impl is not None:
            raise ValueError("Cannot specify both `impl` and `dtype` arguments to jax.random.wrap_key_data")
        impl = dtype
    generator = resolve_prng_impl(impl)
    shape = _data_shape(generator)
    if shape is not None:
        key_bits_array = asarray(key_bits_array)
        split = key_bits_array.ndim - len(shape)
        given = key_bits_array.shape
        if split < 0 or given[split:] != shape:
            raise TypeError(
                f"JAX encountered invalid PRNG key data: expected key_data.shape to end with {shape}; got shape={given}"
            )
        key_bits_array = key_bits_array.reshape(*given[:split], *generator.key_shape)
    return ops.random_wrap(key_bits_array, impl=generator)


def clone(key: Any) -> Any:
    """The same key, but the check for keys that are used twice treats it as another key.

    The result has the same shape and dtype.

    >>> mpijax.random.clone(mpijax.random.key(0)) == mpijax.random.key(0)
    Array(True, dtype=bool)
    """
    return ops.random_clone(key)
