"""`reduce_window` against JAX: text, values, derivatives to order two, batches, errors."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import OURS, THEIRS, check, sample
from quickly import one_in

import mpijax
from mpijax import lax
from mpijax.core.base import provided

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
X = sample(2, 9, 8, 3) / 2 + np.linspace(0, 0.05, 2 * 9 * 8 * 3, dtype=np.float32).reshape(2, 9, 8, 3)
V = np.random.default_rng(0).normal(size=23).astype(np.float32)
# window_dimensions, window_strides, padding, base_dilation, window_dilation
WINDOWS = {
    "2x2": ((1, 2, 2, 1), (1, 2, 2, 1), "VALID", None, None),
    "same": ((1, 3, 3, 1), (1, 2, 2, 1), "SAME", None, None),
    "same lower": ((1, 3, 2, 1), (1, 2, 1, 1), "SAME_LOWER", None, None),
    "gaps": ((1, 3, 3, 1), (1, 1, 2, 1), "VALID", (1, 2, 1, 1), (1, 1, 2, 1)),
    "large": ((1, 5, 6, 2), (1, 2, 1, 1), ((0, 0), (1, 2), (2, -1), (0, 1)), None, None),
}
# One axis: element by element, doubled, rows of their own, no window at all. window, stride, padding, dilation
LINES = [(17, 1, "SAME", 1), (11, 1, ((16, 0),), 1), (20, 3, ((5, 5),), 1), (9, 1, "VALID", 2), (10, 11, ((3, 9),), 1),
         (30, 1, "VALID", 1)]  # fmt: skip
INIT = {"add": 0.0, "max": -np.inf, "min": np.inf, "mul": 1.0}


def windowed(J, op, window):
    return lambda x: J.lax.reduce_window(x, np.float32(INIT[op]), getattr(J.lax, op), *WINDOWS[window])


def affine(a, b):
    return a[0] * b[1] + b[0], a[1] * b[1]


@pytest.mark.sweep
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("op", INIT)
@pytest.mark.one_in(2)
def test_values_and_text(op, window):
    check(lambda J: windowed(J, op, window), X, eager=False, **CLOSE)
    check(lambda J: lambda x, t: J.jvp(windowed(J, op, window), (x,), (t,)), X, X[::-1], eager=False, **CLOSE)
    check(lambda J: J.vmap(windowed(J, op, window), in_axes=2, out_axes=1), np.stack([X, -X], 2), eager=False,
          jitted=False)  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("op", ("add", "max", "min"))
@pytest.mark.one_in(2)
def test_gradients(op, window):
    loss = lambda J: lambda x: (windowed(J, op, window)(x) ** 3).sum()
    check(lambda J: J.grad(loss(J)), X, eager=False, jitted=window == "same", **CLOSE)
    twice = lambda J: J.grad(lambda x: (J.grad(loss(J))(x) ** 2).sum())
    check(twice, X, eager=False, jitted=window == "same", **CLOSE)
    check(lambda J: J.vmap(J.grad(loss(J))), X[:, None], eager=False, jitted=False)


@pytest.mark.parametrize("line", one_in(2, LINES), ids=str)
def test_long_windows(line):
    w, s, padding, d = line
    rest = ((w,), (s,), padding, None, (d,))
    pairs = lambda J: lambda v: J.lax.reduce_window((v, v + 1), (np.float32(0), np.float32(1)), affine, *rest)
    check(lambda J: lambda v: J.lax.reduce_window(v, 0.0, J.lax.add, *rest), V, eager=False, **CLOSE)
    check(lambda J: lambda v: J.lax.reduce_window(v, -np.inf, J.lax.max, *rest), V, eager=False)
    check(pairs, V / 2, eager=False, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", ("int32", "uint8", "bool", "bfloat16", "complex64"))
def test_dtypes(dtype):
    x = (V * 3).astype(getattr(mpijax.numpy, dtype) if dtype != "bool" else bool)
    zero = np.zeros((), x.dtype)[()]
    loose = {"rtol": 1e-2, "atol": 1e-2} if dtype == "bfloat16" else CLOSE
    check(lambda J: lambda x: J.lax.reduce_window(x, zero, J.lax.add, (3,), (1,), "SAME"), x, eager=False, **loose)
    if dtype != "complex64":
        low = lax.reduce_max(x[:0], (0,)).__array__()[()]
        check(lambda J: lambda x: J.lax.reduce_window(x, low, J.lax.max, (3,), (2,)), x, eager=False)


CASES = {
    "from 3": (lambda J: lambda v: J.lax.reduce_window(v, np.float32(3), J.lax.add, (3,)), V),
    "calls": (lambda J: lambda v: J.lax.reduce_window(v, 0.0, lambda a, b: J.numpy.where(abs(a) > abs(b), a, b), (3,)), V),
    "nan": (lambda J: lambda v: J.lax.reduce_window(v, -np.inf, J.lax.max, (3,), (2,)), np.where(V > 1, np.nan, V)),
    "gradient at nan": (
        lambda J: J.grad(lambda v: J.lax.reduce_window(v, -np.inf, J.lax.max, (3,), (2,)).sum()), np.where(V > 1, np.nan, V)
    ),
    "gradient of ties": (
        lambda J: J.grad(lambda v: J.lax.reduce_window(v, np.inf, J.lax.min, (3,), (2,), "SAME").sum()), np.round(V)
    ),
    "batch of pairs": (
        lambda J: J.vmap(lambda v: J.lax.reduce_window((v, v), (np.float32(0), np.float32(1)), affine, (3,))), V[None]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_cases(name):
    make, v = CASES[name]
    check(make, v, eager=False, **CLOSE)


MISTAKES = [
    {"window_dimensions": (2, 2)},
    {"window_dimensions": (2,), "window_strides": (1, 1)},
    {"window_dimensions": (0,)},
    {"window_dimensions": (2.5,)},
    {"window_dimensions": (2,), "window_strides": (0,)},
    {"window_dimensions": (2,), "window_strides": (1,), "padding": "FOO"},
    {"window_dimensions": (2,), "base_dilation": (1, 1)},
    {"window_dimensions": (2,), "window_dilation": (1, 1)},
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_errors(mistake):
    for op in ("add", "mul"):
        check(lambda J, op=op: lambda v: J.lax.reduce_window(v, INIT[op], getattr(J.lax, op), **mistake), V)


@pytest.mark.parametrize("init", (np.int32(1), np.ones(2, np.float32), (1.0, 1.0)), ids=("dtype", "shape", "tree"))
def test_errors_of_initial_values(init):
    check(lambda J: lambda v: J.lax.reduce_window(v, init, J.lax.mul, (2,)), V)


def test_functions_return_the_tree_of_the_operands():
    for J in (OURS, THEIRS):
        with pytest.raises(ValueError, match="reduce_window output must have the same tree structure as the operands"):
            J.lax.reduce_window(V, INIT["add"], lambda x, y: [x + y], (2,), (1,), "VALID")


def test_windows_with_gaps_have_no_reverse_derivative():
    f = lambda v: lax.reduce_window(v, -np.inf, lax.max, (2,), window_dilation=(2,)).sum()
    with pytest.raises(NotImplementedError, match="window_dilation"):
        mpijax.grad(f)(V)


def test_tangents_of_a_function_with_cases():
    """Its derivative selects among scalars of its own."""

    def tangents(J):
        largest = lambda a, b: J.numpy.maximum(a, b) * 1.0
        f = lambda x: J.lax.reduce_window(x, np.float32(-np.inf), largest, (1, 2, 3, 1), (1, 1, 2, 1), "SAME")
        return lambda x: J.jvp(f, (x,), (x[::-1],))

    check(tangents, X, jaxpr=False)


def test_shapes_and_padding_by_name():
    check(lambda J: lambda: J.lax.reduce_window_shape_tuple((9, 8), (3, 2), (2, 1), ((0, 1), (2, 2)), (2, 1), (1, 3)),
          jaxpr=False, jitted=False)  # fmt: skip
    for padding in ("same", "SAME_LOWER", "VALID", "other", 3):
        check(lambda J, p=padding: lambda: J.lax.padtype_to_pads((9, 8), (3, 4), (2, 1), p), jaxpr=False, jitted=False)


@pytest.mark.parametrize("window", one_in(2, WINDOWS))
def test_references(window, monkeypatch):
    """The NumPy meaning of each primitive is what the compiled program computes."""
    jitted = {}
    programs = {
        **{op: windowed(mpijax, op, window) for op in INIT},
        "tangents": lambda x: mpijax.jvp(windowed(mpijax, "max", window), (x,), (x[::-1],))[1],
    }
    if window != "gaps":
        programs["gradient"] = mpijax.grad(lambda x: windowed(mpijax, "min", window)(x).sum())
    for name, program in programs.items():
        jitted[name] = np.asarray(mpijax.jit(program)(X))
    monkeypatch.setattr(
        provided, "evaluate", lambda p, args, params: p.reference(*(np.asarray(x) for x in args), **params)
    )
    for name, program in programs.items():
        np.testing.assert_allclose(np.asarray(program(X)), jitted[name], **CLOSE)
