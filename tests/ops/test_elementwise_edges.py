"""Where elementwise operations have edges: the ends of ranges, zeros, infinities, NaN; and their errors."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest
from oracle import OURS, THEIRS, run

import mpijax

inf, nan = np.inf, np.nan
# Without numbers whose quotients are denormal, which XLA takes for zero.
F = np.array([0.0, -0.0, 1.5, -1.5, 2.5, inf, -inf, nan, 3e30], np.float32)
I8 = np.array([-128, -127, -1, 0, 1, 126, 127], np.int8)
U8 = np.array([0, 1, 7, 8, 9, 254, 255], np.uint8)


def pairs(x):
    return np.repeat(x, x.size), np.tile(x, x.size)


def both(make, *args):
    """What the two libraries compute, jitted."""
    got = [np.asarray(v) for v in mpijax.tree.leaves(mpijax.jit(make(mpijax.lax))(*args))]
    want = [np.asarray(v) for v in jax.tree.leaves(jax.jit(make(jax.lax))(*args))]
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        np.testing.assert_array_equal(g, w)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "name", "add sub mul div rem max min shift_left shift_right_logical shift_right_arithmetic".split()
)
@pytest.mark.parametrize("values", [I8, U8], ids=["int8", "uint8"])
def test_integer_pairs(name, values):
    both(lambda lax: getattr(lax, name), *pairs(values))


@pytest.mark.parametrize("name", "add sub mul div max min eq ne lt le gt ge".split())
def test_float_pairs(name):
    both(lambda lax: getattr(lax, name), *pairs(F))


@pytest.mark.parametrize("name", "neg abs sign floor ceil round is_finite".split())
def test_floats(name):
    both(lambda lax: getattr(lax, name), F)


@pytest.mark.parametrize("to", "int8 uint8 int32 uint32 bool float16".split())
def test_conversion_from_float(to):
    values = np.array([0, -0.0, 0.9, -0.9, 127.5, 128, -129, 256, 3e9, -3e9, inf, -inf, nan], np.float32)
    both(lambda lax: lambda x: lax.convert_element_type(x, to), values)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_position_with_nan_and_ties(name, axis):
    x = np.array([[1, nan, 3], [nan, nan, 3], [inf, inf, -inf]], np.float32)
    both(lambda lax: lambda x: getattr(lax, name)(x, axis, np.int32), x)


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_reduction_over_nothing(name, dtype):
    both(lambda lax: lambda x: getattr(lax, name)(x, (0,)), np.ones((0, 3), dtype))


def test_extrema_keep_nan():
    x = np.array([[1, nan], [inf, 2]], np.float32)
    both(lambda lax: lambda x: [lax.reduce_max(x, (0,)), lax.reduce_min(x, (1,))], x)


def test_scalars_in_tall_operations():
    """Scalars and axes of size 1 are repeated."""
    both(lambda lax: lambda x, y: lax.sub(x, y), np.ones((2, 3), np.float32), np.ones((2, 1), np.float32))
    both(lambda lax: lambda x: lax.sub(2.0, x), np.ones((2, 3), np.float32))


def test_stop_gradient_of_trees():
    tree = {"x": np.float32(2), "i": np.int32(3)}
    stopped = mpijax.lax.stop_gradient(tree)
    assert float(stopped["x"]) == 2 and int(stopped["i"]) == 3
    assert float(mpijax.grad(lambda x: x * mpijax.lax.stop_gradient(x))(2.0)) == 2


X = np.ones((2, 3), np.float32)
N = np.ones((2, 3), np.int32)
C = np.ones((2, 3), np.complex64)
B = X > 0
ROW = np.ones((1, 3), np.float32)

ERRORS = {
    "shapes": lambda lax: lax.add(X, np.ones((2, 4), np.float32)),
    "ranks": lambda lax: lax.add(X, np.ones(3, np.float32)),
    "dtypes": lambda lax: lax.add(X, N),
    "dtypes of a Python number": lambda lax: lax.add(N, 1.5),
    "and of floats": lambda lax: lax.bitwise_and(X, X),
    "neg of bool": lambda lax: lax.neg(B),
    "abs of unsigned": lambda lax: lax.abs(U8),
    "abs of 4 bits": lambda lax: lax.abs(np.ones(2, ml_dtypes.int4)),
    "real of real": lambda lax: lax.real(X),
    "order of complex": lambda lax: lax.lt(C, C),
    "sin of integer": lambda lax: lax.sin(N),
    "select by float": lambda lax: lax.select_n(X, X, X),
    "select of nothing": lambda lax: lax.select_n(B),
    "select among three by bool": lambda lax: lax.select_n(B, X, X, X),
    "select shapes": lambda lax: lax.select(B, X, np.ones((2, 4), np.float32)),
    "select which": lambda lax: lax.select(ROW > 0, X, X),
    "select dtypes": lambda lax: lax.select(B, X, N),
    "clamp dtypes": lambda lax: lax.clamp(X, N, X),
    "clamp min": lambda lax: lax.clamp(ROW, X, X),
    "clamp max": lambda lax: lax.clamp(X, X, ROW),
    "negative power of integer": lambda lax: lax.integer_pow(N, -1),
    "power of integer": lambda lax: lax.pow(N, N),
    "power of two dtypes": lambda lax: lax.pow(X, np.ones((2, 3), np.float16)),
    "axis": lambda lax: lax.reduce_sum(X, (2,)),
    "negative axis": lambda lax: lax.reduce_sum(X, (-1,)),
    "axis twice": lambda lax: lax.reduce_sum(X, (0, 0)),
    "sum of bool": lambda lax: lax.reduce_sum(B, (0,)),
    "logic of floats": lambda lax: lax.reduce_and(X, (0,)),
    "argmax axis": lambda lax: lax.argmax(X, 2, np.int32),
    "argmax dtype": lambda lax: lax.argmax(X, 0, np.float32),
    "argmax of nothing": lambda lax: lax.argmax(np.ones((0, 3), np.float32), 0, np.int32),
    "bitcast width": lambda lax: lax.bitcast_convert_type(np.ones((2, 3), np.int8), np.int32),
    "bitcast bool": lambda lax: lax.bitcast_convert_type(B, np.int8),
    "precision": lambda lax: lax.reduce_precision(X, 0, 5),
    "conj of integer": lambda lax: lax.conj(N),
    "reduce dtypes": lambda lax: lax.reduce(X, N[0, 0], lambda a, b: a, (0,)),
}


@pytest.mark.parametrize("case", ERRORS)
@pytest.mark.one_in(4)
def test_errors(case):
    """JAX's class and words; only the order in which accepted dtypes are listed is free there."""
    theirs, ours = (run(lambda J=J: ERRORS[case](J.lax)) for J in (THEIRS, OURS))
    assert theirs[0] == ours[0] == "error"
    words = [message.split("\n")[0].split("Accepted")[0].strip() for _, _, message in (theirs, ours)]
    assert (ours[1], words[1]) == (theirs[1], words[0])


