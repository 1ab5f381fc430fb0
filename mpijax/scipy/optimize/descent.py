"""The common code of quasi-Newton methods: line searches along -H g until the gradient is small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.scipy.optimize.line_search import line_search
from mpijax.transforms.autodiff import value_and_grad


class Descent(NamedTuple):
    """The state of a minimization.

    Attributes:
      x, value, gradient: the point, of shape (n,), and the function and its gradient there.
      memory: the method's estimate of the inverse Hessian, a tree.
      previous: the value one step before.
      iterations, evaluations: counts.
      converged, failed: whether to stop, and why.
      status: see `OptimizeResults`.
    """

    x: Any
    value: Any
    gradient: Any
    memory: Any
    previous: Any
    iterations: Any
    evaluations: Any
    converged: Any
    failed: Any
    status: Any


def descend(
    fun: Callable,
    x0: Any,
    memory: Any,
    direction: Callable,
    learn: Callable,
    *,
    maxiter: Any = None,
    norm: Any = np.inf,
    gtol: float = 1e-5,
    ftol: float | None = None,
    line_search_maxiter: int = 10,
    whole_steps: bool = False,
) -> Descent:
    """Minimize `fun` from x0.

    Args:
      memory: the method's first estimate of the inverse Hessian.
      direction: (memory, gradient) -> direction of descent.
      learn: (memory, step, change of the gradient) -> memory.
      maxiter: the largest number of iterations; default 200 for each unknown.
      norm, gtol: stop if the norm of the gradient, of this order, is below gtol.
      ftol: also stop if the value decreases by less than this fraction.
      line_search_maxiter: the largest number of evaluations to find a bracket, and again to find a point in it.
      whole_steps: whether line searches try the whole direction first, because the estimate has the function's scale.
    """
    x0 = jnp.asarray(x0)
    maxiter = x0.size * 200 if maxiter is None else maxiter

    def evaluate(x):
        value, gradient = value_and_grad(fun)(x)
        return value, jnp.conj(gradient)

    small = lambda g: jnp.linalg.norm(g, ord=norm) < gtol

    def unfinished(s):
        return ~s.converged & ~s.failed & (s.iterations < maxiter)

    def step(s):
        found = line_search(
            evaluate, s.x, direction(s.memory, s.gradient), s.value, s.gradient,
            None if whole_steps else s.previous, line_search_maxiter,
        )  # fmt: skip
        converged = small(found.gradient)
        if ftol is not None:
            converged |= (s.value - found.value) < ftol * jnp.maximum(abs(found.value), 1)
        return Descent(
            x=s.x + found.step,
            value=found.value,
            gradient=found.gradient,
            memory=learn(s.memory, found.step, found.gradient - s.gradient),
            previous=s.value,
            iterations=s.iterations + 1,
            evaluations=s.evaluations + found.evaluations,
            converged=converged,
            failed=found.failed & ~converged,
            status=jnp.where(found.failed, found.status, 0),
        )

    value, gradient = evaluate(x0)
    no = jnp.zeros((), bool)
    start = Descent(
        x0, value, gradient, memory, value + jnp.linalg.norm(gradient) / 2, 0, 1, small(gradient), no, 0
    )
    end = lax.while_loop(unfinished, step, start)
    status = jnp.where(end.converged, 0, jnp.where(end.failed, 2 + end.status, 1))
    return end._replace(status=status, gradient=jnp.conj(end.gradient))
