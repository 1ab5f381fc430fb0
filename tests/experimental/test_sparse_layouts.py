"""Operations on BCOO arrays of every layout, against the same operations on dense arrays; some against JAX."""

import importlib

import numpy as np
import pytest
from oracle import OURS, THEIRS
from quickly import one_in

from mpijax import numpy as jnp
from mpijax.experimental import sparse


def thinned(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(shape) < 0.5, rng.integers(1, 9, shape), 0).astype(np.float32)


C, D = thinned(2, 3, 4), thinned(2, 3, 4, seed=1)
ROWS, PAIRS = np.ones((5, 3), np.float32), thinned(2, 4, 3, seed=2)
LAYOUTS = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (0, 2)]

# For sparse and dense arrays alike; x and y are of one layout.
ALIKE = {
    "sum": lambda x, y: x.sum(),
    "sum of a batch": lambda x, y: x.sum(0),
    "sum of rows": lambda x, y: x.sum(1),
    "sum of columns": lambda x, y: x.sum(2),
    "sum along two": lambda x, y: x.sum((0, 1)),
    "times a row": lambda x, y: x * np.arange(4, dtype=np.float32),
    "times dense": lambda x, y: x * (C + 1),
    "times sparse": lambda x, y: x * y,
    "scaled": lambda x, y: 2 * x / 4,
    "plus sparse": lambda x, y: x + y,
    "minus sparse": lambda x, y: x - y,
    "plus dense": lambda x, y: x + C,
    "negative": lambda x, y: -abs(x),
    "power": lambda x, y: x**3,
    "by a matrix": lambda x, y: x @ np.ones((4, 2), np.float32),
    "by a vector": lambda x, y: x @ np.arange(4, dtype=np.float32),
    "a matrix by": lambda x, y: jnp.asarray(ROWS) @ x,
    "by a batch": lambda x, y: x @ PAIRS,
    "first": lambda x, y: x[0],
    "a row": lambda x, y: x[:, 1],
    "columns": lambda x, y: x[..., 1:3],
    "reversed": lambda x, y: x[:, ::-1],
    "with strides": lambda x, y: x[::2, 1:, ::2],
    "an element": lambda x, y: x[1, 2, 3],
    "new axis before": lambda x, y: x[None],
    "new axis within": lambda x, y: x[:, None],
    "new axis behind": lambda x, y: x[..., None],
    "gathered": lambda x, y: x[np.array([1, 0, 1])],
    "gathered within": lambda x, y: x[:, np.array([1, 0, 1])],
    "the second": lambda x, y: list(x)[1],
}  # fmt: skip
# Functions of the sparse array, of JAX's names; which the dense one is.
FUNCTIONS = {
    "concatenate": (lambda S, x: S.bcoo_concatenate([x, x], dimension=0), np.concatenate([C, C])),
    "reverse": (lambda S, x: S.bcoo_rev(x, (0, 2)), C[::-1, :, ::-1]),
    "dynamic slice": (lambda S, x: S.bcoo_dynamic_slice(x, (1, 5, 2), (1, 2, 2)), C[1:, 1:3, 2:]),
    "squeeze": (lambda S, x: S.bcoo_squeeze(x[:, :, :1], dimensions=(2,)), C[:, :, 0]),
    "new axis": (
        lambda S, x: S.bcoo_broadcast_in_dim(x, shape=(5, 2, 3, 4), broadcast_dimensions=(1, 2, 3)),
        np.broadcast_to(C, (5, 2, 3, 4)),
    ),
    "stack": (lambda S, x: S.sparsify(lambda a, b: jnp.stack([a, b]))(x, x), np.stack([C, C])),
    "reshape": (lambda S, x: x.reshape(2, 3, 2, 2), C.reshape(2, 3, 2, 2)),
    "sort": (lambda S, x: x.sort_indices(), C),
    "sum duplicates": (lambda S, x: (x + x).sum_duplicates(), 2 * C),
    "sum duplicates, zeros stay": (lambda S, x: (x + x).sum_duplicates(remove_zeros=False), 2 * C),
    "fewer batches": (lambda S, x: x.update_layout(n_batch=0, n_dense=0), C),
    "compiled": (lambda S, x: OURS.jit(lambda x: 2 * x)(x), 2 * C),
    "while": (
        lambda S, x: S.sparsify(lambda x: OURS.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, 2 * c[1]), (0, x)))(x)[1],
        8 * C,
    ),
    "scan": (lambda S, x: S.sparsify(lambda x: OURS.lax.fori_loop(0, 3, lambda i, c: 2 * c, x))(x), 8 * C),
    "cond": (lambda S, x: S.sparsify(lambda x: OURS.lax.cond(x.sum() > 1, lambda x: 2 * x, lambda x: -x, x))(x), 2 * C),
    "remat": (lambda S, x: S.sparsify(OURS.checkpoint(lambda x: jnp.sin(x)))(x), np.sin(C)),
    "todense": (lambda S, x: S.sparsify(lambda x: S.todense(x) + 1)(x), C + 1),
    "dot with a batch": (
        lambda S, x: S.bcoo_dot_general(x, D, dimension_numbers=(((2,), (2,)), ((0,), (0,)))),
        np.einsum("bik,bjk->bij", C, D),
    ),
    "jacobian": (lambda S, x: S.jacfwd(lambda m: m.todense().sum((0, 1)))(x).todense().sum(0), (C != 0).astype(np.float32)),
}  # fmt: skip


