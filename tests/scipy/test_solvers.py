"""Iterative solvers, minimization, interpolation, clustering, integration."""

import importlib

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.interpolate
import scipy.optimize
from oracle import OURS, THEIRS
from quickly import one_in

import mpijax
import mpijax.numpy as jnp
from mpijax.experimental import sparse
from mpijax.scipy import cluster, integrate, interpolate, optimize
from mpijax.scipy.sparse.linalg import bicgstab, cg, gmres

for module in ("cluster.vq", "interpolate", "optimize", "sparse.linalg"):
    importlib.import_module(f"jax.scipy.{module}")  # which `jax.scipy` does not load by itself

RNG = np.random.default_rng(0)
N = 12
ROOT = RNG.normal(size=(N, N))
SYMMETRIC = (ROOT @ ROOT.T / N + np.eye(N)).astype(np.float32)
GENERAL = (np.eye(N) * 3 + ROOT / 3).astype(np.float32)
HERMITIAN = (SYMMETRIC + 0.2j * (ROOT - ROOT.T) / N).astype(np.complex64)
B = RNG.normal(size=N).astype(np.float32)
SOLVERS = [
    (cg, SYMMETRIC),
    (cg, HERMITIAN),
    (bicgstab, GENERAL),
    (bicgstab, GENERAL + 0.2j * np.eye(N, k=1)),
    (gmres, GENERAL),
    (gmres, GENERAL + 0.2j * np.eye(N, k=1)),
    (lambda *args, **kw: gmres(*args, solve_method="incremental", **kw), GENERAL),
    (lambda *args, **kw: gmres(*args, restart=3, **kw), GENERAL),
]
IDS = "cg cg-complex bicgstab bicgstab-complex gmres gmres-complex gmres-incremental gmres-restarted".split()


FORMS = ("function", "preconditioned", "jit")
# Complex numbers, and the ways of gmres, are the same in all forms.
EVERYWHERE = ("cg", "bicgstab", "gmres")


@pytest.mark.parametrize(
    ("form", "solver", "A"),
    one_in(3, [
        pytest.param(form, *row, id=f"{form}-{name}")
        for form in FORMS
        for name, row in zip(IDS, SOLVERS, strict=True)
        if form == "preconditioned" or name in EVERYWHERE
    ], rows=True),
)
@pytest.mark.one_in(2)
def test_solutions(form, solver, A):
    A = A.astype(np.complex64 if np.iscomplexobj(A) else np.float32)
    b = B.astype(A.dtype)
    calls = {
        "function": lambda: solver(lambda x: {"v": jnp.asarray(A) @ x["v"]}, {"v": b})[0]["v"],
        "preconditioned": lambda: solver(A, b, x0=np.ones_like(b), tol=0.0, atol=1e-5, M=np.diag(1 / np.diag(A)))[0],
        "jit": lambda: mpijax.jit(lambda A, b: solver(A, b)[0])(A, b),
    }
    np.testing.assert_allclose(calls[form](), np.linalg.solve(A, b), rtol=2e-3, atol=2e-4)


def test_sparse_operators():
    diagonal = np.arange(1, len(B) + 1, dtype=np.float32)
    A, M = (sparse.BCOO.fromdense(jnp.diag(jnp.asarray(d))) for d in (diagonal, 1 / diagonal))
    np.testing.assert_allclose(cg(A, B.astype(np.float32), M=M)[0], B / diagonal, rtol=1e-5)


