"""Functions that make arrays against JAX: Jaxprs and errors for many arguments, values for some."""

import inspect
from collections import UserList, deque

import numpy as np
import pytest
from jaxprs import array, check_all
from oracle import OURS, THEIRS, check
from quickly import one_in

X, M, I8, C = array("float32", 3), array("float32", 3, 4), array("int8", 3), array("complex64", 3)
M3 = array("float32", 2, 3, 4)


def constant(name, *args, **options):
    """`jnp.name(*args)` inside a function whose argument it does not use."""
    return lambda J: lambda x: getattr(J.numpy, name)(*args, **options)


def of_argument(name, *after, **options):
    return lambda J: lambda x: getattr(J.numpy, name)(x, *after, **options)


OBJECTS = (
    range(5), deque([1, 2.0]), 2, 2.5, True, 1 + 2j, np.float32(3), np.int8(3), np.ones(3), np.arange(3), [1, 2.0], [[1, 2], [3, 4]], [],
    [[]], (1, True), [np.float32(1), 2], [np.ones(3), [1, 2, 3]], b"ab", "abc", None, [1, None],
    [[1, 2], [3]],
    {1: 2}, 2**40, [2**40], object(), range(0), [range(3), [1.0, 2, 3]], range(2**40, 2**40 + 2), UserList([1, "a"]),
)  # fmt: skip


@pytest.mark.parametrize("name", ["array", "asarray"])
def test_from_objects(name):
    cases = [(f"{name}({x!r})", constant(name, x), (1.0,)) for x in OBJECTS]
    for x in OBJECTS[:17]:
        for dtype in (int, np.float16, bool, "int8", np.complex64):
            cases.append((f"{name}({x!r}, {dtype})", constant(name, x, dtype=dtype), (1.0,)))
        if name == "array":
            cases.append((f"array({x!r}, ndmin=3)", constant(name, x, ndmin=3), (1.0,)))
    check_all(cases)


def test_sequences_beside_traced_values():
    def mixed(J, x):
        return J.numpy.array((range(3), x)), J.numpy.array([memoryview(b"abc"), x])

    check(lambda J: J.jit(lambda x: mixed(J, x))(np.arange(3.0)))


def test_from_traced_values():
    makers = [
        lambda J: lambda x: J.numpy.array(x),
        lambda J: lambda x: J.numpy.array(x, copy=False),
        lambda J: lambda x: J.numpy.array(x, dtype=int),
        lambda J: lambda x: J.numpy.asarray(x),
        lambda J: lambda x: J.numpy.asarray(x, dtype="int8"),
        lambda J: lambda x: J.numpy.asarray(x, copy=True),
        lambda J: lambda x: J.numpy.copy(x),
        lambda J: lambda x: J.numpy.array([x, x]),
        lambda J: lambda x: J.numpy.array([x[0], 1, x[1]]),
        lambda J: lambda x: J.numpy.array([[x[0], 2], [3, 4]]),
        lambda J: lambda x: J.numpy.array([x] * 40),
        lambda J: lambda x: J.numpy.array([x[0]] * 40, dtype=np.int8),
        lambda J: lambda x: J.numpy.array([[x[0], 2], [3]]),
        lambda J: lambda x: J.numpy.array(x, order="F"),
        lambda J: lambda x: J.numpy.array(x, ndmin=3),
        lambda J: lambda x: J.numpy.astype(x, int),
        lambda J: lambda x: J.numpy.astype(x, None),
        lambda J: lambda x: J.numpy.astype(x, bool, copy=True),
        lambda J: lambda x: J.numpy.zeros(x),
        lambda J: lambda x: J.numpy.ones((x[0],)),
        lambda J: lambda x: J.numpy.arange(x[0]),
    ]
    check_all([(str(i), make, (x,)) for i, make in enumerate(makers) for x in (X, I8)])


