"""The elementwise functions against JAX: Jaxprs for all dtypes and mixtures, values for some."""

# ruff: noqa: B023 (functions of loop variables are called before the next iteration)
import itertools

import numpy as np
import pytest
from jaxprs import DTYPES, array, check_all
from oracle import OURS, THEIRS, assert_same_outcome, check, run
from quickly import all_slow_but, one_in

from mpijax.core.base.config import keep_denormals

UNARY = """
    exp exp2 expm1 log log1p sqrt cbrt sin cos tan arcsin arccos arctan asin acos atan sinh cosh tanh arcsinh
    arctanh asinh atanh arccosh acosh log2 log10 square reciprocal deg2rad rad2deg radians degrees sinc fabs
    bitwise_count negative positive absolute abs sign logical_not bitwise_not bitwise_invert invert isnan
    isfinite isinf isposinf isneginf iscomplex isreal floor ceil trunc rint round around modf nan_to_num
    signbit spacing frexp real imag conjugate conj angle""".split()

BINARY = """
    add subtract multiply true_divide divide maximum minimum floor_divide divmod remainder mod fmod power pow
    float_power equal not_equal less less_equal greater greater_equal logical_and logical_or
    logical_xor bitwise_and bitwise_or bitwise_xor left_shift bitwise_left_shift right_shift
    bitwise_right_shift isclose allclose fmin fmax heaviside copysign nextafter ldexp hypot logaddexp
    logaddexp2 arctan2 atan2 array_equal array_equiv""".split()


# What promotes types in its own way.
MANY = ("add", "power", "floor_divide", "true_divide", "less", "remainder")


def function(name, *after, **options):
    return lambda J: lambda *args: getattr(J.numpy, name)(*args, *after, **options)


@pytest.mark.parametrize("name", one_in(3, UNARY))
@pytest.mark.one_in(3)
def test_unary_jaxpr(name):
    check_all([(name, function(name), (array(dtype, 3),)) for dtype in DTYPES])


@pytest.mark.parametrize("name", one_in(6, UNARY))
@pytest.mark.one_in(3)
def test_unary_jaxpr_of_other_arguments(name):
    cases = []
    for x in (2, 2.5, True, np.float32(0.5), np.int8(3), np.ones(2), np.arange(2)):
        cases.append((name, function(name), (x,)))
        cases.append((f"{name} of a constant", lambda J, x=x: lambda y: getattr(J.numpy, name)(x), (1.0,)))
    cases.append((f"{name} of a list", lambda J: lambda y: getattr(J.numpy, name)([1, 2]), (1.0,)))
    check_all(cases)


def of_dtypes(name, dtypes):
    return [(name, function(name), (array(a, 2, 3), array(b, 3, seed=1))) for a, b in itertools.product(dtypes, dtypes)]


@pytest.mark.slow
@pytest.mark.parametrize("name", BINARY)
def test_binary_jaxpr_of_all_dtypes(name):
    check_all(of_dtypes(name, DTYPES if name in MANY else ("bool", "int8", "uint32", "float32", "complex64")))


@pytest.mark.parametrize("name", one_in(3, BINARY))
@pytest.mark.one_in(3)
def test_binary_jaxpr_of_some_dtypes(name):
    check_all(of_dtypes(name, ("bool", "int8", "float32")))


@pytest.mark.parametrize("name", all_slow_but(("subtract", "left_shift", "equal", "logical_or", "float_power", *MANY), BINARY))
@pytest.mark.one_in(3)
def test_binary_jaxpr_of_other_arguments(name):
    cases = []
    for dtype, x in itertools.product(("bool", "int8", "float32", "bfloat16"), (2, 2.5, np.float32(0.5))):
        cases.append((name, function(name), (array(dtype, 3), x)))
        cases.append((name, function(name, x), (array(dtype, 3),)))
    x = array("float32", 3)
    for other in (2, 2.5, True, np.ones(3), np.arange(3), np.int16(2), np.array(2.0), 1 + 2j):
        cases.append(
            (f"{name}, constant right", lambda J, y=other: lambda x: getattr(J.numpy, name)(x, y), (x,))
        )
        cases.append(
            (f"{name}, constant left", lambda J, y=other: lambda x: getattr(J.numpy, name)(y, x), (x,))
        )
        cases.append((f"{name}, weak", lambda J, y=other: lambda x: getattr(J.numpy, name)(x, y), (2.5,)))
    if name != "array_equiv":  # which is false then; JAX raises, against its documentation
        cases.append((f"{name} of a list", lambda J: lambda x: getattr(J.numpy, name)(x, [1, 2]), (x,)))
        cases.append((f"{name}, shapes that do not fit", function(name), (x, array("float32", 2))))
    check_all(cases)


def test_clip_round_and_options():
    x, i = array("float32", 3), array("int8", 3)
    cases = [
        ("clip", function("clip", *bounds), (a,))
        for a in (x, i, 3)
        for bounds in ((0, 1), (0.5, None), (None, 2), (None, None), (1j, 2))
    ]
    cases += [("round", function("round", decimals=d), (array(t, 3),)) for t in DTYPES for d in (2, -1, 50)]
    cases += [
        ("isclose", function("isclose", equal_nan=True), (x, x)),
        ("allclose", function("allclose", 1e-3, 1e-2), (x, i)),
        ("array_equal", function("array_equal", equal_nan=True), (x, x)),
        ("nan_to_num", function("nan_to_num", nan=2, posinf=3.0, neginf=4), (x,)),
        ("angle", function("angle", deg=True), (array("complex64", 3),)),
        ("modf", function("modf", out=x), (x,)),
        ("isposinf", function("isposinf", out=x), (x,)),
    ]
    check_all(cases)


