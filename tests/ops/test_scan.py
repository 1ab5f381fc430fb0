"""`scan` and `map` beside JAX: values, derivatives, Jaxprs, errors."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import OURS, THEIRS, assert_same_outcome, assert_same_values, check, leaves_of, run, sample
from quickly import one_in

import mpijax
from mpijax import lax
from mpijax import numpy as jnp

XS = sample(3, 2)
W = sample(2, 2, seed=1)
TOLERANCE = {"rtol": 2e-5, "atol": 1e-6}


def rnn(J, w, x, **options):
    """A recurrence whose last state and outputs depend on weights, inputs and a constant."""
    jnp = J.numpy
    return J.lax.scan(lambda c, x: (jnp.tanh(w @ c + x) * w[0], c * 2), jnp.ones(2), x, **options)


def counter(J, x):
    """An integer carry beside a floating-point one."""
    return J.lax.scan(lambda c, x: ((c[0] + 1, c[1] * x + c[0]), c[0]), (0, J.numpy.ones(2)), x)


def loss(J, w, x, **options):
    last, ys = rnn(J, w, x, **options)
    return (last**2).sum() + ys.sum()


def nested(J, w, x):
    def row(c, x):
        inner = J.lax.scan(lambda d, y: (d * y + w[0, 0], d), c, x)
        return inner[0] * 0.5, inner[1]

    return J.lax.scan(row, J.numpy.float32(1.5), x)


def with_rules(J, w, x):
    """Functions with derivatives of their own inside the body, and a call."""

    @J.custom_jvp
    def twice(x):
        return 2 * x

    twice.defjvp(lambda primals, tangents: (2 * primals[0], 5 * tangents[0]))

    @J.custom_vjp
    def clipped(x, y):
        return x * y

    clipped.defvjp(lambda x, y: (x * y, (x, y)), lambda res, ct: (ct * res[1] * 3, ct * res[0]))
    step = J.jit(lambda c, x: J.numpy.sin(c) + x)
    return J.lax.scan(lambda c, x: (step(twice(c) @ w, clipped(x, c)), None), J.numpy.ones(2), x)[0].sum()


def branching(J, w, x):
    """Another operation where the carry is positive."""

    def step(c, x):
        return J.lax.cond(c[0] > 0, lambda c: J.numpy.sin(c) * x, lambda c: c + w[1], c), c

    return J.lax.scan(step, w[0], x)[1].sum()


PROGRAMS = {
    "plain": lambda J: lambda w, x: rnn(J, w, x),
    "reverse": lambda J: lambda w, x: rnn(J, w, x, reverse=True),
    "unroll": lambda J: lambda w, x: rnn(J, w, x, unroll=2),
    "unroll all": lambda J: lambda w, x: rnn(J, w, x, unroll=True),
    "unroll zero": lambda J: lambda w, x: rnn(J, w, x, unroll=0),
    "counter": lambda J: lambda w, x: counter(J, x),
    "nested": lambda J: lambda w, x: nested(J, w, x),
    "no xs": lambda J: lambda w, x: J.lax.scan(lambda c, _: (c * w[0], c), x[0], None, length=3),
    "no carry": lambda J: lambda w, x: J.lax.scan(lambda _, x: ((), x @ w), (), x),
    "length zero": lambda J: lambda w, x: rnn(J, w, x[:0]),
    "forwarded carry": lambda J: lambda w, x: J.lax.scan(lambda c, x: (c, x * c), w[0], x, reverse=True),
    "forwarded xs": lambda J: lambda w, x: J.lax.scan(lambda c, x: (c + x, (x, c, x * w[1])), w[0], x),
    "weak carry": lambda J: lambda w, x: J.lax.scan(lambda c, x: (c + x.sum(), c), 0, x),
    "weak carry stays": lambda J: lambda w, x: J.lax.scan(lambda c, x: (c * 2, x), 1.0, x),
    "swap": lambda J: lambda w, x: J.lax.scan(lambda c, x: ((c[1], c[0] * x), c[0]), (w[0], w[1]), x),
    "trees": lambda J: lambda w, x: J.lax.scan(
        lambda c, x: ({"a": c["a"] + x[0], "b": c["b"] * 2}, [x[1], c["b"]]), {"a": w[0], "b": w[1]}, (x, x * 2)
    ),
    "constants": lambda J: lambda w, x: J.lax.scan(lambda c, x: (c + J.numpy.zeros(2) + x, W[0] * c), w[0], x),
    "results that are equal": lambda J: lambda w, x: J.lax.scan(
        lambda c, y: ((c[1], c[1]), (c[0], c[0], y, y)), (w[0], w[1]), x
    ),
    "results that are constant": lambda J: lambda w, x: J.lax.scan(lambda c, y: (J.numpy.zeros(2), 3.0), w[0], x),
    "gradient": lambda J: J.grad(lambda w, x: loss(J, w, x)),
    "gradient by xs": lambda J: J.grad(lambda w, x: loss(J, w, x, reverse=True), 1),
    "gradient, counter": lambda J: lambda w, x: J.grad(lambda x: counter(J, x)[0][1].sum())(x),
    "gradient, nested": lambda J: J.grad(lambda w, x: nested(J, w, x)[1].sum()),
    "gradient, hoisted": lambda J: J.grad(
        lambda w, x: J.lax.scan(lambda c, x: (J.numpy.sin(c) + x * J.numpy.cos(w[0]), c), w[1], x)[0].sum()
    ),
    "jvp": lambda J: lambda w, x: J.jvp(lambda w: rnn(J, w, x), (w,), (w,)),
    "jvp, nested": lambda J: lambda w, x: J.jvp(lambda x: nested(J, w, x), (x,), (x,)),
    "linearize": lambda J: lambda w, x: J.linearize(lambda w: rnn(J, w, x), w)[1](w),
    "forward over reverse": lambda J: lambda w, x: J.jvp(
        J.grad(lambda w: J.lax.scan(lambda c, x: (J.numpy.sin(w @ c) * x, c), w[0], x)[0].sum()), (w,), (w,)
    ),
    "gradient, branch": lambda J: J.grad(lambda w, x: branching(J, w, x)),
    "gradient, indexed": lambda J: J.grad(
        lambda w, x: J.lax.scan(
            lambda c, i: (c.at[i].set(c[i] * w[i, 0] + x.sum()), x[i]), w[0], J.numpy.array([0, 1, 1])
        )[0].sum(),
        (0, 1),
    ),
    "gradient of steps along gradients": lambda J: J.grad(
        lambda w, x: J.lax.scan(
            lambda c, x: (c - 0.125 * J.grad(lambda c: ((w @ c - x) ** 2).sum())(c), None), w[0], x
        )[0].sum()
    ),
    "vmap of gradient, branch": lambda J: lambda w, x: J.vmap(J.grad(lambda w: branching(J, w, x)))(
        J.numpy.stack([w, -w])
    ),
    "vmap": lambda J: lambda w, x: J.vmap(lambda x: rnn(J, w, x), 1, 1)(J.numpy.stack([x, x * 2], 1)),
    "vmap, closure": lambda J: lambda w, x: J.vmap(lambda w: rnn(J, w, x))(J.numpy.stack([w, w * 2])),
    "vmap, part": lambda J: lambda w, x: J.vmap(lambda x: counter(J, x))(J.numpy.stack([x, x * 2])),
    "vmap of grad": lambda J: lambda w, x: J.vmap(J.grad(lambda w: loss(J, w, x)))(J.numpy.stack([w, w * 2])),
    "grad of vmap": lambda J: J.grad(
        lambda w, x: J.vmap(lambda x: loss(J, w, x))(J.numpy.stack([x, x * 2])).sum()
    ),
    "vmap with a name": lambda J: lambda w, x: J.vmap(
        lambda x: J.lax.scan(lambda c, x: (c + J.lax.psum(x, "i"), c), w[0], x), axis_name="i"
    )(J.numpy.stack([x, x * 2])),
    "map": lambda J: lambda w, x: J.lax.map(lambda x: (x @ w, x), x),
    "map in batches": lambda J: lambda w, x: J.lax.map(lambda x: x @ w, x, batch_size=2),
    "map in one batch": lambda J: lambda w, x: J.lax.map(lambda x: x @ w, x, batch_size=0),
    "map in equal batches": lambda J: lambda w, x: J.lax.map(lambda x: (x * w[0],), x, batch_size=1),
    "map in a large batch": lambda J: lambda w, x: J.lax.map(lambda x: x @ w, x, batch_size=5),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.one_in(4)
def test_jaxprs_as_jax(name):
    check(PROGRAMS[name], W, XS, eager=False, jitted=False)


@pytest.mark.parametrize("name", one_in(2, PROGRAMS))
@pytest.mark.one_in(3)
def test_results_as_jax(name):
    check(PROGRAMS[name], W, XS, jaxpr=False, eager=False, **TOLERANCE)


# JAX's text has leftovers of its own here: constants that no iteration reads, sums with zeros, empty calls.
VALUES = {
    "vmap of gradient, rules": lambda J: lambda w, x: J.vmap(J.grad(lambda w: with_rules(J, w, x)))(
        J.numpy.stack([w, -w])
    ),
    "gradient of a loop of gradients": lambda J: J.grad(
        lambda w, x: J.lax.scan(
            lambda w, _: (w - 0.125 * J.grad(lambda w: loss(J, w, x))(w), loss(J, w, x)), w, None, length=2
        )[1].sum()
    ),
    "random keys": lambda J: J.grad(
        lambda w, x: J.lax.scan(
            lambda c, k: ((J.random.split(c[0])[0], c[1] * J.random.uniform(k)), J.random.uniform(c[0])),
            (J.random.key(1), w[0]),
            J.random.split(J.random.key(0), 3),
        )[0][1].sum()
    ),
    "normalized": lambda J: J.grad(
        lambda w, x: J.lax.scan(lambda c, x: (J.nn.softmax(w @ c + x), J.nn.relu(c)), w[0], x)[0][0]
    ),
    "complex": lambda J: J.grad(
        lambda w, x: J.numpy.abs(J.lax.scan(lambda c, x: (c * (1 + 1j) * x, None), w[0] * (1 + 0j), x)[0]).sum()
    ),
    "transpose beside a counter": lambda J: lambda w, x: J.linear_transpose(
        lambda v: J.lax.scan(
            lambda c, y: ((c[0] + 1, w @ c[1] * y, c[2] * c[0] + y), c[1] * c[2]), (0, v, w[0]), x, reverse=True
        ),
        x[0],
    )(((np.zeros((), J.dtypes.float0), x[1], np.zeros(2, np.float32)), x * 3)),
    "transpose beside a product that nobody reads": lambda J: lambda w, x: J.linear_transpose(
        lambda x: J.lax.scan(lambda c, y: ((c[0] * 2, c[1] * y), c[1]), (x, w[0]), x)[0][0], x
    )(x * 2),
    "transpose by xs and consts": lambda J: lambda w, x: J.linear_transpose(
        lambda v, x: J.lax.scan(lambda c, x: (w @ c + x + v, c), J.numpy.zeros(2), x), w[0], x
    )((w[1], x)),
    "forward over reverse": lambda J: lambda w, x: J.jvp(J.grad(lambda w: loss(J, w, x)), (w,), (w,)),
    "jvp, rules": lambda J: lambda w, x: J.jvp(lambda w: with_rules(J, w, x), (w,), (w,)),
    "gradient, rules": lambda J: J.grad(lambda w, x: with_rules(J, w, x), (0, 1)),
    "reverse over reverse": lambda J: lambda w, x: J.grad(
        lambda w: (J.grad(lambda w: loss(J, w, x))(w) ** 2).sum()
    )(w),
    "reverse over forward": lambda J: lambda w, x: J.grad(lambda w: J.jvp(lambda w: loss(J, w, x), (w,), (w,))[1])(w),
    "nested": lambda J: lambda w, x: J.grad(
        lambda w: (J.grad(lambda w: nested(J, w, x)[1].sum())(w) ** 2).sum()
    )(w),
    "third": lambda J: lambda w, x: J.grad(
        lambda c: J.grad(J.grad(lambda c: J.lax.scan(lambda c, x: (J.numpy.sin(c * x[0]), None), c, x)[0]))(c)
    )(w[0, 0]),
}


@pytest.mark.parametrize("name", one_in(2, VALUES))
@pytest.mark.one_in(2)
def test_values_as_jax(name):
    check(VALUES[name], W, XS, jaxpr=False, eager=False, **TOLERANCE)


@pytest.mark.parametrize("name", ["plain", "reverse", "counter", "trees", "length zero", "gradient", "vmap, closure"])
def test_eager_and_reference(name):
    """Outside of jit, and by the definition in NumPy."""
    make = PROGRAMS[name]
    expected = OURS.jit(make(OURS))(W, XS)
    assert_same_values(expected, make(OURS)(W, XS), **TOLERANCE)


def test_reference_is_the_loop():
    closed = OURS.make_jaxpr(lambda w, x: rnn(OURS, w, x, reverse=True))(W, XS)
    eqn = next(e for e in closed.eqns if e.primitive.name == "scan")
    carry, ys = eqn.primitive.reference(W, np.ones(2, np.float32), XS, **eqn.params)
    expected, stacked = np.ones(2, np.float32), []
    for x in XS[::-1]:
        stacked.insert(0, expected * 2)
        expected = np.tanh(W @ expected + x) * W[0]
    np.testing.assert_allclose(carry, expected, rtol=1e-6)
    np.testing.assert_allclose(ys, np.stack(stacked), rtol=1e-6)


@pytest.mark.parametrize("name", ["plain", "reverse", "trees", "no xs", "map", "gradient"])
def test_disable_jit_runs_python(name):
    expected = PROGRAMS[name](OURS)(W, XS)
    with OURS.disable_jit():
        found = PROGRAMS[name](OURS)(W, XS)
    for a, b in zip(leaves_of(expected), leaves_of(found), strict=True):
        np.testing.assert_allclose(np.asarray(b), np.asarray(a), **TOLERANCE)


# ---------------------------------------------------------------- what is stored


def scans(jaxpr) -> list:
    return [e for e in jaxpr.eqns if e.primitive.name == "scan"]


def test_residuals_are_stored_once():
    """The gradient's loop reads w and x where they are; what depends on w alone has no axis over the iterations."""

    def f(w, x):
        return OURS.lax.scan(lambda c, x: (OURS.numpy.sin(c) * x + OURS.numpy.exp(w), None), w, x)[0].sum()

    forward, backward = scans(OURS.make_jaxpr(OURS.grad(f, (0, 1)))(XS[0], XS))
    stored = forward.outvars[1:]
    assert [v.aval.shape for v in stored] == [(3, 2), (3, 2)]  # sin(c) and cos(c)
    assert {v for v in backward.invars if v.aval.shape == (3, 2)} - set(stored) == {forward.invars[-1]}


