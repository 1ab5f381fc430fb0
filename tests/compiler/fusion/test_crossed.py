"""Reductions that would read operands across their rows: loops that do not reduce read these in tiles."""

from __future__ import annotations

import numpy as np
import pytest

import mpijax as jax
from mpijax import numpy as jnp

RNG = np.random.default_rng(0)
A, B = (RNG.standard_normal((200, 200)).astype(np.float32) for _ in range(2))
X, Y = (RNG.standard_normal(shape).astype(np.float32) for shape in ((5, 70, 110), (5, 110, 70)))

# Functions of arrays, and whether something is stored for them in memory that is not the result's.
FUNCTIONS = {
    "symmetry": (lambda a: jnp.abs(a - a.T).max(), (A,), True),
    "sum": (lambda a, b: (a * b.T).sum(), (A, B), True),
    "contraction": (lambda a, b: jnp.einsum("ij,ji->", a, b), (A, B), True),
    "contractions": (lambda x, y: jnp.einsum("bij,bji->b", x, y), (X, Y), True),
    "batch of the other": (lambda x, y: jnp.einsum("bij,jib->b", x, y.transpose(1, 2, 0)), (X, Y), True),
    "rows": (lambda a, b: jax.nn.softmax(a + b.T), (A, B), False),
    "columns": (lambda a, b: (a + jnp.sin(b.T)).sum(0), (A, B), True),
    "slices": (lambda a, b: (a[:190, :190] - b[10:, 10:].T).min(), (A, B), True),
    "maximum and where": (lambda a, b: jnp.where(a > 0, a, b.T).argmax(), (A, B), True),
    "all across": (lambda a, b: (a.T * b.T).sum(), (A, B), False),
    "none across": (lambda a, b: (a * b).sum(), (A, B), False),
    "small": (lambda a, b: (a[:9, :9] * b[:9, :9].T).sum(), (A, B), False),
    "gradient": (lambda a, b: jax.grad(lambda a: ((a - a.T) ** 2).sum())(a) + b, (A, B), True),
}  # fmt: skip



@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_are_those_of_operations_one_by_one(name):
    f, arrays, stores = FUNCTIONS[name]
    with jax.enable_checks(True):
        program = jax.jit(lambda *x: f(*x)).lower(*arrays).compile()
    np.testing.assert_allclose(program(*arrays), f(*arrays), rtol=2e-4, atol=2e-4)
    assert (program.memory_analysis().temp_size_in_bytes >= 0.8 * arrays[0].nbytes) == stores


def layer_norm(x):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


@pytest.mark.parametrize(
    ("f", "first"),
    [
        (lambda a: jax.nn.softmax(a.T), "exp"),
        (lambda a: jax.nn.log_softmax(a.T), "sub"),
        (lambda a: layer_norm(a.T), "sub"),
        (lambda a: (a.T + 1, (a.T + 1).sum(1)), "add"),
        (lambda a: jax.nn.softmax(a[None].transpose(0, 2, 1), 1), "exp"),
    ],
)
def test_elements_that_rows_of_a_transpose_become_have_a_loop_of_their_own(f, first):
    """In one loop nest with the reductions they were read element by element: six times as slow."""
    program = jax.jit(f).lower(A).compile()
    kernels = [line.split()[1] for line in program.as_text().splitlines() if line.startswith("  kernel")]
    assert first in kernels
    assert [k for k in kernels if k.startswith("reduce") and k.endswith(first)] == []
    for ours, theirs in zip(jax.tree.leaves(program(A)), jax.tree.leaves(f(A)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4)


def test_elements_that_do_not_read_a_transpose_have_a_loop_of_their_own_too():
    program = jax.jit(lambda a: jax.nn.one_hot(a.T.argmax(-1), 200)).lower(A).compile()
    kernels = [line.split()[1] for line in program.as_text().splitlines() if line.startswith("  kernel")]
    assert len(kernels) == 2
    np.testing.assert_array_equal(program(A).argmax(1), A.argmax(0))
