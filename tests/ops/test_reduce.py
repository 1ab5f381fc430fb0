"""`lax.reduce` against JAX: functions with primitives of their own, any others, several operands."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import check, sample
from quickly import one_in

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
X = sample(3, 7) / 2
ONE, ZERO = np.float32(1), np.float32(0)


def affine(a, b):
    """Associative, and not commutative."""
    return a[0] * b[1] + b[0], a[1] * b[1]


def pair(J, dims):
    return lambda x: J.lax.reduce((x, x + 1), (ZERO, ONE), affine, dims)


CASES = {
    "sum": lambda J: lambda x: J.lax.reduce(x, ZERO, J.lax.add, (0,)),
    "weak": lambda J: lambda x: J.lax.reduce(x, 0.0, J.lax.add, (0, 1)),
    "max": lambda J: lambda x: J.lax.reduce(x, np.float32(-np.inf), J.lax.max, (1,)),
    "or": lambda J: lambda x: J.lax.reduce(x > 0, False, J.lax.bitwise_or, (1,)),
    "and": lambda J: lambda x: J.lax.reduce(x.astype("int32"), np.int32(-1), J.lax.bitwise_and, (0,)),
    "sum from 3": lambda J: lambda x: J.lax.reduce(x, np.float32(3), J.lax.add, (0,)),
    "any": lambda J: lambda x: J.lax.reduce(x, ZERO, lambda a, b: a + b + a * b, (0, 1)),
    "calls": lambda J: lambda x: J.lax.reduce(x, ZERO, lambda a, b: J.numpy.where(abs(a) > abs(b), a, b), (1,)),
    "nothing": lambda J: lambda x: J.lax.reduce(x[:0], ONE, lambda a, b: a * b, (0,)),
    "pair": lambda J: pair(J, (1,)),
    "pair of two axes": lambda J: pair(J, (1, 0)),
    "jvp": lambda J: lambda x: J.jvp(pair(J, (1,)), (x,), (x[::-1],)),
    "grad": lambda J: J.grad(lambda x: J.lax.reduce(x, ONE, lambda a, b: a * b, (0, 1))),
    "vmap": lambda J: J.vmap(pair(J, (0,)), in_axes=1),
    # errors
    "dtypes": lambda J: lambda x: J.lax.reduce(x, np.int32(3), J.lax.add, (0,)),
    "init of axes": lambda J: lambda x: J.lax.reduce(x, np.ones(2, np.float32), J.lax.add, (0,)),
    "closes over a tracer": lambda J: lambda x: J.lax.reduce(x, ZERO, lambda a, b: a + b + x[0, 0], (0,)),
    "result of another tree": lambda J: lambda x: J.lax.reduce(x, ZERO, lambda a, b: (a, b), (0,)),
    "no such axis": lambda J: lambda x: J.lax.reduce(x, ZERO, lambda a, b: a, (5,)),
    "init of another tree": lambda J: lambda x: J.lax.reduce(x, (ZERO,), lambda a, b: a, (0,)),
    "derivative by init": lambda J: lambda x: J.jvp(
        lambda i: J.lax.reduce(x, i, lambda a, b: a * b, (0,)), (ONE,), (ONE,)
    ),
}


@pytest.mark.parametrize("name", one_in(3, CASES))
def test_reduce(name):
    check(CASES[name], X, eager=False, **CLOSE)
