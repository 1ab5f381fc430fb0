"""Defines `while_loop` and `fori_loop`: apply a function repeatedly to its own result."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import config, errors
from mpijax.core.base.errors import InconclusiveDimensionOperation
from mpijax.core.tracing.refs import Ref
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.lax.loops import scan
from mpijax.ops.control_flow.common import Body, check_carry, chosen, merged, promote_weak, trace_body
from mpijax.ops.control_flow.signatures import forwarded, inputs_first, pruned, with_inputs, with_outputs
from mpijax.ops.control_flow.varying import vary, vary_jaxpr
from mpijax.ops.control_flow.while_loop import bind_while
from mpijax.ops.elementwise.binary import add
from mpijax.ops.elementwise.compare import lt
from mpijax.ops.elementwise.convert import convert_element_type, stage
from mpijax.ops.rules import const_like
from mpijax.transforms.flat import standing_for
from mpijax.transforms.ref_state import CarriedRefs, has_refs, made_of, state_passing, values_of, write_all


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    """Apply `body_fun` while `cond_fun` holds.

    Equivalent to this loop, for pytrees, as one operation that is traced and compiled once:

        val = init_val
        while cond_fun(val):
            val = body_fun(val)
        return val

    Under `vmap` with a condition that differs between examples, the loop runs until the condition is false
    for all of them; finished examples keep their values. Under `shard_map` with a condition that varies over
    a mesh axis, the loop may not communicate over that axis. There is no reverse-mode derivative, because the
    number of iterations is unknown; `fori_loop` with Python integers, and `scan`, have one.

    Args:
      cond_fun: `val -> bool scalar`.
      body_fun: `val -> val`, of the same structure, shapes and dtypes.
      init_val: the initial value.

    Raises:
      TypeError: if a function is not callable, `cond_fun` does not return a bool scalar, or `body_fun` changes the
      type.

    >>> lax.while_loop(lambda x: x < 100, lambda x: x * 2, 1)
    Array(128, dtype=int32, weak_type=True)
    """
    if not (callable(body_fun) and callable(cond_fun)):
        raise TypeError(
            f"lax.while_loop: body_fun and cond_fun arguments should be callable, got {body_fun!r} and {cond_fun!r}."
        )
    if config.disable_jit.value:
        try:
            return _python_while(cond_fun, body_fun, init_val)
        except errors.ConcretizationTypeError:
            pass  # Python cannot decide traced conditions, as under vmap: the primitive does
    leaves, in_tree = tree.tree_flatten(init_val)
    if has_refs(leaves):
        return _while_carrying_refs(cond_fun, body_fun, init_val)
    cond, body = _trace_pair(cond_fun, body_fun, leaves, in_tree)
    if cond.written:
        return _while_deciding(cond_fun, body_fun, cond.written, body.written, init_val)
    if body.written:
        return _while_writing(cond_fun, body_fun, body.written, init_val)
    _check_condition(cond)
    leaves, cond, body = _of_stable_types(cond_fun, body_fun, leaves, in_tree, cond, body)
    return tree.tree_unflatten(body.out_tree, _bind(cond, body, leaves))


def _while_carrying_refs(cond_fun: Callable, body_fun: Callable, init_val: Any) -> Any:
    """`while_loop` whose carry has references in fixed places."""
    carried = CarriedRefs(init_val, "while_loop")
    values = while_loop(
        lambda values: cond_fun(carried.carry(values)),
        lambda values: carried.values(body_fun(carried.carry(values))),
        carried.values(init_val),
    )
    return carried.carry(values)


def _while_deciding(cond_fun, body_fun, decided: Sequence[Ref], written: Sequence[Ref], init_val: Any) -> Any:
    """`while_loop` for `cond_fun` that writes to the outside references `decided`, and `body_fun` to `written`.

    As in JAX, the writes of the last condition, which ends the loop, are dropped.
    """
    if any(a is b for a in decided for b in written):
        raise NotImplementedError(
            "while_loop: Cannot write to the same ref in both cond and body. Use two mutable array references."
        )

    def iteration(val):
        cond_fun(val)
        return body_fun(val)

    return _while_writing(cond_fun, iteration, (*decided, *written), init_val)


def _while_writing(cond_fun, body_fun, written: Sequence[Ref], init_val: Any) -> Any:
    """`while_loop` for `body_fun` that writes to outside references: carries their values."""
    cond, body = state_passing(cond_fun, written), state_passing(body_fun, written)
    going = made_of(cond, _conditions, lambda fun: lambda carry: fun()(*carry)[1])
    iteration = made_of(body, _iterations, lambda fun: lambda carry: fun()(*carry))
    values, val = while_loop(going, iteration, (values_of(written), init_val))
    write_all(written, values)
    return val


_conditions: weakref.WeakKeyDictionary[Callable, Callable] = weakref.WeakKeyDictionary()
_iterations: weakref.WeakKeyDictionary[Callable, Callable] = weakref.WeakKeyDictionary()


def _python_while(cond_fun, body_fun, init_val):
    val = tree.tree_map(stage, init_val)
    while cond_fun(val):
        val = tree.tree_map(stage, body_fun(val))
    return val


def _of_stable_types(cond_fun, body_fun, leaves: list[Any], in_tree, cond: Body, body: Body):
    """The carry, promoted to the types that the loop gives, and the traced functions of these types."""
    if len(body.out_avals) == len(leaves):
        leaves, changed = promote_weak(leaves, body.out_avals)
        if changed:
            cond, body = _trace_pair(cond_fun, body_fun, leaves, in_tree)
        leaves, cond, body = _vary_together(cond_fun, body_fun, leaves, in_tree, cond, body)
    check_carry("while_loop body", body_fun, in_tree, [typeof(x) for x in leaves], body.out_tree, body.out_avals)
    return leaves, cond, body


def _trace_pair(cond_fun, body_fun, leaves, in_tree) -> tuple[Body, Body]:
    args = [in_tree], [typeof(x) for x in leaves]
    return trace_body(cond_fun, *args, "while_cond"), trace_body(body_fun, *args, "while_body")


def _check_condition(cond: Body) -> None:
    if not tree.treedef_is_leaf(cond.out_tree) or len(cond.out_avals) != 1:
        raise TypeError(f"cond_fun must return a boolean scalar, but got pytree {cond.out_tree}.")
    [flag] = cond.out_avals
    if flag.shape or flag.dtype != np.bool_:
        raise TypeError(f"cond_fun must return a boolean scalar, but got output type(s) {cond.out_avals}.")


def _vary_together(cond_fun, body_fun, leaves, in_tree, cond: Body, body: Body):
    """Make carries vary over the mesh axes over which the body's results, and the number of iterations, vary."""
    while True:
        varying = cond.out_avals[0].vma
        axes = [typeof(x).vma | a.vma | varying for x, a in zip(leaves, body.out_avals, strict=True)]
        if all(typeof(x).vma == a for x, a in zip(leaves, axes, strict=True)):
            closed = vary_jaxpr(body.jaxpr, [frozenset()] * len(body.jaxpr.in_avals), axes)
            return leaves, cond, Body(closed, body.consts, body.out_tree)
        leaves = [vary(x, a) for x, a in zip(leaves, axes, strict=True)]
        cond, body = _trace_pair(cond_fun, body_fun, leaves, in_tree)


