"""Addresses with loop variables and run-time offsets: code is placed before all its uses, and never mistaken."""

import numpy as np
import pytest

from mpijax import jit, lax

X = np.random.default_rng(0).uniform(-1, 1, (3, 5, 7)).astype(np.float32)


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("at", [0, 1, 9])
def test_run_time_offset(axis, at):
    start = [0, 0, 0]
    sizes = list(X.shape)
    sizes[axis] = 1
    k = min(at, X.shape[axis] - 1)

    def f(x, at, w):
        start[axis] = at
        part = lax.dynamic_slice(x, start, sizes)
        # One operand with an offset in vector loops and in what is left over of them; a reduction over it too.
        return part, lax.squeeze(part, (axis,)) + w, part.sum(0), part.sum(2)

    want = np.take(X, [k], axis=axis)
    got = jit(f)(X, at, np.float32(0.5))
    for g, v in zip(got, (want, np.take(X, k, axis=axis) + np.float32(0.5), want.sum(0), want.sum(2)), strict=True):
        np.testing.assert_allclose(np.asarray(g), v, rtol=1e-5, atol=1e-6)
