"""Sparse arrays against dense ones and against JAX."""

import functools
import importlib

import numpy as np
import pytest
from oracle import OURS, THEIRS, sample
from quickly import one_in, slow

RNG = np.random.default_rng(0)


def sparse_of(J):
    return importlib.import_module(f"{J.name}.experimental.sparse")


sparse = sparse_of(OURS)


def thinned(*shape, seed=0):
    values = sample(*shape, seed=seed)
    return np.where(np.random.default_rng(seed).random(shape) < 0.4, values, 0).astype(np.float32)


A, B, V = thinned(4, 5), thinned(5, 3, seed=1), sample(5, seed=2)


@pytest.mark.parametrize("nse, batch, dense", [(12, 0, 0), (20, 1, 0), *slow((None, 0, 0), (None, 0, 1), (None, 1, 0))])
def test_dense_and_back(nse, batch, dense):
    theirs, ours = (sparse_of(J).BCOO.fromdense(A, nse=nse, n_batch=batch, n_dense=dense) for J in (THEIRS, OURS))
    assert repr(ours) == repr(theirs) and ours.shape == theirs.shape and ours.nse == theirs.nse
    np.testing.assert_array_equal(ours.data, theirs.data)
    np.testing.assert_array_equal(ours.indices, theirs.indices)
    np.testing.assert_array_equal(ours.todense(), A)
    assert (ours.n_batch, ours.n_sparse, ours.n_dense) == (batch, 2 - batch - dense, dense)


def test_under_jit():
    dense = OURS.jit(lambda x: sparse.BCOO.fromdense(x, nse=12).todense())(A)
    np.testing.assert_array_equal(dense, A)
    with pytest.raises(OURS.errors.ConcretizationTypeError):
        OURS.jit(lambda x: sparse.BCOO.fromdense(x).todense())(A)
    product = OURS.jit(lambda m, v: m @ v)(sparse.BCOO.fromdense(A, nse=12), V)
    np.testing.assert_allclose(product, A @ V, rtol=1e-6)


def close(got, expected):
    np.testing.assert_allclose(got.todense() if sparse.is_sparse(got) else got, expected, rtol=1e-5, atol=1e-6)


def test_operations_are_those_of_dense_arrays():
    a, b = sparse.BCOO.fromdense(A, nse=14), sparse.BCOO.fromdense(B)
    other = thinned(4, 5, seed=3)
    c = sparse.BCOO.fromdense(other)
    cases = [
        (a @ B, A @ B), (B.T @ a.T, B.T @ A.T), (a @ V, A @ V), (V @ b, V @ B), (a @ b, A @ B),
        (a + c, A + other), (a - c, A - other), (a + other, A + other), (a * c, A * other), (a * V, A * V),
        (2 * a, 2 * A), (a / 2, A / 2), (-a, -A), (abs(a), abs(A)), (a.T, A.T), (a.sum(), A.sum()), (a.sum(0), A.sum(0)),
        (a.sum((0, 1)), A.sum()), (a.reshape(2, 10), A.reshape(2, 10)), (a.reshape((-1, 4)), A.reshape(-1, 4)),
        (a.astype("int32"), A.astype(np.int32)), ((a + a).sum_duplicates(), 2 * A), ((a + c).sort_indices(), A + other),
        (sparse.bcoo_concatenate([a, c], dimension=1), np.concatenate([A, other], 1)),
        (sparse.bcoo_extract(sparse.BCOO.fromdense(np.ones((4, 5), np.float32)), other), other),
        (sparse.BCOO.fromdense(A, n_dense=1).sum(1), A.sum(1)),
        (sparse.bcoo_dot_general(a, c, dimension_numbers=(((0, 1), (0, 1)), ((), ()))), (A * other).sum()),
        (sparse.bcoo_dot_general(a, A, dimension_numbers=(((0, 1), (0, 1)), ((), ()))), (A * A).sum()),
    ]  # fmt: skip
    for got, expected in cases:
        close(got, expected)