def test_what_a_call_computes_from_constants_leaves_the_loop():
    """Of sin(w) @ c in a jitted function, sin(w) and cos(w) are computed once and have no axis over the iterations."""

    @OURS.jit
    def layer(w, c, x):
        return OURS.jit(lambda w, c: OURS.numpy.sin(w) @ c)(w, c) + OURS.jit(OURS.numpy.sin)(c) * x

    def f(w, x):
        return OURS.lax.scan(lambda c, x: (layer(w, layer(w, c, x), x), None), x[0], x)[0].sum()

    traced = OURS.make_jaxpr(OURS.grad(f))(W, XS)
    forward, backward = scans(traced)
    assert {v.aval.shape for v in forward.outvars} == {(2,), (3, 2)}
    assert not [v for v in backward.invars if v.aval.shape == (3, 2, 2)]
    expected = THEIRS.grad(
        lambda w, x: THEIRS.lax.scan(
            lambda c, x: (plain_layer(w, plain_layer(w, c, x), x), None), x[0], x
        )[0].sum()
    )(W, XS)
    np.testing.assert_allclose(np.asarray(OURS.grad(f)(W, XS)), np.asarray(expected), **TOLERANCE)


def plain_layer(w, c, x):
    return THEIRS.numpy.sin(w) @ c + THEIRS.numpy.sin(c) * x


