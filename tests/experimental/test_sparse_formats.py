"""Formats of sparse arrays beside BCOO, and changes of a BCOO's axes, against JAX and dense arrays."""

import importlib
import itertools

import numpy as np
import pytest
from oracle import OURS, THEIRS, sample
from quickly import one_in


def sparse_of(J):
    return importlib.import_module(f"{J.name}.experimental.sparse")


sparse = sparse_of(OURS)
A = np.where(np.random.default_rng(0).random((4, 5)) < 0.4, sample(4, 5), 0).astype(np.float32)
B = sample(5, 3, seed=1)
CUBE = np.where(np.random.default_rng(1).random((2, 3, 4)) < 0.5, sample(2, 3, 4), 0).astype(np.float32)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["BCSR", "COO", "CSR", "CSC"])
@pytest.mark.parametrize("nse", [None, 12])
@pytest.mark.one_in(2)
def test_formats_hold_what_jaxs_hold(name, nse):
    theirs, ours = (getattr(sparse_of(J), name).fromdense(A, nse=nse) for J in (THEIRS, OURS))
    assert repr(ours) == repr(theirs) and ours.shape == theirs.shape and ours.dtype == theirs.dtype
    assert isinstance(ours, sparse.JAXSparse) and sparse.is_sparse(ours)
    stored = int((A != 0).sum())
    for mine, other in zip(OURS.tree.leaves(ours), THEIRS.tree.leaves(theirs), strict=True):
        counted = slice(None) if len(mine) != ours.nse else slice(stored)  # what stands behind is missing in both
        np.testing.assert_array_equal(mine[counted], other[counted])
    np.testing.assert_array_equal(ours.todense(), A)
    np.testing.assert_array_equal(OURS.jit(lambda m: m.todense())(ours), A)


@pytest.mark.parametrize("name", ["BCSR", "COO", "CSR", "CSC"])
def test_products_and_their_derivatives(name):
    x = getattr(sparse, name).fromdense(A)
    np.testing.assert_allclose(x @ B, A @ B, rtol=1e-6)
    np.testing.assert_allclose(OURS.jit(lambda x: x @ B[:, 0])(x), A @ B[:, 0], rtol=1e-6)
    if name != "BCSR":
        np.testing.assert_array_equal(x.T.todense(), A.T)
        np.testing.assert_array_equal(x.T @ A[:, 0], A.T @ A[:, 0])
    gradient = OURS.grad(lambda b: (x @ b).sum())(B)
    np.testing.assert_allclose(gradient, np.broadcast_to(A.sum(0)[:, None], B.shape), rtol=1e-6)


def test_functions_of_the_older_formats():
    for name in ("coo", "csr"):
        make, dense, matvec, matmat = (
            getattr(sparse, f"{name}_{what}") for what in ("fromdense", "todense", "matvec", "matmat")
        )
        x = make(A)
        np.testing.assert_array_equal(dense(x), A)
        np.testing.assert_array_equal(matmat(x, B), x @ B)
        np.testing.assert_array_equal(matvec(x, A[:, 0], transpose=True), A.T @ A[:, 0])


@pytest.mark.parametrize("axes", ["n_batch", pytest.param("n_dense", marks=pytest.mark.slow)])
def test_bcsr_has_batch_and_dense_axes(axes):
    theirs, ours = (sparse_of(J).BCSR.fromdense(CUBE, **{axes: 1}) for J in (THEIRS, OURS))
    np.testing.assert_array_equal(ours.indptr, theirs.indptr)
    np.testing.assert_array_equal(ours.todense(), CUBE)
    assert (ours.n_batch, ours.n_dense, ours.nse) == (theirs.n_batch, theirs.n_dense, theirs.nse)
    again = sparse.BCSR.from_bcoo(ours.to_bcoo())
    np.testing.assert_array_equal(again.todense(), CUBE)


def test_parts_of_bcsr():
    with pytest.raises(ValueError, match="indptr shape must match"):
        sparse.BCSR((np.ones(2), np.zeros(2, int), np.zeros(3, int)), shape=(3, 3))
    x = sparse.BCSR.fromdense(A)
    joined = sparse.bcsr_concatenate([x, x], dimension=0)
    np.testing.assert_array_equal(joined.todense(), np.concatenate([A, A]))
    np.testing.assert_array_equal(sparse.bcsr_extract(x.indices, x.indptr, A), x.data)
    np.testing.assert_array_equal(sparse.bcsr_sum_duplicates(x).todense(), A)


