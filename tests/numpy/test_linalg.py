"""`numpy.linalg` and `lax.linalg`: values against NumPy, gradients by differences, Jaxprs and errors against JAX."""

import numpy as np
import pytest
from jaxprs import check_all
from oracle import OURS, THEIRS, run
from quickly import all_slow_but, one_in

from mpijax.lax import linalg as ops
from mpijax.test_util import check_grads

L = OURS.numpy.linalg
SHAPES = [(1, 1), (2, 2), (3, 3), (4, 4), (2, 5, 5), (2, 0, 3, 3), (0, 0)]
TALL = [(5, 3), (3, 5), (2, 4, 3), (0, 3), (3, 0)]
DTYPES = ["float32", "float64", "complex64", "complex128"]


@pytest.fixture(autouse=True)
def double_precision():
    with OURS.enable_x64(True):
        yield


def numbers(shape, dtype="float64", seed=0):
    rng = np.random.default_rng([seed, *shape])
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.startswith("c") else x).astype(dtype)


def positive(shape, dtype="float64"):
    x = numbers(shape, dtype)
    return (x @ adjoint(x) + np.eye(shape[-1])).astype(dtype)


def adjoint(x):
    return np.swapaxes(np.conj(x), -1, -2)


def close(got, want, dtype):
    """Equal up to rounding, and of the dtype."""
    got, want = np.asarray(got), np.asarray(want)
    tolerance = 1e-9 if np.finfo(dtype).eps < 1e-10 else 3e-3
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def real(dtype):
    return np.dtype(dtype).type(0).real.dtype


# -- values: of square matrices


SQUARE = {
    "det": (numbers, np.linalg.det),
    "inv": (numbers, np.linalg.inv),
    "cholesky": (positive, np.linalg.cholesky),
    "eigvalsh": (positive, np.linalg.eigvalsh),
    "svdvals": (numbers, lambda x: np.linalg.svd(x, compute_uv=False)),
    "pinv": (numbers, np.linalg.pinv),
    "matrix_norm": (numbers, lambda x: np.linalg.norm(x, axis=(-2, -1))),
    "trace": (numbers, lambda x: np.trace(x, axis1=-2, axis2=-1)),
    "diagonal": (numbers, lambda x: np.diagonal(x, axis1=-2, axis2=-1)),
    "slogdet": (numbers, np.linalg.slogdet),
}


@pytest.mark.parametrize("name", one_in(3, SQUARE))
@pytest.mark.one_in(2)
def test_values_of_square_matrices(name):
    make, numpys = SQUARE[name]
    for dtype in DTYPES:
        for shape in SHAPES:
            x = make(shape, dtype)
            got = getattr(L, name)(x)
            want = numpys(x)
            for a, b in zip(OURS.tree.leaves(got), want if isinstance(want, tuple) else (want,), strict=True):
                close(a, b, dtype)
                assert a.dtype in (np.dtype(dtype), real(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.one_in(4)
def test_decompositions_of_square_matrices(dtype, shape):
    x, h = numbers(shape, dtype), positive(shape, dtype)
    w, v = map(np.asarray, L.eigh(h))
    close(h @ v, v * w[..., None, :], dtype)
    close(adjoint(v) @ v, np.broadcast_to(np.eye(shape[-1]), shape), dtype)
    w, v = map(np.asarray, L.eig(x))
    close(x @ v, v * w[..., None, :], dtype)
    t, z = map(np.asarray, ops.schur(x))
    close(z @ t @ adjoint(z), x, dtype)
    factors, _, order = map(np.asarray, ops.lu(x))
    lower, upper = np.tril(factors, -1) + np.eye(shape[-1]), np.triu(factors)
    close(lower @ upper, np.take_along_axis(x, order[..., None], -2), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*TALL, (3, 3)])
@pytest.mark.one_in(4)
def test_decompositions_of_any_matrices(dtype, shape):
    x = numbers(shape, dtype)
    k = min(shape[-2:])
    for full in (False, True):
        u, s, vh = map(np.asarray, L.svd(x, full_matrices=full))
        close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x, dtype)
        q, r = map(np.asarray, L.qr(x, mode="complete" if full else "reduced"))
        close(q @ r, x, dtype)
        close(adjoint(q) @ q, np.broadcast_to(np.eye(q.shape[-1]), (*shape[:-2], q.shape[-1], q.shape[-1])), dtype)
        q, r, order = map(np.asarray, ops.qr(x, pivoting=True, full_matrices=full))
        close(q @ r, np.take_along_axis(x, order[..., None, :], -1), dtype)
    factors, taus = ops.hessenberg(x) if shape[-1] == shape[-2] else (None, None)
    assert factors is None or factors.shape == x.shape and taus.shape == (shape[-1] - 1,)


