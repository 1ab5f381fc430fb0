"""`associative_scan` against JAX: text, values, derivatives, batches, errors."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import check, sample

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
FUNCTIONS = {
    "add": lambda J: J.numpy.add,
    "last axis": lambda J: J.lax.mul,
    "affine": lambda J: lambda a, b: {"a": a["a"] * b["a"], "b": b["a"] * a["b"] + b["b"]},
    "matrices": lambda J: J.numpy.matmul,
    "or": lambda J: J.lax.bitwise_or,
}


def operand(name, x):
    if name == "affine":
        return {"a": x, "b": x * 2}
    return x[:, :, None] * x[:, None, :] if name == "matrices" else x > 0 if name == "or" else x


@pytest.mark.parametrize("reverse", (False, True))
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("sizes", [(0, 5), pytest.param((1, 2, 8), marks=pytest.mark.slow)], ids=str)
@pytest.mark.one_in(3)
def test_scan(name, reverse, sizes):
    axis = -1 if name == "last axis" else 0
    scan = lambda J: lambda x: J.lax.associative_scan(FUNCTIONS[name](J), x, reverse, axis)
    for n in sizes:
        check(scan, operand(name, sample(n, 3)), eager=n == 5, **CLOSE)


def test_derivatives_and_batches():
    def scan(J):
        fn = FUNCTIONS["affine"](J)
        return lambda x: J.lax.associative_scan(fn, {"a": x, "b": x * 2})["b"]

    x = sample(5, 3)
    check(lambda J: J.grad(lambda x: (scan(J)(x) ** 2).sum()), x, eager=False, **CLOSE)
    check(lambda J: J.vmap(J.grad(lambda x: scan(J)(x).sum()), in_axes=1), x, eager=False, **CLOSE)
    check(lambda J: lambda x: J.jvp(scan(J), (x,), (x,)), x, eager=False, **CLOSE)


@pytest.mark.parametrize(
    "call",
    [
        lambda J: lambda x: J.lax.associative_scan(3, x),
        lambda J: lambda x: J.lax.associative_scan(J.lax.add, (x, x[1:])),
        lambda J: lambda x: J.lax.associative_scan(J.lax.add, x, axis=2),
    ],
)
def test_errors(call):
    check(call, np.ones((3, 2), np.float32))