def test_dead_code_leaves_the_loop():
    def f(x):
        (a, _), (_, z) = OURS.lax.scan(lambda c, x: ((c[0] + x, c[1] * x[0]), (c[1], x * 2)), (x[0], 1.0), x)
        return a, z

    [eqn] = scans(OURS.make_jaxpr(OURS.jit(f))(XS).eqns[0].params["jaxpr"])
    kept = eqn.primitive.dce([True, False, False, True], eqn)
    assert [v.aval.shape for v in kept.outvars] == [(2,), (3, 2)]
    assert kept.params["num_carry"] == 1 and len(kept.params["jaxpr"].eqns) == 2
    kept = eqn.primitive.dce([False, False, True, False], eqn)
    assert [v.aval.shape for v in kept.outvars] == [(), (3,)]


def test_a_function_is_traced_once():
    traced = []

    def body(c, x):
        traced.append(c)
        return c + x, None

    for _ in range(3):
        OURS.lax.scan(body, XS[0], XS)
    assert len(traced) == 1


# ---------------------------------------------------------------- errors


ERRORS = {
    "dtype": (lambda J: J.lax.scan(lambda c, x: (c.astype("int32"), x), XS[0], XS), "input carry c has type float32[2]", "int32[2]"),
    "shape": (lambda J: J.lax.scan(lambda c, x: ((c[0], x), x), (XS[0], XS), XS), "c[1]", "float32[3,2]"),
    "structure": (lambda J: J.lax.scan(lambda c, x: ((c, x), x), XS[0], XS), "pytree structure", "differ"),
    "no pair": (lambda J: J.lax.scan(lambda c, x: (c, x, x), XS[0], XS), "must be a pair"),
    "not callable": (lambda J: J.lax.scan(3, XS[0], XS), "callable"),
    "lengths": (lambda J: J.lax.scan(lambda c, x: (c, x), 0, (XS, W)), "different leading axis sizes: 3, 2"),
    "length": (lambda J: J.lax.scan(lambda c, x: (c, x), 0, XS, length=4), "disagrees", "[3]"),
    "no length": (lambda J: J.lax.scan(lambda c, x: (c, x), 0), "`length` not provided"),
    "no axis": (lambda J: J.lax.scan(lambda c, x: (c, x), 0, 1.0), "no leading axis"),
    "unroll": (lambda J: J.lax.scan(lambda c, x: (c, x), 0, XS, unroll=-1), "non-negative"),
    "not an array": (lambda J: J.lax.scan(lambda c, x: (c, x), 0, ["a"]), "not a valid JAX type"),
    "scalar": (lambda J: J.lax.scan(lambda c, x: (c, x), 0, np.float32(1)), "1 scalars in xs"),
    "one result": (lambda J: J.lax.scan(lambda c, x: c, XS[0], XS), "must be a pair, got float32[2]"),
    "traced unroll": (
        lambda J: J.jit(lambda n: J.lax.scan(lambda c, x: (c, x), 0, XS, unroll=n))(3), "unroll", "concrete",
    ),
    "traced length": (
        lambda J: J.jit(lambda n: J.lax.scan(lambda c, x: (c, x), 0, None, length=n))(3), "length", "fori_loop",
    ),
    "empty without jit": (lambda J: without_jit(J), "zero-length"),
}  # fmt: skip


