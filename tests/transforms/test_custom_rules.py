"""What custom_jvp and custom_vjp say of rules that do not fit, symbolic zeros, and how their equations print."""

import re
from functools import partial

import numpy as np
import pytest
from oracle import OURS, THEIRS, check, clean, run, sample
from quickly import one_in

X3, X23 = sample(3), sample(2, 3)


def jvp_rule(J, rule, fun=lambda x: x * 2, **options):
    f = J.custom_jvp(fun)
    f.defjvp(rule, **options)
    return f


def vjp_rule(J, fwd, bwd, fun=lambda x: x * 2, **options):
    f = J.custom_vjp(fun)
    f.defvjp(fwd, bwd, **options)
    return f


def staged(J, f):
    """`f` after its function has run: what the rule returns is compared with that."""
    return J.jvp(J.jit(f), (1.0,), (1.0,))


def named(f):
    f.__name__ = "f"
    return f


def no_rules(J):
    J.custom_jvp(named(lambda x: x))(1.0)


def no_vjp_rules(J):
    J.custom_vjp(named(lambda x: x))(1.0)


WRONG = {
    "no jvp": no_rules,
    "no vjp": no_vjp_rules,
    "jvp is no pair": lambda J: J.jvp(jvp_rule(J, named(lambda p, t: p[0])), (1.0,), (1.0,)),
    "jvp tangent structure": lambda J: J.jvp(
        jvp_rule(J, named(lambda p, t: ((p[0], p[0]), t[0])), lambda x: (x, x)), (1.0,), (1.0,)
    ),
    "jvp tangent shape": lambda J: J.jvp(
        jvp_rule(J, named(lambda p, t: (p[0], J.numpy.zeros(1, np.float32)))), (1.0,), (1.0,)
    ),
    "jvp tangent shapes": lambda J: J.jvp(
        jvp_rule(J, named(lambda p, t: ((p[0], p[0]), (J.numpy.zeros(1), t[0]))), lambda x: (x, x)), (1.0,), (1.0,)
    ),
    "jvp result structure": lambda J: staged(J, jvp_rule(J, named(lambda p, t: ((p[0], p[0]), (t[0], t[0]))))),
    "jvp result shape": lambda J: staged(
        J, jvp_rule(J, named(lambda p, t: (J.numpy.zeros((3,)), J.numpy.zeros((3,)))))
    ),
    "jvp missing argument": lambda J: jvp_rule(J, None, named(lambda x, y, *, z=None: x), symbolic_zeros=True)(0.5),
    "vjp missing argument": lambda J: J.custom_vjp(named(lambda x, y: x)).defvjp(None, None),
    "jvp keyword": lambda J: jvp_rule(J, lambda p, t: 0, named(lambda x, *, z=None: x))(0.5, z=1.0),
    "vjp keyword": lambda J: vjp_rule(J, lambda x: 0, lambda r, c: 0, named(lambda x, *, z=None: x))(0.5, z=1.0),
    "fwd is no pair": lambda J: J.grad(vjp_rule(J, named(lambda x: x), lambda r, c: (c,), named(lambda x: x)))(1.0),
    "fwd result structure": lambda J: J.grad(
        J.jit(vjp_rule(J, named(lambda x: ((x, x), ())), lambda r, c: (c,), named(lambda x: x)))
    )(1.0),
    "fwd result shape": lambda J: J.grad(
        J.jit(vjp_rule(J, named(lambda x: (J.numpy.zeros(3), ())), lambda r, c: (c,), named(lambda x: x)))
    )(1.0),
    "bwd structure": lambda J: J.grad(vjp_rule(J, lambda x: (x, ()), lambda r, c: c))(1.0),
    "bwd length": lambda J: J.grad(vjp_rule(J, lambda x: (x, ()), lambda r, c: (c, c)))(1.0),
    "bwd shape": lambda J: J.grad(vjp_rule(J, lambda x: (x, ()), lambda r, c: (J.numpy.ones(1),)))(np.float32(1)),
    "bwd shape in a tree": lambda J: J.grad(
        vjp_rule(J, lambda x: (x["a"], ()), lambda r, c: ({"a": J.numpy.ones(1)},), lambda x: x["a"])
    )({"a": np.float32(1)}),
    "bwd symbolic zero": lambda J: J.grad(
        vjp_rule(
            J,
            lambda x: (x, ()),
            lambda r, c: (J.custom_derivatives.SymbolicZero.from_primal_value(J.numpy.ones(2)),),
        )
    )(np.float32(1)),
    "forward mode": lambda J: J.jvp(vjp_rule(J, lambda x: (x, ()), lambda r, c: (c,)), (1.0,), (1.0,)),
    "traced static argument": lambda J: J.jit(partial_vjp(J))(lambda: 0, 1.0),
    "defjvps of static": lambda J: J.custom_jvp(lambda x, y: x, nondiff_argnums=(0,)).defjvps(None),
    "remat and zeros": lambda J: J.custom_vjp(lambda x: x).defvjp(
        lambda x: x, lambda x: x, symbolic_zeros=True, optimize_remat=True
    ),
    "closed-over value": lambda J: J.grad(lambda y: J.jit(closing(J, y))(1.0))(2.0),
}


