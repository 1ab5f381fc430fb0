"""`cond`, `switch` and `platform_dependent` beside JAX: values, derivatives, Jaxprs, errors."""

from __future__ import annotations

import numpy as np
import pytest
from jaxprs import check_all
from oracle import OURS, THEIRS, assert_same_outcome, assert_same_values, check, leaves_of, run, sample
from quickly import one_in

X = sample(3) + np.float32(0.5)
XS = sample(4, 3, seed=1)
K = np.arange(3, dtype=np.float32)
TOLERANCE = {"rtol": 2e-5, "atol": 1e-6}


def closure(J, p, x):
    """Branches read an array, an intermediate value and a number of the outside, some of them both."""
    k, y, s = J.numpy.asarray(K), x * 2, J.numpy.float32(1.5)
    return J.lax.cond(p, lambda x: x * k + y, lambda x: x * K - k + s, x)


def curved(J, x):
    """Branches that keep different things for their derivatives."""
    return J.lax.cond(x[0] > 0, lambda x: J.numpy.sin(x) * x, lambda x: J.numpy.exp(x) * 3, x)


def trees(J, p, x):
    return J.lax.cond(
        p, lambda d: {"a": d["a"] + 1, "b": (d["b"], 3)}, lambda d: {"a": d["a"] * 2, "b": (d["b"], 4)},
        {"a": x, "b": x[0]},
    )  # fmt: skip


def three(J, i, x):
    """One branch does nothing, one has no derivative."""
    return J.lax.switch(i, [lambda x: x, lambda x: J.numpy.sin(x) * x, lambda x: J.numpy.ones_like(x)], x)


def nested(J, x, y):
    return J.lax.cond(
        x[0] > 0,
        lambda x: J.lax.cond(y > 1, lambda x: x * y, J.numpy.cos, x),
        lambda x: J.lax.switch(1, [lambda x: x, lambda x: x * x * y], x),
        x,
    )


def partly(J, x, y):
    """Results of which some are passed through, some integers, some the same in both branches."""
    return J.lax.cond(x[0] > y, lambda x, y: (x, y, 1, x * y), lambda x, y: (x, y * 2, 2, x), x, y)


def with_rules(J, p, x):
    """Functions with derivatives of their own, and a call, in branches."""

    @J.custom_jvp
    def twice(x):
        return 2 * x

    twice.defjvp(lambda primals, tangents: (2 * primals[0], 5 * tangents[0]))

    @J.custom_vjp
    def squared(x):
        return x * x

    squared.defvjp(lambda x: (x * x, x), lambda x, ct: (ct * x * 3,))
    return J.lax.cond(p, lambda x: twice(J.jit(J.numpy.sin)(x)), squared, x).sum()


def total(f):
    return lambda *args: f(*args).sum()


def in_another_order(J, pred, a, b):
    return J.lax.cond(pred, lambda: a - b, lambda: b - 3 * a)