def test_filled():
    cases = []
    shapes = [
        (3,),
        ((2, 3),),
        ((2, 3), np.int8),
        ([2, 3], bool),
        ((),),
        (3, 4),
        (np.int32(3),),
        (2.5,),
        ((0, 2),),
    ]
    for name in ("zeros", "ones", "empty"):
        cases += [(f"{name}{args}", constant(name, *args), (1.0,)) for args in shapes]
        like = f"{name}_like"
        for x in (X, I8, C, 2, 2.5, np.ones(2)):
            cases += [
                (like, of_argument(like, **kw), (x,)) for kw in ({}, {"dtype": np.int8}, {"shape": (2, 2)})
            ]
        cases.append((like, constant(like, [1, 2]), (1.0,)))
    for args in (((2, 3), 2), ((2, 3), 2.5), ((2,), 2.5, np.int8), (3, True), ((2, 3), [1, 2, 3])):
        cases.append((f"full{args}", constant("full", *args), (1.0,)))
    cases += [
        ("full", lambda J: lambda x: J.numpy.full((2, 3), x), (X,)),
        ("full", lambda J: lambda x: J.numpy.full((2, 3), x[0]), (X,)),
        ("full", lambda J: lambda x: J.numpy.full((2, 3), x, dtype=int), (X,)),
        ("full, shapes that do not fit", lambda J: lambda x: J.numpy.full((2, 2), x), (X,)),
        ("full_like", of_argument("full_like", 2), (X,)),
        ("full_like", of_argument("full_like", 2, dtype=int, shape=(2,)), (X,)),
        ("full_like", of_argument("full_like", M), (M3,)),
        ("full_like", lambda J: lambda x: J.numpy.full_like(x, x[0]), (I8,)),
    ]
    check_all(cases)


ARANGES = [
    (3,), (1, 3), (3.5,), (1, 10, 2.5), (10, 0, -3), (0, 5), (0,), (-2,), (1.0, 3), (1, 2, 0.3, np.float16),
    (3, None, 2), (np.int8(5),), (5, 1), (2, 5, 1), (np.arange(3),), (1, 2, 3, "int8"), (3, None, None,
    float), ([1],), (1, 5, None, np.uint8), (1j,),
]  # fmt: skip

SPACES = [
    ((0, 1, 5), {}), ((0, 1.0, 5), {"endpoint": False}), ((0, 10, 4), {"dtype": int}), ((0, 1, 1), {}), ((0,
    1, 0), {}), ((0, 1, 2), {"retstep": True}), ((0, 1, 1), {"retstep": True}), ((0, 1, 0), {"retstep":
    True}), ((X, M.T, 3), {"axis": 1}), ((X, 2, 3), {"axis": -1}), ((0, 1j, 3), {}), ((0, 1), {}), ((0, 1,
    -1), {}), ((0, 1, 3), {"dtype": "bfloat16"}), ((0, 1, 1), {"endpoint": False, "retstep": True}),
]  # fmt: skip


def test_ranges():
    cases = [(f"arange{a}", constant("arange", *a), (1.0,)) for a in ARANGES]
    cases += [(f"linspace{a} {kw}", constant("linspace", *a, **kw), (1.0,)) for a, kw in SPACES]
    for name in ("logspace", "geomspace"):
        for args, options in (
            ((1, 100, 5), {}),
            ((1.0, 10.0, 4), {"endpoint": False}),
            ((1, 100, 3), {"dtype": int}),
            ((M + 9, 2, 3), {"axis": 1}),
            ((M + 9, 2, 3), {"axis": -1}),
        ):
            cases.append((name, constant(name, *args, **options), (1.0,)))
    for options in ({}, {"sparse": True}, {"indexing": "ij"}, {"indexing": "xx"}, {"copy": False}):
        for args in ((X,), (X, I8), (X, I8, X)):
            cases.append(("meshgrid", lambda J, kw=options: lambda *a: J.numpy.meshgrid(*a, **kw), args))
    cases.append(("meshgrid", of_argument("meshgrid"), (M,)))
    for options in ({}, {"sparse": True}, {"dtype": np.int8}):
        cases += [("indices", constant("indices", shape, **options), (1.0,)) for shape in ((2, 3), ())]
    check_all(cases)