def partial_vjp(J):
    f = J.custom_vjp(lambda n, x: x, nondiff_argnums=(0,))
    f.defvjp(lambda n, x: (x, ()), lambda n, r, c: (c,))
    return lambda g, x: f(x, x)


def closing(J, y):
    return vjp_rule(J, lambda x: (x * y, ()), lambda r, c: (c,), lambda x: x * y)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules_raise_jaxs_errors(name):
    theirs, ours = (run(lambda J=J: WRONG[name](J)) for J in (THEIRS, OURS))
    assert theirs[:2] == ours[:2]
    if theirs[0] == "error" and name not in ("traced static argument",):
        assert first_words(theirs[2]) in " ".join(ours[2].split()), f"JAX:\n{theirs[2]}\nmpijax:\n{ours[2]}"


def first_words(message: str) -> str:
    """The message as far as it speaks of types: not what JAX adds of weak types and traced values."""
    text = re.split(r"For more information|, so the|produced Traced|but got Traced|but got Array|-{5}", message)[0]
    return " ".join(text.split()).removesuffix("but got bwd output")


def zeros_seen(J):
    """Types of tangents that reach a rule, for a function of two arguments of which one is constant."""
    seen = []

    def rule(primals, tangents):
        seen.append([(type(t) is J.custom_derivatives.SymbolicZero, t.shape, str(t.dtype)) for t in tangents])
        x, y = primals
        return f(x, y), tangents[0] * y

    f = jvp_rule(J, rule, lambda x, y: x * y, symbolic_zeros=True)
    return f, seen


@pytest.mark.parametrize("form", ["eager", "jit", "vmap", "jit of vmap"])
def test_symbolic_zeros_of_custom_jvp(form):
    def outcome(J):
        f, seen = zeros_seen(J)
        g = {"eager": f, "jit": J.jit(f), "vmap": J.vmap(f), "jit of vmap": J.jit(J.vmap(f))}[form]
        value, tangent = J.jvp(lambda x: g(x, X3), (X3,), (X3,))
        return seen[-1], np.asarray(value).tolist(), np.asarray(tangent).tolist()

    assert outcome(OURS) == outcome(THEIRS)


@pytest.mark.parametrize("form", ["eager", "jit", "vmap"])
def test_symbolic_zeros_of_custom_vjp(form):
    def outcome(J):
        seen = []

        def fwd(x, y):
            seen.append((x.perturbed, y.perturbed))
            x, y = J.custom_derivatives.custom_vjp_primal_tree_values((x, y))
            return (x * y, x + y), (x, y)

        def bwd(res, cts):
            seen.append([(type(ct) is J.custom_derivatives.SymbolicZero, ct.shape) for ct in cts])
            return cts[0] * res[1], J.custom_derivatives.SymbolicZero(J.typeof(res[1]))

        f = vjp_rule(J, fwd, bwd, lambda x, y: (x * y, x + y), symbolic_zeros=True)
        g = {"eager": f, "jit": J.jit(f), "vmap": J.vmap(f)}[form]
        grads = J.grad(lambda x: (g(x, X3)[0] * X3).sum())(X3)
        return seen, np.asarray(grads).tolist()

    assert outcome(OURS) == outcome(THEIRS)


