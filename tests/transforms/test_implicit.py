"""custom_gradient, closure_convert, linear_call, custom_vmap, custom_linear_solve, custom_root: beside JAX."""

import numpy as np
import pytest
from oracle import OURS, THEIRS, check, clean, run, sample
from quickly import one_in

X3, X23 = sample(3), sample(2, 3)
A = np.array([[4, 1, 0.5], [0.25, 3, 1], [1, 0, 5]], np.float32)
SPD = A @ A.T


def solver(J):
    """Solve by the inverse of the matrix that a linear function is, given by Cramer's rule for 3 x 3."""

    def solve(matvec, b):
        m = J.jacobian(matvec)(b)
        cofactors = J.numpy.stack([_cross(J, m[1], m[2]), _cross(J, m[2], m[0]), _cross(J, m[0], m[1])])
        return (b @ cofactors) / (m[0] @ cofactors[0])

    return solve


def _cross(J, a, b):
    return J.numpy.roll(a, -1) * J.numpy.roll(b, 1) - J.numpy.roll(a, 1) * J.numpy.roll(b, -1)


def linear_solve(J, symmetric=False, transposed=True, aux=False):
    def solve(matvec, b):
        x = solver(J)(matvec, b)
        return (x, {"norm": (x**2).sum()}) if aux else x

    def f(a, b):
        if symmetric:
            a = a @ a.T
        tr = solve if transposed and not symmetric else None
        return J.lax.custom_linear_solve(
            lambda x: a @ x, b, solve, transpose_solve=tr, symmetric=symmetric, has_aux=aux
        )

    return f


def square_root(J, aux=False):
    def solve(f, x):
        for _ in range(8):
            x = x - f(x) / (2 * x)
        return (x, {"steps": 0 * x + 8}) if aux else x

    def root(a):
        return J.lax.custom_root(lambda x: x**2 - a, J.numpy.ones_like(a), solve, lambda g, y: y / g(1.0), has_aux=aux)

    return root


def divided(J):
    def f(x, r):
        return J.custom_derivatives.linear_call(lambda r, x: x / r, lambda r, t: 10 * t / r, r, x)

    return f


def vmapped(J):
    f = J.custom_batching.custom_vmap(lambda x, y: x + y)

    @f.def_vmap
    def rule(axis_size, in_batched, x, y):
        return J.numpy.multiply(x, y) * axis_size + (10 if in_batched[1] else 0), in_batched[0] or in_batched[1]

    return f


def gradient(J):
    return J.custom_gradient(lambda x: (x**2, lambda g: (3 * g * x,)))


def gradient_of_two(J):
    def f(x, y):
        z = J.numpy.sin(x)
        return {"z": z * y}, lambda ct: (ct["z"] * z * 5, ct["z"] * 7)

    return J.custom_gradient(f)


def minimize(J):
    """A higher-order function with a derivative of its own: what its argument closes over is found."""

    def outer(a):
        f, consts = J.closure_convert(lambda x: (x - a) ** 2, 1.0)
        assert len(consts) == 1
        g = J.custom_vjp(lambda x, c: f(x, c))
        g.defvjp(lambda x, c: (f(x, c), (x, c)), lambda r, ct: (100 * ct, 1000 * ct * r[1]))
        return g(3.0, *consts)

    return outer


PROGRAMS = {
    "solve": (linear_solve, (A, X3)),
    "solve: jvp": (lambda J: lambda a, b: J.jvp(linear_solve(J), (a, b), (a * 0.5, b)), (A, X3)),
    "solve: grad": (lambda J: J.grad(lambda a, b: (linear_solve(J)(a, b) ** 2).sum(), (0, 1)), (A, X3)),
    "solve: symmetric": (lambda J: J.grad(lambda a: (linear_solve(J, symmetric=True)(a, X3) ** 2).sum()), (A,)),
    "solve: no transpose": (lambda J: J.grad(lambda b: linear_solve(J, transposed=False)(A, b).sum()), (X3,)),
    "solve: aux": (lambda J: J.grad(lambda b: linear_solve(J, aux=True)(A, b)[0].sum()), (X3,)),
    "solve: aux value": (lambda J: linear_solve(J, aux=True), (A, X3)),
    "solve: batch of b": (lambda J: J.vmap(linear_solve(J), (None, 0)), (A, X23)),
    "solve: batch of matrices": (lambda J: J.vmap(linear_solve(J), (0, None)), (np.stack([A, SPD]), X3)),
    "solve: grad of batch": (
        lambda J: J.grad(lambda a, b: J.vmap(linear_solve(J), (0, None))(a, b).sum(), (0, 1)),
        (np.stack([A, SPD]), X3),
    ),
    "solve: reverse over reverse": (
        lambda J: J.grad(lambda b: (J.grad(lambda c: (linear_solve(J)(A, c) ** 2).sum())(b) ** 2).sum()),
        (X3,),
    ),
    "root": (square_root, (2.0,)),
    "root: grad": (lambda J: J.grad(square_root(J)), (2.0,)),
    "root: second order": (lambda J: J.grad(J.grad(square_root(J))), (2.0,)),
    "root: jvp with aux": (lambda J: lambda a: J.jvp(square_root(J, aux=True), (a,), (a,)), (2.0,)),
    "root: batch": (lambda J: J.vmap(J.grad(square_root(J))), (np.array([1, 2], np.float32),)),
    "linear call": (divided, (3.0, 2.0)),
    "linear call: grad": (lambda J: J.grad(lambda x: divided(J)(x, 2.0)), (3.0,)),
    "linear call: jvp": (lambda J: lambda x: J.jvp(lambda y: divided(J)(y, 2.0), (x,), (x,)), (3.0,)),
    "linear call: twice transposed": (
        lambda J: lambda x: J.linear_transpose(
            lambda c: J.linear_transpose(lambda y: divided(J)(y, 2.0), 1.0)(c)[0], 1.0
        )(x),
        (3.0,),
    ),
    "custom vmap": (lambda J: vmapped(J), (X3, X3)),
    "custom vmap: batch": (lambda J: J.vmap(vmapped(J)), (X23, X23)),
    "custom vmap: one batched": (lambda J: J.vmap(vmapped(J), (1, None)), (X23, X3[:2])),
    "custom vmap: in jit": (lambda J: J.vmap(J.jit(vmapped(J))), (X23, X23)),
    "custom vmap: jvp of batch": (
        lambda J: lambda x: J.jvp(J.vmap(vmapped(J)), (x, x), (x, 2 * x)),
        (X3,),
    ),
    "custom vmap: batch of jvp": (
        lambda J: J.vmap(lambda x, t: J.jvp(vmapped(J), (x, x), (t, t)), (0, None)),
        (X3, np.float32(2)),
    ),
    "custom vmap: twice": (lambda J: J.vmap(J.vmap(vmapped(J))), (X23, X23)),
    "sequential vmap": (
        lambda J: J.vmap(J.custom_batching.sequential_vmap(lambda x, y: x * y.sum()), (0, None)),
        (X3, X3),
    ),
    "custom gradient": (lambda J: J.grad(gradient(J)), (2.0,)),
    "custom gradient: two arguments": (lambda J: J.grad(lambda x, y: gradient_of_two(J)(x, y)["z"], (0, 1)), (2.0, 3.0)),
    "custom gradient: batch": (lambda J: J.vmap(J.grad(gradient(J))), (X3,)),
    "closure convert": (lambda J: J.grad(minimize(J)), (2.0,)),
}


