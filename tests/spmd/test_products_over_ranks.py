"""Products whose operand would be gathered: its blocks go round the ranks."""

from __future__ import annotations

import numpy as np
import pytest
from spmd.ranks import SIZE, P, assert_same, mesh_1d, mesh_2d, real

import mpijax as jax
from mpijax import NamedSharding, lax
from mpijax import numpy as jnp
from mpijax.ops.products import over_ranks as dot_over_ranks
from mpijax.runtime.program.traffic import sent

pytestmark = [pytest.mark.mpi, pytest.mark.many_ranks]  # meshes of two axes
several = pytest.mark.skipif(SIZE < 4, reason="two blocks and a product are no smaller than the whole array")

N = 16 * SIZE
X, Y = real((N, N)), real((N, N), 1)


@pytest.fixture(autouse=True)
def small_products_too(monkeypatch):
    monkeypatch.setattr(dot_over_ranks, "LARGE", 0)


def split(x, spec=None, mesh=None):
    return jax.device_put(x, NamedSharding(mesh or mesh_1d(), P("i") if spec is None else spec))


def traffic(f, *xs):
    return sent(jax.jit(f).lower(*xs).compiler_ir())


def goes_round(f, *xs) -> bool:
    kinds = {s.kind for s in traffic(f, *xs)}
    return "permute" in kinds and not any("gather" in kind for kind in kinds)


PRODUCTS = {
    "rows by rows": (lambda x, y: x @ y, ()),
    "columns by columns": (lambda x, y: x.T @ y.T, (P(None, "i"), P(None, "i"))),
    "rows of the right side": (lambda x, y: y.T @ x.T, ()),
    "pairs of rows": (lambda x, y: x @ y.T, ()),
    "one array twice": (lambda x, y: x @ x.T, ()),
    "uneven": (lambda x, y: x[1:, 1:] @ y[1:], ()),
    "uneven pairs": (lambda x, y: x[1:] @ y[2:].T, ()),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name):
    f, specs = PRODUCTS[name]
    x, y = (split(v, spec) for v, spec in zip((X, Y), specs or (None, None), strict=True))
    assert_same(jax.jit(f)(x, y), np.asarray(f(jnp.asarray(X), jnp.asarray(Y))), rtol=1e-4, atol=1e-4)
    if SIZE > 3:
        assert goes_round(f, x, y) != name.startswith("uneven")


@several
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int32", "complex64"])
def test_every_type(dtype):
    x, y = ((4 * v).astype(jnp.dtype(dtype)) for v in (X, Y))
    for f in (lambda x, y: x @ y, lambda x, y: x @ y.T):
        assert goes_round(f, split(x), split(y))
        want = f(jnp.asarray(x), jnp.asarray(y))
        tolerance = 2e-2 if dtype in ("bfloat16", "float16") else 1e-4
        assert_same(jax.jit(f)(split(x), split(y)), np.asarray(want), rtol=tolerance, atol=tolerance)


def test_batches():
    x, y = real((3, N, N)), real((3, N, N), 1)
    for f in (lambda x, y: x @ y, lambda x, y: x @ y.swapaxes(1, 2)):
        got = jax.jit(f)(split(x, P(None, "i")), split(y, P(None, "i")))
        assert_same(got, np.asarray(f(x, y)), rtol=1e-4, atol=1e-4)
    got = jax.jit(jax.vmap(lambda x, y: x @ y, in_axes=2, out_axes=2))(split(x.T), split(y.T))
    assert_same(got, np.einsum("abc,bdc->adc", x.T, y.T), rtol=1e-4, atol=1e-4)


def test_gradients():
    def loss(x, y):
        return jnp.sum(jnp.sin(x @ y)) + jnp.sum((x @ x.T) ** 2)

    got = jax.jit(jax.grad(loss, (0, 1)))(split(X), split(Y))
    for g, want in zip(got, jax.grad(loss, (0, 1))(X, Y), strict=True):
        assert_same(g, np.asarray(want), rtol=1e-3, atol=1e-3)


@several
def test_narrow_matrices_are_gathered():
    """A rank holds more of the other operand or of the result than the gathered matrix has."""
    narrow = real((N, 4))
    for f in (lambda x, y: x @ y, lambda x, y: y @ x[:, :4].T):
        assert not goes_round(f, split(X), split(narrow))
        assert_same(jax.jit(f)(split(X), split(narrow)), np.asarray(f(X, narrow)), rtol=1e-4, atol=1e-4)


def test_loops():
    f = lambda x, y: lax.fori_loop(0, 3, lambda _, x: jnp.tanh(x @ y), x)
    assert_same(jax.jit(f)(split(X), split(Y)), np.asarray(f(X, Y)), rtol=1e-3, atol=1e-3)


def test_two_mesh_axes():
    mesh = mesh_2d((SIZE, 1))
    for spec in (P("i"), P(("j", "i"))):
        got = jax.jit(lambda x, y: x @ y)(split(X, spec, mesh), split(Y, spec, mesh))
        assert_same(got, X @ Y, rtol=1e-4, atol=1e-4)


@several
def test_memory_and_size(monkeypatch):
    def held(x):
        return jax.jit(lambda x, y: x @ y).lower(x, x).compile().memory_analysis().temp_size_in_bytes

    x = split(real((64 * SIZE, 64 * SIZE)))
    around = held(x)
    monkeypatch.setattr(dot_over_ranks, "LARGE", 1 << 30)
    assert not goes_round(lambda x, y: x @ y, x, x)
    jax.clear_caches()
    assert around < held(x)
