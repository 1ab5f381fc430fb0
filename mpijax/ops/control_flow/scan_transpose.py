"""Transposes a linear `scan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.programs.jaxpr import ClosedJaxpr, Literal, Var
from mpijax.core.tracing.jaxpr_trace import trace_passing_refs
from mpijax.core.tracing.refs import run_on
from mpijax.core.types import effects as fx
from mpijax.core.types.typeof import typeof
from mpijax.ops.control_flow.common import chosen, nonzero_flags, split
from mpijax.ops.control_flow.scan_rules import bind, either, rearranged
from mpijax.transforms.transpose import UndefPrimal, backward_pass, is_undefined_primal
from mpijax.transforms.zeros import Zero, instantiate, zeros


def transpose(cts, *args, **params) -> list[Any]:
    """A reversed scan, which carries the cotangents of the carry and of linear consts.

    Carries that do not depend on a linear operand, such as counters, are computed first by a separate
    loop, and become xs. The other carries start as linear operands, or as an array of zeros.
    """
    closed, num_consts, num_carry = params["jaxpr"], params["num_consts"], params["num_carry"]
    linear = tuple(is_undefined_primal(x) for x in args)
    carried = _linear_carries(closed, linear, num_consts, num_carry)
    if all(carried):
        return _transpose_linear(cts, args, params)
    consts, carry, xs = split(args, num_consts, num_carry)
    body, order = _without_plain(closed, linear, num_consts, carried)
    scanned = _plain_carries(args, linear, carried, params)
    plain = [not c for c in carried]
    ct_carry, ct_ys = split(cts, num_carry)
    found = _transpose_linear(
        [*chosen(ct_carry, carried), *ct_ys],
        [*consts, *chosen(carry, carried), *scanned, *xs],
        {**params, "jaxpr": body, "num_carry": sum(carried)},
    )
    result: list[Any] = [None] * len(args)
    for position, ct in zip(order, found, strict=True):
        if position < num_consts or position >= num_consts + num_carry or not plain[position - num_consts]:
            result[position] = ct
    return result


def _transpose_linear(cts: Sequence[Any], args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Cotangents of the linear operands of a scan whose carries are all linear; None for the other operands."""
    closed, num_consts, num_carry = params["jaxpr"], params["num_consts"], params["num_carry"]
    linear = [is_undefined_primal(x) for x in args]
    consts_lin, carry_lin, xs_lin = split(linear, num_consts, num_carry)
    consts, _, xs = split(args, num_consts, num_carry)
    ct_carry, ct_ys = split(cts, num_carry)
    ct_carry = [instantiate(ct) for ct in ct_carry]
    ct_consts = [zeros(x.aval.to_cotangent_aval()) for x in chosen(consts, consts_lin)]
    ys_nonzero = nonzero_flags(ct_ys)
    body, refs = _transposed_body(closed, tuple(consts_lin), num_carry, tuple(xs_lin), tuple(ys_nonzero))
    fixed = [x for x, lin in zip(consts, consts_lin, strict=True) if not lin]
    scanned = [x for x, lin in zip(xs, xs_lin, strict=True) if not lin]
    operands = [*ct_consts, *ct_carry, *chosen(ct_ys, ys_nonzero), *scanned]
    n = len(ct_consts)

    def run(*operands):
        changing = sum(typeof(x).has_qdd for x in refs)  # consts, as all that an iteration does not hand on
        count = len(refs) - changing + n + num_carry
        return bind([*fixed, *operands], params, body, len(fixed) + changing, count, reverse=not params["reverse"])

    outs = run_on(refs, run, *operands)
    ct_consts, ct_carry, ct_xs = split(outs, n, num_carry)
    found = iter([*ct_consts, *chosen(ct_carry, carry_lin), *ct_xs])
    return [next(found) if lin else None for lin in linear]


