"""custom_jvp and custom_vjp: values, all ways of differentiating them, what the rules see."""

import numpy as np
import pytest
from oracle import OURS, THEIRS, check, sample
from quickly import one_in

X3, X23 = sample(3), sample(2, 3)


def doubled(J):
    """x * y with wrong derivatives, 2 y and 3 x, so that one sees whose rule was used."""

    @J.custom_jvp
    def f(x, y):
        return x * y

    @f.defjvp
    def f_jvp(primals, tangents):
        (x, y), (tx, ty) = primals, tangents
        return f(x, y), 2 * tx * y + 3 * x * ty

    return f


def scaled(J):
    """The same by reverse mode."""

    @J.custom_vjp
    def f(x, y):
        return x * y

    f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda res, ct: (2 * ct * res[1], 3 * ct * res[0]))
    return f


def clip_gradient(J):
    """Identity whose gradient is clipped to the first two arguments, which are not differentiated."""
    from functools import partial

    @partial(J.custom_vjp, nondiff_argnums=(0, 1))
    def f(lo, hi, x):
        return x

    f.defvjp(lambda lo, hi, x: (x, None), lambda lo, hi, _, ct: (J.numpy.clip(ct, lo, hi),))
    return f


def power(J):
    """A static argument in a custom_jvp."""
    from functools import partial

    @partial(J.custom_jvp, nondiff_argnums=(1,))
    def f(x, n):
        return x**n

    f.defjvp(lambda n, primals, tangents: (f(primals[0], n), 10 * n * tangents[0]))
    return f


def by_argument(J):
    f = J.custom_jvp(lambda x, y: x * J.numpy.sin(y))
    f.defjvps(lambda t, out, x, y: 5 * t, None)
    return f


def on_trees(J):
    @J.custom_vjp
    def f(p, x):
        return {"out": p["w"] * x + p["b"][0]}

    def bwd(res, ct):
        p, x = res
        return {"w": (ct["out"] * x).sum() * 2, "b": [ct["out"].sum() * 3, None]}, None

    f.defvjp(lambda p, x: (f(p, x), (p, x)), bwd)
    return f


def with_integers(J):
    @J.custom_vjp
    def f(x, i):
        return x[i]

    f.defvjp(
        lambda x, i: (f(x, i), (x, i)),
        lambda res, ct: (J.numpy.zeros_like(res[0]).at[res[1]].set(ct * 7), None),
    )
    return f


def by_jvp_of(J, call):
    """A rule that is the derivative of a call, and reads its result once more."""
    f = J.custom_jvp(lambda x: call(x))

    @f.defjvp
    def rule(primals, tangents):
        out, tangent = J.jvp(call, primals, tangents)
        return f(*primals), tangent * 1.5 + out * tangents[0]

    return f


CALLS = {
    "jit": lambda J: J.jit(J.numpy.sin),
    "checkpoint": lambda J: J.checkpoint(J.numpy.sin),
    "cond": lambda J: lambda x: J.lax.cond(x[0] > 0.1, J.numpy.sin, J.numpy.cos, x),
    "scan": lambda J: lambda x: J.lax.scan(lambda c, _: (J.numpy.sin(c) * c, None), x, length=2)[0],
}

