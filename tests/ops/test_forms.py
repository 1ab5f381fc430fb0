"""Forms, eigenvalues and tridiagonal systems as machine code, against the references, which call SciPy's LAPACK."""

import numpy as np
import pytest

import mpijax as jax
from mpijax.lax import linalg
from mpijax.ops.linalg import eig, schur, tridiagonal

DTYPES = ("float32", "float64", "complex64", "complex128")


@pytest.fixture(autouse=True)
def _doubles():
    with jax.enable_x64(True):
        yield


def numbers(dtype, *shape, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if dtype.startswith("c") else x).astype(dtype)


def assert_like_reference(primitive, *operands, **params):
    """Equal to the reference within rounding errors, where there are NaN too."""
    outs, expected = primitive.bind(*operands, **params), primitive.reference(*operands, **params)
    if not primitive.multiple_results:
        outs, expected = [outs], [expected]
    for x, y in zip(map(np.asarray, outs), expected, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        tolerance = 3e-4 if y.dtype in (np.float32, np.complex64) else 1e-10
        np.testing.assert_allclose(x, y, tolerance, tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("perturb", (False, True))
def test_tridiagonal_systems(dtype, perturb):
    for stack, n, columns in [((), 1, 1), ((2,), 2, 3), ((2, 2), 7, 2), ((), 40, 1), ((2,), 3, 0), ((0,), 3, 1)]:
        dl, d, du = (numbers(dtype, *stack, n, seed=s) for s in range(3))
        b = numbers(dtype, *stack, n, columns, seed=3)
        assert_like_reference(tridiagonal.tridiagonal_solve_p, dl, d, du, b, perturb_singular=perturb)
    zeros = np.zeros((2, 4), dtype)
    d = np.stack([zeros[0], zeros[0] + 1])
    assert_like_reference(tridiagonal.tridiagonal_solve_p, zeros, d, zeros, np.ones((2, 4, 1), dtype), perturb_singular=perturb)


@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(dtype):
    for stack, n in [((), 1), ((2,), 2), ((2, 2), 5), ((), 70), ((0,), 3)]:
        x = numbers(dtype, *stack, n, n)
        assert_like_reference(schur.hessenberg_p, x)
        for lower in (True, False):
            assert_like_reference(tridiagonal.tridiagonal_p, x + x.swapaxes(-1, -2).conj(), lower=lower)


@pytest.mark.parametrize("dtype", DTYPES)
def test_schur_forms(dtype):
    params = {"sort_eig_vals": False, "select_callable": None}
    for stack, n in [((), 0), ((), 1), ((2,), 2), ((2, 2), 5), ((), 30)]:
        for vectors in (True, False):
            assert_like_reference(schur.schur_p, numbers(dtype, *stack, n, n), compute_schur_vectors=vectors, **params)
    x = numbers(dtype, 2, 3, 3)
    x[0, 1, 2] = np.nan
    form, vectors = map(np.asarray, linalg.schur(x))
    assert np.isnan(form[0]).all() and np.isnan(vectors[0]).all()
    np.testing.assert_allclose(vectors[1] @ form[1] @ vectors[1].conj().T, x[1], 1e-4, 1e-4)
    with pytest.raises(NotImplementedError, match="sort feature"):
        linalg.schur(x, sort_eig_vals=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.one_in(2)
def test_eigenvalues_and_vectors_of_either_side(dtype):
    params = {"enable_eigvec_derivs": False, "implementation": None}
    for stack, n in [((), 0), ((), 1), ((2,), 2), ((2, 2), 5), ((), 30)]:
        for left in (True, False):
            for right in (True, False):
                sides = {"compute_left_eigenvectors": left, "compute_right_eigenvectors": right}
                assert_like_reference(eig.eig_p, numbers(dtype, *stack, n, n), **sides, **params)
    x = numbers(dtype, 2, 4, 4)
    x[1, 0, 0] = np.inf
    w, left, right = map(np.asarray, linalg.eig(x))
    assert all(np.isnan(v[1]).all() for v in (w, left, right))
    np.testing.assert_allclose(x[0] @ right[0], right[0] * w[0], 1e-4, 1e-4)
    np.testing.assert_allclose(left[0].conj().T @ x[0], w[0][:, None] * left[0].conj().T, 1e-4, 1e-4)


@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_eigenvalues_of_tridiagonal_matrices(dtype):
    for stack, n in [((), 1), ((2,), 2), ((2, 2), 5), ((), 40)]:
        d, e = numbers(dtype, *stack, n), numbers(dtype, *stack, n - 1, seed=1)
        assert_like_reference(tridiagonal.tridiagonal_eigh_p, d, e)
    d[3] = np.nan
    assert all(np.isnan(np.asarray(x)).all() for x in tridiagonal.tridiagonal_eigh_p.bind(d, e))


def test_loops_call_no_python():
    def turn(i, x):
        w, v = linalg.eig(x, compute_left_eigenvectors=False)
        form, vectors = linalg.schur(x)
        return x + 1e-3 * (linalg.hessenberg(x)[0] + linalg.tridiagonal(x @ x.T)[0] + form @ vectors + (v * w).real)

    def implicit(i, u):
        return linalg.tridiagonal_solve(-np.ones(6), np.full(6, 3.0), -np.ones(6), u)

    x, u = numbers("float64", 4, 4), numbers("float64", 6, 1)
    for f, start in ((turn, x), (implicit, u)):
        compiled = jax.jit(lambda x, f=f: jax.lax.fori_loop(0, 2, f, x)).lower(start).compile()
        assert " host " not in compiled.as_text()
        np.testing.assert_allclose(compiled(start), f(1, f(0, start)), 1e-8)
