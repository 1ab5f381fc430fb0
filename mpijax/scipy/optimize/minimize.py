"""`minimize`, with SciPy's signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mpijax.scipy.optimize.bfgs import minimize_bfgs
from mpijax.scipy.optimize.lbfgs import minimize_lbfgs


class OptimizeResults(NamedTuple):
    """The result of `minimize`.

    Attributes:
      x: the solution, of shape (n,).
      success: whether the gradient is below its tolerance.
      status: 0 if it converged, 1 if it reached the largest number of iterations, 2 or more if a line search failed.
      fun, jac: the value and the gradient of the function at x.
      hess_inv: an estimate of the inverse Hessian, of shape (n, n); None if the method has none.
      nfev, njev: number of evaluations of the function and of its gradient.
      nit: number of iterations.

    >>> mpijax.scipy.optimize.minimize(lambda x: jnp.sum((x - 1) ** 2), jnp.zeros(2), method="BFGS").success
    Array(True, dtype=bool)
    """

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


_METHODS: dict[str, Callable] = {"bfgs": minimize_bfgs, "l-bfgs-experimental-do-not-rely-on-this": minimize_lbfgs}


def minimize(
    fun: Callable,
    x0: Any,
    args: tuple = (),
    *,
    method: str,
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """Minimize a scalar function of one array.

    Args:
      fun: fun(x, *args) -> scalar, differentiable.
      x0: the start, floats of shape (n,).
      args: further arguments of `fun`.
      method: "BFGS"; or "l-bfgs-experimental-do-not-rely-on-this", which keeps few vectors instead of a matrix.
      tol: has no effect; use `gtol` in `options`.
      options: a dict. For BFGS: maxiter, norm (order of the norm of the gradient, inf by default), gtol (1e-5),
        line_search_maxiter. For L-BFGS also maxcor (number of vectors to keep) and ftol.

    Raises:
      TypeError: `args` is not a tuple.
      ValueError: the method is unknown.

    >>> mpijax.scipy.optimize.minimize(lambda x: jnp.sum((x - 1) ** 2), jnp.zeros(2), method="BFGS").x.round(4)
    Array([1., 1.], dtype=float32)
    """
    if not isinstance(args, tuple):
        raise TypeError(f"args argument to minimize must be a tuple, got {args}")
    if method.lower() not in _METHODS:
        raise ValueError(f"Method {method} not recognized. The methods are BFGS and {list(_METHODS)[1]}.")
    found = _METHODS[method.lower()](lambda x: fun(x, *args), x0, **(options or {}))
    return OptimizeResults(
        x=found.x,
        success=found.converged & ~found.failed,
        status=found.status,
        fun=found.value,
        jac=found.gradient,
        hess_inv=found.memory if method.lower() == "bfgs" else None,
        nfev=found.evaluations,
        njev=found.evaluations,
        nit=found.iterations,
    )