@pytest.mark.parametrize("dtype", DTYPES)
def test_triangular_systems(dtype):
    a, b = numbers((3, 3), dtype) + 3 * np.eye(3, dtype=dtype), numbers((3, 2), dtype)
    for lower in (False, True):
        for transpose, conjugate in ((False, False), (True, False), (True, True), (False, True)):
            triangle = np.tril(a) if lower else np.triu(a)
            op = triangle.conj() if conjugate else triangle
            op = op.T if transpose else op
            kind = {"lower": lower, "transpose_a": transpose, "conjugate_a": conjugate}
            close(ops.triangular_solve(a, b, left_side=True, **kind), np.linalg.solve(op, b), dtype)
            close(ops.triangular_solve(a, b.T, **kind), np.linalg.solve(op.T, b).T, dtype)
            close(ops.triangular_solve(a, b[:, 0], left_side=True, **kind), np.linalg.solve(op, b[:, 0]), dtype)


def test_systems_and_least_squares():
    for dtype in DTYPES:
        a, b = numbers((2, 3, 3), dtype), numbers((2, 3, 2), dtype)
        close(L.solve(a, b), np.linalg.solve(a, b), dtype)
        close(L.solve(a[0], b[0, :, 0]), np.linalg.solve(a[0], b[0, :, 0]), dtype)
        for shape in ((5, 3), (3, 5)):
            a, b = numbers(shape, dtype), numbers((shape[0], 2), dtype)
            got, want = L.lstsq(a, b), np.linalg.lstsq(a, b, rcond=None)
            close(got[0], want[0], dtype)
            close(got[3], want[3], dtype)
            assert int(got[2]) == want[2]


def test_powers_ranks_conditions_and_products():
    x = numbers((3, 3))
    for n in (-3, -1, 0, 1, 2, 3, 5, 8):
        close(L.matrix_power(x, n), np.linalg.matrix_power(x, n), "float64")
    assert int(L.matrix_rank(np.outer(x[0], x[1]))) == 1
    for p in (None, 1, -1, 2, -2, np.inf, -np.inf, "fro"):
        close(L.cond(x, p), np.linalg.cond(x, p), "float64")
    t = numbers((2, 3, 6))
    close(L.tensorinv(t), np.linalg.tensorinv(t), "float64")
    close(L.tensorsolve(t, x[:2]), np.linalg.tensorsolve(t, x[:2]), "float64")
    chain = [x[0], x, numbers((3, 4)), numbers((4, 2))]
    close(L.multi_dot(chain), np.linalg.multi_dot(chain), "float64")
    close(L.cross(x, x[::-1]), np.cross(x, x[::-1]), "float64")
    u, s, vh = L.svd(x + x.T, hermitian=True)
    close((u * s) @ vh, x + x.T, "float64")


def test_norms():
    x = numbers((3, 4))
    for order in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        for keepdims in (False, True):
            want = np.linalg.norm(x, order, keepdims=keepdims)
            close(L.norm(x, order, keepdims=keepdims), want, "float64")
    for order in (None, 0, 1, 2, 3, 0.5, -1, np.inf, -np.inf):
        close(L.norm(x, order, axis=0), np.linalg.norm(x, order, axis=0), "float64")


# -- LAPACK by pointer


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 17, 17), (0, 3), (3, 0), (2, 0, 3, 3), (0, 3, 3)])
@pytest.mark.one_in(4)
def test_kernels_do_what_references_do(dtype, shape):
    """The machine code and SciPy's wrappers agree: in signs of triangles and in pivots, not in those of vectors."""
    cases = [(ops.lu_p, {})]
    cases += [(ops.qr_p, {"pivoting": p, "full_matrices": f, "use_magma": None}) for p in (0, 1) for f in (0, 1)]
    cases += [(ops.svd_p, {"compute_uv": True, "full_matrices": f, "subset_by_index": None, "algorithm": None})
              for f in (0, 1)]  # fmt: skip
    x = numbers(shape, dtype)
    if shape[-1] == shape[-2]:
        algorithm = {"sort_eigenvalues": True, "subset_by_index": None, "algorithm": None}
        cases += [(ops.eigh_p, {"lower": lower, **algorithm}) for lower in (False, True)]
        x = x + 3 * np.eye(shape[-1], dtype=dtype)
    for primitive, params in cases:
        results = list(primitive.bind(x, **params)), list(primitive.reference(x, **params))
        for i, axis in {"eigh": [(0, -2)], "svd": [(1, -2), (2, -1)]}.get(primitive.name, ()):
            for both in results:
                both[i] = with_positive_sums(np.asarray(both[i]), axis)
        for got, want in zip(*results, strict=True):
            close(got, want, dtype)


def with_positive_sums(vectors, axis):
    """Vectors along an axis times a sign, or a phase."""
    sums = vectors.sum(axis, keepdims=True)
    return vectors * (np.abs(sums) / sums)


