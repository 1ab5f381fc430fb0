"""Power series of any operation, from its own first derivative.

For v = f(u), the derivative of v with respect to the parameter of the series is the tangent of f at u in the direction
u'. Its coefficients, to one degree less, are those of v' = 1 v1 + 2 v2 t + ..., so the program of the tangent is
expanded in turn. If the tangent does not depend on a value with a series, f is linear, and each coefficient of v
follows from the same coefficient of u.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpijax.core import dtypes
from mpijax.core.programs.jaxpr import ClosedJaxpr, eval_jaxpr, without_dead_code
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.types.typeof import typeof
from mpijax.experimental.jet.polynomials import Polynomial, degree
from mpijax.transforms.zeros import Zero


class _Tangent(NamedTuple):
    """The program of an operation's tangent, of primals and then tangents.

    reads: which of these it still has. nonzero: which results of the operation have one.
    """

    program: ClosedJaxpr
    reads: list[bool]
    nonzero: list[bool]

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        used = [v for v, r in zip(values, self.reads, strict=True) if r]
        return eval_jaxpr(self.program.jaxpr, self.program.consts, *used)


def _trace_tangent(primitive, avals, moving: tuple[bool, ...], params: dict[str, Any]) -> _Tangent:
    count = len(avals)
    nonzero: list[bool] = []

    def tangent(*values):
        rest = iter(values[count:])
        tangents = [next(rest) if m else Zero(a.to_tangent_aval()) for m, a in zip(moving, avals, strict=True)]
        _, found = primitive.jvp(list(values[:count]), tangents, **params)
        found = found if primitive.multiple_results else [found]
        nonzero.extend(type(t) is not Zero and typeof(t).dtype != dtypes.float0 for t in found)
        return [t for t, n in zip(found, nonzero, strict=True) if n]

    moved = [a for a, m in zip(avals, moving, strict=True) if m]
    jaxpr, consts = trace_to_jaxpr(tangent, [*avals, *moved])
    jaxpr, consts, reads = without_dead_code(jaxpr, consts)
    return _Tangent(ClosedJaxpr(jaxpr, consts), reads, nonzero)


@lru_cache(1024)
def _known_tangent(primitive, avals, moving, params: tuple) -> _Tangent:
    return _trace_tangent(primitive, avals, moving, dict(params))


def _tangent_of(primitive, avals, moving, params: dict[str, Any]) -> _Tangent:
    try:
        return _known_tangent(primitive, avals, moving, tuple(params.items()))
    except TypeError:  # parameters that cannot be hashed, or an error of the rule, which is raised again
        return _trace_tangent(primitive, avals, moving, params)


def derive(primitive, operands: Sequence[Polynomial], params: dict[str, Any], expand: Callable) -> list[Polynomial]:
    """The series of the results of an operation.

    expand: `(fun, polynomials) -> polynomials`, the series of a function of flat arguments.
    """
    primals = [u[0] for u in operands]
    avals = tuple(map(typeof, primals))
    # Integers and keys have no derivative.
    moving = tuple(len(u) > 1 and dtypes.issubdtype(a.dtype, np.inexact) for u, a in zip(operands, avals, strict=True))
    outs = primitive.bind(*primals, **params)
    outs = list(outs) if primitive.multiple_results else [outs]
    if not any(moving):
        return [[x] for x in outs]
    tangent = _tangent_of(primitive, avals, moving, params)
    moved = [u for u, m in zip(operands, moving, strict=True) if m]
    if any(m and r for m, r in zip(moving, tangent.reads, strict=False)):
        found = _integrated(tangent, operands, moved, expand)
    else:
        found = _one_by_one(tangent, primals, moved)
    return [[x, *(next(found) if n else ())] for x, n in zip(outs, tangent.nonzero, strict=True)]


def _one_by_one(tangent: _Tangent, primals, moved: Sequence[Polynomial]):
    """Higher coefficients of a linear operation's results."""
    rows = [tangent([*primals, *(u[k] for u in moved)]) for k in range(1, degree(*moved) + 1)]
    return iter([list(column) for column in zip(*rows, strict=True)])


def _integrated(tangent: _Tangent, operands, moved: Sequence[Polynomial], expand: Callable):
    """Higher coefficients of results, from the series of their derivative."""
    order = degree(*moved)
    slopes = [[u[k] * k if k > 1 else u[k] for k in range(1, order + 1)] for u in moved]
    series = expand(lambda *values: tangent(values), [*(u[:order] for u in operands), *slopes])
    return iter([[c / (k + 1) if k else c for k, c in enumerate(v)] + _zeros(v, order) for v in series])


def _zeros(v: Polynomial, order: int) -> list[Any]:
    """The `order` zero coefficients of a constant."""
    return [v[0] * 0 for _ in range(order - len(v))]