@pytest.mark.parametrize(("solver", "A"), [SOLVERS[0], SOLVERS[2], SOLVERS[4]], ids=["cg", "bicgstab", "gmres"])
@pytest.mark.one_in(3)
def test_derivatives_of_solutions(solver, A):
    loss = lambda solve: lambda A, b: jnp.sum(jnp.sin(solve(A, b)))
    ours = mpijax.jit(mpijax.grad(loss(lambda A, b: solver(A, b, tol=1e-6)[0]), (0, 1)))(A, B)
    x = np.linalg.solve(A, B)
    by_b = np.linalg.solve(A.T, np.cos(x))
    np.testing.assert_allclose(ours[1], by_b, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(ours[0], -np.outer(by_b, x), rtol=5e-3, atol=5e-4)
    many = mpijax.vmap(lambda b: solver(A, b)[0])(np.stack([B, 2 * B]))
    np.testing.assert_allclose(many[1], 2 * x, rtol=2e-3, atol=5e-4)


@pytest.mark.slow  # by default the solutions have their ends
def test_ends_of_iterations():
    assert cg(SYMMETRIC, np.zeros(N, np.float32))[1] is None
    for solver in (cg, bicgstab, gmres):
        assert np.all(np.asarray(solver(SYMMETRIC, np.zeros(N, np.float32))[0]) == 0)
        np.testing.assert_array_equal(solver(SYMMETRIC, B, maxiter=0)[0], np.zeros(N))
    x, info = gmres(np.eye(N, dtype=np.float32), B)
    assert int(info) == 0
    np.testing.assert_allclose(x, B, rtol=1e-5)


@pytest.mark.parametrize("solver", [cg, *(pytest.param(s, marks=pytest.mark.slow) for s in (bicgstab, gmres))])
def test_types_of_solutions(solver):
    theirs = getattr(THEIRS.scipy.sparse.linalg, solver.__name__)
    assert solver(lambda x: x, 1.0)[0].weak_type == theirs(lambda x: x, 1.0)[0].weak_type
    for method in ("batched", "incremental") if solver is gmres else (None,):
        with mpijax.numpy_dtype_promotion("strict"):
            x = solver(HERMITIAN, B.astype(HERMITIAN.dtype), **({"solve_method": method} if method else {}))[0]
        np.testing.assert_allclose(x, np.linalg.solve(HERMITIAN, B), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(
    "call",
    [
        lambda J: J.scipy.sparse.linalg.cg(np.ones((2, 3)), np.ones(2)),
        lambda J: J.scipy.sparse.linalg.cg(3, np.ones(2)),
        lambda J: J.scipy.sparse.linalg.gmres(np.eye(2), np.ones(2), solve_method="best"),
        lambda J: J.scipy.sparse.linalg.bicgstab(np.eye(2), np.ones(2), (np.ones(2),)),
        lambda J: J.scipy.optimize.minimize(lambda x: x.sum(), np.ones(2), method="newton"),
        lambda J: J.scipy.optimize.minimize(lambda x: x.sum(), np.ones(2), 3, method="BFGS"),
        lambda J: J.scipy.interpolate.RegularGridInterpolator((np.arange(3.0),), np.ones(3), "cubic"),
        lambda J: J.scipy.interpolate.RegularGridInterpolator((np.arange(3.0),), np.ones(3), bounds_error=True),
        lambda J: J.scipy.interpolate.RegularGridInterpolator((np.arange(3.0),) * 2, np.ones(3)),
        lambda J: J.scipy.interpolate.RegularGridInterpolator((np.arange(3.0),), np.ones(3), fill_value=1j),
        lambda J: J.scipy.interpolate.RegularGridInterpolator((np.arange(3.0),), np.ones(3))(np.ones((2, 2))),
        lambda J: J.scipy.cluster.vq.vq(np.ones(3), np.ones((3, 1))),
        lambda J: J.scipy.cluster.vq.vq(np.ones((3, 1, 1)), np.ones((3, 1, 1))),
    ],
)
def test_errors_are_jaxs(call):
    kinds = []
    for library in (THEIRS, OURS):
        with pytest.raises(Exception) as caught:
            call(library)
        kinds.append(caught.type.__name__)
    assert kinds[0] == kinds[1]


# ---------------------------------------------------------------- minimization

FUNCTIONS = {
    "rosenbrock": (lambda np: lambda x: np.sum(100 * np.diff(x) ** 2 + (1 - x[:-1]) ** 2), np.zeros(2)),
    "himmelblau": (lambda np: lambda p: (p[0] ** 2 + p[1] - 11) ** 2 + (p[0] + p[1] ** 2 - 7) ** 2, np.ones(2)),
    "matyas": (lambda np: lambda p: 0.26 * (p[0] ** 2 + p[1] ** 2) - 0.48 * p[0] * p[1], np.ones(2)),
    "eggholder": (
        lambda np: lambda p: -(p[1] + 47) * np.sin(np.sqrt(abs(p[0] / 2 + p[1] + 47)))
        - p[0] * np.sin(np.sqrt(abs(p[0] - p[1] - 47))),
        np.full(2, 100.0),
    ),
    "quartic": (lambda np: lambda x: np.sum((x - 3) ** 4 + x**2), np.zeros(5)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("method", ["BFGS", "l-bfgs-experimental-do-not-rely-on-this"])
@pytest.mark.one_in(2)
def test_minima(name, method):
    make, x0 = FUNCTIONS[name]
    theirs = scipy.optimize.minimize(make(np), x0, method="BFGS")
    with mpijax.enable_x64():
        ours = mpijax.jit(lambda x: optimize.minimize(make(jnp), x, method=method))(x0)
        assert bool(ours.success) and int(ours.status) == 0
        np.testing.assert_allclose(ours.fun, theirs.fun, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(ours.x, theirs.x, rtol=2e-3, atol=2e-3)
        assert 0 < int(ours.nit) < 200 and int(ours.nfev) >= int(ours.nit)


def test_minimize_in_float32_with_arguments_and_limits():
    fun = lambda x, c: jnp.sum((x - c) ** 2 * jnp.arange(1.0, 4))
    found = optimize.minimize(fun, jnp.zeros(3), (2.0,), method="bfgs")
    np.testing.assert_allclose(found.x, np.full(3, 2), rtol=1e-4)
    assert found.hess_inv.shape == (3, 3) and bool(found.success)
    stopped = optimize.minimize(fun, jnp.zeros(3), (2.0,), method="bfgs", options={"maxiter": 1})
    assert int(stopped.status) == 1 and not bool(stopped.success)
    steep = optimize.minimize(lambda x: jnp.mean((1e4 * x) ** 2), jnp.ones(2), method="bfgs")
    np.testing.assert_allclose(steep.x, np.zeros(2), atol=1e-6)


def test_limited_memory_tries_whole_steps_as_jax_does():
    matyas = lambda x: 0.26 * (x[0] ** 2 + x[1] ** 2) - 0.48 * x[0] * x[1]
    options = {"gtol": 1e-7}
    theirs, ours = (
        J.scipy.optimize.minimize(
            matyas, np.full(2, 6, np.float32), method="l-bfgs-experimental-do-not-rely-on-this", options=options
        )
        for J in (THEIRS, OURS)
    )
    assert (int(ours.nit), int(ours.nfev)) == (int(theirs.nit), int(theirs.nfev))
    np.testing.assert_allclose(ours.x, np.zeros(2), atol=1e-9)


@pytest.mark.parametrize("promotion", ["standard", pytest.param("strict", marks=pytest.mark.slow)])
@pytest.mark.slow  # by default the minima are of real numbers
def test_minima_of_complex_numbers(promotion):
    goal, weights = np.complex64([1 + 2j, -1j, 3]), np.float32([1, 5, 20])

    def found(J):
        fun = lambda z: J.numpy.sum(abs(z - goal) ** 2 * weights) + J.numpy.sum(abs(z) ** 4)
        with J.numpy_dtype_promotion(promotion):
            return J.scipy.optimize.minimize(fun, goal / 2, method="l-bfgs-experimental-do-not-rely-on-this")

    ours, theirs = found(OURS), found(THEIRS)
    np.testing.assert_allclose(ours.x, theirs.x, rtol=1e-3, atol=1e-3)
    assert ours.jac.dtype == theirs.jac.dtype


# ---------------------------------------------------------------- interpolation, clusters, integrals


@pytest.mark.sweep
@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("fill", [np.nan, -1.0, None])
def test_interpolation(method, fill):
    grid = (np.array([0.0, 1, 3, 4]), np.linspace(-1, 1, 5))
    values = RNG.normal(size=(4, 5, 2))
    at = np.stack([RNG.uniform(-0.5, 4.5, size=30), RNG.uniform(-1.2, 1.2, size=30)], -1).reshape(5, 6, 2)
    theirs = scipy.interpolate.RegularGridInterpolator(grid, values, method, bounds_error=False, fill_value=fill)(at)
    interpolator = interpolate.RegularGridInterpolator(grid, values, method, fill_value=fill)
    ours = mpijax.jit(lambda f, x: f(x))(interpolator, at)
    assert ours.shape == (5, 6, 2)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(interpolator((at[..., 0], at[..., 1])), ours, rtol=1e-5, atol=1e-6)
    line = interpolate.RegularGridInterpolator((grid[0],), grid[0] ** 2)
    assert float(mpijax.grad(lambda x: line(jnp.array([x]))[0])(2.0)) == 4


@pytest.mark.parametrize("features", [0, 3])
def test_vq(features):
    shape = (features,) if features else ()
    obs, book = RNG.normal(size=(9, *shape)), RNG.normal(size=(4, *shape))
    ours, theirs = cluster.vq.vq(obs, book), scipy.cluster.vq.vq(obs, book)
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5)


def test_trapezoid():
    x = np.array([0.0, 1, 3])
    assert float(integrate.trapezoid(x**2, x)) == pytest.approx(np.trapezoid(x**2, x))
    assert float(integrate.trapezoid(x, dx=0.5)) == pytest.approx(np.trapezoid(x, dx=0.5))


@pytest.mark.parametrize("module", ["sparse.linalg", "optimize", "interpolate", "cluster.vq", "integrate"])
def test_all_of_jaxs_names_are_there(module):
    ours = __import__(f"mpijax.scipy.{module}", fromlist=["x"])
    theirs = __import__(f"jax.scipy.{module}", fromlist=["x"])
    assert {n for n in dir(theirs) if not n.startswith("_")} - set(dir(ours)) == set()


def test_what_is_left_out_says_so():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        mpijax.scipy.nothing  # noqa: B018
