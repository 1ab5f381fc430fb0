"""Names of scopes on equations, against JAX's: where they begin and end, and where a program shows them."""

import threading

import numpy as np
import pytest
from oracle import OURS, THEIRS


def stacks(jaxpr):
    """The names of the scopes of all equations, those of inner Jaxprs below their caller."""
    found = []
    for eqn in jaxpr.eqns:
        inner = [p for p in eqn.params.values() if hasattr(p, "eqns") or hasattr(p, "jaxpr")]
        found.append([eqn.primitive.name, str(eqn.source_info.name_stack), *(stacks(p) for p in inner)])
    return found


def nested(J):
    @J.named_scope("outer")
    def f(x):
        with J.named_scope("inner"):
            y = x + 1
        return y * 2 - 3

    return f


def named(J):
    def double(x):
        return x * 2

    return lambda x: J.named_call(double, name="other")(J.named_call(double)(x))


def recursive(J):
    @J.named_scope("turn")
    def f(x, n=2):
        return f(x + 1, n - 1) if n else x * 3

    return f


def under_jit(J):
    @J.jit
    @J.named_scope("body")
    def inner(x):
        return x + 1

    return J.named_scope("call")(lambda x: inner(x) * 2)


def loop(J):
    def step(carry, x):
        with J.named_scope("step"):
            return carry + x, carry * x

    return J.named_scope("loop")(lambda x: J.lax.scan(step, x, J.numpy.ones(3))[0])


def evaluated_again(J):
    closed = J.make_jaxpr(nested(J))(1.0)
    return J.named_scope("again")(lambda x: J.core.eval_jaxpr(closed.jaxpr, closed.consts, x)[0])


def left_by_an_error(J):
    def f(x):
        try:
            with J.named_scope("failed"):
                raise ValueError
        except ValueError:
            return x + 1

    return f


@pytest.mark.parametrize("program", [nested, named, recursive, under_jit, loop, left_by_an_error])
def test_equations_have_the_names_of_their_scopes(program):
    ours, theirs = (stacks(J.make_jaxpr(program(J))(1.0).jaxpr) for J in (OURS, THEIRS))
    assert ours == theirs


def test_a_jaxpr_evaluated_again_is_in_the_scope_of_its_caller():
    jaxpr = OURS.make_jaxpr(evaluated_again(OURS))(1.0).jaxpr
    assert [name for _, name in stacks(jaxpr)] == ["again/outer/inner", "again/outer", "again/outer"]


def test_programs_show_the_scope_of_the_call_and_of_the_line():
    @OURS.jit
    @OURS.named_scope("body")
    def inner(x):
        return x + 1

    text = OURS.jit(OURS.named_scope("call")(inner)).lower(np.float32(1)).as_text()
    assert " (inner) in call/body" in text


def test_threads_have_their_own_scopes():
    seen = []

    def traced():
        seen.extend(stacks(OURS.make_jaxpr(lambda x: x + 1)(1.0).jaxpr))

    with OURS.named_scope("main"):
        thread = threading.Thread(target=traced)
        thread.start()
        thread.join()
    assert seen == [["add", ""]]
