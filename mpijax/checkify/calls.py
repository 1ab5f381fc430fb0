"""Checks inside calls, branches and loops: their Jaxprs take and return the error besides their own values.

A loop's error must have the same structure before and after each iteration, and so must the errors of all branches. One
trace finds which kinds of failures can happen. If the given error lacks slots for some of them, the slots are added,
and the Jaxpr is traced again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax import lax
from mpijax import numpy as jnp
from mpijax.checkify.checks import rules
from mpijax.checkify.errors import NO_ERROR, Error
from mpijax.checkify.interpreter import interpret
from mpijax.core.base.state import state
from mpijax.core.programs.jaxpr import ClosedJaxpr
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.tracing.trace import axis_size, named_axes
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.transforms.custom import Rule
from mpijax.transforms.zeros import Zero


class Checked:
    """A Jaxpr `(*before, *error, *after) -> (*error, *results)`, and the structure of its returned error."""

    def __init__(self, run: Callable, error: Error, before: Sequence[Any], after: Sequence[Any]):
        leaves, err_tree = tree.tree_flatten(error)
        start, stop = len(before), len(before) + len(leaves)
        found: list[Any] = []

        def fun(*flat):
            result, outs = run(tree.tree_unflatten(err_tree, flat[start:stop]), [*flat[:start], *flat[stop:]])
            out_leaves, out_tree = tree.tree_flatten(result)
            found.append(out_tree)
            return [*out_leaves, *outs]

        self.jaxpr = trace_to_closed_jaxpr(fun, [*before, *map(typeof, leaves), *after])
        self.leaves = leaves
        self.out_tree = found[0]

    def skeleton(self) -> Error:
        """The returned error, with numbers in place of its values."""
        return tree.tree_unflatten(self.out_tree, range(self.out_tree.num_leaves))

    def split(self, outs: Sequence[Any]) -> tuple[Error, list[Any]]:
        n = self.out_tree.num_leaves
        return tree.tree_unflatten(self.out_tree, outs[:n]), list(outs[n:])


def _runs(closed: ClosedJaxpr, enabled) -> Callable:
    return lambda error, args: interpret(closed.jaxpr, closed.consts, enabled, error, args)


def _with_room(traced: Callable[[Error], list[Checked]], error: Error) -> list[Checked]:
    """Jaxprs that return an error of the same structure as the error they take.

    They are traced again only if necessary: otherwise each nested loop would double the time.
    """
    checked = traced(error)
    roomy = error.with_kinds({kind for c in checked for kind in c.skeleton()._pred})
    return checked if roomy is error else traced(roomy)


# ---------------------------------------------------------------- calls


def _jit_rule(error, enabled, primitive, args, params):
    checked = Checked(_runs(params["jaxpr"], enabled), error, (), params["jaxpr"].in_avals)
    donated = (False,) * len(checked.leaves) + tuple(params["donated_invars"])
    outs = primitive.bind(*checked.leaves, *args, **{**params, "jaxpr": checked.jaxpr, "donated_invars": donated})
    return checked.split(outs)


def _remat_rule(error, enabled, primitive, args, params):
    checked = Checked(_runs(params["jaxpr"], enabled), error, (), params["jaxpr"].in_avals)
    if isinstance(params["prevent_cse"], tuple):
        params = {**params, "prevent_cse": (False,) * len(checked.leaves) + params["prevent_cse"]}
    return checked.split(primitive.bind(*checked.leaves, *args, **{**params, "jaxpr": checked.jaxpr}))


def _with_error(closed: ClosedJaxpr, enabled, error: Error):
    """A flat function `(*error, *args) -> (*error, *results)`, and a list that receives the structure of its error."""
    leaves, err_tree = tree.tree_flatten(error)
    found: list[Any] = []

    def fun(*flat):
        before = tree.tree_unflatten(err_tree, flat[: len(leaves)])
        result, outs = interpret(closed.jaxpr, closed.consts, enabled, before, flat[len(leaves) :])
        out_leaves, out_tree = tree.tree_flatten(result)
        found[:] = [out_tree]
        return [*out_leaves, *outs]

    return leaves, fun, found


def _custom_jvp_rule(error, enabled, primitive, args, params):
    """Uses the user's rule for the derivative. The rule has no checks, and the error has no derivative."""
    leaves, fun, found = _with_error(params["call_jaxpr"], enabled, error)
    n, user_rule = len(leaves), params["jvp"]

    def rule(primals, tangents):
        errors = fun(*primals)[: found[0].num_leaves]
        outs, out_tangents = user_rule(primals[n:], tangents[n:])
        return [*errors, *outs], [*map(Zero.of_primal, errors), *out_tangents]

    call = primitive.remake(fun, {**params, "jvp": Rule(user_rule.__name__, rule)})
    return _split(found, call.bind(*leaves, *args))


def _custom_vjp_rule(error, enabled, primitive, args, params):
    """As for `custom_jvp`: checks the function, and uses the user's rule for the derivative."""
    leaves, fun, found = _with_error(params["call_jaxpr"], enabled, error)
    n, user_fwd = len(leaves), params["fwd"]

    def fwd(primals, perturbed):
        errors = fun(*primals)[: found[0].num_leaves]
        outs, residuals, bwd = user_fwd(primals[n:], perturbed[n:])
        return [*errors, *outs], residuals, lambda res, cts: [None] * n + list(bwd(res, cts[len(errors) :]))

    call = primitive.remake(fun, {**params, "fwd": Rule(user_fwd.__name__, fwd)})
    return _split(found, call.bind(*leaves, *args))


def _split(found, outs) -> tuple[Error, list[Any]]:
    n = found[0].num_leaves
    return tree.tree_unflatten(found[0], outs[:n]), list(outs[n:])