PROGRAMS = {
    "closure": lambda J: lambda x: (closure(J, True, x), closure(J, x[0] > 0, x)),
    "closures in another order": lambda J: lambda x: [in_another_order(J, x[0] > t, x * 2, x + 1) for t in (0, 9)],
    "closures of other types": lambda J: lambda x: [in_another_order(J, x[0] > t, x[0].astype(int), x) for t in (0, 9)],
    "curved": lambda J: lambda x: curved(J, x),
    "trees": lambda J: lambda x: trees(J, x[0] > 9, x),
    "number as predicate": lambda J: lambda x: J.lax.cond(x[0], J.numpy.sin, lambda x: x * 2, x),
    "integer as predicate": lambda J: lambda x: J.lax.cond(3, J.numpy.sin, lambda x: x * 2, x),
    "no operands": lambda J: lambda x: J.lax.cond(x[0] > 0, lambda: x, lambda: x + 1),
    "operand": lambda J: lambda x: J.lax.cond(x[0] > 0, lambda _: 1.0, lambda _: 2.0, operand=None),
    "five arguments": lambda J: lambda x: J.lax.cond(x[0] > 0, x, lambda x: x, x[:2], lambda y: K * y[1]),
    "passed through": lambda J: lambda x: J.lax.cond(x[0] > 0, lambda x: x, lambda x: x, x),
    "partly": lambda J: lambda x: partly(J, x, x[1]),
    "weak types": lambda J: lambda x: J.lax.cond(x[0] > 0, lambda: 1.0, lambda: x[0]),
    "nested": lambda J: lambda x: nested(J, x, x[1]),
    "switch": lambda J: lambda x: [three(J, i, x) for i in (-1, 0, 1, 2, 7)],
    "switch by data": lambda J: lambda x: three(J, x[0].astype(int), x),
    "switch, small index": lambda J: lambda x: three(J, J.numpy.uint8(1), x),
    "switch, operand": lambda J: lambda x: J.lax.switch(1, [J.numpy.sin, J.numpy.cos], operand=x),
    "switch, one branch": lambda J: lambda x: J.lax.switch(x, [J.numpy.sin], x) if x.ndim == 0 else x,
    "platform": lambda J: lambda x: J.lax.platform_dependent(x, tpu=J.numpy.sin, cpu=J.numpy.cos, default=lambda x: x),
    "platform, default": lambda J: lambda x: J.lax.platform_dependent(x, tpu=J.numpy.sin, default=J.numpy.tanh),
    "gradient": lambda J: J.grad(total(lambda x: curved(J, x))),
    "gradient, closure": lambda J: J.grad(total(lambda x: closure(J, True, x))),
    "gradient, partly": lambda J: J.grad(lambda x: partly(J, x, x[1])[3].sum() + partly(J, x, x[1])[1]),
    "gradient, nested": lambda J: J.grad(total(lambda x: nested(J, x, x[1]))),
    "gradient, constant": lambda J: J.grad(lambda x: J.lax.cond(x[0] > 0, lambda: 1.0, lambda: 2.0) * x[1]),
    "jvp": lambda J: lambda x: J.jvp(lambda x: curved(J, x), (x,), (x,)),
    "jvp, closure": lambda J: lambda x: J.jvp(lambda x: closure(J, False, x), (x,), (x,)),
    "jvp, partly": lambda J: lambda x: J.jvp(lambda x: partly(J, x, x[1])[1:], (x,), (x,))[0],
    "linearize": lambda J: lambda x: J.linearize(lambda x: curved(J, x), x)[1](x),
    "vmap": lambda J: lambda x: J.vmap(lambda x: curved(J, x))(J.numpy.stack([x, -x])),
    "vmap, closure": lambda J: lambda x: J.vmap(lambda p: closure(J, p, x))(x > 0),
    "vmap, switch": lambda J: lambda x: J.vmap(lambda i, x: three(J, i, x), (0, 1))(np.arange(3), x[None] * K[:, None]),
    "vmap, one predicate": lambda J: lambda x: J.vmap(lambda y: closure(J, x[0] > 0, y), 1, 1)(
        J.numpy.stack([x, x * 2, x], 1)
    ),
    "vmap, some results": lambda J: lambda x: J.vmap(lambda y: partly(J, x, y))(K),
    "vmap of grad": lambda J: lambda x: J.vmap(J.grad(total(lambda x: curved(J, x))))(J.numpy.stack([x, -x])),
    "grad of vmap": lambda J: J.grad(lambda x: J.vmap(lambda y: nested(J, x * y, y))(K).sum()),
    "vmap with a name": lambda J: lambda x: J.vmap(
        lambda y: J.lax.cond(x[0] > 0, lambda y: J.lax.psum(y, "i"), lambda y: y * 2, y), axis_name="i"
    )(K),
    "vmap with a name, own predicates": lambda J: lambda x: J.vmap(
        lambda y: J.lax.cond(y > 1, lambda y: J.lax.psum(y, "i"), lambda y: y * 2, y), axis_name="i"
    )(K),
    "in scan": lambda J: lambda x: J.lax.scan(
        lambda c, y: (J.lax.cond(y > 0.5, J.numpy.sin, lambda c: c * y, c), c), x[0], x
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.one_in(4)
def test_jaxprs_as_jax(name):
    check(PROGRAMS[name], X, eager=False, jitted=False)


@pytest.mark.parametrize("name", one_in(2, PROGRAMS))
@pytest.mark.one_in(3)
def test_results_as_jax(name):
    check(PROGRAMS[name], X, jaxpr=False, eager=False, **TOLERANCE)


# Where JAX's text has leftovers of its own, or both orders of differentiation meet.
VALUES = {
    "gradient, switch": lambda J: lambda x: [J.grad(total(lambda x, i=i: three(J, i, x)))(x) for i in range(3)],
    "reverse over reverse": lambda J: J.grad(lambda x: (J.grad(total(lambda x: curved(J, x)))(x) ** 2).sum()),
    "forward over reverse": lambda J: lambda x: J.jvp(J.grad(total(lambda x: curved(J, x))), (x,), (x,)),
    "reverse over forward": lambda J: J.grad(lambda x: J.jvp(lambda x: curved(J, x), (x,), (x,))[1].sum()),
    "second, nested": lambda J: J.grad(lambda x: (J.grad(total(lambda x: nested(J, x, x[1])))(x) ** 2).sum()),
    "rules": lambda J: lambda x: [J.grad(lambda x, p=p: with_rules(J, p, x))(x) for p in (True, False)],
    "rules, forward": lambda J: lambda x: J.jvp(lambda x: J.lax.cond(x[0] > 0, J.nn.relu, J.nn.silu, x), (x,), (x,)),
    "grad in scan": lambda J: J.grad(
        lambda x: J.lax.scan(lambda c, y: (J.lax.cond(y > 0.5, J.numpy.sin, lambda c: c * y, c), c), x[0], x)[0]
    ),
    "grad in scan, batched": lambda J: lambda x: J.vmap(
        J.grad(lambda x: J.lax.scan(lambda c, y: (J.lax.cond(y > 0, J.numpy.sin, lambda c: c * y, c), c), x[0], x)[0])
    )(XS),
    "undefined elsewhere": lambda J: J.vmap(
        J.grad(lambda x: J.lax.cond(x > 0, lambda x: J.numpy.sqrt(x), lambda x: 0.0 * x, x))
    ),
}


@pytest.mark.parametrize("name", one_in(2, VALUES))
@pytest.mark.one_in(2)
def test_values_as_jax(name):
    check(VALUES[name], X, jaxpr=False, eager=False, **TOLERANCE)


@pytest.mark.parametrize("name", ["closure", "trees", "partly", "weak types", "switch", "platform", "gradient", "vmap"])
@pytest.mark.one_in(3)
def test_eager(name):
    """Outside of jit the chosen branch alone runs; values and types are those under jit."""
    make = PROGRAMS[name]
    assert_same_values(OURS.jit(make(OURS))(X), make(OURS)(X), **TOLERANCE)


def test_under_disable_jit():
    """A known predicate is Python's `if`; one that is not known still makes the primitive."""
    ran = []

    def branch(name):
        return lambda x: ran.append(name) or x * 2

    with OURS.disable_jit():
        for name in ("closure", "trees", "switch", "gradient", "vmap"):
            compiled, plain = (f(X) for f in (THEIRS.jit(PROGRAMS[name](THEIRS)), PROGRAMS[name](OURS)))
            for a, b in zip(leaves_of(compiled), leaves_of(plain), strict=True):
                np.testing.assert_allclose(b, a, **TOLERANCE)
        OURS.lax.cond(True, branch("true"), branch("false"), X)
        OURS.lax.switch(5, [branch(0), branch(1)], X)
    assert ran == ["true", 1]


def test_second_use_is_not_traced():
    traced = []

    def once(x):
        traced.append(x)
        return x + 1

    for _ in range(3):
        OURS.lax.cond(True, once, OURS.numpy.sin, X)
    assert len(traced) == 1


# ---------------------------------------------------------------- errors

ERRORS = {
    "dtype": (lambda J: J.lax.cond(True, lambda x: 1, lambda x: x[0], X), "true_fun has type int32[]", "float32[]"),
    "shape": (
        lambda J: J.lax.cond(True, lambda x: {"a": x}, lambda x: {"a": x[:2]}, X),
        "path ['a'] has type float32[3]", "float32[2]", "shapes do not match", "Revise true_fun and/or false_fun",
    ),
    "structure": (
        lambda J: J.lax.cond(True, lambda x: (1.0, x), lambda x: [2.0, x], X),
        "must have the same pytree structure", "true_fun output is a <class 'tuple'>", "<class 'list'>",
    ),
    "branches": (
        lambda J: J.lax.switch(1, [lambda x: x, lambda x: x, lambda x: x > 0], X),
        "switch branches must have equal output types", "float32[3]", "bool[3]",
    ),
    "vector": (lambda J: J.lax.cond(X > 0, lambda: 1, lambda: 2), "Pred must be a scalar", "shape (3,)"),
    "list": (lambda J: J.lax.cond([1], lambda: 1, lambda: 2), "Pred must be a scalar", "<class 'list'>"),
    "none": (lambda J: J.lax.cond(None, lambda: 1, lambda: 2), "cond predicate is None"),
    "complex": (lambda J: J.lax.cond(1j, lambda: 1, lambda: 2), "either boolean or number", "complex64"),
    "no function": (lambda J: J.lax.cond(True, 1, 2), "true_fun and false_fun arguments should be callable"),
    "operands twice": (lambda J: J.lax.cond(True, lambda x: x, lambda x: x, 1, operand=2), "'operand' keyword"),
    "no array": (lambda J: J.lax.cond(True, lambda: "a", lambda: "b"), "traced for cond returned a value of type"),
    "float index": (lambda J: J.lax.switch(1.5, [lambda: 1, lambda: 2]), "must be an integer", "1.5 as float32"),
    "text index": (lambda J: J.lax.switch("a", [lambda: 1, lambda: 2]), "Index type must be an integer, got a"),
    "vector index": (lambda J: J.lax.switch(np.arange(2), [lambda: 1, lambda: 2]), "must be scalar", "shape (2,)"),
    "no branches": (lambda J: J.lax.switch(1, []), "Empty branch sequence"),
    "branch": (lambda J: J.lax.switch(1, [3]), "sequence of callables"),
    "gpu": (lambda J: J.lax.platform_dependent(1.0, gpu=lambda x: x), "Use 'cuda' or 'rocm'"),
    "platform branch": (lambda J: J.lax.platform_dependent(1.0, cpu=3), "'cpu' branch must be a callable"),
    "no platform": (lambda J: J.lax.platform_dependent(1.0, tpu=lambda x: x), "tpu"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors_as_jax(name):
    call, *words = ERRORS[name]
    theirs, ours = (run(lambda J=J: call(J)) for J in (THEIRS, OURS))
    assert_same_outcome(theirs, ours)
    assert ours[0] == "error", ours
    for word in words:
        assert word in theirs[2] and word in ours[2], (word, theirs[2], ours[2])


def test_types_of_predicates():
    """Every dtype that can decide, and the Jaxprs it makes."""
    predicates = True, 2, 0.5, np.bool_(False), np.int8(3), np.uint32(0), np.float16(1), np.float64(2)
    check_all([(str(p), lambda J: lambda x: J.lax.cond(x, lambda: 1, lambda: 2), (p,)) for p in predicates])


def test_a_branch_that_updates_part_of_what_it_closes_over():
    """Captured values have no position among a body's arguments."""
    x = np.arange(5, dtype=np.float32)

    def f(J):
        def g(x, i):
            return J.lax.cond(i > 0, lambda: x.at[1:3].set(J.numpy.cos(x)[1:3] * 2).sum(), lambda: x[0])

        return J.jit(g)(x, 2)

    np.testing.assert_allclose(f(OURS), f(THEIRS), rtol=1e-6)


def test_a_branch_whose_derivative_needs_a_key():
    found = []
    for J in (THEIRS, OURS):
        noisy = J.checkpoint(lambda x, key, J=J: J.numpy.sin(x * J.random.normal(key)))
        f = lambda x, key, p, J=J, noisy=noisy: J.lax.cond(p, lambda: noisy(x, key), lambda: x)
        key = J.random.key(3)
        found.append([J.jit(J.grad(f))(1.5, key, p) for p in (True, False)])
        found[-1].append(J.vmap(J.grad(f), (None, None, 0))(1.5, key, np.array([True, False])))
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-5)


def test_a_function_that_is_several_branches_is_traced_once():
    def count(J):
        seen = []

        def nested(depth, x):
            def branch(y):
                seen.append(depth)
                return y * x if depth == 0 else nested(depth - 1, y * x)

            return J.lax.switch(x.astype(int), [branch, lambda y: y, branch], x)

        J.make_jaxpr(lambda x: nested(2, x))(np.float32(0.5))
        return seen

    assert count(OURS) == count(THEIRS)
