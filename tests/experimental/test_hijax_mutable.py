"""Values of a library that change (`MutableHiType`), in programs: boxes and logs."""

import numpy as np
import pytest
from experimental.hijax_boxes import Box, BoxTy, Log

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import lax
from mpijax.experimental import cur_qdd

HOW = pytest.mark.parametrize("how", [lambda fun: fun, jax.jit], ids=["plain", "jitted"])


def test_what_is_known_of_a_box_follows_the_program():
    outer = Box(1.0)

    @jax.jit
    def f(box):
        assert isinstance(box, Box) and box.type_state() == cur_qdd(box)
        inner = Box(jnp.arange(2))
        for x in (box, outer, inner):
            x.set(jnp.arange(3))
            assert [a.shape for a in cur_qdd(x).leaf_avals] == [(3,)]
        inner.set((1, 2))
        return sum(inner.get())

    box = Box(1.0)
    assert f(box) == 3
    np.testing.assert_array_equal(box.get(), [0, 1, 2])
    np.testing.assert_array_equal(outer.get(), [0, 1, 2])


def test_the_program_has_the_type():
    text = str(jax.make_jaxpr(lambda box: box.set(box.get()[0] + 1))(Box([jnp.float32(1)])))
    assert "a:BoxTy. let" in text and "= box_get" in text and "box_set" in text


def test_a_box_is_an_argument():
    traced = []

    @jax.jit
    def f(d, x):
        traced.append(x)
        d["box"].set(d["box"].get() + x)

    one, two, three = Box(1.0), Box(2.0), Box(3)
    f({"box": one}, 1.0)
    f({"box": two}, 2.0)
    assert (one.get(), two.get(), len(traced)) == (2, 4, 1)
    f({"box": three}, 2.0)  # holds another type
    assert (three.get(), len(traced)) == (5, 2)


def test_a_box_that_is_closed_over_may_hold_another_type_next_time():
    box, traced = Box(None), []

    @jax.jit
    def f():
        traced.append(0)
        x = box.get()
        box.set(0 if x is None else x + 1)

    for expected in (0, 1, 2):
        f()
        assert box.get() == expected
    assert len(traced) == 2
    box.set(None)
    f()
    f()
    assert (box.get(), len(traced)) == (1, 2)
    box.set(jnp.ones(2))
    f()
    np.testing.assert_array_equal(box.get(), [2, 2])
    assert len(traced) == 3


def test_two_jits_of_a_function():
    box = Box(None)

    def f():
        box.set(0 if box.get() is None else box.get() + 1)

    for expected in (0, 1, 2):
        jax.jit(f)()
        assert box.get() == expected


def test_calls_in_calls():
    box = Box([])

    @jax.jit
    def f(x):
        inner = Box(x)

        @jax.jit
        def g():
            box.set([*box.get(), inner.get()])
            inner.set(inner.get() + 1)

        g()
        g()
        return inner.get()

    assert f(1.0) == 3
    assert box.get() == [1, 2]


# ---------------------------------------------------------------- loops and branches


@HOW
def test_scan_and_while_loop_carry_what_is_in_a_box(how):
    box = Box(1.0)

    @how
    def f():
        lax.scan(lambda _, x: (None, box.set(box.get() * 2 + x)), None, jnp.arange(3.0))
        return lax.while_loop(lambda i: i < 3, lambda i: box.set(box.get() + 1) or i + 1, 0)

    assert f() == 3
    assert box.get() == 15


def test_a_loop_must_not_change_the_type():
    box = Box([1.0])
    with pytest.raises(TypeError, match="type-changing mutations not allowed"):
        lax.while_loop(lambda i: i < 5, lambda i: box.set(box.get() * 2) or i + 1, 0)
    with pytest.raises(TypeError, match="type-changing mutations not allowed"):
        jax.jit(lambda: lax.scan(lambda _, __: (None, box.set(1)), None, None, length=2))()


@HOW
@pytest.mark.parametrize("x, expected", [(1.0, 2.0), (-1.0, -1.0)])
def test_cond(how, x, expected):
    @how
    def f(x):
        box = Box(x)
        lax.cond(x > 0, lambda box: box.set(box.get() + 1), lambda _: None, box)
        return box.get()

    assert f(x) == expected


