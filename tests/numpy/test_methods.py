"""Operators and methods of arrays against JAX."""

# ruff: noqa: B023 (functions of loop variables are called before the next iteration)
import operator

import numpy as np
import pytest
from oracle import OURS, THEIRS, assert_same_outcome, assert_same_values, check, run, sample
from quickly import one_in

X = sample(2, 3)
BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge"]
BITS = ["and_", "or_", "xor", "lshift", "rshift"]


@pytest.mark.parametrize("others", [(2.5, X[0]), pytest.param((2, np.float32(2), True), marks=pytest.mark.slow)], ids=["two", "more"])
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.one_in(3)
def test_operator(name, others):
    op = getattr(operator, name)
    for other in others:
        for x in (np.abs(X) + 1, sample(2, 3, dtype=np.int32) ** 2 + 1):
            tolerance = {"rtol": 1e-5} if name in ("pow", "mod", "floordiv", "truediv") else {}
            check(lambda J: lambda x: op(J.numpy.asarray(x), other), x, **tolerance)
            check(lambda J: lambda x: op(other, J.numpy.asarray(x)), x, **tolerance)


@pytest.mark.parametrize("name", one_in(2, BITS))
def test_bit_operator(name):
    op = getattr(operator, name)
    for other in (2, np.int32(3), np.array([1, 2, 3])):
        check(lambda J: lambda x: op(J.numpy.asarray(x), other), sample(2, 3, dtype=np.int32))
        check(lambda J: lambda x: op(other, J.numpy.asarray(x)), sample(2, 3, dtype=np.int32) % 5)


@pytest.mark.parametrize("name", ["neg", "pos", "abs", "invert"])
@pytest.mark.one_in(2)
def test_unary_operator(name):
    op = getattr(operator, name)
    for x in (X, sample(2, 3, dtype=np.int32), X > 0):
        check(lambda J: lambda x: op(J.numpy.asarray(x)), x)


def test_divmod_round_contains_matmul():
    check(lambda J: lambda x: divmod(J.numpy.asarray(x), 0.5), X)
    check(lambda J: lambda x: divmod(5, J.numpy.asarray(x)), np.abs(X) + 1, rtol=1e-6)
    check(lambda J: lambda x: round(J.numpy.asarray(x)), X)
    check(lambda J: lambda x: round(J.numpy.asarray(x), 1), X)
    check(lambda J: lambda x: J.numpy.asarray(x) @ np.ones(3, np.float32), X)
    check(lambda J: lambda x: np.ones(2, np.float32) @ J.numpy.asarray(x), X)
    for J in (THEIRS, OURS):
        assert 3 in J.numpy.arange(5) and 7 not in J.numpy.arange(5)


@pytest.mark.parametrize("name", [*BINARY, "matmul", "and_"])
@pytest.mark.parametrize("other", [[1], (1,), {}, None, "a", object], ids=repr)
@pytest.mark.one_in(4)
def test_operand_that_is_no_array(name, other):
    op = getattr(operator, name)
    for order in (lambda x: op(x, other), lambda x: op(other, x)):
        theirs, ours = (run(lambda J=J, order=order: order(J.numpy.arange(3))) for J in (THEIRS, OURS))
        assert_same_outcome(theirs, ours)


def test_numpy_array_on_the_left_gives_way():
    for J in (THEIRS, OURS):
        out = np.ones(3, np.float32) + J.numpy.arange(3)
        assert type(out) is type(J.numpy.arange(3))


