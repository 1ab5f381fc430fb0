"""Factorizations and systems of matrices that are split over ranks: those of the whole matrix, signs included."""

from __future__ import annotations

import math

import numpy as np
import pytest
from spmd.ranks import GRIDS, SIZE, P, assert_same, mesh_1d, mesh_2d, real, whole
from spmd.test_global_arrays import kinds, placed

import mpijax as jax
from mpijax import lax
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


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize(("m", "n"), [(4 * SIZE, 4 * SIZE), (3 * SIZE + 1, 5 * SIZE + 2), (5 * SIZE + 1, 4 * SIZE - 1)])
@pytest.mark.parametrize("spec", [P("i"), P(None, "i")])
def test_qr_by_block_columns(m, n, dtype, spec):
    """Fewer rows on a rank than columns: reflections are sent, no rank has the matrix."""
    a = matrix(m, n, dtype)
    [x] = placed([np.pad(a, [(0, -m % SIZE), (0, -n % SIZE)])], [spec], mesh_1d())
    f = jax.jit(lambda a: jnp.linalg.qr(a[:m, :n]))
    for g, w in zip(f(x), jnp.linalg.qr(jnp.asarray(a)), strict=True):
        assert_same(g, w, rtol=1e-3, atol=1e-4)


def test_memory_of_a_square_qr_falls_with_the_ranks():
    [a] = placed([real((64 * SIZE, 64 * SIZE))], [P("i")], mesh_1d())
    compiled = jax.jit(jnp.linalg.qr).lower(a).compile()
    assert compiled.memory_analysis().peak_memory_in_bytes < 9.5 * a.nbytes / SIZE
    assert "allgather" not in compiled.as_text()


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
@pytest.mark.one_in(3)
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


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize(("m", "n"), [(6 * SIZE, 6 * SIZE), (4 * SIZE + 1, 3 * SIZE + 1), (3 * SIZE - 1, 5 * SIZE + 1)])
@pytest.mark.parametrize("spec", [P("i"), P(None, "i")])
def test_lu(m, n, dtype, spec):
    """Factors, pivots and the order of rows; the last ranks may have no column."""
    a = matrix(m, n, dtype)
    wide = np.pad(a, [(0, -m % SIZE), (0, -n % SIZE)])
    got = jax.jit(lambda a: lax.linalg.lu(a[:m, :n]))(*placed([wide], [spec], mesh_1d()))
    for g, w in zip(got, lax.linalg.lu(jnp.asarray(a)), strict=True):
        assert_same(g, w, **CLOSE)


def test_lu_of_a_singular_matrix():
    a = matrix(4 * SIZE, 4 * SIZE, np.float32)
    a[:, 1] = a[:, -1] = 0
    got = jax.jit(lax.linalg.lu)(*placed([a], [P("i")], mesh_1d()))
    for g, w in zip(got, lax.linalg.lu(jnp.asarray(a)), strict=True):
        assert_same(g, w, **CLOSE)


@pytest.mark.parametrize("spec", [P("i"), P(None, "i")])
@pytest.mark.parametrize("sides", [2, 4 * SIZE])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.one_in(4)
def test_triangular_solve(lower, transposed, left, sides, spec):
    """Few and many right-hand sides, by rows and columns of the matrix; only one triangle is read."""
    n = 4 * SIZE - 1
    a = np.pad(matrix(n, n, np.complex64) + 3 * np.eye(n, dtype=np.complex64), [(0, 1)] * 2)
    b = matrix(n, sides, np.complex64) if left else matrix(sides, n, np.complex64)

    def f(a, b):
        return lax.linalg.triangular_solve(
            a[:n, :n], b, left_side=left, lower=lower, transpose_a=transposed, conjugate_a=left, unit_diagonal=False
        )

    got = jax.jit(f)(placed([a], [spec], mesh_1d())[0], jnp.asarray(b))
    assert_same(got, f(jnp.asarray(a), jnp.asarray(b)), **CLOSE)


SYSTEMS = {
    "solve": lambda a, b: jnp.linalg.solve(a, b),
    "solve, a vector": lambda a, b: jnp.linalg.solve(a, b[:, 0]),
    "inverse": lambda a, b: jnp.linalg.inv(a),
    "log determinant": lambda a, b: jnp.linalg.slogdet(a),
    "gradient": jax.grad(lambda a, b: (jnp.linalg.solve(a, b) ** 3).sum(), (0, 1)),
    "gradient of a determinant": lambda a, b: jax.grad(lambda a: jnp.linalg.slogdet(a)[1])(a),
    "with its transpose": lambda a, b: jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(a), b, trans=1),
}