SPECIAL = np.array([0.0, -0.0, 1.0, -1.5, 2.5, 3.5, np.inf, -np.inf, np.nan, 1e-30, 1e30], np.float32)


@pytest.mark.parametrize("name", one_in(3, UNARY))
@pytest.mark.one_in(3)
def test_unary_values(name):
    exact = (
        name in "negative positive absolute abs sign floor ceil trunc rint round modf signbit frexp".split()
    )
    check(
        function(name),
        SPECIAL,
        jaxpr=False,
        eager=False,
        rtol=0 if exact else 3e-6,
        atol=0 if exact else 1e-6,
    )


@pytest.mark.parametrize("name", one_in(3, [n for n in BINARY if n not in ("array_equal", "array_equiv", "allclose")]))
@pytest.mark.one_in(3)
def test_binary_values(name):
    x, y = np.meshgrid(SPECIAL[:9], SPECIAL[:9])
    if "bitwise" in name or "shift" in name:
        x, y = np.meshgrid(np.arange(-3, 4, dtype=np.int32), np.arange(0, 40, 7, dtype=np.int32))
    if name == "ldexp":
        y = np.arange(y.size, dtype=np.int32).reshape(y.shape) * 4 - 160
    check(function(name), x, y, jaxpr=False, eager=False, rtol=3e-6, atol=1e-30)


def test_denormal_numbers_count_where_they_are_kept():
    """As in NumPy; otherwise they are zero, as in XLA (tests/runtime/program/test_denormals.py)."""
    x = np.array([1e-40, -1e-45], np.float32)
    with keep_denormals(True):
        for name in ("sign", "ceil", "floor", "absolute", "square", "logical_not", "frexp"):
            ours, theirs = getattr(OURS.numpy, name)(x), getattr(np, name)(x)
            np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(np.asarray(OURS.numpy.log(x[0])), np.log(x[0]), rtol=1e-6)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "name", ["floor_divide", "remainder", "fmod", "divmod", "power", "maximum", "multiply"]
)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32"])
@pytest.mark.one_in(2)
def test_integer_values(name, dtype):
    values = np.array([0, 1, 2, 3, 7, 100, 127], dtype)
    if np.dtype(dtype).kind == "i":
        values = np.concatenate([values, -values, np.array([np.iinfo(dtype).min], dtype)])
    x, y = np.meshgrid(values, values)
    if name == "floor_divide":
        x, y = x[y != 0], y[y != 0]
    check(function(name), x, y, jaxpr=False, eager=False)


def test_eager_values_equal_jitted_ones():
    x, y = array("float32", 5, 3), array("float32", 3, seed=1)
    jnp = OURS.numpy
    for name in ("add", "multiply", "true_divide", "floor_divide", "logaddexp", "hypot", "log2", "isclose"):
        fun = getattr(jnp, name)
        args = (x,) if name == "log2" else (x, y)
        np.testing.assert_array_equal(np.asarray(fun(*args)), np.asarray(OURS.jit(fun)(*args)), err_msg=name)


def test_weak_types_and_scalars_of_eager_results():
    for make in (
        lambda J: lambda: J.numpy.add(2, 3),
        lambda J: lambda: J.numpy.add(2, 3.5),
        lambda J: lambda: J.numpy.multiply(J.numpy.asarray(2.5), 2),
        lambda J: lambda: J.numpy.multiply(J.numpy.ones(2, "int8"), 2),
        lambda J: lambda: J.numpy.multiply(J.numpy.ones(2, "int8"), 1000),
        lambda J: lambda: J.numpy.multiply(J.numpy.ones(2, "int8"), 2.5),
        lambda J: lambda: J.numpy.add(J.numpy.ones(2, "bfloat16"), np.float32(1)),
        lambda J: lambda: J.numpy.sin(2),
        lambda J: lambda: J.numpy.add(J.numpy.ones(2), 2**40),
    ):
        check(make, jaxpr=False, jitted=False, rtol=1e-6)


def test_gcd_lcm():
    x, y = np.array([12, -18, 0, 7], np.int32), np.array([18, 24, 5, 0], np.int32)
    for name in ("gcd", "lcm"):
        check(function(name), x, y, jaxpr=False)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint16"])
@pytest.mark.parametrize("name", ["gcd", "lcm"])
def test_gcd_lcm_of_the_ends_of_the_range(name, dtype):
    """NumPy's. JAX's do not end at the most negative integer."""
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.min + 1, limits.min // 2, limits.max, 0, 1, 6, 64, *([-1, -2, -3] * (limits.min < 0))], dtype)
    found = getattr(OURS.numpy, name)(x[:, None], x)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, getattr(np, name)(x[:, None], x))


def test_messages():
    """Errors say what JAX's say; tests of JAX match these words."""
    for call, words in (
        (
            lambda jnp: jnp.add([1], 2),
            "add requires ndarray or scalar arguments, got <class 'list'> at position 0",
        ),
        (lambda jnp: jnp.add(np.ones(2), np.ones(3)), "got incompatible shapes for broadcasting"),
        (lambda jnp: jnp.hypot(1j, 2), "not well defined for complex-valued inputs"),
        (lambda jnp: jnp.power(np.arange(3), -1), "Integers cannot be raised to negative powers"),
        (lambda jnp: jnp.clip(np.ones(2), 1j), "Clip received a complex value"),
        (lambda jnp: jnp.bitwise_and(np.ones(2), np.ones(2)), "does not accept dtype"),
        (lambda jnp: jnp.floor_divide(1j, 2), "floor_divide does not support complex-valued inputs"),
    ):
        theirs, ours = (run(lambda J=J: call(J.numpy)) for J in (THEIRS, OURS))
        assert_same_outcome(theirs, ours)
        assert words in theirs[2] and words in ours[2], (theirs, ours)
