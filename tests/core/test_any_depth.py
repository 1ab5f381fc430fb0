"""Programs nested deeper than Python's stack: a `jit` in a `jit` in a `jit`, up to a thousand times."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading

import numpy as np
import pytest

import mpijax
import mpijax.numpy as jnp
from mpijax import export, lax
from mpijax.core.base import config
from mpijax.core.base.any_depth import any_depth
from mpijax.core.base.source import current_source
from mpijax.experimental import checkify
from mpijax.extend.core import jaxpr_as_fun

DEPTH = 1000
# Each use of a program this deep fills Python's stack more than once.
DEEP = 400
FACTOR = 1.001
X = np.float32(0.3)


def nested(depth=DEPTH, inside_out=False):
    """sin(x) * FACTOR**depth; inside_out: each function is traced before the next one calls it."""
    f = jnp.sin
    for _ in range(depth):
        f = mpijax.jit(lambda x, inner=f: inner(x) * FACTOR)
        if inside_out:
            f.eval_shape(X)
    return f


SIN, COS = np.sin(X), np.cos(X)
# (use of a function, what it gives for sin): all are multiplied by FACTOR once at each level.
USES = {
    "call": (lambda f: f(X), SIN),
    "jit": (lambda f: mpijax.jit(f)(X), SIN),
    "grad": (lambda f: mpijax.grad(f)(X), COS),
    "grad in jit": (lambda f: mpijax.jit(mpijax.grad(f))(X), COS),
    "grad of grad": (lambda f: mpijax.grad(mpijax.grad(f))(X), -SIN),
    "vmap": (lambda f: mpijax.vmap(f)(jnp.stack([X, X])), [SIN, SIN]),
    "jvp": (lambda f: mpijax.jvp(f, (X,), (X,))[1], X * COS),
    "vjp": (lambda f: mpijax.vjp(f, X)[1](X)[0], X * COS),
    "linearize": (lambda f: mpijax.linearize(f, X)[1](X), X * COS),
    "checkpoint": (lambda f: mpijax.grad(mpijax.checkpoint(f))(X), COS),
    "checkify": (lambda f: mpijax.jit(checkify.checkify(f, errors=checkify.all_checks))(X)[1], SIN),
    "in a scan": (lambda f: mpijax.jit(lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0])(X), SIN),
    "export": (lambda f: export.deserialize(export.export(mpijax.jit(f))(X).serialize()).call(X), SIN),
    "evaluated": (lambda f: jaxpr_as_fun(mpijax.make_jaxpr(f)(X))(X)[0], SIN),
}


IN_FULL = ("call", "grad")
OFTEN = (*IN_FULL, "jit", "vmap", "linearize", "checkpoint", "in a scan", "export", "evaluated")
CASES = [
    pytest.param(use, DEPTH if use in IN_FULL else DEEP, False, id=f"{use}-from outside", marks=() if use in OFTEN else pytest.mark.slow)
    for use in USES
] + [
    pytest.param(use, DEPTH, True, id=f"{use}-from inside", marks=() if use == "call" else pytest.mark.slow) for use in USES
]


@pytest.mark.parametrize(("use", "depth", "inside_out"), CASES)
@pytest.mark.one_in(3)
def test_many_calls_inside_of_each_other(use, depth, inside_out):
    run, want = USES[use]
    f = nested(depth, inside_out)
    np.testing.assert_allclose(run(f), np.multiply(want, FACTOR**depth), rtol=2e-4)
    assert "deeper calls" not in {thread.name for thread in threading.enumerate()}
    del f
    gc.collect()  # frees the program: no recursion there either


@pytest.mark.slow
@pytest.mark.parametrize("use", [use for use in USES if use not in IN_FULL])
def test_a_thousand_calls_inside_of_each_other(use):
    test_many_calls_inside_of_each_other(use, DEPTH, False)


@pytest.mark.slow  # by default the tests above nest as deep
def test_text_of_a_program_nested_a_thousand_times():
    text = str(mpijax.make_jaxpr(nested())(X))
    assert text.count("= jit[") == DEPTH
    assert text.count("= mul") == DEPTH
    assert text.count(" = sin ") == 1
    assert mpijax.jit(nested()).lower(X).as_text()


@pytest.mark.slow  # by default the tests above nest as deep
def test_hash_and_comparison_of_a_program_nested_a_thousand_times():
    jaxpr = mpijax.make_jaxpr(nested())(X)
    assert jaxpr == jaxpr
    assert len({jaxpr, jaxpr, mpijax.make_jaxpr(nested())(X)}) == 2


KINDS = {
    "checkpoint": lambda g: mpijax.checkpoint(lambda x: g(x) * FACTOR),
    "cond": lambda g: lambda x: lax.cond(x < 10, lambda x: g(x) * FACTOR, jnp.cos, x),
    "scan": lambda g: lambda x: lax.scan(lambda c, _: (g(c) * FACTOR, None), x, None, length=1)[0],
    "while": lambda g: lambda x: lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, g(c[1]) * FACTOR), (0, x))[1],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.one_in(2)
def test_checkify_takes_a_time_that_grows_with_the_depth_and_not_twofold_with_each_level(kind):
    """Forty levels, each traced twice, would be traced for weeks."""
    f = jnp.sin
    for _ in range(40):
        f = KINDS[kind](f)
    error, out = mpijax.jit(checkify.checkify(f, errors=checkify.user_checks))(X)
    assert error.get() is None
    np.testing.assert_allclose(out, np.sin(X) * FACTOR**40, rtol=1e-4)


# ---------------------------------------------------------------- another stack


@any_depth
def down(levels, bottom):
    return bottom() if levels == 0 else down(levels - 1, bottom)


LEVELS = 3 * sys.getrecursionlimit()


def test_an_error_comes_back_with_the_lines_of_all_stacks():
    def fail():
        raise KeyError("from below")

    with pytest.raises(KeyError, match="from below") as raised:
        down(LEVELS, fail)
    assert sum(entry.name == "down" for entry in raised.traceback) == LEVELS + 1


def test_options_and_traces_hold_on_the_other_stack():
    with config.enable_x64(True):
        assert down(LEVELS, lambda: jnp.ones(2).dtype) == np.float64
    assert down(LEVELS, lambda: jnp.ones(2).dtype) == np.float32
    jaxpr = mpijax.make_jaxpr(lambda x: down(LEVELS, lambda: jnp.sin(x)))(X)
    assert [e.primitive.name for e in jaxpr.eqns] == ["sin"]


def test_an_operation_has_the_users_line_that_is_on_another_stack():
    names = {"any_depth": any_depth, "current_source": current_source}
    text = "@any_depth\ndef down(levels): return current_source() if levels == 0 else down(levels - 1)"
    exec(compile(text, "<frozen frames that are not the user's>", "exec"), names)
    assert names["down"](LEVELS).function == "test_an_operation_has_the_users_line_that_is_on_another_stack"


def test_a_signal_ends_a_call_on_another_stack():
    """The handler runs in the main thread, which waits; the call is to end, not to go on beside the program."""
    ended = threading.Event()

    def wait():
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
            while True:
                threading.Event().wait(0.01)
        finally:
            ended.set()

    def handler(*_):
        raise SystemExit(7)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(SystemExit) as raised:
            down(LEVELS, wait)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert raised.value.code == 7
    assert ended.is_set()