def test_duplicates_are_added():
    indices = np.array([[1, 2], [0, 1], [1, 2], [4, 5]], np.int32)
    mat = sparse.BCOO((np.arange(1, 5, dtype=np.float32), indices), shape=(4, 5))
    once = mat.sum_duplicates()
    assert once.nse == 2 and once.unique_indices and once.indices_sorted
    np.testing.assert_array_equal(once.indices, [[0, 1], [1, 2]])
    np.testing.assert_array_equal(once.data, [2, 4])
    close(mat, once.todense())


def test_derivatives_by_the_stored_elements():
    a = sparse.BCOO.fromdense(A)
    gradient = sparse.grad(lambda m, v: ((m @ v) ** 2).sum(), argnums=(0, 1))(a, V)
    np.testing.assert_allclose(gradient[0].todense(), np.where(A != 0, np.outer(2 * A @ V, V), 0), rtol=1e-5)
    np.testing.assert_allclose(gradient[1], 2 * A.T @ (A @ V), rtol=1e-5)
    value, _ = sparse.value_and_grad(lambda m: m.sum())(a)
    np.testing.assert_allclose(value, A.sum(), rtol=1e-6)


def test_batches():
    stack = np.stack([A, 2 * A])
    mat = sparse.BCOO.fromdense(stack, n_batch=1)
    close(mat, stack)
    np.testing.assert_allclose(OURS.vmap(lambda m: m @ V)(mat), stack @ V, rtol=1e-5)
    close(OURS.vmap(lambda m: 2 * m)(mat), 2 * stack)
    close(OURS.vmap(lambda x: sparse.BCOO.fromdense(x, nse=14))(stack), stack)
    np.testing.assert_allclose(OURS.vmap(lambda m, v: m @ v, in_axes=(None, 0))(sparse.BCOO.fromdense(A), stack[:, 0]),
                               stack[:, 0] @ A.T, rtol=1e-5)  # fmt: skip
    with pytest.raises(ValueError, match="must correspond to a batch dimension"):
        OURS.vmap(lambda m: m @ V)(sparse.BCOO.fromdense(stack))


def test_makers():
    for args in ((4,), (4, 6, 1), (4, 3, -2)):
        np.testing.assert_array_equal(sparse.eye(*args).todense(), np.eye(*args))
    assert sparse.empty((2, 3)).nse == 0
    close(sparse.empty((2, 3), nse=2), np.zeros((2, 3)))
    drawn = sparse.random_bcoo(OURS.random.key(0), (6, 5), nse=7, sorted_indices=True)
    assert drawn.nse == 7 and (np.asarray(drawn.todense()) != 0).sum() == 7
    np.testing.assert_array_equal(sparse.todense({"a": drawn, "b": V})["b"], V)
    scipy_sparse = pytest.importorskip("scipy.sparse")
    close(sparse.BCOO.from_scipy_sparse(scipy_sparse.csr_matrix(A)), A)


def test_misfits():
    with pytest.raises(ValueError, match=r"data of shape \(3,\) and indices of shape \(2, 2\)"):
        sparse.BCOO((np.ones(3), np.zeros((2, 2), int)), shape=(4, 5))
    with pytest.raises(TypeError, match="must be integers"):
        sparse.BCOO((np.ones(2), np.zeros((2, 2))), shape=(4, 5))
    with pytest.raises(TypeError, match="contracting dimensions to have the same shape"):
        sparse.BCOO.fromdense(A) @ A
    with pytest.raises((TypeError, ValueError), match="ncompatible shapes|must be equal"):
        sparse.BCOO.fromdense(A) + sparse.BCOO.fromdense(B)
    with pytest.raises(AttributeError, match="sparsify works on the Jaxpr"):
        sparse.SparseTracer  # noqa: B018


