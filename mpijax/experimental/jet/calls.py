"""Power series of operations that contain programs: calls, branches and loops.

The program takes all values, then the coefficients of values with a series. In loops, every carried value with
derivatives has a series.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.programs.jaxpr import ClosedJaxpr, Var, eval_jaxpr
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.experimental.jet.polynomials import Polynomial, degree
from mpijax.experimental.jet.trace import expand
from mpijax.ops.control_flow.common import split
from mpijax.ops.control_flow.scan_rules import interleaved, rearranged
from mpijax.ops.control_flow.signatures import any_of
from mpijax.ops.elementwise.convert import convert
from mpijax.transforms.zeros import zeros

Flags = tuple[bool, ...]


def _smooth(aval: ShapedArray) -> bool:
    return dtypes.issubdtype(aval.dtype, np.inexact)


def _typed(x: Any, aval: ShapedArray) -> Any:
    """A coefficient with the dtype of the value that it belongs to."""
    return convert(x, aval.dtype, aval.weak_type)


@memo_on_jaxpr
def jet_jaxpr(closed: ClosedJaxpr, order: int, flags: Flags, wanted: Flags | None = None) -> tuple[ClosedJaxpr, Flags]:
    """The program for the series of a program, and which of its results have a series.

    Arguments of the program: all values, then `order` coefficients of each value that is marked in `flags`. Results are
      in the same order.
    wanted: which results must have a series even if it is zero.
    """
    count = len(closed.in_avals)
    found: list[bool] = []

    def fun(*args):
        operands = _gathered(args[:count], args[count:], flags, order)
        results = expand(lambda *xs: eval_jaxpr(closed.jaxpr, closed.consts, *xs), operands)
        found.extend(
            _smooth(a) and (w or len(v) > 1)
            for v, a, w in zip(results, closed.out_avals, wanted or [False] * len(results), strict=True)
        )
        return [v[0] for v in results] + _coefficients(results, found, closed.out_avals, order)

    rows = [a for a, f in zip(closed.in_avals, flags, strict=True) if f for _ in range(order)]
    return trace_to_closed_jaxpr(fun, [*closed.in_avals, *rows], closed.jaxpr.debug_info), tuple(found)


def _gathered(values: Sequence[Any], rest: Sequence[Any], flags: Sequence[bool], order: int) -> list[Polynomial]:
    """Polynomials of values and of the coefficients, one after the other, of those marked."""
    items = iter(rest)
    return [[x, *(next(items) for _ in range(order if f else 0))] for x, f in zip(values, flags, strict=True)]


def _coefficients(operands: Sequence[Polynomial], flags: Sequence[bool], avals, order: int) -> list[Any]:
    """The higher coefficients of the operands marked, one after the other, zeros included."""
    listed: list[Any] = []
    for u, flag, aval in zip(operands, flags, avals, strict=True):
        if flag:
            listed += [_typed(c, aval) for c in u[1:]] or [zeros(aval)] * order
    return listed


def _flags(operands: Sequence[Polynomial]) -> Flags:
    return tuple(len(u) > 1 and _smooth(typeof(u[0])) for u in operands)


def _arguments(operands: Sequence[Polynomial], flags: Flags, avals) -> list[Any]:
    return [u[0] for u in operands] + _coefficients(operands, flags, avals, degree(*operands))


# ---------------------------------------------------------------- calls


def _call(name: str, adapt: Callable[[dict[str, Any], int], dict[str, Any]]) -> Callable:
    """The rule of a primitive that runs its parameter `jaxpr` once; adapt: `(params, new operands) -> changes`."""

    def rule(*operands: Polynomial, **params) -> list[Polynomial]:
        closed, order, flags = params["jaxpr"], degree(*operands), _flags(operands)
        program, found = jet_jaxpr(closed, order, flags)
        args = _arguments(operands, flags, closed.in_avals)
        outs = registry[name].bind(*args, **{**params, "jaxpr": program, **adapt(params, len(args) - len(operands))})
        return _gathered(outs[: len(found)], outs[len(found) :], found, order)

    return rule


def _undonated(params, new: int) -> dict[str, Any]:
    return {"donated_invars": (False,) * (len(params["donated_invars"]) + new)}


def _marked(params, new: int) -> dict[str, Any]:
    cse = params["prevent_cse"]
    return {"prevent_cse": cse if isinstance(cse, bool) else (*cse, *(True,) * new)}


# ---------------------------------------------------------------- choices


def _cond(index: Polynomial, *operands: Polynomial, branches, **params) -> list[Polynomial]:
    order, flags = degree(*operands), _flags(operands)
    wanted = any_of(jet_jaxpr(b, order, flags)[1] for b in branches)
    programs = tuple(jet_jaxpr(b, order, flags, wanted)[0] for b in branches)
    args = _arguments(operands, flags, branches[0].in_avals)
    outs = registry["cond"].bind(index[0], *args, branches=programs, **params)
    return _gathered(outs[: len(wanted)], outs[len(wanted) :], wanted, order)


# ---------------------------------------------------------------- loops


def _scan(*operands: Polynomial, **params) -> list[Polynomial]:
    closed, sizes = params["jaxpr"], (params["num_consts"], params["num_carry"])
    order, num_ys = degree(*operands), len(closed.out_avals) - sizes[1]
    carried = tuple(map(_smooth, closed.out_avals[: sizes[1]]))
    given = split(_flags(operands), *sizes)
    flags = (*given[0], *carried, *given[2])
    program, found = jet_jaxpr(closed, order, flags, (*carried, *[False] * num_ys))
    parts, marks = split(operands, *sizes), split(flags, *sizes)
    avals = split([typeof(u[0]) for u in operands], *sizes)
    series = [_coefficients(p, m, a, order) for p, m, a in zip(parts, marks, avals, strict=True)]
    args = [x for p, s in zip(parts, series, strict=True) for x in (*(u[0] for u in p), *s)]
    more = len(series[1])
    inputs = interleaved([len(p) for p in parts], [len(s) for s in series])
    outputs = interleaved([sizes[1], num_ys], [more, order * sum(found) - more])
    changed = {"jaxpr": rearranged(program, inputs, outputs), "num_consts": sizes[0] + len(series[0])}
    outs = registry["scan"].bind(*args, **{**params, **changed, "num_carry": sizes[1] + more})
    carry, carry_series, ys, ys_series = split(outs, sizes[1], more, num_ys)
    return _gathered([*carry, *ys], [*carry_series, *ys_series], found, order)


def _while(*operands: Polynomial, cond_jaxpr, cond_nconsts, body_jaxpr, body_nconsts) -> list[Polynomial]:
    order = degree(*operands)
    cond_consts, consts, carry = split(operands, cond_nconsts, body_nconsts)
    carried = tuple(map(_smooth, body_jaxpr.out_avals))
    given = _flags(consts)
    program, _ = jet_jaxpr(body_jaxpr, order, (*given, *carried), carried)
    avals = split(body_jaxpr.in_avals, body_nconsts)
    const_series = _coefficients(consts, given, avals[0], order)
    carry_series = _coefficients(carry, carried, avals[1], order)
    inputs = interleaved([len(consts), len(carry)], [len(const_series), len(carry_series)])
    unread = [Var(typeof(c)) for c in carry_series]
    condition = cond_jaxpr.replace(jaxpr=cond_jaxpr.jaxpr.replace(invars=cond_jaxpr.jaxpr.invars + unread))
    outs = registry["while"].bind(
        *(u[0] for u in cond_consts), *(u[0] for u in consts), *const_series, *(u[0] for u in carry), *carry_series,
        cond_jaxpr=condition, cond_nconsts=cond_nconsts,
        body_jaxpr=rearranged(program, inputs), body_nconsts=body_nconsts + len(const_series),
    )  # fmt: skip
    return _gathered(outs[: len(carry)], outs[len(carry) :], carried, order)


CALLS: dict[str, Callable[..., list[Polynomial]]] = {
    "jit": _call("jit", _undonated),
    "remat2": _call("remat2", _marked),
    "cond": _cond,
    "scan": _scan,
    "while": _while,
}
