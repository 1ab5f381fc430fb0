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


def scoped_sine(J):
    def f(x):
        with J.named_scope("bar"), J.named_scope("baz"):
            return J.lax.sin(x) * x

    return f


def under_vmap(J):
    return J.named_scope("foo")(lambda x: J.vmap(scoped_sine(J))(J.numpy.stack([x, x])).sum())


def under_jvp(J):
    return J.named_scope("foo")(lambda x: J.jvp(scoped_sine(J), (x,), (x,))[1])


def under_grad(J):
    return J.named_scope("foo")(J.grad(scoped_sine(J)))


def under_vmap_of_grad(J):
    return lambda x: J.vmap(J.grad(J.named_scope("foo")(scoped_sine(J))))(J.numpy.stack([x, x]))


def under_grad_of_jit(J):
    return J.value_and_grad(J.named_scope("foo")(J.jit(scoped_sine(J))))


def under_vmap_of_grad_of_scan(J):
    @J.named_scope("foo")
    def f(x):
        @J.named_scope("step")
        def step(carry, y):
            return carry * y, carry + y

        return J.lax.scan(step, x, J.numpy.arange(8.0))[0]

    return lambda x: J.vmap(J.grad(f))(J.numpy.stack([x, x]))


TRANSFORMED = [
    under_vmap, under_jvp, under_grad, under_vmap_of_grad, under_grad_of_jit, under_vmap_of_grad_of_scan,
]  # fmt: skip


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


@pytest.mark.parametrize("program", TRANSFORMED)
def test_equations_have_the_transformations_around_their_scopes(program):
    """As in JAX; the equations themselves may differ."""

    def names(jaxpr):
        found = set()
        for _, name, *inner in stacks(jaxpr):
            found.add(name)
            for called in inner:
                found.update("inside " + stack for _, stack, *_ in called)
        return found - {"", "vmap()"}

    ours, theirs = (names(J.make_jaxpr(program(J))(J.numpy.float32(1)).jaxpr) for J in (OURS, THEIRS))
    assert ours == theirs


def recomputed(J):
    return J.grad(J.remat(J.named_scope("foo")(lambda x: J.numpy.sin(J.numpy.sin(x)))))


def test_operations_computed_again_are_in_a_scope_of_their_own():
    """As in JAX, which shows the transformation of the call twice."""

    def stacks_inside(J):
        called = J.make_jaxpr(recomputed(J))(1.0).eqns[-1].params["jaxpr"]
        return [(e.primitive.name, str(e.source_info.name_stack)) for e in called.eqns]

    assert stacks_inside(OURS) == stacks_inside(THEIRS)


def test_texts_of_jaxprs_show_scopes_and_lines():
    """In JAX's layout, beside the equations."""

    def text(J, **options):
        program = J.named_scope("foo")(lambda x: J.jit(J.named_scope("bar")(lambda y: J.numpy.cos(y) + 1))(x) * 2)
        return J.make_jaxpr(J.vmap(program))(J.numpy.ones(2)).pretty_print(**options)

    for options in ({"name_stack": True}, {"print_shapes": False}, {"name_stack": True, "width": 200}):
        assert text(OURS, **options) == text(THEIRS, **options)
    assert all(f"# {__file__}:" in line for line in text(OURS, source_info=True).split("\n") if " = jit" in line)


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


def test_programs_show_transformations_only_around_scopes():
    double = OURS.vmap(lambda x: 2 * x)
    x = np.ones(3, np.float32)
    assert "vmap" not in OURS.jit(double).lower(x).as_text()
    assert " in vmap(layer)" in OURS.jit(OURS.vmap(OURS.named_scope("layer")(lambda x: 2 * x))).lower(x).as_text()


def test_exported_programs_keep_scopes():
    f = OURS.jit(OURS.vmap(OURS.named_scope("layer")(lambda x: 2 * x)))
    stored = OURS.export.export(f)(OURS.ShapeDtypeStruct((3,), np.float32)).serialize()
    again = OURS.named_scope("again")(OURS.export.deserialize(stored).call)
    assert " in again/vmap(layer)" in OURS.jit(again).lower(np.ones(3, np.float32)).as_text()


def test_threads_have_their_own_scopes():
    seen = []

    def traced():
        seen.extend(stacks(OURS.make_jaxpr(lambda x: x + 1)(1.0).jaxpr))

    with OURS.named_scope("main"):
        thread = threading.Thread(target=traced)
        thread.start()
        thread.join()
    assert seen == [["add", ""]]
