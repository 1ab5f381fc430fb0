"""Special functions beside SciPy's, with edges; derivatives beside differences; jit and vmap beside eager calls."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.special as expected
from oracle import OURS, THEIRS
from quickly import one_in

import mpijax
import mpijax.numpy as jnp
from mpijax.scipy import special

EDGES = np.array([0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan, 1e-30, 1e30, 0.5, -0.5, -2.0, 3e-3])
X = np.concatenate([np.random.default_rng(0).normal(size=40) * 3, EDGES])
POSITIVE = abs(X[:40]) + 0.05
P = np.concatenate([np.random.default_rng(1).uniform(size=30), [0, 1, 0.5, 1e-30, -1, 2, np.nan]])
A = np.random.default_rng(2).uniform(0.3, 6, size=40)
B = np.random.default_rng(3).uniform(0.3, 6, size=40)
ORDERS = np.arange(40) % 5

ONE = {
    "dawsn digamma entr erf erfc erfcx exp1 expi expit factorial gamma gammaln gammasgn i0e i1e": X,
    "ndtr log_ndtr spence": X,
    "erfinv logit ndtri": P,
    "i0 i1": X[:40],
    "loggamma": POSITIVE,
    "sici fresnel": X,
}
TWO = {
    "beta comb gammainc gammaincc": (A, B),
    "betaln": (np.append(A, [9, 3e4, 12, -0.5]), np.append(B, [12, 2e5, 0.3, 0.7])),
    "poch": (
        np.append(A, [-3, -3, -2.5, -2.5, 0, 3, 1e3, -1, -1e10, -1e20]),
        np.append(B, [2, 5, 1.5, 3, 2, -5, -0.5, 2, 2, 2]),
    ),
    "zeta": (A + 1, B),
    "polygamma expn": (ORDERS, POSITIVE),
    "xlogy xlog1py boxcox1p boxcox": (np.append(A, [0, 0, 0, 1]), np.append(B, [0, np.inf, np.nan, 0])),
    "kl_div rel_entr": (np.append(A, [0, 0, -1, 1, np.nan]), np.append(B, [0, 1, 1, 0, 1])),
    "owens_t": (np.append(X[:40], [0, np.inf, 1]), np.append(B, [1, 2, -np.inf])),
}
MORE = {
    "betainc": (
        np.append(A, [300, 300, 1e4, 0, 0.5, np.inf, 2, 2, -1]),
        np.append(B, [0.2, 500, 1e4, 1, 0, 2, np.inf, np.nan, 1]),
        np.append(P[np.arange(40) % 32], [0.999, 0.35, 0.497, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]),
    ),
    "hyp1f1": (A, B, X[:40]),
    "hyp2f1": (A, B, A + B + 0.7, np.linspace(-3, 0.99, 40)),
}
# Where JAX's values, which are ours, are not SciPy's: at poles and beyond the domain.
DIFFER = {
    "gammasgn gammaln": lambda x: np.isinf(x),
    "digamma": lambda x: x == 0,
    "factorial": lambda x: np.isinf(x) | np.isnan(x) | ((x < 0) & (x > -1)),
    "gamma": lambda x: x == -np.inf,
    "exp1": lambda x: x < 0,
    "rel_entr kl_div": lambda p, q: np.isnan(p),
}
DIFFER = {name: where for names, where in DIFFER.items() for name in names.split()}
CASES = [
    (name, args if isinstance(args, tuple) else (args,))
    for names, args in itertools.chain(ONE.items(), TWO.items(), MORE.items())
    for name in names.split()
]


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "args"), CASES, ids=[name for name, _ in CASES])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.one_in(4)
def test_values_are_scipys(name, args, dtype):
    args = [a if a.dtype.kind == "i" else a.astype(dtype) for a in args]
    skip = DIFFER.get(name)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = getattr(expected, name)(*[a if a.dtype.kind == "i" else a.astype("float64") for a in args])
        # Past the largest float32 theirs are finite in double precision only.
        theirs = [t.astype(dtype) for t in (theirs if isinstance(theirs, tuple) else (theirs,))]
        kept = ~skip(*args) if skip else slice(None)
    with mpijax.enable_x64(dtype == "float64"):
        ours = getattr(special, name)(*args)
        jitted = mpijax.jit(getattr(special, name))(*args)
        mapped = mpijax.vmap(getattr(special, name))(*args) if dtype == "float32" else ours
    for t, o, j, v in zip(*map(np.atleast_2d, (theirs, ours, jitted, mapped)), strict=True):
        assert o.dtype == dtype
        rtol = 2e-5 if dtype == "float32" else 1e-11
        np.testing.assert_allclose(o[kept], t[kept], rtol=rtol, atol=1e-6 if dtype == "float32" else 1e-12)
        np.testing.assert_allclose(j, o, rtol=1e-6)
        np.testing.assert_allclose(v, o, rtol=1e-6)


# ---------------------------------------------------------------- derivatives


# Those that are not constant, and have a derivative by each argument.
SMOOTH = [case for case in CASES if case[0] not in ("gammasgn", "expn", "polygamma", "betainc")]


@pytest.mark.parametrize(("name", "args"), one_in(3, SMOOTH, rows=True), ids=[name for name, _ in SMOOTH])
@pytest.mark.one_in(3)
def test_derivatives_are_those_of_differences(name, args):
    inner = [np.clip(a[:6], 0.15, 0.85) if a is P else abs(a[:6]) + 0.01 for a in args]
    if name == "hyp2f1":
        inner[-1] = inner[-1] / 4
    fun = getattr(special, name)
    step = 1e-6
    with mpijax.enable_x64():
        for i, x in enumerate(inner):
            beside = [np.asarray(fun(*inner[:i], x + s, *inner[i + 1 :])) for s in (step, -step)]
            _, slope = mpijax.jvp(lambda x: fun(*inner[:i], x, *inner[i + 1 :]), (x,), (np.ones_like(x),))  # noqa: B023
            np.testing.assert_allclose(np.asarray(slope), (beside[0] - beside[1]) / (2 * step), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("fun", "slope", "at"),
    [
        (lambda J: lambda x: J.scipy.special.xlogy(x, 0.5), np.log(0.5), 0.0),
        (lambda J: lambda x: J.scipy.special.xlog1py(x, 0.5), np.log(1.5), 0.0),
        (lambda J: lambda x: J.scipy.special.spence(x), -1.0, 1.0),
        (lambda J: lambda x: J.scipy.special.expn(3, x), -expected.expn(2, 0.7), 0.7),
        (lambda J: lambda x: J.scipy.special.polygamma(2, x), expected.polygamma(3, 0.7), 0.7),
        (lambda J: lambda x: J.scipy.special.betainc(2.0, 3.0, x), 12 * 0.4 * 0.36, 0.4),
        (lambda J: lambda x: J.scipy.special.log_ndtr(x), 20.0497, -20.0),
        (lambda J: lambda x: J.scipy.special.sici(x)[0], 1.0, 0.0),
        (lambda J: lambda x: J.scipy.special.bessel_jn(x, v=2)[2], expected.jvp(2, 1.3), 1.3),
    ],
)
@pytest.mark.one_in(3)
def test_derivatives_at_edges(fun, slope, at):
    assert float(mpijax.jit(mpijax.grad(fun(OURS)))(at)) == pytest.approx(slope, rel=1e-5)


def test_second_derivatives():
    second = mpijax.grad(mpijax.grad(lambda p: special.ndtri(p)))(0.3)
    z = expected.ndtri(0.3)
    assert float(second) == pytest.approx(2 * np.pi * z * np.exp(z * z), rel=1e-5)
    assert float(mpijax.grad(mpijax.grad(special.dawsn))(0.0)) == 0


def test_orders_have_no_derivatives():
    for call in (lambda n: special.expn(n, 1.0), lambda n: special.polygamma(2, 1.0) * special.expn(n, 2.0)):
        with pytest.raises(ValueError, match="no derivative with respect to its order"):
            mpijax.grad(call)(2.0)


# ---------------------------------------------------------------- complex numbers, arrays of orders


@pytest.mark.parametrize("name", ["wofz", "erfcx", "gamma", "loggamma"])
def test_complex_values(name):
    rng = np.random.default_rng(0)
    z = (rng.normal(size=20) * 2 + 1j * rng.normal(size=20)).astype(np.complex64)
    fun = getattr(special, name)
    np.testing.assert_allclose(fun(z), getattr(expected, name)(z.astype(complex)), rtol=1e-5)
    _, slope = mpijax.jvp(fun, (z,), (np.ones_like(z),))
    theirs = getattr(expected, name)
    differences = (theirs(z.astype(complex) + 1e-6) - theirs(z.astype(complex) - 1e-6)) / 2e-6
    np.testing.assert_allclose(slope, differences, rtol=1e-3)


def test_bessel_functions_of_all_orders():
    z = np.linspace(0, 20, 12).reshape(3, 4).astype(np.float32)
    ours = special.bessel_jn(z, v=3)
    assert ours.shape == (4, 3, 4) and special.bessel_jn(2.0, v=1).shape == (2,)
    np.testing.assert_allclose(ours, [expected.jv(n, z) for n in range(4)], rtol=1e-4, atol=1e-6)
    mapped = mpijax.vmap(lambda z: special.bessel_jn(z, v=3), out_axes=1)(z)
    np.testing.assert_allclose(mapped, ours, rtol=1e-6)


@pytest.mark.slow  # by default its docstring has an example
def test_spherical_harmonics():
    n, m = np.array([0, 1, 1, 2, 3, 3]), np.array([0, -1, 1, 0, -2, 3])
    theta, phi = np.linspace(0, np.pi, 6), np.linspace(-3, 3, 6)
    np.testing.assert_allclose(
        special.sph_harm_y(n, m, theta, phi), expected.sph_harm_y(n, m, theta, phi), rtol=2e-5, atol=1e-6
    )
    value = lambda J, t: J.scipy.special.sph_harm_y(np.array([3]), np.array([2]), t, np.array([0.4]), n_max=3)[0].real
    t = np.array([0.7], np.float32)
    ours, theirs = (J.grad(lambda t: value(J, t))(t) for J in (OURS, THEIRS))  # noqa: B023
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    assert np.isfinite(special.sph_harm_y(1, 1, 0.3, 0.1)).all()
    poles = mpijax.vmap(mpijax.grad(lambda t: special.sph_harm_y(2, 1, t, 0.0)[0].real))(np.array([0.0, np.pi]))
    np.testing.assert_allclose(poles, [-0.7725484, -0.7725484], rtol=1e-5)


@pytest.mark.filterwarnings("ignore:jax.scipy.special.lpmn")
@pytest.mark.slow  # by default the next ones have values
def test_associated_legendre_functions():
    """e3nn-jax computes its spherical harmonics of large degrees with them."""
    z = np.array([-1.0, -0.8, 0.0, 0.3, 0.99, 1.0], np.float32)
    for n in (0, 1, 5):
        for ours, wanted in zip(special.lpmn(n, n, z), THEIRS.scipy.special.lpmn(n, n, z), strict=True):
            np.testing.assert_allclose(ours, wanted, rtol=2e-5, atol=2e-4)


@pytest.mark.filterwarnings("ignore:jax.scipy.special.lpmn")
@pytest.mark.parametrize("normalized", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_values_of_associated_legendre_functions(normalized):
    z = np.array([-1.0, -0.8, 0.0, 0.3, 0.99, 1.0], np.float32)
    value = lambda J, z: J.scipy.special.lpmn_values(4, 4, z, normalized)
    np.testing.assert_allclose(value(OURS, z), value(THEIRS, z), rtol=2e-5, atol=1e-5)
    ours, wanted = (J.grad(lambda z: value(J, z).sum())(z[1:-1]) for J in (OURS, THEIRS))  # noqa: B023
    np.testing.assert_allclose(ours, wanted, rtol=2e-4)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 20])
def test_bernoulli_numbers(n):
    np.testing.assert_allclose(special.bernoulli(n), expected.bernoulli(max(n, 2))[: n + 1], rtol=1e-6)


def test_multigammaln():
    ours = special.multigammaln(A.reshape(8, 5) + 3, 3)
    np.testing.assert_allclose(
        ours, np.vectorize(lambda a: expected.multigammaln(a, 3))(A.reshape(8, 5) + 3), rtol=1e-5
    )
    np.testing.assert_array_equal(special.multigammaln(A + 3, 2.0), special.multigammaln(A + 3, 2))


def test_comb_factorial_and_softmax():
    np.testing.assert_allclose(
        special.comb(5, np.arange(-1, 7), repetition=True), [0, 1, 5, 15, 35, 70, 126, 210], rtol=1e-5
    )
    np.testing.assert_allclose(special.factorial(np.arange(-1, 4)), [0, 1, 1, 2, 6], rtol=1e-6)
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(special.softmax(x), expected.softmax(x), rtol=1e-6)
    np.testing.assert_allclose(special.log_softmax(x, axis=1), expected.log_softmax(x, axis=1), rtol=1e-6)


# ---------------------------------------------------------------- bad input, names


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.ndtr(np.arange(3)),
        lambda s: s.ndtri(1),
        lambda s: s.log_ndtr(np.ones(2, np.float16)),
        lambda s: s.log_ndtr(1.0, series_order=1.5),
        lambda s: s.log_ndtr(1.0, series_order=-1),
        lambda s: s.spence(np.ones(2, np.complex64)),
        lambda s: s.polygamma(1.0, 2.0),
        lambda s: s.zeta(2.0),
        lambda s: s.factorial(3, exact=True),
        lambda s: s.bernoulli(-1),
        lambda s: s.expi(1j),
        lambda s: s.betainc(1.0, 2.0, 1j),
        lambda s: s.sph_harm_y(np.array([1]), np.array([0]), np.array([0.1]), np.array([0.1]), diff_n=1),
        lambda s: s.lpmn(3, 2, np.ones(2, np.float32)),
        lambda s: s.lpmn(2, 2, np.ones((2, 2), np.float32)),
        lambda s: s.lpmn_values(2, 2, np.ones(2, np.float16), True),
    ],
)
@pytest.mark.filterwarnings("ignore:jax.scipy.special.lpmn")
def test_errors_are_jaxs(call):
    kinds = []
    for library in (THEIRS, OURS):
        with pytest.raises(Exception) as caught:
            call(library.scipy.special)
        kinds.append(caught.type.__name__)
    assert kinds[0] == kinds[1]


def test_sici_names_its_argument_as_jax_does():
    for library in (THEIRS, OURS):
        with pytest.raises(ValueError, match="Argument `x` to sici must be real-valued. Got dtype complex64."):
            library.scipy.special.sici(1j)


def test_all_of_jaxs_names_are_there():
    names = {n for n in dir(THEIRS.scipy.special) if not n.startswith("_")}
    assert names - set(dir(special)) == set()


def test_narrow_floats_and_integers():
    for dtype in (np.float16, jnp.bfloat16):
        assert special.expi(jnp.ones(2, dtype)).dtype == dtype
    assert special.erfcx(jnp.arange(3)).dtype == np.float32