@pytest.mark.parametrize("name", one_in(3, PROGRAMS))
@pytest.mark.one_in(3)
def test_values_are_jaxs(name):
    make, args = PROGRAMS[name]
    check(make, *args, jaxpr=False, jitted=False, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["solve: grad", "root: grad", "linear call: grad", "custom vmap: batch"])
@pytest.mark.one_in(2)
def test_jitted_is_eager(name):
    make, args = PROGRAMS[name]
    f = make(OURS)
    for a, b in zip(OURS.tree.leaves(OURS.jit(f)(*args)), OURS.tree.leaves(f(*args)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_solutions_solve():
    for symmetric, m in ((False, A), (True, A @ A.T)):
        x = linear_solve(OURS, symmetric=symmetric)(A, X3)
        np.testing.assert_allclose(m @ np.asarray(x), X3, atol=1e-4)


TEXTS = {
    "root": lambda J: J.make_jaxpr(square_root(J))(2.0),
    "solve": lambda J: J.make_jaxpr(
        lambda a, b: J.lax.custom_linear_solve(lambda x: a * x, b, lambda f, b: b * 2, symmetric=True)
    )(2.0, 3.0),
}


@pytest.mark.parametrize("name", TEXTS)
def test_jaxprs_print_as_jaxs(name):
    ours, theirs = (clean(str(TEXTS[name](J))) for J in (OURS, THEIRS))
    assert ours == theirs


def no_structure(J, what):
    good = {"matvec": lambda x: x, "solve": lambda f, b: b, "transpose_solve": lambda f, b: b}
    wrong = {"matvec": lambda x: (x, x), "solve": lambda f, b: (b, b), "transpose_solve": lambda f, b: (b, b)}[what]
    parts = {**good, what: wrong}
    return J.lax.custom_linear_solve(parts["matvec"], X3, parts["solve"], parts["transpose_solve"])


def batched_rule(J, result):
    f = J.custom_batching.custom_vmap(lambda x: x)
    f.def_vmap(lambda axis_size, in_batched, x: result(x))
    return J.vmap(f)(X3)


ERRORS = {
    "matvec structure": lambda J: no_structure(J, "matvec"),
    "solve structure": lambda J: J.lax.custom_linear_solve(lambda x: x, [X3], lambda f, b: tuple(b)),
    "solve shape": lambda J: J.lax.custom_linear_solve(lambda x: x, X3, lambda f, b: b[:2]),
    "solve aux": lambda J: J.lax.custom_root(lambda x: x, X3, lambda f, x: x, lambda g, y: y, has_aux=True),
    "root structure": lambda J: J.lax.custom_root(lambda x: (x, x), X3, lambda f, x: x, lambda g, y: y),
    "tangent structure": lambda J: J.lax.custom_root(lambda x: x, X3, lambda f, x: x, lambda g, y: (y, y)),
    "no rule": lambda J: J.custom_batching.custom_vmap(lambda x: x)(X3),
    "rule's flags": lambda J: batched_rule(J, lambda x: (x, (True, True))),
    "rule's result": lambda J: batched_rule(J, lambda x: ((x, x), (True, True))),
    "custom vmap: reverse mode": lambda J: J.grad(lambda x: vmapped(J)(x, x))(1.0),
    "converted structure": lambda J: J.closure_convert(lambda x: x, X3)[0]((X3, X3)),
    "linear call structure": lambda J: J.grad(
        lambda x: J.custom_derivatives.linear_call(lambda r, x: x, lambda r, t: (t, t), (), x)
    )(1.0),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_jaxs(name):
    theirs, ours = (run(lambda J=J: ERRORS[name](J)) for J in (THEIRS, OURS))
    if name == "custom vmap: reverse mode":  # JAX fails an assertion
        assert theirs[0] == "error" and ours[1] == "ValueError"
        return
    assert theirs[0] == "error" and ours[:2] == theirs[:2], f"JAX: {theirs}\nmpijax: {ours}"
