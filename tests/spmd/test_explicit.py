"""Arrays whose types say how they are split over ranks: values, types and shardings are those of the whole arrays.

Beside JAX, over devices of one process, see local_explicit.py.
"""

import numpy as np
import pytest
from spmd.ranks import SIZE, real, whole

import mpijax as jax
from mpijax import lax
from mpijax import numpy as jnp
from mpijax.core.base.errors import ShardingTypeError
from mpijax.sharding import AxisType, auto_axes

P = jax.P
ROWS = 2 * SIZE
X, W = real((ROWS, 2)), real((2, 3), seed=1)
T = np.tanh(X @ W)
CT = 2 * T * (1 - T * T)


@pytest.fixture(autouse=True)
def _mesh():
    with jax.set_mesh(jax.make_mesh((SIZE,), ("i",), axis_types=(AxisType.Explicit,))):
        yield


def loss(w, x):
    return jnp.sum(jnp.tanh(x @ w) ** 2)


def scanned(x):
    return lax.scan(lambda c, a: (c * a, a + 1), jnp.ones(ROWS, out_sharding=P("i")), x.T)


CASES = {
    "put": (lambda x: x, "[R@i,2]", X),
    "elementwise": (lambda x: jnp.sin(x) + 1, "[R@i,2]", np.sin(X) + 1),
    "product": (lambda x: x @ W, "[R@i,3]", X @ W),
    "contracted": (lambda x: jnp.dot(x.T, x, out_sharding=P()), "[2,2]", X.T @ X),
    "sum of rows": (lambda x: x.sum(0), "[2]", X.sum(0)),
    "sum of columns": (lambda x: x.sum(1), "[R@i]", X.sum(1)),
    "transposed": (lambda x: x.T, "[2,R@i]", X.T),
    "whole": (lambda x: jax.reshard(x, P()), "[R,2]", X),
    "filled": (lambda x: jnp.full_like(x, 2), "[R@i,2]", np.full_like(X, 2)),
    "row": (lambda x: x.at[np.array([0, ROWS - 1])].get(out_sharding=P()), "[2,2]", X[[0, -1]]),
    "gradient": (lambda x: jax.grad(loss, 1)(W, x), "[R@i,2]", CT @ W.T),
    "gradient of a whole": (lambda x: jax.grad(loss)(jnp.asarray(W), x), "[2,3]", X.T @ CT),
    "carry": (lambda x: scanned(x)[0], "[R@i]", X[:, 0] * X[:, 1]),
    "stacked": (lambda x: scanned(x)[1], "[2,R@i]", X.T + 1),
    "auto": (lambda x: auto_axes(lambda a: a.T @ a, out_sharding=P())(x), "[2,2]", X.T @ X),
    "vmap": (lambda x: jax.vmap(lambda a: a * 2 + a.sum())(x), "[R@i,2]", X * 2 + X.sum(1, keepdims=True)),
    "branch": (lambda x: lax.cond(True, lambda x: x * 2, lambda x: x, x), "[R@i,2]", X * 2),
    "body": (lambda x: jax.shard_map(lambda a: a * 2, out_specs=P("i"))(x) + 1, "[R@i,2]", X * 2 + 1),
}


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jitted"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(4)
def test_values_types_and_shardings(name, jitted):
    f, text, expected = CASES[name]
    out = (jax.jit(f) if jitted else f)(jax.device_put(X, P("i", None)))
    assert jax.typeof(out).str_short(True) == "f32" + text.replace("R", str(ROWS))
    split = jax.typeof(out).sharding.spec
    assert out.is_fully_replicated if "@" not in text or SIZE == 1 else out.sharding.spec == split
    np.testing.assert_allclose(whole(out), expected, rtol=2e-5, atol=1e-5)


def test_ambiguous_products_are_refused():
    x = jax.device_put(X, P("i", None))
    with pytest.raises(ShardingTypeError, match="Contracting dimensions are sharded"):
        jax.jit(lambda x: x.T @ x)(x)