PROGRAMS = {
    **{
        f"jvp: rule by jvp of {name}": (
            lambda J, call=call: J.grad(lambda x: by_jvp_of(J, call(J))(x).sum()), (X3,))
        for name, call in CALLS.items()
    },
    "jvp: value": (lambda J: doubled(J), (X3, X3)),
    "jvp: forward": (lambda J: lambda x: J.jvp(doubled(J), (x, x), (X3, X3)), (X3,)),
    "jvp: reverse": (lambda J: J.grad(lambda x, y: doubled(J)(x, y).sum(), (0, 1)), (X3, X3)),
    "jvp: one argument": (lambda J: J.grad(lambda x: doubled(J)(x, 2.0)), (3.0,)),
    "jvp: in jit": (lambda J: J.grad(lambda x: J.jit(doubled(J))(x, x).sum()), (X3,)),
    "jvp: vmap": (lambda J: J.vmap(doubled(J), (0, None)), (X23, X3)),
    "jvp: vmap of grad": (
        lambda J: J.vmap(J.grad(lambda x, y: doubled(J)(x, y).sum()), (0, None)),
        (X23, X3),
    ),
    "jvp: grad of vmap": (lambda J: J.grad(lambda x: J.vmap(doubled(J))(x, x).sum()), (X23,)),
    "jvp: second order": (lambda J: J.grad(J.grad(lambda x: doubled(J)(x, x))), (3.0,)),
    "jvp: static argument": (lambda J: J.grad(lambda x: power(J)(x, 3)), (2.0,)),
    "jvp: static argument in jit": (lambda J: J.grad(lambda x: J.jit(lambda y: power(J)(y, 3))(x)), (2.0,)),
    "jvp: by argument": (lambda J: J.grad(lambda x, y: by_argument(J)(x, y), (0, 1)), (2.0, 3.0)),
    "jvp: closed-over tracers": (lambda J: J.grad(lambda x: _closing_over(J, x * 2)(x)), (2.0,)),
    "jvp: keywords and defaults": (lambda J: J.grad(lambda x: _with_default(J)(x=x)), (2.0,)),
    "vjp: value": (lambda J: scaled(J), (X3, X3)),
    "vjp: reverse": (lambda J: J.grad(lambda x, y: scaled(J)(x, y).sum(), (0, 1)), (X3, X3)),
    "vjp: vjp": (lambda J: lambda x: J.vjp(scaled(J), x, x)[1](X3), (X3,)),
    "vjp: in jit": (lambda J: J.grad(lambda x: J.jit(scaled(J))(x, x).sum()), (X3,)),
    "vjp: jit of grad": (lambda J: J.jit(J.grad(lambda x: scaled(J)(x, 2 * x).sum())), (X3,)),
    "vjp: vmap": (lambda J: J.vmap(scaled(J), (0, None)), (X23, X3)),
    "vjp: vmap of grad": (
        lambda J: J.vmap(J.grad(lambda x, y: scaled(J)(x, y).sum(), (0, 1)), (0, None)),
        (X23, X3),
    ),
    "vjp: grad of vmap": (
        lambda J: J.grad(lambda x, y: J.vmap(scaled(J), (0, None))(x, y).sum(), (0, 1)),
        (X23, X3),
    ),
    "vjp: second order": (lambda J: J.grad(J.grad(lambda x: scaled(J)(x, x))), (3.0,)),
    "vjp: linearize": (lambda J: lambda x: J.vjp(lambda y: scaled(J)(y, y) * 2, x)[1](X3), (X3,)),
    "vjp: static arguments": (lambda J: J.grad(lambda x: (clip_gradient(J)(-0.5, 0.5, x) * X3).sum()), (X3,)),
    "vjp: trees": (
        lambda J: J.grad(lambda p: on_trees(J)(p, X3)["out"].sum()),
        ({"w": 2.0, "b": [1.0, 3.0]},),
    ),
    "vjp: integers": (lambda J: J.grad(lambda x: with_integers(J)(x, 1)), (X3,)),
    "vjp: unused result": (lambda J: J.grad(lambda x: (scaled(J)(x, x) * 0 + x).sum()), (X3,)),
    "relu at zero": (lambda J: J.grad(lambda x: J.nn.relu(x).sum()), (np.array([-1, 0, 1], np.float32),)),
    "logsumexp of infinities": (
        lambda J: J.grad(lambda x: J.nn.logsumexp(x)),
        (np.array([-np.inf, 0], np.float32),),
    ),
}


def _closing_over(J, y):
    f = J.custom_jvp(lambda x: x * y)
    f.defjvp(lambda primals, tangents: (f(*primals), 100 * tangents[0] * y))
    return f


def _with_default(J):
    f = J.custom_jvp(lambda x, y=3.0: x * y)
    f.defjvp(lambda primals, tangents: (f(*primals), 100 * tangents[0] * primals[1]))
    return f


@pytest.mark.parametrize("name", one_in(3, PROGRAMS))
@pytest.mark.one_in(3)
def test_values_are_jaxs(name):
    make, args = PROGRAMS[name]
    check(make, *args, jaxpr=False, rtol=1e-6)


