"""Taylor series beside finite differences along the same curve, and beside JAX's where those are made by its rules."""

import math

import numpy as np
import pytest
from quickly import one_in

import mpijax
import mpijax.numpy as jnp
from mpijax import lax
from mpijax.experimental import jet as module
from mpijax.experimental.jet import jet
from mpijax.scipy import linalg, special

ORDER = 3
X = np.array([0.3, 0.7, -0.4])
POSITIVE = np.array([0.5, 1.2, 2.1])
SERIES = [np.array(c) for c in ([0.1, 0.2, 0.3], [0.5, -0.2, 0.1], [-0.3, 0.4, 0.2])]
STEP = 0.02
PLACES = STEP * np.arange(-5, 6)
# Row n has the weights of the n-th derivative: the polynomial of degree 10 through all places.
WEIGHTS = np.linalg.inv(np.vander(PLACES / STEP, increasing=True)) * np.array(
    [[math.factorial(n) / STEP**n] for n in range(len(PLACES))]
)


def differences(fun, primals, series):
    """The derivatives of order 1 to ORDER of `fun` along a curve, each result a list of them."""

    def at(t):
        return fun(*[x + sum(c * t ** (n + 1) / math.factorial(n + 1) for n, c in enumerate(s))
                     for x, s in zip(primals, series, strict=True)])  # fmt: skip

    values = mpijax.jit(mpijax.vmap(at))(PLACES)
    return mpijax.tree.map(lambda v: [np.tensordot(w, np.asarray(v), 1) for w in WEIGHTS[1 : ORDER + 1]], values)


def matrix(x):
    return 2 * jnp.eye(3) + jnp.outer(x, jnp.cos(x)) + jnp.outer(jnp.sin(x), x)


def symmetric(x):
    return matrix(x) + matrix(x).T


ANYWHERE = {
    "exp": jnp.exp, "exp2": jnp.exp2, "expm1": jnp.expm1, "sin": jnp.sin, "cos": jnp.cos, "tan": jnp.tan,
    "sinh": jnp.sinh, "cosh": jnp.cosh, "tanh": jnp.tanh, "logistic": mpijax.nn.sigmoid, "log1p": jnp.log1p,
    "asin": jnp.arcsin, "acos": jnp.arccos, "atan": jnp.arctan, "asinh": jnp.arcsinh, "atanh": jnp.arctanh,
    "erf": special.erf, "erfc": special.erfc, "erf_inv": special.erfinv, "abs": jnp.abs, "square": jnp.square,
    "floor": lambda x: x * jnp.floor(4 * x),
    "integer powers": lambda x: x**3 + x**-2 + x**0 + x**6 * x**1, "at zero": lambda x: (x - X) ** 4,
    "quotient": lambda x: x * x / (x + 3), "wide product": lambda x: lax.mul(x, jnp.sin(x), out_dtype=x.dtype), "constant over": lambda x: 2 / (x + 3), "over constant": lambda x: x * x / 3,
    "power of constant": lambda x: 2.0**x, "softmax": mpijax.nn.softmax, "logsumexp": special.logsumexp,
    "gelu": mpijax.nn.gelu, "relu": lambda x: mpijax.nn.relu(x) * x, "silu": mpijax.nn.silu,
    "cumsum": jnp.cumsum, "cumprod": jnp.cumprod, "cummax": lambda x: lax.cummax(x * x),
    "cumlogsumexp": lambda x: lax.cumlogsumexp(x), "sum": lambda x: jnp.sum(x * x), "max": lambda x: jnp.max(x * x),
    "min": lambda x: x * jnp.min(x), "prod": jnp.prod, "sort": lambda x: jnp.sort(x * x),
    "where": lambda x: jnp.where(x > 0, x * x, jnp.sin(x)), "clip": lambda x: jnp.clip(x, -0.3, 0.5) * x,
    "maximum": lambda x: jnp.maximum(x, x * x), "minimum": lambda x: jnp.minimum(jnp.sin(x), x * x),
    "rem": lambda x: x % 0.25,
    "reverse": lambda x: x[::-1] * x, "slice": lambda x: lax.dynamic_slice(x * x, (1,), (2,)),
    "update": lambda x: lax.dynamic_update_slice(x, jnp.sin(x[:1]), (1,)),
    "gather": lambda x: x[jnp.array([0, 2])] ** 2,
    "scatter": lambda x: x.at[jnp.array([0, 2])].add(jnp.sin(x[:2])), "scatter product": lambda x: x.at[0].multiply(x[1]),
    "pad": lambda x: jnp.pad(x, 1) ** 2, "concatenate": lambda x: jnp.concatenate([x, x * x]),
    "dot": lambda x: jnp.dot(x, x), "matmul": lambda x: matrix(x) @ matrix(x),
    "convolve": lambda x: jnp.convolve(x, jnp.sin(x)),
    "fft": lambda x: jnp.abs(jnp.fft.fft(x)) ** 2, "complex": lambda x: jnp.exp(lax.complex(x, x * x)).imag,
    "window": lambda x: lax.reduce_window(x * x, -jnp.inf, lax.max, (2,), (1,), "SAME"),
    "split and stack": lambda x: jnp.stack(jnp.split(x * x, 3)), "solve": lambda x: jnp.linalg.solve(matrix(x), x),
    "cholesky": lambda x: jnp.linalg.cholesky(symmetric(x)), "inverse": lambda x: jnp.linalg.inv(matrix(x)),
    "determinant": lambda x: jnp.linalg.det(matrix(x)), "eigenvalues": lambda x: jnp.linalg.eigh(symmetric(x))[0],
    "triangular": lambda x: linalg.solve_triangular(jnp.tril(matrix(x)), x, lower=True),
    "jit": lambda x: mpijax.jit(lambda y, n: {"y": y * x * n, "n": n + 1})(jnp.sin(x), 2)["y"],
    "vmap": lambda x: mpijax.vmap(lambda y: jnp.sin(y) * y)(x),
    "gradient": lambda x: mpijax.grad(lambda y: jnp.sum(jnp.sin(y) ** 2))(x),
    "checkpoint": lambda x: mpijax.checkpoint(lambda y: jnp.sin(y) * y)(x),
    "cond": lambda x: lax.cond(x[0] > 0, lambda y: (jnp.sin(y), 1.0), lambda y: (jnp.cos(y), y[0]), x),
    "switch": lambda x: lax.switch(1, [jnp.cos, jnp.exp, lambda y: 2 * y], x),
    "scan": lambda x: lax.scan(lambda c, a: ((c[0] * a, c[1] + 1), jnp.sin(c[0]) * c[1]), (x[1], 0), x),
    "scan from a constant": lambda x: lax.scan(lambda c, _: (c * x, c), jnp.ones(3), None, length=3),
    "while": lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1]) * x), (0, jnp.ones(3)))[1],
    "fori": lambda x: lax.fori_loop(0, 2, lambda i, c: c * c + i, x),
    "tree": lambda x: {"a": x * x, "b": [3.0 * x[0], jnp.sum(x)]},
}  # fmt: skip
WHERE_POSITIVE = {
    "log": jnp.log, "sqrt": jnp.sqrt, "rsqrt": lax.rsqrt, "cbrt": jnp.cbrt, "power": lambda x: x**2.5,
    "both of a power": lambda x: x**x, "acosh": lambda x: jnp.arccosh(x + 1), "log2": jnp.log2,
    "igamma": lambda x: special.gammainc(2.0, x), "lgamma": special.gammaln, "digamma": special.digamma,
    "reciprocal": lambda x: 1 / x, "atan2": lambda x: jnp.arctan2(x, x * x), "hypot": lambda x: jnp.hypot(x, x * x),
}  # fmt: skip
CASES = [(name, fun, X) for name, fun in ANYWHERE.items()] + [(n, f, POSITIVE) for n, f in WHERE_POSITIVE.items()]


