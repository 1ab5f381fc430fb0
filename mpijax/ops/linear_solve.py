"""Defines `custom_linear_solve`: linear systems whose derivative solves again, and does not go through the solver.

With A x = b: the tangent of x solves A dx = db - dA x, and the cotangent of b solves A^T cb = cx.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mpijax.core.base.errors import JaxprTypeError
from mpijax.core.programs.jaxpr import ClosedJaxpr, eval_jaxpr
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.checks import agree
from mpijax.transforms.batching import batch_at, batch_jaxpr, move_dim
from mpijax.transforms.jvp import jvp_flat
from mpijax.transforms.transpose import is_undefined_primal
from mpijax.transforms.zeros import Zero, add_tangents, instantiate


class _LinearSolveTuple(NamedTuple):
    """One item for each of the four functions of a solve."""

    matvec: Any
    vecmat: Any
    solve: Any
    transpose_solve: Any

    def transpose(self) -> _LinearSolveTuple:
        return _LinearSolveTuple(self.vecmat, self.matvec, self.transpose_solve, self.solve)


LinearSolveTuple = _LinearSolveTuple  # the class name is what JAX's Jaxprs print


def _split(args: Sequence[Any], lengths: _LinearSolveTuple) -> tuple[_LinearSolveTuple, list[Any]]:
    """The values that each function closes over, and the right-hand side."""
    parts, at = [], 0
    for n in lengths:
        parts.append(list(args[at : at + n]))
        at += n
    return _LinearSolveTuple(*parts), list(args[at:])


def _joined(params: _LinearSolveTuple) -> list[Any]:
    return [x for part in params for x in part]


def _call(closed: ClosedJaxpr, *args: Any) -> list[Any]:
    return eval_jaxpr(closed.jaxpr, closed.consts, *args)


def _solve(*args, const_lengths, jaxprs):
    params, b = _split(args, const_lengths)
    return _call(jaxprs.solve, *params.solve, *b)


def _jvp(primals, tangents, *, const_lengths, jaxprs):
    static = {"const_lengths": const_lengths, "jaxprs": jaxprs}
    outs = linear_solve_p.bind(*primals, **static)
    params, b = _split(primals, const_lengths)
    params_dot, rhs = _split(tangents, const_lengths)
    x, aux = outs[: len(b)], outs[len(b) :]
    if any(type(t) is not Zero for t in params_dot.matvec):
        zero = [Zero.of_primal(v) for v in x]
        moved = jvp_flat(lambda *xs: _call(jaxprs.matvec, *xs), [*params.matvec, *x], [*params_dot.matvec, *zero])[1]
        negative = [t if type(t) is Zero else registry["neg"].bind(t) for t in moved]
        rhs = list(map(add_tangents, rhs, negative))
    if all(type(t) is Zero for t in rhs):
        return outs, [Zero.of_primal(o) for o in outs]
    tangent = linear_solve_p.bind(*_joined(params), *map(instantiate, rhs), **static)
    return outs, [*tangent[: len(b)], *map(Zero.of_primal, aux)]


def _transpose(cts, *args, const_lengths, jaxprs):
    if jaxprs.transpose_solve is None:
        raise TypeError(
            "transpose_solve required for backwards mode automatic differentiation of custom_linear_solve"
        )
    params, b = _split(args, const_lengths)
    if any(is_undefined_primal(x) for x in _joined(params)):
        raise NotImplementedError(
            "custom_linear_solve is linear in b only: it cannot be transposed with respect to closed-over values"
        )
    outs = linear_solve_p.bind(
        *_joined(params.transpose()),
        *map(instantiate, cts[: len(b)]),
        const_lengths=const_lengths.transpose(),
        jaxprs=jaxprs.transpose(),
    )
    return [None] * sum(const_lengths) + outs[: len(b)]


def _either(*flags: Sequence[bool]) -> list[bool]:
    return [any(each) for each in zip(*flags, strict=True)]


def _batch(axis, args, dims, *, const_lengths, jaxprs):
    batched, b_given = _split([d is not None for d in dims], const_lengths)
    matvec, vecmat, solve, transpose_solve = jaxprs
    n, aux = len(matvec.out_avals), len(solve.out_avals) - len(matvec.out_avals)
    b_bat, x_bat = b_given, [False] * len(solve.out_avals)

    def of(closed, flags, force):
        return batch_jaxpr(closed, axis, tuple(flags), tuple(force))

    # All four functions must agree on which leaves of x and b are batched: add batched leaves until they do.
    while True:
        new_solve, found = of(solve, batched.solve + b_bat, x_bat)
        new_vecmat, x_new = None, found
        if vecmat is not None:
            new_vecmat, of_vecmat = of(vecmat, batched.vecmat + b_bat, b_bat)
            x_new = _either(of_vecmat + [True] * aux, found)
        new_matvec, of_matvec = of(matvec, batched.matvec + x_new[:n], b_bat)
        new_transpose, b_new = None, _either(of_matvec, b_given)
        if transpose_solve is not None:
            new_transpose, of_transpose = of(transpose_solve, batched.transpose_solve + x_new[:n], x_new)
            b_new = _either(of_matvec, of_transpose[:n], b_given)
        if (x_new, b_new) == (x_bat, b_bat):
            break
        x_bat, b_bat = x_new, b_new

    fixed = sum(const_lengths)
    moved = [x if d is None else move_dim(x, d, 0) for x, d in zip(args[:fixed], dims[:fixed], strict=True)]
    moved += [
        batch_at(x, d, 0, axis) if now else x
        for x, d, now in zip(args[fixed:], dims[fixed:], b_bat, strict=True)
    ]
    batched_jaxprs = _LinearSolveTuple(new_matvec, new_vecmat, new_solve, new_transpose)
    outs = linear_solve_p.bind(*moved, const_lengths=const_lengths, jaxprs=batched_jaxprs)
    return outs, [0 if b else None for b in found]


def _type_rule(*avals, const_lengths, jaxprs):
    first, rest = const_lengths.matvec + const_lengths.vecmat, sum(const_lengths)
    given = [*avals[first : first + const_lengths.solve], *avals[rest:]]
    if min(const_lengths) < 0 or not agree(given, jaxprs.solve.in_avals):
        raise JaxprTypeError(f"custom_linear_solve: solve takes {jaxprs.solve.in_avals}, but got {given}")
    return jaxprs.solve.out_avals


linear_solve_p = Primitive(
    "custom_linear_solve",
    type_rule=_type_rule,
    reference=_solve,
    lower=Decompose(_solve),
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    multiple_results=True,
    effects=lambda params: params["jaxprs"].solve.effects,
    pretty=lambda eqn, names: [(key, str(value)) for key, value in sorted(eqn.params.items())],
    vma=lambda avals, params: None,
)
