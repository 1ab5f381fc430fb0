"""The method of Broyden, Fletcher, Goldfarb and Shanno, with a dense estimate of the inverse Hessian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpijax.numpy as jnp
from mpijax.scipy.optimize.descent import Descent, descend


def minimize_bfgs(fun: Callable, x0: Any, **options: Any) -> Descent:
    """Minimize `fun`, starting at x0, of shape (n,). See `minimize`."""
    x0 = jnp.asarray(x0)
    return descend(fun, x0, jnp.eye(x0.shape[0], dtype=x0.dtype), lambda h, g: -(h @ g), _update, **options)


def _update(inverse: Any, step: Any, change: Any) -> Any:
    """The estimate closest to `inverse` that maps the change of the gradient to the step; `inverse` if they are
    orthogonal."""
    rho = 1 / jnp.dot(change, step)
    project = jnp.eye(step.size, dtype=step.dtype) - rho * jnp.outer(step, change)
    updated = project @ inverse @ project.T + rho * jnp.outer(step, step)
    return jnp.where(jnp.isfinite(rho), updated, inverse)
