"""Defines the primitive `cond`: runs one of several Jaxprs, selected by an index."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from mpijax.core.base import errors
from mpijax.core.base.memo import memo_on_jaxprs
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, eval_jaxpr
from mpijax.core.rules.lowering import ControlFlow, Flow
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.refs import run_on
from mpijax.core.tracing.trace import EVAL, evaluate
from mpijax.core.types import effects as fx
from mpijax.core.types.abstract import advance
from mpijax.core.types.array_api import is_whole
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops import ad_ops
from mpijax.ops.control_flow import key_use
from mpijax.ops.control_flow.common import chosen, nonzero_flags, same_type
from mpijax.ops.control_flow.kept import keep_in_cond
from mpijax.ops.control_flow.residuals import merge, return_all, take_all
from mpijax.ops.control_flow.signatures import any_of, pruned, with_inputs
from mpijax.ops.control_flow.varying import refuse_communication, vary, vary_jaxpr
from mpijax.ops.elementwise.select import select, select_n
from mpijax.transforms.batching import batch_at, batch_jaxpr, leading, move_dim
from mpijax.transforms.call import jit_p
from mpijax.transforms.jvp import jvp_jaxpr
from mpijax.transforms.linearize import linearize_jaxpr
from mpijax.transforms.transpose import is_undefined_primal, transpose_jaxpr
from mpijax.transforms.zeros import Zero

Branches = tuple[ClosedJaxpr, ...]


def _type_rule(index: ShapedArray, *operands: ShapedArray, branches: Branches, **_) -> list[ShapedArray]:
    first = branches[0]
    if index.dtype != np.int32 or index.shape:
        raise errors.JaxprTypeError(f"cond called with index of type {index.str_short(True)} instead of int32[]")
    for i, branch in enumerate(branches):
        if len(branch.in_avals) != len(operands):
            raise errors.JaxprTypeError(
                f"cond called with {len(operands)} non-predicate operands, but branch {i} takes "
                f"{len(branch.in_avals)} inputs"
            )
        _check_types(f"cond branch {i} takes inputs", branch.in_avals, "the operands are", operands)
        advance(operands, branch.in_avals)
        _check_types(f"cond branch {i} returns", branch.out_avals, "branch 0 returns", first.out_avals)
    return [a if index.vma <= a.vma else a.update(vma=a.vma | index.vma) for a in first.out_avals]


def _check_types(what: str, avals, other: str, others) -> None:
    if len(avals) == len(others) and all(a is b or same_type(a, b) for a, b in zip(avals, others, strict=True)):
        return
    one, two = (" ".join(a.str_short(True) for a in types) for types in (avals, others))
    raise errors.JaxprTypeError(f"{what} of types {one}, but {other} of types {two}")


def _effects(params) -> frozenset:
    return frozenset().union(*(b.effects for b in params["branches"]))


def _run(index, *operands, branches: Branches, **params) -> list[Any]:
    """Run the selected branch now. An index out of range selects the last branch."""
    if not is_whole(index):  # other ranks have the index, and the results
        return evaluate(cond_p, (index, *operands), {"branches": branches, **params})
    i = int(index)
    branch = branches[i if 0 <= i < len(branches) else -1]
    params = {"name": "cond", "inline": False, "keep_unused": False, "donated_invars": (False,) * len(operands)}
    outs = EVAL.process_primitive(jit_p, operands, {"jaxpr": branch, **params})
    return [_with_weak_type(x, a.weak_type) for x, a in zip(outs, branches[0].out_avals, strict=True)]


def _with_weak_type(x: Any, weak_type: bool) -> Any:
    aval = typeof(x)
    if aval.weak_type == weak_type:
        return x
    params = {"new_dtype": aval.dtype, "weak_type": weak_type, "sharding": None}
    return EVAL.process_primitive(registry["convert_element_type"], (x,), params)


def _reference(index, *operands, branches: Branches, **params) -> list[np.ndarray]:
    return [np.asarray(x) for x in _run(index, *operands, branches=branches, **params)]


# ---------------------------------------------------------------- derivatives


def _jvp(primals, tangents, *, branches: Branches, **params):
    nonzero = tuple(nonzero_flags(tangents[1:]))
    nonzero_out = any_of(jvp_jaxpr(b, nonzero, False)[1] for b in branches)
    with_tangents = tuple(jvp_jaxpr(b, nonzero, nonzero_out)[0] for b in branches)
    live = [t for t in tangents[1:] if type(t) is not Zero]
    outs = cond_p.bind(*primals, *live, branches=with_tangents, **params)
    count = len(nonzero_out)
    return outs[:count], _tangents(outs[:count], outs[count:], nonzero_out)


def _tangents(primal_out, live, nonzero_out) -> list[Any]:
    rest = iter(live)
    return [next(rest) if nz else Zero.of_primal(p) for p, nz in zip(primal_out, nonzero_out, strict=True)]


@memo_on_jaxprs
def _linearized(branches: Branches, nonzero: tuple[bool, ...]):
    """Branches that return results and the residuals of all branches, derivative branches, and nonzero results."""
    nonzero_out = any_of(linearize_jaxpr(b, nonzero).nonzero_out for b in branches)
    splits = [linearize_jaxpr(b, nonzero, nonzero_out, False) for b in branches]
    avals, places = merge([s.primal.out_avals[len(nonzero_out) :] for s in splits])
    primal = tuple(return_all(s.primal, p, avals) for s, p in zip(splits, places, strict=True))
    linear = tuple(take_all(s.linear, p, avals) for s, p in zip(splits, places, strict=True))
    return primal, linear, nonzero_out


def _linearize(trace, primals, tangents, params):
    branches = params["branches"]
    primal, linear, nonzero_out = _linearized(branches, tuple(nonzero_flags(tangents[1:])))
    outs = cond_p.bind(*primals, **{**params, "branches": primal})
    count = len(nonzero_out)
    live = [t for t in tangents[1:] if type(t) is not Zero]
    linear_outs = []
    if any(nonzero_out) or any(b.effects for b in linear):
        linear_params = {**params, "branches": linear}
        linear_outs = trace.bind_linear(cond_p, [primals[0], *outs[count:], *live], linear_params)
    return outs[:count], _tangents(outs[:count], linear_outs, nonzero_out)


def _transpose(cts, index, *operands, branches: Branches, **params):
    linear = tuple(is_undefined_primal(x) for x in operands)
    nonzero = tuple(nonzero_flags(cts))
    alone = [transpose_jaxpr(b, linear, nonzero) for b in branches]
    nonzero_out = any_of(which for _, which, _ in alone)
    refs = tuple(dict.fromkeys(ref for *_, used in alone for ref in used))
    transposed = tuple(transpose_jaxpr(b, linear, nonzero, nonzero_out, refs)[0] for b in branches)
    values = [x for x in operands if not is_undefined_primal(x)]
    live = [ct for ct in cts if type(ct) is not Zero]
    outs = iter(run_on(refs, partial(cond_p.bind, index, branches=transposed, **params), *values, *live))
    flags = iter(nonzero_out)
    cts_in = [(next(outs) if next(flags) else Zero(x.aval)) if lin else None
              for x, lin in zip(operands, linear, strict=True)]  # fmt: skip
    return [None, *cts_in]


# ---------------------------------------------------------------- batches


def _batch(axis, args, dims, *, branches: Branches, **params):
    if dims[0] is not None:
        return _batch_choice(axis, args, dims, branches)
    index, *operands = args
    batched = tuple(d is not None for d in dims[1:])
    operands = [x if d is None else move_dim(x, d, 0) for x, d in zip(operands, dims[1:], strict=True)]
    out_batched = any_of(batch_jaxpr(b, axis, batched, False)[1] for b in branches)
    batches = tuple(batch_jaxpr(b, axis, batched, out_batched)[0] for b in branches)
    outs = cond_p.bind(index, *operands, branches=batches, **params)
    return outs, [leading(a) if b else None for a, b in zip(branches[0].out_avals, out_batched, strict=True)]


def _batch_choice(axis, args, dims, branches: Branches):
    """Each example selects its own branch: runs all branches, and selects the results."""
    index, *operands = (batch_at(x, d, 0, axis) for x, d in zip(args, dims, strict=True))
    results = []
    for i, branch in enumerate(branches):
        batched, _ = batch_jaxpr(branch, axis, (True,) * len(operands), True)
        _refuse_effects(batched)
        # Stop gradients for examples of other branches: where this branch is undefined, they would be NaN.
        mine = registry["eq"].bind(index, np.int32(i))
        inputs = [_broadcast(select, mine, x, ad_ops.stop_gradient(x)) for x in operands]
        results.append(eval_jaxpr(batched.jaxpr, batched.consts, *inputs))
    outs = [_broadcast(select_n, index, *cases) for cases in zip(*results, strict=True)]
    return outs, [0] * len(outs)


def _broadcast(choose, which, *cases):
    shape = typeof(cases[0]).shape
    if len(shape) > 1:
        which = registry["broadcast_in_dim"].bind(which, shape=shape, broadcast_dimensions=(0,), sharding=None)
    return choose(which, *cases)


def _refuse_effects(branch: ClosedJaxpr) -> None:
    if named := fx.of_the_chosen(branch.effects):
        raise NotImplementedError(
            f"{' and '.join(named)} effect not supported in vmap-of-cond. With a batched predicate, vmap runs all "
            "branches and selects, so the effect would also happen for elements that take another branch. Move the "
            "communication or callback out of the branches, or do not map the predicate (in_axes=None)."
        )


# ---------------------------------------------------------------- dead code


def _dce(used: list[bool], eqn: Eqn) -> Eqn:
    branches, keep = _pruned_branches(eqn.params["branches"], tuple(used))
    params = {**eqn.params, "branches": branches}
    invars = [eqn.invars[0], *chosen(eqn.invars[1:], keep)]
    return eqn.replace(invars=invars, outvars=chosen(eqn.outvars, used), params=params, effects=_effects(params))


@memo_on_jaxprs
def _pruned_branches(branches: Branches, used: tuple[bool, ...]):
    """Branches that return only the used results, and take the operands that at least one of them reads."""
    parts, reads = zip(*(pruned(b, used) for b in branches), strict=True)
    keep = any_of(reads)
    return tuple(with_inputs(b, keep) for b in parts), keep


# ---------------------------------------------------------------- record


class _Cond(Primitive):
    """`cond` for ranks that select different branches: operands and results vary over the same axes as the index."""

    def bind(self, index, *operands, branches: Branches, **params):
        axes = typeof(index).vma
        if axes:
            refuse_communication("the predicate of cond", "a branch", axes, branches)
            operands = tuple(vary(x, axes) for x in operands)
            everywhere = ([axes] * len(operands), [axes] * len(branches[0].out_avals))
            branches = tuple(vary_jaxpr(b, *everywhere) for b in branches)
        return super().bind(index, *operands, branches=branches, **params)


cond_p = _Cond(
    "cond",
    type_rule=_type_rule,
    reference=_reference,
    lower=ControlFlow(Flow.COND),
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    multiple_results=True,
    effects=_effects,
    dce=_dce,
    linearize=_linearize,
    keep_inside=keep_in_cond,
    vma=lambda avals, params: None,
    keys=key_use.of_cond,
)
cond_p.impl = _run
