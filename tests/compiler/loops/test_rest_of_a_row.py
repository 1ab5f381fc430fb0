"""The rest of a row after its whole vectors.

A last vector computes the rest. It repeats some elements, and its stores and sums leave these out.
"""

import numpy as np
import pytest
from quickly import one_in

import mpijax
from mpijax import lax
from mpijax import numpy as jnp

SIZES = (3, 9, 12, 20, 33, 47, 70, 100)


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


# Rules of rows and of columns: (in mpijax, in NumPy).
CASES = {
    "softmax of rows": (lambda x: mpijax.nn.softmax(x, axis=1), softmax),
    "softmax of columns": (lambda x: mpijax.nn.softmax(x, axis=0), lambda x: softmax(x.T).T),
    "sums of products": (lambda x: x @ (x[0] * 2), lambda x: x @ (x[0] * 2)),
    "maxima and places": (
        lambda x: (x.max(0), x.argmax(0), x.argmin(1)),
        lambda x: (x.max(0), x.argmax(0), x.argmin(1)),
    ),
    "norms": (lambda x: x / (1 + (x * x).sum(0)), lambda x: x / (1 + (x * x).sum(0))),
    "columns of few rows": (lambda x: (x[:5] ** 2).sum(0) + x[1], lambda x: (x[:5] ** 2).sum(0) + x[1]),
    "wider than its results": (lambda x: (x > x.mean(1, keepdims=True)), lambda x: x > x.mean(1, keepdims=True)),
}


def close(found, expected, tolerance):
    for a, b in zip(mpijax.tree.leaves(found), mpijax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.complex128), np.asarray(b, np.complex128), rtol=tolerance, atol=tolerance)


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.one_in(2)
def test_rows_of_all_sizes(name, dtype):
    ours, theirs = CASES[name]
    rng = np.random.default_rng(0)
    with mpijax.enable_x64(True):
        for columns in SIZES if dtype == "float32" else SIZES[1::3]:
            for rows in (7, 120) if columns in (20, 100) else (30,):
                x = rng.normal(size=(rows, columns)).astype(dtype)
                close(mpijax.jit(ours)(x), theirs(x.astype(np.float64)), 2e-5 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("dtype", one_in(2, ("int32", "int8", "bool", "complex64", "bfloat16")))
def test_rows_of_other_types(dtype):
    rng = np.random.default_rng(1)
    for columns in (9, 20, 37, 100):
        x = jnp.asarray(rng.integers(0, 2 if dtype == "bool" else 5, (11, columns))).astype(dtype)
        wide = np.asarray(x).astype(np.complex64)
        for axis in (0, 1):
            found = mpijax.jit(lambda x, axis=axis: (x.sum(axis), x * x.sum(axis, keepdims=True).astype(x.dtype)))(x)
            total = wide.sum(axis, keepdims=True)
            close(found[0], total.squeeze(axis), 1e-2 if dtype == "bfloat16" else 1e-6)
            if dtype in ("complex64", "int32"):
                close(found[1], wide * total, 1e-5)


@pytest.mark.parametrize("axis", (0, 1))
def test_rows_in_place(axis):
    """In the last vector, the repeated elements are overwritten already; what is read of them must not count."""

    def turn(_, x):
        return x * 0.5 + x.max(axis, keepdims=True)

    for columns in (9, 13, 20, 39, 100):
        x = np.random.default_rng(2).normal(size=(12, columns)).astype(np.float32)
        expected = x
        for _ in range(3):
            expected = expected * np.float32(0.5) + expected.max(axis, keepdims=True)
        close(mpijax.jit(lambda x: lax.fori_loop(0, 3, turn, x))(x), expected, 1e-5)
        donated = mpijax.jit(lambda x: turn(0, x), donate_argnums=0)
        close(donated(jnp.array(x, copy=True)), turn(0, x), 1e-6)


