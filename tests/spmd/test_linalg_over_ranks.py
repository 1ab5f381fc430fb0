"""Factorizations of matrices whose rows are split over ranks: those of the whole matrix, signs included."""

from __future__ import annotations

import numpy as np
import pytest
from spmd.ranks import SIZE, P, assert_same, mesh_1d, real
from spmd.test_global_arrays import kinds, placed

import mpijax as jax
from mpijax import numpy as jnp

pytestmark = pytest.mark.mpi

CLOSE = {"rtol": 2e-4, "atol": 2e-5}


def matrix(m, n, dtype):
    x = real((m, n)).astype(dtype)
    return (x + 1j * real((m, n), 1)).astype(dtype) if np.issubdtype(dtype, np.complexfloating) else x


def positive(n, dtype):
    x = matrix(n, n, dtype)
    return (x @ x.conj().T + n * np.eye(n)).astype(dtype)


def cut_to(x):
    """An array that ranks divide, which begins with `x`: its first rows lie in unequal blocks."""
    more = np.concatenate([x, x[: -len(x) % SIZE]])
    return placed([more], [P("i")], mesh_1d())[0]


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize(("rows", "columns"), [(16 * SIZE, 5), (5 * SIZE, 5), (16 * SIZE + 3, 7)])
def test_tall_qr(rows, columns, dtype):
    a = matrix(rows, columns, dtype)
    f = jax.jit(lambda a: jnp.linalg.qr(a[:rows]))
    q, r = f(cut_to(a))
    want = jnp.linalg.qr(jnp.asarray(a))
    assert_same(q, want[0], **CLOSE)
    assert_same(r, want[1], **CLOSE)
    assert r.is_fully_replicated
    if SIZE > 1:
        assert q.sharding.spec == P("i")


def test_what_tall_qr_sends():
    [a] = placed([matrix(32 * SIZE, 4, np.float32)], [P("i")], mesh_1d())
    found = kinds(jnp.linalg.qr, a)
    assert found == ({"bcast": 1, "allgather": 1} if SIZE > 1 else {})


@pytest.mark.parametrize("rows", [4 * SIZE, 3 * SIZE])
def test_stacks_of_tall_matrices(rows):
    a = real((3, rows, 2))
    q, r = jax.jit(jnp.linalg.qr)(*placed([a], [P(None, "i")], mesh_1d()))
    want = jnp.linalg.qr(jnp.asarray(a))
    assert_same(q, want[0], **CLOSE)
    assert_same(r, want[1], **CLOSE)


@pytest.mark.parametrize("options", [{"mode": "complete"}, {"mode": "r"}])
def test_other_forms_of_qr(options):
    a = real((6 * SIZE, 4))
    got = jax.tree.leaves(jax.jit(lambda a: jnp.linalg.qr(a, **options))(*placed([a], [P("i")], mesh_1d())))
    for g, w in zip(got, jax.tree.leaves(jnp.linalg.qr(jnp.asarray(a), **options)), strict=True):
        assert_same(g, w, **CLOSE)


def test_wide_matrices_and_few_rows():
    """Fewer rows on a rank than columns: whole matrices."""
    a = real((2 * SIZE, 2 * SIZE))
    q, r = jax.jit(jnp.linalg.qr)(*placed([a], [P("i")], mesh_1d()))
    assert_same(q, jnp.linalg.qr(jnp.asarray(a))[0], **CLOSE)


def test_gradient_of_qr():
    a = real((8 * SIZE, 3))

    def f(a):
        q, r = jnp.linalg.qr(a)
        return (q**3).sum() + jnp.sin(r).sum()

    got = jax.jit(jax.grad(f))(*placed([a], [P("i")], mesh_1d()))
    assert_same(got, jax.grad(f)(jnp.asarray(a)), **CLOSE)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("n", [8 * SIZE, 8 * SIZE + 3, SIZE + 1])
@pytest.mark.parametrize("spec", [P("i"), P(None, "i")])
def test_cholesky(n, dtype, spec):
    a = positive(n, dtype)
    wide = np.pad(a, [(0, -n % SIZE)] * 2)
    f = jax.jit(lambda a: jnp.linalg.cholesky(a[:n, :n]))
    got = f(*placed([wide], [spec], mesh_1d()))
    assert_same(got, jnp.linalg.cholesky(jnp.asarray(a)), **CLOSE)


def test_cholesky_in_a_solver():
    """The normal equations, the gradient of a log determinant."""
    a, b = positive(6 * SIZE, np.float32), real((6 * SIZE, 2))

    def f(a):
        factor = jnp.linalg.cholesky(a)
        return 2 * jnp.log(jnp.diagonal(factor)).sum() + (jax.scipy.linalg.cho_solve((factor, True), b) * b).sum()

    placed_a = placed([a], [P("i")], mesh_1d())
    assert_same(jax.jit(f)(*placed_a), f(jnp.asarray(a)), **CLOSE)
    assert_same(jax.jit(jax.grad(f))(*placed_a), jax.grad(f)(jnp.asarray(a)), **CLOSE)


def test_not_positive_definite():
    a = positive(4 * SIZE, np.float32)
    a[2, 2] = -5
    got = jax.jit(jnp.linalg.cholesky)(*placed([a], [P("i")], mesh_1d()))
    assert_same(jnp.isnan(got), jnp.isnan(jnp.linalg.cholesky(jnp.asarray(a))))