def without_jit(J):
    with J.disable_jit():
        return J.lax.scan(lambda c, x: (c, x), 0, XS[:0])


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, *parts = ERRORS[name]
    theirs, ours = run(lambda: call(THEIRS)), run(lambda: call(OURS))
    assert_same_outcome(theirs, ours)
    assert ours[0] == "error"
    for part in parts:
        assert part in ours[2], ours[2]


def test_operands_are_checked():
    closed = OURS.make_jaxpr(lambda w, x: rnn(OURS, w, x))(W, XS)
    [eqn] = scans(closed)
    with pytest.raises(OURS.errors.JaxprTypeError, match="arrays to scan"):
        OURS.jit(lambda w, x: eqn.primitive.bind(w, w[0], x, **eqn.params))(W, XS[:2])
    with pytest.raises(ValueError, match="2 operands"):
        OURS.jit(lambda w, x: eqn.primitive.bind(w, w[0], **eqn.params))(W, XS)


@pytest.mark.sweep
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("unroll", [2, 6, 9, True])
@pytest.mark.one_in(2)
def test_loops_written_out_have_the_bits_of_loops(unroll, reverse):
    x, xs = (jnp.asarray(np.random.default_rng(0).standard_normal(s), jnp.float32) for s in ((37,), (6, 37)))

    def program(x, xs, unroll):
        return lax.scan(lambda c, y: (c * 0.7 + y, (c * 2, jnp.sin(c))), x, xs, unroll=unroll, reverse=reverse)

    for fun in (program, lambda x, xs, unroll: mpijax.vjp(lambda *a: program(*a, unroll)[0], x, xs)[1](x)):
        want, got = (mpijax.jit(fun, static_argnums=2)(x, xs, n) for n in (1, unroll))
        for w, g in zip(mpijax.tree.leaves(want), mpijax.tree.leaves(got), strict=True):
            np.testing.assert_array_equal(g, w)
    plan = mpijax.jit(program, static_argnums=2).lower(x, xs, unroll).compile().as_text()
    assert ("loop" in plan) == (unroll == 2)