def _bind(cond: Body, body: Body, init: list[Any]) -> list[Any]:
    """The last carry. Carries that the body returns unchanged, and the condition does not read, become constants."""
    n = len(body.consts)
    changing = [source != n + i for i, source in enumerate(forwarded(body.jaxpr))]
    cond_jaxpr, body_jaxpr, body_consts = cond.jaxpr, body.jaxpr, body.consts
    pruned_cond, reads = pruned(cond_jaxpr, (True,))
    constant = [not (c or r) for c, r in zip(changing, reads[len(cond.consts) :], strict=True)]
    moved = chosen(init, constant)
    if moved:
        kept = tuple(not c for c in constant)
        cond_jaxpr = with_inputs(pruned_cond, (*[True] * len(cond.consts), *kept))
        body_jaxpr = inputs_first(with_outputs(body_jaxpr, kept), (*[False] * n, *constant))
        body_consts = [*moved, *body_consts]
        init = chosen(init, kept)
    outs = bind_while(
        *cond.consts, *body_consts, *init,
        cond_jaxpr=cond_jaxpr, cond_nconsts=len(cond.consts), body_jaxpr=body_jaxpr, body_nconsts=len(body_consts),
    )  # fmt: skip
    return merged(constant, map(stage, moved), outs)


# ---------------------------------------------------------------- fori_loop


