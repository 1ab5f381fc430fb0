"""Small real matrices, which are factored several at a time or alone: against NumPy in double precision."""

import numpy as np
import pytest
from oracle import OURS

from mpijax.lax import linalg as ops

SHAPES = [(1, 1), (2, 2), (3, 3), (4, 4), (8, 8), (4, 2), (2, 5), (7, 6), (1, 3), (12, 12), (9, 31), (32, 17)]
STACK = 69  # enough for eigenvalues and singular values to be found together, and no multiple of a vector
ROUNDING = 60  # times the dtype's precision; LAPACK's results are as far off


@pytest.fixture(autouse=True)
def double_precision():
    with OURS.enable_x64(True):
        yield


def stacks(dtype, m, n):
    """Stacks whose last matrices do not fill a vector; ordinary ones, graded ones, of low rank, of any size, sparse."""
    rng = np.random.default_rng([m, n])
    normal = rng.standard_normal((STACK, m, n))
    power = 10 if dtype == "float32" else 100
    yield normal
    yield normal * np.logspace(0, -5, n)
    yield rng.standard_normal((STACK, m, 1)) @ rng.standard_normal((STACK, 1, n))
    yield normal * 10.0 ** rng.integers(-power, power, (STACK, 1, 1))
    yield rng.integers(-1, 2, (STACK, m, n)).astype(float)
    yield np.eye(m, n) + 1e-6 * normal


def close(got, want, size, dtype):
    """Equal up to rounding of numbers of a size."""
    off = np.abs(np.asarray(got, "float64") - want).max((-2, -1), initial=0)
    assert np.all(off <= ROUNDING * np.finfo(dtype).eps * size), np.max(off / size) / np.finfo(dtype).eps


def double(arrays):
    return [np.asarray(x, "float64") for x in arrays]


def transposed(x):
    return np.swapaxes(x, -1, -2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.one_in(3)
def test_factors_have_the_product_and_are_orthonormal(shape, dtype):
    m, n = shape
    few = min(m, n)
    for x in stacks(dtype, m, n):
        x = x.astype(dtype)
        exact, one = x.astype("float64"), np.eye(few)
        size = np.linalg.norm(exact, axis=(-2, -1))
        u, s, vh = double(ops.svd(x, full_matrices=False))
        close((u * s[:, None]) @ vh, exact, size, dtype)
        close(transposed(u) @ u, one, 1, dtype)
        close(vh @ transposed(vh), one, 1, dtype)
        assert np.all(np.diff(s) <= 0) and np.all(s >= 0)
        close(ops.svd(x, compute_uv=False)[:, None], s[:, None], size, dtype)
        for full in (False, True):
            q, r = double(ops.qr(x, full_matrices=full))
            close(q @ r, exact, size, dtype)
            close(transposed(q) @ q, np.eye(q.shape[-1]), 1, dtype)
            assert not np.any(np.tril(r, -1))
        factors, pivots, order = ops.lu(x)
        lower, upper = np.tril(factors, -1)[..., :few] + np.eye(m, few), np.triu(factors)[..., :few, :]
        close(lower.astype("float64") @ upper, np.take_along_axis(exact, np.asarray(order)[..., None], -2), size, dtype)
        assert np.all(np.abs(lower) <= 1 + 1e-6)
        assert np.array_equal(order, [permuted(p, m) for p in np.asarray(pivots)])


def permuted(pivots, rows):
    order = np.arange(rows)
    for i, j in enumerate(pivots):
        order[[i, j]] = order[[j, i]]
    return order


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 8, 9, 32])
def test_symmetric_matrices(n, dtype):
    for x in stacks(dtype, n, n):
        x = x.astype(dtype)
        for lower in (False, True):
            half = np.tril(x) if lower else np.triu(x)
            exact = (half + transposed(half) - half * np.eye(n)).astype("float64")
            size = np.linalg.norm(exact, axis=(-2, -1))
            v, w = double(ops.eigh(x, lower=lower, symmetrize_input=False))
            close((v * w[:, None]) @ transposed(v), exact, size, dtype)
            close(transposed(v) @ v, np.eye(n), 1, dtype)
            assert np.all(np.diff(w) >= 0)
    x = next(stacks(dtype, n, n))
    exact = x @ transposed(x) + 0.1 * np.eye(n)
    factor = np.asarray(ops.cholesky(exact.astype(dtype)), "float64")
    close(factor @ transposed(factor), exact, np.linalg.norm(exact, axis=(-2, -1)), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "columns"), [(5, 1), (5, 3), (5, 8), (9, 1), (31, 4)])
def test_triangular_systems(n, columns, dtype):
    a, b = next(stacks(dtype, n, n)) + 4 * np.eye(n), next(stacks(dtype, n, columns))
    a, b = a.astype(dtype), b.astype(dtype)
    for left in (False, True):
        for lower in (False, True):
            for transpose in (False, True):
                for unit in (False, True):
                    m = np.tril(a) if lower else np.triu(a)
                    m = m - m * np.eye(n) + np.eye(n) if unit else m
                    m = transposed(m) if transpose else m
                    given = b if left else transposed(b)
                    x = np.asarray(ops.triangular_solve(
                        a, given, left_side=left, lower=lower, transpose_a=transpose, unit_diagonal=unit,
                    ))  # fmt: skip
                    size = np.linalg.norm(m, axis=(-2, -1)) * np.linalg.norm(x, axis=(-2, -1))
                    close(m @ x if left else x @ m, given, size, dtype)


