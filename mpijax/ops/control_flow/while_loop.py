"""Defines the primitive `while`: repeats a body while a condition holds.

Operands are the constants of the condition, those of the body, and the carry. Under `vmap` the condition may differ
between examples. Its result then has batch axes, which are also the leading axes of the carry. An example does not
change any more once its condition is false.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core.base import errors
from mpijax.core.base.memo import memo_on_jaxpr, memo_on_jaxprs
from mpijax.core.programs.jaxpr import ClosedJaxpr, Var, eval_jaxpr
from mpijax.core.rules.lowering import ControlFlow, Decompose, Flow
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.checks import agree
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.tracing.trace import EVAL
from mpijax.core.types import effects as fx
from mpijax.core.types.abstract import advance
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.control_flow import key_use
from mpijax.ops.control_flow.common import merged, nonzero_flags, split
from mpijax.ops.control_flow.varying import refuse_communication
from mpijax.transforms.batching import AxisData, batch_at, batch_jaxpr, batch_jaxpr_axes, leading
from mpijax.transforms.call import jit_p
from mpijax.transforms.jvp import jvp_jaxpr
from mpijax.transforms.zeros import Zero, instantiate


def bind_while(*args, **params) -> list[Any]:
    """The loop, as the primitive for one condition or for a batch of conditions."""
    primitive = batched_while_p if params["cond_jaxpr"].out_avals[0].shape else while_p
    return primitive.bind(*args, **params)


def _type_rule(*avals: ShapedArray, cond_jaxpr, cond_nconsts, body_jaxpr, body_nconsts) -> list[ShapedArray]:
    cond_consts, body_consts, carry = split(avals, cond_nconsts, body_nconsts)
    for name, closed, consts in (("cond", cond_jaxpr, cond_consts), ("body", body_jaxpr, body_consts)):
        if len(closed.in_avals) != len(consts) + len(carry):
            raise errors.JaxprTypeError(
                f"while: the {name} takes {len(closed.in_avals)} inputs, but there are {len(consts)} constants "
                f"and {len(carry)} carries"
            )
        advance((*consts, *carry), closed.in_avals)
        if not agree(closed.in_avals, [*consts, *carry]):
            raise errors.JaxprTypeError(f"while: the {name} takes {closed.in_avals}, its operands are {avals}")
    if not agree(body_jaxpr.out_avals, carry):
        raise errors.JaxprTypeError(f"while: the body returns {body_jaxpr.out_avals} for a carry {carry}")
    if [a.dtype for a in cond_jaxpr.out_avals] != [np.bool_]:
        raise errors.JaxprTypeError(f"while: the condition returns {cond_jaxpr.out_avals}, which is not one bool")
    axes = cond_jaxpr.out_avals[0].vma
    if axes:
        refuse_communication("the condition of while_loop", "the loop", axes, (cond_jaxpr, body_jaxpr))
    return body_jaxpr.out_avals


def _effects(params) -> frozenset:
    return params["cond_jaxpr"].effects | params["body_jaxpr"].effects


# ---------------------------------------------------------------- evaluation


def _call(closed: ClosedJaxpr, name: str, args) -> list[Any]:
    """Run a Jaxpr now, as a compiled program."""
    params = {"name": name, "inline": False, "keep_unused": False, "donated_invars": (False,) * len(args)}
    return EVAL.process_primitive(jit_p, args, {"jaxpr": closed, **params})


def _reference(*args, cond_jaxpr, cond_nconsts, body_jaxpr, body_nconsts) -> list[np.ndarray]:
    cond_consts, body_consts, carry = split(args, cond_nconsts, body_nconsts)
    carry = [np.asarray(x) for x in carry]
    while (going := np.asarray(_call(cond_jaxpr, "while_cond", [*cond_consts, *carry])[0])).any():
        new = map(np.asarray, _call(body_jaxpr, "while_body", [*body_consts, *carry]))
        carry = [np.where(going.reshape(going.shape + (1,) * (x.ndim - going.ndim)), y, x)
                 for x, y in zip(carry, new, strict=True)]  # fmt: skip
    return carry


def _run(*args, **params) -> list[Any]:
    """Run the loop outside all traces, as a compiled program that is cached by its Jaxprs."""
    jaxprs = params["body_jaxpr"], params["cond_jaxpr"]
    program = _program(jaxprs, params["body_nconsts"], params["cond_nconsts"], tuple(typeof(x) for x in args))
    return _call(program, "while", args)


@memo_on_jaxprs
def _program(jaxprs, body_nconsts: int, cond_nconsts: int, avals: tuple[ShapedArray, ...]) -> ClosedJaxpr:
    # Copies: a result that is cached for a Jaxpr must not hold it.
    body, cond = (closed.replace() for closed in jaxprs)
    params = {"body_nconsts": body_nconsts, "cond_nconsts": cond_nconsts}
    return trace_to_closed_jaxpr(lambda *args: bind_while(*args, cond_jaxpr=cond, body_jaxpr=body, **params), avals)


def _one_condition(*args, cond_jaxpr, cond_nconsts, body_jaxpr, body_nconsts) -> list[Any]:
    """Converts a loop with a batch of conditions to one that runs while any of them holds, and selects in the body.

    The conditions are carried, so each is computed once per iteration.
    """
    cond_consts, body_consts, carry = split(args, cond_nconsts, body_nconsts)
    going = eval_jaxpr(cond_jaxpr.jaxpr, cond_jaxpr.consts, *cond_consts, *carry)
    jaxprs, sizes = (body_jaxpr, cond_jaxpr), (body_nconsts, cond_nconsts)
    consts = tuple(typeof(x) for x in (*cond_consts, *body_consts))
    body, cond = _selecting(jaxprs, *sizes, consts, tuple(typeof(x) for x in (*going, *carry)))
    outs = while_p.bind(
        *cond_consts, *body_consts, *going, *carry,
        cond_jaxpr=cond, cond_nconsts=0, body_jaxpr=body, body_nconsts=body_nconsts + cond_nconsts,
    )  # fmt: skip
    return outs[1:]


@memo_on_jaxprs
def _selecting(jaxprs, body_nconsts: int, cond_nconsts: int, consts, carry) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    body, cond = jaxprs
    axes = tuple(range(carry[0].ndim))

    def any_going(going, *_):
        return [registry["reduce_or"].bind(going, axes=axes)]

    def iteration(*args):
        cond_consts, body_consts, [going], old = split(args, cond_nconsts, body_nconsts, 1)
        new = eval_jaxpr(body.jaxpr, body.consts, *body_consts, *old)
        if typeof(going).size > 1:  # the only example of a batch of one is going
            new = [registry["select_n"].bind(_broadcast(going, x), x, y) for x, y in zip(old, new, strict=True)]
        return eval_jaxpr(cond.jaxpr, cond.consts, *cond_consts, *new) + new

    return trace_to_closed_jaxpr(iteration, [*consts, *carry]), trace_to_closed_jaxpr(any_going, carry)


def _broadcast(flags, x):
    """Flags over the first axes of x, broadcast to all of its elements."""
    shape, axes = typeof(x).shape, tuple(range(typeof(flags).ndim))
    if len(shape) == len(axes):
        return flags
    return registry["broadcast_in_dim"].bind(flags, shape=shape, broadcast_dimensions=axes, sharding=None)


# ---------------------------------------------------------------- derivatives


def _carried_tangents(body: ClosedJaxpr, const_nonzero: list[bool], carry_nonzero: list[bool]) -> tuple[bool, ...]:
    """The carries with tangents: those that start with one, and those that get one from others."""
    while True:
        _, found = jvp_jaxpr(body, (*const_nonzero, *carry_nonzero), tuple(carry_nonzero))
        if list(found) == carry_nonzero:
            return tuple(found)
        carry_nonzero = [a or b for a, b in zip(carry_nonzero, found, strict=True)]


def _jvp(primals, tangents, *, cond_jaxpr, cond_nconsts, body_jaxpr, body_nconsts):
    cond_consts, body_consts, carry = split(primals, cond_nconsts, body_nconsts)
    _, const_tangents, carry_tangents = split(tangents, cond_nconsts, body_nconsts)
    const_nonzero = nonzero_flags(const_tangents)
    carry_nonzero = _carried_tangents(body_jaxpr, const_nonzero, nonzero_flags(carry_tangents))
    const_tangents = [t for t in const_tangents if type(t) is not Zero]
    carry_tangents = [instantiate(t) for t, nz in zip(carry_tangents, carry_nonzero, strict=True) if nz]
    outs = bind_while(
        *cond_consts, *body_consts, *const_tangents, *carry, *carry_tangents,
        cond_jaxpr=_ignoring(cond_jaxpr, tuple(typeof(t) for t in carry_tangents)),
        cond_nconsts=cond_nconsts,
        body_jaxpr=_with_tangents(body_jaxpr, body_nconsts, tuple(const_nonzero), carry_nonzero),
        body_nconsts=body_nconsts + len(const_tangents),
    )  # fmt: skip
    primal_out, live = split(outs, len(carry))
    zeros = [Zero.of_primal(p) for p, nz in zip(primal_out, carry_nonzero, strict=True) if not nz]
    return primal_out, merged(carry_nonzero, live, zeros)


@memo_on_jaxpr
def _with_tangents(body: ClosedJaxpr, num_consts: int, const_nonzero, carry_nonzero) -> ClosedJaxpr:
    """The derivative of a body, with arguments in order: constants, their tangents, carries, their tangents."""
    closed, _ = jvp_jaxpr(body, const_nonzero + carry_nonzero, carry_nonzero)
    sizes = num_consts, len(carry_nonzero), sum(const_nonzero)
    consts, carry, const_tangents, carry_tangents = split(closed.jaxpr.invars, *sizes)
    return closed.replace(jaxpr=closed.jaxpr.replace(invars=consts + const_tangents + carry + carry_tangents))


@memo_on_jaxpr
def _ignoring(cond: ClosedJaxpr, avals: tuple[ShapedArray, ...]) -> ClosedJaxpr:
    """A condition with additional arguments that it does not read."""
    return cond.replace(jaxpr=cond.jaxpr.replace(invars=cond.jaxpr.invars + [Var(a) for a in avals]))


def _linearize(_trace, primals, tangents, params):
    """Run the loop, and record its derivative as a loop that recomputes the primal values.

    Residuals of each iteration cannot be stored, because the number of iterations is unknown.
    """
    outs = bind_while(*primals, **params)
    if all(type(t) is Zero for t in tangents[params["cond_nconsts"] :]):
        return outs, [Zero.of_primal(x) for x in outs]
    return outs, _jvp(primals, tangents, **params)[1]


def _transpose(cts, *args, **params):
    if all(type(ct) is Zero for ct in cts):
        return [None] * len(args)
    raise ValueError(
        "Reverse-mode differentiation does not work for lax.while_loop or lax.fori_loop with dynamic start/stop "
        "values: the number of iterations, whose values must be saved, is unknown. Try using lax.scan, or using "
        "fori_loop with static start/stop (Python integers). Forward mode (jvp, jacfwd) works."
    )


# ---------------------------------------------------------------- batches


def _batch(axis: AxisData, args, dims, *, cond_jaxpr, cond_nconsts, body_jaxpr, body_nconsts):
    cond_consts, body_consts, carry = split(args, cond_nconsts, body_nconsts)
    cond_dims, body_dims, start_dims = split(dims, cond_nconsts, body_nconsts)
    batched = _batched_carries(body_jaxpr, axis, _flags(body_dims), _flags(start_dims))
    _, [differs] = batch_jaxpr(cond_jaxpr, axis, (*_flags(cond_dims), *batched), False)
    # The axes of the condition come first; the batch axis of loops with the same condition comes after them.
    place = 0 if differs else len(cond_jaxpr.out_avals[0].shape)
    carry_dims = [
        (leading(a) if a.is_high else place) if differs or b else None
        for a, b in zip(body_jaxpr.out_avals, batched, strict=True)
    ]
    carry = [
        x if to is None else batch_at(x, d, to, axis)
        for x, d, to in zip(carry, start_dims, carry_dims, strict=True)
    ]
    cond_batch = batch_jaxpr_axes(cond_jaxpr, axis, (*cond_dims, *carry_dims), (0 if differs else None,))
    body_batch = batch_jaxpr_axes(body_jaxpr, axis, (*body_dims, *carry_dims), tuple(carry_dims))
    if differs:
        _refuse_effects(cond_batch)
        _refuse_effects(body_batch)
    outs = bind_while(
        *cond_consts, *body_consts, *carry,
        cond_jaxpr=cond_batch, cond_nconsts=cond_nconsts, body_jaxpr=body_batch, body_nconsts=body_nconsts,
    )  # fmt: skip
    return outs, carry_dims


def _flags(dims: Sequence[int | None]) -> list[bool]:
    return [d is not None for d in dims]


def _batched_carries(body: ClosedJaxpr, axis: AxisData, const_batched, carry_batched: list[bool]) -> list[bool]:
    """The carries that differ between examples: those that differ initially, and those that depend on these."""
    while True:
        _, found = batch_jaxpr(body, axis, (*const_batched, *carry_batched), tuple(carry_batched))
        if list(found) == carry_batched:
            return carry_batched
        carry_batched = [a or b for a, b in zip(carry_batched, found, strict=True)]


def _refuse_effects(closed: ClosedJaxpr) -> None:
    if named := fx.of_the_chosen(closed.effects):
        raise NotImplementedError(
            f"{' and '.join(named)} effects not supported in while_loop with batched predicate. The loop runs until "
            "all elements are done, so the effects would also happen for finished ones. Move the communication or "
            "callback out of the loop, or do not map the condition."
        )


# ---------------------------------------------------------------- records

_RULES: dict[str, Any] = {
    "type_rule": _type_rule,
    "reference": _reference,
    "jvp": _jvp,
    "transpose": _transpose,
    "batch": _batch,
    "multiple_results": True,
    "effects": _effects,
    "linearize": _linearize,
    "vma": lambda avals, params: None,
    "keys": key_use.of_while,
}
while_p = Primitive("while", lower=ControlFlow(Flow.WHILE), **_RULES)
# Also prints as `while`. The compiler decomposes it to a loop with one condition.
batched_while_p = Primitive("while", key="batched_while", lower=Decompose(_one_condition), **_RULES)
while_p.impl = batched_while_p.impl = _run