def shifted(J):
    """Rules that close over values of the vmap in which they are defined."""

    def outer(z):
        def inner(x):
            f = J.custom_jvp(lambda y: x * y)
            f.defjvp(lambda p, t: (x * p[0], 10 * x * t[0]))
            return f(z)

        return J.vmap(inner)(np.arange(3, dtype=np.float32))

    return lambda z: J.jvp(outer, (z,), (z,))


def nondiff_tracer(J):
    f = partial(J.custom_jvp, nondiff_argnums=(0,))(lambda c, x: c * x)
    f.defjvp(lambda c, p, t: (f(c, p[0]), 7 * c * t[0]))
    return lambda c, x: J.jvp(lambda y: J.vmap(f, (0, None))(c, y), (x,), (x,))


def shared_argument(J):
    f = vjp_rule(J, lambda x, y: (x * y, (x, y)), lambda r, c: (c * r[1], 2 * c * r[0]), lambda x, y: x * y)
    return J.grad(lambda x, y: J.vmap(f, (0, None))(x, y).sum(), (0, 1))


def reduced_over_name(J):
    f = vjp_rule(
        J,
        lambda x: (J.lax.psum(x, "i"), ()),
        lambda r, c: (2 * c * (1 + J.lax.axis_index("i")),),
        lambda x: J.lax.psum(x, "i"),
    )
    return J.grad(lambda x: J.vmap(f, axis_name="i")(x).sum())


def prefix(J):
    return J.grad(
        vjp_rule(J, lambda p: (p["a"] * p["b"], p), lambda r, c: (c * 5,), lambda p: p["a"] * p["b"])
    )  # one cotangent for all leaves of an argument


COMBINED = {
    "rule closes over an example": (shifted, (np.float32(2),)),
    "example as static argument": (nondiff_tracer, (X3, np.float32(2))),
    "argument shared by examples": (shared_argument, (X23, X3)),
    "collective in rules": (reduced_over_name, (X3,)),
    "prefix of cotangents": (prefix, ({"a": 2.0, "b": 3.0},)),
    "names of static arguments": (
        lambda J: J.grad(lambda x: _by_name(J)(x, n=3)),
        (2.0,),
    ),
    "defjvps with fewer rules": (
        lambda J: J.grad(_first_rule_is_none(J), 1),
        (2.0, 3.0),
    ),
    "unused results": (lambda J: J.grad(lambda x: J.jit(lambda y: _two(J)(y)[1])(x)), (2.0,)),
    "reverse over reverse": (
        lambda J: J.grad(J.grad(vjp_rule(J, lambda x: (x**3, x), lambda r, c: (c * 3 * r**2,), lambda x: x**3))),
        (2.0,),
    ),
    "hessian of custom_jvp": (
        lambda J: J.jacfwd(J.jacrev(jvp_rule(J, lambda p, t: (p[0] ** 3, 2 * p[0] ** 2 * t[0]), lambda x: x**3))),
        (2.0,),
    ),
}


def _by_name(J):
    f = J.custom_vjp(lambda x, n: x * n, nondiff_argnames=("n",))
    f.defvjp(lambda x, n: (x * n, ()), lambda n, r, c: (10 * n * c,))
    return f


def _first_rule_is_none(J):
    f = J.custom_jvp(lambda x, y: x**2 * y)
    f.defjvps(None, lambda t, out, x, y: 2 * x * y * t)
    return f


def _two(J):
    f = J.custom_jvp(lambda x: (J.numpy.sin(x), x + 1))
    f.defjvp(lambda p, t: (f(p[0]), (2 * t[0], 3 * t[0])))
    return f


@pytest.mark.parametrize("name", one_in(3, COMBINED))
def test_rules_under_transformations_are_jaxs(name):
    make, args = COMBINED[name]
    check(make, *args, jaxpr=False, jitted=False, rtol=1e-6)


