"""Addresses with loop variables and run-time offsets: code is placed before all its uses, and never mistaken."""

import numpy as np
import pytest

from mpijax import jit, lax
from mpijax.core.shapes.index import Lin, LoopVar, Quotient

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


def test_divided_positions_that_run_backwards():
    def f(x):
        # The rows are read backwards, so the reshape divides; the result is read backwards again.
        return lax.rev(lax.reshape(lax.rev(x, (0,)), (x.size,)), (0,)) * 2

    x = X.reshape(15, 7)
    np.testing.assert_array_equal(np.asarray(jit(f)(x)), x[::-1].reshape(-1)[::-1] * 2)


@pytest.mark.parametrize("by", [1, 3, 4, 9])
@pytest.mark.parametrize("c", [1, -1, 2, -5, 9])
@pytest.mark.parametrize("offset", [-7, 0, 8, 44])
@pytest.mark.one_in(4)
def test_division_of_positions(by, c, offset):
    """Quotients and remainders are those of positions that are not negative, whatever runs backwards."""
    v = LoopVar(6)
    form = Lin(offset, [(v, c)])
    quotient, remainder = form.divmod(by)

    def at(form: Lin, i: int) -> int:
        total = form.offset
        for atom, k in form.terms:
            inner = i if atom is v else at(atom.of, i)
            assert inner >= 0
            total += k * (inner if atom is v else inner // atom.by if type(atom) is Quotient else inner % atom.by)
        return total

    for i in range(v.size):
        assert (at(quotient, i), at(remainder, i)) == divmod(c * i + offset, by)