METHODS = [
    ("all", ()), ("any", ()), ("argmax", ()), ("argmin", (1,)), ("astype", (int,)), ("astype", ("bfloat16",)),
    ("astype", (bool,)), ("astype", (None,)), ("clip", (-1, 1)), ("clip", (None, 1)), ("conj", ()),
    ("conjugate", ()), ("copy", ()), ("dot", (X.T,)), ("flatten", ()), ("max", (0,)), ("mean", (1,)),
    ("min", ()),
    ("prod", (0,)), ("ptp", ()), ("ravel", ()), ("ravel", ("F",)), ("repeat", (2,)), ("repeat", (2, 1)),
    ("reshape", (3, 2)), ("reshape", ((3, 2),)), ("reshape", (-1,)), ("reshape", (-1, 2)),
    ("reshape", (-1, -1)),
    ("reshape", (4,)), ("reshape", (-1, 4)), ("reshape", (np.int64(6),)), ("round", ()), ("round", (1,)),
    ("squeeze", ()), ("std", (0,)), ("sum", (1,)), ("swapaxes", (0, 1)), ("take", (0,)), ("take", (0, 1)),
    ("trace", ()), ("transpose", ()), ("transpose", (1, 0)), ("transpose", ((1, 0),)), ("transpose", (None,)),
    ("transpose", ((0, 0),)), ("var", ()), ("view", (np.int32,)), ("view", (np.int8,)),
    ("view", (np.float32,)),
    ("view", ("complex64",)), ("view", (bool,)), ("view", ()), ("nonzero", ()), ("diagonal", ()),
    ("byteswap", ()), ("cumsum", (1,)), ("cumprod", (1,)), ("sort", ()), ("argsort", ()),
]  # fmt: skip


@pytest.mark.parametrize("case", one_in(3, METHODS), ids=lambda c: f"{c[0]}{c[1]}" if len(str(c)) < 60 else c[0])
@pytest.mark.one_in(3)
def test_method(case):
    name, args = case
    for x in (X, X.astype(np.int32)):
        check(lambda J: lambda x: getattr(J.numpy.asarray(x), name)(*args), x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["T", "mT", "real", "imag", "nbytes", "itemsize", "ndim", "size", "shape"])
@pytest.mark.one_in(3)
def test_property(name):
    for x in (X, X.astype(np.complex64)):
        theirs, ours = (run(lambda J=J, x=x: getattr(J.numpy.asarray(x), name)) for J in (THEIRS, OURS))
        assert_same_outcome(theirs, ours)
        assert_same_values(theirs[1], ours[1])


def test_reshape_order():
    for order in ("C", "F", "A", "Z"):
        check(lambda J: lambda x: J.numpy.asarray(x).reshape(3, 2, order=order), X)


def test_keyword_arguments():
    check(lambda J: lambda x: J.numpy.asarray(x).sum(axis=0, keepdims=True), X)
    check(lambda J: lambda x: J.numpy.asarray(x).mean(where=np.array([True, False, True])), X, rtol=1e-6)
    check(lambda J: lambda x: J.numpy.asarray(x).max(initial=10.0), X)


def test_properties_that_are_not_there():
    x = OURS.numpy.arange(3)
    with pytest.raises(NotImplementedError, match="flatten"):
        x.flat  # noqa: B018
    with pytest.raises(AttributeError):
        x.nothing  # noqa: B018


@pytest.mark.parametrize("J", [THEIRS, OURS], ids=["jax", "mpijax"])
def test_an_array_as_a_dtype_is_deprecated(J):
    with pytest.warns(DeprecationWarning, match="Implicit conversion of an array to a dtype is deprecated") as seen:
        assert np.dtype(J.numpy.arange(4)) == np.int32
    assert seen[0].filename == __file__


def test_complex_view_and_byteswap():
    z = X.astype(np.complex64) + 1j
    check(lambda J: lambda x: J.numpy.asarray(x).view(np.float32), z)
    check(lambda J: lambda x: J.numpy.asarray(x).byteswap(), z)


def test_bits_of_numbers_without_end_stay():
    x = np.array([1, np.inf, -0.0, np.nan, -np.inf, 2], np.float32)
    y = OURS.numpy.asarray(x).view(np.complex64)
    assert np.asarray(y).tobytes() == np.asarray(y.view(np.float32)).tobytes() == x.tobytes()


def test_array_namespace():
    assert OURS.numpy.arange(3).__array_namespace__() is OURS.numpy