def test_symbolic_zeros_reach_the_rule():
    def seen(J):
        kinds = []
        f = J.custom_jvp(lambda x, y: x * y)

        def rule(primals, tangents):
            kinds.append([type(t).__name__ for t in tangents][1])
            return f(*primals), tangents[0] * primals[1]

        f.defjvp(rule, symbolic_zeros=True)
        grad = float(J.grad(lambda x: f(x, 3.0))(2.0))
        return kinds[0].endswith("Zero"), grad

    assert seen(OURS) == seen(THEIRS) == (True, 3.0)


@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
def test_numbers_stay_numbers_outside_of_programs(kind):
    def seen(J):
        f = getattr(J, kind)(lambda x, y: [2 * x, y, J.numpy.sin(x)])
        rule = (lambda *a: a,) if kind == "custom_jvp" else (lambda *a: (f(*a), a), lambda r, ct: ct[:2])
        getattr(f, f"def{kind[-3:]}")(*rule)
        outs = [*f(1.5, True), *f(3, 1j), *J.jit(f)(1.5, True)]
        with pytest.raises(OverflowError):
            f(2**40, 0)
        return [next((t for t in (bool, int, float, complex) if isinstance(x, t)), None) for x in outs], list(map(complex, outs))

    ours, theirs = seen(OURS), seen(THEIRS)
    assert ours[0] == theirs[0] == [float, bool, None, int, complex, None, None, None, None]
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)


RULES_OF_NUMBERS = {
    "grad": lambda J, f: lambda x: J.grad(f)(x, 3, True),
    "of a batch": lambda J, f: lambda x: J.vmap(lambda y: J.grad(f)(y, 3, True))(J.numpy.stack([x, x])),
    "in a program": lambda J, f: J.jit(lambda x: J.grad(f)(x, 3, True)),
    "of a program": lambda J, f: J.grad(J.jit(lambda x: f(x, 3, True))),
}


@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
@pytest.mark.parametrize("name", RULES_OF_NUMBERS)
def test_numbers_that_are_not_differentiated_stay_numbers_in_rules(kind, name):
    """A rule may use them as static arguments, as s2fft's do; equations hold arrays instead."""

    def seen(J):
        kinds = []

        def see(*numbers):
            kinds.append([next((t for t in (bool, int) if isinstance(x, t)), None) for x in numbers])

        def jvp(primals, tangents):
            see(*primals[1:])
            return f(*primals), 2 * tangents[0] * primals[1]

        f = getattr(J, kind)(lambda x, n, flag: x * n)
        if kind == "custom_jvp":
            f.defjvp(jvp)
        else:
            f.defvjp(lambda x, n, flag: (see(n, flag) or f(x, n, flag), n), lambda n, ct: (2 * ct * n, None, None))
        return np.asarray(RULES_OF_NUMBERS[name](J, f)(J.numpy.float32(1.5))).tolist(), kinds[0]

    assert seen(OURS) == seen(THEIRS)
    assert seen(OURS)[1] == ([None, None] if name == "of a program" else [int, bool])


def test_rules_see_arrays():
    f = OURS.custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: (x.reshape(()) * 2, x), lambda x, ct: (ct.astype(x.dtype),))
    assert float(OURS.grad(f)(1.0)) == 1


@pytest.mark.parametrize("name", ["custom_jvp", "custom_vjp"])
def test_annotations_name_the_type_of_the_result(name):
    for J in (THEIRS, OURS):
        named = getattr(J, name)[float]
        assert named.__origin__ is getattr(J, name) and named.__args__ == (float,)


def test_the_function_keeps_its_name_and_can_be_a_method():
    class Layer:
        @OURS.custom_jvp
        def apply(self, x):
            """A text."""
            return x

    assert (Layer.apply.__name__, Layer.apply.__doc__) == ("apply", "A text.")


def test_stored_rules_hold_no_traced_values():
    f = scaled(OURS)
    with OURS.checking_leaks():
        OURS.jit(lambda x: f(x, x))(X3)
        OURS.jit(OURS.grad(lambda x: f(x, x).sum()))(X3)
