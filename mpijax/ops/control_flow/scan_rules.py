"""Derivatives of `scan`: forward mode and linearization.

Operands are consts, the initial carry, then xs; results are the last carry, then ys. The carries with
a tangent are a fixpoint: those whose initial value has a tangent, and those that get one from the
body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.programs.jaxpr import ClosedJaxpr, eval_jaxpr
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.trace import current_trace
from mpijax.ops.control_flow.common import chosen, merged, nonzero_flags, split
from mpijax.ops.control_flow.partial import split_known
from mpijax.transforms.jvp import jvp_jaxpr
from mpijax.transforms.linearize import LinearizedJaxpr, linearize_jaxpr
from mpijax.transforms.zeros import Zero, instantiate


def bind(operands: Sequence[Any], params: dict[str, Any], jaxpr: ClosedJaxpr, num_consts: int, num_carry: int, **more):
    """A scan with another body and otherwise the same `params`."""
    changed = {"jaxpr": jaxpr, "num_consts": num_consts, "num_carry": num_carry, **more}
    return registry["scan"].bind(*operands, **{**params, **changed})


@memo_on_jaxpr
def rearranged(closed: ClosedJaxpr, inputs: tuple[int, ...], outputs: tuple[int, ...] | None = None) -> ClosedJaxpr:
    """The Jaxpr with the arguments and results at these positions, in this order."""
    jaxpr = closed.jaxpr
    outvars = jaxpr.outvars if outputs is None else [jaxpr.outvars[i] for i in outputs]
    return ClosedJaxpr(jaxpr.replace(invars=[jaxpr.invars[i] for i in inputs], outvars=outvars), closed.consts)


def either(a: Sequence[bool], b: Sequence[bool]) -> list[bool]:
    return [x or y for x, y in zip(a, b, strict=True)]


# ---------------------------------------------------------------- forward mode


def _carry_tangents(derive, flags: tuple[bool, ...], num_consts: int, num_carry: int, num_ys: int):
    """Repeat `derive(nonzero, wanted) -> (result, nonzero_out)` until no more carries get a tangent.

    Returns the last result, `nonzero` and `nonzero_out`.
    """
    consts, carry, xs = split(flags, num_consts, num_carry)
    while True:
        nonzero = (*consts, *carry, *xs)
        result, nonzero_out = derive(nonzero, (*carry, *[False] * num_ys))
        if nonzero_out[:num_carry] == carry:
            return result, nonzero, nonzero_out
        carry = either(carry, nonzero_out[:num_carry])


def jvp(primals, tangents, **params):
    closed, num_consts, num_carry = params["jaxpr"], params["num_consts"], params["num_carry"]
    num_ys = len(closed.out_avals) - num_carry
    body, nonzero, nonzero_out = _carry_tangents(
        lambda nonzero, wanted: jvp_jaxpr(closed, nonzero, wanted),
        tuple(nonzero_flags(tangents)), num_consts, num_carry, num_ys,
    )  # fmt: skip
    tangents = [instantiate(t) if nz else t for t, nz in zip(tangents, nonzero, strict=True)]
    parts = split(primals, num_consts, num_carry)
    dots = [
        chosen(t, nz)
        for t, nz in zip(split(tangents, num_consts, num_carry), split(nonzero, num_consts, num_carry), strict=True)
    ]
    operands = [x for part, dot in zip(parts, dots, strict=True) for x in (*part, *dot)]
    n_dot = len(dots[1])
    order_in = interleaved([len(p) for p in parts], [len(d) for d in dots])
    order_out = interleaved([num_carry, num_ys], [n_dot, sum(nonzero_out) - n_dot])
    outs = bind(
        operands, params, rearranged(body, order_in, order_out), num_consts + len(dots[0]), num_carry + n_dot
    )
    carry, carry_dot, ys, ys_dot = split(outs, num_carry, n_dot, num_ys)
    live = iter([*carry_dot, *ys_dot])
    results = [*carry, *ys]
    return results, [next(live) if nz else Zero.of_primal(p) for p, nz in zip(results, nonzero_out, strict=True)]


def interleaved(firsts: Sequence[int], seconds: Sequence[int]) -> tuple[int, ...]:
    """A permutation that interleaves parts of two concatenated lists: some of the first, some of the second, ..."""
    order: list[int] = []
    i, j = 0, sum(firsts)
    for a, b in zip(firsts, seconds, strict=True):
        order += [*range(i, i + a), *range(j, j + b)]
        i, j = i + a, j + b
    return tuple(order)


# ---------------------------------------------------------------- linearization


def linearize(trace, primals, tangents, params):
    """A scan that also returns stacked residuals of each iteration, and a linear scan of the tangents.

    Residuals that are consts or xs are not stored again. Residuals that depend on consts only are
    computed once, before the loop.
    """
    closed, num_consts, num_carry = params["jaxpr"], params["num_consts"], params["num_carry"]
    num_ys = len(closed.out_avals) - num_carry
    num_xs = len(primals) - num_consts - num_carry
    forwardable = (*[True] * num_consts, *[False] * num_carry, *[True] * num_xs)

    def derive(nonzero, wanted):
        parts = linearize_jaxpr(closed, nonzero, wanted, forwardable)
        return parts, parts.nonzero_out

    parts, nonzero, nonzero_out = _carry_tangents(
        derive, tuple(nonzero_flags(tangents)), num_consts, num_carry, num_ys
    )
    outs, residuals, stacked = _run_primal(parts, primals, params, num_carry + num_ys)
    if not any(nonzero_out) and not parts.linear.effects:
        return outs, [Zero.of_primal(p) for p in outs]
    with current_trace(trace.rule_trace.builder):
        live = [instantiate(t) for t, nz in zip(tangents, nonzero, strict=True) if nz]
    constant = [not s for s in stacked]
    at_res = range(len(residuals))
    at_live = range(len(residuals), len(residuals) + len(live))
    order = (*chosen(at_res, constant), *at_live, *chosen(at_res, stacked))
    with current_trace(trace.rule_trace.builder):
        linear_outs = iter(
            bind(
                [*chosen(residuals, constant), *live, *chosen(residuals, stacked)],
                params,
                rearranged(parts.linear, order),
                sum(constant) + sum(nonzero[:num_consts]),
                sum(nonzero[num_consts : num_consts + num_carry]),
            )
        )
    return outs, [next(linear_outs) if nz else Zero.of_primal(p) for p, nz in zip(outs, nonzero_out, strict=True)]


def _run_primal(parts: LinearizedJaxpr, primals, params, num_outs: int):
    """Results, residuals, and flags: which residuals have a leading axis over the iterations."""
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    num_res = len(parts.primal.out_avals) - num_outs
    known_inputs = tuple(i < num_consts for i in range(len(primals)))
    pieces = split_known(parts.primal, known_inputs, (*[False] * num_outs, *[True] * num_res))
    known = pieces.known
    handed, hoisted = split(eval_jaxpr(known.jaxpr, known.consts, *primals[:num_consts]), pieces.num_handed)
    outs: list[Any] = []
    if pieces.rest.out_avals or pieces.rest.effects:
        outs = bind([*handed, *primals[num_consts:]], params, pieces.rest, pieces.num_handed, num_carry)
    outs, stored = split(outs, num_outs)
    was_hoisted = pieces.hoisted[num_outs:]
    returned = iter(zip(merged(was_hoisted, hoisted, stored), was_hoisted, strict=True))
    residuals, stacked = [], []
    for position in parts.forwarded:
        value, constant = next(returned) if position is None else (primals[position], position < num_consts)
        residuals.append(value)
        stacked.append(not constant)
    return outs, residuals, stacked
