"""Operations that a program does several times are functions, with the same bits as where they are written in place."""

import re

import numpy as np
import pytest

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import lax
from mpijax.compiler.loops import repeated
from mpijax.runtime.program import plan_cache

OPERATIONS = {
    "sin": lambda x: lax.sin(lax.sin(x) * 3),
    "exp": lambda x: lax.exp(x) + lax.exp(-x),
    "log of few": lambda x: lax.log(lax.abs(x[..., :3])) - lax.log(x[..., :3] + 1),
    "tanh and a sum": lambda x: jnp.sum(lax.tanh(x) * lax.tanh(x + 1), axis=-1),
    "atan2": lambda x: lax.atan2(x, x - 1) + lax.atan2(x * x, x),
    "pow": lambda x: lax.pow(lax.abs(x), jnp.asarray(2.5, x.dtype)) + lax.pow(lax.abs(x), x) * lax.pow(x, x + 1),
    "light beside heavy": lambda x: (lax.cos(x), lax.cos(lax.sin(lax.sin(lax.sin(lax.sin(x.T + 1)))))),
    "a scalar in a loop": lambda x: lax.fori_loop(0, 5, lambda i, c: lax.sin(c) + lax.sin(c * 2), x[0, 0]),
}
# Large numbers take the C library's sine, others the rare paths of logarithms and powers.
NUMBERS = [0.3, -1.2, 1e7, 2.5, 0.0, np.nan, -np.inf, 1e-40, 7.0, -3e5, 0.1, -0.0, np.inf]


def functions(function, *args):
    """The operations that the kernels of a function call."""
    text = jax.jit(function).lower(*args).as_text("llvm")
    return re.findall(r"^define internal [^@]*@mpijax\.(\w+)\.[0-9a-f]{24}\(", text, re.M)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 7), (3, 32), (5, 100), (40, 1)], ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.one_in(3)
def test_bits(name, shape, dtype, monkeypatch):
    monkeypatch.setattr(plan_cache, "_disk", lambda: None)
    with jax.enable_x64(True):
        x = jnp.asarray(np.resize(np.array(NUMBERS, dtype), shape))
        called = jax.jit(lambda x: OPERATIONS[name](x))(x)
        assert functions(OPERATIONS[name], x)
        monkeypatch.setattr(repeated, "SEVERAL", 1000)
        in_place = jax.jit(lambda x: OPERATIONS[name](x))(x)
        assert not functions(lambda x: OPERATIONS[name](x), x)
    jax.tree.map(np.testing.assert_array_equal, called, in_place)


def test_single_operations_are_written_in_place():
    assert functions(lambda x: lax.sin(x) + 1, jnp.ones(9)) == []


def test_kernels_of_a_program_share_a_function():
    def program(x, y):
        return lax.sin(x), jnp.sum(lax.sin(y), axis=0)

    assert functions(program, jnp.ones(50), jnp.ones((3, 70))) == ["sin"]


def test_a_special_function_is_written_once_for_all_widths():
    x = jnp.linspace(0.1, 0.9, 13)
    f = jax.jit(lambda x: lax.zeta(x + 2, x))
    text = f.lower(x).as_text("llvm")
    assert len(re.findall(r"^define internal .* @mpijax\.zeta\.[0-9a-f]{24}\(", text, re.MULTILINE)) == 1
    assert len(re.findall(r" call .* @mpijax\.zeta\.[0-9a-f]{24}\(", text)) == 2
    np.testing.assert_array_equal(f(x), [f(v) for v in x])