# ---------------------------------------------------------------- branches and loops


def _cond_rule(error, enabled, primitive, args, params):
    index, *operands = args
    branches = params["branches"]
    avals = branches[0].in_avals

    def traced(before: Error) -> list[Checked]:
        return [Checked(_runs(b, enabled), before, (), avals) for b in branches]

    checked = _with_room(traced, error)
    outs = primitive.bind(
        index, *checked[0].leaves, *operands, **{**params, "branches": tuple(c.jaxpr for c in checked)}
    )
    error, results = checked[0].split(outs)
    for other in checked[1:]:
        error = error.knowing(other.skeleton()._metadata)
    return error, results


def _scan_rule(error, enabled, primitive, args, params):
    closed, n = params["jaxpr"], params["num_consts"]
    consts, rest = args[:n], args[n:]
    run = _runs(closed, enabled)

    def traced(before: Error) -> list[Checked]:
        return [Checked(run, before, closed.in_avals[:n], closed.in_avals[n:])]

    (checked,) = _with_room(traced, error)
    num_carry = params["num_carry"] + len(checked.leaves)
    outs = primitive.bind(
        *consts, *checked.leaves, *rest, **{**params, "jaxpr": checked.jaxpr, "num_carry": num_carry}
    )
    return checked.split(outs)


def _while_rule(error, enabled, primitive, args, params):
    """Checks the condition before the loop and, for the next iteration, at the end of each iteration."""
    cond, body = params["cond_jaxpr"], params["body_jaxpr"]
    if cond.out_avals[0].shape:
        raise ValueError(
            "Checkify does not support batched while-loops (checkify-of-vmap-of-while). \nHint: if possible, move the "
            "vmap to the outer level to get vmap-of-checkify-of-while."
        )
    m, n = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, body_consts, carry = args[:m], args[m : m + n], args[m + n :]
    error, _ = interpret(cond.jaxpr, cond.consts, enabled, error, [*cond_consts, *carry])

    def iteration(before: Error, flat):
        after, outs = interpret(body.jaxpr, body.consts, enabled, before, flat[m:])
        after, _ = interpret(cond.jaxpr, cond.consts, enabled, after, [*flat[:m], *outs])
        return after, outs

    def traced(before: Error) -> list[Checked]:
        return [Checked(iteration, before, [*cond.in_avals[:m], *body.in_avals[:n]], body.in_avals[n:])]

    (checked,) = _with_room(traced, error)
    return checked.split(
        primitive.bind(
            *cond_consts, *cond_consts, *body_consts, *checked.leaves, *carry,
            cond_nconsts=m,
            cond_jaxpr=_ignoring(cond, m, checked.leaves),
            body_nconsts=m + n,
            body_jaxpr=checked.jaxpr,
        )  # fmt: skip
    )


def _ignoring(cond: ClosedJaxpr, num_consts: int, leaves: Sequence[Any]) -> ClosedJaxpr:
    """The condition of a loop that carries an error; ignores the error."""

    def fun(*flat):
        return interpret(
            cond.jaxpr, cond.consts, frozenset(), NO_ERROR, [*flat[:num_consts], *flat[num_consts + len(leaves) :]]
        )[1]

    avals = [*cond.in_avals[:num_consts], *map(typeof, leaves), *cond.in_avals[num_consts:]]
    return trace_to_closed_jaxpr(fun, avals)


# ---------------------------------------------------------------- ranks


def _shard_map_rule(error, enabled, primitive, args, params):
    """Every rank checks its own shard. All ranks get the errors of all ranks, along a new first axis."""
    mesh, closed = params["mesh"], params["jaxpr"]
    axes = tuple(n for n in mesh.axis_names if n in params["newly_manual_axes"])
    run = _runs(closed, enabled)
    if any(np.shape(x) for x in error._pred.values()):
        raise ValueError(
            "checkify of a shard_map inside another shard_map is not supported. Apply checkify to the outer function."
        )

    def on_each_rank(before: Error, shards):
        after, outs = run(before, shards)
        return tree.tree_map(lambda x: _of_all_ranks(x, axes), after), outs

    manual = frozenset(axes) if params["check_vma"] else frozenset()
    with named_axes({n: mesh.shape[n] for n in axes}, state.manual_axes | manual, mesh):
        checked = Checked(on_each_rank, error, (), closed.in_avals)
    n, m = len(checked.leaves), checked.out_tree.num_leaves
    specs = {
        "in_specs": (PartitionSpec(),) * n + tuple(params["in_specs"]),
        "out_specs": (PartitionSpec(),) * m + tuple(params["out_specs"]),
    }
    return checked.split(primitive.bind(*checked.leaves, *args, **{**params, "jaxpr": checked.jaxpr, **specs}))


def _of_all_ranks(x: Any, axes: tuple) -> Any:
    """The values of `x` on all ranks along a new first axis, the same on every rank: a sum of one-hot rows."""
    size = axis_size(axes)
    here = jnp.arange(size) == lax.axis_index(axes)
    x = jnp.asarray(x)
    number = x.astype(np.int32) if x.dtype == np.bool_ else x
    row = here.reshape((size,) + (1,) * x.ndim)
    return lax.psum(jnp.where(row, number, jnp.zeros_like(number)), axes).astype(x.dtype)


rules.update(
    {
        "jit": _jit_rule,
        "remat2": _remat_rule,
        "custom_jvp_call": _custom_jvp_rule,
        "custom_vjp_call": _custom_vjp_rule,
        "cond": _cond_rule,
        "shard_map": _shard_map_rule,
        "scan": _scan_rule,
        "while": _while_rule,
    }
)