@pytest.mark.parametrize("spec", [P("i"), P(None, "i")])
@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.one_in(3)
def test_systems_of_a_split_matrix(name, spec):
    f, n = SYSTEMS[name], 6 * SIZE
    a, b = real((n, n)) + math.sqrt(n) * np.eye(n, dtype=np.float32), real((n, 2), 1)
    got = jax.tree.leaves(jax.jit(f)(*placed([a, b], [spec, P("i")], mesh_1d())))
    for g, w in zip(got, jax.tree.leaves(f(jnp.asarray(a), jnp.asarray(b))), strict=True):
        assert_same(g, w, rtol=1e-3, atol=1e-4)


def test_memory_of_a_solve_falls_with_the_ranks():
    """No rank has the matrix, nor its factors."""
    a, b = placed([real((64 * SIZE, 64 * SIZE)), real(64 * SIZE)], [P("i"), P("i")], mesh_1d())
    compiled = jax.jit(jnp.linalg.solve).lower(a, b).compile()
    share = a.nbytes / SIZE
    assert compiled.memory_analysis().peak_memory_in_bytes < 6.5 * share
    assert "allgather" not in compiled.as_text()
    if SIZE > 1:
        assert compiled.cost_analysis()["bytes sent"] < 1.3 * a.nbytes


def test_triangular_solve_on_a_grid_of_ranks():
    """Rows of the matrix are split over one axis of the mesh, right-hand sides over the other."""
    n = math.lcm(12, SIZE)
    a, b = real((n, n)) + 3 * np.eye(n, dtype=np.float32), real((n, 4), 1)
    f = jax.jit(lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True))
    for shape in GRIDS:
        got = f(*placed([a, b], [P("i"), P(None, "j")], mesh_2d(shape)))
        assert_same(got, f(jnp.asarray(a), jnp.asarray(b)), **CLOSE)


# ---------------------------------------------------------------- singular values


def signed(u, s, vt):
    """U, s and V^H with a sign, or a phase, of each pair of vectors that does not depend on the algorithm."""
    vt, u = np.asarray(vt), np.asarray(u)
    at = np.abs(vt).argmax(-1)[..., None]
    phase = np.take_along_axis(vt, at, -1)
    phase = phase / np.abs(phase)
    return u * np.swapaxes(phase, -1, -2), np.asarray(s), vt / phase


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize(("rows", "columns"), [(12 * SIZE, 5), (4 * SIZE + 1, 3), (4 * SIZE, 6 * SIZE)])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.one_in(3)
def test_svd(rows, columns, dtype, wide):
    """Of tall matrices, wide ones and those that are neither."""
    a = matrix(rows, columns, dtype)
    [x] = placed([np.pad(a, [(0, -rows % SIZE), (0, 0)])], [P("i")], mesh_1d())

    def f(x):
        x = x[:rows].T if wide else x[:rows]
        return jnp.linalg.svd(x, full_matrices=False), jnp.linalg.svd(x, compute_uv=False)

    got, values = jax.jit(f)(x)
    want, _ = f(jnp.asarray(a))
    for g, w in zip(signed(*map(whole, got)), signed(*want), strict=True):
        np.testing.assert_allclose(g, w, **CLOSE)
    assert_same(values, want[1], **CLOSE)


def test_what_the_svd_of_a_tall_matrix_sends():
    [a] = placed([matrix(32 * SIZE, 4, np.float32)], [P("i")], mesh_1d())
    found = kinds(lambda a: jnp.linalg.svd(a, full_matrices=False), a)
    assert found == ({"bcast": 1, "allgather": 1} if SIZE > 1 else {})
    u, _, _ = jax.jit(lambda a: jnp.linalg.svd(a, full_matrices=False))(a)
    assert u.sharding.is_equivalent_to(a.sharding, 2)


TALL = {
    "least squares": lambda a, b: jnp.linalg.lstsq(a, b)[0],
    "pseudo-inverse": lambda a, b: jnp.linalg.pinv(a) @ b,
    "condition number": lambda a, b: jnp.linalg.cond(a),
    "nuclear norm": lambda a, b: jax.grad(lambda a: jnp.linalg.norm(a, "nuc"))(a),
    "principal components": lambda a, b: jnp.abs(jnp.linalg.svd(a - a.mean(0), full_matrices=False)[2]),
    "derivative": lambda a, b: jax.grad(lambda a: (jnp.linalg.svd(a, full_matrices=False)[0] ** 4).sum())(a),
}


@pytest.mark.parametrize("name", TALL)
@pytest.mark.one_in(2)
def test_what_uses_singular_values(name):
    f, a, b = TALL[name], real((8 * SIZE, 3)), real(8 * SIZE, 1)
    got = jax.jit(f)(*placed([a, b], [P("i"), P("i")], mesh_1d()))
    assert_same(got, f(jnp.asarray(a), jnp.asarray(b)), rtol=1e-3, atol=1e-4)