def close(got, expected):
    got = got.todense() if sparse.is_sparse(got) else got
    assert got.shape == np.shape(expected)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_an_array_without_elements_gets_fewer_batches():
    x = sparse.BCOO.fromdense(0 * C, n_batch=1).update_layout(n_batch=0)
    assert x.indices.shape == (0, 3)
    close(x, 0 * C)


@pytest.mark.parametrize("layout", one_in(3, LAYOUTS))
@pytest.mark.one_in(2)
def test_operators_are_those_of_dense_arrays(layout):
    x, y = (sparse.BCOO.fromdense(a, n_batch=layout[0], n_dense=layout[1]) for a in (C, D))
    for name, operation in ALIKE.items():
        got = operation(x, y)
        try:
            close(got, operation(jnp.asarray(C), jnp.asarray(D)))
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


@pytest.mark.parametrize("layout", one_in(2, LAYOUTS))
@pytest.mark.one_in(3)
def test_arrays_of_different_ranks_may_be_forbidden(layout):
    """The option is about the program's own operations, not about those within sparse arrays."""
    with OURS.numpy_rank_promotion("raise"):
        x, y = (sparse.BCOO.fromdense(a, n_batch=layout[0], n_dense=layout[1]) for a in (C, D))
        results = [x @ np.ones((4, 2), np.float32), x[0], x * y, x.sum(1), x.reshape(2, 3, 2, 2), sparse.bcoo_rev(x, (2,)),
                   sparse.bcoo_concatenate([x, x], dimension=0), (x + x).sum_duplicates(), x[:, None]]  # fmt: skip
    expected = [C @ np.ones((4, 2), np.float32), C[0], C * D, C.sum(1), C.reshape(2, 3, 2, 2), C[..., ::-1],
                np.concatenate([C, C]), 2 * C, C[:, None]]  # fmt: skip
    for got, want in zip(results, expected, strict=True):
        close(got, want)


@pytest.mark.sweep
@pytest.mark.parametrize("shape", [(1, 3, 4), (2, 3, 1), (1, 1, 4), (1, 1, 1)])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.one_in(2)
def test_products_with_an_array_that_is_repeated(layout, shape):
    other = thinned(*shape, seed=3) + (np.prod(shape) == 1)
    x, y = (sparse.BCOO.fromdense(a, n_batch=layout[0], n_dense=layout[1]) for a in (C, other))
    close(x * y, C * other)
    close(y * x, C * other)


@pytest.mark.parametrize("name", one_in(3, FUNCTIONS))
@pytest.mark.one_in(2)
def test_functions_are_those_of_dense_arrays(name):
    function, expected = FUNCTIONS[name]
    for n_batch, n_dense in LAYOUTS:
        if name == "jacobian" and n_dense:
            continue  # the derivative is by elements that are stored, zeros among them
        x = sparse.BCOO.fromdense(C, n_batch=n_batch, n_dense=n_dense)
        close(function(sparse, x), expected)