@pytest.mark.parametrize(("name", "n"), [
    ("eigh_p", 4), ("svd_p", 4), ("qr_p", 4), ("lu_p", 4), ("cholesky_p", 4), ("qr_p", 13), ("lu_p", 13),
    ("cholesky_p", 13), ("qr_p", 32), ("lu_p", 32), ("cholesky_p", 32),
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_a_matrix_gives_does_not_depend_on_its_neighbours(name, n, dtype):
    """Nor on NaN, infinities, zeros and huge numbers among them. Factors do not depend on how many there are, either."""
    few_too = ("qr_p", "lu_p", "cholesky_p")
    params = {
        "eigh_p": {"lower": True, "sort_eigenvalues": True, "subset_by_index": None, "algorithm": None},
        "svd_p": {"compute_uv": True, "full_matrices": False, "subset_by_index": None, "algorithm": None},
        "qr_p": {"pivoting": False, "full_matrices": False, "use_magma": None},
    }.get(name, {})
    x = next(stacks(dtype, n, n)).astype(dtype)
    x = x @ transposed(x)
    odd = [np.nan, np.inf, 0, 1e38, 1e-42, -np.inf]
    for i, value in enumerate(odd):
        x[3 * i] = value * np.eye(n) if np.isfinite(value) else x[3 * i]
        x[3 * i, 2, 1] = value
    leaves = OURS.tree.leaves
    together = leaves(getattr(ops, name).bind(x, **params))
    for i in range(0, len(x), 5):
        alone = leaves(getattr(ops, name).bind(np.repeat(x[i : i + 1], 1 if name in few_too else STACK, 0), **params))
        for a, b in zip(together, alone, strict=True):
            np.testing.assert_array_equal(a[i], b[0])
    finite = [i for i in range(len(x)) if np.isfinite(x[i]).all()]
    assert len(finite) == len(x) - 3
    if name != "cholesky_p":
        assert all(np.isfinite(np.asarray(a)[finite]).all() for a in together)
    if name in ("eigh_p", "svd_p"):
        assert all(np.isnan(np.asarray(a)[[0, 3, 15]]).all() for a in together)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("n", [1, 3, 4, 8, 9, 40])
def test_cholesky_alone_and_with_what_is_done_around_it(n, dtype):
    """The compiler hands symmetrizing and the triangle to the kernel: as operation by operation, bit by bit."""
    rng = np.random.default_rng(n)
    x = rng.standard_normal((37, n, n)) + (1j * rng.standard_normal((37, n, n)) if dtype == "complex64" else 0)
    x = (x @ np.conj(transposed(x)) + n * np.eye(n) + 1e-3 * rng.standard_normal((37, n, n))).astype(dtype)
    x[5] = -x[5]
    x[9, 0, 0] = np.nan
    whole = np.asarray(OURS.jit(OURS.numpy.linalg.cholesky)(x))
    np.testing.assert_array_equal(whole, ops.cholesky(x))
    hermitian = (x + np.conj(transposed(x))) / 2
    np.testing.assert_array_equal(whole, OURS.jit(lambda a: ops.cholesky(a, symmetrize_input=False))(hermitian))
    rows, columns = np.triu_indices(n, 1)
    assert not whole[:, rows, columns].any()
    rows, columns = np.tril_indices(n)
    assert np.isnan(whole[[5, 9]][:, rows, columns]).all()
    good = np.delete(np.arange(37), [5, 9])
    size = np.linalg.norm(hermitian[good], axis=(-2, -1))
    product = whole[good].astype(complex) @ np.conj(transposed(whole[good].astype(complex)))
    off = np.abs(product - hermitian[good]).max((-2, -1))
    assert np.all(off <= ROUNDING * np.finfo(dtype).eps * size)


def test_cholesky_of_what_is_almost_symmetrized():
    """Only (x + x^T) / 2 is left to the kernel."""
    x = np.eye(4) * 4 + np.random.default_rng(0).uniform(-0.3, 0.3, (20, 4, 4))
    for make in (
        lambda a: (a + transposed(a)) / 3,
        lambda a: (a + OURS.numpy.swapaxes(a, 0, 0)) / 2,
        lambda a: (a + transposed(2 * a)) / 2,
        lambda a: (transposed(a) + a) / 2,
    ):
        program = OURS.jit(lambda a, make=make: ops.cholesky(make(OURS.numpy.asarray(a)), symmetrize_input=False))
        np.testing.assert_allclose(program(x), np.linalg.cholesky(np.tril(make(x)) + transposed(np.tril(make(x), -1))))


def test_triangles_of_factors_are_taken_where_they_differ():
    x = np.eye(4, dtype=np.float32) * 4 + np.float32(0.5)
    factor = np.linalg.cholesky(x)
    for k in (-1, 0, 1):
        program = OURS.jit(lambda a, k=k: OURS.numpy.tril(ops.cholesky_p.bind(a), k))
        np.testing.assert_allclose(program(x), np.tril(factor, k), rtol=1e-6)
    upper = OURS.jit(lambda a: OURS.numpy.triu(ops.cholesky_p.bind(a)))(x)
    np.testing.assert_allclose(upper, np.triu(factor), rtol=1e-6)
    filled = OURS.jit(lambda a: OURS.numpy.where(np.tri(4, dtype=bool), ops.cholesky_p.bind(a), 7))(x)
    np.testing.assert_allclose(filled, np.where(np.tri(4, dtype=bool), factor, 7), rtol=1e-6)
