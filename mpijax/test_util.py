"""Checks of derivatives against finite differences, along one random direction.

A derivative in forward mode is compared with a central difference; one in reverse mode by the identity
<J t, c> = <t, J* c>. Each order of `check_grads` checks the derivative of the function of the order below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.trees import tree
from mpijax.ops.elementwise.convert import stage
from mpijax.transforms.derivatives import jvp, vjp

__all__ = ["check_grads", "check_jvp", "check_vjp"]

EPS = 1e-4

# Relative and absolute error allowed to a finite difference in the dtype, per element of the result.
_TOLERANCE = {
    "bfloat16": 1e-1,
    "float16": 1e-2,
    "float32": 2e-3,
    "float64": 1e-5,
    "complex64": 1e-3,
    "complex128": 1e-5,
}


def _tolerance(given: Any, dtype: Any) -> float:
    if isinstance(given, dict):
        named = {np.dtype(key).name: value for key, value in given.items()}
        given = named.get(dtype.name)
    return _TOLERANCE.get(dtype.name, 0.0) if given is None else given


def _numpy(x: Any) -> np.ndarray:
    """A leaf as an ndarray of the dtype it has for mpijax."""
    return np.asarray(x) if hasattr(x, "dtype") else np.asarray(x, dtypes.dtype(x))


def _wide(x: Any) -> np.ndarray:
    """A leaf in double precision, in which differences and products are taken."""
    a = _numpy(x)
    if a.dtype == dtypes.float0 or a.dtype.kind in "biu":
        return np.zeros(a.shape)
    return a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)


def _random_like(rng: np.random.RandomState, x: Any) -> Any:
    a = _numpy(x)
    if a.dtype.kind in "biu":
        return np.zeros(a.shape, dtypes.float0)
    noise = np.asarray(rng.randn(*a.shape)).astype(a.dtype)
    if a.dtype.kind == "c":
        noise = noise + np.asarray(rng.randn(*a.shape) * 1j).astype(a.dtype)
    return noise


def _arrays(args: Any) -> Any:
    """The arguments as arrays, so that the function under test may use their methods."""
    return tree.tree_map(stage, tuple(args))


def _moved(args: Any, direction: Any, by: float) -> Any:
    """`args + by * direction`, each leaf in its own dtype."""

    def move(x, t):
        a = _numpy(x)
        return a if a.dtype.kind in "biu" else (a + np.asarray(by, a.dtype) * t).astype(a.dtype)

    return _arrays(tree.tree_map(move, args, direction))


def _difference(f: Callable, args: Any, direction: Any, eps: float) -> Any:
    """The central difference quotient of `f` at `args` along `direction`, in double precision."""
    above, below = f(*_moved(args, direction, eps)), f(*_moved(args, direction, -eps))

    def quotient(x, y):
        x, y = _wide(x), _wide(y)
        with np.errstate(invalid="ignore"):
            return np.where(x == y, 0, x - y) * (0.5 / eps)

    return tree.tree_map(quotient, above, below)


def _compare(got: Any, want: Any, like: Any, atol: Any, rtol: Any, message: str) -> None:
    def close(x, y, of):
        dtype, size = _numpy(of).dtype, max(np.size(of), 1)
        np.testing.assert_allclose(
            _wide(x),
            _wide(y),
            atol=_tolerance(atol, dtype) * size,
            rtol=_tolerance(rtol, dtype) * size,
            err_msg=message,
        )

    tree.tree_map(close, got, want, like)


def _same_types(x: Any, y: Any) -> None:
    def same(a, b):
        assert _numpy(a).dtype == _numpy(b).dtype, f"dtypes differ: {_numpy(a).dtype} and {_numpy(b).dtype}"

    tree.tree_map(same, x, y)


def _inner_product(xs: Any, ys: Any) -> float:
    pairs = zip(tree.tree_leaves(xs), tree.tree_leaves(ys), strict=True)
    return float(sum(np.real(np.vdot(_wide(x), _wide(y))) for x, y in pairs))


def check_jvp(
    f: Callable,
    f_jvp: Callable,
    args: Sequence[Any],
    atol: Any = None,
    rtol: Any = None,
    eps: float = EPS,
    err_msg: str = "",
) -> None:
    """Check `f_jvp(primals, tangents)`, which is `partial(jvp, f)`, against a finite difference of `f` at
    `args`.

    Raises:
      AssertionError: if value, tangent or their dtypes differ by more than the tolerance.

    >>> from functools import partial
    >>> mpijax.test_util.check_jvp(jnp.sin, partial(mpijax.jvp, jnp.sin), (0.5,), atol=1e-2, rtol=1e-2)
    """
    rng = np.random.RandomState(0)
    args = _arrays(args)
    tangent = tree.tree_map(partial(_random_like, rng), args)
    value, got = f_jvp(args, tangent)
    expected = f(*args)
    _same_types(value, expected)
    _compare(value, expected, expected, atol, rtol, f"{err_msg} primal".strip())
    _compare(
        got, _difference(f, args, tangent, eps), expected, atol, rtol, f"{err_msg} tangent".strip()
    )


def check_vjp(
    f: Callable,
    f_vjp: Callable,
    args: Sequence[Any],
    atol: Any = None,
    rtol: Any = None,
    eps: float = EPS,
    err_msg: str = "",
) -> None:
    """Check `f_vjp(*args)`, which is `partial(vjp, f)`, against a finite difference of `f` at `args`.

    Raises:
      AssertionError: if the value, or the cotangents' product with a direction, differ by more than the
        tolerance.

    >>> from functools import partial
    >>> mpijax.test_util.check_vjp(jnp.sin, partial(mpijax.vjp, jnp.sin), (0.5,), atol=1e-2, rtol=1e-2)
    """
    rng = np.random.RandomState(0)
    args = _arrays(args)
    value, pullback = f_vjp(*args)
    expected = f(*args)
    _compare(value, expected, expected, atol, rtol, f"{err_msg} primal".strip())
    tangent = tree.tree_map(partial(_random_like, rng), args)
    cotangent = tree.tree_map(partial(_random_like, rng), value)
    # The pullback is linear without conjugation: <c, J t> = <conj(J^T conj(c)), t>.
    pulled = tree.tree_map(lambda c: np.conj(_wide(c)), pullback(tree.tree_map(_conj, cotangent)))
    got = _inner_product(tangent, pulled)
    want = _inner_product(_difference(f, args, tangent, eps), cotangent)
    _compare(got, want, tree.tree_leaves(value)[0], atol, rtol, f"{err_msg} cotangent projection".strip())


def _conj(x: Any) -> Any:
    return x if x.dtype == dtypes.float0 else np.conj(x)


def check_grads(
    f: Callable,
    args: Sequence[Any],
    order: int,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: Any = None,
    rtol: Any = None,
    eps: float | None = None,
) -> None:
    """Check the derivatives of `f` at `args` up to `order` against finite differences.

    Args:
      f: a function of pytrees of arrays.
      args: its arguments.
      order: 1 for the gradient, 2 for the gradient's gradient too, and so on; all combinations of modes.
      modes: "fwd", "rev" or both.
      atol, rtol: tolerances, or a dictionary of them by dtype.
      eps: the step of the differences.

    Raises:
      AssertionError: if a derivative is wrong.

    >>> mpijax.test_util.check_grads(jnp.sin, (0.5,), order=2)
    """
    step = EPS if eps is None else eps

    def check(g, at, left, path):
        if "fwd" in modes:
            here = f"JVP of {path}" if path else "JVP of f"
            check_jvp(g, partial(jvp, g), at, atol, rtol, step, here)
            if left > 1:
                check(partial(jvp, g), (at, at), left - 1, here)
        if "rev" in modes:
            here = f"VJP of {path}" if path else "VJP of f"
            check_vjp(g, partial(vjp, g), at, atol, rtol, step, here)
            if left > 1:

                def gradient(*xs, g=g):
                    value, pullback = vjp(g, *xs)
                    return pullback(value)

                check(gradient, at, left - 1, here)

    check(f, tuple(args), order, "")
