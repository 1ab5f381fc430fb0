"""jacfwd, jacrev, hessian, fwd_and_bwd: values, structures, dtypes and errors of JAX's."""

import numpy as np
import pytest
from oracle import OURS, THEIRS, check, run, sample
from quickly import one_in

X2, X3, X23 = sample(2), sample(3), sample(2, 3)
Z3 = sample(3, dtype=np.complex64)
BOTH = ("jacfwd", "jacrev")


def on_trees(J):
    return lambda p: {"sum": p["a"] + p["b"].sum(), "product": (p["a"][0] * p["b"], [p["b"]])}


# A function of the library and its arguments; options of the Jacobian.
CASES = {
    "vector": (lambda J: lambda x: J.numpy.sin(x) * x[0], (X3,), {}),
    "scalar": (lambda J: lambda x: x**3, (2.0,), {}),
    "matrix": (lambda J: lambda x: x.T @ x, (X23,), {}),
    "to a scalar": (lambda J: lambda x: (x**2).sum(), (X23,), {}),
    "constant": (lambda J: lambda x: J.numpy.ones(2), (X3,), {}),
    "empty": (lambda J: lambda x: x * 2, (sample(0),), {}),
    "trees": (on_trees, ({"a": X2, "b": X3},), {}),
    "second argument": (lambda J: lambda x, y: x[:, None] * y, (X2, X3), {"argnums": 1}),
    "negative argument": (lambda J: lambda x, y: x[:, None] * y, (X2, X3), {"argnums": -1}),
    "several arguments": (lambda J: lambda x, y: {"o": x[:, None] * y}, (X2, X3), {"argnums": (0, 1)}),
    "one in a tuple": (lambda J: lambda x, y: x[:, None] * y, (X2, X3), {"argnums": (1,)}),
    "auxiliary": (lambda J: lambda x: (x * x, {"aux": x + 1}), (X3,), {"has_aux": True}),
    "half precision": (lambda J: lambda x: (x * x, x.astype(np.float32)), (sample(3, dtype=np.float16),), {}),
    "holomorphic": (lambda J: lambda z: z * z * z[0], (Z3,), {"holomorphic": True}),
    "keyword": (lambda J: lambda x, y=2.0: x * y, (X3,), {}),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.one_in(3)
def test_jacobians_are_jaxs(kind, name):
    make, args, options = CASES[name]

    def jacobian(J):
        return getattr(J, kind)(make(J), **options)

    check(jacobian, *args, jaxpr=False, jitted=False, compiled=True, rtol=1e-6)
    theirs, ours = (J.tree.structure(J.eval_shape(jacobian(J), *args)) for J in (THEIRS, OURS))
    assert str(ours) == str(theirs)


def test_jacobian_is_jacrev_of_mixed_integers():
    def blocks(J):
        f = J.jacobian(lambda x, i: x * i.sum(), argnums=(0, 1), allow_int=True)
        return [(str(b.dtype), b.shape) for b in f(X3, np.arange(2, dtype=np.int32))]

    assert blocks(OURS) == blocks(THEIRS)


def test_jitted_jacobians_are_the_eager_ones():
    f = CASES["trees"][0](OURS)
    p = {"a": X2, "b": X3}
    for kind in BOTH:
        g = getattr(OURS, kind)(f)
        for a, b in zip(OURS.tree.leaves(OURS.jit(g)(p)), OURS.tree.leaves(g(p)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("name", one_in(2, ["scalar", "vector", "trees", "auxiliary", "several"]))
def test_hessians_are_jaxs(name):
    functions = {
        "scalar": (lambda J: J.hessian(lambda x: x[0] ** 3 - 2 * x[0] * x[1] - x[1] ** 6), (X2,)),
        "vector": (lambda J: J.hessian(lambda x: J.numpy.outer(x, x**2)), (X2,)),
        "trees": (lambda J: J.hessian(lambda d: {"c": d["a"] ** 2 * d["b"][0]}), ({"a": X2, "b": X3},)),
        "auxiliary": (lambda J: J.hessian(lambda x: ((x**3).sum(), x), has_aux=True), (X2,)),
        "several": (lambda J: J.hessian(lambda x, y: (x**2 @ y**2), argnums=(0, 1)), (X2, X2)),
    }
    make, args = functions[name]
    # Only one operation at a time is the auxiliary result the argument itself.
    check(make, *args, jaxpr=False, jitted=False, compiled=name != "auxiliary", rtol=1e-6)


def test_blocks_agree_with_forward_differences():
    def f(x):
        return OURS.numpy.tanh(x).sum(0) * x[0, 1]

    x, eps = np.linspace(0.1, 1, 6, dtype=np.float32).reshape(2, 3), 1e-2
    for kind in BOTH:
        jac = np.asarray(getattr(OURS, kind)(f)(x))
        assert jac.shape == (3, 2, 3)
        for at in np.ndindex(2, 3):
            step = np.zeros_like(x)
            step[at] = eps
            difference = (np.asarray(f(x + step)) - np.asarray(f(x - step))) / (2 * eps)
            np.testing.assert_allclose(jac[(slice(None), *at)], difference, atol=1e-3)


ERRORS = {
    "integers forward": lambda J: J.jacfwd(lambda x: x * 2.0)(3),
    "integers reverse": lambda J: J.jacrev(lambda x: x * 2.0)(3),
    "complex forward": lambda J: J.jacfwd(lambda z: z)(Z3),
    "complex reverse": lambda J: J.jacrev(lambda z: z)(Z3),
    "real holomorphic": lambda J: J.jacfwd(lambda x: x, holomorphic=True)(X3),
    "real holomorphic reverse": lambda J: J.jacrev(lambda x: x, holomorphic=True)(X3),
    "real result": lambda J: J.jacfwd(lambda z: z.real, holomorphic=True)(Z3),
    "integer result": lambda J: J.jacrev(lambda x: x.astype(np.int32))(X3),
    "no function": lambda J: J.jacfwd(3),
    "argument out of range": lambda J: J.jacfwd(lambda x: x, argnums=1)(X3),
    "argument of a wrong type": lambda J: J.jacrev(lambda x: x, argnums="0")(X3),
    "grad of a float argnums": lambda J: J.grad(lambda x: x, argnums=0.0)(1.0),
    "too many cotangents": lambda J: J.vjp(lambda x: (x, x), 1.0)[1](1.0, 2.0),
    "cotangent structure": lambda J: J.vjp(lambda x: (x, x), 1.0)[1]([1.0, 1.0]),
    "cotangent type": lambda J: J.vjp(lambda x: x, X3)[1](X2),
    "linearize structure": lambda J: J.linearize(lambda x: x, X3)[1](X3, X3),
    "linearize type": lambda J: J.linearize(lambda x: x, X3)[1](X2),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_jaxs(name):
    theirs, ours = (run(lambda J=J: ERRORS[name](J)) for J in (THEIRS, OURS))
    assert theirs[0] == "error" and ours[:2] == theirs[:2], f"JAX: {theirs}\nmpijax: {ours}"


@pytest.mark.parametrize("jitted", [True, False])
def test_forward_and_backward_passes(jitted):
    def outcome(J):
        traced = []

        def f(x, w):
            traced.append(1)
            return J.numpy.sin(x @ w), w + 1

        fwd, bwd = J.fwd_and_bwd(f, argnums=(0, 1), has_aux=True, jitted=jitted)
        for _ in range(2):
            y, residuals, aux = fwd(X23, X3)
            cts = bwd(residuals, y)
        return len(traced), [np.asarray(v) for v in (y, aux, *cts)]

    (count, ours), (their_count, theirs) = outcome(OURS), outcome(THEIRS)
    assert count == their_count
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_pullbacks_and_pushforwards_are_pytrees_of_their_residuals():
    _, pullback = OURS.vjp(lambda x: OURS.numpy.sin(x), X3)
    _, push = OURS.linearize(lambda x: OURS.numpy.sin(x), X3)
    for f in (pullback, push):
        assert [leaf.shape for leaf in OURS.tree.leaves(f)] == [(3,)]
    doubled = OURS.tree.map(lambda r: 2 * r, pullback)
    np.testing.assert_allclose(doubled(X3)[0], 2 * pullback(X3)[0])


def test_auxiliary_output_keeps_tangents_of_the_outer_transformation():
    def outer(J):
        return J.grad(lambda x: J.grad(lambda y: (y**2, x**3 + y), has_aux=True)(2 * x)[1])(3.0)

    assert float(outer(OURS)) == float(outer(THEIRS)) == 29


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("argnum", [0, 1])
def test_a_real_operand_beside_a_complex_one(argnum):
    """Its cotangent is the real part, and that is no cast to warn of."""
    check(lambda J: lambda x, z: J.jacrev(lambda x, z: J.lax.dot(x, z).real, argnum)(x, z), X3, Z3, jaxpr=False)
