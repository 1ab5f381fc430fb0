"""NumPy as oracle for values, and JAX for types: much quicker than JAX for both, which compiles each function.

A case is an expression in `n`, the NumPy of a library, `J`, the library, and the arguments by name.
"""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
from oracle import OURS, THEIRS, assert_same_outcome, check, leaves_of, run


def function(source: str, names: str):
    """The case `source` as `check` takes it."""
    return lambda J: eval(f"lambda {names}: {source}", {"n": J.numpy, "J": J, "np": np})


def check_error(source: str, **args: Any) -> None:
    """Assert that a case raises an error of the same class in both libraries."""
    make = function(source, ", ".join(args))
    assert run(lambda: make(OURS)(*args.values()))[0] == "error"
    check(make, *args.values(), jaxpr=False, jitted=False)


def check_jax(source: str, rtol: float = 1e-6, atol: float = 0, **args: Any) -> None:
    """Assert that a case has JAX's values and types, and the same values under `jit`."""
    make = function(source, ", ".join(args))
    check(make, *args.values(), jaxpr=False, jitted=False, rtol=rtol, atol=atol)
    found = make(OURS)(*args.values())
    _assert_same_bits(found, OURS.jit(make(OURS))(*args.values()))


def check_types(source: str, **args: Any) -> None:
    """Assert that a case has JAX's shapes, dtypes and weak types."""
    make = function(source, ", ".join(args))
    theirs, ours = (run(lambda L=L: L.eval_shape(make(L), *args.values())) for L in (THEIRS, OURS))
    assert_same_outcome(theirs, ours)
    assert theirs[0] == "value", theirs
    for a, b in zip(leaves_of(theirs[1]), leaves_of(ours[1]), strict=True):
        assert (b.shape, b.dtype, b.weak_type) == (a.shape, a.dtype, a.weak_type)


def check_numpy(source: str, jitted: bool = True, rtol: float = 1e-5, atol: float = 1e-6, **args: Any) -> None:
    """Assert that a case has NumPy's values up to rounding, JAX's types, and the same values under `jit`.

    Args:
      jitted: whether `jit` can: whether shapes depend on types alone.
    """
    make = function(source, ", ".join(args))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = leaves_of(make(SimpleNamespace(numpy=np))(*args.values()))
    given = make(OURS)(*map(OURS.numpy.asarray, args.values()))
    found = leaves_of(given)
    assert len(found) == len(expected)
    for a, b in zip(map(np.asarray, expected), map(np.asarray, found), strict=True):
        assert b.shape == a.shape, f"{b.dtype}{b.shape}, NumPy: {a.dtype}{a.shape}"
        if "f" in (a.dtype.kind, b.dtype.kind) or "c" in (a.dtype.kind, b.dtype.kind):
            np.testing.assert_allclose(b, a, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(b, a)
    if jitted:
        check_types(source, **args)
        _assert_same_bits(given, OURS.jit(make(OURS))(*args.values()))


def _assert_same_bits(a: Any, b: Any) -> None:
    for x, y in zip(leaves_of(a), leaves_of(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(np.asarray(y), np.asarray(x))


def rows(table: str) -> list[str]:
    """The cases of a table, a line each."""
    return [line.strip() for line in table.strip().splitlines()]
