"""checkify beside JAX: the same functions fail with the same messages, through every transformation."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest
from oracle import OURS, THEIRS, assert_same_values, jaxpr_text, run
from quickly import one_in

import mpijax

X = np.array([1.0, 2.0, 3.0], np.float32)
BAD = np.array([1.0, -2.0, 0.0], np.float32)


def of(J):
    """The checkify module of a library."""
    return importlib.import_module(f"{J.name}.experimental.checkify")


def positive(J, x):
    of(J).check(J.numpy.all(x > 0), "must be positive: {x} {name}", x=x, name=x * 2)
    return J.numpy.sum(x)


def checked_in_scan(J, x):
    def step(carry, v):
        of(J).check(v > 0, "step {v}", v=v)
        return carry + v, J.numpy.log(v)

    return J.lax.scan(step, np.float32(0), x)


def checked_while(J, x):
    def turn(state):
        i, y = state
        of(J).check(y[i] > 0, "turn {i}", i=i)
        return i + 1, y / y[i]

    return J.lax.while_loop(lambda s: s[0] < 3, turn, (0, x))


def checked_condition(J, x):
    def holds(s):
        of(J).check(s < 3, "condition {s}", s=s)
        return s < x[0] + 2

    return J.lax.while_loop(holds, lambda s: s + 1, np.float32(0))


def custom(J, x):
    @J.custom_jvp
    def f(v):
        return J.numpy.log(v)

    f.defjvp(lambda p, t: (f(p[0]), 3 * t[0]))
    return f(x).sum()


def custom_reverse(J, x):
    @J.custom_vjp
    def f(v):
        return J.numpy.log(v)

    f.defvjp(lambda v: (f(v), v), lambda v, ct: (5 * ct,))
    return f(x).sum()


FUNCTIONS = {
    "user": positive,
    "nan": lambda J, x: J.numpy.log(x) * 2,
    "nan in jit": lambda J, x: J.jit(lambda v: J.numpy.log(v).sum())(x),
    "first of two": lambda J, x: J.numpy.sqrt(x) + J.numpy.log(x),
    "division": lambda J, x: 1 / x,
    "integer division": lambda J, x: J.lax.div(J.numpy.int32(3), x.astype(np.int32)),
    "get": lambda J, x: x[(x[0] * 5).astype(np.int32)],
    "take": lambda J, x: J.numpy.tile(x, (2, 1))[:, (x * 2).astype(np.int32)],
    "set": lambda J, x: x.at[(x * 4).astype(np.int32)].set(0.0),
    "add": lambda J, x: x.at[(x * 4).astype(np.int32)].add(1.0),
    "slice": lambda J, x: J.lax.dynamic_slice(x, ((x[1]).astype(np.int32),), (3,)),
    "update": lambda J, x: J.lax.dynamic_update_slice(x, x[:2], ((x[1] * 4).astype(np.int32),)),
    "cond": lambda J, x: J.lax.cond(x[1] < 0, lambda v: J.numpy.log(v).sum(), lambda v: (1 / v).sum(), x),
    "switch": lambda J, x: J.lax.switch(2, [J.numpy.sum, J.numpy.max, lambda v: positive(J, v)], x),
    "scan": checked_in_scan,
    "while": checked_while,
    "condition": checked_condition,
    "fori": lambda J, x: J.lax.fori_loop(0, 3, lambda i, s: s + J.numpy.log(x[i]), np.float32(0)),
    "map": lambda J, x: J.lax.map(lambda v: positive(J, v), x),
    "remat": lambda J, x: J.checkpoint(lambda v: J.numpy.log(v).sum())(x),
    "custom_jvp": custom,
    "custom_vjp": custom_reverse,
    "vmap inside": lambda J, x: J.vmap(lambda v: positive(J, v))(x),
    "grad inside": lambda J, x: J.grad(lambda v: J.numpy.sqrt(v).sum() + positive(J, v))(x),
    "debug": lambda J, x: of(J).debug_check(x[1] > 0, "debugging") or x,
}


def outcomes(J, f, transform, *inputs):
    """For each input the message, and the results."""
    checkify = of(J)
    checked = transform(J, checkify.checkify(lambda v: f(J, v), errors=checkify.all_checks))
    return [(error.get(), J.tree.leaves(out)) for error, out in map(checked, inputs)]


def outcome(J, f, x, transform):
    return outcomes(J, f, transform, x)[0]


@pytest.mark.parametrize("name", one_in(3, FUNCTIONS))
@pytest.mark.one_in(3)
def test_messages_are_jaxs(name):
    both = [outcomes(J, FUNCTIONS[name], lambda J, f: J.jit(f), X, BAD) for J in (THEIRS, OURS)]
    for theirs, ours in zip(*both, strict=True):
        assert ours[0] == theirs[0]
        assert_same_values(theirs[1], ours[1], rtol=1e-6)


@pytest.mark.parametrize("name", ["user", "take", "scan"])
def test_without_jit(name):
    for x in (X, BAD):
        [theirs, ours] = (outcome(J, FUNCTIONS[name], x, lambda J, f: f)[0] for J in (THEIRS, OURS))
        assert ours == theirs


@pytest.mark.parametrize("name", one_in(2, ["user", "nan", "get", "scan", "while", "cond"]))
def test_vmap_reports_each_example(name):
    batch = np.stack([X, BAD, X, BAD * 2])
    [theirs, ours] = (outcome(J, FUNCTIONS[name], batch, lambda J, f: J.jit(J.vmap(f)))[0] for J in (THEIRS, OURS))
    assert ours == theirs and "at mapped index 1: " in ours


@pytest.mark.parametrize("name", ["custom_jvp", "custom_vjp", "nan in jit", "scan", "remat"])
@pytest.mark.one_in(2)
def test_derivatives_of_checked_functions(name):
    def gradient(J, f):
        def loss(v):
            error, out = f(v)
            return sum(J.numpy.sum(leaf) for leaf in J.tree.leaves(out)), error

        def flipped(v):
            grads, error = J.grad(loss, has_aux=True)(v)
            return error, grads

        return flipped

    theirs, ours = (outcome(J, FUNCTIONS[name], X, gradient) for J in (THEIRS, OURS))
    assert theirs[0] is ours[0] is None
    assert_same_values(theirs[1], ours[1], rtol=1e-6)


def test_only_what_is_asked_for_is_checked():
    checkify = of(OURS)

    def message(errors):
        return checkify.checkify(lambda v: positive(OURS, v) + OURS.numpy.log(v)[7], errors=errors)(BAD)[0].get()

    assert message(checkify.user_checks).startswith("must be positive: [ 1. -2.  0.]")
    assert message(checkify.nan_checks) == "nan generated by primitive: log."
    assert "index 7 is out of bounds for axis 0 with size 3" in message(checkify.index_checks)
    assert message(checkify.div_checks) is None


# ---------------------------------------------------------------- failing, and saying where


@pytest.mark.parametrize("index", one_in(2, [(5,), ((1, 20),), (((1, 1), (1, 20)), 3), (0, (5, 1), 2)]))
def test_indices_are_checked_where_ranks_may_not_differ(index):
    def message(J):
        checked = of(J).checkify(lambda x: x[tuple(map(J.numpy.asarray, index))], errors=of(J).index_checks)
        with J.numpy_rank_promotion("raise"):
            return checked(J.numpy.ones((2, 3, 7)))[0].get().split(" at ")[0]

    assert message(OURS) == message(THEIRS)


def test_values_in_messages_are_arrays():
    def message(J):
        def f(x, key):
            of(J).check(x[0] > 5, "{} {x} {y!r} {key}", {"a": x}, x=x, y=x[0], key=key)

        return of(J).checkify(J.jit(f))(np.arange(2, dtype=np.float32), J.random.key(3))[0].get()

    assert "'a': Array([0., 1.], dtype=float32)" in message(OURS) and message(OURS) == message(THEIRS)


def test_throw_names_the_users_line():
    checkify = of(OURS)
    error, _ = checkify.checkify(OURS.jit(lambda v: OURS.numpy.log(v)), errors=checkify.float_checks)(BAD)
    with pytest.raises(checkify.JaxRuntimeError, match="nan generated by primitive: log.") as caught:
        error.throw()
    [note] = caught.value.__cause__.__notes__
    assert __file__ in note and "test_throw_names" not in str(error)
    checkify.checkify(OURS.numpy.log)(X)[0].throw()


def test_check_error_goes_into_the_next_checkify():
    def f(J, v):
        error, out = J.jit(of(J).checkify(lambda u: positive(J, u)))(v)
        of(J).check_error(error)
        return out

    [theirs, ours] = (outcome(J, f, BAD, lambda J, g: g)[0] for J in (THEIRS, OURS))
    assert ours == theirs
    assert float(f(OURS, X)) == 6
    with pytest.raises(ValueError, match="must be positive"):
        f(OURS, BAD)


@pytest.mark.parametrize(
    "call",
    [
        lambda J, c: c.check(False, "plain"),
        lambda J, c: J.vmap(lambda v: positive(J, v))(BAD),
        lambda J, c: J.jit(lambda v: positive(J, v))(X),
        lambda J, c: c.check(X > 0, "not a scalar"),
        lambda J, c: c.check(True, "{}", "text"),
        lambda J, c: c.check_error("no error"),
        lambda J, c: c.checkify(J.vmap(lambda n: J.lax.while_loop(lambda i: i < n, lambda i: i + 1, 0)))(np.arange(3)),
        lambda J, c: J.jit(lambda v: c.debug_check(v > 0, "not looked at") or v)(-1.0),
        lambda J, c: c.debug_check(False, "not looked at"),
    ],
)
@pytest.mark.one_in(3)
def test_errors_are_of_jaxs_classes(call):
    theirs, ours = (run(lambda J=J: call(J, of(J))) for J in (THEIRS, OURS))
    assert theirs[0] == ours[0]
    if theirs[0] == "error":
        assert theirs[1] == ours[1]


def test_jaxpr_of_a_check():
    def make(J):
        return lambda x: of(J).check(x.sum() > 0, "message {a}", a=x)

    def without_codes(text):
        return [line for line in text[1].splitlines() if "select_n" not in line]

    assert without_codes(jaxpr_text(OURS, make, (X,))) == without_codes(jaxpr_text(THEIRS, make, (X,)))


def test_public_names():
    theirs = {n for n in dir(of(THEIRS)) if not n.startswith("_")}
    assert theirs <= set(dir(of(OURS)))


def test_a_users_primitive_says_where_it_reads():
    checkify, lax = of(OURS), OURS.lax

    def read(x, i):
        return lax.dynamic_index_in_dim(x, i, keepdims=False)

    p = mpijax.extend.core.Primitive(
        "read_one",
        type_rule=lambda x, i: x.update(shape=x.shape[1:]),
        lower=mpijax.extend.lowering.Decompose(read),
        bounds=lambda x, i: ([i], np.array([x.shape[0] - 1]), [0]),
    )
    checked = checkify.checkify(lambda i: p.bind(OURS.numpy.arange(3.0), i), errors=checkify.index_checks)
    assert checked(2)[0].get() is None
    assert "index 3 is out of bounds for axis 0 with size 3" in checked(3)[0].get()


def test_effects_of_checks_have_the_types_of_the_values():
    program = mpijax.make_jaxpr(lambda x: of(OURS).check(False, "hi: {}", x))(np.ones(4, np.int32))
    (effect,) = program.effects
    longer = replace(effect, payload=(*effect.payload, mpijax.ShapeDtypeStruct((2,), np.float32)))
    assert effect.payload == (mpijax.ShapeDtypeStruct((4,), np.int32),) and effect < longer