SPARSIFIED = {
    "functions of elements": lambda J, x, y, v: J.numpy.tanh(-x) + J.numpy.sqrt(abs(y)) - J.numpy.sin(x) ** 3,
    "products": lambda J, x, y, v: (x * y / 3.0, 2 * x * v, x @ v, x.T @ y, J.numpy.einsum("ij,ik,j->k", x, y, v)),
    "sums of sums": lambda J, x, y, v: ((x + y).sum(0), J.numpy.sin(x + y), J.numpy.square(x + x).sum()),
    "shapes": lambda J, x, y, v: (x.reshape(2, 10), x[None].squeeze(0), J.numpy.concatenate([x, y], 1), x.T),
    "broadcasts": lambda J, x, y, v: (J.numpy.broadcast_to(x[:, None], (4, 2, 5)), x.sum(1, keepdims=True) * y),
    "in a compiled function": lambda J, x, y, v: {"a": J.jit(lambda a, b: a * 2 + b)(x, y), "v": J.jit(J.numpy.sin)(v)},
    "casts": lambda J, x, y, v: (x.astype("int32"), J.numpy.real(x), y.astype("float16").sum()),
}


@pytest.mark.parametrize("name", one_in(2, SPARSIFIED))
def test_sparsified_functions_are_those_of_dense_arrays(name):
    f, other = functools.partial(SPARSIFIED[name], OURS), thinned(4, 5, seed=3)
    x, y = (sparse.BCOO.fromdense(m, nse=14) for m in (A, other))
    expected, structure = OURS.tree.flatten(f(*map(OURS.numpy.asarray, (A, other, V))))
    for call in (sparse.sparsify(f), OURS.jit(sparse.sparsify(f))):
        got, found = OURS.tree.flatten(call(x, y, V), is_leaf=sparse.is_sparse)
        assert found == structure
        for a, b in zip(got, expected, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            close(a, b)


def test_what_sparsify_keeps_sparse_is_what_jax_keeps():
    kinds = []
    for J in (OURS, THEIRS):
        lib = sparse_of(J)
        f = lib.sparsify(lambda x, v: (x + x, x @ v, x * v, x.T, x.sum(0), x[None], -x, v * 2))
        outs = f(lib.BCOO.fromdense(A), J.numpy.asarray(V))
        kinds.append([isinstance(out, lib.BCOO) for out in outs])
    assert kinds[0] == kinds[1] and not kinds[0][-1]


def test_derivatives_through_sparsified_functions():
    x = sparse.BCOO.fromdense(A)
    slope = sparse.grad(lambda x: sparse.sparsify(lambda m: (OURS.numpy.sin(m) @ V).sum())(x))(x)
    close(slope, np.where(A != 0, np.cos(A) * V, 0))


def test_what_sparsify_has_no_rule_for():
    x = sparse.BCOO.fromdense(A)
    with pytest.raises(NotImplementedError, match=r"^sparse rule for complex is not implemented\.\n.*todense"):
        sparse.sparsify(lambda x: OURS.lax.complex(x, x))(x)
    with pytest.raises(TypeError, match="^sparsified true_fun output must have same type structure as sparsified false_fun"):
        sparse.sparsify(lambda x: OURS.lax.cond(True, lambda x: x, lambda x: A, x))(x)
    for f, message in [
        (OURS.numpy.cos, r"^sparse rule for cos is not implemented because it would result in dense output\."),
        (lambda x: 1 / x, "Division by a sparse array"),
        (lambda x: x**-2, "integer_pow"),
        (lambda x: OURS.numpy.concatenate([x, A]), "all operands must be sparse"),
    ]:
        with pytest.raises(NotImplementedError, match=message):
            sparse.sparsify(f)(x)


# ---------------------------------------------------------------- linear algebra


def solvers_of(J):
    return importlib.import_module(f"{J.name}.experimental.sparse.linalg")


SQUARE = sample(60, 60, seed=4)


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize(
    "matrix", [SQUARE @ SQUARE.T, SQUARE + SQUARE.T, SQUARE[:, :3] @ SQUARE[:, :3].T], ids=["gram", "any sign", "rank 3"]
)
@pytest.mark.one_in(2)
def test_largest_eigenvalues(matrix, k):
    expected = np.linalg.eigvalsh(matrix)[: -k - 1 : -1]
    for A in (matrix, lambda x: OURS.numpy.asarray(matrix) @ x):
        with OURS.numpy_rank_promotion("raise"):
            values, vectors, _ = solvers_of(OURS).lobpcg_standard(A, sample(60, k, seed=k))
        scale = np.abs(expected).max()
        np.testing.assert_allclose(values, expected, atol=1e-5 * scale)
        np.testing.assert_allclose(matrix @ vectors, values * vectors, atol=1e-3 * scale)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(k), atol=1e-5)