@pytest.mark.parametrize(("fun", "x"), one_in(2, [pytest.param(f, x, id=name) for name, f, x in CASES]))
@pytest.mark.one_in(4)
def test_series_are_finite_differences(fun, x):
    with mpijax.enable_x64():
        value, terms = mpijax.jit(lambda x, s: jet(fun, (x,), (s,)))(x, SERIES)
        wanted = differences(fun, (x,), (SERIES,))
        exact = fun(jnp.asarray(x))
    for a, b in zip(mpijax.tree.leaves(value), mpijax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)
    for a, b in zip(mpijax.tree.leaves(terms), mpijax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)


def test_several_arguments_constants_and_what_is_closed_over():
    fun = lambda x, y, n: (jnp.sin(x) * y**n + lax.stop_gradient(x), n + 1, 2.0)
    points, series = (X, POSITIVE), (SERIES, [2 * c for c in SERIES])
    with mpijax.enable_x64():
        value, terms = jet(fun, (*points, 3), (*series, [0, 0, 0]))
        wanted = differences(lambda x, y: jnp.sin(x) * y**3, points, series)
        assert value[1:] == (4, 2.0)
    np.testing.assert_allclose(value[0], np.sin(X) * POSITIVE**3 + X, rtol=1e-12)
    np.testing.assert_allclose(terms[0], wanted, rtol=2e-6, atol=2e-6)
    for constant in terms[1:]:
        assert [(c.shape, c.dtype, float(np.asarray(c))) for c in constant] == [((), np.float64, 0.0)] * ORDER


