"""Python callbacks in programs: values, order, derivatives and vectorization as JAX's; wrong results named."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import OURS, THEIRS, check, jaxpr_text, run, sample
from quickly import one_in

X, XS = sample(3), sample(2, 3)
TWO = np.float32(2)


def pure(J, fun=np.sin, shape=(), dtype=np.float32, **options):
    return lambda *xs: J.pure_callback(fun, J.ShapeDtypeStruct(shape, dtype), *xs, **options)


def io(J, fun, shape=(), **options):
    return lambda *xs: J.experimental.io_callback(fun, J.ShapeDtypeStruct(shape, np.float32), *xs, **options)


def two_results(J):
    types = {"sum": J.ShapeDtypeStruct((3,), np.float32), "n": J.ShapeDtypeStruct((), np.int32)}
    return lambda x: J.pure_callback(lambda a, b: {"sum": a + b, "n": np.int32(a.size)}, types, x, b=x * 2)


# ---------------------------------------------------------------- like JAX


@pytest.mark.parametrize(
    "make, args",
    one_in(3, [
        (lambda J: lambda x: pure(J, np.negative, (3,))(x) * 2, (X,)),
        (two_results, (X,)),
        (lambda J: pure(J, lambda v: 1.5), (X,)),
        (lambda J: lambda x: J.pure_callback(lambda v: (), (), x), (X,)),
        (lambda J: io(J, np.negative, (3,), ordered=True), (X,)),
        (lambda J: J.vmap(pure(J, np.negative, vmap_method="expand_dims")), (X,)),
        (lambda J: J.vmap(J.vmap(pure(J, np.negative, vmap_method="expand_dims"))), (XS,)),
        (lambda J: J.vmap(pure(J, np.negative, (2,), vmap_method="sequential"), in_axes=1), (XS,)),
        (lambda J: J.vmap(pure(J, np.add, vmap_method="broadcast_all"), in_axes=(0, None)), (X, TWO)),
        (lambda J: J.vmap(pure(J, np.add, vmap_method="expand_dims"), in_axes=(0, None)), (X, TWO)),
        (lambda J: J.vmap(pure(J, np.add, vmap_method="legacy_vectorized"), in_axes=(0, None)), (X, TWO)),
        (lambda J: J.vmap(pure(J, np.add, vmap_method="sequential_unrolled"), in_axes=(0, None)), (X, TWO)),
    ], rows=True),
)
def test_values_are_jaxs(make, args):
    check(make, *args, jaxpr=False)


@pytest.mark.parametrize(
    "make",
    [
        lambda J: pure(J, np.sin, (3,), vmap_method="sequential"),
        lambda J: io(J, np.sin, (3,), ordered=True),
        lambda J: J.vmap(pure(J, np.sin, vmap_method="expand_dims")),
        lambda J: J.vmap(pure(J, np.sin, vmap_method="broadcast_all")),
        lambda J: J.vmap(pure(J, np.sin, vmap_method="sequential")),
        lambda J: J.vmap(pure(J, np.sin, vmap_method="sequential_unrolled")),
        lambda J: J.vmap(io(J, np.sin)),
    ],
)
def test_jaxprs_are_jaxs(make):
    assert jaxpr_text(OURS, make, (X,)) == jaxpr_text(THEIRS, make, (X,))


@pytest.mark.parametrize("method, shapes", [("expand_dims", [(3,), (1,)]), ("broadcast_all", [(3,), (3,)])])
def test_vmap_method_decides_what_the_function_sees(method, shapes):
    seen = []

    def fun(a, b):
        seen.append([a.shape, b.shape])
        return np.asarray(a) + np.asarray(b)

    OURS.vmap(pure(OURS, fun, vmap_method=method), in_axes=(0, None))(X, TWO)
    assert seen == [shapes]


@pytest.mark.parametrize(
    "call",
    [
        lambda J: J.grad(lambda x: pure(J)(x))(1.0),
        lambda J: J.jvp(io(J, np.sin), (1.0,), (1.0,)),
        lambda J: J.vmap(pure(J))(X),
        lambda J: J.vmap(io(J, np.sin, ordered=True))(X),
        lambda J: J.pure_callback(np.sin, np.zeros(()), 1.0),
        lambda J: pure(J, vmap_method="all")(1.0),
        lambda J: pure(J, lambda v: np.zeros(4, np.float32), (3,))(X),
        lambda J: J.jit(pure(J, lambda v: np.zeros(3, np.int32), (3,)))(X),
        lambda J: J.jit(pure(J, lambda v: (v, v), (3,)))(X),
        lambda J: J.jit(pure(J, lambda v: {}["missing"], (3,)))(X),
    ],
)
def test_errors_are_of_jaxs_classes(call):
    theirs, ours = run(lambda: call(THEIRS)), run(lambda: call(OURS))
    assert (theirs[0], theirs[1]) == (ours[0], ours[1])


def test_custom_derivative_of_a_callback():
    def make(J):
        f = J.custom_jvp(pure(J, lambda v: np.asarray(v) ** 2))
        f.defjvp(lambda p, t: (f(*p), 2 * p[0] * t[0]))
        return J.value_and_grad(f)

    check(make, np.float32(3), jaxpr=False)


# ---------------------------------------------------------------- what the function gets, how often and when


def test_functions_get_arrays_of_their_own():
    kept = []
    f = OURS.jit(lambda x: pure(OURS, lambda v: kept.append(v) or v, (3,))(x * 2))
    f(X)
    f(X + 1)
    assert all(isinstance(v, OURS.Array) for v in kept)
    np.testing.assert_array_equal(kept[0], X * 2)


def test_pure_calls_are_merged_and_dropped_and_others_are_not():
    calls = []

    def count(v):
        calls.append(None)
        return v

    def f(bind):
        return lambda x: (bind(x), bind(x))[0]

    for bind, expected in ((pure(OURS, count, (3,)), 1), (io(OURS, count, (3,)), 2), (io(OURS, count, (3,), ordered=True), 2)):
        calls.clear()
        OURS.jit(f(bind))(X)
        assert len(calls) == expected
    calls.clear()
    OURS.jit(lambda x: (pure(OURS, count, (3,))(x), x)[1])(X)
    assert calls == []


def test_ordered_calls_keep_the_order_of_the_program():
    seen = []

    @OURS.jit
    def f(x):
        for i in range(6):
            io(OURS, lambda v, i=i: seen.append((i, float(v))) or v, ordered=True)(x * i)
        return x

    f(2.0)
    assert seen == [(i, 2.0 * i) for i in range(6)]


def test_a_callback_may_use_the_library():
    f = OURS.jit(pure(OURS, lambda v: OURS.numpy.cumsum(v), (3,)))
    np.testing.assert_array_equal(f(X), np.cumsum(X))


# ---------------------------------------------------------------- in loops and branches


@pytest.mark.parametrize(
    "make",
    one_in(2, [
        lambda J: lambda x: J.lax.scan(lambda c, v: (c + pure(J, np.negative)(v), v), np.float32(0), x),
        lambda J: lambda x: J.lax.fori_loop(0, 3, lambda i, c: c + pure(J, np.negative, (3,))(x) * i, x),
        lambda J: lambda x: J.lax.while_loop(lambda c: pure(J, lambda v: v < 3, dtype=bool)(c), lambda c: c + 1, x[0]),
        lambda J: lambda x: J.lax.cond(x[0] > 0, pure(J, np.negative, (3,)), pure(J, np.abs, (3,)), x),
        lambda J: J.vmap(lambda v: J.lax.fori_loop(0, 3, lambda i, c: io(J, np.negative)(c) + i, v)),
        lambda J: J.checkpoint(pure(J, np.negative, (3,))),
    ]),
)
def test_in_loops_and_branches(make):
    check(make, X, jaxpr=False, eager=False)


def test_ordered_calls_in_loops_keep_their_order():
    seen = []

    def note(v):
        seen.append(float(v))

    @OURS.jit
    def f(x):
        def turn(i, c):
            io(OURS, lambda v: note(v) or v, ordered=True)(c)
            negated = io(OURS, lambda u: note(-u) or u, ordered=True)
            return OURS.lax.cond(i % 2 == 0, negated, lambda v: v, c + 1)

        return OURS.lax.fori_loop(0, 4, turn, x)

    f(10.0)
    assert seen == [10, -11, 11, 12, -13, 13]


# ---------------------------------------------------------------- what is wrong is said


def wrong_shape(v):
    return np.zeros(4, np.float32)


def fails(v):
    raise KeyError("no such row")


@pytest.mark.parametrize("transform", [lambda f: f, OURS.jit])
def test_wrong_results_name_both_types_and_the_function(transform):
    with pytest.raises(OURS.errors.JaxRuntimeError) as caught:
        transform(pure(OURS, wrong_shape, (3,)))(X)
    for part in ("wrong_shape at ", "Expected: (3,), Actual: (4,)", "f32[4]", "f32[3]"):
        assert part in str(caught.value)


@pytest.mark.parametrize("transform", [lambda f: f, OURS.jit])
def test_exceptions_come_with_their_traceback(transform, caplog):
    with pytest.raises(OURS.errors.JaxRuntimeError, match='in fails\n    raise KeyError\\("no such row"\\)') as caught:
        transform(pure(OURS, fails, (3,)))(X)
    assert isinstance(caught.value.__cause__, KeyError) and "called_by_program" not in str(caught.value)
    [logged] = caplog.records
    assert (logged.name, logged.getMessage()) == ("jax._src.callback", "jax.pure_callback failed")
    assert "Traceback (most recent" in caplog.text and "KeyError" in caplog.text and "called_by_program" not in caplog.text


def test_what_is_no_type_or_no_function_is_refused():
    with pytest.raises(TypeError, match="'shape' and 'dtype'"):
        OURS.pure_callback(np.sin, 3.0, X)
    with pytest.raises(TypeError, match="takes a function"):
        OURS.pure_callback(3, OURS.ShapeDtypeStruct((), np.float32), X)


def test_callbacks_that_must_happen_once_are_refused_in_jaxs_words():
    call = io(OURS, lambda v: v)

    def loop(x):
        return OURS.lax.while_loop(lambda i: i < 5, lambda i: call(i) + 1, x)

    for f, message in [
        (OURS.vmap(lambda x: OURS.lax.cond(x > 0, call, call, x)), "^IO effect not supported in vmap-of-cond. .*select"),
        (OURS.vmap(loop), "^IO effects not supported in while_loop with batched predicate. .*are done"),
        (
            OURS.vmap(OURS.grad(OURS.checkpoint(lambda x: call(OURS.lax.stop_gradient(x)) * x))),
            r"^Effects not supported in partial-eval of `checkpoint`/`remat`: \[IO\]. .*pure_callback",
        ),
    ]:
        with pytest.raises(NotImplementedError, match=message):
            f(OURS.numpy.array([0.0, 4.0]))
