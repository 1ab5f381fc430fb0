"""Eigenvalues and eigenvectors of Hermitian matrices that are split over ranks."""

from __future__ import annotations

import numpy as np
import pytest
from spmd.ranks import SIZE, P, assert_same, mesh_1d, whole
from spmd.test_global_arrays import kinds, placed
from spmd.test_linalg_over_ranks import cut_to, matrix

import mpijax as jax
from mpijax import lax
from mpijax import numpy as jnp
from mpijax.ops.linalg import eigh_over_ranks

pytestmark = pytest.mark.mpi


@pytest.fixture(autouse=True)
def nothing_is_gathered(monkeypatch):
    """Not even matrices as small as these, on two ranks."""
    monkeypatch.setattr(eigh_over_ranks, "GATHERED_UP_TO", 0)
    monkeypatch.setattr(eigh_over_ranks, "FEWEST_PARTS", 2)


def hermitian(n, dtype):
    x = matrix(n, n, dtype)
    return ((x + x.conj().T) / 2).astype(dtype)


def clustered(n, dtype):
    q = np.linalg.qr(matrix(n, n, dtype))[0]
    values = np.repeat([3, 1, -1, -3], -(-n // 4))[:n]
    return ((q * values) @ q.conj().T).astype(dtype)


def check(a, values, vectors):
    """A V = V diag(w) and V^H V = I to rounding errors, and eigenvalues as LAPACK's."""
    values, vectors = np.asarray(values), whole(vectors)
    want = np.linalg.eigvalsh(a)
    rounding = 4 * len(a) * np.finfo(a.dtype).eps
    magnitude = max(np.abs(want).max(), np.finfo(a.dtype).tiny)
    np.testing.assert_allclose(values, want, atol=rounding * magnitude)
    np.testing.assert_allclose(a @ vectors, vectors * values, atol=rounding * magnitude)
    np.testing.assert_allclose(vectors.conj().T @ vectors, np.eye(len(a)), atol=rounding)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("n", [4 * SIZE, 12 * SIZE, 30 * SIZE])
@pytest.mark.parametrize("make", [hermitian, clustered])
@pytest.mark.one_in(3)
def test_eigh(n, dtype, make):
    a = make(n, dtype)
    for spec in (P("i"), P(None, "i")):
        values, vectors = jax.jit(jnp.linalg.eigh)(*placed([a], [spec], mesh_1d()))
        check(a, values, vectors)
        assert values.is_fully_replicated
        if SIZE > 1:
            assert vectors.sharding.spec == P(None, "i")


def test_float64():
    with jax.enable_x64(True):
        a = hermitian(20 * SIZE, np.float64)
        check(a, *jax.jit(jnp.linalg.eigh)(*placed([a], [P("i")], mesh_1d())))


@pytest.mark.parametrize("n", [4 * SIZE + 1, 7 * SIZE - 1])
def test_sizes_that_do_not_divide(n):
    a = hermitian(n, np.float32)
    check(a, *jax.jit(lambda x: jnp.linalg.eigh(x[:n]))(cut_to(a)))


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.one_in(2)
def test_one_triangle_is_read(lower):
    a = hermitian(6 * SIZE, np.complex64)
    other = (np.triu if lower else np.tril)(np.full(a.shape, np.nan, a.dtype), 1 if lower else -1)
    given = np.where(np.isnan(other), other, a)

    def f(x):
        return lax.linalg.eigh(x, lower=lower, symmetrize_input=False)

    vectors, values = jax.jit(f)(*placed([given], [P("i")], mesh_1d()))
    check(a, values, vectors)


def test_special_matrices():
    n = 6 * SIZE
    for a in (np.zeros((n, n)), np.eye(n), np.diag(np.arange(n) - 3.0), np.ones((n, n)), -np.eye(n) * 1e20):
        a = a.astype(np.float32)
        check(a, *jax.jit(jnp.linalg.eigh)(*placed([a], [P("i")], mesh_1d())))
    values, vectors = jax.jit(jnp.linalg.eigh)(*placed([np.full((n, n), np.nan, np.float32)], [P("i")], mesh_1d()))
    assert np.isnan(np.asarray(values)).all() and np.isnan(whole(vectors)).all()


FUNCTIONS = {
    "values": lambda a: (jnp.linalg.eigvalsh(a) ** 3).sum(),
    "vectors": lambda a: (jnp.linalg.eigh(a)[1] ** 4).sum(),
    "a matrix function": lambda a: (lambda w, v: ((v * jnp.tanh(w)) @ v.T)[0, 1])(*jnp.linalg.eigh(a)),
}


@pytest.mark.two_ranks  # the rules are those of any array: products, and the same decomposition
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.one_in(3)
def test_derivatives(name):
    f, a = FUNCTIONS[name], hermitian(5 * SIZE, np.float32) + np.diag(np.arange(5.0 * SIZE, dtype=np.float32) * 3)
    [x] = placed([a], [P("i")], mesh_1d())
    for g in (f, jax.grad(f)):
        want = np.asarray(g(jnp.asarray(a)))
        assert_same(jax.jit(g)(x), want, rtol=2e-3, atol=2e-4 * np.abs(want).max())


def test_what_is_sent():
    """Blocks to neighbours; nothing but the eigenvalues and small vectors is gathered."""
    [a] = placed([hermitian(8 * SIZE, np.float32)], [P(None, "i")], mesh_1d())
    found = kinds(jnp.linalg.eigh, a)
    if SIZE == 1:
        assert found == {}
    else:
        assert found["allgather"] == eigh_over_ranks.POWER_STEPS + 1
        assert found["alltoall"] <= 3  # of the symmetric part, to columns, and of the triangle
        assert "bcast" not in found


def test_small_matrices_are_gathered(monkeypatch):
    monkeypatch.setattr(eigh_over_ranks, "GATHERED_UP_TO", 1 << 26)
    [a] = placed([hermitian(8 * SIZE, np.float32)], [P("i")], mesh_1d())
    assert kinds(jnp.linalg.eigh, a).get("allgather", 0) <= 1


@pytest.mark.parametrize("parts", [2, 3, 4, 7])
def test_each_two_blocks_meet_once(parts):
    rounds = eigh_over_ranks.tournament(parts)
    met = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert len(met) == len(set(met)) == parts * (2 * parts - 1)
    assert all(len(pair) == 2 for pair in met)
