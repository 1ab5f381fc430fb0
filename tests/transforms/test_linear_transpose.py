"""The transpose of linear functions against JAX, and of communication against what mpi4jax defines."""

from __future__ import annotations

import jax as theirs
import numpy as np
import pytest

import mpijax as ours
from mpijax import mpi

A = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
V = np.arange(3, dtype=np.float32)


def tripled(J):
    """A function whose derivative rule is another linear function; only the function itself is transposed."""
    f = J.custom_jvp(lambda x, y: (3 * x, y))
    f.defjvp(lambda primals, tangents: (f(*primals), (5 * tangents[0], tangents[1])))
    return f


LINEAR = {
    "product": (lambda J: lambda x: J.numpy.asarray(A) @ x, (np.ones(2, np.float32),), V),
    "tree": (
        lambda J: lambda d: (d["a"] * 2, d["b"].sum()),
        ({"a": V, "b": np.ones((2, 2), np.float32)},),
        (V + 1, np.float32(3)),
    ),
    "two arguments": (lambda J: lambda x, y: x[::-1] - 3 * y, (V, V), V + 2),
    "jitted": (lambda J: J.jit(lambda x: J.numpy.cumsum(x)[1:]), (V,), V[1:]),
    "with a rule for its derivative": (lambda J: lambda x: tripled(J)(x, x[0]), (V,), (V + 1, np.float32(2))),
    "with such a rule, in a jitted loop": (
        lambda J: J.jit(lambda x: J.lax.fori_loop(0, 2, lambda i, x: tripled(J)(x, 1.0)[0], x)), (V,), V + 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LINEAR)
def test_transposes_are_jaxs(name):
    make, primals, ct = LINEAR[name]
    results = [J.tree.leaves(J.linear_transpose(make(J), *primals)(ct)) for J in (ours, theirs)]
    for mine, reference in zip(*results, strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(reference), rtol=1e-5)


def test_the_transpose_of_an_allreduce_is_the_identity_and_twice_it_is_the_allreduce():
    from mpi4py import MPI

    size = MPI.COMM_WORLD.Get_size()
    once = ours.linear_transpose(lambda x: mpi.allreduce(x, op=MPI.SUM), V)
    np.testing.assert_array_equal(ours.jit(once)(V)[0], V)
    twice = ours.linear_transpose(lambda ct: once(ct)[0], V)
    np.testing.assert_array_equal(twice(V)[0], size * V)


@pytest.mark.parametrize(("primals", "ct", "text"), [
    ((True,), True, "only supports"),
    ((V,), (V, V), "cotangent tree does not match"),
    ((V,), V[:2], "cotangent type does not match"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(primals, ct, text):
    with pytest.raises(TypeError, match=text):
        ours.linear_transpose(lambda x: 2 * x, *primals)(ct)


def test_functions_with_a_backward_rule_have_no_transpose():
    for J in (ours, theirs):
        f = J.custom_vjp(lambda x: 3 * x)
        f.defvjp(lambda x: (3 * x, None), lambda _, ct: (3 * ct,))
        with pytest.raises(NotImplementedError, match="for 'custom_vjp_call' not implemented"):
            J.linear_transpose(f, V)(V)