def test_a_rule_leaves_the_batch_axis_where_its_function_does():
    f = jvp_rule(OURS, lambda p, t: (OURS.numpy.stack([*p[0].T]), 3 * OURS.numpy.stack([*t[0].T])), lambda x: x.T * 1)
    x = sample(2, 2, 2)
    value, tangent = OURS.jvp(OURS.jit(OURS.vmap(f, in_axes=2)), (x,), (x,))
    np.testing.assert_array_equal(value, x.transpose(2, 1, 0))
    np.testing.assert_array_equal(tangent, 3 * x.transpose(2, 1, 0))


def printed_jvp(J):
    def rule(primals, tangents):
        return f(*primals), tangents[0]

    def g(x):
        return x + 1

    f = jvp_rule(J, rule, g)
    return f


def printed_vjp(J):
    def forth(x, y):
        return x + y, ()

    def back(res, ct):
        return ct, ct

    def g(x, y):
        return x + y

    return vjp_rule(J, forth, back, g)


@pytest.mark.parametrize("name", ["jvp", "vjp", "closed-over"])
def test_equations_print_as_jaxs(name):
    def text(J):
        if name == "jvp":
            return clean(str(J.make_jaxpr(printed_jvp(J))(X3)))
        if name == "vjp":
            return clean(str(J.make_jaxpr(printed_vjp(J))(X3, X3)))
        return clean(str(J.make_jaxpr(lambda y: printed_vjp(J)(X3, J.custom_jvp(lambda z: z) and y))(X3)))

    assert text(OURS) == text(THEIRS)


def test_rules_of_decorated_functions_are_defined_through_the_outer_decorator():
    f = OURS.custom_vjp(OURS.custom_jvp(lambda x: x))
    f.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        f.other  # noqa: B018


@pytest.mark.parametrize("transform", [lambda J, f: f, lambda J, f: J.jit(f)], ids=["eager", "jit"])
def test_numbers_among_the_residuals_stay_pythons_own(transform):
    """The backward rule may branch on them."""
    for J in (THEIRS, OURS):
        seen = []

        @J.custom_vjp
        def f(x):
            return x * 2

        def bwd(residuals, ct, seen=seen):
            x, flag, scale = residuals
            seen.append((type(flag) is bool, isinstance(scale, float)))
            return (ct * x * scale if flag else ct,)

        f.defvjp(lambda x: (x * 2, (x, True, 3.0)), bwd)
        assert float(transform(J, J.grad(f))(2.0)) == 6.0 and seen == [(True, True)]


LOST = {
    "handed on": lambda J, f, h: lambda x: h(f(x)) + x,
    "nothing else": lambda J, f, h: lambda x: h(f(x)),
    "twice": lambda J, f, h: lambda x: h(f(3 * f(x))) + x,
    "in a loop": lambda J, f, h: lambda x: J.lax.scan(lambda c, _: (c + h(f(c)), None), x, None, length=2)[0],
    "in a branch": lambda J, f, h: lambda x: J.lax.cond(x > 0, lambda x: h(f(x)) + x, lambda x: x, x),
    "recomputed": lambda J, f, h: J.checkpoint(lambda x: h(f(x)) + x),
    "a call of its own": lambda J, f, h: lambda x: h(J.jit(f)(x)) + x,
    "unread": lambda J, f, h: lambda x: (f(x), 2 * x)[1],
    "stopped": lambda J, f, h: lambda x: J.lax.stop_gradient(f(x)) + x,
    "rounded": lambda J, f, h: lambda x: J.numpy.sign(f(x)) + x,
}


@pytest.mark.parametrize("name", one_in(3, LOST))
def test_rules_are_called_where_a_later_rule_returns_none(name):
    """They may return a cotangent whatever they get: flax's scales of 8-bit floats are kept up to date in this way."""
    found = []
    for J in (THEIRS, OURS):
        f, h = J.custom_vjp(J.numpy.sin), J.custom_vjp(J.numpy.cos)
        f.defvjp(lambda x, J=J: (J.numpy.sin(x), None), lambda _, ct: (7.0 + ct,))
        h.defvjp(lambda x, J=J: (J.numpy.cos(x), None), lambda _, ct: (None,))
        slope = J.grad(LOST[name](J, f, h))
        found.append([float(slope(0.5)), float(J.jit(slope)(0.5))])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