def test_matrices():
    cases = []
    for args, options in (
        ((3,), {}), ((3, 4), {}), ((3,), {"k": 1}), ((3, 4), {"k": -1, "dtype": int}), ((3,), {"dtype":
        bool}), ((-1,), {}), ((3,), {"k": 2**40}), ((3.0,), {}), ((3,), {"k": 1.5}),
    ):  # fmt: skip
        for name in ("eye", "tri"):
            # A negative size of tri is an error there; JAX makes an empty matrix.
            if (name, args) != ("tri", (-1,)):
                cases.append((f"{name}{args} {options}", constant(name, *args, **options), (1.0,)))
    cases.append(("eye", lambda J: lambda k: J.numpy.eye(3, k=k), (np.int8(2),)))
    cases += [(f"identity{a}", constant("identity", *a), (1.0,)) for a in ((3,), (3, int))]
    for name in ("tril", "triu"):
        for x in (M, M3, M.astype(np.int32), X, M > 0):
            cases += [(name, of_argument(name, k), (x,)) for k in (0, 1, -1)]
    for x in (X, I8, M, M3):
        cases += [("diag", of_argument("diag", k), (x,)) for k in (0, 1, -1, 5)]
        cases += [("diagflat", of_argument("diagflat", k), (x,)) for k in (0, 1, -1)]
    for options in ({}, {"offset": 1}, {"axis1": 1, "axis2": 0}, {"axis1": -1, "axis2": 0, "offset": -1}):
        for name in ("trace", "diagonal"):
            cases += [(f"{name} {options}", of_argument(name, **options), (x,)) for x in (M, M3, X)]
    cases += [
        ("trace", of_argument("trace", dtype=int), (M,)),
        ("trace", of_argument("trace", axis1=0, axis2=0), (M,)),
        ("diag_indices", constant("diag_indices", 3), (1.0,)),
        ("diag_indices", constant("diag_indices", -3), (1.0,)),
        ("diag_indices_from", of_argument("diag_indices_from"), (M,)),
        ("diag_indices_from", of_argument("diag_indices_from"), (M[:, :3],)),
    ]
    for name in ("triu_indices", "tril_indices"):
        cases += [(name, constant(name, *args), (1.0,)) for args in ((3,), (3, -1, 4), (3, 5))]
        cases.append((name, of_argument(f"{name}_from", 1), (M,)))
    check_all(cases)


VALUES = [
    constant("arange", 1, 10, 2.5), constant("arange", 5), constant("arange", 10, 0, -3),
    constant("linspace", 0, 1, 7), constant("linspace", X, 2, 5), constant("logspace", 0, 2, 5),
    constant("geomspace", 1, 1000, 4), constant("eye", 3, 4, 1), constant("tri", 3, 4, -1),
    of_argument("tril"),
    of_argument("triu", 1), of_argument("diag"), of_argument("diagonal", 1), of_argument("trace"),
    of_argument("diagflat"), constant("meshgrid", X, I8), constant("indices", (2, 3)),
    constant("full", (2, 3), X),
    constant("triu_indices", 3), constant("tril_indices", 3, 1), constant("identity", 3),
    constant("frombuffer", b"12345678", dtype=np.int16), constant("array", [[1, 2.5], [3, 4]]),
    lambda J: lambda x: J.numpy.array([x[0, 0], 1, x[1, 1]]),
    lambda J: lambda x: J.numpy.fromfunction(lambda i, j: i * 10 + j, (2, 3), dtype=int),
]  # fmt: skip


@pytest.mark.parametrize("index", one_in(3, range(len(VALUES))))
def test_values(index):
    check(VALUES[index], M, jaxpr=False, rtol=1e-6)


def test_diagonal_of_a_square_matrix():
    """JAX has a second form of it for accelerators, so the Jaxprs differ."""
    check(of_argument("diagonal"), M[:, :3], jaxpr=False)


