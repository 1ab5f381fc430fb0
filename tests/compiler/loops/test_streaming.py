"""Large results are stored past the caches, with the same bits, and only where vectors lie at multiples of their size."""

import numpy as np
import pytest

import mpijax
import mpijax.numpy as jnp
from mpijax import lax
from mpijax.compiler.loops import streaming
from mpijax.compiler.steps import planner
from mpijax.compiler.steps.planner import plan_program

SMALL = 1 << 10


@pytest.fixture
def all_results_are_large(monkeypatch):
    """Results of more than a kilobyte count as larger than the caches."""
    monkeypatch.setattr(planner, "stream_above", lambda: SMALL)
    mpijax.clear_caches()
    yield
    monkeypatch.undo()
    mpijax.clear_caches()


def _x(*shape, dtype="float32", seed=0):
    return jnp.asarray((np.random.default_rng(seed).normal(size=shape) * 9).astype(dtype))


PROGRAMS = {
    "map": (lambda x: x * 2 + 1, [_x(5000)], True),
    "map with a rest": (lambda x: jnp.exp(-x * x), [_x(4099)], True),
    "rows": (lambda x, y: x + y, [_x(30, 64), _x(64)], True),
    "rows of odd length": (lambda x: x - x.mean(1, keepdims=True), [_x(30, 63)], False),
    "softmax": (lambda x: mpijax.nn.softmax(x), [_x(30, 128)], True),
    "columns reduced": (lambda x: x.sum(0), [_x(7, 4096)], True),
    "two results": (lambda x: (x + 1, jnp.sin(x)), [_x(2048)], True),
    "part of an array": (lambda x, y: x.at[3:-3, 8:-8].set(y * 2), [_x(40, 80), _x(34, 64)], False),
    "place known at run time": (lambda x, i: lax.dynamic_update_slice(x, x[:400] * 2, (i,)), [_x(4000), 1234], False),
    "roll": (lambda x: jnp.roll(x, 5) + 1, [_x(4096)], False),
    "transposed": (lambda x: x.T + 1, [_x(64, 80)], None),
    "int32": (lambda x: x // 3, [_x(3000, dtype="int32")], True),
    "bfloat16": (lambda x: (x * 2).astype(jnp.bfloat16), [_x(3000)], None),
    "bool": (lambda x: x > 0, [_x(3000)], False),
    "loop": (lambda x: lax.fori_loop(0, 3, lambda i, y: y * 2 + x, x), [_x(3000)], None),
    "scan": (lambda x: lax.scan(lambda c, r: (c + r, c * 2), x[0], x)[1], [_x(9, 333)], None),
}


def _streams(f, args) -> bool:
    plan = plan_program(mpijax.make_jaxpr(f)(*args))
    return any("nontemporal" in code.define for code in plan.kernels.values())


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.one_in(3)
def test_the_bits_are_the_same(name, all_results_are_large, monkeypatch):
    f, args, expected = PROGRAMS[name]
    if streaming.stream_above() < 1 << 40 and expected is not None:
        assert _streams(f, args) == expected
    got = mpijax.jit(f)(*args)
    monkeypatch.undo()
    mpijax.clear_caches()
    assert not _streams(f, args)
    again = mpijax.jit(lambda *x: f(*x))(*args)
    for a, b in zip(mpijax.tree.leaves(got), mpijax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)


def test_memory_of_an_operand_is_not_streamed_to(all_results_are_large):
    """It is in the cache already."""
    closed = mpijax.make_jaxpr(lambda x: x * 2)(_x(5000))
    plan = plan_program(closed, donated=(True,))
    assert not any("nontemporal" in code.define for code in plan.kernels.values())


def test_results_of_the_size_of_a_small_array_are_not_streamed():
    assert not _streams(lambda x: x * 2, [_x(5000)])


def test_large_results():
    """At the size at which it is meant to be used, with threads where there are cores for them."""
    n = streaming.stream_above() // 4 if streaming.stream_above() < 1 << 28 else 1 << 20
    x = np.arange(n + 77, dtype=np.float32)
    np.testing.assert_array_equal(mpijax.jit(lambda x: x * 2 + 1)(x), x * 2 + 1)