def test_searches_that_are_refused():
    start = sample(60, 2)
    for A, X in [
        (SQUARE, start[:, :0]), (SQUARE, sample(60, 12)), (SQUARE[:50], start), (SQUARE, start.astype(np.int32)),
        (lambda x: x[:3], start), (SQUARE[:, :50], start),
    ]:  # fmt: skip
        messages = []
        for J in (THEIRS, OURS):
            with pytest.raises(ValueError) as raised:
                solvers_of(J).lobpcg_standard(A if callable(A) else J.numpy.asarray(A), X)
            messages.append(str(raised.value))
        assert messages[1].startswith(messages[0][:60])


ROWS = np.float32([4, 1, 3, 2, 5]), np.array([0, 2, 1, 0, 2]), np.array([0, 2, 3, 5])
RIGHT = np.float32([1, 2, 3])


def test_solutions_of_sparse_systems():
    def solve(J, data, b):
        return solvers_of(J).spsolve(J.numpy.asarray(data), *map(J.numpy.asarray, ROWS[1:]), J.numpy.asarray(b))

    matrix = np.float32([[4, 0, 1], [0, 3, 0], [2, 0, 5]])
    np.testing.assert_allclose(solve(OURS, ROWS[0], RIGHT), np.linalg.solve(matrix, RIGHT), rtol=1e-6)
    for transform in (lambda J: J.jvp, lambda J: lambda f, x, t: J.jvp(J.jit(f), x, t)):
        ours, theirs = (
            transform(J)(lambda d, b: solve(J, d, b), (ROWS[0], RIGHT), (sample(5), sample(3)))  # noqa: B023
            for J in (OURS, THEIRS)
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    inverse, slopes = (OURS.jacrev(functools.partial(solve, OURS), i)(ROWS[0], RIGHT) for i in (1, 0))
    np.testing.assert_allclose(inverse, np.linalg.inv(matrix), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(slopes, OURS.jacfwd(functools.partial(solve, OURS))(ROWS[0], RIGHT), rtol=1e-5, atol=1e-6)


def test_systems_that_are_refused():
    data, columns, ends = ROWS
    for system in [
        (data[:4], columns, ends, RIGHT), (data, columns, ends, RIGHT.astype(np.int32)),
        (data, columns * 1.0, ends, RIGHT), (data[None], columns, ends, RIGHT), (data, columns, ends, RIGHT, 1e-6, 7),
    ]:  # fmt: skip
        for J in (THEIRS, OURS):
            with pytest.raises(ValueError, match="Invalid CSR|do not match|integer typed|one-dimensional|not valid"):
                solvers_of(J).spsolve(*map(J.numpy.asarray, system[:4]), *system[4:])


@pytest.mark.parametrize("n_batch, n_dense", [(0, 2), (1, 1), (0, 1), (2, 0), (0, 0)])
@pytest.mark.parametrize("operator", ["__mul__", "__truediv__"])
def test_products_with_dense_arrays_promote_no_ranks(n_batch, n_dense, operator):
    dense = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]], np.float32)
    other = np.array([[1.0, 2.0, 4.0], [0.5, 8.0, 1.0]], np.float32)
    x = sparse_of(OURS).BCOO.fromdense(OURS.numpy.asarray(dense), n_batch=n_batch, n_dense=n_dense)
    with OURS.numpy_rank_promotion("raise"):
        np.testing.assert_array_equal(getattr(x, operator)(other).todense(), getattr(dense, operator)(other))


def test_the_module_bcoo_has_the_functions_of_bcoos():
    theirs, ours = (importlib.import_module(f"{J.name}.experimental.sparse.bcoo") for J in (THEIRS, OURS))
    functions = [name for name in dir(theirs) if name.startswith("bcoo_") and not name.endswith("_p")]
    assert [name for name in functions if not callable(getattr(ours, name, None))] == []