@memo_on_jaxpr
def _transposed_body(closed: ClosedJaxpr, consts_lin, num_carry: int, xs_lin, ys_nonzero):
    """The transpose of a linear body.

    Before: consts, some of them linear, the linear carry, xs, some of them linear -> carry, ys.
    After: other consts; cotangents of linear consts, of the carry; of the ys marked nonzero, other xs
    -> cotangents of linear consts, of the carry, of linear xs.
    Also returns the references that user-defined backward rules use; their values are the first carries.
    """
    consts, carry, xs = split(closed.in_avals, len(consts_lin), num_carry)
    carry_out, ys = split([a.to_cotangent_aval() for a in closed.out_avals], num_carry)
    fixed = [a for a, lin in zip(consts, consts_lin, strict=True) if not lin]
    gathering = [a.to_cotangent_aval() for a in chosen(consts, consts_lin)]
    scanned = [a for a, lin in zip(xs, xs_lin, strict=True) if not lin]
    ct_ys = chosen(ys, ys_nonzero)

    def body(*flat):
        values, gathered, ct_carry, ct_live, others = map(
            iter, split(flat, len(fixed), len(gathering), num_carry, len(ct_ys))
        )
        args = [
            *(UndefPrimal(a) if lin else next(values) for a, lin in zip(consts, consts_lin, strict=True)),
            *map(UndefPrimal, carry),
            *(UndefPrimal(a) if lin else next(others) for a, lin in zip(xs, xs_lin, strict=True)),
        ]
        start = [next(gathered) if lin else Zero(a) for a, lin in zip(consts, consts_lin, strict=True)]
        start += [Zero(a.to_cotangent_aval()) for a in (*carry, *xs)]
        cts = [*ct_carry, *(next(ct_live) if nz else Zero(a) for a, nz in zip(ys, ys_nonzero, strict=True))]
        found = backward_pass(closed.jaxpr, closed.consts, args, cts, start)
        return [instantiate(ct) for ct in chosen(found, (*consts_lin, *[True] * num_carry, *xs_lin))]

    avals = [*fixed, *gathering, *carry_out, *ct_ys, *scanned]
    return trace_passing_refs(body, avals, closed.jaxpr.debug_info, at=len(fixed))


# ---------------------------------------------------------------- carries that are not linear


@memo_on_jaxpr
def _linear_carries(closed: ClosedJaxpr, linear: tuple[bool, ...], num_consts: int, num_carry: int) -> tuple[bool, ...]:
    """The carries that depend on a linear operand after some iterations."""
    consts, carry, xs = split(linear, num_consts, num_carry)
    while True:
        reached = _reached(closed, [*consts, *carry, *xs])
        grown = either(carry, [v in reached for v in closed.jaxpr.outvars[:num_carry]])
        if grown == carry:
            return tuple(carry)
        carry = grown


def _reached(closed: ClosedJaxpr, marked: Sequence[bool]) -> set[Var]:
    """The variables that depend on marked arguments."""
    reached = set(chosen(closed.jaxpr.invars, marked))
    for eqn in closed.jaxpr.eqns:
        if fx.linear in eqn.effects or any(type(v) is not Literal and v in reached for v in eqn.invars):
            reached.update(eqn.outvars)
    return reached


@memo_on_jaxpr
def _without_plain(closed: ClosedJaxpr, linear: tuple[bool, ...], num_consts: int, carried: tuple[bool, ...]):
    """The body with the carries not in `carried` moved to its xs, and the old positions of its arguments."""
    at_carry = range(num_consts, num_consts + len(carried))
    plain = [not c for c in carried]
    order = (
        *range(num_consts), *chosen(at_carry, carried), *chosen(at_carry, plain), *range(at_carry.stop, len(linear)),
    )  # fmt: skip
    results = (*chosen(range(len(carried)), carried), *range(len(carried), len(closed.out_avals)))
    return rearranged(closed, order, results), order


def _plain_carries(args, linear, carried, params) -> list[Any]:
    """The values of the carries not in `carried` at the start of each iteration, stacked."""
    num_consts = params["num_consts"]
    body, taken = _plain_body(params["jaxpr"], linear, num_consts, carried)
    plain = len(carried) - sum(carried)
    outs = bind(chosen(args, taken), params, body, sum(taken[:num_consts]), plain)
    return outs[plain:]


@memo_on_jaxpr
def _plain_body(closed: ClosedJaxpr, linear: tuple[bool, ...], num_consts: int, carried: tuple[bool, ...]):
    """The part of a body that computes the carries not in `carried`. It also returns their incoming values."""
    jaxpr, num_carry = closed.jaxpr, len(carried)
    marked = [*linear[:num_consts], *carried, *linear[num_consts + num_carry :]]
    reached = _reached(closed, marked)
    plain = [not c for c in carried]
    results = chosen(jaxpr.outvars[:num_carry], plain)
    before = chosen(jaxpr.invars[num_consts : num_consts + num_carry], plain)
    eqns = [
        e
        for e in jaxpr.eqns
        if fx.linear not in e.effects and not any(type(v) is not Literal and v in reached for v in e.invars)
    ]
    taken = [not m for m in marked]
    part = jaxpr.replace(
        invars=chosen(jaxpr.invars, taken), outvars=[*results, *before], eqns=eqns,
        effects=frozenset().union(*(e.effects for e in eqns)),
    )  # fmt: skip
    return ClosedJaxpr(part, closed.consts), taken
