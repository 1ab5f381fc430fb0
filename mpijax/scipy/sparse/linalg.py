"""Iterative solvers of linear systems: conjugate gradients, BiCGSTAB, GMRES.

Derivatives of the solution follow from the implicit function theorem (`lax.custom_linear_solve`): a derivative takes
another solve, and does not go through the steps of the iteration. The solvers do not communicate themselves: inner
products include only the given vectors. If ranks hold parts of a vector, solve under `jit` with global arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core.trees import tree
from mpijax.ops.elementwise.convert import convert
from mpijax.scipy.sparse.gmres_cycles import gmres_solve

__all__ = [
    "bicgstab", "cg", "gmres",
]  # fmt: skip


# ---------------------------------------------------------------- vectors that are trees


def real_dot(x: Any, y: Any) -> Any:
    """The real part of <x, y>, of trees of arrays."""

    def of_leaves(a, b):
        a, b = a.ravel(), b.ravel()
        total = jnp.dot(a.real, b.real)
        both = jnp.iscomplexobj(a) and jnp.iscomplexobj(b)
        return total + jnp.dot(a.imag, b.imag) if both else total

    return reduce(operator.add, map(of_leaves, tree.tree_leaves(x), tree.tree_leaves(y)))


def _dot(x, y):
    return reduce(operator.add, map(jnp.vdot, tree.tree_leaves(x), tree.tree_leaves(y)))


def _axpy(scale, x, y):
    """y + scale x"""
    return tree.tree_map(lambda a, b: b + scale.astype(jnp.result_type(a)) * a, x, y)


def _sub(x, y):
    return tree.tree_map(operator.sub, x, y)


def _identity(x):
    return x


def _as_function(op: Any) -> Callable:
    """The product with an operator: a function, a square array, or an object with `@`."""
    if callable(op):
        return op
    if not hasattr(op, "__matmul__"):
        raise TypeError(f"linear operator must be either a function or ndarray: {op}")
    shape = getattr(op, "shape", None)
    if shape is not None and (len(shape) != 2 or shape[0] != shape[1]):
        raise ValueError(f"linear operator must be a square matrix, but has shape: {shape}")
    return partial(operator.matmul, jnp.asarray(op) if isinstance(op, np.ndarray) else op)


def _start(b: Any, x0: Any) -> tuple[Any, Any]:
    """b and x0 as trees of arrays; x0 is zero if not given. Raises ValueError unless they match."""
    b = tree.tree_map(jnp.asarray, b)
    x0 = tree.tree_map(jnp.zeros_like if x0 is None else jnp.asarray, b if x0 is None else x0)
    structures = tree.tree_structure(x0), tree.tree_structure(b)
    if structures[0] != structures[1]:
        raise ValueError(f"x0 and b must have matching tree structure: {structures[0]} vs {structures[1]}")
    shapes = tuple([leaf.shape for leaf in tree.tree_leaves(t)] for t in (x0, b))
    if shapes[0] != shapes[1]:
        raise ValueError(f"arrays in x0 and b must have matching shapes: {shapes[0]} vs {shapes[1]}")
    return b, x0


def _weak_as(b: Any, x: Any) -> Any:
    """x, weakly typed if `b` is a Python number."""
    return tree.tree_map(lambda leaf, of_b: convert(leaf, weak_type=of_b.weak_type), x, b)


def _size(b: Any) -> int:
    return sum(leaf.size for leaf in tree.tree_leaves(b))


# ---------------------------------------------------------------- conjugate gradients, BiCGSTAB


def _enough(b: Any, tol: Any, atol: Any) -> Any:
    """The squared norm of the residual at which to stop."""
    return jnp.maximum(jnp.square(tol) * real_dot(b, b), jnp.square(atol))


def _cg(A, b, *, x0, tol, atol, maxiter, M):
    enough = _enough(b, tol, atol)

    def unsolved(state):
        _, r, gamma, _, k = state
        return ((gamma if M is _identity else real_dot(r, r)) > enough) & (k < maxiter)

    def step(state):
        x, r, gamma, p, k = state
        Ap = A(p)
        alpha = gamma / real_dot(p, Ap)
        x, r = _axpy(alpha, p, x), _axpy(-alpha, Ap, r)
        z = M(r)
        next_gamma = real_dot(r, z)
        return x, r, next_gamma, _axpy(next_gamma / gamma, p, z), k + 1

    r = _sub(b, A(x0))
    z = M(r)
    return lax.while_loop(unsolved, step, (x0, r, real_dot(r, z), z, 0))[0]


# The count of steps after a division by zero, which ends the iteration.
_BREAKDOWN = -10


def _bicgstab(A, b, *, x0, tol, atol, maxiter, M):
    enough = _enough(b, tol, atol)

    def unsolved(state):
        r, k = state[1], state[-1]
        return (real_dot(r, r) > enough) & (k < maxiter) & (k >= 0)

    def step(state):
        x, r, shadow, alpha, omega, rho, p, q, k = state
        next_rho = _dot(shadow, r)
        beta = next_rho / rho * alpha / omega
        p = _axpy(beta, _axpy(-omega, q, p), r)
        direction = M(p)
        q = A(direction)
        alpha = next_rho / _dot(shadow, q)
        s = _axpy(-alpha, q, r)
        x_half = _axpy(alpha, direction, x)
        done = real_dot(s, s) < enough
        correction = M(s)
        t = A(correction)
        omega = _dot(t, s) / _dot(t, t)
        choose = lambda a, b: tree.tree_map(partial(jnp.where, done), a, b)
        x, r = choose(x_half, _axpy(omega, correction, x_half)), choose(s, _axpy(-omega, t, s))
        broken = (omega == 0) | (alpha == 0) | (next_rho == 0)
        return x, r, shadow, alpha, omega, next_rho, p, q, jnp.where(broken & ~done, _BREAKDOWN, k + 1)

    r = _sub(b, A(x0))
    one = jnp.ones((), jnp.result_type(*tree.tree_leaves(b)))
    return _weak_as(b, lax.while_loop(unsolved, step, (x0, r, r, one, one, one, r, r, 0))[0])


def _solve(method, A, b, x0, tol, atol, maxiter, M, symmetric):
    b, x0 = _start(b, x0)
    maxiter = 10 * _size(b) if maxiter is None else maxiter
    M = _identity if M is None else _as_function(M)
    solve = partial(method, x0=x0, tol=tol, atol=atol, maxiter=maxiter, M=M)
    return lax.custom_linear_solve(_as_function(A), b, solve=solve, transpose_solve=solve, symmetric=symmetric)


def cg(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: Any = None, M: Any = None
) -> tuple[Any, None]:
    """Solve A x = b by conjugate gradients, for a Hermitian positive definite A.

    Args:
      A: a square array, or a linear function of trees like b.
      b: right-hand side: an array or a tree of arrays.
      x0: the start; zero by default.
      tol, atol: stop if norm(residual) <= max(tol * norm(b), atol).
      maxiter: the largest number of steps; default 10 times the number of unknowns.
      M: preconditioner, an approximation of the inverse of A, in a form that A may have.

    Returns:
      (x, None). SciPy returns a status as the second value.

    >>> mpijax.scipy.sparse.linalg.cg(lambda x: jnp.array([2.0, 4.0]) * x, jnp.array([2.0, 8.0]))[0].round(4)
    Array([1., 2.], dtype=float32)
    """
    symmetric = not any(jnp.iscomplexobj(leaf) for leaf in tree.tree_leaves(b))
    return _solve(_cg, A, b, x0, tol, atol, maxiter, M, symmetric), None


def bicgstab(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: Any = None, M: Any = None
) -> tuple[Any, None]:
    """Solve A x = b by stabilized bi-conjugate gradients, for any regular A. Arguments and result are those of `cg`.

    >>> mpijax.scipy.sparse.linalg.bicgstab(jnp.array([[2.0, 0.0], [1.0, 4.0]]), jnp.array([2.0, 9.0]))[0].round(4)
    Array([1., 2.], dtype=float32)
    """
    return _solve(_bicgstab, A, b, x0, tol, atol, maxiter, M, False), None


# ---------------------------------------------------------------- GMRES


def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: Any = 1e-5,
    atol: Any = 0.0,
    restart: int = 20,
    maxiter: Any = None,
    M: Any = None,
    solve_method: str = "batched",
) -> tuple[Any, Any]:
    """Solve A x = b by generalized minimal residuals, for any regular A.

    Args:
      A, b, x0, tol, atol, M: as for `cg`.
      restart: number of steps of a cycle; each step keeps one more vector with the size of b.
      maxiter: the largest number of cycles.
      solve_method: "batched" runs all steps of a cycle; "incremental" stops inside a cycle if the residual is small
        enough.

    Returns:
      (x, info): info is 0, or -1 if x has a NaN.

    >>> mpijax.scipy.sparse.linalg.gmres(jnp.array([[2.0, 0.0], [1.0, 4.0]]), jnp.array([2.0, 9.0]))[0].round(4)
    Array([1., 2.], dtype=float32)
    """
    if solve_method not in ("batched", "incremental"):
        raise ValueError(f"invalid solve_method {solve_method}, must be either 'incremental' or 'batched'")
    b, x0 = _start(b, x0)
    M = _identity if M is None else _as_function(M)
    maxiter = 10 * _size(b) if maxiter is None else maxiter
    norm = lambda v: jnp.sqrt(real_dot(v, v))
    enough = jnp.maximum(tol * norm(b), atol)
    enough_in_cycle = norm(M(b)) * jnp.minimum(1.0, enough / norm(b)) if solve_method == "incremental" else -np.inf
    solve = partial(
        gmres_solve,
        x0=x0,
        M=M,
        enough=enough,
        enough_in_cycle=enough_in_cycle,
        restart=min(restart, _size(b)),
        maxiter=maxiter,
    )
    x = _weak_as(b, lax.custom_linear_solve(_as_function(A), b, solve=solve, transpose_solve=solve))
    return x, jnp.where(jnp.isnan(norm(x)), -1, 0)