def test_coefficients_without_factorials():
    scaled = [c / math.factorial(n + 1) for n, c in enumerate(SERIES)]
    value, terms = jet(jnp.exp, (X,), (SERIES,))
    other, coefficients = module.jet2(jnp.exp, (X,), (scaled,))
    np.testing.assert_array_equal(value, other)
    for n, (a, b) in enumerate(zip(terms, coefficients, strict=True)):
        np.testing.assert_allclose(a, b * math.factorial(n + 1), rtol=1e-6)
        np.testing.assert_allclose(module.fact(n + 1), math.factorial(n + 1), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.complex64, np.float16])
def test_types_are_those_of_the_function(dtype):
    x = jnp.asarray(X, dtype)
    value, terms = jet(lambda x: jnp.exp(x) * x / 3, (x,), ([1.0, jnp.zeros(3, dtype)],))
    assert {a.dtype for a in (value, *terms)} == {np.dtype(dtype)} and {a.shape for a in terms} == {(3,)}
    exact = [np.exp(X) * (X + n) / 3 for n in range(3)]
    tolerance = 0.03 if np.dtype(dtype).itemsize == 2 else 1e-5
    np.testing.assert_allclose(np.stack([np.asarray(a, complex) for a in (value, *terms)]), exact, tolerance, tolerance)


def test_integers_become_floats_with_their_series():
    value, [slope] = jet(jnp.sin, (1,), ((1.0,),))
    np.testing.assert_allclose([value, slope], [np.sin(1), np.cos(1)], rtol=1e-6)


def test_it_can_be_differentiated_batched_and_nested():
    third = lambda x: jet(jnp.sin, (x,), ((1.0, 0.0, 0.0),))[1][2]
    np.testing.assert_allclose(mpijax.grad(third)(0.5), np.sin(0.5), rtol=1e-5)
    np.testing.assert_allclose(mpijax.vmap(third)(jnp.float32(X)), -np.cos(X), rtol=1e-5)
    np.testing.assert_allclose(jet(third, (0.5,), ((1.0,),))[1], [np.sin(0.5)], rtol=1e-5)


def test_functions_with_derivatives_of_their_own_are_expanded_themselves():
    double = mpijax.custom_jvp(lambda x: 2 * x * x)
    double.defjvp(lambda primals, tangents: (double(*primals), 100 * tangents[0]))
    other = mpijax.custom_vjp(lambda x: x * x)
    other.defvjp(lambda x: (x * x, None), lambda _, ct: (100 * ct,))
    for fun in (lambda x: double(x) + other(x), mpijax.jit(lambda x: double(x) + other(x))):
        assert [float(c) for c in jet(fun, (2.0,), ((1.0, 0.0),))[1]] == [12.0, 6.0]


@pytest.mark.parametrize("fun", [jnp.exp, jnp.tanh, jnp.sqrt, lambda x: x**2.5, special.erf, lambda x: lax.scan(
    lambda c, _: (jnp.sin(c), None), x, None, length=5)[0]])  # fmt: skip
@pytest.mark.one_in(2)
def test_programs_grow_with_the_square_of_the_order(fun):
    def operations(order):
        count = lambda jaxpr: sum(1 + sum(map(count, mpijax.extend.core.jaxprs_in_params(e.params))) for e in jaxpr.eqns)
        return count(mpijax.make_jaxpr(lambda x: jet(fun, (x,), ([1.0] * order,)))(1.0).jaxpr)

    assert operations(16) < 8 * operations(8)


def test_rules_that_users_add():
    twice = mpijax.extend.core.Primitive("twice_in_jet")
    twice.def_impl(lambda x: 2 * x)
    twice.def_abstract_eval(lambda x: x)
    rules = {
        "linear": module.deflinear, "zero": module.defzero, "comp": lambda p: module.def_comp(p, jnp.sin),
        "deriv": lambda p: module.def_deriv(p, lambda x: 3 * x**2),
    }  # fmt: skip
    sine = [np.cos(0.5), np.cos(0.5) - np.sin(0.5)]
    wanted = {"linear": [2.0, 2.0], "zero": [0.0, 0.0], "comp": sine, "deriv": [0.75, 3.75]}
    for name, define in rules.items():
        define(twice)
        _, terms = jet(twice.bind, (jnp.float32(0.5),), ((1.0, 1.0),))
        np.testing.assert_allclose(terms, wanted[name], rtol=1e-6, err_msg=name)
    del module.jet_rules[twice]


@pytest.mark.parametrize(
    ("primals", "series", "error", "text"),
    [
        ((X, X), (SERIES, SERIES[:1]), ValueError, "inconsistent lengths"),
        (({"a": X},), (SERIES,), ValueError, "primal value at position 0 is not an array"),
        ((X,), ([{"a": X}],), ValueError, "term 0 for argument 0 is not an array"),
        ((X,), ([X, X[:2]],), TypeError, r"term 1 for argument 0 has shape \(2,\)"),
    ],
)
def test_what_is_no_series_is_refused(primals, series, error, text):
    with pytest.raises(error, match=text):
        jet(lambda *xs: xs[0], primals, series)