@pytest.mark.parametrize("op", ("max", "min"))
def test_zeros_of_both_signs_are_ordered(op):
    """0.0 is larger than -0.0, for the elementwise operations and for the reductions."""
    x, y = np.tile(np.float32([0, -0.0, 0, -0.0]), 9), np.tile(np.float32([-0.0, 0, 0, -0.0]), 9)
    for make in (
        lambda J: lambda x, y: getattr(J.lax, op)(x, y),
        lambda J: lambda x, y: getattr(J.lax, f"reduce_{op}")(x.reshape(9, 4), (0,)),
        lambda J: lambda x, y: getattr(J.lax, f"reduce_{op}")(x, (0,)),
        lambda J: lambda x, y: getattr(J.lax, f"cum{op}")(x),
    ):
        wanted, got = (np.signbit(np.asarray(J.jit(make(J))(x, y))) for J in (jax, mpijax))
        np.testing.assert_array_equal(got, wanted)


def test_copies_of_float0():
    given = np.zeros(3, mpijax.dtypes.float0)
    copied = mpijax.jit(mpijax.numpy.array)(given)
    assert copied.dtype == mpijax.dtypes.float0 and copied.shape == (3,)
    _, carried = mpijax.lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, mpijax.numpy.array(c[1])), (0, given))
    assert carried.dtype == mpijax.dtypes.float0
