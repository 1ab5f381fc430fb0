"""Only windows of results are computed, where nothing reads more: the same numbers with less work."""

from __future__ import annotations

import numpy as np
import pytest

import mpijax as jax
from mpijax import lax
from mpijax import numpy as jnp
from mpijax.compiler.graph import windows

RNG = np.random.default_rng(0)
X, Y = (RNG.standard_normal(shape).astype(np.float32) for shape in ((60, 40), (40, 50)))
STACK = RNG.standard_normal((12, 6, 6)).astype(np.float32)

# Functions of arrays, and how many operations compute windows.
FUNCTIONS = {
    "rows": (lambda x, y: (x @ y)[5:20], 1),
    "columns": (lambda x, y: (x @ y)[:, 7:9], 1),
    "a block": (lambda x, y: (x @ y)[5:20, 7:], 1),
    "one row": (lambda x, y: (x @ y)[3], 1),
    "through other operations": (lambda x, y: (jnp.sin(x @ y).T + 1)[7:9], 4),
    "a chain": (lambda x, y: ((x @ y) @ y.T)[:10], 2),
    "two equal slices": (lambda x, y: (x @ y)[5:20] + jnp.cos(x @ y)[5:20], 2),
    "a slice of a slice": (lambda x, y: (x @ y)[5:20][2:], 2),
    "windows on one way": (lambda x, y: (jnp.sin(x @ y)[5:20] @ y.T)[:2], 4),
    "batched": (lambda x, y: jnp.einsum("ij,jk->ikj", x, y)[2:4], 2),
    "sums": (lambda x, y: x.sum(1)[10:] + jnp.cumsum(x, 1)[10:, 3:].sum(1), 1),
    "in a loop": (lambda x, y: lax.fori_loop(0, 3, lambda i, c: c + (x @ (y + i))[:2], jnp.zeros((2, 50))), 1),
    "gradient": (lambda x, y: jax.grad(lambda y: (x @ y)[3:5].sum())(y), 0),
    "overlapping slices": (lambda x, y: (x @ y)[5:20].sum() + (x @ y)[6:22, 3:].sum(), 1),
    "a stencil": (lambda x, y: (lambda z: z[9:19] - 2 * z[10:20] + z[11:21])(jnp.sin(x @ y)), 2),
    "what a product reads is read again": (lambda x, y: (lambda z: (z @ y)[:9] + (z[:9] * 2).sum())(jnp.sin(x)), 2),
    "and by what computes a window": (lambda x, y: (lambda z: (z @ y)[:9] + jnp.cos(z)[:9].sum())(jnp.sin(x)), 3),
    "slices far apart": (lambda x, y: (x @ y)[:2] + (x @ y)[-2:], 0),
    "slices of slices": (lambda x, y: (lambda z: z[1:] - z[:-1])((x @ y)[10:20]), 1),
    "a slice of padding": (lambda x, y: jnp.pad(x @ y, ((0, 5), (0, 0)))[60:], 0),
    "almost all": (lambda x, y: (x @ y)[1:], 0),
    "read as a whole": (lambda x, y: (x @ y, (x @ y)[5:20]), 0),
    "steps": (lambda x, y: (x @ y)[5:20:2], 0),
    "along the sum": (lambda x, y: jnp.cumsum(x @ y, 0)[5:20], 0),
}  # fmt: skip


def compiled(f, args, monkeypatch, narrows: bool):
    """The results of a program, and the number of its operations that compute windows."""
    found: list[int] = []

    def useful(graph, plans):
        found.append(len(known(graph, plans)) if narrows else 0)
        return known(graph, plans) if narrows else {}

    known = windows._useful
    monkeypatch.setattr(windows, "_useful", useful)
    with jax.enable_checks(True):
        results = jax.tree.leaves(jax.jit(lambda *x: f(*x)).lower(*args).compile()(*args))
    monkeypatch.setattr(windows, "_useful", known)
    return results, sum(found)


def compare(f, args, monkeypatch) -> int:
    want, _ = compiled(f, args, monkeypatch, False)
    got, count = compiled(f, args, monkeypatch, True)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    return count


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_are_the_same(name, monkeypatch):
    f, count = FUNCTIONS[name]
    assert compare(f, (X, Y), monkeypatch) == count


def test_stacks(monkeypatch):
    positive = STACK @ STACK.transpose(0, 2, 1) + 6 * np.eye(6, dtype=np.float32)
    assert compare(lambda a: jnp.linalg.cholesky(a)[3:5], (positive,), monkeypatch) == 1


def test_less_memory():
    def temporaries(f):
        return jax.jit(f).lower(X, Y).compile().memory_analysis().temp_size_in_bytes

    assert temporaries(lambda x, y: (x @ y @ y.T)[:2]) < 1000 < temporaries(lambda x, y: x @ y @ y.T)