# What is stored, and in which layout, is what JAX stores.
STORED = {
    "slice": lambda S, x: x[:, 1:],
    "gather": lambda S, x: x[np.array([1, 0, 1])],
    "sum": lambda S, x: x.sum(0),
    "product": lambda S, x: S.bcoo_dot_general(x, x, dimension_numbers=(((2,), (2,)), ((0,), (0,)))),
    "new axis": lambda S, x: x[:, None],
    "duplicates": lambda S, x: (x + 2 * x).sum_duplicates(remove_zeros=False),
}


@pytest.mark.parametrize("case", one_in(2, STORED))
@pytest.mark.one_in(3)
def test_layouts_of_results_are_jaxs(case):
    theirs, ours = (
        STORED[case](S, S.BCOO.fromdense(C, n_batch=1))
        for S in (importlib.import_module(f"{J.name}.experimental.sparse") for J in (THEIRS, OURS))
    )
    assert repr(ours) == repr(theirs)
    np.testing.assert_array_equal(ours.todense(), theirs.todense())


@pytest.mark.parametrize("shapes", one_in(2, [((2, 4), (4,), (3, 4)), ((1, 4), (4,)), ((4,), (1, 4)), ((4,), (2, 4))]))
@pytest.mark.one_in(2)
def test_rows_and_matrices_are_stacked(shapes):
    """A row becomes a matrix with a batch axis of size 1, and the matrices have no batch axis."""
    dense = [thinned(*shape, seed=i) for i, shape in enumerate(shapes)]
    theirs, ours = (
        S.sparsify(J.numpy.vstack)([S.BCOO.fromdense(x) for x in dense])
        for J, S in ((J, importlib.import_module(f"{J.name}.experimental.sparse")) for J in (THEIRS, OURS))
    )
    assert repr(ours) == repr(theirs)
    np.testing.assert_array_equal(ours.todense(), np.vstack(dense))


def test_axes_that_cannot_be_joined_are_refused():
    x = sparse.BCOO.fromdense(C, n_batch=1, n_dense=1)
    for call, message in [
        (lambda: sparse.bcoo_concatenate([x, x], dimension=2), "along dense dimensions"),
        (lambda: x.T, "must not mix batch axes"),
        (lambda: x @ sparse.BCOO.fromdense(PAIRS[0]), "dense dimensions"),
        (lambda: x + sparse.BCOO.fromdense(C), "different batch/dense"),
        (lambda: x == x, "dense output"),
        (lambda: x + 1, "silent densification"),
    ]:
        with pytest.raises(NotImplementedError, match=message):
            call()
    with pytest.raises(ValueError, match="cannot mix batch and sparse"):
        x.reshape(24)


def test_a_convolution_is_that_of_dense_arrays():
    x, w = thinned(1, 1, 9), thinned(1, 1, 3, seed=1)
    for padding in ("VALID", "SAME", [(2, 1)]):
        dense = OURS.lax.conv_general_dilated(x, w, (1,), padding)
        for a, b in ((x, sparse.BCOO.fromdense(w)), (sparse.BCOO.fromdense(x), w)):
            close(sparse.bcoo_conv_general_dilated(a, b, window_strides=(1,), padding=padding), dense)
    with pytest.raises(NotImplementedError, match="window_strides"):
        sparse.bcoo_conv_general_dilated(x, sparse.BCOO.fromdense(w), window_strides=(2,), padding="VALID")


@pytest.mark.slow  # by default the tests above have layouts of other functions
def test_random_arrays_have_jaxs_layouts():
    for options in ({"n_batch": 1}, {"n_dense": 1}, {"nse": 0.5}):
        options["dtype"] = np.float32
        drawn = sparse.random_bcoo(OURS.random.key(0), (3, 4, 5), **options)
        theirs = importlib.import_module("jax.experimental.sparse").random_bcoo(
            THEIRS.random.key(0), (3, 4, 5), **options
        )
        assert repr(drawn) == repr(theirs)
        np.testing.assert_array_equal(drawn.indices, theirs.indices)
        np.testing.assert_allclose(drawn.data, theirs.data, rtol=1e-6)


# ---------------------------------------------------------------- primitives

