"""`scipy.linalg` beside SciPy: values, shapes, derivatives of functions of matrices, errors and names of JAX."""

import warnings

import numpy as np
import pytest
import scipy.linalg
from oracle import OURS, THEIRS, run
from quickly import one_in

from mpijax.test_util import check_grads

L = OURS.scipy.linalg
DTYPES = ["float64", "complex128"]


@pytest.fixture(autouse=True)
def double_precision():
    with OURS.enable_x64(True):
        yield


def numbers(*shape, dtype="float64"):
    rng = np.random.default_rng(shape)
    x = rng.standard_normal(shape)
    return x + 1j * rng.standard_normal(shape) if dtype == "complex128" else x


def close(got, want):
    got = OURS.tree.leaves(got)
    want = [p for x in (want if isinstance(want, tuple) else (want,)) for p in (x if isinstance(x, tuple) else (x,))]
    for a, b in zip(got, want, strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


def beside_scipy(name, *args, **kwargs):
    close(getattr(L, name)(*args, **kwargs), getattr(scipy.linalg, name)(*args, **kwargs))


@pytest.mark.parametrize("dtype", DTYPES)
def test_factorizations(dtype):
    a, t = numbers(4, 4, dtype=dtype), numbers(5, 3, dtype=dtype)
    h = a @ a.conj().T + np.eye(4)
    for lower in (False, True):
        beside_scipy("cholesky", h, lower=lower)
        close(L.cho_solve(L.cho_factor(h, lower=lower), a), scipy.linalg.solve(h, a))
    for x in (a, t, t.T.copy()):
        beside_scipy("lu", x)
        beside_scipy("lu", x, permute_l=True)
    beside_scipy("lu_factor", a)
    for kind in ({}, {"mode": "economic"}, {"mode": "r"}, {"pivoting": True}):
        beside_scipy("qr", t, **kind)
    beside_scipy("schur", a)
    beside_scipy("schur", a, output="complex")
    beside_scipy("hessenberg", a)
    beside_scipy("hessenberg", a, calc_q=True)
    beside_scipy("svd", t, full_matrices=False)
    beside_scipy("eigh", h, eigvals_only=True)
    beside_scipy("det", a)
    beside_scipy("inv", a)
    beside_scipy("polar", t)
    close(L.polar(t, side="left", method="svd"), scipy.linalg.polar(t, side="left"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_systems(dtype):
    a, b = numbers(4, 4, dtype=dtype), numbers(4, 2, dtype=dtype)
    h = a @ a.conj().T + np.eye(4)
    for trans in (0, 1, 2):
        close(L.lu_solve(L.lu_factor(a), b, trans=trans), scipy.linalg.lu_solve(scipy.linalg.lu_factor(a), b, trans))
        beside_scipy("solve_triangular", a, b, trans=trans)
        beside_scipy("solve_triangular", a, b[:, 0], trans="NTC"[trans], lower=True, unit_diagonal=True)
    beside_scipy("solve", a, b[:, 0])
    beside_scipy("solve", h, b, assume_a="pos")
    t = numbers(3, 3, dtype=dtype)
    for method in ("schur", "eigen"):
        got = L.solve_sylvester(a, t, numbers(4, 3, dtype=dtype), method=method)
        close(got, scipy.linalg.solve_sylvester(a, t, numbers(4, 3, dtype=dtype)))


def test_stacks_of_systems():
    a, b = numbers(2, 4, 4), numbers(2, 4, 3)
    close(L.solve(a, b), np.linalg.solve(a, b))
    close(L.lu_solve(L.lu_factor(a), b), np.linalg.solve(a, b))
    with pytest.warns(FutureWarning, match="batched 1D solves"):
        close(L.solve_triangular(a, b[..., 0]), np.stack(list(map(scipy.linalg.solve_triangular, a, b[..., 0]))))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("conjugate", [False, True])
def test_products_with_q(dtype, conjugate):
    a = numbers(5, 3, dtype=dtype)
    for mode, shape in (("right", (2, 5)), ("left", (3, 2)), ("right", (5,)), ("left", (3,))):
        for pivoting in (False, True):
            kind = {"mode": mode, "conjugate": conjugate, "pivoting": pivoting}
            beside_scipy("qr_multiply", a, numbers(*shape, dtype=dtype), **kind)


@pytest.mark.parametrize("dtype", one_in(2, DTYPES))
def test_functions_of_matrices(dtype):
    a = numbers(4, 4, dtype=dtype)
    for scale in (1e-3, 0.1, 0.5, 1, 5):
        beside_scipy("expm", a * scale)
    close(L.expm(np.stack([a, a.T])), np.stack([scipy.linalg.expm(a), scipy.linalg.expm(a.T)]))
    close(L.expm(np.triu(a), upper_triangular=True), scipy.linalg.expm(np.triu(a)))
    assert np.isnan(np.asarray(L.expm(a * 1e3, max_squarings=4))).all()
    beside_scipy("expm_frechet", a, a.T)
    root = np.asarray(L.sqrtm(a))
    np.testing.assert_allclose(root @ root, a, atol=1e-9)
    close(L.funm(a, OURS.numpy.sin), scipy.linalg.funm(a, np.sin))
    t, z = map(np.asarray, L.rsf2csf(*scipy.linalg.schur(a)))
    np.testing.assert_allclose(z @ t @ z.conj().T, a, atol=1e-9)
    np.testing.assert_array_equal(np.tril(t, -1), 0)


@pytest.mark.parametrize("order", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.slow  # by default its values are tested, above
def test_derivatives_of_exponentials(order):
    check_grads(L.expm, (numbers(3, 3),), order=order, atol=1e-4, rtol=1e-4, eps=1e-6)


def test_derivatives_of_solutions():
    a = numbers(3, 3)
    check_grads(lambda a, b: L.solve(a @ a.T + np.eye(3), b, assume_a="pos"), (a, a[0]), order=2, atol=1e-4, rtol=1e-4)
    check_grads(L.solve_triangular, (a + 3 * np.eye(3), a), order=2, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tridiagonal_eigenvalues(dtype):
    d, e = numbers(6), numbers(5, dtype=dtype)
    full = np.diag(d) + np.diag(e, 1) + np.diag(e.conj(), -1)
    with OURS.numpy_dtype_promotion("strict"):
        w, v = map(np.asarray, L.eigh_tridiagonal(d.astype(dtype), e))
    close(w, np.linalg.eigvalsh(full))
    np.testing.assert_allclose(full @ v, v * w, atol=1e-10)
    kind = {"select": "i", "select_range": (1, 3), "eigvals_only": True}
    close(L.eigh_tridiagonal(d.astype(dtype), e, **kind), np.linalg.eigvalsh(full)[1:4])


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrices_of_vectors(dtype):
    a, b = numbers(4, dtype=dtype), numbers(3, dtype=dtype)
    for name in ("toeplitz", "hankel"):
        beside_scipy(name, a)
        beside_scipy(name, a, b)
    for name in ("circulant", "companion"):
        beside_scipy(name, a)
    beside_scipy("leslie", a, b)
    for n in (2, 3, 7, 8):
        beside_scipy("fiedler_companion", numbers(n, dtype=dtype))
    beside_scipy("block_diag", numbers(2, 2, dtype=dtype), a, numbers(3, 1, dtype=dtype))
    for mode in ("full", "same", "valid"):
        for n in (2, 6):
            beside_scipy("convolution_matrix", a, n, mode=mode)
    assert L.toeplitz(numbers(2, 4), numbers(2, 3)).shape == (2, 4, 3)
    with OURS.numpy_rank_promotion("raise"):
        assert L.hankel(numbers(4), numbers(2, 3)).shape == L.hankel(numbers(2, 4), numbers(3)).shape == (2, 4, 3)


@pytest.mark.parametrize("n", one_in(2, [1, 2, 5, 8]))
def test_matrices_of_a_size(n):
    for name in ("hilbert", "invhilbert", "helmert", "dft"):
        beside_scipy(name, n)
    beside_scipy("helmert", n, full=True)
    beside_scipy("dft", n, scale="sqrtn")
    for kind in ("symmetric", "lower", "upper"):
        beside_scipy("invpascal", n, kind=kind)
        np.testing.assert_allclose(L.pascal(n, kind=kind), scipy.linalg.pascal(n, kind=kind), rtol=1e-5)
    if n & (n - 1) == 0:
        beside_scipy("hadamard", n)
    close(L.fiedler(np.arange(n) ** 2), scipy.linalg.fiedler(np.arange(n) ** 2))


BAD = [
    (lambda L: L.expm(np.ones((2, 3))), "square matrix"),
    (lambda L: L.schur(np.eye(2), output="x"), "'real' or 'complex'"),
    (lambda L: L.solve(np.eye(2), np.ones(2), assume_a="x"), "assume_a"),
    (lambda L: L.solve_triangular(np.eye(2), np.ones(2), trans=3), "'trans' value 3"),
    (lambda L: L.qr(np.eye(2), mode="x"), "mode 'x'"),
    (lambda L: L.qr_multiply(np.eye(3), np.ones((2, 2))), "not compatible"),
    (lambda L: L.polar(np.eye(2), side="x"), "'right' or 'left'"),
    (lambda L: L.polar(np.ones((2, 3))), "only supports"),
    (lambda L: L.eigh(np.eye(2), np.eye(2)), "b=None"),
    (lambda L: L.solve_sylvester(np.eye(2), np.eye(3), np.eye(2)), "Incompatible shapes"),
    (lambda L: L.hadamard(3), "power of 2"),
    (lambda L: L.toeplitz([1, 2]), "ndarray"),
    (lambda L: L.leslie(np.ones(3), np.ones(3)), "Incorrect lengths"),
    (lambda L: L.eigh_tridiagonal(np.ones(3), np.ones(2), select="v"), "not implemented"),
    (lambda L: L.eigh_tridiagonal(np.ones(3, int), np.ones(2, int)), "float32"),
]


@pytest.mark.parametrize("call, text", BAD)
def test_errors_are_jaxs(call, text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, ours = (run(lambda J=J: call(J.scipy.linalg)) for J in (THEIRS, OURS))
    assert ours[0] == theirs[0] == "error" and ours[1] == theirs[1], (theirs, ours)
    with pytest.raises(Exception, match=text):
        call(L)


def test_names_are_jaxs():
    theirs, ours = ({n for n in dir(J.scipy.linalg) if not n.startswith("_")} for J in (THEIRS, OURS))
    assert theirs - ours == set()
