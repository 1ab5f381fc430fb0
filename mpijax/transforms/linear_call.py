"""Defines `linear_call`: a linear function with a user-defined transpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.core.programs.jaxpr import eval_jaxpr
from mpijax.core.rules.lowering import InlineJaxpr
from mpijax.core.rules.primitive import Primitive
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.transforms.batching import batch_at, batch_jaxpr, move_dim
from mpijax.transforms.call import hoist_tracers
from mpijax.transforms.flat import FlatFun, debug_info_of
from mpijax.transforms.ref_state import values_of
from mpijax.transforms.zeros import Zero, instantiate


def linear_call(fun: Callable, fun_transpose: Callable, residual_args: Any, linear_args: Any) -> Any:
    """Call `fun(residual_args, linear_args)`, which is linear in the second argument, with a user-defined transpose.

    `fun_transpose(residual_args, cotangent)` returns the cotangent of `linear_args`. The transpose of the call is a
    call of `fun_transpose`, whose transpose is `fun` again. Residuals cannot be differentiated.

    Raises:
      TypeError: if the transpose returns another structure than that of `linear_args`.

    >>> scale = lambda factor, x: factor * x
    >>> f = lambda x: mpijax.custom_derivatives.linear_call(scale, scale, 3.0, x)
    >>> mpijax.linear_transpose(f, jnp.float32(0))(jnp.float32(2))
    (Array(6., dtype=float32),)
    """
    residuals, res_tree = tree.tree_flatten(residual_args)
    operands, lin_tree = tree.tree_flatten(linear_args)
    res_avals = [typeof(x) for x in residuals]
    callee, consts, out_tree = _traced("linear_call fun", fun, res_tree, lin_tree, res_avals, map(typeof, operands))
    known: list = []

    def transpose_thunk():
        if not known:
            found = _traced(
                "linear_call fun_transpose", fun_transpose, res_tree, out_tree, res_avals, callee.out_avals
            )
            if found[2] != lin_tree:
                raise TypeError(
                    "transpose output pytree structure must match that of linear inputs, got output structure "
                    f"{found[2]} and input structure {lin_tree}."
                )
            known.append(found[:2])
        return known[0]

    outs = linear_call_p.bind(
        *consts,
        *residuals,
        *operands,
        callee=callee,
        transpose_thunk=transpose_thunk,
        num_callee_consts=len(consts),
        num_res=len(residuals),
    )
    return tree.tree_unflatten(out_tree, outs)


def _traced(what, fun, first_tree, second_tree, first_avals, second_avals):
    """The Jaxpr of a function of two pytrees with its constants as leading arguments; their values; the output tree."""
    avals = [*first_avals, *second_avals]
    pair = tree.treedef_tuple((first_tree, second_tree))
    flat = FlatFun(fun, tree.treedef_tuple((pair, tree.tree_structure({}))))
    jaxpr, consts = trace_to_jaxpr(flat, avals, debug_info_of(what, fun, flat.in_tree))
    closed, moved = hoist_tracers(jaxpr, consts, lambda _: True)
    return closed, values_of(moved), flat.out_tree


def _jvp(primals, tangents, **params):
    fixed = params["num_callee_consts"] + params["num_res"]
    if any(type(t) is not Zero for t in tangents[:fixed]):
        raise NotImplementedError(
            "linear_call cannot be differentiated with respect to its residuals. Make them linear arguments."
        )
    outs = linear_call_p.bind(*primals, **params)
    return outs, linear_call_p.bind(*primals[:fixed], *map(instantiate, tangents[fixed:]), **params)


def _transpose(cts, *args, callee, transpose_thunk, num_callee_consts, num_res):
    transpose, consts = transpose_thunk()
    fixed = num_callee_consts + num_res
    callee_consts, residuals = args[:num_callee_consts], args[num_callee_consts:fixed]
    outs = linear_call_p.bind(
        *consts,
        *residuals,
        *map(instantiate, cts),
        callee=transpose,
        transpose_thunk=lambda: (callee, callee_consts),
        num_callee_consts=len(consts),
        num_res=num_res,
    )
    return [None] * fixed + outs


def _batch(axis, args, dims, *, callee, transpose_thunk, num_callee_consts, num_res):
    fixed = num_callee_consts + num_res
    moved = [x if d is None else move_dim(x, d, 0) for x, d in zip(args[:fixed], dims[:fixed], strict=True)]
    moved += [batch_at(x, d, 0, axis) for x, d in zip(args[fixed:], dims[fixed:], strict=True)]
    batched = [d is not None for d in dims[:fixed]]
    closed, _ = batch_jaxpr(callee, axis, (*batched, *[True] * (len(args) - fixed)), True)

    def batched_thunk():
        transpose, consts = transpose_thunk()
        flags = (*[False] * len(consts), *batched[num_callee_consts:], *[True] * len(callee.out_avals))
        return batch_jaxpr(transpose, axis, flags, True)[0], consts

    outs = linear_call_p.bind(
        *moved, callee=closed, transpose_thunk=batched_thunk, num_callee_consts=num_callee_consts, num_res=num_res
    )
    return outs, [0] * len(outs)


linear_call_p = Primitive(
    "linear_call",
    type_rule=lambda *_avals, callee, **_: callee.out_avals,
    reference=lambda *args, callee, **_: eval_jaxpr(callee.jaxpr, callee.consts, *args),
    lower=InlineJaxpr("callee"),
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    multiple_results=True,
    effects=lambda params: params["callee"].effects,
    vma=lambda avals, params: None,
)