def test_scalar_types():
    jnp = OURS.numpy
    assert jnp.float32 == np.float32 and jnp.dtype(jnp.bfloat16).itemsize == 2
    assert jnp.int_ is jnp.int64 and jnp.bool is jnp.bool_
    assert isinstance(np.float32(1), jnp.float32)
    assert {jnp.int8: 1}[jnp.int8] == 1
    for name in ("float32", "int8", "bool_", "complex64", "bfloat16"):
        check(lambda J, name=name: lambda: getattr(J.numpy, name)(1), jaxpr=False, jitted=False)
    for J in (OURS, THEIRS):
        assert J.numpy.result_type(J.numpy.int8, J.numpy.float16) == np.float16
        assert J.numpy.issubdtype(J.numpy.bfloat16, J.numpy.floating)
        assert J.numpy.isscalar(3.0) and J.numpy.isscalar(J.numpy.float32(2)) and not J.numpy.isscalar([1])
        assert J.numpy.finfo(J.numpy.float32).eps == np.finfo(np.float32).eps


def test_names():
    """Every name of jax.numpy is there, or the error says that it is missing."""
    ours, theirs = OURS.numpy, THEIRS.numpy
    for name in dir(theirs):
        if name.startswith("_") or name in ("fft", "linalg"):
            continue
        if not hasattr(ours, name):
            with pytest.raises(AttributeError, match=f"does not have {name} yet"):
                getattr(ours, name)
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        ours.no_such_name  # noqa: B018
    for name in ("pi", "e", "inf", "newaxis", "euler_gamma"):
        assert getattr(ours, name) is getattr(np, name)
    assert np.isnan(ours.nan)


def parameters(fun) -> list[str]:
    try:
        return list(inspect.signature(fun).parameters)
    except (TypeError, ValueError):
        return []


def test_signatures():
    """Public functions take the arguments that JAX's take; JAX's ufuncs hide theirs."""
    different = []
    for name in dir(THEIRS.numpy):
        ours, theirs = getattr(OURS.numpy, name, None), getattr(THEIRS.numpy, name)
        if name.startswith("_") or not callable(ours) or isinstance(theirs, type) or name == "issubdtype":
            continue
        if parameters(theirs) not in ([], ["args", "out", "where"], parameters(ours)):
            different.append((name, parameters(theirs), parameters(ours)))
    assert not different


def test_array_shares_no_memory_with_numpy():
    source = np.ones(3, np.float32)
    made = OURS.numpy.array(source)
    source[0] = 5
    assert made[0] == 1


@pytest.mark.parametrize("given", ["bfloat16", "float8_e4m3fn", "int4"])
def test_arrays_of_narrow_types_are_converted(given):
    source = np.arange(3).astype(OURS.numpy.dtype(given))
    for name in ("array", "asarray"):
        made, expected = (getattr(lib.numpy, name)(source, "float32") for lib in (OURS, THEIRS))
        assert made.dtype == expected.dtype and np.array_equal(made, expected)
    for dtype in (None, "float32"):
        made, expected = (lib.numpy.full((2, 3), source, dtype) for lib in (OURS, THEIRS))
        assert made.dtype == expected.dtype and np.array_equal(made, expected)


def test_full_of_a_key():
    keys = OURS.random.split(OURS.random.key(0), 2)
    for out, shape in ((OURS.lax.full_like(keys, keys[1]), (2,)), (OURS.lax.full((3,), keys[1], keys.dtype), (3,))):
        assert out.shape == shape and out.dtype == keys.dtype
        assert (OURS.random.key_data(out) == OURS.random.key_data(keys[1])[None]).all()


@pytest.mark.parametrize("value", ["abc", [1, "a"]])
def test_text_is_refused_as_jax_refuses_it(value):
    texts = []
    for lib in (OURS, THEIRS):
        with pytest.raises(TypeError) as caught:
            lib.numpy.array(value)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
