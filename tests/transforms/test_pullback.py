"""What `vjp` returns as a value: saved values by argument, references as targets, cotangents not asked for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import one_in

import mpijax
import mpijax.numpy as mnp

BOTH = [(jax, jnp), (mpijax, mnp)]


def _layer(J, N):
    return lambda p, x: N.tanh(x @ p["w"]) + p["b"]


def _saved(J, N):
    """What is saved, by argument, as text."""
    args = {"b": N.ones(2), "w": N.ones((3, 2))}, N.ones((4, 3))
    _, pull = J.vjp(_layer(J, N), *args)
    shapes = J.tree.map(N.shape, pull.args_res)
    return str(shapes), len(pull.opaque_residuals), len(J.tree.leaves(pull)), str(J.vjp(N.sin, 1.0)[1].args_res)


def _replaced(J, N):
    """Other values may be put in the place of saved arguments."""
    _, pull = J.vjp(lambda d: d["a"] @ d["b"], {"a": N.ones((2, 3)), "b": N.ones((3, 2))})
    pull.args_res = [{"a": 2 * N.ones((2, 3)), "b": 3 * N.ones((3, 2))}]
    return pull(N.ones((2, 2)))


def _split(J, N):
    """Out of one compiled function, into another."""
    out, pull = J.jit(lambda w, x: J.vjp(lambda w, x: N.tanh(x @ w), w, x))(N.ones((3, 2)), 0.1 * N.ones((4, 3)))
    return J.jit(lambda pull, ct: pull(ct))(pull, N.ones_like(out)), type(pull).__name__


def _into_references(J, N):
    x, total = N.arange(4.0), J.new_ref(N.ones(4))
    for i in (1, 3, 1):
        _, pull = J.vjp(J.jit(lambda x, i: x[i] * 2), x, i)
        out = pull.with_refs(total, J.ad.GradValue())(1.0)
    return total[...], repr(out[0])


def _in_a_loop(J, N):
    """Gradients of microbatches add up in a reference that the body of a scan closes over."""

    @J.jit
    def run(w, xs):
        total = J.new_ref(N.zeros_like(w))

        def body(_, x):
            out, pull = J.vjp(lambda w: N.sum(N.sin(x @ w)), w)
            pull.with_refs(total)(N.ones_like(out))
            return None, out

        losses = J.lax.scan(body, None, xs)[1]
        return J.freeze(total), losses

    return run(N.ones((3, 2)), N.arange(24.0).reshape(4, 2, 3))


def _unwanted(J, N):
    """A cotangent that nobody wants costs nothing."""
    _, pull = J.vjp(lambda w, x: w @ x, N.ones((4, 4)), N.ones(4))

    def one(ct):
        return pull.with_refs(J.ad.GradValue(), J.ad.DontWant())(ct)

    both, only = J.make_jaxpr(pull)(N.ones(4)), J.make_jaxpr(one)(N.ones(4))
    out = one(N.ones(4))
    return str(both).count("dot_general"), str(only).count("dot_general"), out[0], repr(out[1])


@pytest.mark.parametrize("program", one_in(2, [_saved, _replaced, _split, _into_references, _in_a_loop, _unwanted]))
def test_as_jax(program):
    want, got = (program(*modules) for modules in BOTH)
    for w, g in zip(jax.tree.leaves(want), mpijax.tree.leaves(got), strict=True):
        if isinstance(w, str | int):
            assert g == w
        else:
            np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-4)


def test_targets_that_do_not_fit():
    _, pull = mpijax.vjp(lambda x, y: x * y, mnp.ones(3), mnp.ones(3))
    with pytest.raises(ValueError, match="one entry for each argument"):
        pull.with_refs(mpijax.ad.GradValue())
    with pytest.raises(ValueError, match="zeros_like"):
        pull.with_refs(mpijax.new_ref(mnp.zeros(2)), mpijax.ad.GradValue())(mnp.ones(3))