X = sparse.BCOO.fromdense(C[0])
ROW = sparse.BCSR.fromdense(C[0])
COORDINATES = sparse.COO.fromdense(C[0])
TABLE = {
    "bcoo_todense": lambda p, data: p.bind(data, X.indices, spinfo=X._info),
    "bcoo_extract": lambda p, data: p.bind(X.indices, jnp.zeros(X.shape).at[0, :].set(data[:4]), assume_unique=True),
    "bcoo_transpose": lambda p, data: p.bind(data, X.indices, permutation=(1, 0), spinfo=X._info)[0],
    "bcoo_sort_indices": lambda p, data: p.bind(data, X.indices[::-1], spinfo=X._info)[0],
    "bcoo_sum_duplicates": lambda p, data: p.bind(data, X.indices // 2, spinfo=X._info, nse=4)[0],
    "bcoo_dot_general": lambda p, data: p.bind(
        data, X.indices, D[0], dimension_numbers=(((1,), (1,)), ((), ())), preferred_element_type=None, lhs_spinfo=X._info
    ),
    "bcsr_todense": lambda p, data: p.bind(data, ROW.indices, ROW.indptr, spinfo=ROW._info),
    "coo_matvec": lambda p, data: p.bind(
        data, X.indices[:, 0], X.indices[:, 1], D[0, 0], spinfo=COORDINATES._info, transpose=False
    ),
    "csr_matmat": lambda p, data: p.bind(data, ROW.indices, ROW.indptr, PAIRS[0], shape=X.shape, transpose=False),
}  # fmt: skip


@pytest.mark.parametrize("name", one_in(3, TABLE))
def test_primitives_are_bound_differentiated_and_mapped(name):
    primitive = getattr(sparse, f"{name}_p")
    f = lambda data: TABLE[name](primitive, data)
    value = f(X.data)
    assert name in str(OURS.make_jaxpr(f)(X.data))
    np.testing.assert_allclose(OURS.jit(f)(X.data), value, rtol=1e-6)
    OURS.test_util.check_grads(f, (X.data,), 2)
    np.testing.assert_allclose(OURS.vmap(f)(np.stack([X.data, 2 * X.data]))[0], value, rtol=1e-6)
    (back,) = OURS.linear_transpose(f, X.data)(value)
    np.testing.assert_allclose(back @ X.data, (value * value).sum(), rtol=1e-5)


def test_functions_of_primitives_match_their_formats():
    data, indices = sparse.bcoo_fromdense_p.bind(C[0], nse=12, n_batch=0, n_dense=0, index_dtype=np.int32)
    close(sparse.BCOO((data, indices), shape=C[0].shape), C[0])
    close(sparse.CSR(sparse.csr_fromdense_p.bind(C[0], nse=12, index_dtype=np.int32), shape=C[0].shape), C[0])
    numbers = (((1,), (1,)), ((), ()))
    out = sparse.bcoo_spdot_general_p.bind(
        *X._bufs,
        *X._bufs,
        lhs_spinfo=X._info,
        rhs_spinfo=X._info,
        dimension_numbers=numbers,
        preferred_element_type=None,
    )
    close(sparse.BCOO(out, shape=(3, 3)), C[0] @ C[0].T)


def test_dynamic_slices_from_the_end():
    x = np.arange(1.0, 7.0, dtype=np.float32)
    for start in (-2, -9, -1, 5):
        part = OURS.experimental.sparse.bcoo_dynamic_slice(OURS.experimental.sparse.BCOO.fromdense(x), (start,), (3,))
        np.testing.assert_array_equal(part.todense(), OURS.lax.dynamic_slice(x, (start,), (3,)))


def test_strict_promotion_with_64_bits():
    sparse = OURS.experimental.sparse
    with OURS.enable_x64(True), OURS.numpy_dtype_promotion("strict"):
        x = sparse.BCOO.fromdense(np.arange(6, dtype=np.float32).reshape(2, 3))
        x = sparse.BCOO((x.data, x.indices.astype("int32")), shape=x.shape)
        both = sparse.bcoo_concatenate([x, x], dimension=0)
        assert both.indices.dtype == np.int32
        np.testing.assert_array_equal(sparse.bcoo_reshape(both, new_sizes=(3, 4)).todense().ravel(), [*range(6)] * 2)
        by_rows = sparse.BCSR((x.data, x.indices[:, 1], np.int32([0, 2, 5])), shape=x.shape)
        np.testing.assert_array_equal(by_rows.todense(), x.todense())
        assert OURS.scipy.special.ndtr(np.float32([0, 1])).dtype == np.float32
