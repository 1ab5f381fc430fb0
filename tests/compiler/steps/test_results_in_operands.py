"""A result lies in the memory of an operand only if no later result of the kernel reads the operand from memory."""

from __future__ import annotations

import random

import numpy as np
import pytest

import mpijax as jax
from mpijax import lax
from mpijax import numpy as jnp
from mpijax.compiler.steps.memory import BufferAssignment
from mpijax.compiler.steps.planner import plan_program
from mpijax.runtime.program import tiers
from mpijax.runtime.program.loader import load_plan


def run(function, arguments):
    """The results of a program whose arguments are donated."""
    closed = jax.make_jaxpr(function)(*arguments)
    program = load_plan(plan_program(closed, (True,) * len(arguments)), "f", tiers.NEVER)
    return [np.asarray(x) for x in program.run([jnp.array(x) for x in arguments])]


def check(function, arguments, monkeypatch, note=""):
    """Each result has memory of its own, or not: the bits are the same."""
    found = run(function, arguments)
    with monkeypatch.context() as m:
        m.setattr(BufferAssignment, "_share", lambda self, outputs: None)
        wanted = run(function, arguments)
    assert [x.tobytes() for x in found] == [x.tobytes() for x in wanted], note


def bounded(x):
    return jnp.clip(x, -50, 50)


def kept_between_passes(x):
    y = bounded(jax.nn.softmax(x, axis=1))
    return y, bounded(jnp.where(y > 0.1, x, y - 1))


def read_in_some_parts(x):
    half = x.shape[1] // 2
    y = bounded(x.at[:, :half].set(x[:, :half] + 1))
    z = bounded((y - y.mean(1, keepdims=True)) * lax.rsqrt(y.var(1, keepdims=True) + 1e-3))
    return bounded(y - z), z


def stored_in_an_earlier_pass(x, y):
    z = bounded(y - x.sum(0, keepdims=True))
    return bounded(jnp.maximum(x, y)), bounded(x + z * x), z


@pytest.mark.parametrize("function, count", [(kept_between_passes, 1), (read_in_some_parts, 1), (stored_in_an_earlier_pass, 2)])
@pytest.mark.parametrize("shape", [(3, 4), (2, 300)])
def test_results_of_one_kernel(function, count, shape, monkeypatch):
    arguments = list(np.random.default_rng(0).normal(size=(count, *shape)).astype(np.float32))
    check(function, arguments, monkeypatch)
    with jax.disable_jit():
        wanted = function(*map(jnp.array, arguments))
    for x, y in zip(run(function, arguments), wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


OPERATIONS = (
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    jnp.maximum,
    lambda x, y: jnp.where(x > 0, y, x - 1),
    lambda x, y: jnp.concatenate([x[:, x.shape[1] // 2 :], y[:, : x.shape[1] // 2]], 1),
    lambda x, y: x.at[:1].set(y[:1]),
    lambda x, y: x + y.mean(1, keepdims=True),
    lambda x, y: x - y.max(0, keepdims=True),
    lambda x, y: jax.nn.softmax(x, 1) + y,
    lambda x, y: (x - x.mean(1, keepdims=True)) * lax.rsqrt(y.var(1, keepdims=True) + 1e-3),
    lambda x, _: jnp.exp(-abs(x)),
    lambda x, _: x[:, ::-1],
    lambda x, _: jnp.sort(x, 1),
    lambda x, _: jnp.cumsum(x, 1) * 0.1,
    lambda x, _: x @ jnp.eye(x.shape[1]),
    lambda x, _: lax.optimization_barrier(x),
)


def drawn(seed):
    """(function, arguments, steps): a few operations on earlier values; some of the values are results."""
    choose = random.Random(seed)
    shape = choose.choice([(1, 5), (3, 4), (7, 16), (5, 128), (64, 64), (2, 300), (33, 9)])
    count, length = choose.randrange(1, 4), choose.randrange(3, 14)
    steps = [
        (choose.randrange(len(OPERATIONS)), choose.randrange(count + i), choose.randrange(count + i)) for i in range(length)
    ]
    results = choose.sample(range(count, count + length), choose.randrange(1, min(length, 4) + 1))

    def function(*arguments):
        values = list(arguments)
        for number, i, k in steps:
            values.append(bounded(OPERATIONS[number](values[i], values[k])))
        return [values[r] for r in results]

    return function, list(np.random.default_rng(seed).normal(size=(count, *shape)).astype(np.float32)), (steps, results)


@pytest.mark.parametrize("first", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(100, 2100, 100))])
def test_random_programs(first, monkeypatch):
    for seed in range(first, first + (30 if first == 0 else 100)):
        function, arguments, steps = drawn(seed)
        check(function, arguments, monkeypatch, (seed, steps))
