"""Limited-memory BFGS: the last few steps and changes of the gradient represent the inverse Hessian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.scipy.optimize.descent import Descent, descend
from mpijax.scipy.optimize.line_search import inner, scaled


class _UpdateHistory(NamedTuple):
    """The last steps and changes, (m, n) each, newest last, 1 / <step, change>, (m,), 0 where there is none yet;
    and the estimate's scale."""

    steps: Any
    changes: Any
    rho: Any
    scale: Any


def minimize_lbfgs(
    fun: Callable,
    x0: Any,
    maxcor: int = 10,
    ftol: float = 2.220446049250313e-09,
    gtol: float = 1e-05,
    norm: Any = np.inf,
    maxiter: Any = None,
    maxls: int = 20,
) -> Descent:
    """Minimize `fun`, starting at x0, of shape (n,). It keeps `maxcor` steps; `maxls` limits a line search. See
    `minimize`."""
    x0 = jnp.asarray(x0)
    none = jnp.zeros((maxcor, x0.size), x0.dtype)
    memory = _UpdateHistory(none, none, none[:, 0].real, jnp.ones((), none.real.dtype))
    limits = {"maxiter": maxiter, "norm": norm, "gtol": gtol, "ftol": ftol, "line_search_maxiter": maxls}
    return descend(fun, x0, memory, _direction, _learn, whole_steps=True, **limits)


def _direction(memory: _UpdateHistory, gradient: Any) -> Any:
    """-H g by two passes over the memory: down from the newest step, and up again."""

    def down(q, pair):
        step, change, rho = pair
        alpha = rho * inner(step, q)
        return q - scaled(alpha, change), alpha

    def up(q, pair):
        step, change, rho, alpha = pair
        return q + scaled(alpha - rho * inner(change, q), step), None

    pairs = memory.steps, memory.changes, memory.rho
    q, alphas = lax.scan(down, -gradient, pairs, reverse=True)
    return lax.scan(up, scaled(memory.scale, q), (*pairs, alphas))[0]


def _learn(memory: _UpdateHistory, step: Any, change: Any) -> _UpdateHistory:
    product = inner(step, change)
    useful = product > 0
    push = lambda rows, row: jnp.concatenate([rows[1:], row[None]])
    new = _UpdateHistory(
        push(memory.steps, step),
        push(memory.changes, change),
        push(memory.rho, 1 / jnp.where(useful, product, 1)),
        product / jnp.where(useful, inner(change, change), 1),
    )
    return _UpdateHistory(*(jnp.where(useful, a, b) for a, b in zip(new, memory, strict=True)))
