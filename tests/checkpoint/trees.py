"""Trees of everything that a checkpoint holds, and how two of them are compared."""

from __future__ import annotations

import collections
import dataclasses

import ml_dtypes
import numpy as np

import mpijax as jax
from mpijax import numpy as jnp


class Moments(collections.namedtuple("Moments", "mean square")):
    """A namedtuple, as optimizers have."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    params: dict
    moments: Moments
    step: int


@jax.tree_util.register_pytree_node_class
class Pair:
    """A node without keys."""

    def __init__(self, a, b):
        self.a, self.b = a, b

    def tree_flatten(self):
        return (self.a, self.b), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int4", "uint4", "int2"]
WIDE = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "float32", "complex64"]


def state() -> State:
    params = {"w": jnp.arange(12.0).reshape(3, 4), "layers": [{"b": jnp.ones(3)}, (), {}, None]}
    return State(params, Moments(jax.tree.map(lambda x: -x, params), [jnp.float32(2.0)]), 17)


def everything() -> dict:
    rng = np.random.default_rng(0)
    arrays = {
        name: jnp.asarray(rng.integers(0, 2, (3, 2)).astype(getattr(ml_dtypes, name, name))) for name in NARROW + WIDE
    }
    return {
        "arrays": arrays,
        "numpy": {"int64": np.arange(3), "float64": np.array([np.nan, -0.0, 1e300]), "complex128": np.ones(2, complex)},
        "empty": [jnp.zeros((0, 3)), {}, (), []],
        "zero-d": (jnp.float32(3), np.float64(0.1), jnp.asarray(2.0)),
        "special": jnp.asarray([np.nan, np.inf, -np.inf, -0.0], jnp.float32),
        "keys": [jax.random.key(7), jax.random.split(jax.random.key(1, impl="rbg"), 3)],
        "scalars": [True, -3, 2**80, 0.1, float("inf"), -0.0, 1j, complex("nan+infj"), "text é", None],
        "odd names": {"a/b": jnp.ones(1), "a": {"b": jnp.zeros(1)}, "..": jnp.ones(2), "": jnp.ones(3), "A": jnp.zeros(2)},
    } | {"nodes": state(), "pair": Pair(jnp.ones(2), 5)}


def bits(x) -> tuple:
    """What makes two leaves the same."""
    if hasattr(x, "dtype"):
        raw = x._physical if isinstance(x, jax.Array) else np.asarray(x)
        return str(x.dtype), tuple(x.shape), bool(getattr(x, "weak_type", False)), raw.tobytes()
    return type(x), repr(x)


def assert_same(a, b) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        assert bits(x) == bits(y), jax.tree_util.keystr(path)
