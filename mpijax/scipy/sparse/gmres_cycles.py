"""The iteration of GMRES: cycles of Arnoldi steps; rotations make each column triangular."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.flatten_util import ravel_pytree


def gmres_solve(
    A: Callable,
    b: Any,
    *,
    x0: Any,
    M: Callable,
    enough: Any,
    enough_in_cycle: Any,
    restart: int,
    maxiter: Any,
) -> Any:
    """The solution of A x = b, a tree like b.

    Args:
      A, M: linear functions of trees: the operator and its preconditioner.
      x0: the start.
      enough: norm of the preconditioned residual at which the iteration stops between cycles.
      enough_in_cycle: the same inside a cycle.
      restart, maxiter: number of steps of a cycle, largest number of cycles.
    """
    b, unravel = ravel_pytree(b)
    flat = lambda fun: lambda v: jnp.asarray(ravel_pytree(fun(unravel(v)))[0], b.dtype)
    A, M = flat(A), flat(M)
    x = jnp.asarray(ravel_pytree(x0)[0], b.dtype)

    def unsolved(state):
        _, r, cycles = state
        return (jnp.linalg.norm(r) > enough) & (cycles < maxiter)

    def cycle(state):
        x, r, cycles = state
        x = x + _best_correction(lambda v: M(A(v)), r, enough_in_cycle, restart)
        return x, M(b - A(x)), cycles + 1

    return unravel(lax.while_loop(unsolved, cycle, (x, M(b - A(x)), 0))[0])


def _best_correction(A: Callable, r: Any, enough: Any, restart: int) -> Any:
    """The d in the span of r, A r, A² r, … with the smallest norm of r - A d."""
    norm = jnp.linalg.norm(r).astype(r.dtype)
    basis = jnp.zeros((restart + 1, r.size), r.dtype).at[0].set(r / norm)
    # Columns that no step reaches remain columns of the identity, with right-hand side 0.
    triangle = jnp.eye(restart, dtype=r.dtype)
    rotations = jnp.zeros((restart, 2), r.dtype)
    target = jnp.zeros(restart + 1, r.dtype).at[0].set(norm)

    def unfinished(state):
        k, broken, _, _, _, target = state
        return (k < restart) & ~broken & (abs(target[k]) > enough)

    def step(state):
        k, _, basis, triangle, rotations, target = state
        column, basis, broken = _arnoldi(A, basis, k)
        column = lax.fori_loop(0, k, lambda i, column: _rotate(column, i, rotations[i]), column)
        rotation = _rotation_of(column[k], column[k + 1])
        column, target = _rotate(column, k, rotation), _rotate(target, k, rotation)
        triangle, rotations = triangle.at[:, k].set(column[:-1]), rotations.at[k].set(rotation)
        return k + 1, broken, basis, triangle, rotations, target

    start = (0, jnp.zeros((), bool), basis, triangle, rotations, target)
    k, _, basis, triangle, _, target = lax.while_loop(unfinished, step, start)
    target = jnp.where(jnp.arange(restart) < k, target[:-1], 0)
    weights = lax.linalg.triangular_solve(triangle, target[:, None], left_side=True)[:, 0]
    return weights @ basis[:-1]


def _arnoldi(A: Callable, basis: Any, k: Any) -> tuple[Any, Any, Any]:
    """The next vector of an orthonormal basis, whose rows after k are zero.

    Returns (the coefficients of A applied to row k, the basis, whether that vector already lies in the span of the
    rows). Two projections keep the basis orthogonal up to rounding.
    """
    v = A(basis[k])
    before = jnp.linalg.norm(v)
    column = jnp.zeros(basis.shape[0], basis.dtype)
    for _ in range(2):
        projections = basis.conj() @ v
        v, column = v - projections @ basis, column + projections
    norm = jnp.linalg.norm(v)
    broken = norm <= jnp.finfo(basis.dtype).eps * before
    unit = jnp.where(broken, 0, v / jnp.where(broken, 1, norm).astype(v.dtype))
    column = column.at[k + 1].set(jnp.where(broken, 0, norm).astype(column.dtype))
    return column, basis.at[k + 1].set(unit), broken


def _rotation_of(a: Any, b: Any) -> Any:
    """(c, s) of the unitary rotation that takes (a, b) to (their norm, 0)."""
    norm = jnp.sqrt(abs(a) ** 2 + abs(b) ** 2)
    safe = jnp.where(norm == 0, 1, norm).astype(a.dtype)
    return jnp.stack([jnp.where(norm == 0, 1, a / safe), b / safe])


def _rotate(vector: Any, i: Any, rotation: Any) -> Any:
    """Elements i and i + 1 rotated."""
    c, s = rotation[0], rotation[1]
    x, y = vector[i], vector[i + 1]
    return vector.at[i].set(c.conj() * x + s.conj() * y).at[i + 1].set(c * y - s * x)