def fori_loop(
    lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any, *, unroll: int | bool | None = None
) -> Any:
    """Apply `body_fun(i, val)` for i from `lower` up to, but not including, `upper`.

    If the bounds are known during tracing, this is a `scan`, which has a reverse-mode derivative; with
    traced bounds it is a `while_loop`, which has none. No iterations if `upper <= lower`.

    Args:
      lower, upper: integers of one dtype, or one of them a Python integer.
      body_fun: `(i, val) -> val`, of the same structure, shapes and dtypes.
      init_val: the initial value.
      unroll: number of iterations in one iteration of the compiled loop, True for all; for known bounds only.

    Raises:
      TypeError: if the bounds have two dtypes, or `body_fun` is not a function or changes the type.
      ValueError: for `unroll` with traced bounds.

    >>> lax.fori_loop(0, 5, lambda i, total: total + i, 0)
    Array(10, dtype=int32, weak_type=True)
    """
    if not callable(body_fun):
        raise TypeError(f"lax.fori_loop: body_fun argument should be callable, got {body_fun!r}.")
    dtype = _bounds_dtype(typeof(lower), typeof(upper))
    known = _known_integer(lower), _known_integer(upper)
    if known[0] is not None and known[1] is not None:
        length = max(known[1] - known[0], 0)
        if config.disable_jit.value and length == 0:
            return init_val
        unroll = False if unroll is None else unroll
        (_, result), _ = scan(_scan_body(body_fun), (known[0], init_val), None, length=length, unroll=unroll)
        return result
    if unroll is not None and unroll is not False and unroll != 1:
        raise ValueError("Can only use `unroll` in `fori_loop` if the loop bounds are statically known.")
    lower, upper = (x if typeof(x).dtype == dtype else convert_element_type(x, dtype) for x in (lower, upper))
    return while_loop(_below, _while_body(body_fun), (lower, upper, init_val))[2]


def _bounds_dtype(lower: ShapedArray, upper: ShapedArray) -> Any:
    """The loop counter's dtype; raises TypeError if the bounds have incompatible dtypes."""
    if lower.dtype == upper.dtype:
        return lower.dtype
    signed = all(dtypes.issubdtype(a.dtype, np.signedinteger) for a in (lower, upper))
    if signed and lower.weak_type != upper.weak_type:
        return upper.dtype if lower.weak_type else lower.dtype
    raise TypeError(
        f"lower and upper arguments to fori_loop must have equal types, got {lower.dtype.name} and "
        f"{upper.dtype.name}. Convert one of them: x.astype(...)"
    )


def _known_integer(x: Any) -> int | None:
    if isinstance(x, Tracer):
        x = x.concrete()
        if x is None:
            return None
    try:
        return int(x)
    except (TypeError, InconclusiveDimensionOperation):
        return None


def _below(carry):
    i, upper, _ = carry
    return lt(i, upper)


# Functions derived from a loop's body, cached while the body lives, so that a second loop is not traced again.
_scan_bodies: weakref.WeakKeyDictionary[Callable, Callable] = weakref.WeakKeyDictionary()
_while_bodies: weakref.WeakKeyDictionary[Callable, Callable] = weakref.WeakKeyDictionary()


def _scan_body(body_fun: Callable) -> Callable:
    def make(fun):
        def iteration(carry, _):
            i, x = carry
            return (add(i, const_like(i, 1)), fun()(i, x)), None

        return standing_for(iteration, "fori_loop", fun, lambda carry, _: carry)

    return made_of(body_fun, _scan_bodies, make)


def _while_body(body_fun: Callable) -> Callable:
    def make(fun):
        def iteration(carry):
            i, upper, x = carry
            return add(i, const_like(i, 1)), upper, fun()(i, x)

        return standing_for(iteration, "fori_loop", fun, lambda carry: (carry[0], carry[2]))

    return made_of(body_fun, _while_bodies, make)