def test_branches_must_agree():
    box = Box(1.0)
    with pytest.raises(TypeError, match="different types"):
        jax.jit(lambda p: lax.cond(p, lambda: box.set(1), lambda: box.set(2.0)))(True)


@HOW
def test_a_loop_stacks_what_a_log_collects(how):
    log = Log()

    @how
    def f():
        def turn(_, x):
            log.append("x", x)
            jax.jit(lambda: log.append("y", {"twice": 2 * x}))()
            return (), ()

        lax.scan(turn, (), jnp.arange(3))
        log.append("x", 7)

    f()
    np.testing.assert_array_equal(log._dct["x"][0], [0, 1, 2])
    assert log._dct["x"][1] == 7
    np.testing.assert_array_equal(log._dct["y"][0]["twice"], [0, 2, 4])


def test_nested_loops():
    box, log = Box(0), Log()

    def inner(_, __):
        log.append("x", box.get())
        box.set(box.get() + 1)
        return (), ()

    lax.scan(lambda _, __: (lax.scan(inner, (), (), length=3)[0], ()), (), (), length=2)
    np.testing.assert_array_equal(log._dct["x"][0], [[0, 1, 2], [3, 4, 5]])
    assert box.get() == 6


# ---------------------------------------------------------------- derivatives and batches


@HOW
def test_derivatives_of_functions_that_use_a_box(how):
    box = Box(1.0)

    @how
    def f(x):
        y = 2 * x
        box.set(box.get() + lax.stop_gradient(y))
        return y * x

    assert jax.jvp(f, (3.0,), (1.0,)) == (18.0, 12.0)
    assert box.get() == 7
    assert jax.grad(f)(3.0) == 12
    assert box.get() == 13


@HOW
def test_checkpoint(how):
    box = Box(jnp.float32(0))

    @jax.checkpoint
    def f(x):
        box.set(box.get() + 1)
        return jnp.sin(x) * x

    f = how(f)
    assert f(0.0) == 0
    assert box.get() == 1
    box.set((1, 2))
    with pytest.raises(TypeError):
        f(0.0)  # the box holds a tuple now


@HOW
def test_a_box_and_its_tangent(how):
    @how
    def f(box, x):
        box.set(box.get() * x)
        return x

    box, tangent = Box(5.0), Box(1.0)
    assert jax.jvp(f, (box, 2.0), (tangent, 3.0)) == (2.0, 3.0)
    assert (box.get(), tangent.get()) == (10.0, 17.0)


@HOW
def test_backward_rules_write_to_boxes_and_logs(how):
    box, log = Box(0.0), Log()

    @jax.custom_vjp
    def watched(log, x):
        return x

    def backward(log, ct):
        log.append("ct", ct)
        box.set(ct)
        return None, ct

    watched.defvjp(lambda log, x: (x, log), backward)
    f = how(lambda x: 2 * watched(log, 3 * x))
    assert jax.grad(f)(1.0) == 6
    assert (box.get(), log._dct["ct"]) == (2, [2])


def test_a_box_inside_of_vmap():
    np.testing.assert_array_equal(jax.vmap(lambda: Box(jnp.array(1)).get(), axis_size=2, out_axes=None)(), 1)


def test_ahead_of_time():
    box = Box((1.0, jnp.zeros(2)))

    @jax.jit
    def f(box, x):
        a, b = box.get()
        box.set((a + x, b - x))
        return {"before": a}

    lowered = f.lower(box, 2.0)
    lowered.as_text()
    compiled = lowered.compile()
    assert [compiled(box, x)["before"] for x in (1.0, 2.0)] == [1, 2]
    assert box.get()[0] == 4
    np.testing.assert_array_equal(box.get()[1], [-3, -3])
    with pytest.raises(TypeError, match="does not match"):
        compiled(Box(1.0), 2.0)
    with pytest.raises(NotImplementedError, match="closes over a mutable value"):
        jax.jit(lambda: box.set(1)).lower()


def test_types():
    assert jax.typeof(Box(1)) == BoxTy()
