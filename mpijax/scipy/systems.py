"""Linear systems of `scipy.linalg`: LU factorization, and solutions, with SciPy's arguments.

Arguments that allow SciPy to overwrite an operand, or to check for NaN, have no effect.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mpijax import lax
from mpijax import numpy as jnp
from mpijax.lax import linalg
from mpijax.ops.linalg import lu as lu_rules
from mpijax.ops.linalg import solve as solve_rules
from mpijax.scipy.factorizations import cho_factor, cho_solve, inexact, solve_signature
from mpijax.transforms.jit import jit

_HIGHEST = lax.Precision.HIGHEST


def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Determinants of matrices of shape [..., n, n].

    >>> mpijax.scipy.linalg.det(jnp.array([[1.0, 2.0], [3.0, 4.0]])).round(4)
    Array(-2., dtype=float32)
    """
    return jnp.linalg.det(a)


def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Inverses of matrices of shape [..., n, n].

    >>> mpijax.scipy.linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    return jnp.linalg.inv(a)


@jit(static_argnames=("overwrite_a", "check_finite"))
def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, Any]:
    """(LU, pivots) of matrices of shape [..., m, n]; see `lax.linalg.lu`.

    >>> mpijax.scipy.linalg.lu_factor(jnp.array([[1.0, 2.0], [4.0, 6.0]]))
    (Array([[4.  , 6.  ],
           [0.25, 0.5 ]], dtype=float32), Array([1, 1], dtype=int32))
    """
    factors, pivots, _ = linalg.lu(*inexact(a))
    return factors, pivots


@jit(static_argnames=("trans", "overwrite_b", "check_finite"))
def lu_solve(
    lu_and_piv: tuple[Any, Any], b: Any, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True
) -> Any:
    """The x with op(a) x = b, from `lu_factor(a)`.

    Args:
      b: right-hand sides, of shape [n] or [..., n, k].
      trans: 0: op(a) is a; 1: its transpose; 2: its conjugate transpose.

    >>> factors = mpijax.scipy.linalg.lu_factor(jnp.array([[1.0, 2.0], [4.0, 6.0]]))
    >>> mpijax.scipy.linalg.lu_solve(factors, jnp.array([3.0, 10.0])).round(4)
    Array([1., 1.], dtype=float32)
    """
    factors, pivots = lu_and_piv
    factors, b = inexact(factors, b)
    order = linalg.lu_pivots_to_permutation(pivots, factors.shape[-2])
    signature = "(n,n),(n)," + solve_signature("lu_solve", factors, b)
    return jnp.vectorize(partial(lu_rules.lu_solve, trans=trans), signature=signature)(factors, order, b)


@jit(static_argnums=(1,))
def _lu(a, permute_l):
    (a,) = inexact(a)
    factors, _, order = linalg.lu(a)
    m, n = a.shape
    k = min(m, n)
    p = jnp.real(jnp.array(order[None, :] == jnp.arange(m, dtype=order.dtype)[:, None], dtype=a.dtype))
    lower = jnp.tril(factors, -1)[:, :k] + jnp.eye(m, k, dtype=a.dtype)
    upper = jnp.triu(factors)[:k, :]
    return (jnp.matmul(p, lower, precision=_HIGHEST), upper) if permute_l else (p, lower, upper)


@jit(static_argnames=("permute_l", "overwrite_a", "check_finite"))
def lu(a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple:
    """(P, L, U) with a = P L U, for a matrix of shape [m, n]; (P L, U) with `permute_l`.

    >>> mpijax.scipy.linalg.lu(jnp.array([[1.0, 2.0], [4.0, 6.0]]))[2]
    Array([[4. , 6. ],
           [0. , 0.5]], dtype=float32)
    """
    return _lu(a, permute_l)


@jit(static_argnames=("assume_a", "lower"))
def _solve(a, b, assume_a, lower):
    if assume_a != "pos":
        return jnp.linalg.solve(a, b)
    a, b = inexact(a, b)
    solve_rules.check_shapes(a, b)
    factors = cho_factor(lax.stop_gradient(a), lower=lower)
    by_factors = partial(
        lax.custom_linear_solve,
        lambda x: solve_rules.matvec(a, x),
        solve=lambda _, x: cho_solve(factors, x),
        symmetric=True,
    )
    return solve_rules.by_columns(a, b, by_factors)


def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Any:
    """The x with a x = b.

    Args:
      a: matrices of shape [..., n, n].
      b: right-hand sides, of shape [n] or [..., n, k].
      lower: whether the lower triangle of a positive definite matrix is read; otherwise the upper one.
      assume_a: "pos" for positive definite matrices; "gen", "sym" and "her" for others.

    >>> mpijax.scipy.linalg.solve(jnp.array([[2.0, 0.0], [1.0, 4.0]]), jnp.array([2.0, 9.0]))
    Array([1., 2.], dtype=float32)
    """
    known = ["gen", "sym", "her", "pos"]
    if assume_a not in known:
        raise ValueError(f"Expected assume_a to be one of {known}; got {assume_a!r}")
    return _solve(a, b, assume_a, lower)


_TRANSPOSES = {0: (False, False), "N": (False, False), 1: (True, False), "T": (True, False),
               2: (True, True), "C": (True, True)}  # fmt: skip


@jit(static_argnames=("trans", "lower", "unit_diagonal"))
def _solve_triangular(a, b, trans, lower, unit_diagonal):
    if trans not in _TRANSPOSES:
        raise ValueError(f"Invalid 'trans' value {trans}")
    transpose, conjugate = _TRANSPOSES[trans]
    a, b = inexact(a, b)
    kind = {"transpose_a": transpose, "conjugate_a": conjugate, "unit_diagonal": unit_diagonal}
    solve = partial(linalg.triangular_solve, left_side=True, lower=lower, **kind)
    return jnp.vectorize(solve, signature="(n,n)," + solve_signature("solve_triangular", a, b))(a, b)


def solve_triangular(
    a: Any,
    b: Any,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
) -> Any:
    """The x with op(a) x = b, for triangular matrices a.

    Args:
      a: matrices of shape [..., n, n]; the other triangle is not read.
      b: right-hand sides, of shape [n] or [..., n, k].
      trans: 0 or "N": op(a) is a; 1 or "T": its transpose; 2 or "C": its conjugate transpose.
      lower: whether a is lower triangular.
      unit_diagonal: whether to use ones as the diagonal.

    >>> mpijax.scipy.linalg.solve_triangular(jnp.array([[2.0, 0.0], [1.0, 4.0]]), jnp.array([2.0, 9.0]), lower=True)
    Array([1., 2.], dtype=float32)
    """
    return _solve_triangular(a, b, trans, lower, unit_diagonal)