@pytest.mark.parametrize("x64", [False, True])
def test_values_of_a_batch_are_extracted_without_promotion(x64):
    dense = np.array([[[1, 0, 2], [0, 3, 0]], [[0, 0, 0], [4, 5, 6]]], np.float32)
    x = sparse.BCSR.fromdense(OURS.numpy.asarray(dense), n_batch=1)
    with OURS.numpy_rank_promotion("raise"), OURS.numpy_dtype_promotion("strict"), OURS.enable_x64(x64):
        values = sparse.bcsr_extract(x.indices, x.indptr, OURS.numpy.asarray(dense))
        np.testing.assert_array_equal(sparse.BCSR((values, x.indices, x.indptr), shape=x.shape).todense(), dense)



@pytest.mark.sweep
@pytest.mark.parametrize("form", ["bcoo", "coo", "csr", "csc"])
@pytest.mark.parametrize("k", [0, 1, -2])
@pytest.mark.one_in(2)
def test_identities(form, k):
    theirs, ours = (sparse_of(J).eye(3, 4, k, sparse_format=form) for J in (THEIRS, OURS))
    np.testing.assert_array_equal(ours.todense(), theirs.todense())
    assert type(ours).__name__ == type(theirs).__name__
    assert sparse.empty((2, 3), sparse_format=form).todense().sum() == 0
    np.testing.assert_array_equal(sparse.eye(3, 4, k, sparse_format="bcsr").todense(), np.eye(3, 4, k))


def test_matrices_of_scipy():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    np.testing.assert_array_equal(sparse.BCSR.from_scipy_sparse(scipy_sparse.csr_matrix(A)).todense(), A)


# ---------------------------------------------------------------- axes of a BCOO


@pytest.mark.parametrize(("n_batch", "n_dense"), one_in(2, [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2)], rows=True))
def test_layouts_change_and_the_array_does_not(n_batch, n_dense):
    x = sparse.BCOO.fromdense(CUBE, n_batch=n_batch, n_dense=n_dense)
    for new in itertools.product(range(3), range(3)):
        if sum(new) <= 3:
            y = sparse.bcoo_update_layout(x, n_batch=new[0], n_dense=new[1], on_inefficient=None)
            assert (y.n_batch, y.n_dense) == new
            np.testing.assert_array_equal(y.todense(), CUBE)


def test_layouts_that_waste_memory_are_told():
    x = sparse.BCOO.fromdense(CUBE)
    with pytest.raises(sparse.SparseEfficiencyError, match="on_inefficient"):
        sparse.bcoo_update_layout(x, n_batch=1)
    with pytest.warns(sparse.SparseEfficiencyWarning, match="inefficient storage"):
        sparse.bcoo_update_layout(x, n_dense=1, on_inefficient="warn")


CASES = {
    "squeeze": lambda S, x: S.bcoo_squeeze(S.bcoo_slice(x, start_indices=(1, 0), limit_indices=(2, 5)), dimensions=(0,)),
    "slice": lambda S, x: S.bcoo_slice(x, start_indices=(1, 0), limit_indices=(4, 5), strides=(2, 3)),
    "dynamic_slice": lambda S, x: S.bcoo_dynamic_slice(x, (3, 1), (2, 3)),
    "rev": lambda S, x: S.bcoo_rev(x, (1,)),
    "broadcast": lambda S, x: S.bcoo_broadcast_in_dim(x, shape=(1, 4, 1, 5), broadcast_dimensions=(1, 3)),
}


@pytest.mark.parametrize("case", one_in(2, CASES))
@pytest.mark.one_in(3)
def test_operations_on_axes_are_jaxs(case):
    theirs, ours = (CASES[case](sparse_of(J), sparse_of(J).BCOO.fromdense(A, nse=12)) for J in (THEIRS, OURS))
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(ours.todense(), theirs.todense())


def test_axes_are_repeated():
    """Which JAX does not do along sparse axes."""
    wide = sparse.bcoo_broadcast_in_dim(sparse.BCOO.fromdense(A), shape=(3, 4, 2, 5), broadcast_dimensions=(1, 3))
    np.testing.assert_array_equal(wide.todense(), np.broadcast_to(A[None, :, None], (3, 4, 2, 5)))


def test_some_elements_of_a_product():
    numbers, places = (((1,), (0,)), ((), ())), np.array([[0, 1], [3, 2]])
    theirs, ours = (sparse_of(J).bcoo_dot_general_sampled(A, B, places, dimension_numbers=numbers) for J in (THEIRS, OURS))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