def test_narrow_floats_are_solved_in_float32():
    a, b = OURS.numpy.asarray(positive((3, 3)), "bfloat16"), OURS.numpy.ones(3, "bfloat16")
    x = ops.triangular_solve(a, b, left_side=True)
    assert x.dtype == b.dtype
    np.testing.assert_allclose((OURS.numpy.triu(a) @ x).astype("float32"), np.ones(3), atol=0.05)
    with pytest.raises(NotImplementedError, match="^Unsupported dtype bfloat16"):
        ops.cholesky(a)


# -- singular, indefinite and undefined matrices


@pytest.mark.parametrize("name", "det inv cholesky slogdet eigvals eigvalsh svdvals qr".split())
@pytest.mark.one_in(3)
def test_matrices_without_a_result_are_as_in_jax(name):
    for x in (np.zeros((3, 3), "f"), np.full((3, 3), np.nan, "f"), -np.eye(3, dtype="f")):
        theirs, ours = (np.concatenate([np.ravel(p) for p in J.tree.leaves(getattr(J.numpy.linalg, name)(x))])
                        for J in (THEIRS, OURS))  # fmt: skip
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), atol=1e-6)


def test_failures_are_of_one_matrix():
    x = np.stack([np.eye(2), -np.eye(2)])
    np.testing.assert_array_equal(np.isnan(np.asarray(ops.cholesky(x))).any((1, 2)), [False, True])


def test_determinants_of_singular_matrices_have_gradients():
    x = np.diag([1.0, 2.0, 3.0, 0.0])
    np.testing.assert_allclose(OURS.grad(L.det)(x), np.diag([0.0, 0, 0, 6]), atol=1e-12)
    np.testing.assert_array_equal(OURS.grad(L.det)(np.zeros((4, 4))), np.zeros((4, 4)))


# -- derivatives, vmap


SMOOTH = {
    "det": L.det, "inv": L.inv, "slogdet": lambda x: L.slogdet(x)[1], "pinv": lambda x: L.pinv(x[:, :3]),
    "solve": lambda x: L.solve(x, x[0]), "lstsq": lambda x: L.lstsq(x[:, :2], x[:, 3])[0],
    "matrix_power": lambda x: L.matrix_power(x, -2), "nuclear norm": lambda x: L.norm(x, "nuc"),
    "eigvals": lambda x: OURS.numpy.abs(L.eigvals(x + x.T)), "cond": L.cond,
}  # fmt: skip


