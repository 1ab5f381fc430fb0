"""`select_and_scatter` by any functions: values against JAX, and one window after another."""

import itertools

import numpy as np
import pytest
from jax._src.lax.windowed_reductions import select_and_scatter_p as theirs_p
from oracle import OURS, THEIRS, sample
from quickly import one_in

from mpijax.lax import select_and_scatter_p

# window, strides, padding of an operand of shape (5, 6)
WINDOWS = {
    "apart": ((2, 2), (2, 2), ((0, 0), (0, 0))),
    "overlapping": ((3, 2), (1, 2), ((0, 0), (0, 0))),
    "padded": ((2, 3), (2, 2), ((1, 0), (1, 2))),
    "with gaps": ((1, 2), (2, 3), ((0, 0), (0, 0))),
}
FUNCTIONS = {"max, add": ("ge", "add", 0.5), "min, max": ("le", "max", -np.inf), "first, mul": ("first", "mul", 2.0)}
X = sample(5, 6)


def bind(J, primitive, window, functions, dtype=np.float32):
    select, scatter, init = functions
    sizes, strides, padding = window
    chosen = J.lax.ge if select == "first" else getattr(J.lax, select)
    if select == "first":
        chosen = lambda x, y: J.lax.eq(x, x)
    scalar = J.numpy.zeros((), dtype)
    jaxpr = lambda f: J.make_jaxpr(f)(scalar, scalar).jaxpr
    params = {
        "window_dimensions": sizes, "window_strides": strides, "padding": padding, "select_jaxpr": jaxpr(chosen),
        "select_consts": (), "scatter_jaxpr": jaxpr(getattr(J.lax, scatter)), "scatter_consts": (),
    }  # fmt: skip
    return lambda x, s: primitive.bind(x, s, J.numpy.asarray(init, dtype), **params)


def counts(window):
    return tuple(
        (n + sum(p) - w) // s + 1 for n, w, s, p in zip(X.shape, window[0], window[1], window[2], strict=True)
    )


@pytest.mark.parametrize("name", one_in(2, WINDOWS))
def test_values_are_jaxs(name):
    window = WINDOWS[name]
    source = sample(*counts(window), seed=1)
    for functions in FUNCTIONS.values():
        if "first" in functions and name == "padded":
            continue  # XLA's choice of the first element may be one of the padding
        theirs = THEIRS.jit(bind(THEIRS, theirs_p, window, functions))(X, source)
        ours = bind(OURS, select_and_scatter_p, window, functions)
        np.testing.assert_allclose(ours(X, source), theirs, rtol=1e-6)
        np.testing.assert_array_equal(OURS.jit(ours)(X, source), ours(X, source))


def test_the_reference_goes_window_by_window():
    for window, functions in itertools.product(WINDOWS.values(), FUNCTIONS.values()):
        source = sample(*counts(window), seed=1)
        jaxpr = OURS.make_jaxpr(bind(OURS, select_and_scatter_p, window, functions))(X, source)
        got = select_and_scatter_p.reference(X, source, np.float32(functions[2]), **jaxpr.eqns[-1].params)
        np.testing.assert_allclose(got, OURS.extend.core.jaxpr_as_fun(jaxpr)(X, source)[0], rtol=1e-6)


def test_batches_are_the_stacked_loop():
    f = bind(OURS, select_and_scatter_p, WINDOWS["padded"], FUNCTIONS["max, add"])
    xs, sources = sample(3, 5, 6), sample(3, *counts(WINDOWS["padded"]), seed=2)
    each = [f(x, s) for x, s in zip(xs, sources, strict=True)]
    np.testing.assert_array_equal(OURS.vmap(f)(xs, sources), np.stack(each))


def test_what_does_not_fit_is_told():
    f = bind(OURS, select_and_scatter_p, WINDOWS["apart"], FUNCTIONS["max, add"])
    with pytest.raises(TypeError, match=r"source must have an element for each window, \(2, 3\), got f32\[3\]"):
        f(X, sample(3))
    with pytest.raises(NotImplementedError, match="select_and_scatter_add"):
        OURS.grad(lambda x: f(x, sample(2, 3)).sum())(X)
