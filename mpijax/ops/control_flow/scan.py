"""Defines the primitive `scan`: a loop of known length that carries values, reads slices and stacks results."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.base.errors import JaxprTypeError
from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, dead_code, eval_jaxpr
from mpijax.core.rules.lowering import ControlFlow, Flow
from mpijax.core.rules.primitive import Primitive
from mpijax.core.types.abstract import advance
from mpijax.core.types.avals import ShapedArray
from mpijax.ops.control_flow import key_use, scan_over_ranks, scan_rules, scan_transpose
from mpijax.ops.control_flow.common import chosen, same_type, split
from mpijax.ops.control_flow.kept import keep_in_scan
from mpijax.ops.shapes.stacking import stack, unstack
from mpijax.transforms.batching import batch_at, batch_jaxpr, leading

# Maximal number of equations of an unrolled loop.
WRITTEN_OUT = 256


def stacked_aval(aval: ShapedArray, length: int) -> ShapedArray:
    """The type of `length` values stacked along a new leading axis."""
    return aval.inc_rank(length, aval.leading_axis_spec())


def slice_aval(aval: ShapedArray, length: int) -> ShapedArray:
    """The type of one of `length` slices along the leading axis."""
    return aval.dec_rank(length, aval.leading_axis_spec())


def _type_rule(*avals, jaxpr: ClosedJaxpr, length: int, num_consts: int, num_carry: int, **_):
    if len(avals) != len(jaxpr.in_avals):
        raise ValueError(
            f"scan got {len(avals)} operands, but its jaxpr takes {len(jaxpr.in_avals)} arguments: they are the "
            "consts, the initial carry and the scanned arrays"
        )
    advance(avals, jaxpr.in_avals)
    carry_out, ys = split(jaxpr.out_avals, num_carry)
    given = split(avals, num_consts, num_carry)
    taken = split(jaxpr.in_avals, num_consts, num_carry)
    taken[2] = [stacked_aval(a, length) for a in taken[2]]
    for what, have, want in zip(("consts", "an initial carry", "arrays to scan"), given, taken, strict=True):
        _check_types(f"scan was given {what} of type", have, "but its jaxpr takes", want)
    _check_types("scan takes a carry of type", taken[1], "but its jaxpr returns one of type", carry_out)
    return [*carry_out, *(stacked_aval(a, length) for a in ys)]


def _check_types(what: str, have: list[ShapedArray], but: str, want: list[ShapedArray]) -> None:
    if not all(same_type(a, b) for a, b in zip(have, want, strict=True)):
        raise JaxprTypeError(f"{what}\n{_short(have)}\n{but}\n{_short(want)}")


def _short(avals: list[ShapedArray]) -> str:
    return " ".join(a.str_short(True) for a in avals)


def _reference(
    *args, jaxpr: ClosedJaxpr, length: int, num_consts: int, num_carry: int, reverse: bool, **_
) -> list[Any]:
    consts, carry, xs = split(args, num_consts, num_carry)
    ys = [np.empty((length, *a.shape), a.dtype) for a in jaxpr.out_avals[num_carry:]]
    for i in reversed(range(length)) if reverse else range(length):
        outs = eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *consts, *carry, *(x[i] for x in xs))
        carry = [np.asarray(o) for o in outs[:num_carry]]
        for y, out in zip(ys, outs[num_carry:], strict=True):
            y[i] = np.asarray(out)
    return [*carry, *ys]


def _written_out(params: dict[str, Any]) -> bool:
    """Whether the user requests full unrolling (`unroll`), and the program stays short."""
    jaxpr, length = params["jaxpr"], params["length"]
    asked = 0 < length <= params["unroll"]
    return asked and not jaxpr.effects and length * len(jaxpr.jaxpr.eqns) <= WRITTEN_OUT


def _unrolled(*args, jaxpr: ClosedJaxpr, length: int, num_consts: int, num_carry: int, reverse: bool, **_) -> list[Any]:
    """The unrolled loop."""
    consts, carry, xs = split(args, num_consts, num_carry)
    given = [unstack(x) for x in xs]
    made: list[list[Any]] = []
    for i in reversed(range(length)) if reverse else range(length):
        outs = eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *consts, *carry, *(rows[i] for rows in given))
        carry = outs[:num_carry]
        made.append(outs[num_carry:])
    if reverse:
        made.reverse()
    return [*carry, *map(stack, zip(*made, strict=True))]


def _batch(axis, args, dims, **params):
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    num_ys = len(params["jaxpr"].out_avals) - num_carry
    consts, start, xs = split([d is not None for d in dims], num_consts, num_carry)
    carry = start
    while True:
        flags = (*consts, *carry, *xs)
        body, batched = batch_jaxpr(params["jaxpr"], axis, flags, (*carry, *[False] * num_ys))
        if batched[:num_carry] == carry:
            break
        carry = scan_rules.either(carry, batched[:num_carry])
    targets = [0] * (num_consts + num_carry) + [1] * len(xs)
    operands = [
        batch_at(x, d, target, axis) if now else x
        for x, d, now, target in zip(args, dims, flags, targets, strict=True)
    ]
    outs = scan_rules.bind(operands, params, body, num_consts, num_carry)
    out_dims = [*map(leading, params["jaxpr"].out_avals[:num_carry]), *[1] * num_ys]
    return outs, [d if b else None for d, b in zip(out_dims, batched, strict=True)]


@memo_on_jaxpr
def _pruned(closed: ClosedJaxpr, num_consts: int, num_carry: int, used: tuple[bool, ...]):
    """The body without equations that no used result needs, and flags for the arguments and results it keeps."""
    carry, ys = split(used, num_carry)
    while True:
        outputs = [*carry, *ys]
        jaxpr, inputs = dead_code(closed.jaxpr, outputs)
        read = inputs[num_consts : num_consts + num_carry]
        if all(c or not r for c, r in zip(carry, read, strict=True)):
            break
        carry = scan_rules.either(carry, read)
    inputs[num_consts : num_consts + num_carry] = carry
    jaxpr = jaxpr.replace(invars=chosen(closed.jaxpr.invars, inputs))
    return ClosedJaxpr(jaxpr, closed.consts), inputs, outputs


def _dce(used: list[bool], eqn: Eqn) -> Eqn:
    params = eqn.params
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    closed, inputs, outputs = _pruned(params["jaxpr"], num_consts, num_carry, tuple(used))
    kept = {"jaxpr": closed, "num_consts": sum(inputs[:num_consts]), "num_carry": sum(outputs[:num_carry])}
    return Eqn(
        eqn.primitive,
        chosen(eqn.invars, inputs),
        chosen(eqn.outvars, outputs),
        {**params, **kept},
        closed.effects,
        eqn.source,
    )


scan_p = Primitive(
    "scan",
    type_rule=_type_rule,
    reference=_reference,
    lower=ControlFlow(Flow.SCAN, _written_out, _unrolled),
    jvp=scan_rules.jvp,
    transpose=scan_transpose.transpose,
    batch=_batch,
    sharding=scan_over_ranks.sharding,
    multiple_results=True,
    effects=lambda params: params["jaxpr"].effects,
    dce=_dce,
    linearize=scan_rules.linearize,
    keep_inside=keep_in_scan,
    vma=lambda avals, params: None,
    keys=key_use.of_scan,
)