@pytest.mark.parametrize("name", all_slow_but(("inv", "slogdet", "solve", "lstsq", "eigvals"), SMOOTH))
@pytest.mark.one_in(2)
def test_derivatives(name):
    fun = SMOOTH[name]
    x = numbers((4, 4)) + 2 * np.eye(4)
    check_grads(fun, (x,), order=1 if name in ("eigvals", "cond") else 2, atol=1e-4, rtol=1e-4, eps=1e-6)
    both = np.stack([x, x.T])
    for a, b in zip(OURS.vmap(OURS.jacrev(fun))(both), map(OURS.jacfwd(fun), both), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_eigenvectors_have_derivatives_on_request():
    x = numbers((4, 4), seed=3)
    with pytest.raises(NotImplementedError, match="enable_eigvec_derivs=True"):
        OURS.jvp(L.eig, (x,), (x,))

    def vectors(x):
        return ops.eig(x, enable_eigvec_derivs=True)

    step = 1e-6
    slope = OURS.jvp(vectors, (x,), (x.T,))[1]
    for d, a, b in zip(slope, vectors(x + step * x.T), vectors(x - step * x.T), strict=True):
        np.testing.assert_allclose(d, (np.asarray(a) - np.asarray(b)) / (2 * step), rtol=1e-5, atol=1e-5)


# -- beside JAX


def linalg_of(J):
    return J.numpy.linalg


A, T3, S3 = (numbers(s, "float32") for s in ((4, 4), (4, 3), (2, 3, 3)))


def test_jaxprs_are_jaxs():
    names = "cholesky qr eigh eigvalsh eigvals svd svdvals pinv matrix_rank norm matrix_norm vector_norm cond".split()
    cases = [(n, lambda J, n=n: getattr(linalg_of(J), n), (x,)) for n in names for x in (A, S3, (A + 1j).astype("F"))]
    cases += [(f"norm {o}", lambda J, o=o: lambda x: linalg_of(J).norm(x, ord=o), (A,)) for o in (1, 2, np.inf, "nuc")]
    cases += [("lstsq", lambda J: linalg_of(J).lstsq, (T3, A[0]))]
    for name, args in (("cholesky", A), ("qr", A), ("eigh", S3), ("triangular_solve", A)):
        operands = (args, args) if name == "triangular_solve" else (args,)
        cases.append((
            f"jvp of {name}", lambda J, n=name: lambda *x: J.jvp(getattr(J.lax.linalg, n), x, x)[1][0], operands
        ))
    with OURS.enable_x64(False):
        check_all(cases)


BAD = [
    (lambda J: lambda: linalg_of(J).det(np.ones((2, 3))), "must have shape"),
    (lambda J: lambda: linalg_of(J).inv(np.ones(3)), "must have shape"),
    (lambda J: lambda: linalg_of(J).cholesky(np.ones((2, 3))), r"square matrices .* shape \(2, 3\)"),
    (lambda J: lambda: linalg_of(J).eigh(np.ones(3)), r"square matrices .* shape \(3,\)"),
    (lambda J: lambda: linalg_of(J).pinv(np.ones(3)), r"shape \[..., m, n\], got \(3,\)"),
    (lambda J: lambda: linalg_of(J).eigh(np.ones((3, 3)), UPLO="X"), "UPLO must be"),
    (lambda J: lambda: linalg_of(J).qr(np.ones((3, 3)), mode="x"), "mode 'x'"),
    (lambda J: lambda: linalg_of(J).norm(np.ones((3, 3)), ord="x"), "order 'x'"),
    (lambda J: lambda: linalg_of(J).norm(np.ones((3, 3, 3)), ord=2), "Improper number of axes"),
    (lambda J: lambda: linalg_of(J).matrix_power(np.ones((3, 3)), 1.5), "exponent must be an integer"),
    (lambda J: lambda: linalg_of(J).matrix_power(np.ones((3, 2)), 2), "square"),
    (lambda J: lambda: linalg_of(J).solve(np.ones((3, 3)), np.ones(2)), "size|shapes"),
    (lambda J: lambda: linalg_of(J).lstsq(np.ones((3, 3)), np.ones(2)), "Leading dimensions"),
    (lambda J: lambda: linalg_of(J).slogdet(np.ones((3, 3)), method="x"), "method 'x'"),
    (lambda J: lambda: linalg_of(J).svd([[1.0, 2.0]]), "ndarray"),
    (lambda J: lambda: linalg_of(J).multi_dot([np.ones(3), np.ones(2)]), "last dimension"),
    (lambda J: lambda: J.lax.linalg.cholesky(np.eye(3, dtype=np.int32), symmetrize_input=False), "dtype int32"),
    (lambda J: lambda: J.lax.linalg.triangular_solve(np.eye(3, dtype="f"), np.ones((2, 2), "f")), "Incompatible shapes"),
    (lambda J: lambda: J.lax.linalg.svd(np.ones(3, "f")), "rank at least 2"),
    (lambda J: lambda: J.jvp(J.lax.linalg.schur, (np.eye(2),), (np.eye(2),)), "not implemented"),
]


@pytest.mark.parametrize("call, text", BAD)
def test_errors_are_jaxs(call, text):
    theirs, ours = (run(call(J)) for J in (THEIRS, OURS))
    assert ours[0] == theirs[0] == "error" and ours[1] == theirs[1], (theirs, ours)
    with pytest.raises(Exception, match=text):
        call(OURS)()


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [47, 48, 65])
def test_cholesky_by_rows_and_by_columns(n, dtype):
    """Only the triangle that counts is read, the other one of the result is zero, and one bad matrix spoils no other."""
    x = positive((2, n, n), dtype) + n * np.eye(n, dtype=dtype)
    want = np.linalg.cholesky(x)
    above = np.triu(np.full((n, n), 7, dtype), 1)
    close(OURS.jit(lambda x: ops.cholesky(x, symmetrize_input=False))(x + above), want, dtype)
    close(OURS.jit(ops.cholesky)(x + above - adjoint(above)), want, dtype)
    x[1, n - 2, n - 2] = -1
    found = np.asarray(OURS.jit(ops.cholesky)(x))
    close(found[0], want[0], dtype)
    assert np.isnan(found[1][np.tril_indices(n)]).all() and not np.triu(found[1], 1).any()


def test_updates_of_cholesky_factors():
    x, w = positive((4, 4)), numbers((4,))
    factor = adjoint(np.linalg.cholesky(x))
    close(ops.cholesky_update(factor, w), adjoint(np.linalg.cholesky(x + np.outer(w, w))), "float64")


def test_names_are_jaxs():
    for module in ("numpy.linalg", "lax.linalg"):
        theirs, ours = (set(dir(getattr(J, module.split(".")[0]).linalg)) for J in (THEIRS, OURS))
        assert {n for n in theirs if not n.startswith("_")} - ours == set()


def test_polar_decomposition():
    x = numbers((5, 3))
    u, h, _, converged = ops.qdwh(x)
    close(np.asarray(u) @ np.asarray(h), x, "float64")
    np.testing.assert_array_equal(h, adjoint(np.asarray(h)))
    assert bool(converged)
